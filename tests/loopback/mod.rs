//! The loopback agent as a real process: every directive, and every way to lose and find a session.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]
#![allow(
    clippy::needless_pass_by_value,
    reason = "calls read better with their parameters in place"
)]

mod client;
mod directives;
mod place;
mod process;
mod sessions;
