//! The session of a conversation: how it is opened through the ladder, recorded, announced and lost.

use bridge_protocol::event::Event;
use bridge_protocol::link::{Attempt, Fidelity, LinkReason, Resumed, RollCause, Via};
use bridge_protocol::turn::{Failure, FailureKind, StopReason};

use crate::chain::NewLink;
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{Deadline, Disposition, Effect, Ledger, Milestone, OpenedSession, Work};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::reported_settings::record_opened;
use crate::conversation::state::{LiveSession, Model, OperationKind, Stage, Turn, TurnPhase};
use crate::store::{Anchor, ConversationRecord, RestingState};

/// How much of each reason the lineage keeps, in characters: an agent may answer with the end of its standard error.
const MAX_REASON_CHARACTERS: usize = 500;

/// How many agents may end while they have the session open and before the prompt is sent to them. One such end is chance;
/// an agent that always ends would be started for ever.
const MAX_DEATHS: usize = 3;

impl<R> Model<R> {
    /// Ends the waiting turn if its agents keep ending before the prompt can be sent to them.
    pub(super) fn fail_after_repeated_agent_deaths(&mut self) {
        let deaths = self.waiting_turn().map_or(&[][..], |turn| &turn.deaths);
        let (true, Some(last)) = (deaths.len() >= MAX_DEATHS, deaths.last()) else {
            return;
        };
        let error = ConversationError::AgentUnavailable(format!(
            "the agent ended {MAX_DEATHS} times before it could be sent the prompt; the last time: {last}"
        ));
        self.note_failed(&error);
        // A continuation replaces this error with its own.
        self.fail_waiting(&error);
    }

    /// Records that the conversation cannot continue until the user fixes a problem, and which one.
    fn note_failed(&mut self, error: &ConversationError) {
        let failure = Some(error.to_string());
        if self.record.resting != RestingState::Failed || self.record.failure != failure {
            self.record.resting = RestingState::Failed;
            self.record.failure = failure;
            self.mark_unsaved();
        }
    }

    /// Continues whatever waits for an open session. Opens the session first if necessary.
    pub(super) fn ensure_session(&mut self) {
        if self.must_reopen() {
            // It is opened again once it is closed.
            self.begin_close(Vec::new(), None);
            return;
        }
        if self.session.is_some() {
            if self.is_editing() {
                // Callers that wait for the session get the head, once it is known which session that is.
                return;
            }
            self.answer_resume_waiters(None);
            if self.waiting_turn().is_some() {
                self.read_anchor();
            }
            return;
        }
        // The most lenient caller decides how far down the ladder the climb may go. Callers that requested more get an error.
        let min_fidelity = self.least_fidelity_wanted().unwrap_or(Fidelity::Text);
        let refused = self.waiting_turn().map(|turn| turn.refused.clone());
        let refused = refused.unwrap_or_default();
        let work = Work::Open {
            min_fidelity,
            refused,
            is_automatic: self.is_automatic_turn(),
            resends_interrupted_prompt: self.continues_interrupted_turn(),
        };
        self.start(OperationKind::Open { min_fidelity }, Caller::none(), work);
    }

    /// The turn that waits for its session.
    pub(super) fn waiting_turn(&self) -> Option<&Turn<R>> {
        self.turn.as_ref().filter(|turn| turn.is_waiting())
    }

    /// The lowest fidelity that any waiting turn or caller accepts.
    fn least_fidelity_wanted(&self) -> Option<Fidelity> {
        let turn_fidelity = self.waiting_turn().map(|turn| turn.request.min_fidelity);
        let waiters = self.resume_waiters.iter().map(|(_, fidelity)| *fidelity);
        waiters.chain(turn_fidelity).min()
    }

    /// The turn that waited for the climb was cancelled. If no other caller waits for it, the climb gets as much time to end as
    /// a cancelled turn.
    pub(super) fn limit_unwanted_climb(&mut self) {
        if let Some(op) = &mut self.operation
            && op.is_climbing()
            && self.resume_waiters.is_empty()
        {
            op.is_unwanted = true;
            self.effects
                .push(Effect::Arm(Deadline::Climb, self.rules.cancel_grace_ms));
        }
    }

