//! The real Codex adapter.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::lab::{Agent, Lab};
use super::model_server::ModelServer;
use super::npm::{self, Adapter, Skip};

pub(crate) struct Codex;

pub(crate) type CodexLab = Lab<Codex>;

impl Agent for Codex {
    const NAME: &'static str = "codex";
    const ROOT: &'static str = "codex";

    fn install() -> Result<Adapter, Skip> {
        npm::codex_adapter()
    }

    fn start_model() -> ModelServer {
        ModelServer::start_responses()
    }

    fn set_up(lab: &CodexLab) {
        lab.name_provider("scripted");
    }

    fn variables(lab: &CodexLab) -> Vec<(&'static str, String)> {
        let root = lab.transcript_root();
        vec![
            ("CODEX_HOME", root.to_str().expect("a path in UTF-8").to_owned()),
            ("SCRIPTED_KEY", "test-key".to_owned()),
            ("OPENAI_API_KEY", "test-key".to_owned()),
            ("NO_BROWSER", "1".to_owned()),
        ]
    }

    /// Includes the archived ones.
    fn transcripts(lab: &CodexLab) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in ["sessions", "archived_sessions"] {
            collect(&lab.transcript_root().join(folder), &mut found);
        }
        found
    }
}

impl CodexLab {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn new() -> Option<CodexLab> {
        Lab::of(Codex)
    }

    /// Sets the name of the model's provider. Codex resumes only transcripts with the same provider.
    pub(crate) fn name_provider(&self, name: &str) {
        let path = self.transcript_root().join("config.toml");
        fs::write(path, self.configuration(name)).expect("a configuration");
    }

    /// The configuration file. It excludes `/tmp` from the sandbox of the tools: otherwise Codex would create
    /// `.git` and similar entries there while a tool runs, and other tests would see them.
    fn configuration(&self, provider: &str) -> String {
        // A JSON string is also a valid TOML string.
        let url = json!(format!("{}/v1", self.model.url()));
        format!(
            r#"model = "scripted"
model_auto_compact_token_limit = 100000
model_provider = "{provider}"
[model_providers.{provider}]
name = "Scripted"
base_url = {url}
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
[analytics]
enabled = false
"#
        )
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push(path);
        }
    }
}
