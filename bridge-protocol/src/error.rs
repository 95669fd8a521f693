//! Errors on the wire: a code, a message, and `data` for programs.

use std::collections::BTreeMap;

use derive_more::{Display, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::raw::RawJson;

/// Declares the kinds of errors with their codes.
macro_rules! error_kinds {
    ($( $(#[$about:meta])+ $kind:ident = $code:literal, )+) => {
        /// The kind of an error: its JSON-RPC code, and `data.kind` on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub enum ErrorKind {
            $( $(#[$about])+ $kind, )+
        }

        impl ErrorKind {
            /// All kinds, in the order of the contract.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$kind),+];

            /// The JSON-RPC error code.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$kind => $code,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The text is not JSON.
    ParseError = -32700,
    /// The JSON is not a request, or exceeds a limit.
    InvalidRequest = -32600,
    /// The method does not exist.
    MethodNotFound = -32601,
    /// The parameters do not fit the method.
    InvalidParams = -32602,
    /// The daemon failed unexpectedly.
    InternalError = -32603,
    /// The named object does not exist. Of a deleted conversation `data` has `deletedAt` and `conversationId`.
    NotFound = 1001,
    /// The name matches several objects: `data.candidates`, `data.transcripts` or `data.agents`.
    Ambiguous = 1002,
    /// Another turn is running, or a limit of the daemon is reached.
    Busy = 1003,
    /// The folder is missing or is not a folder.
    InvalidCwd = 1004,
    /// The checkpoint does not exist.
    CheckpointNotFound = 1005,
    /// The agent's program cannot be run.
    AgentUnavailable = 1006,
    /// The agent returned an error: `data.upstream`.
    AgentError = 1007,
    /// The agent requires a sign-in.
    AuthRequired = 1008,
    /// The agent hit a usage limit.
    Limited = 1009,
    /// Neither the agent nor the daemon supports the operation.
    Unsupported = 1010,
    /// Every attempt to reopen the session failed: `data.attempts`.
    NotResumable = 1011,
    /// The call contradicts the current state. `data.undoId`, if present, is the folder move that has to be undone as a whole;
    /// `data.path`, if present, a file that would have to be replaced.
    Conflict = 1012,
    /// The question is already resolved: `data.by` says by whom.
    InterruptResolved = 1013,
    /// The daemon is stopping.
    ShuttingDown = 1014,
    /// A change could not be made durable.
    StoreFailed = 1015,
    /// The transcript cannot be read.
    TranscriptDamaged = 1016,
    /// The conversation's revision is not the expected one: another client changed it.
    RevisionMismatch = 1017,
}

impl ErrorKind {
    /// Whether the same call usually succeeds later with nothing changed. An error of this kind may say otherwise.
    #[must_use]
    pub const fn usually_retryable(self) -> bool {
        matches!(
            self,
            Self::Busy | Self::AgentUnavailable | Self::Limited | Self::ShuttingDown
        )
    }

    /// Whether errors of this kind differ in that, so that only the error itself says whether it is retryable.
    #[must_use]
    pub const fn tells_retryable(self) -> bool {
        matches!(self, Self::InternalError | Self::AgentError | Self::StoreFailed)
    }
}

/// An error of a method. Serialized as JSON-RPC's error object.
#[derive(Clone, Debug, PartialEq, Display, Error, Serialize)]
#[display("{message}")]
#[serde(into = "WireError")]
pub struct BridgeError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// What is wrong and, where possible, what to do, in one sentence.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// More members of `data`, as received: numbers keep their digits.
    pub details: BTreeMap<String, RawJson>,
}

impl BridgeError {
    /// Creates an error of this kind, retryable as usual for the kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: kind.usually_retryable(),
            details: BTreeMap::new(),
        }
    }

    /// Sets whether the call may be retried.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Adds a member to `data`.
    #[must_use]
    pub fn with(self, key: &str, value: impl Into<Value>) -> Self {
        self.with_raw(key, RawJson::from(value.into()))
    }

    /// Adds a member to `data`, byte for byte.
    #[must_use]
    pub fn with_raw(mut self, key: &str, value: RawJson) -> Self {
        self.details.insert(key.to_owned(), value);
        self
    }

    /// Returns a further member of `data`, decoded; null if it does not exist.
    #[must_use]
    pub fn detail(&self, key: &str) -> Value {
        let raw = self.details.get(key);
        raw.and_then(|raw| raw.read().ok()).unwrap_or_default()
    }

    /// The `data` member on the wire, sorted by name, whatever features serde_json is built with.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, RawJson> {
        let mut data = self.details.clone();
        let kind = serde_json::to_value(self.kind).unwrap_or_default();
        data.insert("kind".to_owned(), RawJson::from(kind));
        data.insert("retryable".to_owned(), RawJson::from(Value::Bool(self.retryable)));
        data
    }

    /// Reads an error from its members on the wire. If this version does not know the kind, the code decides; if it does
    /// not know the code either, the error is internal.
    #[must_use]
    pub fn from_wire(code: i32, message: &str, data: Option<RawJson>) -> Self {
        let members = |data: RawJson| {
            data.read()
                .unwrap_or_else(|_| BTreeMap::from([("detail".to_owned(), data)]))
        };
        let mut details: BTreeMap<String, RawJson> = data.map(members).unwrap_or_default();
        let told = details.remove("kind").and_then(|kind| kind.read().ok());
        let kind = told
            .or_else(|| ErrorKind::ALL.into_iter().find(|kind| kind.code() == code))
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

/// An error of a method.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct WireError {
    /// The code of the error's kind.
    #[schemars(extend("enum" = ErrorKind::ALL.map(ErrorKind::code).as_slice()))]
    code: i32,
    /// What is wrong and, where possible, what to do, in one sentence.
    message: String,
    /// The kind of error, and members that depend on the kind.
    #[schemars(with = "Data")]
    data: BTreeMap<String, RawJson>,
}

/// The members of `data` that every error has.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct Data {
    kind: ErrorKind,
    /// Whether the same call may succeed later.
    retryable: bool,
}

impl From<BridgeError> for WireError {
    fn from(error: BridgeError) -> Self {
        Self {
            code: error.kind.code(),
            data: error.data(),
            message: error.message,
        }
    }
}

#[cfg(feature = "client")]
impl From<jsonrpsee::types::ErrorObjectOwned> for BridgeError {
    fn from(error: jsonrpsee::types::ErrorObjectOwned) -> Self {
        let data = error.data().map(|data| RawJson::new(data.to_owned()));
        Self::from_wire(error.code(), error.message(), data)
    }
}
