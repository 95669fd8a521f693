//! To be written.

pub mod lock;
