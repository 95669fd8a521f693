//! Types shared by the wire, the inboxes and the sessions: ids, method names, errors.
//!
//! This module owns nothing. It does not know pipes, processes or tasks.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::BinaryBytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{MAX_DEPTH, Malformed};
use super::process::Death;

/// JSON-RPC: the method does not exist or is not offered.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the message is not a valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// The line is not JSON that the receiver can read.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the receiver failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// ACP: the request was cancelled.
pub const REQUEST_CANCELLED: i64 = -32800;

/// The method names that this room uses, and some frequent ones that are worth no allocation.
pub mod method {
    /// Client to agent: versions and capabilities.
    pub const INITIALIZE: &str = "initialize";
    /// Client to agent.
    pub const AUTHENTICATE: &str = "authenticate";
    /// Client to agent.
    pub const LOGOUT: &str = "logout";
    /// Client to agent: a new session.
    pub const SESSION_NEW: &str = "session/new";
    /// Client to agent: an earlier session, replayed.
    pub const SESSION_LOAD: &str = "session/load";
    /// Client to agent: an earlier session, not replayed.
    pub const SESSION_RESUME: &str = "session/resume";
    /// Client to agent: a copy of a session under a new id.
    pub const SESSION_FORK: &str = "session/fork";
    /// Client to agent.
    pub const SESSION_CLOSE: &str = "session/close";
    /// Client to agent.
    pub const SESSION_DELETE: &str = "session/delete";
    /// Client to agent: one turn.
    pub const SESSION_PROMPT: &str = "session/prompt";
    /// Client to agent, a notification.
    pub const SESSION_CANCEL: &str = "session/cancel";
    /// Client to agent.
    pub const SESSION_SET_MODE: &str = "session/set_mode";
    /// Client to agent.
    pub const SESSION_SET_CONFIG_OPTION: &str = "session/set_config_option";
    /// Client to agent. No longer in the protocol, but some agents still accept it.
    pub const SESSION_SET_MODEL: &str = "session/set_model";
    /// Agent to client: an update of a session.
    pub const SESSION_UPDATE: &str = "session/update";
    /// Agent to client: a question for the user.
    pub const REQUEST_PERMISSION: &str = "session/request_permission";
    /// Agent to client: a question for the user.
    pub const ELICITATION_CREATE: &str = "elicitation/create";
    /// Agent to client: an elicitation ended elsewhere. Names no session.
    pub const ELICITATION_COMPLETE: &str = "elicitation/complete";
    /// Agent to client.
    pub const READ_TEXT_FILE: &str = "fs/read_text_file";
    /// Agent to client.
    pub const WRITE_TEXT_FILE: &str = "fs/write_text_file";
    /// Agent to client: runs a command.
    pub const TERMINAL_CREATE: &str = "terminal/create";
    /// Agent to client.
    pub const TERMINAL_OUTPUT: &str = "terminal/output";
    /// Agent to client.
    pub const TERMINAL_WAIT_FOR_EXIT: &str = "terminal/wait_for_exit";
    /// Agent to client.
    pub const TERMINAL_KILL: &str = "terminal/kill";
    /// Agent to client.
    pub const TERMINAL_RELEASE: &str = "terminal/release";
    /// Both ways: the sender of a request no longer wants its answer.
    pub const CANCEL_REQUEST: &str = "$/cancel_request";
    /// An extension of Claude's and Codex's adapters: `{authStatus: {kind, label, detail?}}`. The agent sends it when
    /// it learns who is signed in, and at each change. It cannot be requested.
    pub const AUTH_STATUS_UPDATE: &str = "_auth/status_update";

    /// The methods for a client's files and terminals, each with the path in its capabilities that says whether it
    /// offers the method.
    pub const CLIENT_RESOURCES: [(&str, &str); 7] = [
        (READ_TEXT_FILE, "/fs/readTextFile"),
        (WRITE_TEXT_FILE, "/fs/writeTextFile"),
        (TERMINAL_CREATE, "/terminal"),
        (TERMINAL_OUTPUT, "/terminal"),
        (TERMINAL_WAIT_FOR_EXIT, "/terminal"),
        (TERMINAL_KILL, "/terminal"),
        (TERMINAL_RELEASE, "/terminal"),
    ];

    /// Frequent names.
    pub(super) const FROM_AGENT: &[&str] = &[
        SESSION_UPDATE,
        REQUEST_PERMISSION,
        ELICITATION_CREATE,
        ELICITATION_COMPLETE,
        READ_TEXT_FILE,
        WRITE_TEXT_FILE,
        CANCEL_REQUEST,
    ];
}

