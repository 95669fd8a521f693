//! The surroundings of the real Qwen Code: a scripted model, a scratch home, a project folder, and settings
//! and an environment that isolate it from the outside.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::acp_client::AcpClient;
use super::model_server::ModelServer;
use super::npm::{self, Adapter};

/// The agent, model and folders of one test. Dropping it ends and deletes all of them.
pub(crate) struct QwenLab {
    // Fields are dropped in this order: first the model, so that no late request finds its folders deleted.
    pub(crate) model: ModelServer,
    adapter: Adapter,
    scratch: TempDir,
}

impl QwenLab {
    /// Returns `None` and prints the reason if the agent cannot be installed.
    pub(crate) fn new() -> Option<QwenLab> {
        let adapter = match npm::qwen_code() {
            Ok(adapter) => adapter,
            Err(npm::Skip(reason)) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let lab = QwenLab {
            model: ModelServer::start_chat(),
            adapter,
            scratch: tempfile::tempdir().expect("a scratch folder"),
        };
        for folder in [lab.project(), lab.transcript_root()] {
            fs::create_dir_all(folder).expect("a folder in the scratch folder");
        }
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": false},
            "general": {"disableAutoUpdate": true}, "tools": {"approvalMode": "yolo"},
        });
        let path = lab.transcript_root().join("settings.json");
        fs::write(path, settings.to_string()).expect("the settings");
        Some(lab)
    }

    /// The working directory of the sessions, without symbolic links.
    pub(crate) fn project(&self) -> PathBuf {
        self.scratch().join("project")
    }

    /// The folder of all of Qwen Code's files, including its transcripts.
    pub(crate) fn transcript_root(&self) -> PathBuf {
        self.scratch().join("home/.qwen")
    }

    /// The folder that contains all of the lab's files, without symbolic links.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.path().canonicalize().expect("the scratch folder")
    }

    /// Program and arguments of the agent.
    pub(crate) fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        let arguments = vec![self.adapter.script.clone(), "--acp".into()];
        (self.adapter.node.clone(), arguments)
    }

    /// The complete environment of the agent.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let server = format!("{}/v1", self.model.url());
        self.adapter.environment(
            &self.scratch().join("home"),
            &[
                ("OPENAI_BASE_URL", server.as_str()),
                ("OPENAI_API_KEY", "test-key"),
                ("OPENAI_MODEL", "scripted"),
                // One process instead of two; otherwise the inner process would outlive the outer one.
                ("QWEN_CODE_NO_RELAUNCH", "true"),
            ],
        )
    }

    /// Starts and initializes a new agent process.
    pub(crate) fn adapter(&self) -> AcpClient {
        AcpClient::initialized(self.command(), self.environment(), &self.project())
    }

    /// The transcript of a session, if there is one.
    pub(crate) fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        let projects = fs::read_dir(self.transcript_root().join("projects"))
            .into_iter()
            .flatten();
        let name = format!("{session_id}.jsonl");
        let mut found = projects.map(|project| project.expect("an entry").path().join("chats").join(&name));
        found.find(|path| path.is_file())
    }
}
