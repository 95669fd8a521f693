//! The capabilities that the editor reported in `initialize`. Pure.

use bridge_protocol::raw::RawJson;
use serde::Deserialize;
use serde_json::Value;

use super::message::{self, Failure};
use crate::agent::client::ClientProfile;
use crate::agent::message::{MethodName, RequestKind};
use crate::agent::subagent;

/// The capabilities that an editor reported in `initialize`. Empty before that.
#[derive(Debug, Default)]
pub(super) struct EditorCapabilities {
    capabilities: Value,
    /// The client description that agents receive.
    profile: ClientProfile,
    /// The file and terminal methods that the editor offers.
    offered_methods: Vec<MethodName>,
}

impl EditorCapabilities {
    /// Reads the parameters of `initialize`.
    pub(super) fn read(params: &str) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            client_capabilities: Option<RawJson>,
            client_info: Option<RawJson>,
        }
        let Params {
            client_capabilities: capabilities,
            client_info: info,
        } = message::read(params)?;
        let named = ["protocolVersion", "clientCapabilities", "clientInfo"];
        let profile = ClientProfile {
            capabilities,
            info,
            other_params: message::other_params(params, &named),
            ..ClientProfile::default()
        };
        let capabilities = profile.capabilities.as_ref().and_then(|raw| raw.read().ok());
        Ok(Self {
            capabilities: capabilities.unwrap_or_default(),
            offered_methods: profile.offered_methods(),
            profile,
        })
    }

    /// The client description that agents receive.
    pub(super) fn profile(&self) -> ClientProfile {
        self.profile.clone()
    }

    /// Whether an update of this kind may be sent. Kinds that are not named here need no capability.
    pub(super) fn accepts_update(&self, kind: &str) -> bool {
        match kind {
            "notice" => self.has_capability("/session/notices"),
            "compaction_update" | "compaction_summary_chunk" => self.has_capability("/session/compaction"),
            "plan_update" | "plan_removed" => self.has_capability("/plan"),
            subagent::UPDATE | "session_message" | "session_message_chunk" => {
                self.has_capability("/subagents")
            }
            subagent::SPAWNED | "subagent_state_update" => {
                self.has_jetbrains_extension("nativeSubagentSessions")
            }
            _ => true,
        }
    }

    /// Whether the editor can show a question of this mode, `form` or `url`.
    pub(super) fn supports_question(&self, mode: &str) -> bool {
        match mode {
            "form" => self.has_capability("/elicitation/form"),
            "url" => self.has_capability("/elicitation/url"),
            _ => false,
        }
    }

    /// Whether the editor offers this file or terminal method. Methods that the protocol does not name are assumed supported.
    pub(super) fn supports_method(&self, method: &MethodName) -> bool {
        self.offered_methods.contains(method) || RequestKind::of(method.as_str()) == RequestKind::Extension
    }

    /// The options that the editor can show. Boolean options are included only if it advertised them.
    pub(super) fn supported_options(&self, options: RawJson) -> RawJson {
        #[derive(Deserialize)]
        struct Kind {
            r#type: String,
        }
        let is_shown =
            |option: &RawJson| !matches!(option.read(), Ok(Kind { r#type }) if r#type == "boolean");
        let all: Vec<RawJson> = options.read().unwrap_or_default();
        if self.has_capability("/session/configOptions/boolean") || all.iter().all(is_shown) {
            return options;
        }
        let shown: Vec<RawJson> = all.into_iter().filter(is_shown).collect();
        RawJson::from_value(&shown).unwrap_or(options)
    }

    /// Whether the editor can run an agent's sign-in in a terminal.
    pub(super) fn has_terminal_sign_in(&self) -> bool {
        self.has_capability("/auth/terminal") || self.has_capability("/_meta/terminal-auth")
    }

    /// Whether the editor knows the daemon's extensions, `_meta.sessiond`.
    pub(super) fn supports_sessiond_extensions(&self) -> bool {
        self.capabilities.pointer("/_meta/sessiond").is_some()
    }

    /// Whether the editor wants a notification when the replay of a load ends.
    pub(super) fn wants_replay_end(&self) -> bool {
        self.has_jetbrains_extension("loadReplayEnd")
    }

    /// Whether the editor supports this private extension of JetBrains' clients.
    fn has_jetbrains_extension(&self, name: &str) -> bool {
        let air = self.capabilities.pointer("/_meta/jetbrains/air/capabilities");
        let names = air.and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|one| one == name))
    }

    fn has_capability(&self, pointer: &str) -> bool {
        let found = self.capabilities.pointer(pointer);
        found.is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_advertised_is_sent() {
        let plain = EditorCapabilities::default();
        let capabilities = json!({
            "session": {"notices": {}, "compaction": null, "configOptions": {"boolean": {}}}, "plan": {}, "elicitation": {"form": {}},
        });
        let full =
            EditorCapabilities::read(&json!({"clientCapabilities": capabilities}).to_string()).unwrap();
        let table = [
            ("agent_message_chunk", true, true),
            ("a_kind_of_tomorrow", true, true),
            ("notice", false, true),
            ("compaction_update", false, false),
            ("plan_update", false, true),
            ("subagent_update", false, false),
        ];
        for (kind, to_plain, to_full) in table {
            assert_eq!(
                (plain.accepts_update(kind), full.accepts_update(kind)),
                (to_plain, to_full),
                "{kind}"
            );
        }
        let options = |text: &str| RawJson::from_text(text.to_owned()).unwrap();
        let both = r#"[{"id":"a","type":"boolean"},{"id":"b" ,"type":"select"}]"#;
        let select = r#"[{"id":"b" ,"type":"select"}]"#;
        assert_eq!(full.supported_options(options(both)).get(), both);
        assert_eq!(plain.supported_options(options(both)).get(), select);
        assert!(
            full.supports_question("form")
                && !full.supports_question("url")
                && !plain.supports_question("form")
        );
    }
}
