//! A branch of a transcript as messages and turns that can be read one by one.
//!
//! Owns which records of an index are its messages and which turn each belongs to, four bytes a message; a message is
//! decoded when it is asked for. Pure over any buffered reader; knows neither files nor conversations.

use std::io::{self, BufRead, Seek};
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use super::Index;
use super::entries::Parent;
use super::facts::{IdRef, Role};
use crate::transcript::claude::record::{Block, Record, RecordHeader, RecordKind, SYNTHETIC_MODEL};
use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::{Fields, Json};
use crate::transcript::indexes::IndexedBranch;
use crate::transcript::lines::{Lines, go_to, line_text};

/// The messages of a branch.
#[derive(Debug, Default)]
pub struct Book {
    index: Arc<Index>,
    /// Where the messages stand in the index, ascending.
    messages: Vec<u32>,
    /// With which of the messages each turn begins.
    turns: Vec<u32>,
    /// How often a parent is named that is not there: each time something is lost.
    pub breaks: usize,
    /// How many records are damaged or gone.
    pub damages: u64,
    /// How many records on the branch, or on its end, are of kinds that are not known, so that what they say is not told.
    pub unknown: u64,
    /// Whether the branch begins with a compaction whose past is not in this transcript.
    pub cut_by_compaction: bool,
}

/// One message as its record has it.
#[derive(Debug, Clone, PartialEq)]
pub struct BookMessage {
    /// What stands around it.
    pub header: RecordHeader,
    /// What it says.
    pub blocks: Vec<Block>,
    /// Whether it is a prompt, with which a turn begins.
    pub is_prompt: bool,
    /// Whether it stands in place of a reply: an error of the model's server, or what the agent filled in.
    pub is_filler: bool,
    /// How long its record is, in bytes.
    pub bytes: u64,
}

/// What a summary of a turn needs of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outline {
    /// The message.
    Message(Box<BookMessage>),
    /// What a tool answered, whatever it says.
    Result {
        /// How long its record is, in bytes.
        bytes: u64,
    },
}

