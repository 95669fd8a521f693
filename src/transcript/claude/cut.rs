//! Cuts a transcript: copies one branch of it under a new id, as Claude's own fork does.
//!
//! This module decides what happens to each record, as Claude Code 2.1.316 and the vendor's library of that version do,
//! which makes the forks of the ACP adapter. Each record of the branch gets a new uuid and names its original
//! (`forkedFrom`). References to uuids are replaced too: parents, including those before a compaction, messages that a
//! compaction kept, and queued prompts. Members that name a subagent or a plan are omitted. Other records are copied if
//! they concern the whole session or are of an unknown kind. The request log, the queue, counters, file snapshots and
//! recorded positions are omitted: the agent writes them anew, or stores them under the session's id. Unlike the
//! agent's own fork, a cut copies only the branch, keeps progress records, which resumes ignore, leaves times and
//! titles unchanged, and includes the files that the records name.
//!
//! One pass over the bytes, which decodes only what changes. The new uuids are computed from the old ones by a keyed hash,
//! so no table of them is stored. The source is only read. If it differs from its index, the cut fails. Blocks; knows
//! nothing of why a transcript is cut.

mod members;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use uuid::{Builder, Uuid};

use super::copy::{edit_session, open_lines, source_changed_error, write_with_files};
use super::side_files::SideFiles;
use crate::transcript::TranscriptError;
use crate::transcript::claude::{ClaudeIndex, Selection};
use crate::transcript::copy::{remove_unfinished_files, session_of};
use crate::transcript::fields::{Fields, Json, lenient_text};
use crate::transcript::lines::text_of_same_length;
use crate::transcript::rewrite::{EditableRecord, Edits, Rewriter, SourceLine, Verdict, json_string};
use members::Members;

/// Kinds of records without a parent that are not copied: see above.
const OMITTED_KINDS: [&str; 11] = [
    "api-request",
    "api-request-blob",
    "api-request-shape",
    "attribution-snapshot",
    "continued-in",
    "cost-state",
    "ended-by-model",
    "file-history-delta",
    "file-history-snapshot",
    "last-prompt",
    "queue-operation",
];

/// The beginning of a line of the request log. Such lines can be very long, so they are skipped without being buffered.
const REQUEST_LOG: &[u8] = br#"{"type":"api-request"#;

/// Members that the agent's own fork omits.
const OMITTED_MEMBERS: [&str; 8] = [
    "teamName",
    "agentName",
    "sessionKind",
    "slug",
    "sourceToolAssistantUUID",
    "summarizedTurnPromptUuids",
    "droppedPromptUuids",
    "turnAttributionKey",
];

/// Kinds of records that are part of a chain. Without a parent on the branch they do not belong to it.
const CHAIN_KINDS: [&str; 5] = ["user", "assistant", "attachment", "system", "progress"];

/// Copies the branch that ends with the record `last_uuid` into `folder`, and returns the path of the new transcript.
/// Creates the folder if it is missing. Also copies the notes that the agent wrote for itself between that record and
/// the next prompt: the agent would write them again, but with other words. `index` is the index of `source`. If a
/// parent is missing, the copy names the record that replaces it.
///
/// # Errors
/// [`TranscriptError::RecordNotFound`] if there is no such record, [`TranscriptError::InvalidId`] for a new id that cannot be
/// a file name, [`TranscriptError::AlreadyExists`] if it is taken, [`TranscriptError::Io`] otherwise, also if the source no
/// longer matches its index. After a failure no file is left.
pub fn cut(
    source: &Path,
    index: &ClaudeIndex,
    folder: &Path,
    new_id: &str,
    last_uuid: &str,
) -> Result<PathBuf, TranscriptError> {
    let lines = open_lines(source)?;
    cut_lines(lines, source, index, folder, new_id, last_uuid)
}

/// As [`cut`], for given lines of the source. A line that is not on the branch and longer than the limit is copied unchanged.
fn cut_lines<R: BufRead + Seek>(
    lines: Rewriter<R>,
    source: &Path,
    index: &ClaudeIndex,
    folder: &Path,
    new_id: &str,
    last_uuid: &str,
) -> Result<PathBuf, TranscriptError> {
    let branch =
        index
            .select_up_to_next_prompt(last_uuid)
            .ok_or_else(|| TranscriptError::RecordNotFound {
                path: source.to_owned(),
                uuid: last_uuid.to_owned(),
            })?;
    write_with_files("cut", source, folder, new_id, |files, writer| {
        let old_id = session_of(source);
        let mut cutter = Cutter {
            index,
            branch: &branch,
            old_id,
            new_id,
            last_uuids: Default::default(),
            forked_from_prefix: format!(r#"{{"sessionId":{},"messageUuid":"#, json_string(old_id)),
            files,
        };
        cutter.write(lines, writer)
    })
}

/// Copies the files that a transcript names in the folders of other sessions into the session's own folder. Needed for
/// a fork that the agent made, because the agent leaves the files with the other session, and deleting that session
/// would lose them. Does not change the transcript, so the paths in its texts still lead to the other session's folder.
/// May be called again after a kill.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn copy_borrowed_files(transcript: &Path) -> Result<(), TranscriptError> {
    // Remove the files that a killed call left.
    remove_unfinished_files(transcript)?;
    let folder = transcript.parent().unwrap_or(Path::new(""));
    let mut files = SideFiles::new(transcript, folder, session_of(transcript));
    let looked = open_lines(transcript)?.rewrite_all(&mut io::sink(), |line, edits| {
        if let Some(bytes) = line.bytes {
            files.copy_named_files(bytes, edits)?;
        }
        Ok(Verdict::Drop)
    });
    let brought = looked.and_then(|()| files.settle(true));
    brought.map_err(TranscriptError::io("bring the files beside", transcript))
}

