//! Files and folders, whatever they hold: how what is written to them comes to last.
//!
//! Knows no format, no agent and no conversation. Everything here blocks.

pub(crate) mod durable;
