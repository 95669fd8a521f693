//! Writes of a conversation's record: one at a time, each with the parts that wait for it. Pure.
//!
//! A step changes the record in memory. At the end of the step the record is written or, if a write is already running,
//! after that write. Whatever has to wait for the disk is a part of a write: for example, a prompt is sent only when the
//! record on disk names its turn and its session. If a write fails, the ledgers of its parts go into the next one. The
//! change of a call is undone instead, unless the record has changed since.

use bridge_protocol::event::Event;
use bridge_protocol::id::TurnId;

use crate::store::{ConversationRecord, RequestId, RequestRecord};

use super::effect::{Ledger, Milestone, Now, WritePart};

/// The writer of a conversation's record.
#[derive(Debug)]
pub struct RecordWriter<R> {
    /// The record as it is on disk. Clients see no session and no settings that are not in it.
    pub on_disk: ConversationRecord,
    /// The running write.
    pub in_progress: Option<PendingWrite<R>>,
    /// The parts of the next write.
    pub next: Vec<WritePart<R>>,
    /// A new conversation to write, in a write of its own.
    pub new_conversation: Option<PendingWrite<R>>,
    /// Entries for the next write that nothing waits for.
    pub unsaved_ledger: Ledger,
    /// Whether the record has changed since the last write began.
    pub has_changes: bool,
    /// Whether the last write failed. It is repeated after a deadline, or by the next step that adds a part.
    pub has_failed: bool,
}

/// A write that is running or about to begin.
#[derive(Debug)]
pub struct PendingWrite<R> {
    /// The record to write: that of the conversation, or of a branch that becomes a new conversation.
    pub record: ConversationRecord,
    /// The parts of the write.
    pub parts: Vec<WritePart<R>>,
}

impl<R> RecordWriter<R> {
    /// The writer of a record that is on disk.
    #[must_use]
    pub fn new(on_disk: ConversationRecord) -> Self {
        Self {
            on_disk,
            in_progress: None,
            next: Vec::new(),
            new_conversation: None,
            unsaved_ledger: Ledger::default(),
            has_changes: false,
            has_failed: false,
        }
    }

    /// Whether everything is on disk.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let is_empty =
            self.next.is_empty() && self.new_conversation.is_none() && self.unsaved_ledger.is_empty();
        self.in_progress.is_none() && is_empty && !self.has_changes
    }

    /// Begins a write, if one is due and none is running. Returns whether it did.
    pub fn begin(&mut self, record: &mut ConversationRecord, now: Now) -> bool {
        let is_due = !self.next.is_empty() || self.has_changes && !self.has_failed;
        if self.in_progress.is_some() || !is_due && self.new_conversation.is_none() {
            return false;
        }
        self.in_progress = self.new_conversation.take();
        if self.in_progress.is_some() {
            return true;
        }
        let mut parts = std::mem::take(&mut self.next);
        if parts.is_empty() {
            record.updated_at = now.max(record.updated_at);
        }
        if parts.is_empty() || !self.unsaved_ledger.is_empty() {
            let part = WritePart {
                ledger: std::mem::take(&mut self.unsaved_ledger),
                milestone: Milestone::Saved,
            };
            parts.insert(0, part);
        }
        self.has_changes = false;
        self.has_failed = false;
        self.in_progress = Some(PendingWrite {
            record: record.clone(),
            parts,
        });
        true
    }

    /// The parts that are not on disk yet, oldest first.
    fn parts(&self) -> impl DoubleEndedIterator<Item = &WritePart<R>> {
        let running = self.in_progress.iter().flat_map(|write| &write.parts);
        running.chain(&self.next)
    }

    /// The entries that are not on disk yet, oldest first.
    fn ledgers(&self) -> impl DoubleEndedIterator<Item = &Ledger> {
        let ledgers = self.parts().map(|part| &part.ledger);
        ledgers.chain([&self.unsaved_ledger])
    }

    /// The latest state of a call with an idempotency key, if it is not on disk yet.
    #[must_use]
    pub fn unwritten_request(&self, id: &RequestId) -> Option<&RequestRecord> {
        let mut requests = self.ledgers().flat_map(|ledger| &ledger.requests);
        requests.rfind(|request| request.request_id == *id)
    }

    /// Whether the record on disk, or the one that is being written, names this as the running turn.
    #[must_use]
    pub fn may_name_turn(&self, turn_id: &TurnId) -> bool {
        let running = self.in_progress.as_ref().map(|write| &write.record);
        let mut records = [&self.on_disk].into_iter().chain(running);
        records.any(|record| record.turn.as_ref().is_some_and(|turn| turn.turn_id == *turn_id))
    }

    /// Adds a part to the next write.
    pub fn add(&mut self, part: WritePart<R>) {
        // The new part has a later state of these calls.
        let requests = &part.ledger.requests;
        let is_later =
            |kept: &RequestRecord| requests.iter().any(|later| later.request_id == kept.request_id);
        self.unsaved_ledger.requests.retain(|kept| !is_later(kept));
        self.next.push(part);
    }

    /// Whether an edit that is not on disk yet waits to be reported. False while a failed write waits to be repeated.
    #[must_use]
    pub fn has_unwritten_edit(&self) -> bool {
        let mut events = self.ledgers().flat_map(|ledger| &ledger.events);
        !self.has_failed && events.any(|event| matches!(event, Event::Edited { .. }))
    }

    /// Whether a question of the agent that is not on disk yet waits to be reported. False while a failed write waits to be
    /// repeated.
    #[must_use]
    pub fn has_unwritten_question(&self) -> bool {
        let mut parts = self.parts();
        let is_raised = |event: &Event| matches!(event, Event::InterruptRaised { .. });
        !self.has_failed
            && parts.any(|part| match &part.milestone {
                Milestone::QuestionRaised(_) => true,
                Milestone::QuestionSettled(settled) => settled.events.iter().any(is_raised),
                _ => false,
            })
    }
}
