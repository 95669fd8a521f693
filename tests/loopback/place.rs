//! Where a test's agent lives, and what it leaves there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use session_bridge::transcript::locate;

use super::client::Agent;

/// A data folder and a working directory of its own.
pub(crate) struct Place {
    data: tempfile::TempDir,
    cwd: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            data: tempfile::tempdir().expect("a folder"),
            cwd: tempfile::tempdir().expect("a folder"),
        }
    }
    pub(crate) fn agent(&self) -> Agent {
        Agent::start(self.data.path())
    }
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }
    pub(crate) fn cwd(&self) -> &Path {
        self.cwd.path()
    }
    pub(crate) fn transcripts(&self, id: &str) -> Vec<PathBuf> {
        locate::locate(&self.data().join("loopback"), id, None).expect("a search")
    }
    pub(crate) fn transcript(&self, id: &str) -> PathBuf {
        self.transcripts(id).pop().expect("a transcript")
    }
    pub(crate) fn records(&self, id: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.transcript(id)).expect("a transcript");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

pub(crate) fn pairs(turns: &[(&str, &str)]) -> Vec<(String, String)> {
    turns
        .iter()
        .map(|(user, assistant)| ((*user).to_owned(), (*assistant).to_owned()))
        .collect()
}

pub(crate) fn code(error: &Value) -> i64 {
    error["code"].as_i64().expect("a code")
}
