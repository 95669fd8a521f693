//! The configuration of a daemon under test.

use std::path::PathBuf;

use serde_json::{Value, json};

/// The agent's entry in the configuration.
pub(crate) struct AgentEntry {
    pub(crate) name: &'static str,
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<PathBuf>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) transcripts: PathBuf,
    /// Whether the daemon keeps copies of the transcripts.
    pub(crate) keeps: bool,
}

impl AgentEntry {
    pub(crate) fn to_toml(&self) -> String {
        // A JSON string is also a valid TOML string.
        let quoted = |value: &Value| value.to_string();
        let args: Vec<String> = self.args.iter().map(|arg| quoted(&json!(arg))).collect();
        let env: Vec<String> = self
            .env
            .iter()
            .map(|(name, value)| format!("{} = {}", quoted(&json!(name)), quoted(&json!(value))))
            .collect();
        format!(
            "[agents.{}]\ncommand = {}\nargs = [{}]\ntranscripts = {}\nenv = {{ {} }}\n[keep]\nenabled = {}\n",
            self.name,
            quoted(&json!(self.command)),
            args.join(", "),
            quoted(&json!(self.transcripts)),
            env.join(", "),
            self.keeps
        )
    }
}
