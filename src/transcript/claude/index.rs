//! The index of a transcript, from one pass over it: some tens of bytes for every chain record.

use std::io::{self, BufRead, Seek};

use super::entries::{Entries, ParentLookup, RecordMark};
use super::facts::{ChainFacts, INDEX, RecordFacts, RecordRole};
use super::walk::{Selection, Walk};
use crate::transcript::claude::record::Record;
use crate::transcript::dialect::TurnEnd;
use crate::transcript::indexes::{GrowingIndex, ReadExtent};
use crate::transcript::lines::{line_at, line_text};
use crate::transcript::record_id::RecordId;
use crate::transcript::scan::{PrunedLines, Scanned};

/// The positions of the chain records of a transcript and their parents.
#[derive(Debug, Clone, Default)]
pub struct ClaudeIndex {
    pub(super) entries: Entries,
    bytes: u64,
    /// The end of the last line that has a newline.
    complete_bytes: u64,
    /// Whether a record after that, without a newline, was read too.
    has_unterminated_record: bool,
    /// How many complete lines are not records.
    pub(in crate::transcript) garbage_lines: u64,
    /// How many prompts there are, abandoned branches included.
    pub(in crate::transcript) prompts: u64,
    /// Whether the last line is an incomplete record.
    pub(in crate::transcript) ends_torn: bool,
    /// The offset of the last title that the user gave.
    pub(super) title: Option<u64>,
    /// The offset of the last record of the conversation that names the folder in which it was written.
    pub(super) cwd: Option<u64>,
    leaf_hint: LeafHint,
    /// The offsets of the records that concern the whole session, ascending.
    session_wide: Vec<u64>,
}

/// The record that the agent recorded last as the current position of the conversation. It writes such hints occasionally.
#[derive(Debug, Clone, Default)]
enum LeafHint {
    /// There is no hint.
    #[default]
    None,
    /// A compaction made the hint useless.
    Obsolete,
    At(RecordId),
}

impl ClaudeIndex {
    /// Reads all lines of a transcript from its first byte. No line is buffered, however long.
    ///
    /// Like the agent, reads a last line without a newline if it is a complete record.
    ///
    /// # Errors
    /// The reader's error.
    pub fn read(reader: impl BufRead) -> io::Result<Self> {
        let mut index = Self::default();
        index.extend(reader)?;
        index.entries.shrink();
        Ok(index)
    }

