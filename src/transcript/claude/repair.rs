//! Makes repaired copies of Claude transcripts, under new ids.
//!
//! A repair omits lines that are not records, replaces missing parents, gives all records the new session's id, and
//! adds the results of unanswered calls in the last reply, as the agent itself does (Claude Code 2.1.316). It keeps
//! every other byte and the uuids, and copies the files that the records name. It does not copy other branches, nor the
//! positions that the agent recorded: a resume would continue from one of those and ignore what follows. It only reads
//! the source, and fails if the source has changed since it was indexed. Blocks. This module does not know why a
//! transcript is repaired.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::{Copied, Peekable};
use std::path::Path;
use std::slice;

use bridge_protocol::check::{FindingKind, Repairs};
use serde_json::{Value, json};
use uuid::Uuid;

use super::check::unanswered_calls;
use super::copy::{edit_session, open_lines, source_changed_error, write_with_files};
use super::entries::ParentLookup;
use super::facts::RecordRole;
use super::side_files::SideFiles;
use super::{ClaudeIndex, Selection};
use crate::transcript::TranscriptError;
use crate::transcript::check::hash_of;
use crate::transcript::copy::session_of;
use crate::transcript::fields::{Fields, Json};
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::reading;
use crate::transcript::rewrite::{EditableRecord, Edits, SourceLine, Verdict, json_string};

/// The text that the agent sends the model in place of a tool's result that it has not recorded.
pub const INTERRUPTED: &str = "[Tool call interrupted: the session ended before this call's result was recorded, so its \
    outcome is unknown. Check whether it took effect before relying on it or running it again.]";

/// The kind of record in which the agent records the conversation's current position.
const LEAF_MARK: &str = "last-prompt";

/// The members that a filled-in record copies from the call that it answers.
const COPIED_FROM_CALL: [&str; 7] = [
    "cwd",
    "sessionId",
    "userType",
    "entrypoint",
    "version",
    "gitBranch",
    "timestamp",
];

/// Whether a repaired copy no longer has a finding of this kind.
#[must_use]
pub fn can_fix(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::TornLine
            | FindingKind::GarbageLine
            | FindingKind::BrokenParent
            | FindingKind::DuplicateUuid
            | FindingKind::ForeignSessionId
    )
}

/// Writes the repaired copy of a branch into `folder`, which is created if it is missing. `index` is the index of
/// `source`. Returns what was changed.
///
/// # Errors
/// [`TranscriptError::InvalidId`] for a new id that cannot be a file name, [`TranscriptError::AlreadyExists`] if it is taken,
/// [`TranscriptError::Io`] otherwise, also if the source no longer matches its index. After a failure no file is left.
pub fn repair(
    source: &Path,
    index: &ClaudeIndex,
    branch: &Selection,
    folder: &Path,
    new_id: &str,
) -> Result<Repairs, TranscriptError> {
    let unanswered = unanswered_calls(reading::open(source)?, branch);
    let mut unanswered = unanswered.map_err(TranscriptError::io("read", source))?;
    let last = branch.offsets.last().and_then(|last| reply(index, *last));
    unanswered.retain(|call, _| last.is_some() && reply(index, *call) == last);
    let lines = open_lines(source)?;
    let mut repairs = Repairs::default();
    write_with_files("repair", source, folder, new_id, |files, writer| {
        let mut repairer = Repairer {
            index,
            branch,
            remaining_offsets: branch.offsets.iter().copied().peekable(),
            unanswered,
            results: Vec::new(),
            old_id: session_of(source),
            new_id,
            files,
            repairs: &mut repairs,
        };
        lines.rewrite_all(writer, |line, edits| repairer.line(line, edits))?;
        repairer.end(writer)
    })?;
    repairs.left_out += u64::from(index.ends_torn);
    Ok(repairs)
}

struct Repairer<'a, 'b> {
    index: &'a ClaudeIndex,
    branch: &'a Selection,
    /// The offsets of the branch's records that are still to be read.
    remaining_offsets: Peekable<Copied<slice::Iter<'a, u64>>>,
    /// The calls of the last reply that have no result: hashes of their ids, by the offsets of the records with the calls.
    unanswered: BTreeMap<u64, Vec<u64>>,
    /// The filled-in results, which are written at the end.
    results: Vec<u8>,
    old_id: &'a str,
    new_id: &'a str,
    files: &'b mut SideFiles<'a>,
    repairs: &'b mut Repairs,
}

