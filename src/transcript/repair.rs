//! Repaired copies of Claude's transcripts, under new ids.
//!
//! Owns what becomes of a branch that is damaged: lines that are no records are left out, a record whose parent is not there
//! names the one that takes its place, all records are of the new session, and a call of a tool without a result gets the one
//! that the agent itself fills in (Claude Code 2.1.316). Every other byte stays, records keep their uuids, and the files that they name come along. Neither other branches nor the places
//! that the agent noted are in the copy: it would go on from one of those, and leave what stands behind. The source is only
//! read. Blocks; knows nothing of why a transcript is repaired.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bridge_protocol::check::{FindingKind, Repairs};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::TranscriptError;
use super::check::{hash_of, unanswered};
use super::claude::{BehindCalls, Index, Join, Selection};
use super::copy::{create_in, each_line, json_text, make_folder, session_of, value_place, write_with};
use super::fields::{Fields, Json};
use super::lines::RawLine;
use super::reading;
use super::side_files::Beside;

/// What the agent tells the model in place of a tool's result that it has not recorded.
pub const INTERRUPTED: &str = "[Tool call interrupted: the session ended before this call's result was recorded, so its \
    outcome is unknown. Check whether it took effect before relying on it or running it again.]";

/// Where the agent notes that the conversation stands.
const MARK: &str = "last-prompt";

/// What a record that is filled in has from the call that it answers.
const FROM_CALL: [&str; 7] = [
    "cwd",
    "sessionId",
    "userType",
    "entrypoint",
    "version",
    "gitBranch",
    "timestamp",
];

/// A repaired copy.
#[derive(Debug)]
pub struct Repaired {
    /// Where it is.
    pub path: PathBuf,
    /// What was changed.
    pub repairs: Repairs,
}

/// Whether a repaired copy does not have what was found.
#[must_use]
pub fn mends(kind: FindingKind) -> bool {
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

/// Writes the repaired copy of a branch into `folder`, which is made when it is missing. `index` says where the records of
/// `source` stand.
///
/// # Errors
/// [`TranscriptError::InvalidId`] for a new id that is no file name, [`TranscriptError::AlreadyExists`] when it is taken,
/// [`TranscriptError::Io`] otherwise. Nothing is left behind by a failure.
pub fn repair(
    source: &Path,
    index: &Index,
    branch: &Selection,
    folder: &Path,
    new_id: &str,
) -> Result<Repaired, TranscriptError> {
    let unanswered = unanswered(reading::open(source)?, branch);
    let unanswered = unanswered.map_err(TranscriptError::io("read", source))?;
    make_folder(folder)?;
    let mut repairer = Repairer {
        branch,
        behind: index.behind_calls(branch, unanswered.keys().copied()),
        unanswered,
        filled_in: BTreeMap::new(),
        waiting: BTreeMap::new(),
        old_id: session_of(source),
        new_id,
        files: Beside::new(source, folder, new_id),
        repairs: Repairs::default(),
    };
    let path = create_in(folder, new_id, |writer| {
        let copied = each_line(source, |line, text| repairer.line(&line, text, writer));
        let copied = copied.and_then(|()| repairer.end(writer));
        // Before the transcript has a name, so that none ever names files that are not there.
        let copied = copied.and_then(|()| repairer.files.settle());
        copied.map_err(TranscriptError::io("copy", source))
    })?;
    repairer.files.keep();
    if index.ends_torn() {
        repairer.repairs.left_out += 1;
    }
    Ok(Repaired {
        path,
        repairs: repairer.repairs,
    })
}

struct Repairer<'a> {
    branch: &'a Selection,
    /// The calls without a result, and what goes on behind their replies.
    unanswered: BTreeMap<u64, Vec<u64>>,
    behind: BehindCalls,
    /// The last result that was filled in for the calls of a record, by where that begins.
    filled_in: BTreeMap<u64, String>,
    /// Those that have not come to their places yet.
    waiting: BTreeMap<u64, Vec<u8>>,
    old_id: &'a str,
    new_id: &'a str,
    files: Beside<'a>,
    repairs: Repairs,
}

