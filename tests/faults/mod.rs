//! A campaign of faults. A proxy between the daemon and its agent drops, delays, truncates, joins, duplicates
//! and reorders lines, closes pipes and kills processes, while conversations do random things. In spite of
//! the faults:
//!
//! - every call is answered, and every id leads to its conversation;
//! - chain and lineage are correct;
//! - no acknowledged turn is lost without a report, and no prompt takes effect twice;
//! - a continuation scheduled after a usage limit is sent once, unless it was cancelled;
//! - no process is left behind.
//!
//! A round is one daemon with one client, and its random choices come from one seed. `FAULT_SEED` replays a
//! round; otherwise `FAULT_ROUNDS` sets the number of rounds. The order in which the processes of a round run
//! does not depend on the seed.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may fail by panicking, its helpers too, and tells the seed with which it can be repeated"
)]

mod campaign;
mod effects;
mod figures;
mod going_on;
mod kinds;
mod promises;
mod proxy;
mod round;
mod steps;
mod verify;
