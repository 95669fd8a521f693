//! A branch of a transcript as messages and turns that can be read one by one.
//!
//! Owns where each message stands and which turn it belongs to, some tens of bytes a message; a message is decoded when
//! it is asked for. Pure over any buffered reader; knows neither files nor conversations.

use std::io::{self, BufRead, Seek, SeekFrom};
use std::ops::Range;

use super::{Index, Place};
use crate::transcript::lines::Lines;
use crate::transcript::record::{Block, Record, RecordHeader, RecordKind, SYNTHETIC_MODEL, line_text};

/// The messages of a branch.
#[derive(Debug, Default)]
pub struct Book {
    places: Vec<Place>,
    /// At which of the places each turn begins.
    turns: Vec<usize>,
    /// How many records are damaged or gone.
    pub damages: u64,
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

impl Book {
    /// Reads where the messages stand, up to the record `until` or of the live branch. None when there is no such record.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read(reader: impl BufRead, until: Option<&str>) -> io::Result<Option<Self>> {
        Index::read(reader).map(|index| Self::of(&index, until))
    }

    /// Where the messages stand in a transcript whose index is known, up to the record `until` or of the live branch.
    /// None when there is no such record.
    #[must_use]
    pub fn of(index: &Index, until: Option<&str>) -> Option<Self> {
        let Some(selection) = index.select(until, true) else {
            let empty = Self {
                damages: index.garbage_lines(),
                ..Self::default()
            };
            return until.is_none().then_some(empty);
        };
        let places = index.places(&selection);
        let begins = places.iter().enumerate().filter(|(_, place)| place.is_prompt);
        Some(Self {
            turns: begins.map(|(number, _)| number).collect(),
            damages: index.garbage_lines().max(selection.breaks() as u64),
            cut_by_compaction: selection.cut_by_compaction(),
            places,
        })
    }

    /// About how much memory this takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.turns.capacity() * size_of::<usize>()
    }

    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.places.len()
    }

    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The messages of a turn; of one that is not there none.
    #[must_use]
    pub fn turn(&self, turn: usize) -> Range<usize> {
        let end = self.places.len();
        let start = self.turns.get(turn).copied().unwrap_or(end);
        start..self.turns.get(turn + 1).copied().unwrap_or(end)
    }

    /// The turn that a message belongs to; none before the first.
    #[must_use]
    pub fn turn_of(&self, message: usize) -> Option<usize> {
        self.turns
            .partition_point(|start| *start <= message)
            .checked_sub(1)
    }

    /// The uuid of a message's record; empty when it is not there.
    #[must_use]
    pub fn uuid(&self, message: usize) -> String {
        self.places.get(message).map(Place::uuid).unwrap_or_default()
    }

    /// The uuid of the last record of a turn.
    #[must_use]
    pub fn end_of_turn(&self, turn: usize) -> String {
        self.uuid(self.turn(turn).end.saturating_sub(1))
    }

    /// The message whose record has this uuid.
    #[must_use]
    pub fn find(&self, uuid: &str) -> Option<usize> {
        self.places.iter().position(|place| place.is(uuid))
    }

    /// Reads a message. None when the transcript has changed under the reader and something else stands there.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn message<R: BufRead + Seek>(
        &self,
        mut reader: R,
        message: usize,
    ) -> io::Result<Option<BookMessage>> {
        let Some(place) = self.places.get(message) else {
            return Ok(None);
        };
        reader.seek(SeekFrom::Start(place.offset))?;
        let mut lines = Lines::new(reader, place.offset);
        let Some(line) = lines.next_line()? else {
            return Ok(None);
        };
        let text = line_text(line.bytes);
        let Some(record) = Record::parse(&text) else {
            return Ok(None);
        };
        let header = record.header();
        if !header.uuid.as_deref().is_some_and(|uuid| place.is(uuid)) {
            return Ok(None);
        }
        let (model, blocks) = record
            .message()
            .map(|message| (message.model, message.blocks))
            .unwrap_or_default();
        Ok(Some(BookMessage {
            is_prompt: place.is_prompt,
            is_filler: header.kind == RecordKind::Assistant
                && (header.is_api_error_message || model.as_deref() == Some(SYNTHETIC_MODEL)),
            header,
            blocks,
            bytes: line.bytes.len() as u64,
        }))
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
        assert_eq!(book.end_of_turn(0), "a1");
        let error = book.message(Cursor::new(&bytes), 4).unwrap().unwrap();
        assert!(error.is_filler);
        assert_eq!(error.header.forked_from, Some(("o".to_owned(), "m".to_owned())));
        assert_eq!(error.bytes, LINES[5].len() as u64);
        let cut = Book::read(bytes.as_bytes(), Some("a1")).unwrap().unwrap();
        assert_eq!(cut.messages(), 3);
        assert!(Book::read(bytes.as_bytes(), Some("nowhere")).unwrap().is_none());
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