    /// Gives up a cancelled climb that has not ended. Callers that came since then get a climb of their own.
    pub(super) fn give_up_climb(&mut self) {
        match self.operation.take_if(|op| op.is_unwanted && op.is_climbing()) {
            // Whatever it still opens is closed, and its copy is deleted.
            Some(op) if matches!(op.kind, OperationKind::Edit(_)) => self.effects.push(Effect::AbandonJob),
            Some(_) => self.effects.push(Effect::GiveUpClimb),
            None => {}
        }
    }

    /// The ladder opened a session. It is recorded before it is announced.
    pub(super) fn opened(&mut self, mut opened: OpenedSession) {
        // Callers that accept a lower fidelity may have cancelled meanwhile. If no caller is left, only a session with the
        // full history is used.
        let wanted = self.least_fidelity_wanted().unwrap_or(Fidelity::Full);
        if opened.link.is_some() && opened.resumed.fidelity < wanted {
            self.effects.push(Effect::Dispose(Disposition::Drop));
            self.serve_waiting_turn(&opened.resumed);
            self.answer_resume_waiters(Some(&opened.resumed));
            return;
        }
        if opened.resumed.refused_head().is_some() {
            // An undo goes back to it.
            self.record.save_unfinished_head();
        }
        if lacks_interrupted_turn(&opened) {
            self.return_interrupted_prompt();
        }
        let mut ledger = match opened.link.take() {
            Some(link) => self.append_link(link, opened.resumed.fidelity),
            None if opened.resumed.via == Via::Archive => {
                let restored = self.record.chain.log_restored(opened.resumed.fidelity, self.now);
                Ledger {
                    lineage: restored.into_iter().collect(),
                    ..Ledger::default()
                }
            }
            // The session is the head on disk, so there is nothing to write.
            None if self.head_is_on_disk() => {
                self.announce(opened);
                return;
            }
            None => Ledger::default(),
        };
        if let Some(entry) = ledger.lineage.last_mut() {
            entry.attempts = failed_attempts(&opened.resumed);
        }
        // Written together with the link, to avoid a second write.
        record_opened(&mut self.record, &opened.session_info);
        self.bump_revision();
        let kind = OperationKind::Open { min_fidelity: wanted };
        self.set_operation(kind, Caller::none(), Stage::Writing);
        let milestone = Milestone::SessionOpened(Box::new(opened));
        self.write(ledger, milestone);
    }

    /// Makes a session the head. If it replaces a head for a cause, that is reported once it is on disk.
    pub(super) fn append_link(&mut self, link: NewLink, fidelity: Fidelity) -> Ledger {
        let previous = self.record.chain.head().map(|head| head.upstream_id.clone());
        let previous = previous.filter(|previous| *previous != link.upstream_id);
        let rolled = previous.zip(link.cause).map(|(previous, cause)| Event::Rolled {
            from: Some(previous),
            to: link.upstream_id.clone(),
            cause,
            fidelity,
        });
        let appended = self.record.chain.append(link, fidelity, self.now);
        Ledger::with_links(appended.entries, rolled.into_iter().collect())
    }

    fn head_is_on_disk(&self) -> bool {
        let head = |record: &ConversationRecord| record.chain.head().map(|head| head.upstream_id.clone());
        head(&self.record) == head(&self.writer.on_disk)
    }

    /// The link is on disk: use the session.
    pub(super) fn session_recorded(&mut self, opened: OpenedSession, result: Result<(), StoreFailure>) {
        self.end_written_operation();
        if let Err(error) = result {
            // The next write may still record the link.
            self.effects.push(Effect::Dispose(Disposition::Leave));
            self.fail_waiting(&ConversationError::StoreFailed(error));
            return;
        }
        self.announce(opened);
    }

    /// Starts to use the session and notifies all clients.
    pub(super) fn announce(&mut self, opened: OpenedSession) {
        self.effects.push(Effect::Attach);
        self.effects.push(Effect::KeepCopy);
        self.session = Some(LiveSession::new(&opened));
        // The interrupted prompt stays recorded until a turn settles it.
        let is_cut = self.record.cut.is_some();
        let is_reported = self.record.resting == RestingState::Interrupted && is_cut;
        if matches!(
            self.record.resting,
            RestingState::Failed | RestingState::Interrupted
        ) && !is_reported
        {
            // A failure can hide a limit, which an open session does not lift.
            self.record.resting = match (self.record.limit.is_some(), is_cut) {
                (true, _) => RestingState::Limited,
                (false, true) => RestingState::Interrupted,
                (false, false) => RestingState::Idle,
            };
            self.record.failure = None;
            self.mark_unsaved();
        }
        self.apply_session_info(opened.session_info);
        self.emit(Event::Resumed {
            resumed: opened.resumed.clone(),
        });
        self.later_prompts.clear();
        if let Some(loaded) = opened.loaded {
            self.later_prompts.extend(loaded.later_prompt);
            self.emit(Event::CheckpointLoaded {
                upstream_id: opened.upstream_id,
                step: loaded.turns,
                messages: loaded.messages,
            });
        }
        self.serve_waiting_turn(&opened.resumed);
        self.answer_resume_waiters(Some(&opened.resumed));
        if self.turn.is_none() {
            self.arm_idle();
        }
    }