    /// Reads a transcript in two parts in parallel. The later part begins with the line at `middle`.
    ///
    /// # Errors
    /// The readers' errors.
    pub fn read_parts(earlier: impl BufRead, later: impl BufRead + Send, middle: u64) -> io::Result<Self> {
        let mut index = Self::default();
        let mut later_part = Self {
            entries: index.entries.new_later_part(),
            bytes: middle,
            complete_bytes: middle,
            ..Self::default()
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| later_part.extend(later));
            index.extend(earlier)?;
            let panicked = |_| Err(io::Error::other("the reader of the later part panicked"));
            reading.join().unwrap_or_else(panicked)
        })?;
        // The file was truncated meanwhile. The later part was read before or after that, so it does not fit.
        if index.complete_bytes != middle {
            return Ok(index);
        }
        index.entries.append(&later_part.entries);
        index.entries.shrink();
        index.session_wide.append(&mut later_part.session_wide);
        Ok(Self {
            entries: index.entries,
            session_wide: index.session_wide,
            garbage_lines: index.garbage_lines + later_part.garbage_lines,
            prompts: index.prompts + later_part.prompts,
            title: later_part.title.or(index.title),
            cwd: later_part.cwd.or(index.cwd),
            leaf_hint: match later_part.leaf_hint {
                LeafHint::None => index.leaf_hint,
                hint => hint,
            },
            ..later_part
        })
    }

    /// Adds the next record, which begins at `offset`.
    pub(in crate::transcript) fn push(&mut self, offset: u64, record: RecordFacts) {
        if record.is_title {
            self.title = Some(offset);
        }
        if record.is_session_wide {
            self.session_wide.push(offset);
        }
        if let Some(leaf) = record.leaf_hint {
            self.leaf_hint = LeafHint::At(leaf);
        }
        let Some(chain) = record.chain else { return };
        if chain.logical_parent.is_some() && !chain.is_sidechain {
            self.leaf_hint = LeafHint::Obsolete;
        }
        if chain.has_cwd && !chain.is_sidechain {
            self.cwd = Some(offset);
        }
        self.prompts += u64::from(chain.role == RecordRole::Prompt);
        self.entries.push(offset, chain);
    }

    /// Whether a record with the same uuid was added before.
    #[must_use]
    pub(in crate::transcript) fn contains_uuid(&self, chain: &ChainFacts) -> bool {
        self.entries.find(&chain.uuid).is_some()
    }

    /// The offset of the last message of a branch that is a copy of one in another session.
    pub(super) fn last_copied_message(&self, walk: &Walk) -> Option<u64> {
        let is_copied = |position: &usize| {
            self.entries[*position].mark == RecordMark::Forked && !self.entries[*position].is_sidechain
        };
        let last = walk.positions().rfind(is_copied)?;
        Some(self.entries[last].offset)
    }

    /// The positions of the prompts of a branch.
    pub(super) fn prompts_of(&self, walk: &Walk) -> impl Iterator<Item = usize> {
        let is_prompt = |position: &usize| self.entries[*position].role == RecordRole::Prompt;
        walk.positions().filter(is_prompt)
    }

    /// The offsets of the messages of a branch, in the order of the file.
    pub(super) fn messages_of(&self, walk: &Walk) -> Vec<u64> {
        let messages = walk
            .positions()
            .filter(|position| self.entries[*position].is_message());
        messages.map(|position| self.entries[position].offset).collect()
    }

    /// The offset of the record with this uuid, the last one if there are several.
    #[must_use]
    pub(in crate::transcript) fn offset_of(&self, uuid: &str) -> Option<u64> {
        let position = self.entries.find(&RecordId::new(uuid))?;
        Some(self.entries[position].offset)
    }

    /// The offsets after `offset` of the records that concern the whole session.
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
            && self.entries[position].offset == offset
            && self.entries[position].id == RecordId::new(uuid)
    }

    /// The offsets of the records that name a missing parent, with the parent's uuid.
    pub(in crate::transcript) fn missing_parents(&self) -> impl Iterator<Item = (u64, String)> {
        self.entries
            .missing_parents()
            .map(|(position, parent)| (self.entries[position].offset, parent.text()))
    }

    /// How many prompts are before `offset`, abandoned branches included.
    pub(in crate::transcript) fn prompts_before(&self, offset: u64) -> usize {
        let before = 0..self.entries.first_at_or_after(offset);
        before
            .filter(|position| self.entries[*position].role == RecordRole::Prompt)
            .count()
    }

    /// How many chain records there are.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// The largest number of turns that may have run, on all branches: a prompt may be recorded as the agent's own command.
    #[must_use]
    pub fn max_turns(&self) -> u64 {
        let asides =
            (0..self.entries.len()).filter(|position| self.entries[*position].role == RecordRole::Aside);
        self.prompts + asides.count() as u64
    }

    /// The uuid of the live branch's last message. `None` if there are no chain records.
    #[must_use]
    pub fn live_uuid(&self) -> Option<String> {
        Some(self.entries[self.live_leaf()?].id.text())
    }

    /// The uuid of the last message of the newer branch that a resume leaves out.
    #[must_use]
    pub fn newer_uuid(&self) -> Option<String> {
        let newer = self.walk(None, true)?.newer_branch?;
        let position = self.entries.first_at_or_after(newer.offset);
        Some(self.entries[position].id.text())
    }

    /// Whether the last turn of the live branch has ended: its last message is a text with which the model ended its
    /// reply, an error in place of a reply, or the marker of an interruption. Later commands of the agent's own are
    /// skipped, but they show that the message is complete: the records of one message are never separated.
    ///
    /// # Errors
    /// The reader's error.
    pub fn live_turn_end(&self, reader: impl BufRead + Seek) -> io::Result<TurnEnd> {
        let Some(leaf) = self.live_leaf() else {
            return Ok(TurnEnd::Open);
        };
        let mut position = leaf;
        // At most as many steps as there are records, because parents may form a circle.
        for _ in 0..self.entries.len() {
            match (self.entries[position].role, self.entries.parent(position)) {
                (RecordRole::Aside | RecordRole::Other, ParentLookup::Found(parent)) => position = parent,
                _ => break,
            }
        }
        let end = self.record_at(reader, position, |record, _| record.turn_end())?;
        Ok(match end.unwrap_or(TurnEnd::Open) {
            TurnEnd::Ambiguous if position != leaf => TurnEnd::Ended,
            end => end,
        })
    }

    /// Reads the record at this position and its line. `None` if another record is there by now.
    pub(super) fn record_at<T>(
        &self,
        reader: impl BufRead + Seek,
        position: usize,
        tell: impl FnOnce(&Record<'_>, &[u8]) -> T,
    ) -> io::Result<Option<T>> {
        line_at(reader, self.entries[position].offset, |line| {
            let text = line_text(line);
            let record = Record::parse(&text)?;
            let uuid = record.fields.text("uuid")?;
            (RecordId::new(&uuid) == self.entries[position].id).then(|| tell(&record, line))
        })
    }

    /// The records of the branch that ends with `until`, or of the live branch. `None` if there is no such
    /// record, or no chain record at all.
    #[must_use]
    pub fn select(&self, until: Option<&str>, follow_compaction: bool) -> Option<Selection> {
        let walk = self.walk(until, follow_compaction)?;
        Some(Selection::of(&self.entries, &walk))
    }

    /// The records that a session which ends with `until` is sent before its next prompt: those of the branch, including those
    /// before a compaction, and those that the agent wrote for itself after the end. `None` if there is no such record.
    #[must_use]
    pub fn select_up_to_next_prompt(&self, until: &str) -> Option<Selection> {
        let mut walk = self.walk(Some(until), true)?;
        walk.extend_to_next_prompt(&self.entries);
        Some(Selection::of(&self.entries, &walk))
    }

    /// The records of the branch that ends with the newest message. A missing parent is replaced by the record before it in
    /// the file. `None` if there is no message, or if the live branch is not a part of this branch: then this branch was
    /// abandoned, not damaged.
    #[must_use]
    pub fn select_joined(&self) -> Option<Selection> {
        let live = self.live_leaf()?;
        let walk = Walk::from(&self.entries, self.newest_message()?, true);
        walk.contains(live).then(|| Selection::of(&self.entries, &walk))
    }

    /// Walks back from the record `until`, or from the last record of the live branch.
    pub(super) fn walk(&self, until: Option<&str>, follow_compaction: bool) -> Option<Walk> {
        if let Some(uuid) = until {
            let leaf = self.entries.find(&RecordId::new(uuid))?;
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

    /// The uuid of the last record of the selected branch whose message has this id.
    #[must_use]
    pub fn last_of_message(&self, selection: &Selection, message_id: &str) -> Option<String> {
        let wanted = self.entries.message_hash(message_id);
        (0..self.entries.len())
            .rev()
            .filter(|position| self.entries[*position].message_hash == wanted)
            .find(|position| selection.contains(self.entries[*position].offset))
            .map(|position| self.entries[position].id.text())
    }

    fn live_leaf(&self) -> Option<usize> {
        let newest = self.newest_message()?;
        let marked = self.hinted_leaf(newest);
        Some(marked.map_or(newest, |(leaf, _)| leaf))
    }

    /// The last message at the position that the agent recorded last, and the walk back from the newest message, if that
    /// walk does not lead there. A resume then continues from that position, as observed with Claude Code 2.1.316, whether a
    /// parent is missing or another branch is newer.
    fn hinted_leaf(&self, newest: usize) -> Option<(usize, Walk)> {
        let LeafHint::At(hint) = &self.leaf_hint else {
            return None;
        };
        let entries = &self.entries;
        let marked = entries.find(hint)?;
        let message = entries.nearest_message(marked)?;
        if entries[marked].is_sidechain || message == newest || entries.has_ancestor(newest, marked) {
            return None;
        }
        let from_newest = Walk::unjoined(entries, newest);
        if from_newest.contains(marked) {
            return None;
        }
        Some((Walk::end_of_calls(entries, message), from_newest))
    }

    /// The last message, or the last record if there is no message. Records of the agent's own must not count:
    /// they may be written late, with an older parent, and would hide a prompt that was sent meanwhile.
    fn newest_message(&self) -> Option<usize> {
        let main = || {
            (0..self.entries.len())
                .rev()
                .filter(|position| !self.entries[*position].is_sidechain)
        };
        let message = main().find(|position| self.entries[*position].role != RecordRole::Other);
        let leaf = message.or_else(|| main().next())?;
        self.entries.find(&self.entries[leaf].id)
    }
}

impl GrowingIndex for ClaudeIndex {
    fn extent(&self) -> ReadExtent {
        ReadExtent {
            bytes: self.bytes,
            complete_bytes: self.complete_bytes,
            can_extend: !self.has_unterminated_record,
        }
    }

    fn extend(&mut self, reader: impl BufRead) -> io::Result<()> {
        let mut lines = PrunedLines::new(reader, self.complete_bytes, &INDEX);
        self.ends_torn = false;
        while let Some(line) = lines.next_line()? {
            let (offset, ended) = (line.position.offset, line.ended);
            match line.into_readable() {
                Scanned::Blank => {}
                Scanned::Garbage if ended => self.garbage_lines += 1,
                Scanned::Garbage => self.ends_torn = true,
                Scanned::Record(record) => {
                    self.has_unterminated_record = !ended;
                    self.push(offset, RecordFacts::of(&Record::of(&record)));
                }
            }
            if ended {
                self.complete_bytes = lines.position().offset;
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
