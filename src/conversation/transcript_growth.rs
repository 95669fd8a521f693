//! New records in the transcripts of conversations: turns that are complete on disk, and prompts that this daemon did
//! not send.
//!
//! Owns the count of prompts that may be in the transcript of a live session, and the queue through which conversations
//! request that a transcript is checked again. It does not read transcripts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bridge_protocol::history::Checkpoint;
use bridge_protocol::{ConversationId, UpstreamId};
use tokio::sync::Notify;

use super::lock::lock;

/// How many transcripts may be requested at once: more than the number of turns that end during one check.
const MAX_REQUESTED: usize = 1_024;

/// The history that an agent loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedHistory {
    /// The turns of the conversation's history up to the place where it continues.
    pub turns: u64,
    /// The messages that the agent loaded: those of the branch that no compaction has replaced.
    pub messages: u64,
    /// What the user typed as its last prompt, unless that is the first prompt.
    pub later_prompt: Option<String>,
}

/// New records in the transcript of a conversation's head, or of an older link whose last turn is not reported yet.
#[derive(Clone, Debug)]
pub struct TranscriptGrowth {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The new checkpoints, oldest first.
    pub new_checkpoints: Vec<Checkpoint>,
    /// How many prompts the transcript contains, including abandoned branches; `None` if they cannot be counted.
    pub prompts: Option<u64>,
    /// Whether the transcript shrank, or was replaced by another file, while no turn ran.
    pub replaced: bool,
    /// Whether the transcript is shorter than its backup, or its beginning differs.
    pub rewritten: bool,
}

impl TranscriptGrowth {
    /// Nothing new in the transcript of this session.
    #[must_use]
    pub fn of(upstream_id: &UpstreamId) -> Self {
        Self {
            upstream_id: upstream_id.clone(),
            new_checkpoints: Vec::new(),
            prompts: None,
            replaced: false,
            rewritten: false,
        }
    }
}

/// The largest number of prompts that the transcript of a live session may contain without another program having written to
/// it: those that it contained when the session was opened, and those sent since. Unknown if the transcript could not be read
/// then; in that case no foreign prompt is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTally {
    max_prompts: Option<u64>,
    /// Whether another program has written while no turn ran, so that the agent does not know what it added.
    is_foreign: bool,
}

impl PromptTally {
    /// Makes the tally of a session whose transcript contained `prompts` prompts when it was opened.
    #[must_use]
    pub fn new(prompts: Option<u64>) -> Self {
        Self {
            max_prompts: prompts,
            is_foreign: false,
        }
    }

    /// Records that another program has written while no turn ran.
    pub fn note_foreign(&mut self) {
        self.is_foreign = true;
    }

    /// Whether the open session lacks what another program has written.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Counts a prompt that is sent. Whether the agent accepts it may never be known.
    pub fn add_sent_prompt(&mut self) {
        self.max_prompts = self.max_prompts.map(|prompts| prompts + 1);
    }

    /// Resets the count after the agent has started a new transcript: the running prompt may be in the old or the new one.
    pub fn reset_after_clear(&mut self) {
        self.max_prompts = Some(1);
    }

    /// Whether `prompts` are more than this daemon can account for, so that another program wrote some. Returns true only
    /// once for the same number.
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

/// The transcripts to check: for each session the conversations whose turns ended on it, and whether more transcripts were
/// requested than fit.
pub type RequestedRechecks = (BTreeMap<UpstreamId, BTreeSet<ConversationId>>, bool);

/// The queue of transcripts to check again because a turn on them has ended or they are no longer the head. Wakes the task
/// that checks them.
#[derive(Debug, Default)]
pub struct RecheckQueue {
    requested: Mutex<RequestedRechecks>,
    wake: Arc<Notify>,
}

impl RecheckQueue {
    /// Returns a function that wakes the task that checks transcripts, for use when the system reports a change.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let wake = Arc::clone(&self.wake);
        move || wake.notify_one()
    }

    /// Requests a check of a session's transcript, because a turn of the conversation `ended` on it. `None` means that the
    /// session is no longer a head, so that a running turn does not run on it.
    pub fn request(&self, upstream_id: &UpstreamId, ended: Option<ConversationId>) {
        let mut requests = lock(&self.requested);
        let (sessions, all) = &mut *requests;
        if sessions.len() < MAX_REQUESTED || sessions.contains_key(upstream_id) {
            sessions.entry(upstream_id.clone()).or_default().extend(ended);
        } else {
            *all = true;
        }
        drop(requests);
        self.wake.notify_one();
    }

    /// Waits until a check is requested, or the system has reported a change.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Takes the requests since the last call.
    #[must_use]
    pub fn take(&self) -> RequestedRechecks {
        std::mem::take(&mut *lock(&self.requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_counted_proves_nothing() {
        let mut tally = PromptTally::default();
        tally.add_sent_prompt();
        assert!(!tally.detect_foreign_prompts(Some(100)));
        assert!(!PromptTally::new(Some(0)).detect_foreign_prompts(None));
    }
}
