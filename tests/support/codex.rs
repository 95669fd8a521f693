//! The surroundings of the real Codex adapter: a scripted model, a scratch home, a project folder, and a
//! configuration and environment that isolate it from the outside.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::acp_client::AcpClient;
use super::model_server::ModelServer;
use super::npm::{self, Adapter};

/// The adapter, model and folders of one test. Dropping it ends and deletes all of them.
pub(crate) struct CodexLab {
    // Fields are dropped in this order: first the model, so that no late request finds its folders deleted.
    pub(crate) model: ModelServer,
    adapter: Adapter,
    scratch: TempDir,
}

impl CodexLab {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn new() -> Option<CodexLab> {
        let adapter = match npm::codex_adapter() {
            Ok(adapter) => adapter,
            Err(npm::Skip(reason)) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let lab = CodexLab {
            model: ModelServer::start_responses(),
            adapter,
            scratch,
        };
        for folder in [lab.project(), lab.home(), lab.transcript_root()] {
            fs::create_dir_all(folder).expect("a folder in the scratch folder");
        }
        lab.name_provider("scripted");
        Some(lab)
    }

    /// Sets the name of the model's provider. Codex resumes only transcripts with the same provider.
    pub(crate) fn name_provider(&self, name: &str) {
        let path = self.transcript_root().join("config.toml");
        fs::write(path, self.configuration(name)).expect("a configuration");
    }

    /// The working directory of the sessions, without symbolic links.
    pub(crate) fn project(&self) -> PathBuf {
        self.scratch().join("project")
    }

    /// The folder of all of Codex's files, including its transcripts.
    pub(crate) fn transcript_root(&self) -> PathBuf {
        self.scratch().join("codex")
    }

    /// The folder that contains all of the lab's files, without symbolic links.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.path().canonicalize().expect("the scratch folder")
    }

    /// Program and arguments of the adapter.
    pub(crate) fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        (self.adapter.node.clone(), vec![self.adapter.script.clone()])
    }

    /// The complete environment of the adapter.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let root = self.transcript_root();
        self.adapter.environment(
            &self.home(),
            &[
                ("CODEX_HOME", root.to_str().expect("a path in UTF-8")),
                ("SCRIPTED_KEY", "test-key"),
                ("OPENAI_API_KEY", "test-key"),
                ("NO_BROWSER", "1"),
            ],
        )
    }

    /// Starts and initializes a new adapter process.
    pub(crate) fn adapter(&self) -> AcpClient {
        AcpClient::initialized(self.command(), self.environment(), &self.project())
    }

    /// Finds the transcript of a session: its file name ends with the session's id.
    pub(crate) fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        let is_of_session = |path: &PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            stem.is_some_and(|stem| stem.ends_with(session_id))
        };
        self.transcripts().into_iter().find(is_of_session)
    }

    /// All transcripts, including archived ones, sorted by path.
    pub(crate) fn transcripts(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in ["sessions", "archived_sessions"] {
            collect(&self.transcript_root().join(folder), &mut found);
        }
        found.sort();
        found
    }

    fn home(&self) -> PathBuf {
        self.scratch().join("home")
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
