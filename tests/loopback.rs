//! The loopback agent as a real process: every directive, and every way to lose and find a session.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]
#![allow(
    clippy::needless_pass_by_value,
    reason = "calls read better with their parameters in place"
)]

#[path = "loopback/client.rs"]
mod client;
#[path = "loopback/directives.rs"]
mod directives;
#[path = "loopback/place.rs"]
mod place;
#[path = "loopback/process.rs"]
mod process;
#[path = "loopback/sessions.rs"]
mod sessions;
