//! The history of a Codex session as messages and turns that can be read one by one, over all files that hold it.
//!
//! A fork holds its own turns only and continues another session's file up to a record, so one history may begin in
//! several files; each is a part here. Owns where each message stands and which turn it belongs to, in some tens of bytes
//! a message, and how far that was read, so that what is appended can be taken by itself. No line is held while it is
//! indexed (`scan`); a message is decoded when it is asked for (`item`). Pure over any buffered readers; how a part is found
//! is not known here.
//!
//! Names of places: a turn is named by the agent's own `turn_id`, a message by its ordinal (`o17`). Neither changes when
//! the file is moved, archived or compressed, and a fork by reference has the same records. Versions that wrote no turn
//! ids get `t3`, the third prompt of the file, and without ordinals `l17`, the line: a rollout is only ever appended to.

use std::io::{self, BufRead, Seek};
use std::ops::ControlFlow;

use super::facts::{LineFacts, LineRole, MEMBERS};
use super::item;
use super::line::{HistoryEnd, Meta, RolloutLine};
use crate::transcript::lines::{Lines, go_to, line_text};
use crate::transcript::message::TranscriptMessage;
use crate::transcript::scan::{PrunedLine, PrunedLines, Scanned};

/// Where one message stands.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    /// Its ordinal, or its line in a file without ordinals.
    number: u32,
    part: u16,
    is_ordinal: bool,
    kind: EntryKind,
}

/// What a message is, as far as the lines around it say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Prompt,
    Item,
    /// Said by the model while it compacted, with nobody having asked.
    AgentNote,
    Summary,
    Failure,
}

#[derive(Debug, Clone)]
struct TurnName {
    /// Its name in the file.
    id: Box<str>,
    /// The part in which it began.
    part: u16,
}

/// The messages of a history.
#[derive(Debug, Clone, Default)]
pub struct CodexHistory {
    /// The session of each part, the oldest first.
    parts: Vec<String>,
    entries: Vec<Entry>,
    /// The message with which each turn begins, and the names of the turns.
    turns: Vec<u32>,
    names: Vec<TurnName>,
    /// What the first line of the last part said.
    pub meta: Meta,
    /// What a person called the session.
    pub title: Option<String>,
    /// The folder that the last turn ran in.
    pub cwd: Option<String>,
    /// How many records are damaged or gone.
    pub damaged_records: u64,
    /// How many turns a person went back behind.
    rolled_back_turns: u64,
}

/// Reads the parts of a history one after another, the oldest first.
#[derive(Debug, Default)]
pub struct HistoryReader {
    history: CodexHistory,
    state: HistoryReadState,
}

/// How far a history was read: the state needed to continue when the file of its last part has grown.
#[derive(Debug, Clone, Default)]
pub struct HistoryReadState {
    /// The turn with which to end, and the part that it is in.
    until: Option<(u16, String)>,
    /// The turn that runs, as far as the file says, its first message, and whether somebody has asked by now.
    current_turn: Option<Box<str>>,
    pending: usize,
    has_prompt: bool,
    /// The prompts of this part, for turns without ids.
    prompts: u64,
    is_end_reached: bool,
    cut: HistoryEnd,
    lines: u64,
    last_ordinal: Option<u64>,
    /// Where the last line ends that was taken and that a newline ends.
    whole_bytes: u64,
}

/// How the reading of a part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEnd {
    /// Where the last line ends that was taken, in bytes of the file.
    pub whole_bytes: u64,
    /// What is to be done when the file has grown.
    pub append_handling: AppendHandling,
}

/// What to do with lines that are appended to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendHandling {
    /// Nothing: it lies behind where the part ends.
    Ignore,
    /// It is taken by itself, from the last whole line on.
    ReadAppended,
    /// It may change what was read.
    ReadAgain,
}

impl HistoryReader {
    /// A history that ends with the turn `until` of its last part, which is the part of that number, or goes on to
    /// its end.
    #[must_use]
    pub fn new(until: Option<(u16, &str)>) -> Self {
        Self {
            history: CodexHistory::default(),
            state: HistoryReadState {
                until: until.map(|(part, id)| (part, id.to_owned())),
                ..HistoryReadState::default()
            },
        }
    }

    /// Goes on with a book where it was left.
    #[must_use]
    pub fn resume(book: CodexHistory, mark: HistoryReadState) -> Self {
        Self {
            history: book,
            state: mark,
        }
    }

