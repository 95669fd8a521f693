//! The facts that a check reads from a message: tool calls, their results, the files that they name, and forms that are
//! unknown.

use super::SideFile;
use crate::transcript::check::{CallOrResult, UnknownForm, hash_of, quoted};
use crate::transcript::claude::record::{CHAIN_KINDS, Record, is_known_block};
use crate::transcript::claude::{BLOCK, INDEX, MESSAGE};
use crate::transcript::fields::Fields;
use crate::transcript::message::Part;
use crate::transcript::relocate::persisted_path;
use crate::transcript::scan::{BEGINNING_BYTES, Filter, Grammar, Table};

/// How much of a result's text is read, in bytes. If the result is in a file, agents say so in its first two lines, which
/// are some hundred bytes and a path of 4 KiB at most.
pub(super) const RESULT_BYTES: usize = 16 * 1024;

/// The members that a check reads: those of the index, and more.
pub(super) static CHECK: Table = Table {
    grammar: Grammar::JavaScript,
    record: Filter::object(&[
        ("version", Filter::NAME),
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
    ("thinking", Filter::PRESENCE),
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
    /// The part of the message that is unknown to this version: its kind, or the form of its content.
    pub(super) unknown_form: Option<UnknownForm>,
    /// The version of the agent that wrote it.
    pub(super) version: Option<String>,
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
            version: fields.str("version").map(|version| quoted(&version)),
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
                Part::ToolCall { id, name, .. } => facts.items.push(CallOrResult::Call {
                    id: hash_of(id),
                    tool: quoted(name),
                }),
                Part::ToolResult { call_id, text, .. } => {
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
        facts.unknown_form = unknown_form(fields, &parts);
        facts
    }
}

/// The part of a record with these parts that is unknown, so that the history reports it unchanged.
fn unknown_form(record: &Fields<'_>, parts: &[Part]) -> Option<UnknownForm> {
    let kind = record.str("type")?;
    if !CHAIN_KINDS.contains(&&*kind) {
        return Some(UnknownForm::Kind(quoted(&kind)));
    }
    if !matches!(&*kind, "user" | "assistant") {
        return None;
    }
    let content = record
        .object("message")
        .and_then(|message| message.raw("content"));
    if content.is_none_or(|content| !content.get().starts_with(['"', '['])) {
        return Some(UnknownForm::Content);
    }
    let strange = parts.iter().find_map(|part| match part {
        Part::Other { kind, .. } if !is_known_block(kind) => Some(kind),
        _ => None,
    });
    strange.map(|kind| UnknownForm::Part(quoted(kind)))
}

#[cfg(test)]
mod tests;
