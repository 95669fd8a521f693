//! Facts about each kind of agent, as data. Each kind has one file here and one entry in [`ALL`].
//!
//! A kind states where its program and transcripts are, what its requests need beyond the protocol, how it deviates from
//! the protocol, how to recognize its failures, and what its user should know. The facts were measured on the version in
//! its [`Package`]; the contract tests check those that the bridge relies on.
//!
//! This module does not know how an agent is started, what it sends, or which configuration named it. It reads no
//! environment, no disk and no clock; the environment is a parameter.

mod claude;
mod codex;
mod gemini;
mod generic;
mod loopback;
mod opencode;
mod qwen;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::failure::FailureKind;
use crate::transcript::transcript_list::Format;

pub use claude::{CLAUDE, RAW_EVENT_METHOD, announced_transcript};
pub use codex::CODEX;
pub use gemini::GEMINI;
pub use generic::GENERIC;
pub use loopback::LOOPBACK;
pub use opencode::OPENCODE;
pub use qwen::QWEN;

/// All kinds, in the order in which they are tried as a default.
pub const ALL: &[&AgentKind] = &[&CLAUDE, &CODEX, &GEMINI, &OPENCODE, &QWEN, &LOOPBACK, &GENERIC];

/// The facts about one kind of agent. Constant data.
#[derive(Clone, Copy)]
pub struct AgentKind {
    /// Its name in the configuration and on the wire.
    pub name: &'static str,
    /// The package of its program. `None` if there is none to install.
    pub package: Option<Package>,
    /// Program names to look for on `PATH` if none is configured, best first. Empty if there is no usual one.
    pub programs: &'static [&'static str],
    /// Arguments that make the program speak ACP, if none are configured.
    pub arguments: &'static [&'static str],
    /// Variables to remove from its environment.
    pub env_remove: &'static [&'static str],
    /// The format of its transcripts. `None` if they cannot be read.
    pub transcript_format: Option<Format>,
    /// Where its transcripts are, if not configured.
    pub transcript_root: TranscriptRoot,
    /// How long it keeps its transcripts.
    pub retention: Retention,
    /// The `_meta` members to add when opening a session. Needed for new, resume, load and fork alike, because neither
    /// requested events nor a system prompt survive the agent's process. The parameter is the conversation's own system
    /// prompt, which is never empty.
    pub session_meta: fn(Option<&str>) -> Map<String, Value>,
    /// Whether a fork can name the message at which to cut.
    pub fork_point: ForkPointSupport,
    /// How to change the model of a session.
    pub model_setting: ModelSetting,
    /// Whether `session/close` is answered before the session's own process, which still writes, has ended.
    pub close_answers_early: bool,
    /// Whether it replays a loaded session after it has answered the load, instead of before.
    pub replays_after_answer: bool,
    /// Whether its sessions share a process below the program, which releases a session only when it ends.
    pub shares_process: bool,
    /// Lower-case words that identify its error for an unknown session. An error matches if it contains all words of
    /// one entry.
    pub unknown_session: &'static [&'static [&'static str]],
    /// Whether a notification may show a failure (see [`super::failure::FailureSigns`]). May return true for a
    /// notification that shows none, but never false for one that does. Looks only for short markers, so that ordinary
    /// chunks are not decoded.
    pub may_show_failure: fn(&[u8]) -> bool,
    /// The kind of failure that the category `connection` in its failure records means.
    pub connection_failure: FailureKind,
    /// How the user signs in if the agent offers no method for it.
    pub sign_in: &'static str,
    /// What its user should know.
    pub warning: Option<&'static str>,
}

/// The npm package of an agent's program.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// The version with which the facts were measured.
    pub measured_version: &'static str,
    /// Whether the program reports the package's name as its own in `initialize`.
    pub reports_own_name: bool,
}

/// The default folder of an agent's transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptRoot {
    /// The folder in a variable, or else a folder in the home folder.
    Home {
        /// The variable that overrides the default, if any.
        variable: Option<&'static str>,
        /// The name in the home folder.
        folder: &'static str,
    },
    /// A folder in the daemon's data folder.
    Data {
        /// The name in the data folder.
        folder: &'static str,
    },
    /// Unknown, or not files.
    Nowhere,
}

/// How long an agent keeps its transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Not known.
    Unknown,
    /// It is not known to delete any. The text says what is known.
    NotDeleted(&'static str),
    /// It deletes transcripts that were not written for this many days.
    DeletedAfter {
        /// The number of days, unless `cleanupPeriodDays` is set.
        days: u64,
        /// The folder of an organization's settings, which override the user's.
        managed: &'static str,
    },
}

/// How a client specifies the end of a fork in `session/fork`. The standard has no field for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkPointSupport {
    /// With `_meta.jetbrains.air.fork`, including the named message.
    Message,
    /// The same, rounded to the whole turn with the message.
    Turn,
    /// Not known to be supported. The history must be cut in another way.
    None,
}

/// How to change the model of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelSetting {
    /// Only with the config option of category `model`. The agent refuses `session/set_model`.
    ConfigOption,
    /// With the config option of category `model`, or else `session/set_model`.
    ConfigOptionOrSetModel,
}

/// The configuration has an unknown `kind`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent kind {name:?}: known are {}", ALL.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownKind {
    /// The configured value.
    pub name: String,
}

/// Returns the kind of this name.
///
/// # Errors
/// If there is none.
pub fn named(name: &str) -> Result<&'static AgentKind, UnknownKind> {
    let kind = ALL.iter().find(|kind| kind.name == name);
    kind.copied().ok_or_else(|| UnknownKind {
        name: name.to_owned(),
    })
}