struct Cutter<'a, 'b> {
    index: &'a ClaudeIndex,
    branch: &'a Selection,
    old_id: &'a str,
    new_id: &'a str,
    /// The last old and new uuid: usually a record's uuid, which is then looked up again as its child's parent.
    last_uuids: (String, String),
    /// The beginning of the value that names a record's original, up to the original's uuid.
    forked_from_prefix: String,
    files: &'b mut SideFiles<'a>,
}

impl Cutter<'_, '_> {
    fn write<R: BufRead + Seek>(&mut self, mut lines: Rewriter<R>, writer: &mut dyn Write) -> io::Result<()> {
        let mut branch_offsets = self.branch.offsets.iter().copied().peekable();
        // Usually the leaf, but parents may have been written after it.
        let last = self.branch.offsets.last().copied().unwrap_or_default();
        let mut behind = self.index.session_wide_after(last).iter().copied();
        let mut next = Some(0);
        while let Some(offset) = next {
            lines.go_to(offset)?;
            let end = if branch_offsets.peek() != Some(&offset) && lines.begins_with(REQUEST_LOG)? {
                Some(lines.skip()?)
            } else {
                lines.rewrite_next(writer, |line, edits| {
                    if branch_offsets.next_if_eq(&line.offset).is_some() {
                        self.record(line.require_bytes()?, line.offset, edits)?;
                    } else if !self.edit_off_branch(line, edits) {
                        return Ok(Verdict::Drop);
                    }
                    if let Some(bytes) = line.bytes {
                        self.files.copy_named_files(bytes, edits)?;
                    }
                    Ok(Verdict::Keep)
                })?
            };
            next = match offset < last {
                true => end,
                false => behind.next(),
            };
        }
        match branch_offsets.next() {
            Some(_) => Err(source_changed_error()),
            None => Ok(()),
        }
    }

    /// Edits a line that is not on the branch. Returns whether to copy it.
    fn edit_off_branch(&mut self, line: &SourceLine<'_>, edits: &mut Edits) -> bool {
        // After the end of the branch, only records that concern the whole session are copied.
        let leaf = self.branch.leaf_offset;
        let is_wide = |offset| self.index.session_wide_after(leaf).binary_search(offset).is_ok();
        if line.offset > leaf && !is_wide(&line.offset) {
            return false;
        }
        // The kind of a line that is too long is unknown, so it is copied.
        let Some(bytes) = line.bytes else { return true };
        let text = text_of_same_length(bytes);
        let Some(record) = EditableRecord::parse(&text) else {
            return false;
        };
        let kind = record.fields.text("type").unwrap_or_default();
        // Records of the chain belong to another branch.
        let is_chained = CHAIN_KINDS.contains(&kind.as_str()) || record.fields.raw("parentUuid").is_some();
        if OMITTED_KINDS.contains(&kind.as_str()) || is_chained && record.fields.raw("uuid").is_some() {
            return false;
        }
        edit_session(&record, self.old_id, self.new_id, edits);
        if let Some((uuid, range)) = record.text(&["uuid"]) {
            edits.replace(range, self.new_token(&uuid));
        }
        if let Some((leaf, range)) = record.text(&["leafUuid"]) {
            if !self.holds(&leaf) {
                return false;
            }
            edits.replace(range, self.new_token(&leaf));
        }
        true
    }

