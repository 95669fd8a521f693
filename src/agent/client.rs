//! Describes the client that an agent process is started for. Pure.

use bridge_protocol::AgentName;
use bridge_protocol::raw::RawJson;
use serde_json::Value;

use super::members::Members;
use super::message::{MethodName, method};

/// What a client reports about itself, and the arguments that it requests for its agent. Agents act on both, so clients share a
/// process only if these are equal byte for byte. The exception is the `_meta` of `initialize`: the agent gets that of the
/// client for which the process was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientProfile {
    /// `clientCapabilities`, as the client sent them.
    pub capabilities: Option<RawJson>,
    /// `clientInfo`, as the client sent it.
    pub info: Option<RawJson>,
    /// The other parameters of `initialize`: members that the protocol does not name, and `_meta`.
    pub other_params: Option<RawJson>,
    /// Arguments for the command of this agent, after the configured ones.
    pub arguments: Option<(AgentName, Vec<String>)>,
    /// Further parameters with which the client opened a session: members that the protocol does not name, and `_meta`. They do
    /// not affect which clients share a process.
    pub session_params: Option<RawJson>,
}

impl ClientProfile {
    /// Returns the capabilities to pass on: the client's own, plus both kinds of elicitation. The client need not support them,
    /// because any client of the conversation can answer a question. A client that cannot show one is sent its text and the
    /// command that answers it.
    #[must_use]
    pub fn capabilities_for_agent(&self) -> RawJson {
        let original = self.capabilities.clone().unwrap_or_else(empty);
        let Ok(mut members) = original.read::<Members>() else {
            return original;
        };
        let Some(elicitation) = with_elicitation(members.get("elicitation")) else {
            return original;
        };
        members.insert("elicitation".to_owned(), elicitation);
        RawJson::from_value(&members).unwrap_or(original)
    }

    /// Returns the methods for the client's files and terminals that the agent may call.
    #[must_use]
    pub fn offered_methods(&self) -> Vec<MethodName> {
        let capabilities = self.capabilities.as_ref();
        let capabilities: Value = capabilities.and_then(|raw| raw.read().ok()).unwrap_or_default();
        let has = |pointer| capabilities.pointer(pointer) == Some(&Value::Bool(true));
        let offered = method::CLIENT_RESOURCES
            .iter()
            .filter(|(_, capability)| has(capability));
        offered.map(|(name, _)| MethodName::known(name)).collect()
    }
}

/// Returns the client's `elicitation` with both kinds. `None` if it already has both.
fn with_elicitation(original: Option<&RawJson>) -> Option<RawJson> {
    let original: Option<Members> = original.and_then(|raw| raw.read().ok());
    let mut kinds = original.unwrap_or_default();
    let mut is_changed = false;
    for kind in ["form", "url"] {
        let given = kinds.get(kind).map(RawJson::get);
        if matches!(given, None | Some("null" | "false")) {
            kinds.insert(kind.to_owned(), empty());
            is_changed = true;
        }
    }
    RawJson::from_value(&kinds).ok().filter(|_| is_changed)
}

fn empty() -> RawJson {
    RawJson::from(Value::Object(serde_json::Map::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(capabilities: &str) -> ClientProfile {
        ClientProfile {
            capabilities: RawJson::from_text(capabilities.to_owned()).ok(),
            ..ClientProfile::default()
        }
    }

    #[test]
    fn capabilities_pass_byte_for_byte_but_for_elicitation() {
        let whole = r#"{"elicitation": {"url":{ },"form":{"a":1.0}} , "x":1e2}"#;
        let table = [
            (whole, whole),
            (
                r#"{ "x":1e2, "elicitation":{"form":{ }}}"#,
                r#"{"x":1e2,"elicitation":{"form":{ },"url":{}}}"#,
            ),
            (
                r#"{"elicitation":null,"fs":{"a": 1}}"#,
                r#"{"elicitation":{"form":{},"url":{}},"fs":{"a": 1}}"#,
            ),
            ("{}", r#"{"elicitation":{"form":{},"url":{}}}"#),
            ("7", "7"),
        ];
        for (given, expected) in table {
            assert_eq!(profile(given).capabilities_for_agent().get(), expected);
        }
        let none = ClientProfile::default();
        assert_eq!(
            none.capabilities_for_agent(),
            profile("{}").capabilities_for_agent()
        );
    }

    #[test]
    fn only_advertised_methods_are_offered() {
        let offered = |capabilities| {
            let offered = profile(capabilities).offered_methods();
            offered.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(offered("{}").is_empty());
        assert!(offered(r#"{"terminal":false,"fs":{"writeTextFile":null}}"#).is_empty());
        assert_eq!(offered(r#"{"fs":{"readTextFile":true}}"#), ["fs/read_text_file"]);
        assert_eq!(offered(r#"{"terminal":true}"#).len(), 5);
    }
}
