//! The messages and turns of a branch, and the open transcript that decodes them. Blocks.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{Branch, QwenIndex};
use super::message::{kept_messages, message};
use super::record::{RecordKind, given_title};
use crate::transcript::TranscriptError;
use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::{Fields, INNER_LIMIT};
use crate::transcript::indexes::{GrowingIndex, IndexedBranch, IndexesByPath};
use crate::transcript::lines::{LINE_LIMIT_BYTES, text_of_same_length};
use crate::transcript::message::TranscriptMessage;
use crate::transcript::open_transcript::{self, Loss, OpenTranscript};
use crate::transcript::origin::{ForkedFrom, Origin};
use crate::transcript::reading::READ_BYTES;

/// The messages of a branch.
#[derive(Debug)]
pub(in crate::transcript) struct QwenHistory {
    pub(super) index: Arc<QwenIndex>,
    branch: Branch,
    /// The entries that are messages, in the order of the branch.
    messages: Vec<u32>,
    /// The first message of each turn.
    turns: Vec<u32>,
}

impl IndexedBranch for QwenHistory {
    type Index = QwenIndex;

    fn read(index: &Arc<QwenIndex>, until: Option<&str>) -> Option<Self> {
        let empty = || until.is_none().then(Branch::default);
        let branch = index.branch(until).or_else(empty)?;
        let kind = |position: u32| index.entries[position as usize].kind;
        let is_message = |position: &u32| kind(*position).is_message();
        let messages: Vec<u32> = branch.positions.iter().copied().filter(is_message).collect();
        let numbered = (0..).zip(&messages);
        let turns = numbered.filter(|(_, position)| kind(**position) == RecordKind::Prompt);
        let turns = turns.map(|(message, _)| message).collect();
        Some(Self {
            index: Arc::clone(index),
            branch,
            messages,
            turns,
        })
    }

    fn turn_starts(&self) -> &[u32] {
        &self.turns
    }

    fn memory_bytes(&self) -> usize {
        let positions = self.branch.positions.capacity() + self.messages.capacity();
        (positions + self.turns.capacity()) * size_of::<u32>()
    }
}

impl QwenHistory {
    fn entries(&self) -> impl DoubleEndedIterator<Item = (u32, RecordKind)> {
        let entries = &self.index.entries;
        let positions = self.branch.positions.iter();
        positions.map(|position| (*position, entries[*position as usize].kind))
    }

    /// Whether the last turn has ended. Notes may follow its end.
    pub(super) fn turn_end(&self) -> TurnEnd {
        let notes = [RecordKind::Note, RecordKind::Title, RecordKind::Unknown];
        let last = self.entries().rev().find(|(_, kind)| !notes.contains(kind));
        match last {
            Some((_, RecordKind::End | RecordKind::Compaction)) => TurnEnd::Ended,
            // A cancelled turn has no record of its end.
            Some((_, RecordKind::Reply)) => TurnEnd::Ambiguous,
            _ => TurnEnd::Open,
        }
    }
}

/// An open transcript.
#[derive(Debug)]
pub struct OpenQwenTranscript {
    pub(super) history: Arc<QwenHistory>,
    path: PathBuf,
    reader: BufReader<File>,
}

impl OpenTranscript for OpenQwenTranscript {
    fn path(&self) -> &Path {
        &self.path
    }

    fn messages(&self) -> usize {
        self.history.messages.len()
    }

    fn turn_starts(&self) -> &[u32] {
        &self.history.turns
    }

    fn offset(&self, message: usize) -> Option<u64> {
        let position = self.history.messages.get(message)?;
        Some(self.history.index.entries[*position as usize].offset)
    }

    fn record_id(&self, message: usize) -> String {
        let position = self.history.messages.get(message);
        position.map_or_else(String::new, |position| self.history.index.uuid(*position))
    }

    fn find(&self, _owner: &str, record_id: &str) -> Option<usize> {
        let position = self.history.index.find(record_id)?;
        self.history
            .messages
            .iter()
            .position(|message| *message == position)
    }

    fn losses(&self) -> Vec<Loss> {
        let broken = u64::from(self.history.branch.broken_at.is_some());
        let damages = self.history.index.garbage_lines.max(broken);
        open_transcript::damage_loss(damages).into_iter().collect()
    }

    fn prompts(&self) -> Option<u64> {
        Some(self.history.index.prompts)
    }

    fn max_recorded_turns(&self) -> Option<u64> {
        Some(self.history.index.prompts)
    }

    fn ends_torn(&self) -> bool {
        self.history.index.ends_torn
    }

    fn unknown_records(&self) -> u64 {
        let kinds = self.history.entries().map(|(_, kind)| kind);
        kinds.filter(|kind| *kind == RecordKind::Unknown).count() as u64
    }

