//! What a request holds that the model's server can keep of it: all that stands before the prompt, to the
//! letter.

use serde_json::{Value, json};

/// What takes the place of the prompt, so that requests with different ones can be compared.
const PROMPT: &str = "THE PROMPT";

/// What decides of a request what the model's server has kept, without marks of how long it is to be kept:
/// they go along with the end of the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Prefix {
    /// The model and what it is told to be.
    pub(crate) system: Value,
    pub(crate) tools: Value,
    /// The conversation, item by item.
    pub(crate) conversation: Value,
}

impl Prefix {
    /// All of a request.
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

    /// The same with a mark in place of `prompt`, which is the newest.
    pub(crate) fn with(body: &Value, prompt: &str) -> Prefix {
        let mut prefix = Self::of(body);
        let mut items = prefix.conversation.as_array_mut().into_iter().flatten().rev();
        let newest = items.find_map(|item| put_mark(item, prompt).then_some(item));
        let newest = newest.unwrap_or_else(|| panic!("{prompt:?} is not in {body}"));
        // Its own, where items have ids.
        newest.as_object_mut().and_then(|item| item.remove("id"));
        // Its pictures are the prompt's too.
        if let Some(parts) = newest["content"].as_array_mut() {
            parts.retain(|part| part["type"] != "input_image");
        }
        prefix
    }

    /// The same but for what an agent makes of the session and its first prompt: ids of items, and a number
    /// that Claude Code tells the server.
    pub(crate) fn of_any_session(mut self) -> Prefix {
        self.system = Value::Null;
        let items = self.conversation.as_array_mut().into_iter().flatten();
        for item in items.filter_map(Value::as_object_mut) {
            item.remove("id");
        }
        self
    }

    /// Fails with the first place at which the two differ.
    pub(crate) fn check_is(&self, expected: &Prefix, what: &str) {
        check_same("system", &self.system, &expected.system, what);
        check_same("tools", &self.tools, &expected.tools, what);
        check_same("conversation", &self.conversation, &expected.conversation, what);
    }

    /// Fails unless the other begins with the whole of this one.
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
            assert_eq!((more, less), (None, None), "{what}: behind the end of {place}");
        }
        (Value::Object(members), Value::Object(others)) if members.keys().eq(others.keys()) => {
            for (name, member) in members {
                check_same(&format!("{place}/{name}"), member, &others[name], what);
            }
        }
        _ => assert_eq!(value, expected, "{what}: at {place}"),
    }
}

/// And without what is no part of what the model is told.
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
            // Only a text that stands in a list can be marked.
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

/// Whether an item's id is one that Codex makes of the session's, each time anew: a UUID of version 5. No
/// model is told ids.
fn is_made_of_session(id: &str) -> bool {
    let uuid = id
        .rsplit('_')
        .next()
        .and_then(|uuid| uuid::Uuid::try_parse(uuid).ok());
    uuid.is_some_and(|uuid| uuid.get_version_num() == 5)
}

/// Whether the prompt was there.
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
