//! The text of messages, and errors in the protocol's codes. Pure.

use bridge_protocol::raw::RawJson;
use bridge_protocol::{BridgeError, ErrorKind};
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

/// The members of an object, in their order.
pub(super) type Members = IndexMap<String, RawJson>;

/// The result of a request as JSON, or its error.
pub(super) type Reply = Result<String, Failure>;

/// The codes that the protocol adds to JSON-RPC's.
const AUTH_REQUIRED: i32 = -32000;
const NOT_FOUND: i32 = -32002;
const CANCELLED: i32 = -32800;

/// Why a request failed: the protocol's error object.
#[derive(Debug)]
pub(super) struct Failure(RawJson);

impl Failure {
    fn new(code: i32, message: &str, data: Value) -> Self {
        Self(RawJson::from(match data {
            Value::Null => json!({ "code": code, "message": message }),
            data => json!({ "code": code, "message": message, "data": data }),
        }))
    }

    /// A line that is not JSON.
    pub(super) fn parse(why: impl std::fmt::Display) -> Self {
        Self::new(
            ErrorKind::ParseError.code(),
            &format!("the line is not valid JSON: {why}"),
            Value::Null,
        )
    }

    /// JSON that is no message, or too much of it.
    pub(super) fn invalid_request(why: &str) -> Self {
        Self::new(ErrorKind::InvalidRequest.code(), why, Value::Null)
    }

    /// Parameters that do not fit the method.
    pub(super) fn invalid_params(why: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidParams.code(), &why.to_string(), Value::Null)
    }

    /// A method that is not offered.
    pub(super) fn unknown_method(method: &str) -> Self {
        let message = format!("there is no method {method:?}");
        Self::new(ErrorKind::MethodNotFound.code(), &message, Value::Null)
    }

    /// A session that does not exist.
    pub(super) fn unknown_session(name: &str) -> Self {
        let message = format!("Session not found: {name}");
        Self::new(NOT_FOUND, &message, json!({ "sessionId": name }))
    }

    /// A request that the editor cancelled.
    pub(super) fn cancelled() -> Self {
        Self::new(CANCELLED, "the request was cancelled", Value::Null)
    }

    /// A turn that failed for a missing sign-in.
    pub(super) fn auth_required(message: &str) -> Self {
        Self::new(AUTH_REQUIRED, message, Value::Null)
    }

    /// A turn that failed for this reason.
    pub(super) fn failed(message: &str, data: Value) -> Self {
        Self::new(ErrorKind::InternalError.code(), message, data)
    }

    /// Whether it says that there is no such session.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == i64::from(NOT_FOUND)
    }

    /// Whether it says that nobody is signed in.
    pub(super) fn is_auth_required(&self) -> bool {
        self.code() == i64::from(AUTH_REQUIRED)
    }

    /// The message, for where it is said in place of an answer.
    pub(super) fn message(&self) -> String {
        let error: Value = self.0.read().unwrap_or_default();
        error["message"].as_str().unwrap_or_default().to_owned()
    }

    fn code(&self) -> i64 {
        let error: Value = self.0.read().unwrap_or_default();
        error["code"].as_i64().unwrap_or_default()
    }
}

impl From<BridgeError> for Failure {
    /// An error of the agent stays as the agent wrote it.
    fn from(error: BridgeError) -> Self {
        let upstream = error.details.get("upstream");
        // That the agent does not know its session is not that the editor's does not exist.
        let is_its_own = |upstream: &&RawJson| {
            let code = upstream.read::<Value>().unwrap_or_default()["code"].as_i64();
            code.is_some_and(|code| code != i64::from(NOT_FOUND))
        };
        if let Some(upstream) = upstream.filter(is_its_own) {
            return Self(upstream.clone());
        }
        let code = match error.kind {
            ErrorKind::NotFound | ErrorKind::Ambiguous => NOT_FOUND,
            ErrorKind::AuthRequired => AUTH_REQUIRED,
            ErrorKind::InvalidParams | ErrorKind::InvalidCwd | ErrorKind::CheckpointNotFound => {
                ErrorKind::InvalidParams.code()
            }
            ErrorKind::ParseError | ErrorKind::InvalidRequest | ErrorKind::MethodNotFound => {
                error.kind.code()
            }
            _ => ErrorKind::InternalError.code(),
        };
        let data = serde_json::to_value(error.data()).unwrap_or_default();
        Self::new(code, &error.message, data)
    }
}

/// Reads the parameters of a method.
pub(super) fn read<T: DeserializeOwned>(params: &str) -> Result<T, Failure> {
    serde_json::from_str(params).map_err(Failure::invalid_params)
}

/// Writes a result.
pub(super) fn result<T: Serialize>(result: &T) -> Reply {
    serde_json::to_string(result).map_err(|error| Failure::failed(&error.to_string(), Value::Null))
}

/// The answer to the request with this id, which is echoed byte for byte; `null` if there is none.
pub(super) fn answer(id: Option<&str>, reply: &Reply) -> String {
    let id = id.unwrap_or("null");
    match reply {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(Failure(error)) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, error.get()),
    }
}

/// A notification.
pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A request to the editor.
pub(super) fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// The same parameters for the editor's own session; its own id is put in place of the agent's.
pub(super) fn with_session(params: &RawJson, session: &str) -> RawJson {
    let Ok(mut members) = params.read::<Members>() else {
        return params.clone();
    };
    members.insert("sessionId".to_owned(), RawJson::from(Value::from(session)));
    RawJson::from_value(&members).unwrap_or_else(|_| params.clone())
}

/// The update with a chunk of a message: a content block.
pub(super) fn chunk(kind: &str, content: &str) -> String {
    format!(r#"{{"sessionUpdate":"{kind}","content":{content}}}"#)
}

/// The update with a text of our own, which is a message by itself.
pub(super) fn text_chunk(text: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"agent_message_chunk","messageId":"{}","content":{}}}"#,
        Uuid::new_v4(),
        json!({ "type": "text", "text": text })
    )
}
