//! A transcript that is held open, whatever its format: messages and turns by number, and their names.
//!
//! Owns which format answers. Blocks. Knows neither conversations nor what is made of the messages.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::TranscriptError;
use super::claude::book::Outline;
use super::message::TranscriptMessage;
use super::qwen::OpenQwen;
use super::reading::OpenBook;
use super::rollouts::OpenRollout;

/// An open transcript.
#[derive(Debug)]
pub enum Opened {
    /// Claude's: a branch of one file.
    Claude(OpenBook),
    /// Codex': a rollout and those that it continues.
    Codex(Box<OpenRollout>),
    /// Qwen Code's: a branch of one file.
    Qwen(Box<OpenQwen>),
}

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

impl Opened {
    /// How many messages there are.
    #[must_use]
    pub fn messages(&self) -> usize {
        match self {
            Self::Claude(open) => open.book.messages(),
            Self::Codex(open) => open.book.messages(),
            Self::Qwen(open) => open.book.messages(),
        }
    }

    /// How many messages an agent loads when it goes on: those that no compaction has replaced, and what that put in their
    /// place.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn loaded_messages(&mut self) -> Result<usize, TranscriptError> {
        match self {
            Self::Claude(open) => open.loaded_messages(),
            Self::Codex(open) => open.loaded_messages(),
            Self::Qwen(open) => open.loaded_messages(),
        }
    }

    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> usize {
        match self {
            Self::Claude(open) => open.book.turns(),
            Self::Codex(open) => open.book.turns(),
            Self::Qwen(open) => open.book.turns(),
        }
    }

    /// How many prompts it holds, those of abandoned branches too, if they can be told from what else is written.
    #[must_use]
    pub fn prompts(&self) -> Option<u64> {
        match self {
            Self::Claude(open) => Some(open.book.prompts()),
            Self::Codex(_) => None,
            Self::Qwen(open) => Some(open.book.prompts()),
        }
    }

    /// The most turns that may ever have run in it, as far as it shows. Codex keeps no record of commands that its adapter
    /// answers by itself, so that only a rollout without a message shows anything.
    #[must_use]
    pub fn turns_at_most(&self) -> u64 {
        match self {
            Self::Claude(open) => open.book.turns_at_most(),
            Self::Codex(open) if open.book.messages() == 0 => 0,
            Self::Codex(_) => u64::MAX,
            Self::Qwen(open) => open.book.prompts(),
        }
    }

    /// The most turns of which it may have kept a record, if its agent does not record every turn. Whether turns are missing
    /// that another one shows nobody knows.
    #[must_use]
    pub fn turns_recorded_at_most(&self) -> Option<u64> {
        match self {
            Self::Claude(_) => None,
            Self::Codex(open) => Some(open.book.turns_recorded_at_most()),
            Self::Qwen(open) => Some(open.book.prompts()),
        }
    }

    /// Whether the file of another session, in which it begins, is missing.
    #[must_use]
    pub fn begins_elsewhere(&self) -> bool {
        match self {
            Self::Claude(_) | Self::Qwen(_) => false,
            Self::Codex(open) => open.missing.is_some(),
        }
    }

    /// How many turns up to the record `last` are copies, if the transcript begins with copies of another's that ended there.
    #[must_use]
    pub fn copied_turns(&self, last: &str) -> Option<usize> {
        // A fork by reference has no copies.
        let Self::Claude(open) = self else { return None };
        match open.book.find(last).and_then(|last| open.book.turn_of(last)) {
            Some(turn) => Some(turn + 1),
            // Somebody went back behind it: what was copied stands before it in the file, and what is new behind it.
            None => open.book.turns_begun_by(last),
        }
    }

    /// Whether its last line breaks off, as far as that is known: a rollout's is passed over by its agent.
    #[must_use]
    pub fn ends_torn(&self) -> bool {
        match self {
            Self::Claude(open) => open.book.ends_torn(),
            Self::Codex(_) => false,
            Self::Qwen(open) => open.book.ends_torn(),
        }
    }

    /// The messages of a turn; of one that is not there none.
    #[must_use]
    pub fn turn(&self, turn: usize) -> Range<usize> {
        match self {
            Self::Claude(open) => open.book.turn(turn),
            Self::Codex(open) => open.book.turn(turn),
            Self::Qwen(open) => open.book.turn(turn),
        }
    }

    /// The turn that a message belongs to; none before the first.
    #[must_use]
    pub fn turn_of(&self, message: usize) -> Option<usize> {
        match self {
            Self::Claude(open) => open.book.turn_of(message),
            Self::Codex(open) => open.book.turn_of(message),
            Self::Qwen(open) => open.book.turn_of(message),
        }
    }

    /// The name of a message's record; empty when it is not there.
    #[must_use]
    pub fn record_id(&self, message: usize) -> String {
        match self {
            Self::Claude(open) => open.book.uuid(message),
            Self::Codex(open) => open.book.record_id(message),
            Self::Qwen(open) => open.book.uuid(message),
        }
    }

    /// The session whose file holds a message, where that may be another one than was opened.
    #[must_use]
    pub fn owner(&self, message: usize) -> Option<&str> {
        match self {
            Self::Claude(_) | Self::Qwen(_) => None,
            Self::Codex(open) => open.book.owner(message),
        }
    }

    /// The name of the place after a turn, and the session whose file that is in, where that may be another one.
    #[must_use]
    pub fn end_of_turn(&self, turn: usize) -> (String, Option<&str>) {
        match self {
            Self::Claude(open) => (open.book.end_of_turn(turn), None),
            Self::Qwen(open) => (open.book.end_of_turn(turn), None),
            Self::Codex(open) => match open.book.turn_name(turn) {
                Some((name, owner)) => (name.to_owned(), Some(owner)),
                None => (String::new(), None),
            },
        }
    }

    /// Where the first record of a turn begins in the file that was opened; none when it is in another one.
    #[must_use]
    pub fn begin_offset(&self, turn: usize) -> Option<u64> {
        match self {
            Self::Claude(open) => open.book.begin_offset(turn),
            Self::Codex(open) => open.book.begin_offset(turn),
            Self::Qwen(open) => open.book.offset(open.book.turn(turn).start),
        }
    }

    /// Where the last record of a turn begins in the file that was opened; none when it is in another one.
    #[must_use]
    pub fn end_offset(&self, turn: usize) -> Option<u64> {
        match self {
            Self::Claude(open) => open.book.end_offset(turn),
            Self::Codex(open) => open.book.end_offset(turn),
            Self::Qwen(open) => open.book.offset(open.book.turn(turn).next_back()?),
        }
    }

    /// Whether a branch of it can end within a turn. Codex' own fork ends after whole turns.
    #[must_use]
    pub fn can_end_within_turns(&self) -> bool {
        !matches!(self, Self::Codex(_))
    }

    /// The file that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Claude(open) => open.path(),
            Self::Codex(open) => open.path(),
            Self::Qwen(open) => open.path(),
        }
    }

    /// The message of this name in the file of the session `owner`, or the last one of the turn of this name.
    #[must_use]
    pub fn find(&self, owner: &str, record_id: &str) -> Option<usize> {
        match self {
            Self::Claude(open) => open.book.find(record_id),
            Self::Codex(open) => open.book.find(owner, record_id),
            Self::Qwen(open) => open.book.find(record_id),
        }
    }

    /// Whether it may hold records of the session `owner`; `own` is the one that was opened.
    #[must_use]
    pub fn may_hold(&self, own: &str, owner: &str) -> bool {
        match self {
            Self::Claude(_) | Self::Qwen(_) => own == owner,
            Self::Codex(_) => true,
        }
    }

    /// What it lacks.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let (damages, compacted, missing) = match self {
            Self::Claude(open) => (open.book.damages, open.book.cut_by_compaction, None),
            Self::Codex(open) => (open.book.damages, false, open.missing.as_ref()),
            Self::Qwen(open) => (open.book.damages(), false, None),
        };
        let source = missing.map(|missing| Loss::Source {
            upstream_id: missing.upstream_id.clone(),
            detail: missing.detail.clone(),
        });
        let damaged = (damages > 0).then_some(Loss::Damaged(damages));
        let compacted = compacted.then_some(Loss::Compacted);
        source.into_iter().chain(damaged).chain(compacted).collect()
    }

    /// How many of its records are of kinds that are not known, so that what they say is not told: no damage. Of a rollout
    /// that is not counted.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        match self {
            Self::Claude(open) => open.book.unknown,
            Self::Codex(_) => 0,
            Self::Qwen(open) => open.book.unknown(),
        }
    }

    /// Reads a message; none when the file was changed meanwhile.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn message(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        match self {
            Self::Claude(open) => Ok(open.message(message)?.map(TranscriptMessage::from)),
            Self::Codex(open) => open.message(message),
            Self::Qwen(open) => open.message(message),
        }
    }

    /// As [`Opened::message`], for a summary of a turn: of what a tool answered no more may be told than how long it is.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn outline(&mut self, message: usize) -> Result<Option<TranscriptMessage>, TranscriptError> {
        let Self::Claude(open) = self else {
            return self.message(message);
        };
        Ok(match open.outline(message)? {
            Some(Outline::Message(read)) => Some(TranscriptMessage::from(*read)),
            Some(Outline::Result { bytes }) => {
                Some(TranscriptMessage::answer(open.book.uuid(message), bytes))
            }
            None => None,
        })
    }
}
