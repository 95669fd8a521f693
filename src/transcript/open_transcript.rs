//! A transcript that is held open, whatever its format: messages and turns by number, and their names.
//!
//! Each format implements it. Blocks. Knows neither conversations nor what is made of the messages.

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
    /// So many records are damaged or gone.
    Damaged(u64),
    /// What was said before a compaction is not in it.
    Compacted,
    /// The file of another session, in which it begins, is not there.
    Source {
        /// That session.
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

/// What an open transcript holds.
pub trait OpenTranscript: fmt::Debug + Send {
    /// The file that was opened.
    fn path(&self) -> &Path;

    /// How many messages there are.
    fn messages(&self) -> usize;

    /// How many messages an agent loads: those that no compaction has replaced, and those that the compaction left.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn loaded_messages(&mut self) -> Result<usize, TranscriptError>;

    /// The message with which each turn begins.
    fn turn_starts(&self) -> &[u32];

    /// Where the record of a message begins in the file that was opened; none if it is in another one.
    fn offset(&self, message: usize) -> Option<u64>;

    /// How many turns there are.
    fn turns(&self) -> usize {
        self.turn_starts().len()
    }

    /// The messages of a turn; none if there is no such turn.
    fn turn(&self, turn: usize) -> Range<usize> {
        let start_of = |turn: usize| self.turn_starts().get(turn).map(|start| *start as usize);
        let end = self.messages();
        start_of(turn).unwrap_or(end)..start_of(turn + 1).unwrap_or(end)
    }

    /// The turn that a message belongs to; none before the first.
    fn turn_of(&self, message: usize) -> Option<usize> {
        let has_begun = |start: &u32| *start as usize <= message;
        self.turn_starts().partition_point(has_begun).checked_sub(1)
    }

    /// The name of a message's record; empty if there is no such message.
    fn record_id(&self, message: usize) -> String;

    /// The message of this name in the file of the session `owner`, or the last one of the turn of this name.
    fn find(&self, owner: &str, record_id: &str) -> Option<usize>;

    /// Where the first record of a turn begins in the file that was opened; none if it is in another one.
    fn begin_offset(&self, turn: usize) -> Option<u64> {
        self.offset(self.turn(turn).start)
    }

    /// Where the last record of a turn begins in the file that was opened; none if it is in another one.
    fn end_offset(&self, turn: usize) -> Option<u64> {
        self.offset(self.turn(turn).next_back()?)
    }

    /// Reads a message; none if the file was changed meanwhile.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn message(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError>;

    /// As [`OpenTranscript::message`], for a summary of a turn: of a tool's answer it may contain no more than the length.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    fn outline(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        self.message(message)
    }

    /// What it lacks.
    fn losses(&self) -> Vec<Loss>;

    /// How many prompts it holds, those of abandoned branches too, if they can be told from what else is written.
    fn prompts(&self) -> Option<u64>;

    /// The most turns that may ever have run in it, as far as it shows.
    fn max_turns(&self) -> u64;

    /// The most turns of which it may have kept a record, if its agent does not record every turn. It is then unknown
    /// whether more turns ran.
    fn max_recorded_turns(&self) -> Option<u64> {
        None
    }

    /// The name of the place after a turn, and the session whose file that is in, where that may be another one.
    fn turn_end_id(&self, turn: usize) -> (String, Option<&str>) {
        (self.record_id(self.turn(turn).end.saturating_sub(1)), None)
    }

    /// The session whose file holds a message, where that may be another one than was opened.
    fn owner(&self, _message: usize) -> Option<&str> {
        None
    }

    /// Whether it may hold records of the session `owner`; `own` is the one that was opened.
    fn may_hold(&self, own: &str, owner: &str) -> bool {
        own == owner
    }

    /// Whether the file of another session, in which it begins, is missing.
    fn lacks_beginning(&self) -> bool {
        false
    }

    /// Whether a branch of it can end within a turn.
    fn can_end_within_turns(&self) -> bool {
        true
    }

    /// How many turns up to the record `last` are copies, if the transcript begins with copies of another's that ended there.
    fn copied_turns(&self, _last: &str) -> Option<usize> {
        None
    }

    /// Whether its last line breaks off, unless its agent passes over such a line.
    fn ends_torn(&self) -> bool {
        false
    }

    /// How many of its records are of unknown kinds, as far as that is counted. They are no damage.
    fn unknown_records(&self) -> u64 {
        0
    }
}

/// A loss of so many records, if any.
pub(super) fn damage_loss(records: u64) -> Option<Loss> {
    (records > 0).then_some(Loss::Damaged(records))
}