    /// Reads a part: the file of the session `upstream_id` up to `cut`. A compressed file that breaks off counts as far as
    /// it goes.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read_part(
        &mut self,
        reader: impl BufRead,
        upstream_id: &str,
        cut: HistoryEnd,
    ) -> io::Result<PartEnd> {
        self.history.parts.push(upstream_id.to_owned());
        self.history.meta = Meta::default();
        self.state = HistoryReadState {
            until: self.state.until.take(),
            is_end_reached: self.state.is_end_reached,
            cut,
            ..HistoryReadState::default()
        };
        self.open_turn();
        self.read_appended(reader)
    }

    /// Reads what was appended to the last part, when its growth is [taken](Growth::Taken); the reader's next byte is the one
    /// behind the last whole line.
    ///
    /// # Errors
    /// What the reader answers. The book is of no use then.
    pub fn read_appended(&mut self, reader: impl BufRead) -> io::Result<PartEnd> {
        let mut lines = PrunedLines::new(reader, self.state.whole_bytes, &MEMBERS);
        let mut growth = match self.state.cut == HistoryEnd::default() {
            true => AppendHandling::ReadAppended,
            false => AppendHandling::ReadAgain,
        };
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(self.end_before_cut(growth)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.history.damaged_records += 1;
                    return Ok(self.end_before_cut(AppendHandling::ReadAgain));
                }
                Err(error) => return Err(error),
            };
            if line.ended {
                if self.read_line(line).is_break() {
                    return Ok(self.part_end(AppendHandling::Ignore));
                }
                self.state.whole_bytes = lines.position().offset;
                continue;
            }
            // What comes may go on with it.
            if matches!(line.what, Scanned::Record(_)) {
                growth = AppendHandling::ReadAgain;
            }
            let lines = self.state.lines;
            if self.read_line(line).is_break() {
                return Ok(self.part_end(AppendHandling::ReadAgain));
            }
            // It is read again when it goes on.
            self.state.lines = lines;
        }
    }

    /// The part is over before its cut. The source may end exactly where the fork was made; one that ends before has lost
    /// something.
    fn end_before_cut(&mut self, growth: AppendHandling) -> PartEnd {
        let last = self.state.last_ordinal;
        let end = self.state.cut.ordinal;
        if end.is_some_and(|end| last.is_none_or(|last| last + 1 < end)) {
            self.history.damaged_records += 1;
        }
        self.part_end(growth)
    }

    fn part_end(&self, growth: AppendHandling) -> PartEnd {
        PartEnd {
            whole_bytes: self.state.whole_bytes,
            append_handling: growth,
        }
    }

    /// The history, and how far it was read; none when the turn with which it was to end is not in it.
    #[must_use]
    pub fn finish(self) -> Option<(CodexHistory, HistoryReadState)> {
        if let Some((part, id)) = &self.state.until
            && !self.state.is_end_reached
        {
            let last = self.history.names.last()?;
            if last.part != *part || *last.id != **id {
                return None;
            }
        }
        Some((self.history, self.state))
    }

    fn part_number(&self) -> u16 {
        u16::try_from(self.history.parts.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    fn open_turn(&mut self) {
        self.state.pending = self.history.entries.len();
        self.state.has_prompt = false;
    }

    /// Whether the turn with which to end is the last one so far.
    fn is_at_end(&self) -> bool {
        let last = self.history.names.last();
        let wanted = self.state.until.as_ref();
        wanted.is_some_and(|(part, id)| last.is_some_and(|last| last.part == *part && *last.id == **id))
    }

    /// Takes the next line; breaks where the part ends before it.
    fn read_line(&mut self, line: PrunedLine<'_>) -> ControlFlow<()> {
        let (offset, ended) = (line.position.offset, line.ended);
        self.state.lines += 1;
        match line.readable() {
            Scanned::Blank => {}
            Scanned::Garbage => {
                let counts = self.state.cut.offset.is_none_or(|end| offset < end);
                self.history.damaged_records += u64::from(counts && ended);
            }
            Scanned::Record(record) => {
                let facts = LineFacts::of(&RolloutLine::of(record.fields()));
                if self.state.cut.excludes(facts.ordinal, offset) {
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

    /// Takes what a record says; breaks where the history ends before it.
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
            // Versions that copied put the metadata of the session that was forked behind the fork's own.
            LineRole::Meta(meta) if self.history.meta == Meta::default() => self.history.meta = *meta,
            LineRole::Context(cwd) => self.history.cwd = cwd.or(self.history.cwd.take()),
            LineRole::Prompt => {
                self.state.prompts += 1;
                if !self.state.has_prompt || self.state.current_turn.is_none() {
                    if self.is_at_end() {
                        return ControlFlow::Break(());
                    }
                    self.begin_turn();
                }
                self.push(offset, ordinal, EntryKind::Prompt);
            }
            LineRole::Item => self.push(offset, ordinal, EntryKind::Item),
            LineRole::Compacted => {
                if !self.state.has_prompt && self.state.current_turn.is_some() {
                    for entry in &mut self.history.entries[self.state.pending..] {
                        entry.kind = EntryKind::AgentNote;
                    }
                }
                self.push(offset, ordinal, EntryKind::Summary);
            }
            LineRole::RolledBack(turns) => {
                if self.is_at_end() {
                    return ControlFlow::Break(());
                }
                self.roll_back(turns);
            }
            LineRole::Title(name) => self.history.title = name.or(self.history.title.take()),
            LineRole::Failure => self.push(offset, ordinal, EntryKind::Failure),
            LineRole::Meta(_) | LineRole::Irrelevant => {}
        }
        ControlFlow::Continue(())
    }

    fn begin_turn(&mut self) {
        let id = match &self.state.current_turn {
            Some(id) => id.clone(),
            None => {
                // What stands before the prompt belongs to the turn before.
                self.state.pending = self.history.entries.len();
                format!("t{}", self.state.prompts).into()
            }
        };
        self.state.has_prompt = true;
        let part = self.part_number();
        self.history.names.push(TurnName { id, part });
        // A rollout has no more messages than that.
        self.history.turns.push(self.state.pending as u32);
    }

    fn push(&mut self, offset: u64, ordinal: Option<u64>, sort: EntryKind) {
        let number = ordinal.unwrap_or(self.state.lines);
        self.history.entries.push(Entry {
            offset,
            number: u32::try_from(number).unwrap_or(u32::MAX),
            part: self.part_number(),
            is_ordinal: ordinal.is_some(),
            kind: sort,
        });
    }

    /// The person went back behind the last turns, which leaves them in the file.
    fn roll_back(&mut self, turns: u64) {
        let left = self.history.turns.len() as u64;
        let kept = usize::try_from(left.saturating_sub(turns)).unwrap_or(0);
        self.history.rolled_back_turns += left - kept as u64;
        if let Some(first) = self.history.turns.get(kept) {
            self.history.entries.truncate(*first as usize);
            self.history.turns.truncate(kept);
            self.history.names.truncate(kept);
        }
        self.state.current_turn = None;
        self.open_turn();
    }
}

impl CodexHistory {
    /// About how much memory this takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let names = self
            .names
            .iter()
            .map(|name| size_of::<(TurnName, u32)>() + name.id.len());
        names.sum::<usize>() + self.entries.capacity() * size_of::<Entry>()
    }

    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// The last message that is a compaction.
    #[must_use]
    pub fn last_compaction(&self) -> Option<usize> {
        let is_summary = |entry: &Entry| entry.kind == EntryKind::Summary;
        self.entries.iter().rposition(is_summary)
    }

    /// How many messages an agent sends of those from `first` on: errors in place of replies are none of the model's.
    #[must_use]
    pub fn count_sent_from(&self, first: usize) -> usize {
        let entries = self.entries.iter().skip(first);
        entries.filter(|entry| entry.kind != EntryKind::Failure).count()
    }

    /// How many messages a compaction left for the model, its summary among them; read from the file of its part.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn kept_messages<R: BufRead + Seek>(&self, reader: R, compaction: usize) -> io::Result<usize> {
        let kept = self.record(reader, compaction, |record, _| {
            item::kept_messages(&record.payload)
        })?;
        Ok(kept.flatten().unwrap_or_else(|| {
            // Of versions that did not write it down the prompts and the summary are sent.
            let before = self.entries.iter().take(compaction);
            before.filter(|entry| entry.kind == EntryKind::Prompt).count() + 1
        }))
    }

    /// Where the messages stand in the files of their parts.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.offset)
    }

    /// The message with which each turn begins.
    #[must_use]
    pub fn turn_starts(&self) -> &[u32] {
        &self.turns
    }

    /// The most turns of which the files have a record: those that were gone back behind count, and each compaction may have
    /// been asked for. More may have run.
    #[must_use]
    pub fn max_recorded_turns(&self) -> u64 {
        let compactions = self
            .entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Summary);
        self.turns.len() as u64 + self.rolled_back_turns + compactions.count() as u64
    }

    /// Where the record of a message begins in the file of the last part; none when it is in another one.
    #[must_use]
    pub fn offset(&self, message: usize) -> Option<u64> {
        let entry = self.entries.get(message)?;
        (usize::from(entry.part) + 1 == self.parts.len()).then_some(entry.offset)
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
        let name = self.names.get(turn)?;
        Some((&name.id, self.parts.get(usize::from(name.part))?))
    }

    /// A message of the session `owner` by the name of its record, or the last one of a turn by the turn's name.
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

    /// Reads what is wanted of a message's record and its length in bytes; none when something else stands there.
    fn record<R: BufRead + Seek, T>(
        &self,
        mut reader: R,
        message: usize,
        wanted: impl FnOnce(&RolloutLine<'_>, u64) -> T,
    ) -> io::Result<Option<T>> {
        let Some(entry) = self.entries.get(message) else {
            return Ok(None);
        };
        go_to(&mut reader, entry.offset)?;
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
        Ok(Some(wanted(&record, line.bytes.len() as u64)))
    }
}

impl Entry {
    fn record_id(&self) -> String {
        format!("{}{}", if self.is_ordinal { "o" } else { "l" }, self.number)
    }
}