    /// Joins all records with the uuid of the message, as the agent does.
    fn message(&mut self, number: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        let Some(position) = self.history.messages.get(number).copied() else {
            return Ok(None);
        };
        let Some(mut joined) = self.record(position, message)? else {
            return Ok(None);
        };
        let index = Arc::clone(&self.history.index);
        for repeat in index.repeats(position) {
            let bytes = u64::from(index.entries[*repeat as usize].bytes);
            // Joined records are limited to the size of one.
            if joined.bytes + bytes > LINE_LIMIT_BYTES as u64 || joined.parts.len() >= INNER_LIMIT {
                break;
            }
            if let Some(more) = self.record(*repeat, message)? {
                joined.parts.extend(more.parts);
                joined.parts.truncate(INNER_LIMIT);
                joined.bytes += bytes;
            }
        }
        Ok(Some(joined))
    }

    fn loaded_messages(&mut self) -> Result<usize, TranscriptError> {
        let is_compaction = |(_, kind): &(u32, RecordKind)| *kind == RecordKind::Compaction;
        let Some((last, _)) = self.history.entries().rev().find(is_compaction) else {
            return Ok(self.messages());
        };
        let later = self
            .history
            .messages
            .iter()
            .rev()
            .take_while(|message| **message != last)
            .count();
        let kept = self.record(last, |fields, _, _| kept_messages(fields).len())?;
        Ok(later + kept.unwrap_or_default())
    }
}

impl OpenQwenTranscript {
    /// Opens a transcript up to a record, or with the branch that the agent continues.
    ///
    /// # Errors
    /// [`TranscriptError::Io`], and [`TranscriptError::RecordNotFound`] if there is no such record.
    pub(super) fn open(
        indexes: &IndexesByPath<QwenHistory>,
        path: &Path,
        until: Option<&str>,
    ) -> Result<Self, TranscriptError> {
        indexes.update(path, QwenIndex::read_file, |indexed, file| {
            Ok(Self {
                history: indexed.branch(path, until)?,
                path: path.to_owned(),
                reader: BufReader::with_capacity(READ_BYTES, file),
            })
        })
    }

    /// The [`Origin`] of the transcript.
    pub(super) fn origin(&mut self) -> Result<Origin, TranscriptError> {
        let first = (!self.history.index.entries.is_empty()).then_some(0);
        let is_title = |(_, kind): &(u32, RecordKind)| *kind == RecordKind::Title;
        let title = self
            .history
            .entries()
            .rev()
            .find(is_title)
            .map(|(position, _)| position);
        let entries = &self.history.index.entries;
        let is_copied = |position: &&u32| entries[**position as usize].is_copied;
        let copied = self.history.messages.iter().rev().find(is_copied).copied();
        let source = |fields: &Fields<'_>| {
            let source = fields.object("forkedFrom")?;
            Some(ForkedFrom {
                session_id: source.text("sessionId")?,
                record_uuid: source.text("messageUuid"),
            })
        };
        Ok(Origin {
            cwd: self.record_value(first, |fields| fields.text("cwd"))?,
            title: self.record_value(title, given_title)?,
            forked_from: self.record_value(copied, source)?,
            turns: self.turns(),
            missing_parents: usize::from(self.history.branch.broken_at.is_some()),
        })
    }

    fn record_value<T>(
        &mut self,
        position: Option<u32>,
        tell: impl FnOnce(&Fields<'_>) -> Option<T>,
    ) -> Result<Option<T>, TranscriptError> {
        let Some(position) = position else { return Ok(None) };
        Ok(self.record(position, |fields, _, _| tell(fields))?.flatten())
    }

    /// Reads a record: its members, its uuid and its length. `None` if another record is at its offset by now.
    fn record<T>(
        &mut self,
        position: u32,
        tell: impl FnOnce(&Fields<'_>, String, u64) -> T,
    ) -> Result<Option<T>, TranscriptError> {
        let uuid = self.history.index.uuid(position);
        let entry = &self.history.index.entries[position as usize];
        let mut record = Vec::new();
        let read = self.reader.seek(SeekFrom::Start(entry.offset)).and_then(|_| {
            let mut reader = (&mut self.reader).take(entry.bytes.into());
            reader.read_to_end(&mut record)
        });
        read.map_err(TranscriptError::io("read", &self.path))?;
        let text = text_of_same_length(&record);
        let fields =
            Fields::parse(&text).filter(|fields| fields.str("uuid").is_some_and(|found| found == uuid));
        Ok(fields.map(|fields| tell(&fields, uuid, entry.bytes.into())))
    }
}
