//! What is found where the daemon and everything that it stands on are looked at: `daemon/diagnose`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done.
    Note,
    /// It works, but something may be missed or lost.
    Warning,
    /// Something does not work.
    Error,
    /// A word that this version of the crate does not know; better looked at once too often.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// Whether a daemon runs, which one, and whether it fits the program that asks. Found by `sessionctl`.
    Daemon,
    /// A daemon of this user with another data folder. Found by `sessionctl`.
    OtherDaemon,
    /// The configuration file: what has become of it since the daemon read it, and whether the next one could. Where no daemon runs
    /// `sessionctl` tells that it cannot be read.
    Configuration,
    /// A folder of the daemon's own: whether it is there, whose it is, who may look into it. Found by `sessionctl`.
    Folder,
    /// The journal and the database.
    Store,
    /// A file or folder of the daemon's own that it cannot read: set aside where it is damaged, left in its place where a newer
    /// version wrote it.
    SetAside,
    /// Free space on a disk.
    Room,
    /// An agent: whether it starts, its version, what it offers.
    Agent,
    /// Whether somebody is signed in with an agent.
    SignIn,
    /// A way in which an agent departs from what one expects.
    Quirk,
    /// The folder of an agent's transcripts.
    Transcripts,
    /// For how long an agent keeps its transcripts, and for how long the daemon keeps copies.
    Retention,
    /// Processes that an agent has left behind. Where no daemon runs `sessionctl` looks for them.
    LeftOver,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One thing that was looked at, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// What was looked at.
    pub kind: DiagnosticKind,
    /// How bad it is.
    pub severity: Severity,
    /// The agent, or the path, that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was found, as a sentence for people.
    pub message: String,
    /// What to do next, where something is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// The facts behind the sentence, for programs. Of an agent `version`, `command`, `offers`; of [`DiagnosticKind::SignIn`]
    /// the agent's own `authStatus`; of a disk `freeBytes` and `totalBytes`; of [`DiagnosticKind::Retention`] `vendorDays`,
    /// `keepDays` and `keptBytes`; of processes their `pids`. More may come.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

impl Diagnostic {
    /// What was found.
    #[must_use]
    pub fn new(kind: DiagnosticKind, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity,
            subject: None,
            message: message.into(),
            next_step: None,
            data: Map::new(),
        }
    }

    /// The same, of this agent or path.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The same, with what to do next.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = Some(step.into());
        self
    }

    /// The same, with a fact for programs.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }
}

/// The answer of `daemon/diagnose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// What was found, in the order in which it was looked at.
    pub diagnostics: Vec<Diagnostic>,
}

#[cfg(test)]
mod tests {
    use super::{Diagnosis, DiagnosticKind, Severity};

    #[test]
    fn what_a_newer_daemon_finds_is_read_too() {
        let text = r#"{"diagnostics":[{"kind":"weather","severity":"dire","message":"rain"}],"more":1}"#;
        let [one] = &serde_json::from_str::<Diagnosis>(text).unwrap().diagnostics[..] else {
            panic!("{text}");
        };
        assert_eq!(
            (one.kind, one.severity),
            (DiagnosticKind::Unknown, Severity::Unknown)
        );
        assert!(one.severity > Severity::Error);
    }
}
