//! Facts about each kind of agent, as data.
//!
//! One [`Profile`] per kind: where its program and transcripts are, what its requests need besides the standard, and
//! how it deviates from the standard. The facts were measured on the versions in [`MEASURED_VERSIONS`]; the contract
//! tests check those that the bridge relies on.
//!
//! This module does not know how an agent is started, what it sends, or which configuration named it. It reads no
//! environment, no disk and no clock; the environment is a parameter.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::paths::names;
use crate::transcript::shelf::Format;
use crate::transcript::{claude, codex};

/// The adapters and programs with which the facts of this module were measured.
pub const MEASURED_VERSIONS: &[(&str, &str)] = &[
    ("@agentclientprotocol/claude-agent-acp", "0.101.0"),
    ("@agentclientprotocol/codex-acp", "2.6.0"),
    ("@google/gemini-cli", "0.61.0"),
    ("opencode-ai", "1.18.33"),
];

/// The kinds of agents that the bridge knows. Any other ACP agent is [`AgentKind::Generic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AgentKind {
    /// Claude Code through `claude-agent-acp`.
    Claude,
    /// Codex through `codex-acp`.
    Codex,
    /// Gemini CLI, which speaks ACP itself.
    Gemini,
    /// opencode, which speaks ACP itself.
    Opencode,
    /// The agent built into this binary.
    Loopback,
    /// Any other ACP agent. Only the protocol's guarantees are relied on.
    Generic,
}

/// The configuration has an unknown `kind`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent kind {given:?}: known are {}", AgentKind::names().join(", "))]
pub struct UnknownKind {
    /// The configured value.
    pub given: String,
}

impl AgentKind {
    /// All kinds, in the order in which they are tried as a default.
    pub const ALL: [AgentKind; 6] = [
        AgentKind::Claude,
        AgentKind::Codex,
        AgentKind::Gemini,
        AgentKind::Opencode,
        AgentKind::Loopback,
        AgentKind::Generic,
    ];

    /// The name in the configuration and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentKind::Claude => "claude",
            AgentKind::Codex => "codex",
            AgentKind::Gemini => "gemini",
            AgentKind::Opencode => "opencode",
            AgentKind::Loopback => "loopback",
            AgentKind::Generic => "generic",
        }
    }

    /// The names of all kinds, for messages.
    pub fn names() -> Vec<&'static str> {
        AgentKind::ALL.iter().map(|kind| kind.as_str()).collect()
    }

    /// The npm package of the program.
    pub fn package(self) -> Option<&'static str> {
        Some(match self {
            AgentKind::Claude => "@agentclientprotocol/claude-agent-acp",
            AgentKind::Codex => "@agentclientprotocol/codex-acp",
            AgentKind::Gemini => "@google/gemini-cli",
            AgentKind::Opencode => "opencode-ai",
            AgentKind::Loopback | AgentKind::Generic => return None,
        })
    }

    /// The shell command that installs the program.
    pub fn install_command(self) -> Option<String> {
        self.package().map(|package| format!("npm install -g {package}"))
    }

    /// Returns the profile of this kind.
    pub fn profile(self) -> &'static Profile {
        match self {
            AgentKind::Claude => &CLAUDE,
            AgentKind::Codex => &CODEX,
            AgentKind::Gemini => &GEMINI,
            AgentKind::Opencode => &OPENCODE,
            AgentKind::Loopback => &LOOPBACK,
            AgentKind::Generic => &GENERIC,
        }
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for AgentKind {
    type Err = UnknownKind;

    fn from_str(given: &str) -> Result<Self, UnknownKind> {
        AgentKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == given)
            .ok_or_else(|| UnknownKind {
                given: given.to_owned(),
            })
    }
}

