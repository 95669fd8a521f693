//! The real Qwen Code.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::lab::{Agent, Lab};
use super::model_server::ModelServer;
use super::npm::{self, Adapter, Skip};

pub(crate) struct Qwen;

pub(crate) type QwenLab = Lab<Qwen>;

impl Agent for Qwen {
    const NAME: &'static str = "qwen";
    const ROOT: &'static str = "home/.qwen";
    const ARGUMENTS: &'static [&'static str] = &["--acp"];

    fn install() -> Result<Adapter, Skip> {
        npm::qwen_code()
    }

    fn start_model() -> ModelServer {
        ModelServer::start_chat()
    }

    fn set_up(lab: &QwenLab) {
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": false},
            "general": {"disableAutoUpdate": true}, "tools": {"approvalMode": "yolo"},
        });
        let path = lab.transcript_root().join("settings.json");
        fs::write(path, settings.to_string()).expect("the settings");
    }

    fn variables(lab: &QwenLab) -> Vec<(&'static str, String)> {
        vec![
            ("OPENAI_BASE_URL", format!("{}/v1", lab.model.url())),
            ("OPENAI_API_KEY", "test-key".to_owned()),
            ("OPENAI_MODEL", "scripted".to_owned()),
            // One process instead of two; otherwise the inner process would outlive the outer one.
            ("QWEN_CODE_NO_RELAUNCH", "true".to_owned()),
        ]
    }

    fn transcripts(lab: &QwenLab) -> Vec<PathBuf> {
        let projects = fs::read_dir(lab.transcript_root().join("projects"));
        let chats = projects
            .into_iter()
            .flatten()
            .map(|project| project.expect("an entry").path().join("chats"));
        let files = chats.filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        files.map(|file| file.expect("an entry").path()).collect()
    }
}

impl QwenLab {
    /// Returns `None` and prints the reason if the agent cannot be installed.
    pub(crate) fn new() -> Option<QwenLab> {
        Lab::of(Qwen)
    }
}
