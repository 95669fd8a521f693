//! Tests with the real Claude adapter and a scripted model. Some run the adapter alone, to check the facts
//! that the daemon relies on; others use it through the daemon, as an app does. They check what the model
//! received.
//!
//! npm installs the adapter (about 400 MB, once), so a plain `cargo test` skips these tests. `cargo test
//! --test real real_claude::smoke:: -- --ignored` runs those that belong to every check, and `cargo test
//! --test real real_claude:: -- --ignored --skip smoke::` all others. Without npm each test prints why it is
//! skipped.

// Clippy exempts only test functions, not the functions they call.
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
