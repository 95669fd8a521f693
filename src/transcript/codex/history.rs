//! The messages and turns of a Codex session, which can be read one by one, over all files that contain them.
//!
//! A fork contains only its own turns and continues another session's file up to a record, so one history may span
//! several files, the parts. This module stores the position and the turn of each message, in some tens of bytes per
//! message, and how far the files were read, so that appended lines can be read alone. Indexing buffers no line
//! (`scan`), and a message is decoded when it is requested (`item`). Pure over any buffered readers. This module does
//! not find the parts.
//!
//! Ids of positions: a turn has the agent's own `turn_id`, a message its ordinal (`o17`). Neither changes if the file is
//! moved, archived or compressed, and a fork by reference has the same records. Files of versions without turn ids get
//! `t3` for the third prompt of the file, and without ordinals `l17` for the line: a rollout is only ever appended to.

use std::io::{self, BufRead, Seek};
use std::ops::ControlFlow;

use super::facts::{LineFacts, LineRole, MEMBERS};
use super::item;
use super::line::{HistoryEnd, Meta, RolloutLine};
use crate::transcript::lines::{line_at, line_text};
use crate::transcript::message::{TranscriptMessage, TranscriptMessageKind};
use crate::transcript::scan::{PrunedLine, PrunedLines, Scanned};

/// The position of one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageEntry {
    pub(super) offset: u64,
    /// Its ordinal, or its line in a file without ordinals.
    number: u32,
    pub(super) part: u16,
    is_ordinal: bool,
    /// The kind of the message, as far as the lines around it show.
    pub(super) kind: TranscriptMessageKind,
}

#[derive(Debug, Clone)]
struct TurnName {
    /// Its id in the file.
    id: Box<str>,
    /// The part in which it began.
    part: u16,
}

/// The messages of a history.
#[derive(Debug, Clone, Default)]
pub struct CodexHistory {
    /// The session of each part, the oldest first.
    pub(super) parts: Vec<String>,
    pub(super) entries: Vec<MessageEntry>,
    /// The first message of each turn, and the names of the turns.
    pub(super) turns: Vec<u32>,
    names: Vec<TurnName>,
    /// The content of the last part's first line.
    pub meta: Meta,
    /// The name that the user gave to the session.
    pub title: Option<String>,
    /// The folder in which the last turn ran.
    pub cwd: Option<String>,
    /// How many records are damaged or missing.
    pub damaged_records: u64,
    /// How many turns were removed because the user went back.
    pub(super) rolled_back_turns: u64,
    state: ReadProgress,
}

/// How far a history was read. With it, reading can continue after the file of the last part has grown.
#[derive(Debug, Clone, Default)]
struct ReadProgress {
    /// The last turn to read, and the part that contains it.
    until: Option<(u16, String)>,
    /// The turn that is running according to the file, its first message, and whether it has a prompt yet.
    current_turn: Option<Box<str>>,
    turn_start: usize,
    has_prompt: bool,
    /// The number of prompts in this part, for turns without ids.
    prompts: u64,
    is_end_reached: bool,
    end: HistoryEnd,
    lines: u64,
    last_ordinal: Option<u64>,
    /// The end of the last line that was read and has a newline.
    complete_bytes: u64,
}

/// The result of reading a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEnd {
    /// The end of the last line that was read, as an offset in the file.
    pub complete_bytes: u64,
    /// What to do if the file has grown.
    pub append_handling: AppendHandling,
}

/// How to handle lines that are appended to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendHandling {
    /// Ignore them: they are after the end of the part.
    Ignore,
    /// Read only them, from the end of the last whole line.
    ReadAppended,
    /// Read everything again, because they may change what was read.
    ReadAgain,
}

