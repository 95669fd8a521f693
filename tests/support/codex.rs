//! A place for the real Codex adapter to work in: a scripted model, a scratch home, a project folder, and the
//! configuration and environment that keep it from the outside world.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::acp_client::AcpClient;
use super::model_server::ModelServer;
use super::npm::{self, Adapter};

/// One test's adapter, model and folders. All end with it.
pub(crate) struct CodexLab {
    // Dropped in this order: the model first, so that no late request finds the folders gone.
    pub(crate) model: ModelServer,
    adapter: Adapter,
    scratch: TempDir,
}

impl CodexLab {
    /// None, with the reason printed, when the adapter cannot be had.
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

    /// Gives the model's provider a name. Codex goes on only from transcripts that name the same.
    pub(crate) fn name_provider(&self, name: &str) {
        let path = self.transcript_root().join("config.toml");
        fs::write(path, self.configuration(name)).expect("a configuration");
    }

    /// The folder that sessions work in, without symbolic links.
    pub(crate) fn project(&self) -> PathBuf {
        self.scratch().join("project")
    }

    /// Where Codex keeps everything, its transcripts among it.
    pub(crate) fn transcript_root(&self) -> PathBuf {
        self.scratch().join("codex")
    }

    /// A folder of this lab.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.path().canonicalize().expect("the scratch folder")
    }

    /// Program and arguments of the adapter.
    pub(crate) fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        (self.adapter.node.clone(), vec![self.adapter.script.clone()])
    }

    /// The adapter's whole environment.
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

    /// A new adapter process, initialized.
    pub(crate) fn adapter(&self) -> AcpClient {
        AcpClient::initialized(self.command(), self.environment(), &self.project())
    }

    /// The transcript of a session: the file whose name ends with its id.
    pub(crate) fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        let is_of_session = |path: &PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            stem.is_some_and(|stem| stem.ends_with(session_id))
        };
        self.transcripts().into_iter().find(is_of_session)
    }

    /// All transcripts, archived ones too, sorted by path.
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

    /// The sandbox of its tools holds the project's folder and no other: in `/tmp` it would put a `.git` and
    /// the like for as long as a tool runs, which other tests see.
    fn configuration(&self, provider: &str) -> String {
        // A JSON string is a TOML string too.
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