/// The facts about one kind of agent. Constant data, defined only here.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// The kind of agent.
    pub kind: AgentKind,
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
    /// Whether a fork can name the message at which to cut.
    pub fork_point: ForkPointSupport,
    /// How to pass a system prompt to a new or resumed session.
    pub system_prompt: SystemPromptStyle,
    /// How to change the model of a session.
    pub model_setting: ModelSetting,
    /// Whether it can report its own events besides the standard ones (see [`Profile::session_meta`]).
    pub raw_events: bool,
    /// Whether a prompt that a usage limit refused stays in the model's history, so that sending it again would
    /// repeat it. False if not measured.
    pub keeps_limited_prompt: bool,
    /// Whether the agent may continue in another transcript under the same session id (`/clear`).
    pub rolls_silently: bool,
    /// Whether `session/close` is answered before the session's own process, which still writes, has ended.
    pub close_answers_early: bool,
    /// Whether its sessions share a process below the adapter, so that a prompt which ends it ends the others' too.
    pub shares_process: bool,
    /// How many milliseconds it gets to end after the end of its input, before it is sent a signal.
    pub end_of_input_grace_ms: u64,
}

/// The default place of an agent's transcripts.
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

/// Whether `session/fork` can be told where to cut. The standard has no field for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkPointSupport {
    /// With `_meta.jetbrains.air.fork`, including the named message.
    Message,
    /// The same, rounded to the whole turn with the message.
    Turn,
    /// Not known to be supported. The history must be cut in another way.
    None,
}

/// How to pass a system prompt to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemPromptStyle {
    /// With `_meta.systemPrompt.append`, which is added to the agent's own.
    MetaAppend,
    /// No known way.
    Unsupported,
}

/// How to change the model of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelSetting {
    /// Only with the config option of category `model`. The agent refuses `session/set_model`.
    ConfigOption,
    /// With the config option of category `model`, or else `session/set_model`.
    ConfigOptionOrSetModel,
}

/// Raw events that the bridge requests. Measured on Claude 0.100.0: `init` has 2.9 KB once per prompt (none per chunk
/// or tool call), the limit event 0.3 KB once per turn, and neither changes what the model gets. Only `init`
/// announces the transcript that a prompt goes to. Only the limit event has the reset time on the first turn of a
/// session.
const RAW_EVENTS: &[(&str, Option<&str>)] = &[("system", Some("init")), ("rate_limit_event", None)];

impl Profile {
    /// The folder of the transcripts if none is configured. `variable` looks up the agent's environment; `home` is
    /// the user's home folder, `data` the daemon's data folder. `None` if unknown.
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

    /// The `_meta` members to add when opening a session. Needed for new, resume, load and fork alike, because
    /// neither the requested events nor the system prompt survive the agent's process. `system_prompt` is the
    /// conversation's own. Empty if there is nothing to add.
    pub fn session_meta(&self, system_prompt: Option<&str>) -> Map<String, Value> {
        let mut meta = Map::new();
        if self.raw_events {
            let filters: Vec<Value> = RAW_EVENTS
                .iter()
                .map(|(kind, subtype)| match subtype {
                    Some(subtype) => json!({"type": kind, "subtype": subtype}),
                    None => json!({"type": kind}),
                })
                .collect();
            meta.insert("claudeCode".to_owned(), json!({ "emitRawSDKMessages": filters }));
        }
        if let (SystemPromptStyle::MetaAppend, Some(text)) = (self.system_prompt, system_prompt)
            && !text.is_empty()
        {
            meta.insert("systemPrompt".to_owned(), json!({ "append": text }));
        }
        meta
    }

    /// The `_meta` members that make `session/fork` keep the history up to and including a message: the id of an
    /// assistant message (`messageId` of its chunks) or the UUID of a user record. Name the last assistant message of
    /// the turn to keep; after any other message the agent inserts filler. `None` if the agent is not known to
    /// support it.
    pub fn fork_point_meta(&self, message_id: &str) -> Option<Map<String, Value>> {
        match self.fork_point {
            ForkPointSupport::None => None,
            ForkPointSupport::Message | ForkPointSupport::Turn => {
                let point = json!({"air": {"version": 1, "fork": {"version": 1, "messageId": message_id}}});
                Some(Map::from_iter([("jetbrains".to_owned(), point)]))
            }
        }
    }
}

