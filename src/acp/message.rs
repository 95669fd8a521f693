//! The text of messages, and errors in the protocol's codes. Pure.

use std::fmt;

use bridge_protocol::link::{Fidelity, Resumed};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{self, FailureKind};
use bridge_protocol::{BridgeError, ErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agent::members::{self, Members, to_object};
use crate::server::without_position;

/// The result of a request as JSON, or its error.
pub(super) type Reply = Result<String, Failure>;

/// The codes that the protocol adds to JSON-RPC's.
const AUTH_REQUIRED: i32 = -32000;
const NOT_FOUND: i32 = -32002;
const CANCELLED: i32 = -32800;

/// Why a request failed: the protocol's error object.
#[derive(Debug)]
pub(super) struct Failure {
    code: i64,
    message: String,
    error: RawJson,
}

impl Failure {
    fn new(code: i32, message: String, data: Value) -> Self {
        let mut error = json!({ "code": code, "message": message });
        if !data.is_null() {
            error["data"] = data;
        }
        Self {
            code: code.into(),
            message,
            error: error.into(),
        }
    }

    /// A failure of this kind.
    pub(super) fn of(kind: ErrorKind, why: impl fmt::Display) -> Self {
        Self::new(code(kind), format!("{why}"), Value::Null)
    }

    /// A session that does not exist.
    pub(super) fn unknown_session(name: &str) -> Self {
        let message = format!("Session not found: {name}");
        Self::new(NOT_FOUND, message, json!({ "sessionId": name }))
    }

    /// A request that the editor cancelled.
    pub(super) fn cancelled() -> Self {
        Self::new(CANCELLED, "the request was cancelled".to_owned(), Value::Null)
    }

    /// A turn that failed. An error of the agent keeps its code, its message and its data, but for the codes on which
    /// editors act: that of a missing sign-in means just that, and none says that the editor's session does not exist.
    pub(super) fn of_turn(failure: &turn::Failure) -> Self {
        let data = json!({ "kind": failure.kind, "retryable": failure.retryable });
        let own_code = match failure.kind {
            FailureKind::AuthRequired => AUTH_REQUIRED,
            _ => code(ErrorKind::InternalError),
        };
        let Some(agents) = failure.upstream.as_ref().and_then(Self::of_agent) else {
            return Self::new(own_code, failure.message.clone(), data);
        };
        let keeps_code = own_code != AUTH_REQUIRED && !agents.is_not_found() && !agents.is_auth_required();
        agents.with((!keeps_code).then_some(own_code), data)
    }

    /// An error of the agent with this code, and with this data if it has none.
    fn with(mut self, code: Option<i32>, data: Value) -> Self {
        let has_data = member(self.error.get(), "data").is_some_and(|data| data.get() != "null");
        self.code = code.map_or(self.code, i64::from);
        let code = code.map(|code| ("code", code.into()));
        let changed = code.into_iter().chain((!has_data).then_some(("data", data)));
        for (name, value) in changed {
            self.error = members::with_member(self.error.get(), name, value.into()).unwrap_or(self.error);
        }
        self
    }

    /// An error of the agent, as the agent wrote it.
    pub(super) fn of_agent(error: &RawJson) -> Option<Self> {
        #[derive(Deserialize)]
        struct Upstream {
            code: i64,
            #[serde(default)]
            message: String,
        }
        let Upstream { code, message } = error.read().ok()?;
        let error = error.clone();
        Some(Self { code, message, error })
    }

    /// Whether the session is unknown.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == i64::from(NOT_FOUND)
    }

    /// Whether a sign-in is required.
    pub(super) fn is_auth_required(&self) -> bool {
        self.code == i64::from(AUTH_REQUIRED)
    }

    /// The error's message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// The protocol's code of a kind.
fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound | ErrorKind::Ambiguous => NOT_FOUND,
        ErrorKind::AuthRequired => AUTH_REQUIRED,
        ErrorKind::InvalidCwd | ErrorKind::CheckpointNotFound => ErrorKind::InvalidParams.code(),
        ErrorKind::ParseError
        | ErrorKind::InvalidRequest
        | ErrorKind::InvalidParams
        | ErrorKind::MethodNotFound => kind.code(),
        _ => ErrorKind::InternalError.code(),
    }
}

impl From<BridgeError> for Failure {
    /// An error of the agent is returned unchanged, unless the agent does not know its session: the editor's session still
    /// exists. A missing sign-in has the protocol's code, by which editors recognize it.
    fn from(error: BridgeError) -> Self {
        match error.details.get("upstream").and_then(Self::of_agent) {
            Some(failure) if error.kind == ErrorKind::AuthRequired => {
                let data = json!({ "kind": error.kind, "retryable": error.retryable });
                failure.with(Some(AUTH_REQUIRED), data)
            }
            Some(failure) if !failure.is_not_found() => failure,
            _ => {
                let data = serde_json::to_value(error.data()).unwrap_or_default();
                let code = match error.details.contains_key("agent") {
                    // An agent is not configured. The session may exist.
                    true if error.kind == ErrorKind::NotFound => ErrorKind::InvalidParams.code(),
                    _ => code(error.kind),
                };
                Self::new(code, error.message, data)
            }
        }
    }
}