    /// Edits a record of the branch.
    fn record(&mut self, line: &[u8], offset: u64, edits: &mut Edits) -> io::Result<()> {
        let members = Members::parse(line).ok_or_else(source_changed_error)?;
        let uuid = members.text("uuid").ok_or_else(source_changed_error)?;
        if !self.index.has_record_at(offset, &uuid) {
            return Err(source_changed_error());
        }
        let origin = format!("{}{}}}", self.forked_from_prefix, json_string(&uuid));
        for member in &members.all {
            let text = || members.text_of(member);
            let value = &line[member.value.clone()];
            let new = match member.name.as_ref() {
                "uuid" => text().map(|text| self.new_token(&text)),
                "parentUuid" => self.parent(text().as_deref(), offset),
                "logicalParentUuid" => text().map(|text| match self.holds(&text) {
                    true => self.new_token(&text),
                    false => "null".to_owned(),
                }),
                "sessionId" => Some(json_string(self.new_id)),
                "forkedFrom" => Some(origin.clone()),
                "compactMetadata" => self.compaction(value),
                "attachment" => {
                    self.attachment(value, member.value.start, edits);
                    None
                }
                _ => None,
            };
            if let Some(new) = new {
                edits.replace(member.value.clone(), new);
            }
        }
        for part in members.ranges_to_remove(&OMITTED_MEMBERS) {
            edits.replace(part, "");
        }
        let mut more = String::new();
        if members.text("subtype").as_deref() == Some("model_refusal_fallback") {
            more.push_str(r#","neutralizedByFork":true"#);
        }
        let lacks = |name| members.all.iter().all(|member| member.name != name);
        if lacks("sessionId") {
            more = format!(r#"{more},"sessionId":{}"#, json_string(self.new_id));
        }
        if lacks("forkedFrom") {
            more = format!(r#"{more},"forkedFrom":{origin}"#);
        }
        edits.replace(members.end..members.end, more);
        Ok(())
    }

    /// The new uuid of a record. It is computed from the old one and the new session's id, so no table of them is stored.
    fn new_uuid(&mut self, old: &str) -> &str {
        if self.last_uuids.0 != old {
            let uuid = Uuid::try_parse(old);
            let half = |half: u8| {
                let mut hasher = DefaultHasher::new();
                // Nobody can predict the new id, so nobody can choose two old uuids that get the same new one.
                (half, self.new_id).hash(&mut hasher);
                match &uuid {
                    // The spelling does not matter.
                    Ok(uuid) => uuid.hash(&mut hasher),
                    Err(_) => old.hash(&mut hasher),
                }
                hasher.finish()
            };
            let bytes = (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes();
            let new = Builder::from_random_bytes(bytes).into_uuid().to_string();
            self.last_uuids = (old.to_owned(), new);
        }
        &self.last_uuids.1
    }

    /// The new uuid of a record, as a JSON string.
    fn new_token(&mut self, old: &str) -> String {
        format!("\"{}\"", self.new_uuid(old))
    }

    /// The new parent of a record, if it changes.
    fn parent(&mut self, named: Option<&str>, offset: u64) -> Option<String> {
        match self.branch.joins.get(&offset) {
            Some(Some(parent)) => Some(self.new_token(parent)),
            Some(None) => Some("null".to_owned()),
            None => named.map(|parent| self.new_token(parent)),
        }
    }

    /// The description of the messages that a compaction kept, with their new uuids.
    fn compaction(&mut self, value: &[u8]) -> Option<String> {
        const IDS: [&str; 5] = ["anchorUuid", "uuids", "allUuids", "headUuid", "tailUuid"];
        let mut metadata: Value = serde_json::from_str(&text_of_same_length(value)).ok()?;
        let metadata = metadata.as_object_mut()?;
        // This concerns a turn that was running in the other session.
        let mut is_changed = metadata.remove("runningTurnSends").is_some();
        for segment in ["preservedMessages", "preservedSegment"] {
            let Some(segment) = metadata.get_mut(segment).and_then(Value::as_object_mut) else {
                continue;
            };
            for name in IDS {
                if let Some(ids) = segment.get_mut(name) {
                    *ids = self.renamed(ids.take());
                    is_changed = true;
                }
            }
        }
        is_changed.then(|| Value::Object(std::mem::take(metadata)).to_string())
    }

    fn renamed(&mut self, ids: Value) -> Value {
        match ids {
            Value::String(id) if self.holds(&id) => Value::from(self.new_uuid(&id)),
            Value::Array(ids) => ids.into_iter().map(|id| self.renamed(id)).collect(),
            other => other,
        }
    }

    /// Edits an attachment's references to other records: a queued prompt, and where tools were announced.
    fn attachment(&mut self, value: &[u8], start: usize, edits: &mut Edits) {
        let names = |name: &[u8]| memchr::memmem::find(value, name).is_some();
        if !names(b"\"source_uuid\"") && !names(b"\"nameOnlyAnnouncements\"") {
            return;
        }
        let text = text_of_same_length(value);
        let Some(fields) = Fields::parse(&text) else {
            return;
        };
        let renamed = match fields.text("type").as_deref() {
            Some("queued_command") => {
                let source = fields.text("source_uuid").filter(|uuid| self.holds(uuid));
                source.map(|uuid| ("source_uuid", self.new_token(&uuid)))
            }
            Some("deferred_tools_record") => fields.array("nameOnlyAnnouncements").map(|announced| {
                let announced = announced.into_iter().map(Json::get).filter_map(lenient_text);
                let kept: Vec<String> = announced.filter(|uuid| self.holds(uuid)).collect();
                let renamed: Vec<String> = kept.iter().map(|uuid| self.new_token(uuid)).collect();
                ("nameOnlyAnnouncements", format!("[{}]", renamed.join(",")))
            }),
            _ => None,
        };
        if let Some((name, token)) = renamed
            && let Some(range) = fields.range_of(&text, name)
        {
            edits.replace(range.start + start..range.end + start, token);
        }
    }

    fn holds(&self, uuid: &str) -> bool {
        let offset = self.index.offset_of(uuid);
        offset.is_some_and(|offset| self.branch.contains(offset))
    }
}

#[cfg(test)]
mod tests;
