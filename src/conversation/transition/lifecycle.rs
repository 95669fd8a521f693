//! Closing, hibernating, resetting, deleting, stopping.

use bridge_protocol::conversation::{DeleteAnswer, SessionInfo, Settings, TranscriptsOnDelete};
use bridge_protocol::event::Event;

use crate::agent::failure::{Failure, FailureKind};
use crate::chain::ClearReason;
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{CallChange, Deadline, Effect, Ledger, Milestone, Work};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::state::{
    Closing, LiveSession, Model, Operation, OperationKind, Stage, Turn, TurnPhase,
};
use crate::store::{BegunDeletion, ReportedSettings, RestingState};

impl<R> Model<R> {
    /// Closes the session. The next prompt brings it back.
    pub(super) fn close(&mut self, caller: Caller<R>) {
        if self.turn.is_some() {
            let error =
                ConversationError::Busy("a turn is running; cancel it or wait for its end".to_owned());
            self.answer(caller, Err(error));
            return;
        }
        if let Some(closing) = &mut self.closing {
            closing.callers.push(caller);
        } else if self.operation.is_some() {
            let error = ConversationError::Busy("the session is being opened; try again".to_owned());
            self.answer(caller, Err(error));
        } else if self.session.is_none() {
            self.answer(caller, Ok(Answer::Done));
        } else if self.close_would_lose() {
            let error = ConversationError::Conflict(format!(
                "the agent {} can neither resume nor load a session, so closing this one would lose its history; \
                 to give it up, start an empty session with sessionctl reset {id}, or delete the conversation with sessionctl rm {id}",
                self.record.agent,
                id = self.record.id
            ));
            self.answer(caller, Err(error));
        } else {
            self.begin_close(vec![caller], None);
        }
    }

    fn can_reopen(&self) -> bool {
        matches!(&self.session, Some(live) if live.can_reopen)
    }

    /// Whether closing the open session would lose history, because nothing could bring it back.
    pub(super) fn close_would_lose(&self) -> bool {
        !self.can_reopen() && self.record.chain.head().is_some_and(|head| head.written)
    }

    /// Why the session cannot be used for something else now: a turn runs (reported as `turn`), or an operation does.
    pub(super) fn busy_with(&self, turn: &str) -> Option<ConversationError> {
        let why = if self.turn.is_some() {
            turn
        } else if self.operation.is_some() || self.closing.is_some() {
            "the session is being opened, closed or branched; try again when that is done"
        } else {
            return None;
        };
        Some(ConversationError::Busy(why.to_owned()))
    }

    /// Closes the session and then clears the chain or deletes the conversation.
    pub(super) fn close_then(&mut self, kind: OperationKind, caller: Caller<R>) {
        let deletion = matches!(kind, OperationKind::Delete { .. }).then_some(TranscriptsOnDelete::Keep);
        self.set_operation(kind, caller, Stage::Closing(None));
        if self.session.is_none() && deletion.is_none() {
            self.continue_when_closed(DeleteAnswer::default());
        } else {
            self.begin_close(Vec::new(), deletion);
        }
    }

    /// Deletes the conversation and its transcripts. The record says so before the first of them is deleted: if it cannot be
    /// written, the call is refused and all of them stay.
    pub(super) fn delete_with_transcripts(&mut self, caller: Caller<R>) {
        let request = caller.key.clone();
        self.set_operation(
            OperationKind::Delete { transcripts: true },
            caller,
            Stage::Writing,
        );
        if self.record.begun_deletion.is_some() {
            self.deletion_begun(Ok(()));
            return;
        }
        self.record.begun_deletion = Some(BegunDeletion { request });
        self.bump_revision();
        self.write(Ledger::default(), Milestone::DeletionBegun);
    }

    /// The record says that the conversation is being deleted, or could not be written.
    pub(super) fn deletion_begun(&mut self, result: Result<(), StoreFailure>) {
        let Some(op) = self.end_written_operation() else {
            return;
        };
        if let Err(failure) = result {
            self.record.begun_deletion = None;
            self.answer(op.caller, Err(ConversationError::StoreFailed(failure)));
            return;
        }
        self.set_operation(op.kind, op.caller, Stage::Closing(None));
        self.begin_close(Vec::new(), Some(TranscriptsOnDelete::Delete));
    }

    /// Begins an operation that works on the transcripts, once the session is closed.
    pub(super) fn start_when_closed(&mut self, kind: OperationKind, caller: Caller<R>, work: Work) {
        if self.session.is_none() {
            self.start(kind, caller, work);
            return;
        }
        self.set_operation(kind, caller, Stage::Closing(Some(work)));
        self.begin_close(Vec::new(), None);
    }

