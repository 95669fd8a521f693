//! The socket as clients see it: a server with a small table of methods, and clients that write bytes.
//!
//! Tests wait for a line, a count or the end of input, never for a time. The deadline in `support` only turns a hang
//! into a failure.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "parameters are written where they are sent, as json!"
)]

#[cfg(target_os = "linux")]
mod foreign_user;
mod limits;
mod requests;
mod support;
