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
const MAX_REQUESTED: usize = 1_024;

/// How much of a history an agent loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedHistory {
    /// The turns of the conversation's history up to the place where it continues.
    pub turns: u64,
    /// The messages that it loaded: those on the branch that no compaction has replaced.
    pub messages: u64,
}

/// New records in the transcript of a conversation's head, or of an older link whose last turn is not reported yet.
#[derive(Clone, Debug)]
pub struct TranscriptGrowth {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The checkpoints that are new, oldest first.
    pub new_checkpoints: Vec<Checkpoint>,
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
pub struct PromptTally {
    max_prompts: Option<u64>,
    /// Whether another program has written since the last prompt.
    is_foreign: bool,
}

impl PromptTally {
    /// Of a session in whose transcript so many prompts stood when it was opened.
    #[must_use]
    pub fn new(prompts: Option<u64>) -> Self {
        Self {
            max_prompts: prompts,
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
    pub fn add_sent_prompt(&mut self) {
        self.max_prompts = self.max_prompts.map(|prompts| prompts + 1);
    }

    /// The agent continues in a transcript that it started itself; the running prompt may be in either one.
    pub fn reset_after_clear(&mut self) {
        self.max_prompts = Some(1);
    }

    /// Whether another program has written so many prompts; true once only.
    pub fn detect_foreign_prompts(&mut self, prompts: Option<u64>) -> bool {
        match (&mut self.max_prompts, prompts) {
            (Some(at_most), Some(prompts)) if *at_most < prompts => {
                *at_most = prompts;
                true
            }
            _ => false,
        }
    }
}

/// The transcripts to check: by session, the conversations that had a turn on it; and whether there are more than that.
pub type RequestedRechecks = (BTreeMap<UpstreamId, BTreeSet<ConversationId>>, bool);

/// Transcripts that are to be looked at again, because a turn on them has ended or they are the head no longer; and what
/// wakes the task that looks.
#[derive(Debug, Default)]
pub struct RecheckQueue {
    requested: Mutex<RequestedRechecks>,
    wake: Arc<Notify>,
}

impl RecheckQueue {
    /// Wakes the task that looks at transcripts, when the system reports a change of them.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let wake = Arc::clone(&self.wake);
        move || wake.notify_one()
    }

    /// A turn of this conversation on this session has ended; or if none is named, the session is a head no longer, so that what
    /// runs now does not run on it.
    pub fn request(&self, upstream_id: &UpstreamId, ended: Option<ConversationId>) {
        let mut noted = self.lock();
        let (asked, all) = &mut *noted;
        if asked.len() < MAX_REQUESTED || asked.contains_key(upstream_id) {
            asked.entry(upstream_id.clone()).or_default().extend(ended);
        } else {
            *all = true;
        }
        drop(noted);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, RequestedRechecks> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to take, or the system has reported a change.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// The sessions that were noted since this was asked last, with the conversations whose turns have ended on them, and
    /// whether there were more than that.
    #[must_use]
    pub fn take(&self) -> RequestedRechecks {
        std::mem::take(&mut *self.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_prompts_than_were_there_and_were_sent_are_told_once() {
        let mut tally = PromptTally::new(Some(2));
        tally.add_sent_prompt();
        assert!(!tally.detect_foreign_prompts(Some(2)));
        assert!(!tally.detect_foreign_prompts(Some(3)));
        assert!(tally.detect_foreign_prompts(Some(4)));
        assert!(!tally.detect_foreign_prompts(Some(4)));
        tally.add_sent_prompt();
        assert!(!tally.detect_foreign_prompts(Some(5)));
        assert!(tally.detect_foreign_prompts(Some(7)));
        tally.reset_after_clear();
        assert!(!tally.detect_foreign_prompts(Some(1)));
        assert!(tally.detect_foreign_prompts(Some(2)));
    }

    #[test]
    fn what_was_never_counted_proves_nothing() {
        let mut tally = PromptTally::default();
        tally.add_sent_prompt();
        assert!(!tally.detect_foreign_prompts(Some(100)));
        assert!(!PromptTally::new(Some(0)).detect_foreign_prompts(None));
    }
}
