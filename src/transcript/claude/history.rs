//! The messages and turns of a branch, which can be read one by one.
//!
//! Owns which records of an index are messages of the branch and which turn each belongs to, four bytes per message.
//! A message is decoded when it is requested. Pure over any buffered reader; knows neither files nor conversations.

use std::io::{self, BufRead, Seek};
use std::sync::Arc;

use memchr::memmem;

use super::Index;
use super::entries::Parent;
use super::facts::Role;
use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::Json;
use crate::transcript::indexes::IndexedBranch;
use crate::transcript::lines::line_text;
use crate::transcript::message::{Part, Speaker, TranscriptMessage, TranscriptMessageKind};
use crate::transcript::record_id::IdRef;

/// The messages of a branch.
#[derive(Debug, Default)]
pub struct ClaudeHistory {
    index: Arc<Index>,
    /// The positions of the messages in the index, ascending.
    messages: Vec<u32>,
    /// The index of the first message of each turn.
    turns: Vec<u32>,
    /// How many records name a parent that is missing. Something is lost at each of them.
    pub missing_parents: usize,
    /// How many records are damaged or missing.
    pub damaged_records: u64,
    /// How many records on the branch, or following its end, are of unknown kinds, so that the history omits them.
    pub unknown_records: u64,
    /// Whether the branch begins with a compaction whose earlier messages are not in this transcript.
    pub cut_by_compaction: bool,
}

impl ClaudeHistory {
    /// Reads the messages up to the record `until`, or of the live branch. `None` if there is no such record.
    ///
    /// # Errors
    /// The reader's error.
    pub fn read(reader: impl BufRead, until: Option<&str>) -> io::Result<Option<Self>> {
        Index::read(reader).map(|index| Self::of(&Arc::new(index), until))
    }

    /// The messages up to the record `until`, or of the live branch, of a transcript that was indexed. `None` if
    /// there is no such record.
    #[must_use]
    pub fn of(index: &Arc<Index>, until: Option<&str>) -> Option<Self> {
        let mut book = Self {
            index: Arc::clone(index),
            damaged_records: index.garbage_lines(),
            ..Self::default()
        };
        let Some(walk) = index.walk(until, true) else {
            return until.is_none().then_some(book);
        };
        for position in walk.positions() {
            let role = index.entries.role(position);
            if role == Role::Prompt {
                book.turns.push(book.messages.len() as u32);
            }
            if role != Role::Other || index.entries.is_steering(position) {
                // An index never has more entries than fit.
                book.messages.push(position as u32);
            }
        }
        book.messages.shrink_to_fit();
        book.turns.shrink_to_fit();
        book.missing_parents = walk.missing_parents;
        book.damaged_records = book.damaged_records.max(walk.missing_parents as u64);
        book.unknown_records = walk.unknown(&index.entries, until.is_none()) as u64;
        book.cut_by_compaction = walk.cut_by_compaction;
        Some(book)
    }

    /// The largest number of turns that may have been in the transcript. No limit if a compaction left the earlier messages
    /// elsewhere.
    #[must_use]
    pub fn max_turns(&self) -> u64 {
        match self.cut_by_compaction {
            true => u64::MAX,
            false => self.index.max_turns(),
        }
    }

    /// How many prompts the transcript has, abandoned branches included.
    #[must_use]
    pub fn prompts(&self) -> u64 {
        self.index.prompts()
    }

    /// Whether the transcript's last line is incomplete.
    #[must_use]
    pub fn ends_torn(&self) -> bool {
        self.index.ends_torn()
    }

    /// How many of the messages are the agent's own commands, which the user typed too, or their output.
    #[must_use]
    pub fn agent_notes(&self) -> usize {
        let roles = self
            .messages
            .iter()
            .map(|position| self.index.entries.role(*position as usize));
        roles.filter(|role| *role == Role::Aside).count()
    }

