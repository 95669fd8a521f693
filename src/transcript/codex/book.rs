//! The history of a Codex session as messages and turns that can be read one by one, over all files that hold it.
//!
//! A fork holds its own turns only and continues another session's file up to a record, so one history may begin in
//! several files; each is a part here. Owns where each message stands and which turn it belongs to, in some tens of bytes
//! a message; a message is decoded when it is asked for (`item`). Pure over any buffered readers; how a part is found is
//! not known here.
//!
//! Names of places: a turn is named by the agent's own `turn_id`, a message by its ordinal (`o17`). Neither changes when
//! the file is moved, archived or compressed, and a fork by reference has the same records. Versions that wrote no turn
//! ids get `t3`, the third prompt of the file, and without ordinals `l17`, the line: a rollout is only ever appended to.

use std::io::{self, BufRead, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};

use super::item::{self, is_message, is_prompt};
use super::line::{LineKind, Meta, RolloutLine};
use crate::transcript::lines::{Lines, text_of_same_length, trimmed};
use crate::transcript::message::TranscriptMessage;
use crate::transcript::record::line_text;

/// Where a part of a history ends, in the file of a session that another one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// The ordinal of the first record that does not count.
    pub ordinal: Option<u64>,
    /// The offset of that record, uncompressed; counts where there are no ordinals.
    pub offset: Option<u64>,
}

impl Cut {
    /// Whether the record that begins at `offset` lies behind it.
    fn excludes(&self, ordinal: Option<u64>, offset: u64) -> bool {
        match (ordinal, self.ordinal) {
            (Some(ordinal), Some(end)) => ordinal >= end,
            _ => self.offset.is_some_and(|end| offset >= end),
        }
    }
}

/// Where one message stands.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    /// Its ordinal, or its line in a file without ordinals.
    number: u32,
    part: u16,
    is_ordinal: bool,
    sort: EntrySort,
}

/// What a message is, as far as the lines around it say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySort {
    Prompt,
    Item,
    /// Said by the model while it compacted, with nobody having asked.
    Aside,
    Summary,
    Failure,
}

#[derive(Debug)]
struct Turn {
    /// Its first message.
    start: usize,
    /// Its name in the file.
    id: Box<str>,
    /// The part in which it began.
    part: u16,
}

/// The messages of a history.
#[derive(Debug, Default)]
pub struct Book {
    /// The session of each part, the oldest first.
    parts: Vec<String>,
    entries: Vec<Entry>,
    turns: Vec<Turn>,
    /// What the first line of the last part said.
    pub meta: Meta,
    /// What a person called the session.
    pub title: Option<String>,
    /// The folder that the last turn ran in.
    pub cwd: Option<String>,
    /// How many records are damaged or gone.
    pub damages: u64,
}

/// Reads the parts of a history one after another, the oldest first.
#[derive(Debug, Default)]
pub struct BookBuilder {
    book: Book,
    /// The turn with which to end, and the part that it is in.
    until: Option<(u16, String)>,
    /// The turn that runs, as far as the file says, its first message, and whether somebody has asked by now.
    current: Option<String>,
    pending: usize,
    asked: bool,
    /// The prompts of this part, for turns without ids.
    prompts: u64,
    reached: bool,
}

impl BookBuilder {
    /// A history that ends with the turn `until` of its last part, which is the part of that number, or goes on to its end.
    #[must_use]
    pub fn new(until: Option<(u16, &str)>) -> Self {
        Self {
            until: until.map(|(part, id)| (part, id.to_owned())),
            ..Self::default()
        }
    }

