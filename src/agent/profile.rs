//! What the bridge must know of each kind of agent, as data.
//!
//! One [`Profile`] a kind: where its program and transcripts are, what its requests must carry beside the
//! standard, and in which ways it departs from it. The facts were measured on the versions named in
//! [`MEASURED_VERSIONS`]; the contract tests pin those that the bridge relies on.
//!
//! This module must not know how an agent is started, what it says, or which configuration file named it:
//! it reads no environment, no disk and no clock (the environment comes in as a function).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::paths::names;
use crate::transcript::shelf::Format;
use crate::transcript::{claude, codex};

/// The adapters and programs on which the facts of this module were measured.
pub const MEASURED_VERSIONS: &[(&str, &str)] = &[
    ("@agentclientprotocol/claude-agent-acp", "0.101.0"),
    ("@agentclientprotocol/codex-acp", "2.6.0"),
    ("@google/gemini-cli", "0.61.0"),
    ("opencode-ai", "1.18.33"),
];

/// The brands of agent that the bridge knows. Anything else that speaks ACP is [`AgentKind::Generic`].
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
    /// The agent inside this binary.
    Loopback,
    /// Any other ACP agent: only what the protocol promises is relied on.
    Generic,
}

/// A `kind` in the configuration that is none of the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent kind {given:?}: known are {}", AgentKind::names().join(", "))]
pub struct UnknownKind {
    /// What was given.
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

    /// The kind's name in the configuration and on the wire.
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

    /// The package of the kind's program, in npm's registry.
    pub fn package(self) -> Option<&'static str> {
        Some(match self {
            AgentKind::Claude => "@agentclientprotocol/claude-agent-acp",
            AgentKind::Codex => "@agentclientprotocol/codex-acp",
            AgentKind::Gemini => "@google/gemini-cli",
            AgentKind::Opencode => "opencode-ai",
            AgentKind::Loopback | AgentKind::Generic => return None,
        })
    }

    /// The shell command that installs the kind's program.
    pub fn install_command(self) -> Option<String> {
        self.package().map(|package| format!("npm install -g {package}"))
    }

    /// What the bridge knows of this kind.
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

/// What the bridge knows of one kind of agent. Constant data; made only here.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Whose profile this is.
    pub kind: AgentKind,
    /// Program names to look for on PATH, best first, where none is configured. Empty: there is no usual one.
    pub programs: &'static [&'static str],
    /// Arguments that make the program speak ACP, where none are configured.
    pub arguments: &'static [&'static str],
    /// Variables to take out of the environment before it is started.
    pub env_remove: &'static [&'static str],
    /// In which form the agent keeps its transcripts; none if they cannot be read.
    pub transcript_format: Option<Format>,
    /// Where it keeps them when nothing is configured.
    pub transcript_root: TranscriptRoot,
    /// Whether a fork may name the message at which to cut.
    pub fork_point: ForkPointSupport,
    /// How a system prompt is given to a new or resumed session.
    pub system_prompt: SystemPromptStyle,
    /// How the model of a session is changed.
    pub model_setting: ModelSetting,
    /// Whether it reports its own events beside the standard ones when asked to (see
    /// [`Profile::session_meta`]).
    pub raw_events: bool,
    /// Whether a prompt that a usage limit refused is known to stay in the history that the model gets:
    /// sending it again would double it. False where it was not measured.
    pub keeps_limited_prompt: bool,
    /// Whether the agent may put later prompts into another transcript under the same session id (`/clear`).
    pub rolls_silently: bool,
    /// Whether `session/close` is answered before the session's own process has ended, which still writes.
    pub close_answers_early: bool,
    /// How long to wait, in milliseconds, for it to end after end of file on its standard input before it is
    /// told to by a signal.
    pub end_of_input_grace_ms: u64,
}

/// Where an agent keeps its transcripts when the configuration does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptRoot {
    /// The folder in this variable, else the one of this name under the home folder.
    Home {
        /// Variable that overrides the place, if the agent has one.
        variable: Option<&'static str>,
        /// Folder under the home folder.
        folder: &'static str,
    },
    /// The folder of this name in the daemon's own data folder.
    Data {
        /// Folder under the data folder.
        folder: &'static str,
    },
    /// Unknown, or not files.
    Nowhere,
}