    /// Whether the last message is a text of the model that may end its reply: not a call, not an error, and not a text that
    /// the agent filled in.
    ///
    /// # Errors
    /// The reader's error.
    pub fn ends_with_reply(&self, reader: impl BufRead + Seek) -> io::Result<bool> {
        let Some(last) = self.messages.last() else {
            return Ok(false);
        };
        let ends = self.index.record_at(reader, *last as usize, |record, _| {
            record.has_kind("assistant") && !record.is_filler() && record.turn_end() != TurnEnd::Open
        })?;
        Ok(ends.unwrap_or(false))
    }

    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// How many messages of the live branch an agent loads: those after the last compaction, and those that the compaction
    /// kept.
    ///
    /// # Errors
    /// The reader's error.
    pub fn loaded_messages(&self, reader: impl BufRead + Seek) -> io::Result<usize> {
        let Some(walk) = self.index.walk(None, false) else {
            return Ok(0);
        };
        let entries = &self.index.entries;
        let is_message = |position: &usize| entries.role(*position) != Role::Other;
        let behind = walk.positions().filter(is_message).count();
        let first = walk.positions().next().unwrap_or_default();
        if matches!(entries.logical_parent(first), Parent::None) {
            return Ok(behind);
        }
        let kept = self.index.record_at(reader, first, |record, _| {
            let metadata = record.fields.object("compactMetadata")?;
            let uuids = metadata.object("preservedMessages")?.array("uuids")?;
            let place = |uuid: &Json<'_>| {
                let uuid: String = serde_json::from_str(uuid.get()).ok()?;
                entries.find(IdRef::new(&uuid))
            };
            let places = uuids.iter().filter_map(place);
            Some(places.filter(|place| *place < first && is_message(place)).count())
        })?;
        Ok(behind + kept.flatten().unwrap_or(0))
    }

    /// The uuid of a message's record. Empty if there is no such message.
    #[must_use]
    pub fn uuid(&self, message: usize) -> String {
        let position = self.messages.get(message);
        position.map_or_else(String::new, |position| self.id(*position).text())
    }

    /// The offset of a message's record. `None` if there is no such message.
    #[must_use]
    pub fn offset(&self, message: usize) -> Option<u64> {
        let position = self.messages.get(message)?;
        Some(self.index.entries.offset(*position as usize))
    }

    /// How many turns, of all branches, begin at or before a record in the file. `None` if there is no such record.
    #[must_use]
    pub fn turns_begun_until(&self, uuid: &str) -> Option<usize> {
        let offset = self.index.offset_of(uuid)?;
        let has_begun = |start: &u32| self.offset(*start as usize).is_some_and(|begin| begin <= offset);
        Some(self.turns.partition_point(has_begun))
    }

    /// The message whose record has this uuid.
    #[must_use]
    pub fn find(&self, uuid: &str) -> Option<usize> {
        let id = IdRef::new(uuid);
        // If several records have this uuid, the first one on the branch counts, but the index finds the last one.
        if self.index.entries.has_duplicates() {
            return self.messages.iter().position(|position| self.id(*position) == id);
        }
        let position = self.index.entries.find(id)?;
        let found = |message: &u32| (*message as usize).cmp(&position);
        self.messages.binary_search_by(found).ok()
    }

    fn id(&self, position: u32) -> IdRef<'_> {
        self.index.entries.id(position as usize)
    }

    /// Reads a message. `None` if the transcript was changed and another record is at its offset.
    ///
    /// # Errors
    /// The reader's error.
    pub fn message(
        &self,
        reader: impl BufRead + Seek,
        message: usize,
    ) -> io::Result<Option<TranscriptMessage>> {
        let Some(position) = self.messages.get(message).map(|position| *position as usize) else {
            return Ok(None);
        };
        self.index.record_at(reader, position, |record, line| {
            // A record without known content is reported as a whole.
            let parts = record
                .parts()
                .unwrap_or_else(|| vec![Part::unknown_form(&line_text(line))]);
            TranscriptMessage {
                record_id: self.index.entries.id(position).text(),
                speaker: match record.has_kind("assistant") {
                    true => Speaker::Model,
                    false => Speaker::User,
                },
                kind: if self.index.entries.role(position) == Role::Prompt {
                    TranscriptMessageKind::Prompt
                } else if record.is_filler() {
                    TranscriptMessageKind::Error
                } else if record.fields.flag("isCompactSummary") {
                    TranscriptMessageKind::Summary
                } else if record.has_kind("user")
                    && record.fields.raw("toolUseResult").is_none()
                    && !parts.iter().any(Part::is_tool_result)
                {
                    TranscriptMessageKind::AgentNote
                } else {
                    TranscriptMessageKind::Ordinary
                },
                at: record.fields.text("timestamp"),
                parts,
                copied_from: record.forked_from(),
                bytes: line.len() as u64,
            }
        })
    }

    /// As [`ClaudeHistory::message`], but a tool's result is not decoded and only has a length.
    ///
    /// # Errors
    /// The reader's error.
    pub fn outline(
        &self,
        mut reader: impl BufRead + Seek,
        message: usize,
    ) -> io::Result<Option<TranscriptMessage>> {
        let position = self.messages.get(message).map(|position| *position as usize);
        if let Some(position) = position
            && self.index.entries.role(position) == Role::ToolResult
        {
            let id = self.index.entries.id(position).text();
            let answer = self.index.line_at(&mut reader, position, |line| {
                let is_here = memmem::find(line, id.as_bytes()).is_some();
                is_here.then(|| TranscriptMessage::tool_result_outline(id, line.len() as u64))
            })?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        self.message(reader, message)
    }
}

