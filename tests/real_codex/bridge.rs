//! A daemon with the real Codex adapter.

use std::path::PathBuf;

use crate::bridge_of::Lab;
use crate::support::codex::CodexLab;
use crate::support::model_server::ModelServer;

pub(crate) type Bridge = crate::bridge_of::Bridge<CodexLab>;

impl Lab for CodexLab {
    const AGENT: &'static str = "codex";

    fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        CodexLab::command(self)
    }

    fn model(&self) -> &ModelServer {
        &self.model
    }

    fn environment(&self) -> Vec<(String, String)> {
        CodexLab::environment(self)
    }

    fn transcript_root(&self) -> PathBuf {
        CodexLab::transcript_root(self)
    }

    fn scratch(&self) -> PathBuf {
        CodexLab::scratch(self)
    }

    fn project(&self) -> PathBuf {
        CodexLab::project(self)
    }

    fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        CodexLab::transcript(self, session_id)
    }
}

impl Bridge {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn start() -> Option<Bridge> {
        Some(Bridge::of(CodexLab::new()?, |_| {}))
    }
}
