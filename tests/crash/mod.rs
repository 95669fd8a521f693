//! Kills the daemon at random moments, also together with its agents, with damaged files, and on a full disk.
//! Everything acknowledged before must exist afterwards, and no process may be left behind.
//!
//! `CRASH_SEED` replays the rounds of [`rounds`] and [`full_disk`]; `CRASH_ROUNDS` sets their number.

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
