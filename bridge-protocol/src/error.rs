//! Errors as they cross the wire: a code, a sentence, and `data` that a program can act on.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::raw::RawJson;

/// What kind of error it is: the `data.kind` of the wire, and its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text was not JSON.
    ParseError,
    /// The JSON was not a request, or was over a limit.
    InvalidRequest,
    /// There is no such method.
    MethodNotFound,
    /// The parameters do not fit the method.
    InvalidParams,
    /// A fault of the daemon.
    InternalError,
    /// There is no such thing.
    NotFound,
    /// The name fits several.
    Ambiguous,
    /// Another turn or a limit is in the way.
    Busy,
    /// The folder is missing, not a folder, or not absolute.
    InvalidCwd,
    /// There is no such checkpoint.
    CheckpointNotFound,
    /// The agent's program cannot be run.
    AgentUnavailable,
    /// The agent answered with an error: `data.upstream`.
    AgentError,
    /// The agent wants one to sign in.
    AuthRequired,
    /// A usage limit.
    Limited,
    /// Neither the agent nor the daemon can do that.
    Unsupported,
    /// Nothing that was tried brought the session back: `data.attempts`.
    NotResumable,
    /// It contradicts what is there.
    Conflict,
    /// The question has been answered: `data.by`.
    InterruptResolved,
    /// The daemon is stopping.
    ShuttingDown,
    /// A change could not be made durable.
    StoreFailed,
    /// The transcript cannot be read.
    TranscriptDamaged,
    /// Somebody else changed it first.
    RevisionMismatch,
}

impl ErrorKind {
    /// Every kind, in the order of the contract.
    pub const ALL: [Self; 22] = [
        Self::ParseError,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::InternalError,
        Self::NotFound,
        Self::Ambiguous,
        Self::Busy,
        Self::InvalidCwd,
        Self::CheckpointNotFound,
        Self::AgentUnavailable,
        Self::AgentError,
        Self::AuthRequired,
        Self::Limited,
        Self::Unsupported,
        Self::NotResumable,
        Self::Conflict,
        Self::InterruptResolved,
        Self::ShuttingDown,
        Self::StoreFailed,
        Self::TranscriptDamaged,
        Self::RevisionMismatch,
    ];

    /// The JSON-RPC error code.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::InternalError => -32603,
            Self::NotFound => 1001,
            Self::Ambiguous => 1002,
            Self::Busy => 1003,
            Self::InvalidCwd => 1004,
            Self::CheckpointNotFound => 1005,
            Self::AgentUnavailable => 1006,
            Self::AgentError => 1007,
            Self::AuthRequired => 1008,
            Self::Limited => 1009,
            Self::Unsupported => 1010,
            Self::NotResumable => 1011,
            Self::Conflict => 1012,
            Self::InterruptResolved => 1013,
            Self::ShuttingDown => 1014,
            Self::StoreFailed => 1015,
            Self::TranscriptDamaged => 1016,
            Self::RevisionMismatch => 1017,
        }
    }

    /// The kind that has this code.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether the same call may succeed later without anything being changed, when nothing more is known.
    #[must_use]
    pub const fn usually_retryable(self) -> bool {
        matches!(
            self,
            Self::Busy | Self::AgentUnavailable | Self::Limited | Self::ShuttingDown
        )
    }

    /// Whether errors of this kind differ in that, so that only an error itself tells.
    #[must_use]
    pub const fn tells_retryable(self) -> bool {
        matches!(self, Self::InternalError | Self::AgentError | Self::StoreFailed)
    }
}

/// An error of a method, with what a program needs to act on it.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeError {
    /// What kind.
    pub kind: ErrorKind,
    /// One sentence that says what is wrong and, where there is something to do, what.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Further members of `data`, as they came: numbers keep their digits.
    pub details: BTreeMap<String, RawJson>,
}

impl BridgeError {
    /// An error of this kind, retryable as the kind usually is.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: kind.usually_retryable(),
            details: BTreeMap::new(),
        }
    }

    /// The same, with whether the call may be tried again.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same, with one more member of `data`.
    #[must_use]
    pub fn with(self, key: &str, value: impl Into<Value>) -> Self {
        self.with_raw(key, RawJson::from(value.into()))
    }

    /// The same, with one more member of `data` that passes through byte for byte.
    #[must_use]
    pub fn with_raw(mut self, key: &str, value: RawJson) -> Self {
        self.details.insert(key.to_owned(), value);
        self
    }

    /// A further member of `data`, decoded; null when there is none.
    #[must_use]
    pub fn detail(&self, key: &str) -> Value {
        let raw = self.details.get(key);
        raw.and_then(|raw| raw.read().ok()).unwrap_or_default()
    }

    /// The `data` member of the wire: its members in the order of their names, whatever features serde_json is built with.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, RawJson> {
        let mut data = self.details.clone();
        let kind = serde_json::to_value(self.kind).unwrap_or_default();
        data.insert("kind".to_owned(), RawJson::from(kind));
        data.insert("retryable".to_owned(), RawJson::from(Value::Bool(self.retryable)));
        data
    }

    /// Reads an error back from its members on the wire. A kind that this version does not know is told by the code, and
    /// else an internal error.
    #[must_use]
    pub fn from_wire(code: i32, message: &str, data: Option<RawJson>) -> Self {
        let mut details: BTreeMap<String, RawJson> = match data {
            Some(data) => data
                .read()
                .unwrap_or_else(|_| BTreeMap::from([("detail".to_owned(), data.clone())])),
            None => BTreeMap::new(),
        };
        let told = details.remove("kind").and_then(|kind| kind.read().ok());
        let kind = told
            .or_else(|| ErrorKind::from_code(code))
            .unwrap_or(ErrorKind::InternalError);
        let retryable = details
            .remove("retryable")
            .and_then(|retryable| retryable.read().ok())
            .unwrap_or_else(|| kind.usually_retryable());
        Self {
            kind,
            message: message.to_owned(),
            retryable,
            details,
        }
    }
}

/// As it stands in an answer: the members of JSON-RPC's error object.
impl schemars::JsonSchema for BridgeError {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Error".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let kind = generator.subschema_for::<ErrorKind>();
        let codes = ErrorKind::ALL.map(ErrorKind::code);
        schemars::json_schema!({
            "description": "An error of a method, with what a program needs to act on it.",
            "type": "object",
            "properties": {
                "code": { "description": "That of its kind.", "type": "integer", "enum": codes.as_slice() },
                "message": {
                    "description": "One sentence that says what is wrong and, where there is something to do, what.",
                    "type": "string",
                },
                "data": {
                    "description": "Further members depend on the kind.",
                    "type": "object",
                    "properties": {
                        "kind": kind,
                        "retryable": {
                            "description": "Whether the same call may succeed later.",
                            "type": "boolean",
                        },
                    },
                    "required": ["kind", "retryable"],
                },
            },
            "required": ["code", "message", "data"],
        })
    }
}

impl fmt::Display for BridgeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for BridgeError {}

#[cfg(any(feature = "client", feature = "server"))]
impl From<BridgeError> for jsonrpsee::types::ErrorObjectOwned {
    fn from(error: BridgeError) -> Self {
        let data = error.data();
        Self::owned(error.kind.code(), error.message, Some(data))
    }
}

#[cfg(any(feature = "client", feature = "server"))]
impl From<jsonrpsee::types::ErrorObjectOwned> for BridgeError {
    fn from(error: jsonrpsee::types::ErrorObjectOwned) -> Self {
        let data = error.data().map(|data| RawJson::new(data.to_owned()));
        Self::from_wire(error.code(), error.message(), data)
    }
}
