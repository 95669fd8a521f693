//! The loopback agent as a real process. The tests of the daemon use all of its directives; these tests cover
//! the rest.

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
