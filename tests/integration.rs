//! All tests that run the real programs, in one test program, so that only one has to be linked.
//!
//! Run one folder with `cargo test --test integration daemon::`, and one file with `cargo test --test
//! integration daemon::edits::`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, also in its helpers"
)]

mod acp;
mod cli;
mod crash;
mod daemon;
mod docs;
#[cfg(target_os = "linux")]
#[path = "support/failing_calls.rs"]
mod failing_calls;
mod faults;
mod golden;
#[cfg(target_os = "linux")]
#[path = "support/in_order.rs"]
mod in_order;
mod loopback;
mod packaging;
#[cfg(target_os = "linux")]
#[path = "support/pty.rs"]
mod pty;
#[cfg(target_os = "linux")]
#[path = "support/random.rs"]
mod random;
#[path = "support/resumed.rs"]
mod resumed;
#[path = "../bridge-protocol/tests/fixtures/schema.rs"]
mod schema;
#[cfg(target_os = "linux")]
#[path = "support/screen.rs"]
mod screen;
#[cfg(target_os = "linux")]
#[path = "support/signs.rs"]
mod signs;
mod store_crash;
#[path = "support/test_programs.rs"]
mod test_programs;
mod tidy;
#[path = "support/words.rs"]
mod words;

// The tests in `daemon` refer to their helpers from the root.
use daemon::{
    carrying, codex, codex_rollouts, codex_watching, continuing, contract, damaged, gate, home, keeping,
    moved_trees, moving, scene, scripted, support, watching,
};
