//! What a former head had left unfinished, as stored.

use bridge_protocol::UpstreamId;
use bridge_protocol::conversation::Limit;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ConversationRecord, CutShortPrompt, PendingContinuation, RestingState};
use crate::chain::CHAIN_LIMIT;

/// The state of a head with an unfinished turn, a limit or a scheduled continuation, when another session replaced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedHead {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The state while no turn ran.
    #[serde(default)]
    pub resting: RestingState,
    /// The message of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The usage limit that was hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The prompt whose turn was cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutShortPrompt>,
    /// The scheduled continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<PendingContinuation>,
}

impl ConversationRecord {
    /// Saves what the head leaves unfinished, before a change that an undo can revert makes another session the head.
    pub fn save_unfinished_head(&mut self) {
        let Some(head) = self.chain.head() else { return };
        let upstream_id = head.upstream_id.clone();
        self.unfinished_heads
            .retain(|earlier| earlier.upstream_id != upstream_id);
        if self.cut.is_none() && self.limit.is_none() && self.continuation.is_none() {
            return;
        }
        self.unfinished_heads.push(UnfinishedHead {
            upstream_id,
            resting: self.resting,
            failure: self.failure.clone(),
            limit: self.limit.clone(),
            cut: self.cut.clone(),
            continuation: self.continuation.clone(),
        });
        if self.unfinished_heads.len() > CHAIN_LIMIT {
            self.unfinished_heads.remove(0);
        }
    }

    /// Restores what the head had left unfinished, after an undo made it the head again. A continuation that was due
    /// meanwhile is dropped, because the user did not ask for it at this time, and one that was scheduled since takes
    /// precedence.
    pub fn restore_unfinished_head(&mut self, now: Timestamp) {
        let Some(head) = self.chain.head() else { return };
        let is_it = |earlier: &UnfinishedHead| earlier.upstream_id == head.upstream_id;
        let Some(index) = self.unfinished_heads.iter().rposition(is_it) else {
            return;
        };
        // The undo also reverted the changes after this head was replaced.
        let Some(head) = self.unfinished_heads.drain(index..).next() else {
            return;
        };
        self.resting = head.resting;
        self.failure = head.failure;
        self.limit = head.limit;
        // Its questions were withdrawn when it was replaced.
        self.cut = head.cut.map(|cut| CutShortPrompt { asks: false, ..cut });
        let later = head.continuation.filter(|continuation| continuation.at > now);
        let is_useful = |continuation: &PendingContinuation| {
            self.cut.is_some() || continuation.text.is_some() || continuation.line
        };
        let has_held_prompts = !self.waiting.is_empty();
        let later = later.map(|continuation| PendingContinuation {
            line: continuation.line && has_held_prompts,
            ..continuation
        });
        self.continuation = self.continuation.take().or(later.filter(is_useful));
    }
}