impl AgentKind {
    /// Returns the shell command that installs the program.
    #[must_use]
    pub fn install_command(&self) -> Option<String> {
        Some(format!("npm install -g {}", self.package?.name))
    }

    /// Returns the folder of the transcripts if none is configured. `variable` looks up the agent's environment;
    /// `home` is the user's home folder, `data` the daemon's data folder. `None` if unknown.
    pub fn transcript_root(
        &self,
        variable: impl Fn(&str) -> Option<PathBuf>,
        home: Option<&Path>,
        data: &Path,
    ) -> Option<PathBuf> {
        match self.transcript_root {
            TranscriptRoot::Home {
                variable: name,
                folder,
            } => name
                .and_then(variable)
                .filter(|path| !path.as_os_str().is_empty())
                .or_else(|| home.map(|home| home.join(folder))),
            TranscriptRoot::Data { folder } => Some(data.join(folder)),
            TranscriptRoot::Nowhere => None,
        }
    }

    /// Returns the `_meta` members that make `session/fork` keep the history up to and including a message: the id of
    /// an assistant message (`messageId` of its chunks) or the UUID of a user record. Name the last assistant message
    /// of the turn to keep; after any other message the agent inserts filler. `None` if the agent is not known to
    /// support it.
    #[must_use]
    pub fn fork_point_meta(&self, message_id: &str) -> Option<Map<String, Value>> {
        if self.fork_point == ForkPointSupport::None {
            return None;
        }
        let point = json!({"air": {"version": 1, "fork": {"version": 1, "messageId": message_id}}});
        Some(Map::from_iter([("jetbrains".to_owned(), point)]))
    }
}

/// Two kinds are the same if they have the same name.
impl PartialEq for AgentKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for AgentKind {}

impl fmt::Debug for AgentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_names_the_known_ones() {
        let error = named("clade").unwrap_err();
        crate::words::check("an agent of an unknown kind", "agent kind", &error.to_string());
    }

    #[test]
    fn transcript_roots_follow_the_agents_own_variable_then_the_home_folder() {
        let data = Path::new("/home/u/.local/share/sessiond");
        let home = Some(Path::new("/home/u"));
        let unset = |_: &str| None;
        let set = |name: &str| (name == "CLAUDE_CONFIG_DIR").then(|| PathBuf::from("/srv/claude"));
        let empty = |_: &str| Some(PathBuf::new());
        let root = |kind: &AgentKind| kind.transcript_root(unset, home, data);

        assert_eq!(root(&CLAUDE), Some("/home/u/.claude".into()));
        assert_eq!(root(&CODEX), Some("/home/u/.codex".into()));
        assert_eq!(root(&QWEN), Some("/home/u/.qwen".into()));
        let set_qwen = |name: &str| (name == "QWEN_HOME").then(|| PathBuf::from("/srv/qwen"));
        assert_eq!(
            QWEN.transcript_root(set_qwen, home, data),
            Some("/srv/qwen".into())
        );
        assert_eq!(
            root(&LOOPBACK),
            Some("/home/u/.local/share/sessiond/loopback".into())
        );
        assert_eq!(root(&OPENCODE), None);
        assert_eq!(root(&GENERIC), None);
        assert_eq!(
            CLAUDE.transcript_root(set, home, data),
            Some("/srv/claude".into())
        );
        assert_eq!(
            CLAUDE.transcript_root(empty, home, data),
            Some("/home/u/.claude".into())
        );
        assert_eq!(CLAUDE.transcript_root(unset, None, data), None);
        assert_eq!(
            CODEX.transcript_root(set, home, data),
            Some("/home/u/.codex".into())
        );
    }

    #[test]
    fn session_meta_asks_for_raw_events_and_appends_the_system_prompt() {
        let meta = (CLAUDE.session_meta)(Some("Be brief."));
        assert_eq!(
            Value::Object(meta),
            json!({
                "claudeCode": {"emitRawSDKMessages": [
                    {"type": "system", "subtype": "init"}, {"type": "rate_limit_event"},
                ]},
                "systemPrompt": {"append": "Be brief."},
            })
        );
        assert!(!(CLAUDE.session_meta)(None).contains_key("systemPrompt"));
        assert!((CODEX.session_meta)(Some("Be brief.")).is_empty());
    }

    #[test]
    fn fork_points_exist_only_if_known_to_be_supported() {
        let meta = CLAUDE.fork_point_meta("msg_1").unwrap();
        assert_eq!(
            Value::Object(meta),
            json!({"jetbrains": {"air": {"version": 1, "fork": {"version": 1, "messageId": "msg_1"}}}})
        );
        assert!(GENERIC.fork_point_meta("msg_1").is_none());
    }

    #[test]
    fn only_the_init_event_announces_a_transcript() {
        let event = |message: Value| json!({"sessionId": "handle", "message": message});
        let init = event(json!({"type": "system", "subtype": "init", "session_id": "rolled"}));
        assert_eq!(announced_transcript(&init), Some("rolled"));
        for other in [
            json!({"type": "system", "subtype": "status", "session_id": "x"}),
            json!({"type": "conversation_reset", "session_id": "x", "new_conversation_id": "y"}),
            json!({"type": "system", "subtype": "init", "session_id": ""}),
            json!({"type": "system", "subtype": "init"}),
            json!(null),
        ] {
            assert_eq!(announced_transcript(&event(other)), None);
        }
    }
}
