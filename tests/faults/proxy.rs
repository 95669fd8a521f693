//! The agent of a round: a proxy in front of the built-in agent. Its program is
//! `tests/support/programs/fault_proxy.rs`.

use std::fs;
use std::path::Path;

use super::kinds::CALM;
use crate::test_programs;

/// The configuration of the agent `proxied` in this home.
pub(crate) fn configured(home: &Path, seed: u64) -> String {
    format!(
        "[agents.proxied]\ncommand = '{}'\nkind = \"loopback\"\nargs = [\"fault-proxy\", '{}', '{}', '{seed}']\n",
        test_programs::path().display(),
        env!("CARGO_BIN_EXE_sessiond"),
        home.display(),
    )
}

/// Stops all faults in this home.
pub(crate) fn calm(home: &Path) {
    fs::write(home.join(CALM), "").unwrap();
}
