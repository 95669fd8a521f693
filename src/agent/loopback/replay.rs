//! Replays the history of a loaded session as `session/update`s.

use std::path::Path;

use serde_json::json;

use super::report::{self, ToolCall};
use super::wire::Output;
use crate::transcript::TranscriptError;
use crate::transcript::claude::Selection;
use crate::transcript::claude::reading;
use crate::transcript::claude::record::Record;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::message::ContentPart;

/// Replays the live branch, as far as the model sees it.
pub(super) fn replay(output: &Output, session_id: &str, path: &Path) -> Result<(), TranscriptError> {
    let Some(selection) = reading::index(path)?.select(None, false) else {
        return Ok(());
    };
    for_each_record(path, &selection, |record| {
        let is_prompt = record.is_human_prompt();
        let said_by = match (record.has_kind("assistant"), is_prompt) {
            (true, _) => "agent_message_chunk",
            (false, true) => "user_message_chunk",
            (false, false) if record.has_kind("user") => "",
            (false, false) => return,
        };
        let message_id = match is_prompt {
            true => record.fields.text("uuid"),
            false => record.message_text("id"),
        };
        for part in record.parts().unwrap_or_default() {
            match part {
                ContentPart::Text(text) if !said_by.is_empty() => output.update(
                    session_id,
                    &json!({
                        "sessionUpdate": said_by,
                        "content": { "type": "text", "text": text },
                        "messageId": message_id,
                    }),
                ),
                ContentPart::ToolCall { id, name, input_json } => {
                    let call = ToolCall {
                        id: &id,
                        name: &name,
                        title: &name,
                        kind: "other",
                        input_json: &input_json,
                    };
                    report::tool_call(output, session_id, &call);
                }
                ContentPart::ToolResult {
                    call_id,
                    text,
                    is_error,
                } => report::tool_result(output, session_id, &call_id, &text, is_error == Some(true)),
                _ => {}
            }
        }
    })
}

/// A turn of the history, as the directive `recall` reports it.
#[derive(Default)]
pub(super) struct RecalledTurn {
    pub(super) prompt: String,
    /// The model's texts, separated by empty lines.
    pub(super) reply: String,
    /// The names of the tools that it called.
    pub(super) tools: Vec<String>,
    /// Whether it ended with an error of the model's server.
    pub(super) is_failed: bool,
}

/// Returns the turns that the model sees, up to the record `leaf`.
pub(super) fn recall(path: &Path, leaf: &str) -> Result<Vec<RecalledTurn>, TranscriptError> {
    let selection = reading::index(path)?.select(Some(leaf), false);
    let selection = selection.ok_or_else(|| TranscriptError::RecordNotFound {
        path: path.to_owned(),
        uuid: leaf.to_owned(),
    })?;
    let mut turns: Vec<RecalledTurn> = Vec::new();
    for_each_record(path, &selection, |record| {
        if record.is_human_prompt() {
            turns.push(RecalledTurn {
                prompt: record.text(),
                ..RecalledTurn::default()
            });
            return;
        }
        let Some(turn) = turns.last_mut().filter(|_| record.has_kind("assistant")) else {
            return;
        };
        turn.is_failed = record.fields.flag("isApiErrorMessage");
        if record.is_filler() {
            return;
        }
        let text = record.text();
        if !turn.reply.is_empty() && !text.is_empty() {
            turn.reply.push_str("\n\n");
        }
        turn.reply.push_str(&text);
        let parts = record.parts().unwrap_or_default().into_iter();
        turn.tools.extend(parts.filter_map(|part| match part {
            ContentPart::ToolCall { name, .. } => Some(name),
            _ => None,
        }));
    })?;
    Ok(turns)
}

/// Visits the records of a branch in file order.
fn for_each_record(
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