/// Whether `session/fork` can be told where to cut, which the standard has no field for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkPointSupport {
    /// `_meta.jetbrains.air.fork`, inclusive of the message that it names.
    Message,
    /// The same, rounded to the whole turn that holds the message.
    Turn,
    /// Not known to be honoured: the history must be cut in another way.
    None,
}

/// How a system prompt reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemPromptStyle {
    /// `_meta.systemPrompt.append`: added to the agent's own.
    MetaAppend,
    /// There is no way that is known to work.
    Unsupported,
}

/// How the model of a session is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelSetting {
    /// Only through the config option of category `model`; `session/set_model` is refused.
    ConfigOption,
    /// The config option of category `model` where there is one, else `session/set_model`.
    ConfigOptionOrSetModel,
}

/// Raw events that the bridge asks of agents that have them. Measured on Claude 0.100.0: `init` is 2.9 KB
/// once a prompt (none per chunk or tool call), the limit event 0.3 KB once a turn, and none of them changes
/// what the model is sent. `init` is the only announcement of the transcript that a prompt goes to; the limit
/// event the only one that has the reset time also on the first turn of a session.
const RAW_EVENTS: &[(&str, Option<&str>)] = &[("system", Some("init")), ("rate_limit_event", None)];

impl Profile {
    /// The folder under which the transcripts are, when the configuration names none. `variable` looks up the
    /// agent's environment, `home` is the user's home folder, `data` the daemon's data folder. None: unknown.
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

    /// The `_meta` members that the bridge adds whenever it opens a session (new, resume, load and fork alike:
    /// neither the events asked for nor the system prompt outlives the agent's process). `system_prompt` is
    /// the conversation's own. Empty where there is nothing to add.
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

    /// The `_meta` members that make `session/fork` keep the history up to and including a message: the id of
    /// an assistant message (as in `messageId` of its chunks) or the uuid of a user record. Name the last
    /// assistant message of the turn to keep: after any other the agent inserts filler of its own.
    /// None: the agent is not known to honour a fork point.
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

/// The transcript that the agent now writes, read from the parameters of a raw event notification
/// (`_claude/sdkMessage`): its upstream id, which differs from the session id after a silent roll. None for
/// every other event. (`conversation_reset` has a `new_conversation_id` too, but no transcript is named by it.)
pub fn announced_transcript(params: &Value) -> Option<&str> {
    let message = params.get("message")?;
    let is = |key: &str, value: &str| message.get(key).and_then(Value::as_str) == Some(value);
    (is("type", "system") && is("subtype", "init"))
        .then(|| message.get("session_id").and_then(Value::as_str))
        .flatten()
        .filter(|id| !id.is_empty())
}

/// The method of raw event notifications, see [`Profile::session_meta`].
pub const RAW_EVENT_METHOD: &str = "_claude/sdkMessage";

/// Three more facts, measured on 0.101.0, that need no member here:
///
/// - Its fork of a compacted session is exact: it renames what `compactMetadata` says of the kept messages, as our cut does, and
///   the model is sent what the source would send next, also by a fork of the fork and after a resume. In auto mode a process
///   that opens a compacted session adds its note on that mode once more after the prompt; a resume does that too.
/// - A new session starts in auto mode where the user's settings name no mode; up to 0.100.0 it asked before each tool. A resume
///   and a fork keep the mode of the last prompt.
/// - About 54 minutes after the last request the adapter sends itself `/compact` in an open session of 200,000 tokens or more.
static CLAUDE: Profile = Profile {
    kind: AgentKind::Claude,
    programs: &["claude-agent-acp", "claude-code-acp"],
    arguments: &[],
    // As root it makes the agent ask for a mode that it then refuses, and no session starts.
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
    // Up to 2 s mid-stream until its own child is gone.
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
    // It takes 7 s to end by itself and 0.3 s when told to.
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
        assert_eq!(
            error.to_string(),
            r#"unknown agent kind "clade": known are claude, codex, gemini, opencode, loopback, generic"#
        );
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
    fn fork_points_exist_only_where_they_are_known_to_be_honoured() {
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
