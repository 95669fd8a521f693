//! Shared parts of the tests that drive real programs: a scripted model server, a small ACP client, and the
//! installation of the real adapters. Nothing here knows the daemon.

// Each test program uses only some of these.
#![allow(dead_code)]
// Clippy exempts only test functions, not the functions they call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
// Temporary JSON values are easier to read passed by value than by reference.
#![allow(clippy::needless_pass_by_value)]

pub(crate) mod acp_client;
pub(crate) mod chat;
pub(crate) mod claude;
pub(crate) mod codex;
pub(crate) mod entry;
pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod model_server;
pub(crate) mod npm;
pub(crate) mod prefix;
pub(crate) mod qwen;
pub(crate) mod responses;
pub(crate) mod said;
pub(crate) mod script;
#[cfg(target_os = "linux")]
pub(crate) mod signs;

/// Prints a text that explains the failure of a test, under a heading.
pub(crate) fn explain(heading: &str, text: &str) {
    eprintln!("--- {heading} ---\n{text}");
}
