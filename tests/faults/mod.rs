//! A campaign of faults: between the daemon and its agent stands a proxy that drops, delays, truncates,
//! joins, duplicates and reorders lines, closes pipes and kills processes, while conversations do random
//! things. Whatever happens, every call is answered, every id leads to its conversation, chain and lineage
//! are right, no turn that was acknowledged is lost untold, no prompt takes effect twice, what is to go on
//! after a usage limit does so once unless it was called off, and no process stays.
//!
//! One round is one daemon with one client, and comes from one seed: `FAULT_SEED` replays it. `FAULT_ROUNDS`
//! says how many rounds there are without it. What is random in a round comes from its seed; how its
//! processes take turns does not.

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
