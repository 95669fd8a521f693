//! Answers an agent's questions automatically, by a configured policy. Pure.
//!
//! This module decides which answer a policy gives to a question. It does not know who asked, or where the answer goes.

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::InterruptKind;
use serde::Deserialize;
use serde_json::{Value, json};

/// How an agent's questions are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InterruptPolicy {
    /// Asks the user.
    #[default]
    Ask,
    /// Denies everything and fills in nothing. For unattended agents.
    Deny,
    /// Permits tools that only read or search, each time for one call. Asks the user about everything else.
    AllowReads,
}

impl InterruptPolicy {
    /// Returns the outcome of a question, in ACP's form. `params` are ACP's. `None` if the user must be asked.
    #[must_use]
    pub fn outcome(self, kind: InterruptKind, params: &RawJson) -> Option<RawJson> {
        if self == Self::Ask {
            return None;
        }
        if kind != InterruptKind::Permission {
            return (self == Self::Deny).then(|| RawJson::from(json!({"action": "decline"})));
        }
        let params: Value = params.read().unwrap_or(Value::Null);
        // The agent itself declares what kind of tool it is.
        let only_reads = matches!(params["toolCall"]["kind"].as_str(), Some("read" | "search"));
        let chosen = match self {
            Self::Deny => option(&params, "reject_once").or_else(|| option(&params, "reject_always")),
            Self::AllowReads if only_reads => Some(option(&params, "allow_once")?),
            Self::Ask | Self::AllowReads => return None,
        };
        Some(RawJson::from(match chosen {
            Some(id) => json!({"outcome": "selected", "optionId": id}),
            None => json!({"outcome": "cancelled"}),
        }))
    }
}

/// Returns the id of the first option of this kind.
fn option<'a>(params: &'a Value, kind: &str) -> Option<&'a str> {
    let options = params["options"].as_array()?;
    let found = options.iter().find(|option| option["kind"] == kind)?;
    found["optionId"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_answers_its_questions_and_asks_otherwise() {
        use InterruptPolicy::{AllowReads, Ask, Deny};
        let all = ["allow_always", "allow_once", "reject_once", "reject_always"];
        let selected = |id: &str| Some(json!({"outcome": "selected", "optionId": id}));
        let cancelled = || Some(json!({"outcome": "cancelled"}));
        // The policy, the tool's kind, the kinds of the options, the outcome.
        let table: [(_, _, &[&str], _); 12] = [
            (Ask, "read", &all, None),
            (Ask, "execute", &all, None),
            (Deny, "read", &all, selected("reject_once")),
            (
                Deny,
                "execute",
                &["allow_once", "reject_always"],
                selected("reject_always"),
            ),
            (Deny, "execute", &["allow_once"], cancelled()),
            (Deny, "execute", &[], cancelled()),
            (AllowReads, "read", &all, selected("allow_once")),
            (AllowReads, "search", &all, selected("allow_once")),
            // Never permanently.
            (AllowReads, "read", &["allow_always", "reject_once"], None),
            (AllowReads, "fetch", &all, None),
            (AllowReads, "edit", &all, None),
            (AllowReads, "", &all, None),
        ];
        for (policy, tool, kinds, expected) in table {
            let options: Vec<Value> = kinds
                .iter()
                .map(|kind| json!({"optionId": kind, "name": kind, "kind": kind}))
                .collect();
            let params = RawJson::from(json!({"toolCall": {"kind": tool}, "options": options}));
            let outcome = policy.outcome(InterruptKind::Permission, &params);
            let outcome = outcome.map(|outcome| outcome.read::<Value>().unwrap());
            assert_eq!(outcome, expected, "{policy:?}, {tool}, {kinds:?}");
        }
    }

    #[test]
    fn elicitations_are_declined_or_asked() {
        let params = RawJson::from(json!({"message": "Which?", "requestedSchema": {}}));
        let outcome = |policy: InterruptPolicy| {
            let outcome = policy.outcome(InterruptKind::Elicitation, &params);
            outcome.map(|outcome| outcome.read::<Value>().unwrap())
        };
        assert_eq!(outcome(InterruptPolicy::Deny), Some(json!({"action": "decline"})));
        assert_eq!(outcome(InterruptPolicy::Ask), None);
        assert_eq!(outcome(InterruptPolicy::AllowReads), None);
    }

    #[test]
    fn parameters_without_a_tool_permit_nothing() {
        for params in [json!(null), json!({}), json!({"toolCall": null, "options": 1})] {
            let outcome =
                InterruptPolicy::AllowReads.outcome(InterruptKind::Permission, &RawJson::from(params));
            assert_eq!(outcome, None);
        }
    }
}
