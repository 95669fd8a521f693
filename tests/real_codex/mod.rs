//! Tests with the real Codex adapter and a scripted model. Some run the adapter alone, to check the facts
//! that the daemon relies on; others use it through the daemon, as an app does. They check what the model
//! received.
//!
//! npm installs the adapter (about 500 MB, once), so a plain `cargo test` skips these tests. `cargo test
//! --test real real_codex::smoke:: -- --ignored` runs those that belong to every check, and `cargo test
//! --test real real_codex:: -- --ignored --skip smoke::` all others. Without npm each test prints why it is
//! skipped.

// Clippy exempts only test functions, not the functions they call.
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