impl Repairer<'_> {
    fn line(&mut self, line: &RawLine<'_>, text: &str, writer: &mut dyn Write) -> io::Result<()> {
        if self.branch.contains(line.offset) {
            return self.record(line, text, writer);
        }
        let record = text.trim_start_matches('\u{feff}').trim_end_matches('\0');
        let Some(fields) = Fields::parse(record) else {
            self.repairs.left_out += u64::from(!record.trim().is_empty());
            return Ok(());
        };
        if fields.text("uuid").is_some() || fields.text("type").as_deref() == Some(MARK) {
            return Ok(());
        }
        let session = value_place(text, "sessionId")
            .filter(|_| fields.text("sessionId").as_deref() == Some(self.old_id));
        let session = session.map(|place| (place, json_text(self.new_id)));
        write_with(writer, line.bytes, session.into_iter().collect())
    }

    /// A record of the branch.
    fn record(&mut self, line: &RawLine<'_>, text: &str, writer: &mut dyn Write) -> io::Result<()> {
        for call in self.behind.places.remove(&line.offset).unwrap_or_default() {
            let results = self.waiting.remove(&call);
            writer.write_all(&results.unwrap_or_default())?;
        }
        let mut values = Vec::new();
        values.extend(value_place(text, "sessionId").map(|place| (place, json_text(self.new_id))));
        if let Some(parent) = self.parent(line.offset) {
            let parent = parent.map_or_else(|| b"null".to_vec(), |parent| json_text(&parent));
            values.extend(value_place(text, "parentUuid").map(|place| (place, parent)));
        }
        let named = self.files.record(line.bytes)?.into_iter();
        values.extend(named.map(|(place, text)| (place, text.into_bytes())));
        let mut written = Vec::with_capacity(line.bytes.len() + 1);
        write_with(&mut written, line.bytes, values)?;
        writer.write_all(&written)?;
        if let Some(calls) = self.unanswered.remove(&line.offset) {
            let results = self.fill_in(line.offset, &written, &calls)?;
            self.waiting.insert(line.offset, results);
        }
        Ok(())
    }

    /// The parent of a record, where it is another than it names; none where it begins the branch.
    fn parent(&mut self, offset: u64) -> Option<Option<String>> {
        let joined = self.join(offset).map(|join| join.parent.clone());
        self.repairs.joined += u64::from(joined.is_some());
        let result = self
            .behind
            .children
            .get(&offset)
            .and_then(|call| self.filled_in.get(call));
        match result {
            Some(result) => Some(Some(result.clone())),
            None => joined,
        }
    }

    fn join(&self, offset: u64) -> Option<&Join> {
        let joins = self.branch.joins();
        let place = joins.binary_search_by_key(&offset, |join| join.offset).ok()?;
        joins.get(place)
    }

    /// Results whose places are the end.
    fn end(&mut self, writer: &mut dyn Write) -> io::Result<()> {
        for (_, results) in std::mem::take(&mut self.waiting) {
            writer.write_all(&results)?;
        }
        Ok(())
    }

    /// The results that calls lack, as the agent writes them: a record for each.
    fn fill_in(&mut self, offset: u64, call: &[u8], missing: &[u64]) -> io::Result<Vec<u8>> {
        let mut results = Vec::new();
        let text = String::from_utf8_lossy(call);
        let record = text
            .trim_start_matches('\u{feff}')
            .trim_end_matches(['\n', '\r', '\0']);
        let fields = Fields::parse(record);
        let Some((fields, uuid)) = fields.and_then(|fields| fields.text("uuid").map(|uuid| (fields, uuid)))
        else {
            return Ok(results);
        };
        let mut parent = uuid.clone();
        for id in calls(&fields).filter(|id| missing.contains(&hash_of(id))) {
            let own = Uuid::new_v4().to_string();
            serde_json::to_writer(&mut results, &result(&fields, &parent, &uuid, &own, &id))?;
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

/// The record with which a call has a result.
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
    let from_call = FROM_CALL
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
