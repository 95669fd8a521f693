//! Converts messages to ACP updates, as an agent sends them when it loads a session, for clients that already show
//! updates.
//!
//! Decides which updates a message becomes. Omits text that is not part of the conversation: what the agent wrote on behalf
//! of the user, and the history that the daemon sent as text. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use bridge_protocol::history::{HistoryUpdate, Message, MessageKind, MessagePart, Role};
use bridge_protocol::raw::RawJson;
use indicatif::BinaryBytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::tools;

/// The largest size, in bytes, of call arguments that are sent together with a diff, which contains the same text.
const INPUT_LIMIT_BYTES: usize = 64 * 1024;

/// The name of each tool that was called, by the id of the call. Needed to show results.
#[derive(Debug, Default)]
pub(super) struct ToolNames(HashMap<String, String>);

impl ToolNames {
    /// Adds the calls in a message.
    pub(super) fn add_calls(&mut self, message: &Message) {
        for part in &message.content {
            if let ("toolCall", Some(id), Some(name)) = (part.kind.as_str(), &part.tool_call_id, &part.name) {
                self.0.insert(id.clone(), name.clone());
            }
        }
    }

    /// Whether a message has a result of an unknown call.
    pub(super) fn has_unknown_result(&self, message: &Message) -> bool {
        let mut results = message.content.iter().filter(|part| part.kind == "toolResult");
        results.any(|part| {
            part.tool_call_id
                .as_ref()
                .is_some_and(|id| !self.0.contains_key(id))
        })
    }
}

/// The update that starts a tool call. The bytes of its arguments are not changed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    session_update: &'a str,
    tool_call_id: &'a str,
    name: &'a str,
    title: &'a str,
    kind: &'a str,
    status: &'a str,
    content: &'a [Value],
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    locations: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_input: Option<&'a RawJson>,
}

/// The updates of a message, in their order. `cwd` is the folder that the session runs in.
pub(super) fn updates<'a>(
    message: &'a Message,
    calls: &'a ToolNames,
    cwd: &'a str,
) -> impl Iterator<Item = HistoryUpdate> + 'a {
    message.content.iter().filter_map(move |part| {
        Some(HistoryUpdate {
            update: update_of_part(message, part, calls, cwd)?,
            checkpoint_id: message.checkpoint_id.clone(),
            at: message.at,
        })
    })
}

fn update_of_part(message: &Message, part: &MessagePart, calls: &ToolNames, cwd: &str) -> Option<RawJson> {
    let is_aside = message.kind == Some(MessageKind::Aside);
    let chunk = |kind: &str, content: Value| {
        let update = json!({"sessionUpdate": kind, "content": content, "messageId": message.id});
        Some(RawJson::from(update)).filter(|_| !is_aside)
    };
    let speaker = match message.role {
        Role::Assistant => "agent_message_chunk",
        _ => "user_message_chunk",
    };
    let words = part.text.as_deref().unwrap_or_default();
    let words = match part.cut_bytes {
        Some(bytes) => Cow::from(format!("{words}\n[cut: {} in all]", BinaryBytes(bytes))),
        None => Cow::from(words),
    };
    match part.kind.as_str() {
        "text" if !words.is_empty() => chunk(speaker, json!({"type": "text", "text": words})),
        "thought" if !words.is_empty() => {
            chunk("agent_thought_chunk", json!({"type": "text", "text": words}))
        }
        "image" => {
            let content = match (&part.data, part.cut_bytes) {
                (None, Some(bytes)) => {
                    let text = format!("[an image of {} is left out]", BinaryBytes(bytes));
                    json!({"type": "text", "text": text})
                }
                (data, _) => json!({"type": "image", "mimeType": part.mime_type, "data": data}),
            };
            chunk(speaker, content)
        }
        "toolCall" => {
            let id = part.tool_call_id.as_deref()?;
            call_update(id, part.name.as_deref()?, part.input.as_ref(), "pending", cwd)
        }
        "web_search_call" => call_update(&message.id, &part.kind, part.raw.as_ref(), "completed", cwd),
        "toolResult" => {
            let id = part.tool_call_id.as_ref()?;
            let name = calls.0.get(id).map(String::as_str);
            let failed = part.is_error == Some(true);
            if !failed && matches!(name, Some("TodoWrite" | "update_plan")) {
                return None;
            }
            let mut update = json!({
                "sessionUpdate": "tool_call_update",
                "toolCallId": id,
                "status": if failed { "failed" } else { "completed" },
            });
            let content = tools::result_content(name, &words, failed);
            // Without content, the client continues to show the call's diff.
            if !content.is_empty() {
                update["content"] = content.into();
            }
            Some(update.into())
        }
        _ => None,
    }
}

fn call_update(id: &str, name: &str, input: Option<&RawJson>, status: &str, cwd: &str) -> Option<RawJson> {
    let arguments: Value = input.and_then(|input| input.read().ok()).unwrap_or_default();
    if let Some(entries) = tools::plan_entries(name, &arguments) {
        return Some(json!({"sessionUpdate": "plan", "entries": entries}).into());
    }
    let facts = tools::tool_call_facts(name, &arguments, cwd);
    let has_diff = facts.content.iter().any(|content| content["type"] == "diff");
    RawJson::from_value(&ToolCall {
        session_update: "tool_call",
        tool_call_id: id,
        name,
        title: &facts.title,
        kind: facts.kind,
        status,
        content: &facts.content,
        locations: &facts.locations,
        raw_input: input.filter(|input| !has_diff || input.get().len() <= INPUT_LIMIT_BYTES),
    })
    .ok()
}
