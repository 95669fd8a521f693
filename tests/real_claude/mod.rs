//! The real Claude adapter against a scripted model: alone, for the facts about it that the bridge relies on,
//! and through the daemon, as an app uses it. The proof is what the model was sent.
//!
//! They install the adapter by npm (about 400 MB, once), so a plain `cargo test` leaves them out. `cargo test
//! --test real real_claude::smoke:: -- --ignored` runs those that every check runs, and `cargo test --test
//! real real_claude:: -- --ignored --skip smoke::` all others. Without npm each says why it is skipped.

// The exemption for tests covers test functions only, not what they call.
#![allow(clippy::expect_used)]

mod branches;
pub(crate) mod bridge;
#[cfg(target_os = "linux")]
mod carrying;
#[cfg(target_os = "linux")]
mod chatting;
mod compacted;
mod damage;
#[cfg(target_os = "linux")]
mod deaths;
mod diagnosing;
#[cfg(target_os = "linux")]
mod failures;
mod idle;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod moving;
mod questions;
mod repairing;
mod sdk;
mod settings;
mod smoke;
#[cfg(target_os = "linux")]
mod starting;
#[cfg(target_os = "linux")]
mod survival;
mod transcripts;
mod turns;
mod watching;
#[cfg(target_os = "linux")]
mod whole;
mod words;
mod worktrees;
