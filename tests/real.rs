//! Tests with the real adapters of Claude and Codex, and with Qwen Code, against a scripted model server, in
//! one test program.
//!
//! They are `#[ignore]`d, because npm installs some hundred megabytes for them the first time. Run them with
//! `cargo test --test real -- --ignored`.

#![allow(
    clippy::expect_used,
    reason = "a test fails by panicking, also in its helpers"
)]

/// Returns from the test if what it needs is unavailable; the reason has been printed.
macro_rules! or_skip {
    ($wanted:expr) => {
        match $wanted {
            Some(had) => had,
            None => return,
        }
    };
}

#[path = "support/branching.rs"]
mod branching;
#[path = "support/bridge.rs"]
mod bridge_of;
#[path = "support/continuation.rs"]
mod continuation;
#[path = "support/permitted.rs"]
mod permitted;
#[cfg(target_os = "linux")]
#[path = "support/processes.rs"]
mod processes;
#[cfg(target_os = "linux")]
#[path = "support/pty.rs"]
#[allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]
#[allow(dead_code, reason = "only the tests of the command line need all of it")]
mod pty;
#[path = "support/reading.rs"]
mod reading;
mod real_claude;
#[cfg(target_os = "linux")]
mod real_clients;
mod real_codex;
mod real_qwen;
#[cfg(target_os = "linux")]
#[path = "support/refused.rs"]
mod refused;
#[path = "support/resumed.rs"]
mod resumed;
#[cfg(target_os = "linux")]
#[path = "support/screen.rs"]
#[allow(dead_code, reason = "only the tests of the command line need all of it")]
mod screen;
#[path = "support/sign_in.rs"]
mod sign_in;
mod support;
#[cfg(target_os = "linux")]
#[path = "support/test_programs.rs"]
#[allow(dead_code, reason = "only the tests without real adapters need all of it")]
mod test_programs;
#[path = "support/transfers.rs"]
mod transfers;