/// Reads the parts of a history one after another, the oldest first.
impl CodexHistory {
    /// Creates an empty history that ends after the turn `until`, which is in the part of that number, or with the end of the
    /// last part.
    #[must_use]
    pub fn up_to(until: Option<(u16, &str)>) -> Self {
        let mut history = Self::default();
        history.state.until = until.map(|(part, id)| (part, id.to_owned()));
        history
    }

    /// Reads a part: the file of the session `upstream_id` up to `cut`. A truncated compressed file is read as far as
    /// possible.
    ///
    /// # Errors
    /// The reader's error.
    pub fn read_part(
        &mut self,
        reader: impl BufRead,
        upstream_id: &str,
        cut: HistoryEnd,
    ) -> io::Result<PartEnd> {
        self.parts.push(upstream_id.to_owned());
        self.meta = Meta::default();
        self.state = ReadProgress {
            until: self.state.until.take(),
            is_end_reached: self.state.is_end_reached,
            end: cut,
            ..ReadProgress::default()
        };
        self.open_turn();
        self.read_appended(reader)
    }

    /// Reads the lines that were appended to the last part, if it [allows that](AppendHandling::ReadAppended). The reader
    /// must be at the end of the last whole line.
    ///
    /// # Errors
    /// The reader's error. The history is unusable after one.
    pub fn read_appended(&mut self, reader: impl BufRead) -> io::Result<PartEnd> {
        let mut lines = PrunedLines::new(reader, self.state.complete_bytes, &MEMBERS);
        let mut append_handling = match self.state.end == HistoryEnd::default() {
            true => AppendHandling::ReadAppended,
            false => AppendHandling::ReadAgain,
        };
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(self.end_before_cut(append_handling)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.damaged_records += 1;
                    return Ok(self.end_before_cut(AppendHandling::ReadAgain));
                }
                Err(error) => return Err(error),
            };
            if line.ended {
                if self.read_line(line).is_break() {
                    return Ok(self.part_end(AppendHandling::Ignore));
                }
                self.state.complete_bytes = lines.position().offset;
                continue;
            }
            // Appended bytes may continue this line.
            if matches!(line.content, Scanned::Record(_)) {
                append_handling = AppendHandling::ReadAgain;
            }
            let lines = self.state.lines;
            if self.read_line(line).is_break() {
                return Ok(self.part_end(AppendHandling::ReadAgain));
            }
            // The line is read again when it is continued.
            self.state.lines = lines;
        }
    }

    /// Ends a part whose file ended before the cut. If the fork was made at the end of the source, nothing is missing.
    /// A source that ends earlier has lost records, which counts as damage.
    fn end_before_cut(&mut self, growth: AppendHandling) -> PartEnd {
        let last = self.state.last_ordinal;
        let end = self.state.end.ordinal;
        if end.is_some_and(|end| last.is_none_or(|last| last + 1 < end)) {
            self.damaged_records += 1;
        }
        self.part_end(growth)
    }

    fn part_end(&self, growth: AppendHandling) -> PartEnd {
        PartEnd {
            complete_bytes: self.state.complete_bytes,
            append_handling: growth,
        }
    }

    /// Whether the history contains the turn with which it should end. True if it should end with the last part.
    #[must_use]
    pub fn reaches_end(&self) -> bool {
        self.state.until.is_none() || self.state.is_end_reached || self.is_at_end()
    }

    fn part_number(&self) -> u16 {
        u16::try_from(self.parts.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    fn open_turn(&mut self) {
        self.state.turn_start = self.entries.len();
        self.state.has_prompt = false;
    }

    /// Whether the last turn so far is the one with which the history should end.
    fn is_at_end(&self) -> bool {
        let last = self.names.last();
        let wanted = self.state.until.as_ref();
        wanted.is_some_and(|(part, id)| last.is_some_and(|last| last.part == *part && *last.id == **id))
    }

    /// Reads the next line. Breaks if the part ends before it.
    fn read_line(&mut self, line: PrunedLine<'_>) -> ControlFlow<()> {
        let (offset, ended) = (line.position.offset, line.ended);
        self.state.lines += 1;
        match line.into_readable() {
            Scanned::Blank => {}
            Scanned::Garbage => {
                let counts = self.state.end.offset.is_none_or(|end| offset < end);
                self.damaged_records += u64::from(counts && ended);
            }
            Scanned::Record(record) => {
                let facts = LineFacts::of(&RolloutLine::of(record.fields()));
                if self.state.end.excludes(facts.ordinal, offset) {
                    return ControlFlow::Break(());
                }
                self.state.last_ordinal = facts.ordinal.or(self.state.last_ordinal);
                if self.apply_line(offset, facts).is_break() {
                    self.state.is_end_reached = true;
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Applies the facts about a line. Breaks if the history ends before it.
    pub(super) fn apply_line(&mut self, offset: u64, facts: LineFacts) -> ControlFlow<()> {
        if facts.turn_id.is_some() && self.state.current_turn != facts.turn_id {
            if self.is_at_end() {
                return ControlFlow::Break(());
            }
            self.state.current_turn = facts.turn_id;
            self.open_turn();
        }
        let ordinal = facts.ordinal;
        match facts.role {
            // Versions that copied the history wrote the metadata of the forked session after the fork's own.
            LineRole::Meta(meta) if self.meta == Meta::default() => self.meta = *meta,
            LineRole::Context(cwd) => self.cwd = cwd.or(self.cwd.take()),
            LineRole::Prompt => {
                self.state.prompts += 1;
                if !self.state.has_prompt || self.state.current_turn.is_none() {
                    if self.is_at_end() {
                        return ControlFlow::Break(());
                    }
                    self.begin_turn();
                }
                self.push(offset, ordinal, TranscriptMessageKind::Prompt);
            }
            LineRole::Item => self.push(offset, ordinal, TranscriptMessageKind::Ordinary),
            LineRole::Compacted => {
                if !self.state.has_prompt && self.state.current_turn.is_some() {
                    for entry in &mut self.entries[self.state.turn_start..] {
                        entry.kind = TranscriptMessageKind::AgentNote;
                    }
                }
                self.push(offset, ordinal, TranscriptMessageKind::Summary);
            }
            LineRole::RolledBack(turns) => {
                if self.is_at_end() {
                    return ControlFlow::Break(());
                }
                self.roll_back(turns);
            }
            LineRole::Title(name) => self.title = name.or(self.title.take()),
            LineRole::Failure => self.push(offset, ordinal, TranscriptMessageKind::Error),
            LineRole::Meta(_) | LineRole::Irrelevant => {}
        }
        ControlFlow::Continue(())
    }

    fn begin_turn(&mut self) {
        let id = match &self.state.current_turn {
            Some(id) => id.clone(),
            None => {
                // Items before the prompt belong to the previous turn.
                self.state.turn_start = self.entries.len();
                format!("t{}", self.state.prompts).into()
            }
        };
        self.state.has_prompt = true;
        let part = self.part_number();
        self.names.push(TurnName { id, part });
        // A rollout never has more messages than fit.
        self.turns.push(self.state.turn_start as u32);
    }

    fn push(&mut self, offset: u64, ordinal: Option<u64>, sort: TranscriptMessageKind) {
        let number = ordinal.unwrap_or(self.state.lines);
        self.entries.push(MessageEntry {
            offset,
            number: u32::try_from(number).unwrap_or(u32::MAX),
            part: self.part_number(),
            is_ordinal: ordinal.is_some(),
            kind: sort,
        });
    }

    /// Removes the last turns, because the user went back. They stay in the file.
    fn roll_back(&mut self, turns: u64) {
        let left = self.turns.len() as u64;
        let remaining = usize::try_from(left.saturating_sub(turns)).unwrap_or(0);
        self.rolled_back_turns += left - remaining as u64;
        if let Some(first) = self.turns.get(remaining) {
            self.entries.truncate(*first as usize);
            self.turns.truncate(remaining);
            self.names.truncate(remaining);
        }
        self.state.current_turn = None;
        self.open_turn();
    }
}

impl CodexHistory {
    /// About how much memory the history takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let names = self
            .names
            .iter()
            .map(|name| size_of::<(TurnName, u32)>() + name.id.len());
        names.sum::<usize>() + self.entries.capacity() * size_of::<MessageEntry>()
    }

    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// How many messages a compaction left for the model, including its summary. Reads the file of its part.
    ///
    /// # Errors
    /// The reader's error.
    pub fn kept_messages<R: BufRead + Seek>(&self, reader: R, compaction: usize) -> io::Result<usize> {
        let kept = self.record(reader, compaction, |record, _| {
            item::kept_messages(&record.payload)
        })?;
        Ok(kept.flatten().unwrap_or_else(|| {
            // Versions that did not record it send the prompts and the summary.
            let before = self.entries.iter().take(compaction);
            before
                .filter(|entry| entry.kind == TranscriptMessageKind::Prompt)
                .count()
                + 1
        }))
    }

    /// The id of a turn in its file, and the session to which the file belongs.
    #[must_use]
    pub fn turn_name(&self, turn: usize) -> Option<(&str, &str)> {
        let name = self.names.get(turn)?;
        Some((&name.id, self.parts.get(usize::from(name.part))?))
    }

    /// Finds a message of the session `owner` by the id of its record, or the last message of a turn by the turn's id.
    #[must_use]
    pub fn find(&self, owner: &str, record_id: &str) -> Option<usize> {
        let is_owner = |part: u16| self.parts.get(usize::from(part)).is_some_and(|own| own == owner);
        let is_it = |name: &TurnName| *name.id == *record_id && is_owner(name.part);
        if let Some(turn) = self.names.iter().rposition(is_it) {
            let next = self.turns.get(turn + 1);
            return next
                .map_or(self.entries.len(), |next| *next as usize)
                .checked_sub(1);
        }
        let (prefix, number) = record_id.split_at_checked(1)?;
        let number: u32 = number.parse().ok()?;
        self.entries
            .iter()
            .position(|entry| {
                entry.number == number && (prefix == "o") == entry.is_ordinal && is_owner(entry.part)
            })
            .filter(|_| matches!(prefix, "o" | "l"))
    }

    /// Reads a message from the file of its part. `None` if the file was changed and another record is at its offset.
    ///
    /// # Errors
    /// The reader's error.
    pub fn message<R: BufRead + Seek>(
        &self,
        reader: R,
        message: usize,
    ) -> io::Result<Option<TranscriptMessage>> {
        let Some(entry) = self.entries.get(message) else {
            return Ok(None);
        };
        let read = self.record(reader, message, |record, bytes| {
            let read = item::message(record, entry.kind)?;
            Some(TranscriptMessage {
                record_id: entry.record_id(),
                bytes,
                ..read
            })
        });
        read.map(Option::flatten)
    }

    /// Reads a value from a message's record, given its length in bytes. `None` if another record is at its offset.
    fn record<R: BufRead + Seek, T>(
        &self,
        reader: R,
        message: usize,
        wanted: impl FnOnce(&RolloutLine<'_>, u64) -> T,
    ) -> io::Result<Option<T>> {
        let Some(entry) = self.entries.get(message) else {
            return Ok(None);
        };
        line_at(reader, entry.offset, |line| {
            let text = line_text(line);
            let record = RolloutLine::parse(&text)?;
            let ordinal = entry.is_ordinal.then_some(u64::from(entry.number));
            (record.ordinal == ordinal).then(|| wanted(&record, line.len() as u64))
        })
    }
}

impl MessageEntry {
    pub(super) fn record_id(&self) -> String {
        format!("{}{}", if self.is_ordinal { "o" } else { "l" }, self.number)
    }
}
