//! The messages and turns of a branch, and an open transcript that reads them one by one.
//!
//! This module decides which records of an index are messages of the branch and which turn each belongs to, in four
//! bytes per message. A message is decoded when it is requested. Pure over any buffered reader; it does not know
//! conversations.

use std::fmt::Debug;
use std::io::{BufRead, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memmem;

use super::ClaudeIndex;
use super::entries::{ParentLookup, RecordMark};
use super::facts::RecordRole;
use super::record::{Record, typed_text};
use crate::transcript::TranscriptError;
use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::Json;
use crate::transcript::indexes::IndexedBranch;
use crate::transcript::lines::{line_at, line_text};
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};
use crate::transcript::open_transcript::{Loss, OpenTranscript, damage_loss};
use crate::transcript::record_id::RecordId;

/// The messages of a branch.
#[derive(Debug, Default)]
pub struct ClaudeHistory {
    pub(super) index: Arc<ClaudeIndex>,
    /// The positions of the messages in the index, ascending.
    messages: Vec<u32>,
    /// The index of the first message of each turn.
    turns: Vec<u32>,
    /// How many records name a parent that is missing. Something is lost at each of them.
    pub missing_parents: usize,
    /// How many records are damaged or missing.
    damaged_records: u64,
    /// How many records on the branch, or following its end, are of unknown kinds, so that the history omits them.
    unknown_records: u64,
    /// Whether the branch begins with a compaction whose earlier messages are not in this transcript.
    pub cut_by_compaction: bool,
}

impl IndexedBranch for ClaudeHistory {
    type Index = ClaudeIndex;

    fn read(index: &Arc<ClaudeIndex>, until: Option<&str>) -> Option<Self> {
        let mut history = Self {
            index: Arc::clone(index),
            damaged_records: index.garbage_lines,
            ..Self::default()
        };
        let Some(walk) = index.walk(until, true) else {
            return until.is_none().then_some(history);
        };
        for position in walk.positions() {
            let role = index.entries[position].role;
            if role == RecordRole::Prompt {
                history.turns.push(history.messages.len() as u32);
            }
            if role != RecordRole::Other || index.entries[position].mark == RecordMark::Steering {
                // An index never has more entries than fit.
                history.messages.push(position as u32);
            }
        }
        history.messages.shrink_to_fit();
        history.turns.shrink_to_fit();
        history.missing_parents = walk.missing_parents;
        history.damaged_records = history.damaged_records.max(walk.missing_parents as u64);
        history.unknown_records = walk.count_unknown(&index.entries, until.is_none()) as u64;
        history.cut_by_compaction = walk.cut_by_compaction;
        Some(history)
    }

    fn turn_starts(&self) -> &[u32] {
        &self.turns
    }

    fn memory_bytes(&self) -> usize {
        (self.messages.capacity() + self.turns.capacity()) * size_of::<u32>()
    }
}

/// An open transcript, with its messages up to a record or of its live branch.
#[derive(Debug)]
pub struct OpenClaudeTranscript<R> {
    /// The positions of its messages.
    pub history: Arc<ClaudeHistory>,
    path: PathBuf,
    reader: R,
}

impl<R: BufRead + Seek> OpenClaudeTranscript<R> {
    /// Wraps a transcript that is open already and whose messages are known.
    pub(in crate::transcript) fn new(path: &Path, reader: R, history: Arc<ClaudeHistory>) -> Self {
        Self {
            history,
            path: path.to_owned(),
            reader,
        }
    }

    /// Counts the messages that are commands of the agent itself which the user typed, or the output of such commands.
    #[must_use]
    pub fn agent_notes(&self) -> usize {
        let positions = self.history.messages.iter();
        let roles = positions.map(|position| self.index().entries[*position as usize].role);
        roles.filter(|role| *role == RecordRole::Aside).count()
    }

    /// Whether the last message is a text of the model that may end its reply: not a call, not an error, and not a text that
    /// the agent filled in.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn ends_with_reply(&mut self) -> Result<bool, TranscriptError> {
        let Some(last) = self.history.messages.last().copied() else {
            return Ok(false);
        };
        let ends = self.record(last as usize, |record, _| {
            record.has_kind("assistant") && !record.is_filler() && record.turn_end() != TurnEnd::Open
        })?;
        Ok(ends.unwrap_or(false))
    }

    fn index(&self) -> &ClaudeIndex {
        &self.history.index
    }

    /// The position of a message in the index.
    fn position(&self, message: usize) -> Option<usize> {
        let position = self.history.messages.get(message)?;
        Some(*position as usize)
    }

    /// Reads a record and its line. `None` if the transcript was changed and another record is at its offset.
    fn record<T>(
        &mut self,
        position: usize,
        tell: impl FnOnce(&Record<'_>, &[u8]) -> T,
    ) -> Result<Option<T>, TranscriptError> {
        let read = self.history.index.record_at(&mut self.reader, position, tell);
        read.map_err(TranscriptError::io("read", &self.path))
    }
}

