//! The real Codex adapter against a scripted model: alone, for the facts about it that the bridge relies on,
//! and through the daemon, as an app uses it. The proof is what the model was sent.
//!
//! They install the adapter by npm (about 500 MB, once), so a plain `cargo test` leaves them out. `cargo test
//! --test real real_codex::smoke:: -- --ignored` runs those that every check runs, and `cargo test --test
//! real real_codex:: -- --ignored --skip smoke::` all others. Without npm each says why it is skipped.

// The exemption for tests covers test functions only, not what they call.
#![allow(clippy::expect_used)]

mod branches;
pub(crate) mod bridge;
mod carrying;
mod compacted;
mod damage;
mod diagnosing;
#[cfg(target_os = "linux")]
mod failures;
mod limits;
mod moving;
mod pictures;
#[cfg(target_os = "linux")]
mod questions;
#[cfg(target_os = "linux")]
mod repairing;
mod smoke;
mod survival;
mod transcripts;
mod watching;
mod whole;