/// The upstream id of the transcript that the agent now writes, from the parameters of a raw event notification
/// (`_claude/sdkMessage`). It differs from the session id after a silent roll. `None` for all other events.
/// (`conversation_reset` has a `new_conversation_id` too, but that does not name a transcript.)
pub fn announced_transcript(params: &Value) -> Option<&str> {
    let message = params.get("message")?;
    let is = |key: &str, value: &str| message.get(key).and_then(Value::as_str) == Some(value);
    (is("type", "system") && is("subtype", "init"))
        .then(|| message.get("session_id").and_then(Value::as_str))
        .flatten()
        .filter(|id| !id.is_empty())
}

/// The method of raw event notifications; see [`Profile::session_meta`].
pub const RAW_EVENT_METHOD: &str = "_claude/sdkMessage";

/// More facts, measured on 0.101.0, that need no field:
///
/// - Its fork of a compacted session is exact. Like our cut, it renames what `compactMetadata` says about the kept
///   messages, and the model gets what the source would send next, even after a fork of the fork or a resume. In auto
///   mode, a process that opens a compacted session repeats its note on that mode after the prompt; so does a resume.
/// - A new session starts in auto mode if the user's settings name no mode. Up to 0.100.0 it asked before each tool.
///   A resume and a fork keep the mode of the last prompt.
/// - About 54 minutes after the last request, the adapter sends itself `/compact` in an open session of 200,000
///   tokens or more.
static CLAUDE: Profile = Profile {
    kind: AgentKind::Claude,
    programs: &["claude-agent-acp", "claude-code-acp"],
    arguments: &[],
    // As root, it makes the agent ask for a mode that it then refuses, and no session starts.
    env_remove: &["IS_SANDBOX"],
    transcript_format: Some(claude::FORMAT),
    transcript_root: TranscriptRoot::Home {
        variable: Some("CLAUDE_CONFIG_DIR"),
        folder: ".claude",
    },
    fork_point: ForkPointSupport::Message,
    system_prompt: SystemPromptStyle::MetaAppend,
    model_setting: ModelSetting::ConfigOption,
    raw_events: true,
    keeps_limited_prompt: true,
    rolls_silently: true,
    close_answers_early: true,
    shares_process: false,
    // Up to 2 s in the middle of a stream, until its own child has ended.
    end_of_input_grace_ms: 3_000,
};

static CODEX: Profile = Profile {
    kind: AgentKind::Codex,
    programs: &["codex-acp"],
    arguments: &[],
    env_remove: &[],
    transcript_format: Some(codex::FORMAT),
    transcript_root: TranscriptRoot::Home {
        variable: Some("CODEX_HOME"),
        folder: ".codex",
    },
    fork_point: ForkPointSupport::Turn,
    system_prompt: SystemPromptStyle::Unsupported,
    model_setting: ModelSetting::ConfigOptionOrSetModel,
    raw_events: false,
    keeps_limited_prompt: false,
    rolls_silently: false,
    close_answers_early: false,
    shares_process: true,
    // It takes 7 s to end on its own, and 0.3 s after a signal.
    end_of_input_grace_ms: 500,
};

static GEMINI: Profile = Profile {
    kind: AgentKind::Gemini,
    programs: &["gemini"],
    arguments: &["--acp"],
    env_remove: &[],
    transcript_format: None,
    transcript_root: TranscriptRoot::Home {
        variable: None,
        folder: ".gemini",
    },
    fork_point: ForkPointSupport::None,
    system_prompt: SystemPromptStyle::Unsupported,
    model_setting: ModelSetting::ConfigOptionOrSetModel,
    raw_events: false,
    keeps_limited_prompt: false,
    rolls_silently: false,
    close_answers_early: false,
    shares_process: false,
    end_of_input_grace_ms: 2_000,
};

static OPENCODE: Profile = Profile {
    kind: AgentKind::Opencode,
    programs: &["opencode"],
    arguments: &["acp"],
    // Its sessions are rows of a database.
    transcript_root: TranscriptRoot::Nowhere,
    ..GENERIC
};

