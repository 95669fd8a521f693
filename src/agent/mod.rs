//! To be written.

pub mod failure;
pub mod profile;
