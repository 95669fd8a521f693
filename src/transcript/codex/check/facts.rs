//! The facts that a check reads from a line of a rollout: a tool call or its result, and unknown forms.

use crate::transcript::check::{CallOrResult, UnknownForm, hash_of, quoted};
use crate::transcript::codex::item::non_null;
use crate::transcript::codex::line::{LineKind, RolloutLine};
use crate::transcript::fields::{Fields, Json};

/// The kinds of lines that Codex up to 0.166.0 writes.
const KINDS: [&str; 12] = [
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
    "dynamic_tools_updated",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "security_risk_score",
    "realtime_item",
];

/// The known kinds of items in a history. Some are reported unchanged because their content is not decoded.
const ITEMS: [&str; 19] = [
    "message",
    "reasoning",
    "local_shell_call",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "mcp_tool_call_output",
    "web_search_call",
    "image_generation_call",
    "tool_search_call",
    "tool_search_output",
    "agent_message",
    "additional_tools",
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "compaction_trigger",
];

/// The roles whose texts are not reported: the agent's instructions to the model.
const INSTRUCTORS: [&str; 2] = ["developer", "system"];

/// The facts about a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ItemFacts {
    /// The part of the line that is unknown to this version: its kind, that of its item, or the form of the item's content.
    pub(super) unknown_form: Option<UnknownForm>,
    /// The version of Codex that it names.
    pub(super) version: Option<String>,
    pub(super) item: Option<CallOrResult>,
}

impl ItemFacts {
    /// Reads a line.
    pub(super) fn of(line: &RolloutLine<'_>) -> Self {
        let is_item = line.kind == LineKind::Item;
        let strange = match line.name.as_deref() {
            _ if is_item => unknown_form(&line.payload),
            Some("response_item") => Some(UnknownForm::Content),
            name => name
                .filter(|name| !KINDS.contains(name))
                .map(|name| UnknownForm::Kind(quoted(name))),
        };
        Self {
            unknown_form: strange,
            version: line.payload.str("cli_version").map(|version| quoted(&version)),
            item: is_item.then(|| item(&line.payload)).flatten(),
        }
    }
}

fn item(payload: &Fields<'_>) -> Option<CallOrResult> {
    let id = hash_of(&payload.str("call_id")?);
    let kind = payload.str("type")?;
    if kind.ends_with("_output") {
        return Some(CallOrResult::Result { id });
    }
    let tool = || quoted(&payload.str("name").unwrap_or_else(|| kind.clone()));
    kind.ends_with("_call")
        .then(|| CallOrResult::Call { id, tool: tool() })
}

/// The unknown part of an item, if any.
fn unknown_form(item: &Fields<'_>) -> Option<UnknownForm> {
    let Some(kind) = item.str("type") else {
        return Some(UnknownForm::Kind(String::new()));
    };
    match &*kind {
        "message" => match &*item.str("role").unwrap_or_default() {
            "user" | "assistant" if non_null(item, "content").is_none() => Some(UnknownForm::Content),
            "user" | "assistant" => unknown_part(item, "content"),
            role if INSTRUCTORS.contains(&role) => None,
            role => Some(UnknownForm::Kind(format!("message of {}", quoted(role)))),
        },
        "reasoning" => unknown_part(item, "content").or_else(|| unknown_part(item, "summary")),
        "function_call_output" | "custom_tool_call_output" | "mcp_tool_call_output" => {
            match item.object("output") {
                Some(output) if output.str("content").is_some() => None,
                Some(output) if non_null(&output, "content").is_some() => unknown_part(&output, "content"),
                Some(_) => Some(UnknownForm::Content),
                None if item.str("output").is_some() => None,
                None => unknown_part(item, "output"),
            }
        }
        kind if ITEMS.contains(&kind) => None,
        kind => Some(UnknownForm::Part(quoted(kind))),
    }
}

/// The unknown part of a list of parts: its form, or the first part that `item` cannot decode.
fn unknown_part(fields: &Fields<'_>, name: &str) -> Option<UnknownForm> {
    let Some(parts) = non_null(fields, name)?.array() else {
        return Some(UnknownForm::Content);
    };
    let strange = |part: Json<'_>| {
        let Some(part) = Fields::of(part) else {
            return Some(String::new());
        };
        let kind = part.str("type").unwrap_or_default();
        let is_known = match &*kind {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                part.str("text").is_some()
            }
            "input_image" => part.str("image_url").is_some(),
            kind => matches!(kind, "input_audio" | "input_file" | "encrypted_content"),
        };
        (!is_known).then(|| quoted(&kind))
    };
    parts.into_iter().find_map(strange).map(UnknownForm::Part)
}

#[cfg(test)]
mod tests;
