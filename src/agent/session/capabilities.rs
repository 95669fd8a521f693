//! The capabilities that an agent declares.
//!
//! Not decoded with the schema's types, which reject a whole answer because of one malformed member. Pure.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::message::{CallError, MethodName, method};

/// The optional methods that an agent offers. Each is false if its marker is absent, null or false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// `session/load`.
    pub load_session: bool,
    /// `session/list`.
    pub list: bool,
    /// `session/resume`.
    pub resume: bool,
    /// `session/fork`.
    pub fork: bool,
    /// `session/close`.
    pub close: bool,
    /// `session/delete`.
    pub delete: bool,
    /// The member `additionalDirectories` when a session is opened.
    pub additional_directories: bool,
    /// `logout`.
    pub logout: bool,
    /// Not a method: the agent reports who is signed in (`_meta.authStatus`).
    pub auth_status: bool,
    /// Images in prompts.
    pub images: bool,
}

/// The answer to `initialize`.
#[derive(Debug, Clone)]
pub struct Initialized {
    /// The version that the agent chose.
    pub protocol_version: u64,
    /// The capabilities.
    pub capabilities: Capabilities,
    /// `authMethods`, raw.
    pub auth_methods: Option<Box<RawValue>>,
    /// `agentInfo`, raw.
    pub agent_info: Option<Box<RawValue>>,
    /// `agentInfo.version`, for messages and contract checks.
    pub agent_version: Option<String>,
    /// The raw result.
    pub raw: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    protocol_version: Value,
    #[serde(default)]
    agent_capabilities: Value,
    #[serde(default)]
    auth_methods: Option<Box<RawValue>>,
    #[serde(default)]
    agent_info: Option<Box<RawValue>>,
}

impl Initialized {
    /// Decodes a result.
    ///
    /// # Errors
    ///
    /// [`CallError::BadAnswer`] if it is not an object with a numeric protocol version.
    pub fn decode(raw: Box<RawValue>) -> Result<Self, CallError> {
        let bad = |detail: String| CallError::BadAnswer {
            method: MethodName::known(method::INITIALIZE),
            detail,
        };
        let answer: Answer = serde_json::from_str(raw.get()).map_err(|error| bad(error.to_string()))?;
        let protocol_version = answer
            .protocol_version
            .as_u64()
            .ok_or_else(|| bad("protocolVersion is not a number".to_owned()))?;
        let agent_version = answer.agent_info.as_deref().and_then(|info| {
            let info: Value = serde_json::from_str(info.get()).ok()?;
            Some(info.get("version")?.as_str()?.to_owned())
        });
        Ok(Self {
            protocol_version,
            capabilities: Capabilities::from_value(&answer.agent_capabilities),
            auth_methods: answer.auth_methods,
            agent_info: answer.agent_info,
            agent_version,
            raw,
        })
    }
}

impl Capabilities {
    fn from_value(value: &Value) -> Self {
        let has = |pointer: &str| value.pointer(pointer).is_some_and(is_marker);
        Self {
            load_session: has("/loadSession"),
            list: has("/sessionCapabilities/list"),
            resume: has("/sessionCapabilities/resume"),
            fork: has("/sessionCapabilities/fork"),
            close: has("/sessionCapabilities/close"),
            delete: has("/sessionCapabilities/delete"),
            additional_directories: has("/sessionCapabilities/additionalDirectories"),
            logout: has("/auth/logout"),
            auth_status: has("/_meta/authStatus"),
            images: has("/promptCapabilities/image"),
        }
    }
}

fn is_marker(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}