/// What a request of the agent asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A permission of the user. Any client may ask for it.
    Permission,
    /// An answer of the user. Any client may ask for it.
    Elicitation,
    /// The files or terminals of one client.
    ClientResource,
    /// A method that the protocol does not define.
    Extension,
}

impl RequestKind {
    /// Returns the kind of requests with this method.
    #[must_use]
    pub fn of(method: &str) -> Self {
        match method {
            method::REQUEST_PERMISSION => Self::Permission,
            method::ELICITATION_CREATE => Self::Elicitation,
            _ if method::CLIENT_RESOURCES.iter().any(|(known, _)| *known == method) => Self::ClientResource,
            _ => Self::Extension,
        }
    }
}

/// The name of a method.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MethodName(Cow<'static, str>);

impl MethodName {
    /// Creates a name from the wire.
    #[must_use]
    pub fn from_wire(name: &str) -> Self {
        let known = method::FROM_AGENT.iter().find(|known| **known == name);
        Self(known.map_or_else(|| Cow::Owned(name.to_owned()), |known| Cow::Borrowed(*known)))
    }

    /// Creates a name from one of the constants of [`method`].
    #[must_use]
    pub const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The id of a request that this program sent. Unique across all connections of the process, so that a late answer is
/// never taken for another agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentRequestId(u64);

impl AgentRequestId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Parses the id in a response or in `params.requestId`. `None` for an id that this program cannot have sent.
    pub(super) fn from_raw(raw: &str) -> Option<Self> {
        raw.parse().ok().map(Self)
    }
}

impl fmt::Display for AgentRequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The id of a request that the agent sent, as written. The answer must carry the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawId(Box<str>);

impl RawId {
    /// Wraps the id from a scanned line.
    #[must_use]
    pub fn from_wire(raw: &str) -> Self {
        Self(raw.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RawId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A JSON-RPC error object, from or to the agent.
///
/// Displays the text of its data too, because Codex puts the reason there.
#[derive(Debug, Clone, Deserialize, thiserror::Error)]
#[error("{message}{} ({code})", Details(self))]
pub struct AgentError {
    /// JSON-RPC or ACP code.
    #[serde(default)]
    pub code: i64,
    /// The agent's message.
    #[serde(default)]
    pub message: String,
    /// `data` as the agent wrote it. Failures are classified from it.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
    /// The whole error as the agent wrote it.
    #[serde(skip)]
    pub raw: Option<Box<RawValue>>,
}

impl AgentError {
    /// Creates an error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            raw: None,
        }
    }

    /// Returns the text in its data, on one line and shortened. `None` if the message already contains it.
    #[must_use]
    pub fn details(&self) -> Option<String> {
        let data: serde_json::Value = serde_json::from_str(self.data.as_ref()?.get()).ok()?;
        let texts = ["details", "message"]
            .iter()
            .find_map(|name| data.get(name)?.as_str());
        let words: Vec<&str> = texts
            .or_else(|| data.as_str())?
            .split(|character: char| character.is_whitespace() || character.is_control())
            .filter(|word| !word.is_empty())
            .collect();
        let text = words.join(" ");
        if text.is_empty() || self.message.contains(&text) {
            return None;
        }
        match text.char_indices().nth(MAX_DETAILS_CHARACTERS) {
            Some((end, _)) => Some(format!("{}…", &text[..end])),
            None => Some(text),
        }
    }

    /// Decodes an error. If it is malformed, its whole text becomes the message.
    #[must_use]
    pub fn from_raw(raw: &str) -> Self {
        match serde_json::from_str::<Self>(raw) {
            Ok(error) => Self {
                raw: RawValue::from_string(raw.to_owned()).ok(),
                ..error
            },
            Err(_) => {
                let text: String = raw.chars().take(MAX_MALFORMED_ERROR_CHARACTERS).collect();
                Self::new(INTERNAL_ERROR, text)
            }
        }
    }
}

/// Displays what follows an error's message.
struct Details<'a>(&'a AgentError);

impl fmt::Display for Details<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.details() {
            Some(details) => write!(formatter, ": {details}"),
            None => Ok(()),
        }
    }
}

/// How many characters of an error's data are shown.
const MAX_DETAILS_CHARACTERS: usize = 500;

