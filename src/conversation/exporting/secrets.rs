//! The parts of the MCP servers' configuration that an export omits unless the caller asks for secrets. Pure.

use bridge_protocol::conversation::Settings;
use bridge_protocol::export::MissingValue;
use bridge_protocol::raw::RawJson;
use serde_json::{Map, Value, json};

/// The members of a server's configuration that often contain keys.
const SECRET_MEMBERS: [&str; 2] = ["env", "headers"];

/// Removes the entries of `env` and `headers`, and returns their names. Whole entries are removed, so that a server that needs
/// no key stays usable.
pub(super) fn remove_secret_values(settings: &mut Settings) -> Vec<MissingValue> {
    let mut missing = Vec::new();
    for server in settings.mcp_servers.iter_mut().flatten() {
        let mut members = server.read::<Map<String, Value>>().unwrap_or_default();
        let name = text(members.get("name"));
        let before = missing.len();
        for member in SECRET_MEMBERS {
            let Some(pairs) = members.get_mut(member) else {
                continue;
            };
            let (names, empty) = match &*pairs {
                Value::Null => continue,
                Value::Array(pairs) => (
                    pairs.iter().map(|pair| text(pair.get("name"))).collect(),
                    json!([]),
                ),
                Value::Object(pairs) => (pairs.keys().cloned().collect(), json!({})),
                // An unknown form may contain a key.
                _ => (vec![String::new()], json!([])),
            };
            *pairs = empty;
            missing.extend(names.into_iter().map(|pair| MissingValue {
                server: name.clone(),
                member: member.to_owned(),
                name: pair,
            }));
        }
        // A server without such values stays byte for byte.
        if missing.len() > before {
            *server = RawJson::from(Value::Object(members));
        }
    }
    missing
}

/// Reduces each server to its name, type and command, and the names in its `env` and `headers`. Keys may be anywhere else, also
/// in arguments and URLs, and a reader of the messages needs none of them.
pub(super) fn keep_names_only(settings: &mut Settings) {
    for server in settings.mcp_servers.iter_mut().flatten() {
        let told = server.read::<Map<String, Value>>().unwrap_or_default();
        let kept = told.into_iter().filter_map(|(name, value)| match name.as_str() {
            "name" | "type" | "command" => Some((name, value)),
            "env" | "headers" => Some((name, pair_names(&value))),
            _ => None,
        });
        *server = RawJson::from(Value::Object(kept.collect()));
    }
}

/// Removes the values of pairs.
fn pair_names(pairs: &Value) -> Value {
    let name = |pair: &Value| pair.get("name").map(|name| json!({"name": name}));
    match pairs {
        Value::Array(pairs) => pairs.iter().filter_map(name).collect(),
        Value::Object(pairs) => pairs.keys().map(|name| json!({"name": name})).collect(),
        _ => Value::Null,
    }
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_value_is_left_and_each_is_named() {
        let servers = json!([
            {"name": "a", "env": [{"name": "K", "value": "s3cret"}, {"value": "s3cret"}], "args": []},
            {"name": "b", "headers": {"H": "s3cret"}},
            {"name": "c", "env": "K=s3cret"},
            {"env": null, "headers": []},
        ]);
        let mut settings: Settings = serde_json::from_value(json!({"mcpServers": servers})).unwrap();
        let missing = remove_secret_values(&mut settings);
        let named = missing
            .iter()
            .map(|value| (value.server.as_str(), value.member.as_str(), value.name.as_str()));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [
                ("a", "env", "K"),
                ("a", "env", ""),
                ("b", "headers", "H"),
                ("c", "env", "")
            ]
        );
        assert_eq!(
            serde_json::to_value(&settings).unwrap()["mcpServers"],
            json!([
                {"name": "a", "env": [], "args": []},
                {"name": "b", "headers": {}},
                {"name": "c", "env": []},
                {"env": null, "headers": []},
            ])
        );
    }
}