    /// Reads a part: the file of the session `upstream_id` up to `cut`. A compressed file that breaks off counts as far as it goes.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn part(&mut self, reader: impl BufRead, upstream_id: &str, cut: Cut) -> io::Result<()> {
        self.book.parts.push(upstream_id.to_owned());
        self.book.meta = Meta::default();
        (self.current, self.prompts) = (None, 0);
        self.open_turn();
        let mut lines = Lines::new(reader, 0);
        let (mut line_number, mut last_ordinal) = (0, None);
        let mut is_behind = false;
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.book.damages += 1;
                    break;
                }
                Err(error) => return Err(error),
            };
            line_number += 1;
            let bytes = trimmed(line.bytes);
            if bytes.is_empty() && !line.oversized {
                continue;
            }
            let text = text_of_same_length(bytes);
            let Some(record) = RolloutLine::parse(&text) else {
                if cut.offset.is_none_or(|end| line.offset < end) && line.ended {
                    self.book.damages += 1;
                }
                continue;
            };
            if cut.excludes(record.ordinal, line.offset) {
                is_behind = true;
                break;
            }
            last_ordinal = record.ordinal.or(last_ordinal);
            if self.take(line.offset, line_number, &record).is_break() {
                self.reached = true;
                return Ok(());
            }
        }
        // The source may end exactly where the fork was made; one that ends before has lost something.
        let end = cut.ordinal.filter(|_| !is_behind);
        if end.is_some_and(|end| last_ordinal.is_none_or(|last| last + 1 < end)) {
            self.book.damages += 1;
        }
        Ok(())
    }

    /// The history; none when the turn with which it was to end is not in it.
    #[must_use]
    pub fn finish(mut self) -> Option<Book> {
        if let Some((part, id)) = self.until.take()
            && !self.reached
        {
            let last = self.book.turns.last()?;
            if last.part != part || *last.id != *id {
                return None;
            }
        }
        Some(self.book)
    }

    fn part_number(&self) -> u16 {
        u16::try_from(self.book.parts.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    fn open_turn(&mut self) {
        self.pending = self.book.entries.len();
        self.asked = false;
    }

    /// Whether the turn with which to end is the last one so far.
    fn is_at_end(&self) -> bool {
        let last = self.book.turns.last();
        let wanted = self.until.as_ref();
        wanted.is_some_and(|(part, id)| last.is_some_and(|last| last.part == *part && *last.id == **id))
    }

    fn take(&mut self, offset: u64, line: u64, record: &RolloutLine<'_>) -> ControlFlow<()> {
        let event = match record.kind {
            LineKind::Event => record.payload.text("type"),
            _ => None,
        };
        let event = event.as_deref();
        let begins = match record.kind {
            LineKind::Item | LineKind::Context => true,
            LineKind::Event => event == Some("task_started"),
            _ => false,
        };
        let is_prompt = record.kind == LineKind::Item && is_prompt(&record.payload);
        if let Some(id) = record.turn_id().filter(|_| begins)
            && self.current.as_deref() != Some(&id)
        {
            if self.is_at_end() {
                return ControlFlow::Break(());
            }
            self.current = Some(id);
            self.open_turn();
        }
        match (record.kind, event) {
            (LineKind::Meta, _) => {
                // Versions that copied put the metadata of the session that was forked behind the fork's own.
                if self.book.meta == Meta::default() {
                    self.book.meta = record.meta();
                }
            }
            (LineKind::Context, _) => self.book.cwd = record.payload.text("cwd").or(self.book.cwd.take()),
            (LineKind::Item, _) if is_prompt => {
                self.prompts += 1;
                if !self.asked || self.current.is_none() {
                    if self.is_at_end() {
                        return ControlFlow::Break(());
                    }
                    self.begin_turn();
                }
                self.push(offset, line, record, EntrySort::Prompt);
            }
            (LineKind::Item, _) if is_message(&record.payload) => {
                self.push(offset, line, record, EntrySort::Item);
            }
            (LineKind::Compacted, _) => {
                if !self.asked && self.current.is_some() {
                    for entry in &mut self.book.entries[self.pending..] {
                        entry.sort = EntrySort::Aside;
                    }
                }
                self.push(offset, line, record, EntrySort::Summary);
            }
            (LineKind::Event, Some("thread_rolled_back")) => {
                if self.is_at_end() {
                    return ControlFlow::Break(());
                }
                self.roll_back(super::line::number(&record.payload, "num_turns").unwrap_or(0));
            }
            (LineKind::Event, Some("thread_name_updated")) => {
                self.book.title = record.payload.text("thread_name").or(self.book.title.take());
            }
            (LineKind::Event, Some("error")) => self.push(offset, line, record, EntrySort::Failure),
            (LineKind::Event, Some("task_complete")) if record.payload.object("error").is_some() => {
                self.push(offset, line, record, EntrySort::Failure);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn begin_turn(&mut self) {
        let id = match &self.current {
            Some(id) => id.as_str().into(),
            None => {
                // What stands before the prompt belongs to the turn before.
                self.pending = self.book.entries.len();
                format!("t{}", self.prompts).into()
            }
        };
        self.asked = true;
        let turn = Turn {
            start: self.pending,
            id,
            part: self.part_number(),
        };
        self.book.turns.push(turn);
    }

    fn push(&mut self, offset: u64, line: u64, record: &RolloutLine<'_>, sort: EntrySort) {
        let number = record.ordinal.unwrap_or(line);
        self.book.entries.push(Entry {
            offset,
            number: u32::try_from(number).unwrap_or(u32::MAX),
            part: self.part_number(),
            is_ordinal: record.ordinal.is_some(),
            sort,
        });
    }

    /// The person went back behind the last turns, which leaves them in the file.
    fn roll_back(&mut self, turns: u64) {
        let left = self.book.turns.len() as u64;
        let kept = usize::try_from(left.saturating_sub(turns)).unwrap_or(0);
        if let Some(first) = self.book.turns.get(kept) {
            self.book.entries.truncate(first.start);
            self.book.turns.truncate(kept);
        }
        self.current = None;
        self.open_turn();
    }
}

impl Book {
    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The messages of a turn; of one that is not there none.
    #[must_use]
    pub fn turn(&self, turn: usize) -> Range<usize> {
        let end = self.entries.len();
        let start_of = |turn: usize| self.turns.get(turn).map_or(end, |turn| turn.start);
        start_of(turn)..start_of(turn + 1)
    }

    /// The turn that a message belongs to; none before the first.
    #[must_use]
    pub fn turn_of(&self, message: usize) -> Option<usize> {
        let begun = self.turns.partition_point(|turn| turn.start <= message);
        begun.checked_sub(1)
    }

    /// The name of a message's record within its file; empty when it is not there.
    #[must_use]
    pub fn record_id(&self, message: usize) -> String {
        self.entries
            .get(message)
            .map(Entry::record_id)
            .unwrap_or_default()
    }

    /// The part that a message stands in.
    #[must_use]
    pub fn part_of(&self, message: usize) -> usize {
        self.entries
            .get(message)
            .map_or(0, |entry| usize::from(entry.part))
    }

    /// The session whose file holds a message.
    #[must_use]
    pub fn owner(&self, message: usize) -> Option<&str> {
        self.parts.get(self.part_of(message)).map(String::as_str)
    }

    /// The name of a turn in its file, and the session whose file that is.
    #[must_use]
    pub fn turn_name(&self, turn: usize) -> Option<(&str, &str)> {
        let turn = self.turns.get(turn)?;
        Some((&turn.id, self.parts.get(usize::from(turn.part))?))
    }

    /// A message of the session `owner` by the name of its record, or the last one of a turn by the turn's name.
    #[must_use]
    pub fn find(&self, owner: &str, record_id: &str) -> Option<usize> {
        let is_owner = |part: u16| self.parts.get(usize::from(part)).is_some_and(|own| own == owner);
        let turn = self
            .turns
            .iter()
            .rposition(|turn| *turn.id == *record_id && is_owner(turn.part));
        if let Some(turn) = turn {
            return self.turn(turn).end.checked_sub(1);
        }
        let (mark, number) = record_id.split_at_checked(1)?;
        let number: u32 = number.parse().ok()?;
        self.entries
            .iter()
            .position(|entry| {
                entry.number == number && (mark == "o") == entry.is_ordinal && is_owner(entry.part)
            })
            .filter(|_| matches!(mark, "o" | "l"))
    }

    /// Reads a message from the file of its part. None when the file was changed meanwhile and something else stands there.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn message<R: BufRead + Seek>(
        &self,
        mut reader: R,
        message: usize,
    ) -> io::Result<Option<TranscriptMessage>> {
        let Some(entry) = self.entries.get(message) else {
            return Ok(None);
        };
        reader.seek(SeekFrom::Start(entry.offset))?;
        let mut lines = Lines::new(reader, entry.offset);
        let Some(line) = lines.next_line()? else {
            return Ok(None);
        };
        let text = line_text(line.bytes);
        let Some(record) = RolloutLine::parse(&text) else {
            return Ok(None);
        };
        let ordinal = entry.is_ordinal.then_some(u64::from(entry.number));
        if record.ordinal != ordinal {
            return Ok(None);
        }
        let read = item::message(&record, entry.sort);
        Ok(read.map(|read| TranscriptMessage {
            record_id: entry.record_id(),
            bytes: line.bytes.len() as u64,
            ..read
        }))
    }
}

impl Entry {
    fn record_id(&self) -> String {
        format!("{}{}", if self.is_ordinal { "o" } else { "l" }, self.number)
    }
}
