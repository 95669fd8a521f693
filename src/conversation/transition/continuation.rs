//! Scheduled continuations of turns that a limit, a crash or a stop interrupted: at the reset or at a time, sent exactly once.

use bridge_protocol::conversation::{Continuation, ContinueAnswer, ContinueAt, Limit, OnLimit};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::Continue;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::CONTINUE_PROMPT;
use jiff::{SignedDuration, Timestamp};

use crate::agent::failure::{Failure, FailureKind};
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{Now, PromptArrival, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::prompt_request::PromptRequest;
use crate::conversation::state::{Model, OperationKind, Turn, TurnPhase};
use crate::store::{CutShortPrompt, PendingContinuation, RestingState, TurnPhase as Progress};

/// How often one continuation is sent before it is given up.
pub(super) const MAX_ATTEMPTS: u32 = 20;

/// How long to wait if the end of the limit is unknown, by the number of attempts, in minutes; the last value applies to
/// all further attempts.
const BACKOFF_MINUTES: [i64; 4] = [1, 5, 15, 60];

impl<R> Model<R> {
    /// Schedules a continuation, or cancels it.
    pub(super) fn schedule_continuation(&mut self, call: Continue, caller: Caller<R>) {
        let before = self.record.clone();
        let cancel = call.cancel;
        let result = match cancel {
            true => self.cancel_continuation().map(|()| None),
            false => self.wanted_continuation(call.at, call.text).map(Some),
        };
        let continuation = match result {
            Ok(continuation) => continuation,
            Err(error) => {
                self.answer(caller, Err(error));
                return;
            }
        };
        self.record.continuation = continuation;
        if cancel {
            // Otherwise an undo would schedule it again.
            for head in &mut self.record.unfinished_heads {
                head.continuation = None;
            }
        }
        self.due_turn = None;
        self.bump_revision();
        let answer = Answer::Continued(ContinueAnswer {
            continuation: self.record.continuation.as_ref().map(Continuation::from),
        });
        self.answer_change(caller, answer, before);
    }

    /// Stops a continuation that is about to be sent.
    fn cancel_continuation(&mut self) -> Result<(), ConversationError> {
        self.cancel_release();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.request.is_continuation) else {
            return Ok(());
        };
        match turn.phase {
            TurnPhase::Waiting => {
                self.cancel_unsent_turn();
                self.limit_unwanted_climb();
            }
            // The turn is dropped once it is recorded.
            TurnPhase::Recording => turn.cancelled = true,
            TurnPhase::Sent | TurnPhase::Accepted | TurnPhase::Ending => {
                return Err(ConversationError::Busy(
                    "the continuation was already sent; cancel the running turn instead".to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn wanted_continuation(
        &self,
        at: Option<ContinueAt>,
        text: Option<PromptContent>,
    ) -> Result<PendingContinuation, ConversationError> {
        let is_immediate = at == Some(ContinueAt::Now) && text.is_none();
        let runs = self.turn.as_ref().is_some_and(|turn| {
            turn.request.is_continuation && turn.phase != TurnPhase::Ending && !turn.cancelled
        });
        if is_immediate
            && runs
            && let Some(continuation) = &self.record.continuation
        {
            // Several clients that follow the interrupted turn request the same.
            return Ok(PendingContinuation {
                line: continuation.line || self.has_held_prompts(),
                ..continuation.clone()
            });
        }
        if self.turn.is_some() || !(self.queue.is_empty() || self.waits_for_interrupted_turn()) {
            let why = "a turn is running; wait for its end or cancel it";
            return Err(ConversationError::Busy(why.to_owned()));
        }
        let conflict = |why: &str| Err(ConversationError::Conflict(why.to_owned()));
        let at = match at {
            Some(ContinueAt::Time(at)) => at.max(self.now),
            Some(ContinueAt::Now) => self.now,
            Some(ContinueAt::Reset) => match &self.record.limit {
                Some(limit) => limit
                    .resets_at
                    .map_or_else(|| next_attempt_at(None, 0, self.now), |at| at.max(self.now)),
                None => {
                    return conflict(
                        "the conversation has not reached a limit, so there is no reset; give a time",
                    );
                }
            },
            None => {
                let why = "at is missing: \"now\", \"reset\", or a time";
                return Err(ConversationError::invalid("at", why));
            }
        };
        if at <= self.now && !self.record.interrupts.is_empty() {
            return conflict("a question of the agent is open; answer it first, or give a later time");
        }
        let scheduled = self.record.continuation.as_ref();
        let new = PendingContinuation {
            at,
            attempts: 0,
            sent: false,
            line: self.has_held_prompts(),
            // Without a text, the request moves what is scheduled.
            text: text.or_else(|| scheduled?.text.clone()),
        };
        if self.record.cut.is_none() && new.text.is_none() && !new.line {
            return conflict("no turn was interrupted, and no text to send was given");
        }
        Ok(new)
    }

    /// The scheduled continuation is due.
    pub fn continuation_due(&mut self, turn_id: TurnId) {
        let continuation = self.record.continuation.as_ref();
        let is_due = continuation.is_some_and(|continuation| continuation.at <= self.now);
        if is_due && self.due_turn.is_none() && self.record.deleted_at.is_none() && !self.is_deleting() {
            self.due_turn = Some(turn_id);
        }
    }

    /// Whether the running turn is a scheduled continuation.
    pub fn is_automatic_turn(&self) -> bool {
        let is_automatic = |turn: &Turn<R>| turn.request.is_continuation || turn.request.is_held;
        self.turn.as_ref().is_some_and(is_automatic)
    }

    /// Whether a continuation runs or is about to run. False while a question waits for the user, which may take days.
    pub fn is_continuing_automatically(&self) -> bool {
        (self.due_turn.is_some() || self.is_automatic_turn()) && self.record.interrupts.is_empty()
    }

    /// Begins the continuation that is due. What is sent depends on whether the transcript contains the interrupted prompt.
    pub(super) fn begin_continuation(&mut self) {
        if self.start_released_queue() {
            return;
        }
        let cut = self.record.cut.as_ref();
        let Some(cut) = cut.filter(|_| self.record.continuation.is_some()) else {
            self.send_continuation(PromptArrival::Present);
            return;
        };
        let sent = Box::new(cut.clone());
        self.start(
            OperationKind::CheckArrival(None),
            Caller::none(),
            Work::CheckArrival(sent),
        );
    }

    /// It is known whether the transcript contains the prompt.
    pub(super) fn arrival_checked(&mut self, arrival: PromptArrival, death: Option<Failure>) {
        match death {
            Some(death) => self.decide_after_death(death, arrival),
            // A turn that began meanwhile goes first. If the daemon stops, the next start continues.
            None if self.turn.is_none() && !self.stopping => {
                let arrival = self.reconcile_arrival(arrival);
                self.send_continuation(arrival);
            }
            None => {}
        }
    }

    /// Combines what was recorded about the interrupted prompt with what its transcript shows now. What an earlier check
    /// of the transcript found takes precedence, unless the transcript shows that the prompt was answered. What the agent showed
    /// counts only if the transcript cannot be read.
    fn reconcile_arrival(&self, arrival: PromptArrival) -> PromptArrival {
        let cut = self.record.cut.as_ref();
        match cut {
            _ if arrival == PromptArrival::Answered => arrival,
            // If a tool ran, the agent has the prompt.
            Some(cut) if cut.tool_started || cut.arrived == Some(true) => PromptArrival::Present,
            Some(cut) if cut.arrived == Some(false) => PromptArrival::Absent,
            Some(cut) if cut.taken && arrival == PromptArrival::Unknown => PromptArrival::Present,
            _ => arrival,
        }
    }

    /// Sends the interrupted prompt again, or a text that asks the agent to continue it.
    fn send_continuation(&mut self, arrival: PromptArrival) {
        let (Some(turn_id), Some(continuation)) = (self.due_turn.take(), &self.record.continuation) else {
            return;
        };
        let text = continuation.text.clone();
        let before = self.record.cut.as_ref().and_then(|cut| cut.before.clone());
        if arrival == PromptArrival::Answered && text.is_none() && before.is_none() {
            // Another program, or the agent itself, has continued the turn meanwhile.
            self.record.cut = None;
            self.set_resting_state(RestingState::Idle);
            self.mark_unsaved();
            if !self.start_released_queue() {
                self.end_continuation();
            }
            return;
        }
        let cut = self.record.cut.as_ref();
        let mut request = None;
        let prompt = match (arrival, cut) {
            (PromptArrival::Absent, Some(cut)) if !cut.tool_started => {
                request = cut.open_request.clone();
                continuation.prompt_again(cut)
            }
            // The prompt could end up in the transcript twice, so it is sent again only once.
            (PromptArrival::Unknown, Some(cut)) if !continuation.sent => continuation.prompt_again(cut),
            (PromptArrival::Unknown, _) => {
                self.fail_continuation(
                    "the agent's transcript cannot be read, so it is unknown whether it has the prompt; the prompt was \
                     sent once and is not sent again",
                );
                return;
            }
            _ => {
                // The agent already has the prompt: after a limit, it stays in the history that the model gets.
                let word = text
                    .clone()
                    .unwrap_or_else(|| PromptContent::text(CONTINUE_PROMPT));
                before.map_or_else(|| word.clone(), |before| before.followed_by(&word))
            }
        };
        let min_fidelity = cut.and_then(|cut| cut.min_fidelity);
        let mut open = self.open_requests.iter().map(|open| &open.key.id);
        let request = request.filter(|request| open.all(|id| *id != request.id));
        if let Some(request) = &request {
            self.track_call(request.clone());
        }
        let prompt_request = PromptRequest {
            min_fidelity: min_fidelity.unwrap_or(Fidelity::Text),
            on_limit: OnLimit::Wait,
            is_continuation: true,
            ..PromptRequest::new(turn_id, prompt, self.now, request.into())
        };
        self.start_turn(prompt_request);
    }

    /// Whether the turn that waits for its session continues the interrupted one.
    pub(super) fn continues_interrupted_turn(&self) -> bool {
        let turn = self.waiting_turn();
        turn.is_some_and(|turn| turn.request.is_continuation)
            && self.record.cut.is_some()
            && self.record.continuation.is_some()
    }

    /// The conversation continues in a session that lacks the interrupted turn, so its prompt has not arrived there, even if
    /// a tool had started: a request to continue would continue another turn, or none.
    pub(super) fn return_interrupted_prompt(&mut self) {
        let continues = self.continues_interrupted_turn();
        let Some(cut) = &mut self.record.cut else { return };
        cut.leave_session();
        if continues && let (Some(turn), Some(continuation)) = (&mut self.turn, &self.record.continuation) {
            turn.request.prompt = continuation.prompt_again(cut);
        }
    }

    /// The scheduled continuation is done or cancelled.
    pub(super) fn end_continuation(&mut self) {
        self.record.continuation = None;
    }

    /// The interrupted turn is settled, so no text to continue it is sent. A scheduled text of the user and the queue are
    /// kept.
    pub(super) fn end_continuation_text(&mut self) {
        let continuation = self.record.continuation.take();
        self.record.continuation = continuation.and_then(PendingContinuation::without_interrupted_prompt);
    }

    /// Gives up the continuation. The user has to decide how to continue.
    fn fail_continuation(&mut self, why: &str) {
        self.end_continuation();
        self.record.resting = RestingState::Failed;
        self.record.failure = Some(format!("the turn could not be continued: {why}"));
        self.mark_unsaved();
    }

    /// A continuation did not reach its agent.
    pub(super) fn continuation_unsent(&mut self, error: &ConversationError) {
        // The next daemon continues it.
        if matches!(error, ConversationError::ShuttingDown) {
            return;
        }
        let is_transient = matches!(
            error,
            ConversationError::AgentUnavailable(_)
                | ConversationError::StoreFailed(_)
                | ConversationError::Busy(_)
                | ConversationError::Transient { .. }
        );
        let resets_at = match error {
            ConversationError::Transient { limit, .. } => limit.as_ref().and_then(|limit| limit.resets_at),
            _ => None,
        };
        let Some(continuation) = &mut self.record.continuation else {
            return;
        };
        continuation.attempts += 1;
        if is_transient && continuation.attempts < MAX_ATTEMPTS {
            continuation.at = next_attempt_at(resets_at, continuation.attempts, self.now);
            self.mark_unsaved();
        } else {
            self.fail_continuation(&error.to_string());
        }
    }

    /// Whether a turn whose session could not be opened because of a limit is sent when the limit is over.
    pub(super) fn may_wait_for_limit(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| {
            turn.request.on_limit == OnLimit::Wait
                && !turn.request.is_continuation
                && turn.orphan_answer.is_none()
        })
    }

    /// The session could not be opened because of a limit. The prompt is sent when the limit is over, like a prompt that hit
    /// the limit itself.
    pub(super) fn wait_for_limit(&mut self, message: &str, limit: &Limit) {
        let Some(turn) = &mut self.turn else { return };
        self.record.turn = Some(turn.request.to_pending_turn(self.now));
        // It is reported like every other turn that ends.
        turn.phase = TurnPhase::Sent;
        self.accept_prompt();
        self.end_turn_with_failure(Failure {
            resets_at: limit.resets_at,
            ..Failure::new(FailureKind::RateLimited, message)
        });
    }

    /// Whether a prompt whose agent died may be sent once more: the agent gave no sign that it has the prompt, and its
    /// transcript can be checked.
    pub(super) fn may_send_again(&self) -> bool {
        let is_ruled_out = |turn: &Turn<R>| turn.is_prompt_confirmed || turn.cancelled || turn.sent_again;
        let pending = self.record.turn.as_ref();
        self.turn.as_ref().is_some_and(|turn| !is_ruled_out(turn))
            && pending.is_some_and(|pending| pending.anchor.is_some() && pending.phase == Progress::Sent)
            && self.operation.is_none()
            && !self.stopping
    }

    /// Checks whether the transcript contains the prompt, once no process of the dead agent runs.
    pub(super) fn check_prompt_arrival(&mut self, death: Failure) {
        let Some(sent) = self.record.turn.as_ref().map(CutShortPrompt::from) else {
            return;
        };
        let kind = OperationKind::CheckArrival(Some(death));
        self.start(kind, Caller::none(), Work::CheckArrival(Box::new(sent)));
    }

    /// The agent died without a sign that it had the prompt. The prompt is sent again if the transcript does not contain it.
    fn decide_after_death(&mut self, death: Failure, arrival: PromptArrival) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_sent()) else {
            return;
        };
        if arrival == PromptArrival::Absent && !turn.cancelled && !self.stopping {
            turn.sent_again = true;
            self.revert_prompt();
            return;
        }
        let cancelled = turn.cancelled;
        self.accept_prompt();
        if cancelled {
            self.end_turn_cancelled();
        } else {
            self.end_turn_with_failure(death);
        }
    }
}

/// When the next attempt is due: at the reset, if a future one is known.
pub(super) fn next_attempt_at(resets_at: Option<Timestamp>, attempts: u32, now: Now) -> Timestamp {
    if let Some(at) = resets_at.filter(|at| *at > now) {
        return at;
    }
    let step = usize::try_from(attempts).unwrap_or(usize::MAX);
    let minutes = BACKOFF_MINUTES[step.min(BACKOFF_MINUTES.len() - 1)];
    now.saturating_add(SignedDuration::from_mins(minutes))
        .unwrap_or(now)
}
