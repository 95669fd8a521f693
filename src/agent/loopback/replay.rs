//! Telling a loaded session's history again, as `session/update`s.

use std::path::Path;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::wire::Output;
use crate::transcript::TranscriptError;
use crate::transcript::claude::Selection;
use crate::transcript::claude::reading;
use crate::transcript::claude::record::{Block, Record, RecordKind, SYNTHETIC_MODEL, ToolUse};
use crate::transcript::lines::{Lines, line_text};

/// Replays the live branch, as far as the model sees it.
pub(super) fn replay(output: &Output, session_id: &str, path: &Path) -> Result<(), TranscriptError> {
    let Some(selection) = reading::index(path)?.select(None, false) else {
        return Ok(());
    };
    for_each_record(path, &selection, |record| {
        let header = record.header();
        let Some(message) = record.message() else { return };
        let is_prompt = record.is_human_prompt();
        let said_by = match header.kind {
            RecordKind::Assistant => "agent_message_chunk",
            RecordKind::User if is_prompt => "user_message_chunk",
            RecordKind::User => "",
            _ => return,
        };
        let message_id = if is_prompt { &header.uuid } else { &message.id };
        for block in &message.blocks {
            match block {
                Block::Text(text) if !said_by.is_empty() => output.update(
                    session_id,
                    &json!({
                        "sessionUpdate": said_by,
                        "content": { "type": "text", "text": text },
                        "messageId": message_id,
                    }),
                ),
                Block::ToolUse(call) => replay_call(output, session_id, call),
                Block::ToolResult {
                    tool_use_id,
                    text,
                    is_error,
                    ..
                } => output.update(
                    session_id,
                    &json!({
                        "sessionUpdate": "tool_call_update",
                        "toolCallId": tool_use_id,
                        "status": if *is_error { "failed" } else { "completed" },
                        "rawOutput": text,
                        "content": [{ "type": "content", "content": { "type": "text", "text": text } }],
                    }),
                ),
                Block::Text(_) | Block::Other { .. } => {}
            }
        }
    })
}

/// A turn of the history, as the agent recalls it.
#[derive(Default)]
pub(super) struct RecalledTurn {
    pub(super) prompt: String,
    /// What the model said, texts parted by an empty line.
    pub(super) reply: String,
    /// The names of the tools that it called.
    pub(super) tools: Vec<String>,
    /// Whether it ended in an error of the model's server.
    pub(super) is_failed: bool,
}

/// The turns that the model sees up to the record `leaf`.
pub(super) fn recall(path: &Path, leaf: &str) -> Result<Vec<RecalledTurn>, TranscriptError> {
    let selection = reading::index(path)?.select(Some(leaf), false);
    let selection = selection.ok_or_else(|| TranscriptError::RecordNotFound {
        path: path.to_owned(),
        uuid: leaf.to_owned(),
    })?;
    let mut turns: Vec<RecalledTurn> = Vec::new();
    for_each_record(path, &selection, |record| {
        let Some(message) = record.message() else { return };
        if record.is_human_prompt() {
            turns.push(RecalledTurn {
                prompt: message.text(),
                ..RecalledTurn::default()
            });
            return;
        }
        let header = record.header();
        let Some(turn) = turns.last_mut().filter(|_| header.kind == RecordKind::Assistant) else {
            return;
        };
        turn.is_failed = header.is_api_error_message;
        if turn.is_failed || message.model.as_deref() == Some(SYNTHETIC_MODEL) {
            return;
        }
        let text = message.text();
        if !turn.reply.is_empty() && !text.is_empty() {
            turn.reply.push_str("\n\n");
        }
        turn.reply.push_str(&text);
        let calls = message.blocks.into_iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(call.name),
            _ => None,
        });
        turn.tools.extend(calls);
    })?;
    Ok(turns)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayedCall<'a> {
    session_update: &'a str,
    tool_call_id: &'a str,
    name: &'a str,
    title: &'a str,
    kind: &'a str,
    status: &'a str,
    raw_input: Option<&'a RawValue>,
}

fn replay_call(output: &Output, session_id: &str, call: &ToolUse) {
    output.update(
        session_id,
        &ReplayedCall {
            session_update: "tool_call",
            tool_call_id: &call.id,
            name: &call.name,
            title: &call.name,
            kind: "other",
            status: "pending",
            raw_input: serde_json::from_str(&call.input_json).ok(),
        },
    );
}

/// Visits the records of a branch in file order.
pub(super) fn for_each_record(
    path: &Path,
    selection: &Selection,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<(), TranscriptError> {
    let file = std::fs::File::open(path).map_err(TranscriptError::io("open", path))?;
    let mut lines = Lines::new(std::io::BufReader::new(file), 0);
    while let Some(line) = lines.next_line().map_err(TranscriptError::io("read", path))? {
        if selection.contains(line.offset) {
            let text = line_text(line.bytes);
            if let Some(record) = Record::parse(&text) {
                visit(&record);
            }
        }
    }
    Ok(())
}
