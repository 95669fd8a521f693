//! The real Claude adapter against a scripted model: alone, for the facts about it that the bridge relies on, and
//! through the daemon, as an app uses it. The proof is what the model was sent.
//!
//! They install the adapter by npm (about 400 MB, once), so a plain `cargo test` leaves them out. With `-- --ignored smoke::`
//! it runs those of the modules named `smoke`, which every check runs; with `-- --ignored --skip smoke::` all others. Without
//! npm each says why it is skipped.

// The exemption for tests covers test functions only, not what they call.
#![allow(clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod branches;
mod bridge;
#[path = "../support/bridge.rs"]
mod bridge_of;
#[cfg(target_os = "linux")]
mod carrying;
mod compacted;
mod damage;
#[cfg(target_os = "linux")]
mod deaths;
mod diagnosing;
#[cfg(target_os = "linux")]
mod failures;
#[path = "../support/going_back.rs"]
mod going_back;
#[path = "../support/going_on.rs"]
mod going_on;
mod idle;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod moving;
#[path = "../support/passing.rs"]
mod passing;
#[path = "../support/permitted.rs"]
mod permitted;
#[cfg(target_os = "linux")]
#[path = "../support/processes.rs"]
mod processes;
mod questions;
#[path = "../support/reading.rs"]
mod reading;
#[cfg(target_os = "linux")]
#[path = "../support/refused.rs"]
mod refused;
mod repairing;
mod sdk;
mod settings;
mod smoke;
#[cfg(target_os = "linux")]
mod survival;
#[path = "../support/told.rs"]
mod told;
mod transcripts;
mod turns;
mod watching;
#[cfg(target_os = "linux")]
mod whole;
mod words;
mod worktrees;