    /// Whether the conversation is being deleted, or its deletion has begun and will be finished.
    pub(super) fn is_deleting(&self) -> bool {
        let deletes = matches!(self.operation_kind(), Some(OperationKind::Delete { .. }));
        self.record.begun_deletion.is_some() || deletes
    }

    pub(super) fn begin_close(&mut self, callers: Vec<Caller<R>>, deletion: Option<TranscriptsOnDelete>) {
        self.effects.push(Effect::Disarm(Deadline::Idle));
        self.cancel_questions(&[]);
        self.start_closing(callers, deletion, false);
    }

    fn start_closing(
        &mut self,
        callers: Vec<Caller<R>>,
        deletion: Option<TranscriptsOnDelete>,
        by_force: bool,
    ) {
        let number = self.begin_work(Work::Close { deletion, by_force });
        self.closing = Some(Closing { number, callers });
        self.session = None;
    }

    /// Closes a session whose agent ignored a cancellation. The next session is opened after that, so that two turns never
    /// run at once.
    pub(super) fn close_by_force(&mut self) {
        if self.closing.is_none() {
            self.start_closing(Vec::new(), None, true);
        }
    }

    /// The session must be opened again before its next use, perhaps in another process. Until then it stays open, because
    /// tools of its agent may be running.
    pub fn reopen_later(&mut self) {
        if let Some(live) = &mut self.session {
            live.needs_reopening = true;
        }
    }

    /// Whether the session must be opened again, and can be: its process runs no part of a turn, and no question is open in it.
    pub(super) fn must_reopen(&self) -> bool {
        let needs_reopening = self.session.as_ref().is_some_and(|live| live.needs_reopening);
        let is_between_turns = self.turn.as_ref().is_none_or(Turn::is_waiting);
        needs_reopening && is_between_turns && self.can_reopen_unchanged()
    }

    /// Whether the open session can be brought back unchanged.
    fn can_reopen_unchanged(&self) -> bool {
        // History as text that was not sent yet would be lost with the session, and so would a question, which a background
        // tool may ask between turns.
        let is_whole = |live: &LiveSession| live.can_reopen && live.preamble.is_none();
        self.session.as_ref().is_some_and(is_whole) && !self.has_open_question()
    }

    /// Whether the session can be closed on the daemon's own initiative: nothing runs or waits, and it can be brought back
    /// unchanged.
    pub fn can_leave_agent(&self) -> bool {
        self.can_reopen_unchanged() && self.is_quiet()
    }

    /// Closes the session in a process that gets no new work, so that the process ends and releases what it holds. The next
    /// prompt brings the session back in another process.
    pub fn leave_retired_agent(&mut self) {
        if self.can_leave_agent() {
            self.begin_close(Vec::new(), None);
        }
    }

    fn is_quiet(&self) -> bool {
        let idle = self.turn.is_none() && self.queue.is_empty();
        idle && self.operation.is_none() && self.closing.is_none() && self.due_turn.is_none()
    }

    /// The session is closed.
    pub(super) fn session_closed(&mut self, job: u64, transcripts: DeleteAnswer) {
        let Some(closing) = self.closing.take_if(|closing| closing.number == job) else {
            return;
        };
        // A client must not wait for the next prompt of a conversation that is being deleted.
        if !self.is_deleting() {
            self.emit(Event::Closed {});
        }
        for caller in closing.callers {
            self.answer(caller, Ok(Answer::Done));
        }
        self.continue_when_closed(transcripts);
    }

    /// Begins what waited for the session to be closed. `transcripts_left`: what became of the transcripts, if the
    /// conversation is deleted.
    fn continue_when_closed(&mut self, transcripts_left: DeleteAnswer) {
        let waits = |op: &mut Operation<R>| matches!(op.stage, Stage::Closing(_));
        let Some(op) = self.operation.take_if(waits) else {
            return;
        };
        let caller = op.caller;
        if let Stage::Closing(Some(work)) = op.stage {
            self.start(op.kind, caller, work);
            return;
        }
        match op.kind {
            OperationKind::Reset => {
                let before = self.record.clone();
                self.record.save_unfinished_head();
                let ledger = self.clear_chain(ClearReason::Reset);
                self.record.resting = RestingState::Idle;
                self.record.limit = None;
                self.record.usage = None;
                self.record.failure = None;
                let mut events = self.drop_questions("reset");
                events.push(Event::Reset {});
                self.session_info = SessionInfo::default();
                // An option that is still asked for and that the agent once offered is forgotten if the agent no longer does.
                let mut config = std::mem::take(&mut self.record.reported.config);
                let wanted = self.record.settings.config.as_ref();
                config.retain(|id, _| wanted.is_some_and(|wanted| wanted.contains_key(id)));
                self.record.reported = ReportedSettings {
                    title: self.record.reported.title.take(),
                    config,
                    ..ReportedSettings::default()
                };
                self.bump_revision();
                let answer = Answer::Conversation(Box::new(self.view_when_on_disk()));
                let change = CallChange::new(caller, answer, before).with_events(events);
                self.write_result(OperationKind::Reset, ledger, change);
            }
            OperationKind::Delete { transcripts } => {
                let before = self.record.clone();
                let mut ledger = self.clear_chain(ClearReason::Deleted);
                self.record.deleted_at = Some(self.now);
                self.record.begun_deletion = None;
                self.record.interrupts.clear();
                self.record.unfinished_heads.clear();
                // Settings may contain keys, and are no longer needed to open a session.
                self.record.settings = Settings::default();
                if transcripts {
                    // With the transcripts kept, the title would help to adopt them again.
                    self.record.title.clear();
                    self.record.failure = None;
                    self.record.reported = ReportedSettings::default();
                    ledger.erases_content = true;
                }
                self.bump_revision();
                let change = CallChange::new(caller, Answer::Deleted(transcripts_left), before);
                self.write_change(ledger, change.with_events(vec![Event::Deleted {}]));
            }
            // The other operations have work, which was begun above.
            _ => {}
        }
    }

