//! An open transcript of any format: its messages and turns by number, and their ids.
//!
//! Each format implements it. Blocks. Knows neither conversations nor what the messages are used for.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::TranscriptError;
use super::message::TranscriptMessage;

/// An open transcript of any format.
pub type BoxedTranscript = Box<dyn OpenTranscript>;

/// Something that an open transcript lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// This many records are damaged or missing.
    Damaged(u64),
    /// The history before a compaction is missing.
    Compacted,
    /// The file of another session, which contains the beginning, is missing or unusable.
    Source {
        /// The other session.
        upstream_id: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(1) => formatter.write_str("one of its records is damaged or missing"),
            Self::Damaged(records) => write!(formatter, "{records} of its records are damaged or missing"),
            Self::Compacted => formatter.write_str("what was said before its compaction is not in it"),
            Self::Source { upstream_id, detail } => {
                write!(formatter, "of {upstream_id}, which it continues: {detail}")
            }
        }
    }
}

/// The content of an open transcript.
pub trait OpenTranscript: fmt::Debug + Send {
    /// Returns the file that was opened.
    fn path(&self) -> &Path;

    /// Returns how many messages there are.
    fn messages(&self) -> usize;

    /// Returns how many messages an agent loads: the messages after the last compaction, and those that the compaction
    /// kept.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn loaded_messages(&mut self) -> Result<usize, TranscriptError>;

    /// Returns the first message of each turn.
    fn turn_starts(&self) -> &[u32];

    /// Returns where the record of a message begins in the opened file. `None` if it is in another file.
    fn offset(&self, message: usize) -> Option<u64>;

    /// Returns how many turns there are.
    fn turns(&self) -> usize {
        self.turn_starts().len()
    }

    /// Returns the messages of a turn. Empty if there is no such turn.
    fn turn(&self, turn: usize) -> Range<usize> {
        let start_of = |turn: usize| self.turn_starts().get(turn).map(|start| *start as usize);
        let end = self.messages();
        start_of(turn).unwrap_or(end)..start_of(turn + 1).unwrap_or(end)
    }

    /// Returns the turn of a message. `None` before the first turn.
    fn turn_of(&self, message: usize) -> Option<usize> {
        let has_begun = |start: &u32| *start as usize <= message;
        self.turn_starts().partition_point(has_begun).checked_sub(1)
    }

    /// Returns the id of a message's record. Empty if there is no such message.
    fn record_id(&self, message: usize) -> String;

    /// Returns the message with this id in the file of the session `owner`, or the last message of the turn with this
    /// id.
    fn find(&self, owner: &str, record_id: &str) -> Option<usize>;

    /// Returns where the first record of a turn begins in the opened file. `None` if it is in another file.
    fn begin_offset(&self, turn: usize) -> Option<u64> {
        self.offset(self.turn(turn).start)
    }

    /// Returns where the last record of a turn begins in the opened file. `None` if it is in another file.
    fn end_offset(&self, turn: usize) -> Option<u64> {
        self.offset(self.turn(turn).next_back()?)
    }

    /// Reads a message. `None` if the file was changed meanwhile.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn message(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError>;

    /// As [`OpenTranscript::message`], for a summary of a turn: a tool's result may be reduced to its length.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn outline(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        self.message(message)
    }

    /// What the transcript lacks.
    fn losses(&self) -> Vec<Loss>;

    /// Returns how many prompts it contains, abandoned branches included, if they can be distinguished from other
    /// records.
    fn prompts(&self) -> Option<u64> {
        None
    }

    /// Returns the largest number of turns that may be recorded in it, if its agent does not record every turn. It is
    /// then unknown whether more turns ran.
    fn max_recorded_turns(&self) -> Option<u64> {
        None
    }

    /// Returns the id of the position after a turn, and the session whose file contains it, if that may be another
    /// session.
    fn turn_end_id(&self, turn: usize) -> (String, Option<&str>) {
        (self.record_id(self.turn(turn).end.saturating_sub(1)), None)
    }

    /// Returns the session whose file contains a message, if that may be another session than the opened one.
    fn owner(&self, _message: usize) -> Option<&str> {
        None
    }

    /// Whether it may contain records of the session `owner`; `own` is the opened session.
    fn may_contain_records_of(&self, own: &str, owner: &str) -> bool {
        own == owner
    }

    /// Whether the file of another session, which contains its beginning, is missing.
    fn lacks_beginning(&self) -> bool {
        false
    }

    /// Whether a branch of it can end within a turn.
    fn can_end_within_turns(&self) -> bool {
        true
    }

    /// Returns how many turns up to the record `last` are copies, if the transcript begins with turns that were copied
    /// from another one up to that record.
    fn copied_turns(&self, _last: &str) -> Option<usize> {
        None
    }

    /// Whether its last line is incomplete. False if the agent ignores such a line.
    fn ends_torn(&self) -> bool {
        false
    }

    /// Returns how many of its records are of unknown kinds, as far as they are counted. They are not damage.
    fn unknown_records(&self) -> u64 {
        0
    }
}

/// Returns the loss of this many records, if any.
pub(super) fn damage_loss(records: u64) -> Option<Loss> {
    (records > 0).then_some(Loss::Damaged(records))
}