    /// Gives the waiting turn the report of how the session was brought back. The turn fails if it requires a higher fidelity.
    fn serve_waiting_turn(&mut self, resumed: &Resumed) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_waiting()) else {
            return;
        };
        if resumed.fidelity >= turn.request.min_fidelity {
            turn.resumed = Some(resumed.clone());
            return;
        }
        let error = fidelity_error(turn.request.min_fidelity, resumed);
        self.fail_unsent_turn(&error);
    }

    fn answer_resume_waiters(&mut self, resumed: Option<&Resumed>) {
        let Some(resumed) = resumed.cloned().or_else(|| self.live_resume_report()) else {
            return;
        };
        let view = self.view();
        for (caller, min_fidelity) in std::mem::take(&mut self.resume_waiters) {
            let result = if resumed.fidelity >= min_fidelity {
                Ok(Answer::Resumed(Box::new(view.clone()), Box::new(resumed.clone())))
            } else {
                Err(fidelity_error(min_fidelity, &resumed))
            };
            self.answer(caller, result);
        }
    }

    /// The ladder found no way: the waiting callers get the error, and the chain is unchanged. Callers that came during the
    /// climb and accept a lower fidelity wait for a climb of their own.
    pub(super) fn open_failed(&mut self, min_fidelity: Fidelity, error: &ConversationError) {
        if let ConversationError::NotResumable { .. } = error {
            self.fail_waiting_for(min_fidelity, error);
        } else {
            self.fail_waiting(error);
        }
        let is_permanent = match error {
            // If only this caller requires the fidelity, the failure says nothing about the conversation.
            ConversationError::NotResumable { .. } => {
                min_fidelity <= Fidelity::Text && self.least_fidelity_wanted().is_none()
            }
            ConversationError::AgentUnavailable(_) => true,
            _ => false,
        };
        if is_permanent {
            self.note_failed(error);
        }
        if let ConversationError::Transient {
            limit: Some(limit), ..
        } = error
        {
            self.record.resting = RestingState::Limited;
            self.record.limit = Some(limit.clone());
            self.mark_unsaved();
        }
    }

    /// Fails everything that waits for the session.
    pub(super) fn fail_waiting(&mut self, error: &ConversationError) {
        self.fail_waiting_for(Fidelity::None, error);
    }

    /// Fails everything that waits for a session of at least this fidelity.
    fn fail_waiting_for(&mut self, least: Fidelity, error: &ConversationError) {
        for (caller, requested) in std::mem::take(&mut self.resume_waiters) {
            if requested >= least {
                self.answer(caller, Err(error.clone()));
            } else {
                self.resume_waiters.push((caller, requested));
            }
        }
        if self
            .waiting_turn()
            .is_some_and(|turn| turn.request.min_fidelity >= least)
        {
            self.fail_unsent_turn(error);
        }
    }

    /// Ends a turn whose prompt no agent has: with an error, or with a result if the turn was announced before.
    pub(super) fn fail_unsent_turn(&mut self, error: &ConversationError) {
        if let ConversationError::Transient {
            message,
            limit: Some(limit),
            ..
        } = error
            && self.may_wait_for_limit()
        {
            self.wait_for_limit(message, limit);
            return;
        }
        if let Some(turn) = self.turn.as_ref().filter(|turn| turn.announced) {
            // The resting state stays as it was, because no agent was involved.
            let failure = lost_session_failure(error, turn.sent_again);
            self.end_turn(StopReason::Failed, Some(failure), None);
            return;
        }
        let Some(turn) = self.take_unsent_turn() else {
            return;
        };
        self.hold_released_prompts();
        if turn.request.is_continuation || turn.request.is_first_of_release {
            self.continuation_unsent(error);
        } else if turn.request.is_held {
            self.released_prompt_unsent(error);
        }
        let (result, cancels) = (Err(error.clone()), turn.cancel_callers);
        self.drop_unsent_turn(turn.request, result, turn.orphan_answer, error.clone(), cancels);
    }

    /// Drops the open session. What it still sends is ignored, and its questions end, unless they are kept for the next agent.
    pub(super) fn drop_session(&mut self) {
        if self.session.is_some() {
            self.cancel_questions(&[]);
            self.session = None;
            self.effects.push(Effect::Detach);
        }
    }

    /// The agent switched to another transcript on its own (its `/clear`).
    pub fn silent_roll(&mut self, announced: &str) {
        let announced = announced.trim();
        let is_new = |live: &LiveSession| !announced.is_empty() && live.upstream_id.as_str() != announced;
        if !matches!(&self.session, Some(live) if is_new(live)) {
            return;
        }
        if self.is_editing() {
            // The announcement shows that the agent works on the prompt.
            self.accept_prompt();
        }
        if self.is_editing() {
            // The prompt was not sent yet. The session is no longer the branch, so the branch is made again.
            let before = self.state();
            self.abandon_edit();
            let state = self.state();
            if before != state {
                self.emit(Event::StateChanged { state });
            }
            return;
        }
        let Some(live) = &mut self.session else { return };
        let from = std::mem::replace(&mut live.upstream_id, announced.into());
        live.preamble = None;
        let Some(head) = self.record.chain.head() else {
            return;
        };
        let (agent, cwd) = (head.agent.clone(), head.cwd.clone());
        let link = NewLink {
            from_upstream_id: Some(from),
            cause: Some(RollCause::Cleared),
            ..NewLink::new(announced.into(), agent, cwd, LinkReason::Rolled)
        };
        self.record.save_unfinished_head();
        let ledger = self.append_link(link, Fidelity::None);
        if let Some(turn) = &mut self.turn {
            if let Some(pending) = &mut self.record.turn {
                pending.upstream_id = Some(announced.into());
                // The turn continues in another file than the one in which it began.
                pending.anchor = Some(Anchor::default());
                pending.taken = false;
            }
            turn.is_prompt_confirmed |= turn.phase == TurnPhase::Accepted;
            turn.was_session_cleared = true;
        }
        self.bump_revision();
        self.write(ledger, Milestone::Saved);
    }
}