/// How many characters of a malformed error become its message.
const MAX_MALFORMED_ERROR_CHARACTERS: usize = 1_000;

/// Why a call to the agent failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The agent answered with an error.
    #[error("the agent answered with an error")]
    Agent(#[source] AgentError),
    /// The agent ended before it answered or before it was called.
    #[error("the agent has ended: {0}")]
    Died(Arc<Death>),
    /// This program has closed the agent's input.
    #[error("the agent is being stopped")]
    Closing,
    /// The agent does not read its input, and its queue is full. Nothing was sent.
    #[error("the agent does not read its input")]
    Stalled,
    /// One agent has too many unanswered requests. Nothing was sent.
    #[error("too many requests to the agent are unanswered")]
    TooManyCalls,
    /// The answer exceeded the line limit and was skipped.
    #[error("the agent's answer is longer than {}", BinaryBytes(*limit_bytes as u64))]
    TooLong {
        /// The limit, in bytes.
        limit_bytes: usize,
    },
    /// The answer was nested too deeply and was skipped.
    #[error("the agent's answer is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The answer is not JSON and was skipped.
    #[error("the agent's answer cannot be read: {0}")]
    Malformed(Malformed),
    /// The agent did not answer in time. It may still be working.
    #[error("no answer from the agent within {} ms", after.as_millis())]
    TimedOut {
        /// How long this program waited.
        after: Duration,
    },
    /// The agent does not offer this method. Nothing was sent.
    #[error("the agent does not offer {0}")]
    Unsupported(MethodName),
    /// The answer does not have the form that the protocol requires.
    #[error("the agent's answer to {method} cannot be read: {detail}")]
    BadAnswer {
        /// The method.
        method: MethodName,
        /// What is wrong with it.
        detail: String,
    },
    /// The parameters are not an object, or cannot be encoded. Nothing was sent.
    #[error("the parameters of {method} cannot be written: {detail}")]
    BadParams {
        /// The method.
        method: MethodName,
        /// What is wrong with them.
        detail: String,
    },
    /// The agent's request is not open: it has an answer, or its session was detached.
    #[error("the agent's request {0} is not waiting for an answer")]
    NotWaiting(RawId),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_displays_the_text_of_its_data() {
        let table = [
            (
                r#"{"code":-32603,"message":"Internal error"}"#,
                "Internal error (-32603)",
            ),
            (
                r#"{"code":-32603,"message":"Internal error","data":{"details":"This chat uses\nmodel  provider \"x\"."}}"#,
                r#"Internal error: This chat uses model provider "x". (-32603)"#,
            ),
            (
                r#"{"code":1,"message":"No","data":{"details":7,"message":"because"}}"#,
                "No: because (1)",
            ),
            (
                r#"{"code":1,"message":"No","data":"because\u001b"}"#,
                "No: because (1)",
            ),
            (
                r#"{"code":1,"message":"No: because","data":{"details":"because"}}"#,
                "No: because (1)",
            ),
            (r#"{"code":1,"message":"No","data":{"details":" \n"}}"#, "No (1)"),
            (r#"{"code":1,"message":"No","data":["because"]}"#, "No (1)"),
            (r#"{"code":1,"message":"No","data":null}"#, "No (1)"),
        ];
        for (raw, expected) in table {
            assert_eq!(AgentError::from_raw(raw).to_string(), expected, "{raw}");
        }
        let long = "é".repeat(MAX_DETAILS_CHARACTERS);
        let shown = |text: &str| {
            let raw = serde_json::json!({"code": 1, "message": "No", "data": {"details": text}});
            AgentError::from_raw(&raw.to_string()).details()
        };
        assert_eq!(shown(&long), Some(long.clone()));
        assert_eq!(shown(&format!("{long}é")), Some(format!("{long}…")));
    }

    proptest! {
        #[test]
        fn any_error_text_can_be_shortened(text in "[\u{130}\u{1e9e}\u{e9}a \n]{0,40}|\\PC{0,40}", times in 1usize..100) {
            let text = text.repeat(times);
            let raw = serde_json::json!({"code": 1, "message": "No", "data": {"details": text}}).to_string();
            let shown = AgentError::from_raw(&raw).details().unwrap_or_default();
            prop_assert!(shown.chars().count() <= MAX_DETAILS_CHARACTERS + 1);
            // A malformed error is its own message.
            let strange = AgentError::from_raw(&format!("x{text}")).to_string();
            prop_assert!(!strange.is_empty());
        }
    }
}