static LOOPBACK: Profile = Profile {
    kind: AgentKind::Loopback,
    programs: &[],
    arguments: &[],
    env_remove: &[],
    transcript_format: Some(claude::FORMAT),
    transcript_root: TranscriptRoot::Data {
        folder: names::LOOPBACK,
    },
    fork_point: ForkPointSupport::Message,
    system_prompt: SystemPromptStyle::MetaAppend,
    model_setting: ModelSetting::ConfigOption,
    raw_events: true,
    keeps_limited_prompt: true,
    rolls_silently: true,
    close_answers_early: false,
    shares_process: false,
    end_of_input_grace_ms: 2_000,
};

static GENERIC: Profile = Profile {
    kind: AgentKind::Generic,
    programs: &[],
    arguments: &[],
    env_remove: &[],
    transcript_format: None,
    transcript_root: TranscriptRoot::Nowhere,
    fork_point: ForkPointSupport::None,
    system_prompt: SystemPromptStyle::Unsupported,
    model_setting: ModelSetting::ConfigOptionOrSetModel,
    raw_events: false,
    keeps_limited_prompt: false,
    rolls_silently: false,
    close_answers_early: false,
    shares_process: false,
    end_of_input_grace_ms: 2_000,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_that_parses_back_and_its_own_profile() {
        for kind in AgentKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(kind.profile().kind, kind);
        }
    }

    #[test]
    fn an_unknown_kind_names_the_known_ones() {
        let error = "clade".parse::<AgentKind>().unwrap_err();
        crate::words::check("an agent of an unknown kind", "agent kind", &error.to_string());
    }

    #[test]
    fn transcript_roots_follow_the_agents_own_variable_then_the_home_folder() {
        let data = Path::new("/home/u/.local/share/sessiond");
        let home = Some(Path::new("/home/u"));
        let unset = |_: &str| None;
        let set = |name: &str| (name == "CLAUDE_CONFIG_DIR").then(|| PathBuf::from("/srv/claude"));
        let empty = |_: &str| Some(PathBuf::new());
        let root = |kind: AgentKind| kind.profile().transcript_root(unset, home, data);

        assert_eq!(root(AgentKind::Claude), Some("/home/u/.claude".into()));
        assert_eq!(root(AgentKind::Codex), Some("/home/u/.codex".into()));
        assert_eq!(
            root(AgentKind::Loopback),
            Some("/home/u/.local/share/sessiond/loopback".into())
        );
        assert_eq!(root(AgentKind::Opencode), None);
        assert_eq!(root(AgentKind::Generic), None);
        let claude = AgentKind::Claude.profile();
        assert_eq!(
            claude.transcript_root(set, home, data),
            Some("/srv/claude".into())
        );
        assert_eq!(
            claude.transcript_root(empty, home, data),
            Some("/home/u/.claude".into())
        );
        assert_eq!(claude.transcript_root(unset, None, data), None);
        assert_eq!(
            AgentKind::Codex.profile().transcript_root(set, home, data),
            Some("/home/u/.codex".into())
        );
    }

    #[test]
    fn session_meta_asks_for_raw_events_and_appends_the_system_prompt() {
        let meta = AgentKind::Claude.profile().session_meta(Some("Be brief."));
        assert_eq!(
            Value::Object(meta),
            json!({
                "claudeCode": {"emitRawSDKMessages": [
                    {"type": "system", "subtype": "init"}, {"type": "rate_limit_event"},
                ]},
                "systemPrompt": {"append": "Be brief."},
            })
        );
        let empty = AgentKind::Claude.profile().session_meta(Some(""));
        assert!(!empty.contains_key("systemPrompt"));
        assert!(
            AgentKind::Codex
                .profile()
                .session_meta(Some("Be brief."))
                .is_empty()
        );
    }

    #[test]
    fn fork_points_exist_only_if_known_to_be_supported() {
        let meta = AgentKind::Claude.profile().fork_point_meta("msg_1").unwrap();
        assert_eq!(
            Value::Object(meta),
            json!({"jetbrains": {"air": {"version": 1, "fork": {"version": 1, "messageId": "msg_1"}}}})
        );
        assert!(AgentKind::Generic.profile().fork_point_meta("msg_1").is_none());
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
