//! The real Claude adapter against a scripted model: alone, for the facts about it that the bridge relies on, and
//! through the daemon, as an app uses it. The proof is what the model was sent.
//!
//! They install the adapter by npm (about 400 MB, once), so they are run on demand:
//! `cargo test --test real real_claude:: -- --ignored`. Without npm each says why it is skipped.

// The exemption for tests covers test functions only, not what they call.
#![allow(clippy::expect_used)]

mod branches;
mod bridge;
#[cfg(target_os = "linux")]
mod carrying;
mod compacted;
mod contract;
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
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod moving;
mod questions;
mod repairing;
mod sdk;
mod settings;
#[cfg(target_os = "linux")]
mod survival;
mod transcripts;
mod turns;
mod watching;
#[cfg(target_os = "linux")]
mod whole;
mod words;
mod worktrees;
