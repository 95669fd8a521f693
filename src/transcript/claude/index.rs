//! The first pass over a transcript: every chain record in some tens of bytes.

use std::io::{self, BufRead, Seek};

use super::entries::{Entries, Parent};
use super::facts::{ChainFacts, INDEX, RecordFacts, Role};
use super::walk::{Selection, Walk};
use crate::transcript::claude::record::Record;
use crate::transcript::dialect::TurnEnd;
use crate::transcript::indexes::{GrowingIndex, ReadExtent};
use crate::transcript::lines::{Lines, go_to, line_text};
use crate::transcript::record_id::{IdRef, RecordId};
use crate::transcript::scan::{PrunedLines, Scanned};

/// Where every chain record of a transcript stands and how they hang together.
#[derive(Debug, Clone, Default)]
pub struct Index {
    pub(super) entries: Entries,
    bytes: u64,
    /// Where the last line ends that a newline ends.
    whole_bytes: u64,
    /// Whether a record was taken from behind that.
    took_unended: bool,
    garbage_lines: u64,
    prompts: u64,
    ends_torn: bool,
    /// Where the last title begins that a person gave.
    title: Option<u64>,
    /// Where the last record of the conversation begins that names its folder.
    cwd: Option<u64>,
    leaf_hint: LeafHint,
    /// Where the records begin that are about the session as a whole, ascending.
    session_wide: Vec<u64>,
}

/// The record that the conversation stood at when the agent noted it last, which it does now and then.
#[derive(Debug, Clone, Default)]
enum LeafHint {
    /// Nothing was noted.
    #[default]
    None,
    /// What was noted is of no use since a compaction.
    Obsolete,
    At(RecordId),
}