/// Reads the parameters of a method.
pub(super) fn read<T: DeserializeOwned>(params: &str) -> Result<T, Failure> {
    // Serde also reads a struct from an array, by position.
    if params.trim_start().starts_with('[') {
        return Err(Failure::of(ErrorKind::InvalidParams, "params must be an object"));
    }
    serde_json::from_str(params)
        .map_err(|error| Failure::of(ErrorKind::InvalidParams, without_position(&error)))
}

/// Writes a result.
pub(super) fn result<T: Serialize>(result: &T) -> Reply {
    serde_json::to_string(result).map_err(|error| Failure::of(ErrorKind::InternalError, error))
}

/// The answer to the request with this id, which is echoed byte for byte; `null` if there is none.
pub(super) fn answer(id: Option<&str>, reply: &Reply) -> String {
    let id = id.unwrap_or("null");
    match reply {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(Failure { error, .. }) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, error.get()),
    }
}

/// A notification.
pub(super) fn notification(method: &str, params: &str) -> String {
    let method = Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#)
}

/// A request to the editor.
pub(super) fn request(id: u64, method: &str, params: &str) -> String {
    let method = Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}

/// Whether a message is the request to the editor with this id.
pub(super) fn is_request(line: &str, id: u64) -> bool {
    let tail = line.strip_prefix(r#"{"jsonrpc":"2.0","id":"#);
    tail.is_some_and(|tail| tail.starts_with(&format!(r#"{id},"method":"#)))
}

/// A notification that the answer to a request to the editor is no longer wanted.
pub(super) fn withdrawal(id: u64) -> String {
    notification("$/cancel_request", &json!({ "requestId": id }).to_string())
}

/// The parameters with the agent's session id replaced by the editor's.
pub(super) fn with_session(params: &str, session: &str) -> String {
    with_member(params, "sessionId", RawJson::from(Value::from(session)))
}

/// The parameters except those with these names and those for the daemon. `None` if no parameters remain.
pub(super) fn other_params(params: &str, names: &[&str]) -> Option<RawJson> {
    let mut members: Members = serde_json::from_str(params).ok()?;
    members.retain(|name, _| !names.contains(&name.as_str()));
    let meta = members.get("_meta").and_then(|meta| meta.read::<Members>().ok());
    if let Some(mut meta) = meta
        && meta.shift_remove("sessiond").is_some()
    {
        members.shift_remove("_meta");
        if !meta.is_empty() {
            members.insert("_meta".to_owned(), RawJson::from_value(&meta).ok()?);
        }
    }
    to_object(&members)
}

/// An update with a chunk of a message. `content`: a content block.
pub(super) fn chunk(kind: &str, content: &str) -> String {
    format!(r#"{{"sessionUpdate":"{kind}","content":{content}}}"#)
}

/// An update with a notice that is not part of the history, for editors that show notices separately.
pub(super) fn notice(text: &str) -> String {
    let notice = json!({ "sessionUpdate": "notice", "severity": "warning", "title": text.trim() });
    notice.to_string()
}

/// An update with a message of the daemon.
pub(super) fn text_chunk(text: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{}","content":{}}}"#,
        Uuid::new_v4(),
        json!({ "type": "text", "text": text })
    )
}

/// The `sessionUpdate` of an update.
pub(super) fn kind_of(update: &str) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        session_update: String,
    }
    serde_json::from_str(update).map_or_else(|_| String::new(), |Update { session_update }| session_update)
}

/// The object with the value of this member replaced. All other members are unchanged.
pub(super) fn with_member(object: &str, name: &str, value: RawJson) -> String {
    let changed = members::with_member(object, name, value);
    changed.map_or_else(|| object.to_owned(), |changed| changed.get().to_owned())
}

/// A member of an object, raw.
pub(super) fn member(object: &str, name: &str) -> Option<RawJson> {
    let members: Members = serde_json::from_str(object).ok()?;
    members.get(name).cloned()
}

/// A string member of an object.
pub(super) fn text_of(object: &str, name: &str) -> Option<String> {
    member(object, name)?.read().ok()
}

/// The text of an agent's question: the message of an elicitation, or the title of the tool call that needs permission.
pub(super) fn question_of(params: &str) -> String {
    let title = || text_of(member(params, "toolCall")?.get(), "title");
    text_of(params, "message").or_else(title).unwrap_or_default()
}

/// A message about what was lost when the session was reopened. `None` if nothing was lost. `undo`: the command that goes back
/// to the former session, if there is one.
pub(super) fn loss_message(resumed: &Resumed, undo: Option<&str>) -> Option<String> {
    let turns = match resumed.missing_turns {
        0 => "some of the earlier turns".to_owned(),
        1 => "1 earlier turn".to_owned(),
        turns => format!("{turns} earlier turns"),
    };
    let lost = match resumed.fidelity {
        Fidelity::Partial => format!("The agent's session was reopened without {turns}."),
        Fidelity::Text => {
            "The agent's session could not be reopened; the agent received the history of this conversation as text."
                .to_owned()
        }
        // A conversation without turns has lost nothing.
        Fidelity::None if resumed.missing_turns > 0 => format!(
            "The agent's session could not be reopened; the agent began a new one without {turns}."
        ),
        _ => return None,
    };
    let kept = match undo.filter(|_| resumed.refused_head().is_some()) {
        Some(undo) => format!(
            " Its whole transcript is kept: once the agent opens it again, go back to it with {undo}."
        ),
        None => String::new(),
    };
    Some(format!("{lost}{kept}\n\n"))
}
