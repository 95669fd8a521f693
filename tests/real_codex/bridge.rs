//! A daemon with the real Codex adapter.

use crate::support::codex::{Codex, CodexLab};

pub(crate) type Bridge = crate::bridge_of::Bridge<Codex>;

impl Bridge {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn start() -> Option<Bridge> {
        Some(Bridge::of(CodexLab::new()?, |_| {}))
    }
}
