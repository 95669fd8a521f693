//! The part of a model request that the model's server can cache: everything before the prompt, byte for
//! byte.

use serde_json::{Value, json};

/// Replaces the prompt, so that requests with different prompts can be compared.
const PROMPT: &str = "THE PROMPT";

/// The parts of a request that determine what the server can cache. Cache markers are left out, because they
/// move along with the end of the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Prefix {
    /// The model, the system prompt and the instructions.
    pub(crate) system: Value,
    pub(crate) tools: Value,
    /// The conversation, item by item.
    pub(crate) conversation: Value,
}

impl Prefix {
    /// The whole request.
    pub(crate) fn of(body: &Value) -> Prefix {
        let member = |name: &str| {
            let mut value = body[name].clone();
            without_marks(&mut value);
            value
        };
        let said = ["messages", "input"].map(member);
        let said = said.into_iter().find(Value::is_array);
        Prefix {
            system: json!([member("model"), member("system"), member("instructions")]),
            tools: member("tools"),
            conversation: said.expect("a conversation"),
        }
    }

    /// The whole request with a placeholder for `prompt`, which must be the newest prompt.
    pub(crate) fn with(body: &Value, prompt: &str) -> Prefix {
        let mut prefix = Self::of(body);
        let mut items = prefix.conversation.as_array_mut().into_iter().flatten().rev();
        let newest = items.find_map(|item| put_mark(item, prompt).then_some(item));
        let newest = newest.unwrap_or_else(|| panic!("{prompt:?} is not in {body}"));
        // Where items have ids, this is the id of the prompt's own item.
        newest.as_object_mut().and_then(|item| item.remove("id"));
        // The pictures in this item belong to the prompt too.
        if let Some(parts) = newest["content"].as_array_mut() {
            parts.retain(|part| part["type"] != "input_image");
        }
        prefix
    }

    /// Removes what differs between sessions with the same content: the ids of items, and a number that
    /// Claude Code derives from the first prompt and sends in the system prompt.
    pub(crate) fn of_any_session(mut self) -> Prefix {
        self.system = Value::Null;
        let items = self.conversation.as_array_mut().into_iter().flatten();
        for item in items.filter_map(Value::as_object_mut) {
            item.remove("id");
        }
        self
    }

    /// Panics at the first difference between the two.
    pub(crate) fn check_is(&self, expected: &Prefix, what: &str) {
        check_same("system", &self.system, &expected.system, what);
        check_same("tools", &self.tools, &expected.tools, what);
        check_same("conversation", &self.conversation, &expected.conversation, what);
    }

    /// Panics unless `longer` begins with the whole of this one.
    pub(crate) fn check_begins(&self, longer: &Prefix, what: &str) {
        let mut begins = longer.clone();
        let items = |prefix: &Prefix| prefix.conversation.as_array().map_or(0, Vec::len);
        if let Some(said) = begins.conversation.as_array_mut() {
            said.truncate(items(self));
        }
        begins.check_is(self, what);
    }
}

fn check_same(place: &str, value: &Value, expected: &Value, what: &str) {
    match (value, expected) {
        (Value::Array(items), Value::Array(others)) => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                check_same(&format!("{place}/{index}"), item, other, what);
            }
            let (more, less) = (items.get(others.len()), others.get(items.len()));
            assert_eq!((more, less), (None, None), "{what}: after the end of {place}");
        }
        (Value::Object(members), Value::Object(others)) if members.keys().eq(others.keys()) => {
            for (name, member) in members {
                check_same(&format!("{place}/{name}"), member, &others[name], what);
            }
        }
        _ => assert_eq!(value, expected, "{what}: at {place}"),
    }
}

/// Removes cache markers, and everything else that is not shown to the model.
fn without_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            if members
                .get("id")
                .and_then(Value::as_str)
                .is_some_and(is_made_of_session)
            {
                members.remove("id");
            }
            // Only a text in a list can have a cache marker, so a plain text is compared as such a list.
            if let Some(Value::String(text)) = members.get("content") {
                let text = json!([{"type": "text", "text": text}]);
                members.insert("content".to_owned(), text);
            }
            members.values_mut().for_each(without_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

/// Whether Codex derived the id of an item from the session's id. Such an id is a UUID of version 5 and
/// differs each time; ids are not shown to the model.
fn is_made_of_session(id: &str) -> bool {
    let uuid = id
        .rsplit('_')
        .next()
        .and_then(|uuid| uuid::Uuid::try_parse(uuid).ok());
    uuid.is_some_and(|uuid| uuid.get_version_num() == 5)
}

/// Replaces the prompt with [`PROMPT`]. Returns whether the prompt was found.
fn put_mark(value: &mut Value, prompt: &str) -> bool {
    match value {
        Value::String(text) if text.trim() == prompt => {
            PROMPT.clone_into(text);
            true
        }
        Value::Object(members) => members.values_mut().rev().any(|value| put_mark(value, prompt)),
        Value::Array(items) => items.iter_mut().rev().any(|value| put_mark(value, prompt)),
        _ => false,
    }
}
