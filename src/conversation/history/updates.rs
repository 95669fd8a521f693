//! Converts messages to ACP updates, as an agent sends them when it loads a session, for clients that already show
//! updates.
//!
//! Decides which updates a message becomes. Omits text that is not part of the conversation: what the agent wrote on behalf
//! of the user, the daemon's prompt that continues a turn, and the history that the daemon sent as text. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bridge_protocol::CheckpointId;
use bridge_protocol::history::{HistoryUpdate, Message, MessageKind, MessagePart, Role};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::CONTINUE_PROMPT;
use indicatif::BinaryBytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::tools::{self, ShownCall};

/// The largest size, in bytes, of call arguments that are sent together with a diff, which contains the same text.
const INPUT_LIMIT_BYTES: usize = 64 * 1024;

/// The ids of the tool calls in messages, and of the calls whose results are in them.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    calls: HashSet<String>,
    results: HashSet<String>,
}

impl CallIds {
    pub(super) fn add(&mut self, message: &Message) {
        for part in &message.content {
            let ids = match part.kind.as_str() {
                "toolCall" => &mut self.calls,
                "toolResult" => &mut self.results,
                _ => continue,
            };
            ids.extend(part.tool_call_id.clone());
        }
    }

    /// Whether the call of a result is missing.
    pub(super) fn lack_call(&self) -> bool {
        !self.results.is_subset(&self.calls)
    }

    /// Whether a message has the missing call of a result.
    pub(super) fn lack_call_of(&self, message: &Message) -> bool {
        let calls = message.content.iter().filter(|part| part.kind == "toolCall");
        let mut ids = calls.filter_map(|call| call.tool_call_id.as_ref());
        ids.any(|id| self.results.contains(id) && !self.calls.contains(id))
    }

    /// Whether the result of a call is missing.
    pub(super) fn lack_result(&self) -> bool {
        !self.calls.is_subset(&self.results)
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

/// Writes the updates of messages, oldest first.
#[derive(Debug)]
pub(super) struct UpdateWriter<'a> {
    /// The folder that the session runs in.
    pub(super) cwd: &'a str,
    /// The calls and results in the messages, and in those shortly after them.
    pub(super) ids: CallIds,
    /// The checkpoint of the turn that may still be running.
    pub(super) running: Option<CheckpointId>,
    /// How each call so far is shown, by its id. A call that is shown as a plan is not among them.
    pub(super) calls: HashMap<String, ShownCall>,
}

impl UpdateWriter<'_> {
    /// The updates of a message, in their order.
    pub(super) fn updates(&mut self, message: &Message) -> Vec<HistoryUpdate> {
        let mut own = message.content.iter().filter(|part| part.kind != "retelling");
        let first = own.next().and_then(|part| part.text.as_deref());
        if message.role == Role::User && first == Some(CONTINUE_PROMPT) && own.next().is_none() {
            return Vec::new();
        }
        let updates = message.content.iter().filter_map(|part| {
            Some(HistoryUpdate {
                update: self.update_of_part(message, part)?,
                checkpoint_id: message.checkpoint_id.clone(),
                at: message.at,
            })
        });
        updates.collect()
    }

    fn update_of_part(&mut self, message: &Message, part: &MessagePart) -> Option<RawJson> {
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
                // The turn has ended, so the result will never come.
                let is_cut_short = !self.ids.results.contains(id)
                    && (self.running.is_none() || self.running != message.checkpoint_id);
                let status = if is_cut_short { "failed" } else { "pending" };
                self.call_update(id, part.name.as_deref()?, part.input.as_ref(), status)
            }
            "web_search_call" => self.call_update(&message.id, &part.kind, part.raw.as_ref(), "completed"),
            "toolResult" => {
                let id = part.tool_call_id.as_ref()?;
                // Clients cannot show the result of a call that they do not know.
                let call = self.calls.get(id)?;
                let failed = part.is_error == Some(true);
                let mut update = json!({
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": id,
                    "status": if failed { "failed" } else { "completed" },
                });
                let content = tools::result_content(call, &words, failed);
                // Without content, the client continues to show the call's diff.
                if !content.is_empty() {
                    update["content"] = content.into();
                }
                Some(update.into())
            }
            _ => None,
        }
    }

    fn call_update(
        &mut self,
        id: &str,
        name: &str,
        input: Option<&RawJson>,
        status: &str,
    ) -> Option<RawJson> {
        let arguments: Value = input.and_then(|input| input.read().ok()).unwrap_or_default();
        if let Some(entries) = tools::plan_entries(name, &arguments) {
            return Some(json!({"sessionUpdate": "plan", "entries": entries}).into());
        }
        let facts = tools::tool_call_facts(name, &arguments, self.cwd);
        let call = ShownCall {
            name: name.to_owned(),
            kind: facts.kind,
        };
        self.calls.insert(id.to_owned(), call);
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
}
