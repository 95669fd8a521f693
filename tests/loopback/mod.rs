//! The loopback agent as a real process: what the tests of the daemon, which use all of its directives, do not show.

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