impl<R: BufRead + Seek + Debug + Send> OpenTranscript for OpenClaudeTranscript<R> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn messages(&self) -> usize {
        self.history.messages.len()
    }

    fn loaded_messages(&mut self) -> Result<usize, TranscriptError> {
        let index = Arc::clone(&self.history.index);
        let Some(walk) = index.walk(None, false) else {
            return Ok(0);
        };
        let entries = &index.entries;
        let is_message = |position: &usize| entries[*position].role != RecordRole::Other;
        let loaded = walk.positions().filter(is_message).count();
        let first = walk.positions().next().unwrap_or_default();
        if matches!(entries.logical_parent(first), ParentLookup::None) {
            return Ok(loaded);
        }
        let kept = self.record(first, |record, _| {
            let metadata = record.fields.object("compactMetadata")?;
            let uuids = metadata.object("preservedMessages")?.array("uuids")?;
            let position_of = |uuid: &Json<'_>| {
                let uuid: String = serde_json::from_str(uuid.get()).ok()?;
                entries.find(&RecordId::new(&uuid))
            };
            let places = uuids.iter().filter_map(position_of);
            Some(
                places
                    .filter(|position| *position < first && is_message(position))
                    .count(),
            )
        })?;
        Ok(loaded + kept.flatten().unwrap_or(0))
    }

    fn turn_starts(&self) -> &[u32] {
        &self.history.turns
    }

    fn record_id(&self, message: usize) -> String {
        let position = self.position(message);
        position.map_or_else(String::new, |position| self.index().entries[position].id.text())
    }

    fn find(&self, _owner: &str, record_id: &str) -> Option<usize> {
        let (entries, id) = (&self.index().entries, RecordId::new(record_id));
        let mut messages = self.history.messages.iter();
        // If several records have this uuid, use the first one on the branch. The index finds the last one.
        if entries.has_duplicates() {
            return messages.position(|position| entries[*position as usize].id == id);
        }
        let position = entries.find(&id)?;
        let found = |message: &u32| (*message as usize).cmp(&position);
        self.history.messages.binary_search_by(found).ok()
    }

    fn offset(&self, message: usize) -> Option<u64> {
        let position = self.position(message)?;
        Some(self.index().entries[position].offset)
    }

    fn message(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        let Some(position) = self.position(message) else {
            return Ok(None);
        };
        let entries = &self.index().entries;
        let (id, role) = (entries[position].id.text(), entries[position].role);
        self.record(position, |record, line| {
            // A record without known content is reported as a whole.
            let parts = record
                .parts()
                .unwrap_or_else(|| vec![ContentPart::unknown_form(&line_text(line))]);
            let typed = match role {
                RecordRole::Prompt => parts.iter().filter_map(ContentPart::as_text).collect(),
                _ => Vec::new(),
            };
            TranscriptMessage {
                record_id: id,
                speaker: match record.has_kind("assistant") {
                    true => Speaker::Model,
                    false => Speaker::User,
                },
                kind: if role == RecordRole::Prompt {
                    TranscriptMessageKind::Prompt
                } else if record.is_filler() {
                    TranscriptMessageKind::Error
                } else if record.fields.flag("isCompactSummary") {
                    TranscriptMessageKind::Summary
                } else if record.has_kind("user")
                    && record.fields.raw("toolUseResult").is_none()
                    && !parts.iter().any(ContentPart::is_tool_result)
                {
                    TranscriptMessageKind::AgentNote
                } else {
                    TranscriptMessageKind::Ordinary
                },
                at: record.fields.text("timestamp"),
                typed: typed
                    .into_iter()
                    .map(|text| typed_text(text).to_owned())
                    .collect(),
                parts,
                copied_from: record.forked_from(),
                bytes: line.len() as u64,
            }
        })
    }

    /// Does not decode a tool's result.
    fn outline(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        let index = Arc::clone(&self.history.index);
        let is_result = |position: &usize| index.entries[*position].role == RecordRole::ToolResult;
        if let Some(position) = self.position(message).filter(is_result) {
            let id = index.entries[position].id.text();
            let answer = line_at(&mut self.reader, index.entries[position].offset, |line| {
                let is_here = memmem::find(line, id.as_bytes()).is_some();
                is_here.then(|| TranscriptMessage::tool_result_outline(id, line.len() as u64))
            });
            let answer = answer.map_err(TranscriptError::io("read", &self.path))?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        self.message(message)
    }

    fn losses(&self) -> Vec<Loss> {
        let compacted = self.history.cut_by_compaction.then_some(Loss::Compacted);
        let damage = damage_loss(self.history.damaged_records);
        damage.into_iter().chain(compacted).collect()
    }

    fn prompts(&self) -> Option<u64> {
        Some(self.index().prompts)
    }

    fn copied_turns(&self, last: &str) -> Option<usize> {
        if let Some(turn) = self.find("", last).and_then(|last| self.turn_of(last)) {
            return Some(turn + 1);
        }
        // The user went back to before this record. In the file, copied turns precede it and new ones follow it.
        let offset = self.index().offset_of(last)?;
        let has_begun = |start: &u32| self.offset(*start as usize).is_some_and(|begin| begin <= offset);
        Some(self.history.turns.partition_point(has_begun))
    }

    fn ends_torn(&self) -> bool {
        self.index().ends_torn
    }

    fn unknown_records(&self) -> u64 {
        self.history.unknown_records
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const LINES: [&str; 6] = [
        r#"{"type":"user","uuid":"s","parentUuid":null,"isCompactSummary":true,"message":{"content":"what was"}}"#,
        r#"{"type":"user","uuid":"u1","parentUuid":"s","origin":{"kind":"human"},"message":{"content":"one"}}"#,
        r#"{"type":"assistant","uuid":"a1","parentUuid":"u1","message":{"content":[{"type":"text","text":"1"}]}}"#,
        r#"{"type":"system","uuid":"x","parentUuid":"a1"}"#,
        r#"{"type":"user","uuid":"u2","parentUuid":"x","origin":{"kind":"human"},"message":{"content":"two"}}"#,
        r#"{"type":"assistant","uuid":"e","parentUuid":"u2","isApiErrorMessage":true,"message":{"content":"limit"},"forkedFrom":{"sessionId":"o","messageUuid":"m"}}"#,
    ];

    type Opened = OpenClaudeTranscript<Cursor<Vec<u8>>>;

    fn opened(text: &str, until: Option<&str>) -> Opened {
        let index = Arc::new(ClaudeIndex::read(text.as_bytes()).unwrap());
        let history = Arc::new(ClaudeHistory::read(&index, until).unwrap());
        OpenClaudeTranscript::new(Path::new(""), Cursor::new(text.into()), history)
    }

    /// Returns the same history over a file with other content.
    fn changed(book: &Opened, text: &str) -> Opened {
        let history = Arc::clone(&book.history);
        OpenClaudeTranscript::new(Path::new(""), Cursor::new(text.into()), history)
    }

    #[test]
    fn records_of_kinds_that_are_not_known_are_counted_on_the_branch_and_on_its_end() {
        let record = |kind: &str, uuid: &str, parent: &str| {
            format!(r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":"{parent}"}}"#)
        };
        let count = |lines: &[String], until| {
            let bytes = lines.join("\n");
            opened(&bytes, until).unknown_records()
        };
        let mut lines: Vec<String> = LINES.iter().map(|line| (*line).to_owned()).collect();
        for kind in crate::transcript::claude::record::CHAIN_KINDS {
            lines[3] = record(kind, "x", "a1");
            assert_eq!(count(&lines, None), 0, "{kind}");
        }
        lines[3] = LINES[3].replace(r#""type":"system","#, "");
        assert_eq!(count(&lines, None), 0, "one that does not say what it is");
        lines[3] = record("hologram", "x", "a1");
        assert_eq!((count(&lines, None), count(&lines, Some("a1"))), (1, 0));
        // Unknown records after the end of the branch count too, even after a known one; those on another branch do
        // not.
        lines.push(record("hologram", "h1", "e"));
        lines.push(record("system", "y", "h1"));
        lines.push(record("quantum", "q1", "y"));
        lines.push(record("hologram", "h2", "a1"));
        assert_eq!((count(&lines, None), count(&lines, Some("e"))), (3, 1));
        lines.push(record("hologram", "h3", "q1").replacen('{', r#"{"isSidechain":true,"#, 1));
        assert_eq!(count(&lines, None), 3, "a subagent's");
    }

    #[test]
    fn what_a_tool_answered_is_not_decoded_for_an_outline() {
        let result = |uuid: &str| {
            format!(
                r#"{{"type":"user","uuid":"{uuid}","parentUuid":"u1","toolUseResult":"x","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"much"}}]}}}}"#
            )
        };
        let bytes = [LINES[1], &result("r1"), &LINES[2].replace("u1", "r1")].join("\n");
        let book = opened(&bytes, None);
        let outline = |message, text: &str| changed(&book, text).outline(message).unwrap();
        let length = result("r1").len() as u64;
        let answer = TranscriptMessage::tool_result_outline("r1".to_owned(), length);
        assert_eq!(outline(1, &bytes), Some(answer));
        for message in [0, 2] {
            let whole = changed(&book, &bytes).message(message).unwrap();
            assert_eq!(outline(message, &bytes), whole);
        }
        // Another record is at that offset.
        assert_eq!(outline(1, &bytes.replace(&result("r1"), &result("r2"))), None);
    }

    #[test]
    fn a_transcript_that_changed_meanwhile_gives_nothing() {
        let bytes = LINES.join("\n");
        let book = opened(&bytes, None);
        for text in [
            String::new(),
            "x".repeat(bytes.len()),
            bytes.replace("\"e\"", "\"f\""),
        ] {
            assert_eq!(changed(&book, &text).message(4).unwrap(), None);
        }
        let empty = opened("", None);
        assert_eq!((empty.messages(), empty.turn_starts().len()), (0, 0));
    }
}
