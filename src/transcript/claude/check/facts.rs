//! The facts that a check reads from a message: tool calls, their results, and the files that they name.

use super::SideFile;
use crate::transcript::check::{CallOrResult, hash_of, quoted};
use crate::transcript::claude::record::Record;
use crate::transcript::claude::{BLOCK, INDEX, MESSAGE};
use crate::transcript::message::ContentPart;
use crate::transcript::relocate::persisted_path;
use crate::transcript::scan::{BEGINNING_BYTES, Filter, Grammar, PruneTable};

/// How much of a result's text is read, in bytes. If the result is in a file, agents say so in its first two lines, which
/// are some hundred bytes and a path of 4 KiB at most.
pub(super) const RESULT_BYTES: usize = 16 * 1024;

/// The members that a check reads: those of the index, and more.
pub(super) static CHECK: PruneTable = PruneTable {
    grammar: Grammar::JavaScript,
    record: Filter::object(&[
        ("sessionId", Filter::ID),
        (
            "toolUseResult",
            Filter::object(&[
                ("persistedOutputPath", Filter::whole(RESULT_BYTES)),
                ("agentId", Filter::ID),
            ]),
        ),
        (
            "message",
            Filter::object(&[("content", Filter::NAME.or_array(&CHECKED_BLOCK))]).extending(&MESSAGE),
        ),
    ])
    .extending(&INDEX.record),
};
static CHECKED_BLOCK: Filter = Filter::object(&[
    ("id", Filter::ID),
    ("name", Filter::NAME),
    ("tool_use_id", Filter::ID),
    ("content", Filter::beginning(RESULT_BYTES).or_array(&ANSWER)),
])
.or_text(BEGINNING_BYTES)
.extending(&BLOCK);
/// A part of a tool's result.
static ANSWER: Filter = Filter::object(&[("type", Filter::NAME), ("text", Filter::beginning(RESULT_BYTES))])
    .or_text(RESULT_BYTES);

/// The facts that a check reads from a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MessageFacts {
    pub(super) session_id: Option<String>,
    /// The calls and results, in the order of the line.
    pub(super) items: Vec<CallOrResult>,
    pub(super) files: Vec<SideFile>,
}

impl MessageFacts {
    /// Reads a record.
    pub(super) fn of(record: &Record<'_>) -> Self {
        let fields = &record.fields;
        let mut facts = Self {
            session_id: fields.text("sessionId"),
            ..Self::default()
        };
        if let Some(result) = fields.object("toolUseResult") {
            let is_name = |id: &String| !id.is_empty() && !id.contains(['/', '\0']);
            let subagent = result.text("agentId").filter(is_name).map(SideFile::Subagent);
            let path = result.text("persistedOutputPath").map(SideFile::ToolResult);
            facts.files = path.into_iter().chain(subagent).collect();
        }
        let parts = record.parts().unwrap_or_default();
        for part in &parts {
            match part {
                ContentPart::ToolCall { id, name, .. } => facts.items.push(CallOrResult::Call {
                    id: hash_of(id),
                    tool: quoted(name),
                }),
                ContentPart::ToolResult { call_id, text, .. } => {
                    let id = hash_of(call_id);
                    facts.items.push(CallOrResult::Result { id });
                    let path = persisted_path(text).filter(|path| path.contains("tool-results"));
                    facts
                        .files
                        .extend(path.map(|path| SideFile::ToolResult(path.to_owned())));
                }
                _ => {}
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests;
