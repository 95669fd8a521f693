//! Reports besides the replies: usage, limits, titles, commands, and Claude's own messages.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::session::{LoopbackSession, Settings};
use super::transcript_writer::now_text;
use super::wire::Output;

/// The agent's nominal context size, in tokens.
const CONTEXT_TOKENS: u64 = 200_000;

/// How many bytes of a transcript count as one token. A rule of thumb; nothing depends on it.
const BYTES_PER_TOKEN: u64 = 4;

/// The longest title, in characters.
const TITLE_CHARS: usize = 80;

/// Returns the tokens for a transcript of this size.
pub(super) fn tokens(transcript_bytes: u64) -> u64 {
    transcript_bytes / BYTES_PER_TOKEN
}

pub(super) fn usage(output: &Output, session_id: &str, used: u64, meta: &Value) {
    let update =
        json!({ "sessionUpdate": "usage_update", "used": used, "size": CONTEXT_TOKENS, "_meta": meta });
    output.update(session_id, &update);
}

/// A tool call: what it does, and how clients show it.
pub(super) struct ToolCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    pub(super) kind: &'a str,
    pub(super) input_json: &'a str,
}

/// Reports a call of a tool.
pub(super) fn tool_call(output: &Output, session_id: &str, call: &ToolCall<'_>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Update<'a> {
        session_update: &'a str,
        tool_call_id: &'a str,
        name: &'a str,
        title: &'a str,
        kind: &'a str,
        status: &'a str,
        raw_input: Option<&'a RawValue>,
        content: [Value; 0],
    }
    let update = Update {
        session_update: "tool_call",
        tool_call_id: call.id,
        name: call.name,
        title: call.title,
        kind: call.kind,
        status: "pending",
        raw_input: serde_json::from_str(call.input_json).ok(),
        content: [],
    };
    output.update(session_id, &update);
}

/// Reports the result of a tool call.
pub(super) fn tool_result(output: &Output, session_id: &str, call_id: &str, text: &str, is_error: bool) {
    let update = json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "status": if is_error { "failed" } else { "completed" },
        "rawOutput": text,
        "content": [{ "type": "content", "content": { "type": "text", "text": text } }],
    });
    output.update(session_id, &update);
}

/// Reports the commands. Clients show them as soon as a session is open.
pub(super) fn commands(output: &Output, session_id: &str) {
    let commands: Vec<Value> = [
        ("[[recall]]", "Say the turns of the history"),
        ("[[settings]]", "Say the session's settings"),
    ]
    .into_iter()
    .map(|(name, description)| json!({ "name": name, "description": description, "input": null }))
    .collect();
    output.update(
        session_id,
        &json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }),
    );
}

/// Reports the session's title, which is the beginning of its first prompt.
pub(super) fn title(output: &Output, session_id: &str, first_prompt: &str) {
    output.update(
        session_id,
        &json!({
            "sessionUpdate": "session_info_update",
            "title": title_of(first_prompt),
            "updatedAt": now_text(),
        }),
    );
}

/// Returns the title for a first prompt: its first line, truncated.
pub(super) fn title_of(first_prompt: &str) -> String {
    first_prompt
        .trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(TITLE_CHARS)
        .collect()
}

/// Reports one of Claude's own messages about this file, if the client requested it.
pub(super) fn raw(
    output: &Output,
    session: &LoopbackSession,
    settings: &Settings,
    file_id: &str,
    mut message: Value,
) {
    let kind = message["type"].as_str().unwrap_or_default();
    if settings.wants_raw(kind, message["subtype"].as_str()) {
        message["session_id"] = file_id.into();
        let params = json!({ "sessionId": session.id, "message": message });
        output.notify("_claude/sdkMessage", &params);
    }
}