impl Book {
    /// Reads where the messages stand, up to the record `until` or of the live branch. None when there is no such record.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read(reader: impl BufRead, until: Option<&str>) -> io::Result<Option<Self>> {
        Index::read(reader).map(|index| Self::of(&Arc::new(index), until))
    }

    /// Where the messages stand in a transcript whose index is known, up to the record `until` or of the live branch.
    /// None when there is no such record.
    #[must_use]
    pub fn of(index: &Arc<Index>, until: Option<&str>) -> Option<Self> {
        let mut book = Self {
            index: Arc::clone(index),
            damages: index.garbage_lines(),
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
            if role != Role::Other {
                // An index has no more entries than that.
                book.messages.push(position as u32);
            }
        }
        book.messages.shrink_to_fit();
        book.turns.shrink_to_fit();
        book.breaks = walk.breaks;
        book.damages = book.damages.max(walk.breaks as u64);
        book.unknown = walk.unknown(&index.entries, until.is_none()) as u64;
        book.cut_by_compaction = walk.cut_by_compaction;
        Some(book)
    }

    /// The most turns that may ever have stood in the transcript; no limit where a compaction left its past elsewhere.
    #[must_use]
    pub fn turns_at_most(&self) -> u64 {
        match self.cut_by_compaction {
            true => u64::MAX,
            false => self.index.turns_at_most(),
        }
    }

    /// How many prompts the transcript has, those of abandoned branches too.
    #[must_use]
    pub fn prompts(&self) -> u64 {
        self.index.prompts()
    }

    /// Whether the transcript's last line breaks off.
    #[must_use]
    pub fn ends_torn(&self) -> bool {
        self.index.ends_torn()
    }

    /// How many of the messages are neither prompts nor results, nor written by the agent for itself: commands of the agent's
    /// own, which a person typed as well, and their output.
    #[must_use]
    pub fn asides(&self) -> usize {
        let roles = self
            .messages
            .iter()
            .map(|position| self.index.entries.role(*position as usize));
        roles.filter(|role| *role == Role::Aside).count()
    }

    /// Whether the last message is a text of the model with which its reply may have come to its end: no call, no error, and
    /// nothing that the agent filled in.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn ends_with_reply<R: BufRead + Seek>(&self, reader: R) -> io::Result<bool> {
        let Some(last) = self.messages.len().checked_sub(1) else {
            return Ok(false);
        };
        let ends = self.line(reader, last, |position, line| {
            let message = self.decoded(position, line)?;
            let is_reply = message.header.kind == RecordKind::Assistant && !message.is_filler;
            let text = line_text(line);
            Some(is_reply && Record::parse(&text)?.turn_end() != TurnEnd::Open)
        })?;
        Ok(ends.unwrap_or(false))
    }

    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// How many messages of the live branch an agent loads: those that no compaction has replaced, and those before it that
    /// its record says to be kept.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn loaded_messages<R: BufRead + Seek>(&self, reader: R) -> io::Result<usize> {
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
        let kept = self.line_at(reader, first, |line| {
            let text = line_text(line);
            let metadata = Fields::parse(&text)?.object("compactMetadata")?;
            let uuids = metadata.object("preservedMessages")?.array("uuids")?;
            let place = |uuid: &Json<'_>| {
                let uuid: String = serde_json::from_str(uuid.get()).ok()?;
                entries.find(IdRef::new(&uuid))
            };
            let places = uuids.iter().filter_map(place);
            Some(places.filter(|place| *place < first && is_message(place)).count())
        })?;
        Ok(behind + kept.unwrap_or(0))
    }

    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The messages of a turn; of one that is not there none.
    #[must_use]
    pub fn turn(&self, turn: usize) -> Range<usize> {
        let start_of = |turn: usize| self.turns.get(turn).map(|start| *start as usize);
        let end = self.messages.len();
        start_of(turn).unwrap_or(end)..start_of(turn + 1).unwrap_or(end)
    }

    /// The turn that a message belongs to; none before the first.
    #[must_use]
    pub fn turn_of(&self, message: usize) -> Option<usize> {
        self.turns
            .partition_point(|start| *start as usize <= message)
            .checked_sub(1)
    }

    /// The uuid of a message's record; empty when it is not there.
    #[must_use]
    pub fn uuid(&self, message: usize) -> String {
        let position = self.messages.get(message);
        position.map_or_else(String::new, |position| self.id(*position).text())
    }

    /// Where the first record of a turn begins; none when there is no such turn.
    #[must_use]
    pub fn begin_offset(&self, turn: usize) -> Option<u64> {
        let first = self.messages.get(self.turn(turn).start)?;
        Some(self.index.entries.offset(*first as usize))
    }

    /// Where the last record of a turn begins; none when there is no such turn.
    #[must_use]
    pub fn end_offset(&self, turn: usize) -> Option<u64> {
        let last = self.messages.get(self.turn(turn).next_back()?)?;
        Some(self.index.entries.offset(*last as usize))
    }

    /// How many turns begin with a record or before it in the file, on whatever branch that stands; none when there is no such record.
    #[must_use]
    pub fn turns_begun_by(&self, uuid: &str) -> Option<usize> {
        let offset = self.index.offset_of(uuid)?;
        let has_begun = |start: &u32| {
            let position = self.messages.get(*start as usize);
            position.is_some_and(|position| self.index.entries.offset(*position as usize) <= offset)
        };
        Some(self.turns.partition_point(has_begun))
    }

    /// The message whose record has this uuid.
    #[must_use]
    pub fn find(&self, uuid: &str) -> Option<usize> {
        let id = IdRef::new(uuid);
        // Of several with one uuid the first on the branch is meant, and the index finds the last.
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

    /// Reads a message. None when the transcript has changed under the reader and something else stands there.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn message<R: BufRead + Seek>(&self, reader: R, message: usize) -> io::Result<Option<BookMessage>> {
        self.line(reader, message, |position, line| self.decoded(position, line))
    }

    /// As [`Book::message`], but what a tool answered is not decoded: of it only the length is told.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn outline<R: BufRead + Seek>(&self, reader: R, message: usize) -> io::Result<Option<Outline>> {
        self.line(reader, message, |position, line| {
            let is_result = self.index.entries.role(position as usize) == Role::ToolResult;
            let is_here = || memmem::find(line, self.id(position).text().as_bytes()).is_some();
            if is_result && is_here() {
                let bytes = line.len() as u64;
                return Some(Outline::Result { bytes });
            }
            let message = self.decoded(position, line)?;
            Some(Outline::Message(Box::new(message)))
        })
    }

    /// Reads the line of a message, and has it told by its position in the index.
    fn line<R: BufRead + Seek, T>(
        &self,
        reader: R,
        message: usize,
        tell: impl FnOnce(u32, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        match self.messages.get(message).copied() {
            Some(position) => self.line_at(reader, position as usize, |line| tell(position, line)),
            None => Ok(None),
        }
    }

    fn line_at<R: BufRead + Seek, T>(
        &self,
        mut reader: R,
        position: usize,
        tell: impl FnOnce(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let offset = self.index.entries.offset(position);
        go_to(&mut reader, offset)?;
        let mut lines = Lines::new(reader, offset);
        let line = lines.next_line()?;
        Ok(line.and_then(|line| tell(line.bytes)))
    }

    fn decoded(&self, position: u32, line: &[u8]) -> Option<BookMessage> {
        let text = line_text(line);
        let record = Record::parse(&text)?;
        let header = record.header();
        if header.uuid.as_deref().map(IdRef::new) != Some(self.id(position)) {
            return None;
        }
        let (model, blocks) = match record.message() {
            Some(message) => (message.model, message.blocks),
            // Whatever it says stands elsewhere in it.
            None => (None, vec![Block::whole(&text)]),
        };
        Some(BookMessage {
            is_prompt: self.index.entries.role(position as usize) == Role::Prompt,
            is_filler: header.kind == RecordKind::Assistant
                && (header.is_api_error_message || model.as_deref() == Some(SYNTHETIC_MODEL)),
            header,
            blocks,
            bytes: line.len() as u64,
        })
    }
}

impl IndexedBranch for Book {
    type Index = Index;

    fn of(index: &Arc<Index>, until: Option<&str>) -> Option<Self> {
        Self::of(index, until)
    }

    fn turns(&self) -> usize {
        self.turns()
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
    fn messages_and_turns_are_found_by_number_and_by_uuid() {
        let bytes = LINES.join("\n");
        let book = Book::read(bytes.as_bytes(), None).unwrap().unwrap();
        assert_eq!((book.messages(), book.turns(), book.damages), (5, 2, 0));
        assert_eq!((book.turn(0), book.turn(1), book.turn(2)), (1..3, 3..5, 5..5));
        assert_eq!(
            [0, 1, 2, 3].map(|message| book.turn_of(message)),
            [None, Some(0), Some(0), Some(1)]
        );
        assert_eq!((book.find("u2"), book.find("x")), (Some(3), None));
        let error = book.message(Cursor::new(&bytes), 4).unwrap().unwrap();
        assert!(error.is_filler);
        assert_eq!(error.header.forked_from, Some(("o".to_owned(), "m".to_owned())));
        assert_eq!(error.bytes, LINES[5].len() as u64);
        let cut = Book::read(bytes.as_bytes(), Some("a1")).unwrap().unwrap();
        assert_eq!(cut.messages(), 3);
        assert!(Book::read(bytes.as_bytes(), Some("nowhere")).unwrap().is_none());
    }

    #[test]
    fn records_of_kinds_that_are_not_known_are_counted_on_the_branch_and_on_its_end() {
        let record = |kind: &str, uuid: &str, parent: &str| {
            format!(r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":"{parent}"}}"#)
        };
        let count = |lines: &[String], until| {
            let bytes = lines.join("\n");
            Book::read(bytes.as_bytes(), until).unwrap().unwrap().unknown
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
        let book = Book::read(bytes.as_bytes(), None).unwrap().unwrap();
        let outline = |message, text: &str| book.outline(Cursor::new(text), message).unwrap();
        let length = result("r1").len() as u64;
        assert_eq!(outline(1, &bytes), Some(Outline::Result { bytes: length }));
        for message in [0, 2] {
            let whole = book.message(Cursor::new(&bytes), message).unwrap();
            assert_eq!(
                outline(message, &bytes),
                whole.map(Box::new).map(Outline::Message)
            );
        }
        // Another record stands there.
        assert_eq!(outline(1, &bytes.replace(&result("r1"), &result("r2"))), None);
    }

    #[test]
    fn a_transcript_that_changed_meanwhile_gives_nothing() {
        let bytes = LINES.join("\n");
        let book = Book::read(bytes.as_bytes(), None).unwrap().unwrap();
        for changed in [
            String::new(),
            "x".repeat(bytes.len()),
            bytes.replace("\"e\"", "\"f\""),
        ] {
            assert_eq!(book.message(Cursor::new(changed), 4).unwrap(), None);
        }
        let empty = Book::read(&b""[..], None).unwrap().unwrap();
        assert_eq!((empty.messages(), empty.turns()), (0, 0));
    }
}
