//! To be written.

pub mod failure;
pub mod loopback;
pub mod profile;
