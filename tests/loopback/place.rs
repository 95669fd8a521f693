//! The folders of a test's agent, and the transcripts in them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::client::Agent;

/// A temporary data folder and a temporary working directory.
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
        let Ok(folders) = fs::read_dir(self.data().join("loopback/projects")) else {
            return Vec::new();
        };
        let files = folders.map(|folder| folder.expect("a folder").path().join(format!("{id}.jsonl")));
        files.filter(|file| file.exists()).collect()
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

/// A turn in the transcript.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) prompt_uuid: String,
    /// All texts of the agent in the turn.
    pub(crate) reply: String,
    /// The id of the last message that contains a text of the agent.
    pub(crate) last_message_id: String,
}

impl Place {
    /// The turns of a transcript, in the order of its records.
    pub(crate) fn turns(&self, id: &str) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::new();
        for record in self.records(id) {
            let message = &record["message"];
            let blocks = message["content"].as_array().into_iter().flatten();
            let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
            let is_prompt = record["origin"]["kind"] == "human";
            if is_prompt {
                turns.push(Turn {
                    prompt_uuid: record["uuid"].as_str().expect("a uuid").to_owned(),
                    ..Turn::default()
                });
                continue;
            }
            let Some(turn) = turns.last_mut() else { continue };
            if record["type"] == "assistant" && !text.is_empty() {
                turn.reply.push_str(&text);
                turn.last_message_id = message["id"].as_str().expect("an id").to_owned();
            }
        }
        turns
    }
}

pub(crate) fn code(error: &Value) -> i64 {
    error["code"].as_i64().expect("a code")
}