impl IndexedBranch for ClaudeHistory {
    type Index = Index;

    fn of(index: &Arc<Index>, until: Option<&str>) -> Option<Self> {
        Self::of(index, until)
    }

    fn turn_starts(&self) -> &[u32] {
        &self.turns
    }

    fn memory_bytes(&self) -> usize {
        (self.messages.capacity() + self.turns.capacity()) * size_of::<u32>()
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

    #[test]
    fn records_of_kinds_that_are_not_known_are_counted_on_the_branch_and_on_its_end() {
        let record = |kind: &str, uuid: &str, parent: &str| {
            format!(r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":"{parent}"}}"#)
        };
        let count = |lines: &[String], until| {
            let bytes = lines.join("\n");
            ClaudeHistory::read(bytes.as_bytes(), until)
                .unwrap()
                .unwrap()
                .unknown_records
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
        // On its end, also behind a record that is known; but not on another branch.
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
        let book = ClaudeHistory::read(bytes.as_bytes(), None).unwrap().unwrap();
        let outline = |message, text: &str| book.outline(Cursor::new(text), message).unwrap();
        let length = result("r1").len() as u64;
        let answer = TranscriptMessage::tool_result_outline("r1".to_owned(), length);
        assert_eq!(outline(1, &bytes), Some(answer));
        for message in [0, 2] {
            let whole = book.message(Cursor::new(&bytes), message).unwrap();
            assert_eq!(outline(message, &bytes), whole);
        }
        // Another record stands there.
        assert_eq!(outline(1, &bytes.replace(&result("r1"), &result("r2"))), None);
    }

    #[test]
    fn a_transcript_that_changed_meanwhile_gives_nothing() {
        let bytes = LINES.join("\n");
        let book = ClaudeHistory::read(bytes.as_bytes(), None).unwrap().unwrap();
        for changed in [
            String::new(),
            "x".repeat(bytes.len()),
            bytes.replace("\"e\"", "\"f\""),
        ] {
            assert_eq!(book.message(Cursor::new(changed), 4).unwrap(), None);
        }
        let empty = ClaudeHistory::read(&b""[..], None).unwrap().unwrap();
        assert_eq!((empty.messages(), empty.turn_starts().len()), (0, 0));
    }
}