    /// Empties the chain at the user's request, and drops what was interrupted or held. The lineage continues.
    fn clear_chain(&mut self, reason: ClearReason) -> Ledger {
        let mut cleared = self.record.chain.clear(reason, self.now);
        for entry in &mut cleared.entries {
            // A conversation that was never opened still has an agent and a folder.
            if entry.upstream_id.is_empty() {
                entry.agent = self.record.agent.clone();
                entry.cwd.clone_from(&self.record.cwd);
            }
        }
        self.record.cut = None;
        self.record.continuation = None;
        self.due_turn = None;
        Ledger {
            lineage: cleared.entries,
            requests: self.remove_held_prompts(),
            ..Ledger::default()
        }
    }

    /// Sets the deadline after which an idle conversation hibernates, so that its agent's memory is freed.
    pub(super) fn arm_idle(&mut self) {
        if self.rules.idle_ms > 0 && self.session.is_some() {
            self.effects.push(Effect::Arm(Deadline::Idle, self.rules.idle_ms));
        }
    }

    /// Closes the session of a conversation that was unused for a while. A session that could not be brought back, or that
    /// has an open question, stays open.
    pub(super) fn hibernate(&mut self) {
        if self.can_reopen() && self.is_quiet() && !self.has_open_question() {
            self.begin_close(Vec::new(), None);
        } else {
            self.arm_idle();
        }
    }

    /// The daemon stops: whatever waits is refused, and whatever runs is cancelled.
    pub fn stop(&mut self, grace_ms: u64) {
        self.stopping = true;
        // From now on, everything that is cancelled gets this time, including a session that is closed by force.
        self.rules.cancel_grace_ms = grace_ms;
        self.refuse_queue();
        for (caller, _) in std::mem::take(&mut self.resume_waiters) {
            self.answer(caller, Err(ConversationError::ShuttingDown));
        }
        // Other operations end soon: a write once it is on disk, work on files once its progress is ended.
        let is_abandoned = |op: &mut Operation<R>| {
            let has_nothing_in_place = matches!(
                op.kind,
                OperationKind::Open { .. }
                    | OperationKind::Edit(_)
                    | OperationKind::Branch(_)
                    | OperationKind::Configure { .. }
                    | OperationKind::Undo(_)
            );
            has_nothing_in_place && matches!(op.stage, Stage::Working(_))
        };
        if let Some(op) = self.operation.take_if(is_abandoned) {
            self.effects.push(Effect::AbandonJob);
            self.answer(op.caller, Err(ConversationError::ShuttingDown));
        }
        match self.turn.as_ref().map(|turn| turn.phase) {
            Some(TurnPhase::Waiting) => {
                self.fail_waiting(&ConversationError::ShuttingDown);
            }
            // An open question stays open across the restart.
            Some(TurnPhase::Accepted) if self.orphan_questions() => {
                self.drop_session();
                let why =
                    "the daemon stopped while a question was open; answer it when the daemon runs again";
                self.end_turn_with_failure(Failure::new(FailureKind::DaemonRestarted, why));
            }
            Some(TurnPhase::Sent | TurnPhase::Accepted) => {
                if let Some(turn) = &mut self.turn {
                    let again = std::mem::replace(&mut turn.cancelled, true);
                    turn.was_cut_by_daemon_stop |= !again;
                    if self.session.is_some() {
                        if !again {
                            self.effects.push(Effect::SendCancel(None));
                        }
                        self.effects.push(Effect::Arm(Deadline::Cancel, grace_ms));
                    }
                }
            }
            Some(TurnPhase::Recording | TurnPhase::Ending) | None => {}
        }
        // A failed write is repeated now, because there is no later.
        self.writer.has_failed = false;
    }
}