impl Index {
    /// Reads all lines of a transcript, from its first byte on. No line is held, however long.
    ///
    /// A last line without a newline counts when it is a whole record, as the agent counts it too.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read(reader: impl BufRead) -> io::Result<Self> {
        let mut index = Self::default();
        index.extend(reader)?;
        index.entries.shrink();
        Ok(index)
    }

    /// Reads a transcript in two parts at once, of which the later begins with the line at `middle`.
    ///
    /// # Errors
    /// What the readers answer.
    pub fn read_parts(earlier: impl BufRead, later: impl BufRead + Send, middle: u64) -> io::Result<Self> {
        let mut index = Self::default();
        let mut behind = Self {
            entries: index.entries.new_later_part(),
            bytes: middle,
            whole_bytes: middle,
            ..Self::default()
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| behind.extend(later));
            index.extend(earlier)?;
            let panicked = |_| Err(io::Error::other("the reader of the later part panicked"));
            reading.join().unwrap_or_else(panicked)
        })?;
        // The file became shorter meanwhile; what stood behind is of another time.
        if index.whole_bytes != middle {
            return Ok(index);
        }
        index.entries.append(&behind.entries);
        index.entries.shrink();
        index.session_wide.append(&mut behind.session_wide);
        Ok(Self {
            entries: index.entries,
            session_wide: index.session_wide,
            garbage_lines: index.garbage_lines + behind.garbage_lines,
            prompts: index.prompts + behind.prompts,
            title: behind.title.or(index.title),
            cwd: behind.cwd.or(index.cwd),
            leaf_hint: match behind.leaf_hint {
                LeafHint::None => index.leaf_hint,
                mark => mark,
            },
            ..behind
        })
    }

    /// Takes one more record, which begins at `offset`, behind all that were taken.
    pub(in crate::transcript) fn push(&mut self, offset: u64, record: RecordFacts) {
        if record.is_title {
            self.title = Some(offset);
        }
        if record.is_session_wide {
            self.session_wide.push(offset);
        }
        if let Some(mark) = record.leaf_hint {
            self.leaf_hint = LeafHint::At(mark);
        }
        let Some(chain) = record.chain else { return };
        if (chain.logical_parent.is_some() || chain.kept_tail.is_some()) && !chain.is_sidechain {
            self.leaf_hint = LeafHint::Obsolete;
        }
        if chain.has_cwd && !chain.is_sidechain {
            self.cwd = Some(offset);
        }
        self.prompts += u64::from(chain.role == Role::Prompt);
        self.entries.push(offset, chain);
    }

    /// Whether a record with the uuid of this one was taken already.
    #[must_use]
    pub(in crate::transcript) fn holds(&self, chain: &ChainFacts) -> bool {
        self.entries.find(chain.uuid.as_ref()).is_some()
    }

    /// Where the last title begins that a person gave.
    #[must_use]
    pub(in crate::transcript) fn title_offset(&self) -> Option<u64> {
        self.title
    }

    /// Where the last record of the conversation begins that names the folder that it ran in.
    #[must_use]
    pub(in crate::transcript) fn cwd_offset(&self) -> Option<u64> {
        self.cwd
    }

    /// Where the last message of a branch begins that is a copy of one in another session.
    #[must_use]
    pub(in crate::transcript) fn last_copied_message(&self, selection: &Selection) -> Option<u64> {
        let is_copied =
            |position: &usize| self.entries.is_forked(*position) && !self.entries.is_sidechain(*position);
        let copied = (0..self.entries.len()).rev().filter(is_copied);
        copied
            .map(|position| self.entries.offset(position))
            .find(|offset| selection.contains(*offset))
    }

    /// Where the messages of a branch begin, in the order of the file.
    #[must_use]
    pub(in crate::transcript) fn messages_of(&self, selection: &Selection) -> Vec<u64> {
        let messages = (0..self.entries.len()).filter(|position| self.entries.is_message(*position));
        messages
            .map(|position| self.entries.offset(position))
            .filter(|offset| selection.contains(*offset))
            .collect()
    }

    /// Where the record with this uuid begins; of several the last.
    #[must_use]
    pub(in crate::transcript) fn offset_of(&self, uuid: &str) -> Option<u64> {
        let position = self.entries.find(IdRef::new(uuid))?;
        Some(self.entries.offset(position))
    }

    /// Where the records begin, behind `offset`, that are about the session as a whole.
    #[must_use]
    pub(in crate::transcript) fn session_wide_after(&self, offset: u64) -> &[u64] {
        let first = self.session_wide.partition_point(|place| *place <= offset);
        self.session_wide.get(first..).unwrap_or_default()
    }

    /// Whether the record that begins at `offset` has this uuid.
    #[must_use]
    pub(in crate::transcript) fn has_record_at(&self, offset: u64, uuid: &str) -> bool {
        let position = self.entries.first_at_or_after(offset);
        position < self.entries.len()
            && self.entries.offset(position) == offset
            && self.entries.id(position) == IdRef::new(uuid)
    }

    /// Where the records begin that name a parent which is not there, with its uuid.
    pub(in crate::transcript) fn missing_parents(&self) -> impl Iterator<Item = (u64, String)> {
        self.entries
            .missing_parents()
            .map(|(position, parent)| (self.entries.offset(position), parent.as_ref().text()))
    }

    /// How many prompts stand before `offset`, those of abandoned branches too.
    pub(in crate::transcript) fn prompts_before(&self, offset: u64) -> usize {
        let before = 0..self.entries.first_at_or_after(offset);
        before
            .filter(|position| self.entries.role(*position) == Role::Prompt)
            .count()
    }

    /// How many chain records there are.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// How many prompts there are, those of abandoned branches too.
    #[must_use]
    pub fn prompts(&self) -> u64 {
        self.prompts
    }

    /// The most turns that may ever have stood here, on whatever branch: what was sent as a prompt may stand as a command of the
    /// agent's own.
    #[must_use]
    pub fn max_turns(&self) -> u64 {
        let asides = (0..self.entries.len()).filter(|position| self.entries.role(*position) == Role::Aside);
        self.prompts + asides.count() as u64
    }

    /// How many whole lines were not records.
    #[must_use]
    pub fn garbage_lines(&self) -> u64 {
        self.garbage_lines
    }

    /// Whether the last line is a part of a record.
    #[must_use]
    pub fn ends_torn(&self) -> bool {
        self.ends_torn
    }

    /// The uuid of the live branch's last message; none without chain records.
    #[must_use]
    pub fn live_uuid(&self) -> Option<String> {
        Some(self.entries.id(self.live_leaf()?).text())
    }

    /// The uuid of the last message of the branch that a resume leaves aside although it is newer.
    #[must_use]
    pub fn newer_uuid(&self) -> Option<String> {
        let newer = self.select(None, true)?.newer_branch?;
        let position =
            (0..self.entries.len()).rfind(|position| self.entries.offset(*position) == newer.offset)?;
        Some(self.entries.id(position).text())
    }

    /// Whether the last turn of the live branch is over: its last message is a reply's text with which the model ended,
    /// an error in place of one, or the mark of an interruption. Commands of the agent's own behind it do not count, but
    /// that they came: between the records of one message nothing stands.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn live_turn_end(&self, reader: impl BufRead + Seek) -> io::Result<TurnEnd> {
        let Some(leaf) = self.live_leaf() else {
            return Ok(TurnEnd::Open);
        };
        let mut position = leaf;
        // No more steps than there are records: the parents may go round in a circle.
        for _ in 0..self.entries.len() {
            match (self.entries.role(position), self.entries.parent(position)) {
                (Role::Aside | Role::Other, Parent::Found(parent)) => position = parent,
                _ => break,
            }
        }
        let end = self.record_at(reader, position, |record, _| record.turn_end())?;
        Ok(match end.unwrap_or(TurnEnd::Open) {
            TurnEnd::Ambiguous if position != leaf => TurnEnd::Ended,
            end => end,
        })
    }

    /// Reads the record at this place and its line. None when something else stands there by now.
    pub(super) fn record_at<T>(
        &self,
        reader: impl BufRead + Seek,
        position: usize,
        tell: impl FnOnce(&Record<'_>, &[u8]) -> T,
    ) -> io::Result<Option<T>> {
        self.line_at(reader, position, |line| {
            let text = line_text(line);
            let record = Record::parse(&text)?;
            let uuid = record.fields.text("uuid")?;
            (IdRef::new(&uuid) == self.entries.id(position)).then(|| tell(&record, line))
        })
    }

    /// Reads the line of the record at this place.
    pub(super) fn line_at<T>(
        &self,
        mut reader: impl BufRead + Seek,
        position: usize,
        tell: impl FnOnce(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let offset = self.entries.offset(position);
        go_to(&mut reader, offset)?;
        let mut lines = Lines::new(reader, offset);
        Ok(lines.next_line()?.and_then(|line| tell(line.bytes)))
    }

    /// The records of the branch that ends with `until`, or of the live branch. None when there is no such
    /// record, or no chain record at all.
    #[must_use]
    pub fn select(&self, until: Option<&str>, follow_compaction: bool) -> Option<Selection> {
        let walk = self.walk(until, follow_compaction)?;
        Some(Selection::of(&self.entries, &walk))
    }

    /// The records that a session which ends with `until` is sent before its next prompt: those of the branch, also those before
    /// a compaction, and what the agent wrote behind the end for itself. None when there is no such record.
    #[must_use]
    pub fn select_up_to_next_prompt(&self, until: &str) -> Option<Selection> {
        let mut walk = self.walk(Some(until), true)?;
        walk.extend_to_next_prompt(&self.entries);
        Some(Selection::of(&self.entries, &walk))
    }

    /// The records of the branch that ends with the newest message, where a parent is not there with the record that stands
    /// before. None without a message, and where the live branch is not a part of it: then another one was left, not damaged.
    #[must_use]
    pub fn select_joined(&self) -> Option<Selection> {
        let live = self.live_leaf()?;
        let walk = Walk::from(&self.entries, self.newest_message()?, true);
        walk.contains(live).then(|| Selection::of(&self.entries, &walk))
    }

    /// The way back from the record `until` or the live branch's last.
    pub(super) fn walk(&self, until: Option<&str>, follow_compaction: bool) -> Option<Walk> {
        if let Some(uuid) = until {
            let leaf = self.entries.find(IdRef::new(uuid))?;
            return Some(Walk::from(&self.entries, leaf, follow_compaction));
        }
        let newest = self.newest_message()?;
        let Some((leaf, from_newest)) = self.hinted_leaf(newest) else {
            return Some(Walk::from(&self.entries, newest, follow_compaction));
        };
        let mut walk = Walk::from(&self.entries, leaf, follow_compaction);
        walk.exclude_newest(&self.entries, &from_newest);
        Some(walk)
    }

    /// The uuid of the last record on the branch that ends with `until` or of the live one whose message has
    /// this id.
    #[must_use]
    pub fn last_of_message(&self, selection: &Selection, message_id: &str) -> Option<String> {
        let wanted = self.entries.message_hash(message_id);
        (0..self.entries.len())
            .rev()
            .filter(|position| self.entries.message(*position) == wanted)
            .find(|position| selection.contains(self.entries.offset(*position)))
            .map(|position| self.entries.id(position).text())
    }

    fn live_leaf(&self) -> Option<usize> {
        let newest = self.newest_message()?;
        let marked = self.hinted_leaf(newest);
        Some(marked.map_or(newest, |(leaf, _)| leaf))
    }

    /// The last message of the place that the agent noted last, and the way back from the newest message, where that does
    /// not lead there: a resume then continues from that place, as Claude Code was seen to do (2.1.316), whether the parents
    /// break off or another branch is newer.
    fn hinted_leaf(&self, newest: usize) -> Option<(usize, Walk)> {
        let LeafHint::At(mark) = &self.leaf_hint else {
            return None;
        };
        let entries = &self.entries;
        let marked = entries.find(mark.as_ref())?;
        let message = entries.nearest_message(marked)?;
        if entries.is_sidechain(marked) || message == newest || entries.has_ancestor(newest, marked) {
            return None;
        }
        let from_newest = Walk::unjoined(entries, newest);
        if from_newest.contains(marked) {
            return None;
        }
        Some((Walk::end_of_calls(entries, message), from_newest))
    }

    /// The last message, and only where there is none the last record: marks of the agent's own may be written
    /// late, below an older parent, and would hide the prompt that came meanwhile.
    fn newest_message(&self) -> Option<usize> {
        let main = || {
            (0..self.entries.len())
                .rev()
                .filter(|position| !self.entries.is_sidechain(*position))
        };
        let message = main().find(|position| self.entries.role(*position) != Role::Other);
        let leaf = message.or_else(|| main().next())?;
        self.entries.find(self.entries.id(leaf))
    }
}

impl GrowingIndex for Index {
    fn extent(&self) -> ReadExtent {
        ReadExtent {
            bytes: self.bytes,
            whole_bytes: self.whole_bytes,
            can_extend: !self.took_unended,
        }
    }

    fn extend(&mut self, reader: impl BufRead) -> io::Result<()> {
        let mut lines = PrunedLines::new(reader, self.whole_bytes, &INDEX);
        self.ends_torn = false;
        while let Some(line) = lines.next_line()? {
            let (offset, ended) = (line.position.offset, line.ended);
            match line.readable() {
                Scanned::Blank => {}
                Scanned::Garbage if ended => self.garbage_lines += 1,
                Scanned::Garbage => self.ends_torn = true,
                Scanned::Record(record) => {
                    self.took_unended = !ended;
                    self.push(
                        offset,
                        RecordFacts::of(&Record {
                            fields: record.fields(),
                        }),
                    );
                }
            }
            if ended {
                self.whole_bytes = lines.position().offset;
            }
        }
        self.bytes = lines.position().offset;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes() + self.session_wide.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests;