impl Repairer<'_, '_> {
    fn line(&mut self, line: &SourceLine<'_>, edits: &mut Edits) -> io::Result<Verdict> {
        // Longer than the limit: not inspected, copied unchanged. The branch has no such line.
        let Some(bytes) = line.bytes else {
            return Ok(Verdict::Keep);
        };
        let text = text_of_same_length(bytes);
        let record = EditableRecord::parse(&text);
        if self.remaining_offsets.next_if_eq(&line.offset).is_some() {
            let unread = || {
                let why = "a record of the branch is not JSON any more, or has too many members";
                io::Error::new(io::ErrorKind::InvalidData, why)
            };
            self.record(line.offset, bytes, &record.ok_or_else(unread)?, edits)?;
            return Ok(Verdict::Keep);
        }
        let Some(record) = record else {
            self.repairs.left_out += u64::from(line.ended && !trimmed(bytes).is_empty());
            return Ok(Verdict::Drop);
        };
        let is_mark = record.fields.text("type").as_deref() == Some(LEAF_MARK);
        if is_mark || record.fields.text("uuid").is_some() {
            return Ok(Verdict::Drop);
        }
        edit_session(&record, self.old_id, self.new_id, edits);
        Ok(Verdict::Keep)
    }

    /// Edits a record of the branch.
    fn record(
        &mut self,
        offset: u64,
        line: &[u8],
        record: &EditableRecord<'_>,
        edits: &mut Edits,
    ) -> io::Result<()> {
        let uuid = record.fields.str("uuid");
        if !uuid.is_some_and(|uuid| self.index.has_record_at(offset, &uuid)) {
            return Err(source_changed_error());
        }
        if let Some(range) = record.position(&["sessionId"]) {
            edits.replace(range, json_string(self.new_id));
        }
        if let Some(join) = self.branch.joins.get(&offset) {
            self.repairs.joined += 1;
            if let Some(range) = record.position(&["parentUuid"]) {
                edits.replace(range, join.as_deref().map_or("null".to_owned(), json_string));
            }
        }
        self.files.copy_named_files(line, edits)?;
        match self.unanswered.remove(&offset) {
            Some(calls) => self.fill_in(&record.fields, &calls),
            None => Ok(()),
        }
    }

    /// Writes the filled-in results. Fails if a record of the branch is missing.
    fn end(&mut self, writer: &mut dyn Write) -> io::Result<()> {
        if self.remaining_offsets.next().is_some() {
            return Err(source_changed_error());
        }
        writer.write_all(&self.results)
    }

    /// Makes the missing results of calls, as the agent writes them: one record each.
    fn fill_in(&mut self, record: &Fields<'_>, missing: &[u64]) -> io::Result<()> {
        let Some(uuid) = record.text("uuid") else {
            return Ok(());
        };
        let mut parent = uuid.clone();
        for id in calls(record).filter(|id| missing.contains(&hash_of(id))) {
            let result_uuid = Uuid::new_v4().to_string();
            let mut result = result(record, &parent, &uuid, &result_uuid, &id);
            if let Some(session) = result.get_mut("sessionId") {
                *session = Value::from(self.new_id);
            }
            serde_json::to_writer(&mut self.results, &result)?;
            self.results.push(b'\n');
            self.repairs.filled_in += 1;
            parent = result_uuid;
        }
        Ok(())
    }
}

/// Identifies the reply that a record is part of, or whose call it answers: by the hash of its id, or by the record's
/// position if it has no id.
fn reply(index: &ClaudeIndex, offset: u64) -> Option<(u64, Option<usize>)> {
    let entries = &index.entries;
    let mut position = entries.first_at_or_after(offset);
    if entries[position].role == RecordRole::ToolResult
        && let ParentLookup::Found(call) = entries.parent(position)
    {
        position = call;
    }
    let message = entries[position].message_hash;
    let own = (message == 0).then_some(position);
    (entries[position].role == RecordRole::Assistant).then_some((message, own))
}

/// The ids of the calls that a record makes.
fn calls(record: &Fields<'_>) -> impl Iterator<Item = String> {
    let content = record
        .object("message")
        .and_then(|message| message.array("content"));
    let blocks = content.unwrap_or_default().into_iter().map(Json::get);
    blocks.filter_map(|block| {
        let block = Fields::parse(block)?;
        block
            .text("id")
            .filter(|_| block.text("type").as_deref() == Some("tool_use"))
    })
}

/// The record with the result of a call.
fn result(call: &Fields<'_>, parent: &str, call_uuid: &str, own_uuid: &str, id: &str) -> Value {
    let block = json!({
        "type": "tool_result", "content": INTERRUPTED, "is_error": true, "tool_use_id": id,
    });
    let mut record = json!({
        "parentUuid": parent,
        "isSidechain": false,
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "uuid": own_uuid,
        "toolUseResult": INTERRUPTED,
        "toolDenialKind": "interrupted",
        "sourceToolAssistantUUID": call_uuid,
    });
    for name in COPIED_FROM_CALL {
        if let Some(text) = call.text(name) {
            record[name] = Value::from(text);
        }
    }
    record
}

#[cfg(test)]
mod tests;
