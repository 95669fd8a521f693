//! What new records in a transcript mean for its conversation: turns that are complete on disk, and prompts that this
//! daemon did not send.
//!
//! Owns the count of prompts that may be in the transcript of a live session, and the channel through which
//! conversations ask for another look at a transcript. It does not read transcripts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_protocol::history::Checkpoint;
use bridge_protocol::{ConversationId, UpstreamId};
use tokio::sync::Notify;

/// How many transcripts may be asked for at once: more than turns end in the time of one look.
const ASKED: usize = 1_024;

/// How much of a history an agent loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The turns of the conversation's history up to the place where it continues.
    pub step: u64,
    /// The messages that it loaded: those on the branch that no compaction has replaced.
    pub messages: u64,
}

/// New records in the transcript of a conversation's head, or of an older link whose last turn is not reported yet.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The checkpoints that are new, oldest first.
    pub saved: Vec<Checkpoint>,
    /// How many prompts stand in it, those of abandoned branches too, where they can be counted.
    pub prompts: Option<u64>,
    /// Whether it shrank, or another file stands in its place, while no turn ran.
    pub replaced: bool,
    /// Whether it is shorter than its kept copy, or begins otherwise.
    pub rewritten: bool,
}

/// How many prompts may stand in the transcript of a live session: those that stood in it when it was opened, and those
/// that were sent since. Unknown for a transcript that could not be read then; nothing is concluded from such a one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    at_most: Option<u64>,
    /// Whether another program has written since the last prompt.
    is_foreign: bool,
}

impl Tally {
    /// Of a session in whose transcript so many prompts stood when it was opened.
    #[must_use]
    pub fn of(prompts: Option<u64>) -> Self {
        Self {
            at_most: prompts,
            is_foreign: false,
        }
    }

    /// Another program has written while no turn ran: the next prompt reports it once more, to those who come then.
    pub fn note_foreign(&mut self) {
        self.is_foreign = true;
    }

    /// Whether another program has written since the last prompt.
    pub fn take_foreign(&mut self) -> bool {
        std::mem::take(&mut self.is_foreign)
    }

    /// A prompt is sent. Whether the agent takes it may never be known.
    pub fn sent(&mut self) {
        self.at_most = self.at_most.map(|prompts| prompts + 1);
    }

    /// The agent continues in a transcript that it started itself; the running prompt may be in either one.
    pub fn cleared(&mut self) {
        self.at_most = Some(1);
    }

    /// Whether another program has written so many prompts; true once only.
    pub fn is_exceeded_by(&mut self, prompts: Option<u64>) -> bool {
        match (&mut self.at_most, prompts) {
            (Some(at_most), Some(prompts)) if *at_most < prompts => {
                *at_most = prompts;
                true
            }
            _ => false,
        }
    }
}

/// What is asked about transcripts: by session, the conversations that had a turn on it; whether there are more.
pub type Asked = (BTreeMap<UpstreamId, BTreeSet<ConversationId>>, bool);

/// Transcripts that are to be looked at again, because a turn on them has ended or they are the head no longer; and what
/// wakes the task that looks.
#[derive(Debug, Default)]
pub struct TurnEnds {
    asked: Mutex<Asked>,
    wake: Arc<Notify>,
}

impl TurnEnds {
    /// Wakes the task that looks at transcripts, when the system reports a change of them.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let wake = Arc::clone(&self.wake);
        move || wake.notify_one()
    }

    /// A turn of this conversation on this session has ended; or if none is named, the session is a head no longer, so that what
    /// runs now does not run on it.
    pub fn note(&self, upstream_id: &UpstreamId, ended: Option<ConversationId>) {
        let mut noted = self.lock();
        let (asked, all) = &mut *noted;
        if asked.len() < ASKED || asked.contains_key(upstream_id) {
            asked.entry(upstream_id.clone()).or_default().extend(ended);
        } else {
            *all = true;
        }
        drop(noted);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to take, or the system has reported a change.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// The sessions that were noted since this was asked last, with the conversations whose turns have ended on them, and
    /// whether there were more than that.
    #[must_use]
    pub fn take(&self) -> Asked {
        std::mem::take(&mut *self.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_prompts_than_were_there_and_were_sent_are_told_once() {
        let mut tally = Tally::of(Some(2));
        tally.sent();
        assert!(!tally.is_exceeded_by(Some(2)));
        assert!(!tally.is_exceeded_by(Some(3)));
        assert!(tally.is_exceeded_by(Some(4)));
        assert!(!tally.is_exceeded_by(Some(4)));
        tally.sent();
        assert!(!tally.is_exceeded_by(Some(5)));
        assert!(tally.is_exceeded_by(Some(7)));
        tally.cleared();
        assert!(!tally.is_exceeded_by(Some(1)));
        assert!(tally.is_exceeded_by(Some(2)));
    }

    #[test]
    fn what_was_never_counted_proves_nothing() {
        let mut tally = Tally::default();
        tally.sent();
        assert!(!tally.is_exceeded_by(Some(100)));
        assert!(!Tally::of(Some(0)).is_exceeded_by(None));
    }
}
