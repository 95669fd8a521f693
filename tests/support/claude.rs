//! The surroundings of the real Claude adapter: a scripted model, a scratch home, a project folder, and an
//! environment that isolates it from the outside.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::acp_client::AcpClient;
use super::model_server::ModelServer;
use super::npm::{self, Adapter};

/// How the adapter is billed for the model. This determines how a limit appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// An API key: the agent retries at a limit, and a limit has no reset time.
    Key,
    /// A subscription: a limit ends the turn at once and contains its reset time.
    Subscription,
}

/// The folder below `root` in which the agent keeps the transcripts of a working directory. Its name is the
/// path without symbolic links, with a dash for each character that is not an ASCII letter or digit. After
/// 200 UTF-16 units, a hash of the whole path replaces the rest.
pub(crate) fn project_folder(root: &Path, cwd: &Path) -> PathBuf {
    let resolved = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let units: Vec<u16> = resolved.to_str().expect("UTF-8").encode_utf16().collect();
    let plain = |unit: &u16| u8::try_from(*unit).ok().filter(u8::is_ascii_alphanumeric);
    let mut name: String = units
        .iter()
        .take(200)
        .map(|unit| plain(unit).map_or('-', char::from))
        .collect();
    if units.len() > 200 {
        let hash = |hash: i32, unit: &u16| hash.wrapping_mul(31).wrapping_add(i32::from(*unit));
        let mut rest = units.iter().fold(0, hash).unsigned_abs();
        let mut digits = Vec::new();
        while rest > 0 || digits.is_empty() {
            digits.extend(char::from_digit(rest % 36, 36));
            rest /= 36;
        }
        name.push('-');
        name.extend(digits.iter().rev());
    }
    root.join("projects").join(name)
}

/// What the agent sends to the model for a tool call whose result is missing in the transcript.
pub(crate) const INTERRUPTED: &str = "[Tool call interrupted: the session ended before this call's result was recorded, so its \
    outcome is unknown. Check whether it took effect before relying on it or running it again.]";

/// The adapter, model and folders of one test. Dropping it ends and deletes all of them.
pub(crate) struct ClaudeLab {
    // Fields are dropped in this order: first the model, so that no late request finds its folders deleted.
    pub(crate) model: ModelServer,
    adapter: Adapter,
    account: Account,
    scratch: TempDir,
}

impl ClaudeLab {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn new(account: Account) -> Option<ClaudeLab> {
        let adapter = match npm::claude_adapter() {
            Ok(adapter) => adapter,
            Err(npm::Skip(reason)) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let lab = ClaudeLab {
            model: ModelServer::start(),
            adapter,
            account,
            scratch,
        };
        for folder in [lab.project(), lab.home(), lab.transcript_root()] {
            fs::create_dir_all(folder).expect("a folder in the scratch folder");
        }
        let settings = json!({"permissions": {"defaultMode": "default"}});
        fs::write(lab.settings(), settings.to_string()).expect("the agent's settings");
        Some(lab)
    }

    /// The agent's settings file. It makes the agent ask before each tool. Without it, the agent starts in
    /// auto mode, in which a model decides which tools need no question.
    pub(crate) fn settings(&self) -> PathBuf {
        self.transcript_root().join("settings.json")
    }

    /// The working directory of the sessions, without symbolic links.
    pub(crate) fn project(&self) -> PathBuf {
        self.scratch().join("project")
    }

    /// The folder of the adapter's transcripts, which is its configuration folder.
    pub(crate) fn transcript_root(&self) -> PathBuf {
        self.scratch().join("claude")
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
        let (server, root) = (self.model.url(), self.transcript_root());
        self.adapter.environment(
            &self.home(),
            &[
                ("ANTHROPIC_BASE_URL", server.as_str()),
                ("CLAUDE_CONFIG_DIR", root.to_str().expect("a path in UTF-8")),
                // With one retry, a failure is reported at once instead of after three minutes.
                ("CLAUDE_CODE_MAX_RETRIES", "1"),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("DISABLE_ERROR_REPORTING", "1"),
                match self.account {
                    Account::Key => ("ANTHROPIC_API_KEY", "test-key"),
                    Account::Subscription => ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-test"),
                },
            ],
        )
    }

    /// Starts and initializes a new adapter process.
    pub(crate) fn adapter(&self) -> AcpClient {
        AcpClient::initialized(self.command(), self.environment(), &self.project())
    }

    /// Finds the transcript of a session, in whichever project folder it is.
    pub(crate) fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        self.transcripts()
            .into_iter()
            .find(|path| path.file_stem().is_some_and(|stem| stem == session_id))
    }

    /// All transcripts, sorted by path.
    pub(crate) fn transcripts(&self) -> Vec<PathBuf> {
        let files = |folder: PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect()
        };
        let folders = files(self.transcript_root().join("projects"));
        let mut found: Vec<PathBuf> = folders
            .into_iter()
            .filter(|path| path.is_dir())
            .flat_map(files)
            .collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        found.sort();
        found
    }

    fn home(&self) -> PathBuf {
        self.scratch().join("home")
    }
}