/// Whether the session that a climb opened is known to lack the turn that was cut short on the head. A restored backup may
/// contain it, also if turns are missing in its middle, and the turn's tools must not run twice.
fn lacks_interrupted_turn(opened: &OpenedSession) -> bool {
    match opened.resumed.via {
        Via::Fresh | Via::OlderLink => true,
        // The text of a history that ends before the head.
        Via::Text => opened
            .link
            .as_ref()
            .is_some_and(|link| link.from_checkpoint_id.is_none()),
        _ => false,
    }
}

/// The error for a caller that requires a higher fidelity than the climb achieved.
fn fidelity_error(wanted: Fidelity, resumed: &Resumed) -> ConversationError {
    ConversationError::NotResumable {
        wanted,
        attempts: resumed.attempts.clone(),
    }
}

/// The ways that failed before the session was opened, as text for the lineage.
fn failed_attempts(resumed: &Resumed) -> Vec<Attempt> {
    let failed = resumed.attempts.iter().filter(|attempt| attempt.error.is_some());
    failed
        .map(|attempt| {
            let mut attempt = attempt.clone();
            if let Some(why) = attempt.error.as_mut()
                && let Some((end, _)) = why.char_indices().nth(MAX_REASON_CHARACTERS)
            {
                why.truncate(end);
                why.push('\u{2026}');
            }
            attempt
        })
        .collect()
}

/// The failure of a turn that was announced, but whose session could not be opened afterwards.
fn lost_session_failure(error: &ConversationError, by_death: bool) -> Failure {
    let cause = match by_death {
        true => "the agent's process ended before it received the prompt",
        false => "the agent did not know the session when it was sent the prompt",
    };
    let kind = match error {
        ConversationError::AuthRequired { .. } => FailureKind::AuthRequired,
        ConversationError::AgentUnavailable(_) => FailureKind::AgentDied,
        ConversationError::ShuttingDown => FailureKind::DaemonRestarted,
        _ => FailureKind::Unknown,
    };
    Failure {
        kind,
        message: format!("{cause}, and {error}"),
        resets_at: None,
        // The agent never took the prompt.
        retryable: true,
        upstream: None,
    }
}
