//! Makes repaired copies of Claude transcripts, under new ids.
//!
//! Owns what happens to a damaged branch: lines that are not records are left out, a record whose parent is missing names the
//! record that replaces it, all records get the new session's id, and a tool call without a result gets the one that the agent
//! itself fills in (Claude Code 2.1.316). Every other byte stays, records keep their uuids, and the files that they name are
//! copied. Other branches and the positions that the agent recorded are not copied: a resume would continue from one of those,
//! and ignore what follows. The source is only read. If it has changed since it was indexed, the repair fails. Blocks; knows
//! nothing of why a transcript is repaired.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::{Copied, Peekable};
use std::path::Path;
use std::slice;

use bridge_protocol::check::{FindingKind, Repairs};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::check::unanswered;
use super::copy::{changed, edit_session, open_lines, with_files};
use super::side_files::SideFiles;
use super::{FillPositions, Index, Selection};
use crate::transcript::TranscriptError;
use crate::transcript::check::hash_of;
use crate::transcript::copy::session_of;
use crate::transcript::fields::{Fields, Json};
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::reading;
use crate::transcript::rewrite::{EditableRecord, Edits, Line, Verdict, token};

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
            | FindingKind::ToolUseWithoutResult
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
    index: &Index,
    branch: &Selection,
    folder: &Path,
    new_id: &str,
) -> Result<Repairs, TranscriptError> {
    let unanswered = unanswered(reading::open(source)?, branch);
    let unanswered = unanswered.map_err(TranscriptError::io("read", source))?;
    let lines = open_lines(source)?;
    let mut repairs = Repairs::default();
    with_files("repair", source, folder, new_id, |files, writer| {
        let mut repairer = Repairer {
            index,
            branch,
            remaining_offsets: branch.offsets.iter().copied().peekable(),
            fill_positions: index.fill_positions(branch, unanswered.keys().copied()),
            unanswered,
            filled_in: BTreeMap::new(),
            unwritten_results: BTreeMap::new(),
            old_id: session_of(source),
            new_id,
            files,
            repairs: &mut repairs,
        };
        lines.rewrite_all(writer, |line, edits| repairer.line(line, edits))?;
        repairer.end(writer)
    })?;
    repairs.left_out += u64::from(index.ends_torn());
    Ok(repairs)
}

struct Repairer<'a, 'b> {
    index: &'a Index,
    branch: &'a Selection,
    /// The offsets of the branch's records that are still to be read.
    remaining_offsets: Peekable<Copied<slice::Iter<'a, u64>>>,
    /// The calls without a result, and the records that follow their replies.
    unanswered: BTreeMap<u64, Vec<u64>>,
    fill_positions: FillPositions,
    /// The last result that was filled in for the calls of a record, by the record's offset.
    filled_in: BTreeMap<u64, String>,
    /// The filled-in results that are not written yet.
    unwritten_results: BTreeMap<u64, Vec<u8>>,
    old_id: &'a str,
    new_id: &'a str,
    files: &'b mut SideFiles<'a>,
    repairs: &'b mut Repairs,
}

impl Repairer<'_, '_> {
    fn line(&mut self, line: &Line<'_>, edits: &mut Edits) -> io::Result<Verdict> {
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
            return Err(changed());
        }
        for call in self.fill_positions.places.remove(&offset).unwrap_or_default() {
            edits.insert_before(&self.unwritten_results.remove(&call).unwrap_or_default());
        }
        if let Some(place) = record.position(&["sessionId"]) {
            edits.replace(place, token(self.new_id));
        }
        if let Some(parent) = self.parent(offset)
            && let Some(place) = record.position(&["parentUuid"])
        {
            edits.replace(place, parent.map_or("null".to_owned(), |parent| token(&parent)));
        }
        self.files.copy_named_files(line, edits)?;
        if let Some(calls) = self.unanswered.remove(&offset) {
            let results = self.fill_in(offset, &record.fields, &calls)?;
            self.unwritten_results.insert(offset, results);
        }
        Ok(())
    }

    /// The new parent of a record, if it changes. The inner value is `None` if the branch begins with this record.
    fn parent(&mut self, offset: u64) -> Option<Option<String>> {
        let joined = self.branch.join_at(offset).map(|join| join.parent.clone());
        self.repairs.joined += u64::from(joined.is_some());
        let result = self
            .fill_positions
            .children
            .get(&offset)
            .and_then(|call| self.filled_in.get(call));
        match result {
            Some(result) => Some(Some(result.clone())),
            None => joined,
        }
    }

    /// Writes the results that belong at the end. Fails if a record of the branch is missing.
    fn end(&mut self, writer: &mut dyn Write) -> io::Result<()> {
        if self.remaining_offsets.next().is_some() {
            return Err(changed());
        }
        for (_, results) in std::mem::take(&mut self.unwritten_results) {
            writer.write_all(&results)?;
        }
        Ok(())
    }

    /// The missing results of calls, as the agent writes them: one record each.
    fn fill_in(&mut self, offset: u64, record: &Fields<'_>, missing: &[u64]) -> io::Result<Vec<u8>> {
        let mut results = Vec::new();
        let Some(uuid) = record.text("uuid") else {
            return Ok(results);
        };
        let mut parent = uuid.clone();
        for id in calls(record).filter(|id| missing.contains(&hash_of(id))) {
            let own = Uuid::new_v4().to_string();
            let mut result = result(record, &parent, &uuid, &own, &id);
            if let Some(session) = result.get_mut("sessionId") {
                *session = Value::from(self.new_id);
            }
            serde_json::to_writer(&mut results, &result)?;
            results.push(b'\n');
            self.repairs.filled_in += 1;
            parent.clone_from(&own);
            self.filled_in.insert(offset, own);
        }
        Ok(results)
    }
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
fn result(call: &Fields<'_>, parent: &str, call_uuid: &str, own_uuid: &str, id: &str) -> Map<String, Value> {
    let block = [
        ("type", Value::from("tool_result")),
        ("content", Value::from(INTERRUPTED)),
        ("is_error", Value::from(true)),
        ("tool_use_id", Value::from(id)),
    ];
    let message = [
        ("role", Value::from("user")),
        ("content", Value::Array(vec![object(block)])),
    ];
    let record = [
        ("parentUuid", Value::from(parent)),
        ("isSidechain", Value::from(false)),
        ("type", Value::from("user")),
        ("message", object(message)),
        ("uuid", Value::from(own_uuid)),
        ("toolUseResult", Value::from(INTERRUPTED)),
        ("toolDenialKind", Value::from("interrupted")),
        ("sourceToolAssistantUUID", Value::from(call_uuid)),
    ];
    let from_call = COPIED_FROM_CALL
        .into_iter()
        .filter_map(|name| Some((name, Value::from(call.text(name)?))));
    let members = record.into_iter().chain(from_call);
    members.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.collect())
}

#[cfg(test)]
mod tests;
