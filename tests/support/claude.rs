//! The real Claude adapter.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::lab::{Agent, Lab};
use super::model_server::ModelServer;
use super::npm::{self, Adapter, Skip};

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

/// The adapter with an account.
pub(crate) struct Claude(Account);

pub(crate) type ClaudeLab = Lab<Claude>;

impl Agent for Claude {
    const NAME: &'static str = "claude";
    const ROOT: &'static str = "claude";

    fn install() -> Result<Adapter, Skip> {
        npm::claude_adapter()
    }

    fn start_model() -> ModelServer {
        ModelServer::start()
    }

    fn set_up(lab: &ClaudeLab) {
        let settings = json!({"permissions": {"defaultMode": "default"}});
        fs::write(lab.settings(), settings.to_string()).expect("the agent's settings");
    }

    fn variables(lab: &ClaudeLab) -> Vec<(&'static str, String)> {
        let root = lab.transcript_root();
        let (account, key) = match lab.agent.0 {
            Account::Key => ("ANTHROPIC_API_KEY", "test-key"),
            Account::Subscription => ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-test"),
        };
        let one = |name| (name, "1".to_owned());
        vec![
            ("ANTHROPIC_BASE_URL", lab.model.url()),
            (
                "CLAUDE_CONFIG_DIR",
                root.to_str().expect("a path in UTF-8").to_owned(),
            ),
            // With one retry, a failure is reported at once instead of after three minutes.
            one("CLAUDE_CODE_MAX_RETRIES"),
            one("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"),
            one("DISABLE_TELEMETRY"),
            one("DISABLE_AUTOUPDATER"),
            one("DISABLE_ERROR_REPORTING"),
            (account, key.to_owned()),
        ]
    }

    fn transcripts(lab: &ClaudeLab) -> Vec<PathBuf> {
        let files = |folder: PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect()
        };
        let folders = files(lab.transcript_root().join("projects")).into_iter();
        let mut found: Vec<PathBuf> = folders.filter(|path| path.is_dir()).flat_map(files).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        found
    }
}

impl ClaudeLab {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn new(account: Account) -> Option<ClaudeLab> {
        Lab::of(Claude(account))
    }

    /// The agent's settings file. It makes the agent ask before each tool. Without it, the agent starts in
    /// auto mode, in which a model decides which tools need no question.
    pub(crate) fn settings(&self) -> PathBuf {
        self.transcript_root().join("settings.json")
    }
}
