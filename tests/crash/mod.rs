//! The daemon as a process that is killed: at random moments, with its agents, and with its files damaged or
//! without room. What it acknowledged before has to be there afterwards, and no process may stay behind.
//!
//! The rounds of [`rounds`] and [`full_disk`] are replayed with `CRASH_SEED`, and `CRASH_ROUNDS` says how many there are.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may fail by panicking, its helpers too, and tells the seed with which it can be repeated"
)]

pub(crate) mod chain;
pub(crate) mod client;
mod erasing;
mod files;
mod full_disk;
mod going_back;
pub(crate) mod home;
pub(crate) mod ledger;
mod places;
mod processes;
mod room;
mod rounds;
mod store;
mod turn;
mod verify;
mod worker;
