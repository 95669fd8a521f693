//! Scheduled continuations of what a limit, a crash or a stop cut short: at the reset or at a time, sent exactly once.

use bridge_protocol::conversation::{Continuation, ContinueAnswer, ContinueAt, Limit, OnLimit};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::CONTINUE_PROMPT;

use super::due::{ATTEMPTS_LIMIT, next_try};
use crate::agent::failure::{self, Failure};
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{Arrival, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::line::Waiting;
use crate::conversation::state::{Model, OperationKind, Session, Turn, TurnPhase};
use crate::store::{CutPrompt, PendingContinuation, Resting, TurnPhase as Progress};

impl<R> Model<R> {
    /// Schedules a continuation, or cancels it.
    pub(super) fn continue_at(
        &mut self,
        at: Option<ContinueAt>,
        text: Option<PromptContent>,
        cancel: bool,
        caller: Caller<R>,
    ) {
        let before = self.record.clone();
        let wanted = if cancel {
            self.call_off().map(|()| None)
        } else {
            self.wanted_continuation(at, text).map(Some)
        };
        let continuation = match wanted {
            Ok(continuation) => continuation,
            Err(error) => {
                self.answer(caller, Err(error));
                return;
            }
        };
        self.record.continuation = continuation;
        self.due = None;
        self.touch();
        let answer = Answer::Continued(ContinueAnswer {
            continuation: self.record.continuation.as_ref().map(Continuation::from),
        });
        self.answer_change(caller, answer, before);
    }

    /// Stops a continuation that is about to be sent.
    fn call_off(&mut self) -> Result<(), ConversationError> {
        self.call_line_off();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.asked.continues) else {
            return Ok(());
        };
        match turn.phase {
            TurnPhase::Waiting => {
                self.drop_turn_unsent();
                self.spare_climb();
            }
            // It is dropped when that is done.
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
        let is_asked = at == Some(ContinueAt::Now) && text.is_none();
        let runs = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.asked.continues && turn.phase != TurnPhase::Ending && !turn.cancelled);
        if is_asked
            && runs
            && let Some(continuation) = &self.record.continuation
        {
            // Several clients that follow the interrupted turn ask for the same.
            return Ok(PendingContinuation {
                line: continuation.line || self.has_held(),
                ..continuation.clone()
            });
        }
        if self.turn.is_some() || !(self.queue.is_empty() || self.waits_for_cut()) {
            return Err(ConversationError::Busy(
                "a turn is running; wait for its end or cancel it".to_owned(),
            ));
        }
        let at = match at {
            Some(ContinueAt::Time(at)) => at.max(self.now),
            Some(ContinueAt::Now) => self.now,
            Some(ContinueAt::Reset) => match &self.record.limit {
                Some(limit) => limit
                    .resets_at
                    .map_or_else(|| next_try(None, 0, self.now), |at| at.max(self.now)),
                None => {
                    return Err(ConversationError::Conflict(
                        "the conversation has not reached a limit, so there is no reset; give a time"
                            .to_owned(),
                    ));
                }
            },
            None => {
                return Err(ConversationError::invalid(
                    "at",
                    "at is missing: \"reset\", or a time",
                ));
            }
        };
        if at <= self.now && !self.record.interrupts.is_empty() {
            return Err(ConversationError::Conflict(
                "a question of the agent is open; answer it first, or give a later time".to_owned(),
            ));
        }
        // What is asked for once more for the same time, or is due all the same, is what it was; what is held goes behind it.
        let same = |kept: &&PendingContinuation| kept.at == at || kept.at.max(at) <= self.now;
        let kept = self.record.continuation.as_ref().filter(same);
        let kept = kept.filter(|_| text.is_none()).cloned();
        let wanted = PendingContinuation {
            at,
            attempts: 0,
            sent: false,
            line: self.has_held(),
            ..kept.unwrap_or_else(|| PendingContinuation {
                text,
                ..PendingContinuation::at_once(self.now)
            })
        };
        if self.record.cut.is_none() && wanted.text.is_none() && !wanted.line {
            return Err(ConversationError::Conflict(
                "no turn was interrupted; pass a prompt as text".to_owned(),
            ));
        }
        Ok(wanted)
    }

    /// The time has come.
    pub(super) fn fall_due(&mut self, turn_id: TurnId) {
        let is_due = self
            .record
            .continuation
            .as_ref()
            .is_some_and(|continuation| continuation.at <= self.now);
        if is_due && self.due.is_none() && self.record.deleted_at.is_none() && !self.is_deleting() {
            self.due = Some(turn_id);
        }
    }

    /// Whether the running turn is a scheduled continuation.
    pub fn continues(&self) -> bool {
        let is_by_itself = |turn: &Turn<R>| turn.asked.continues || turn.asked.is_held;
        self.turn.as_ref().is_some_and(is_by_itself)
    }

    /// Whether a continuation runs or is about to run. Not while a question waits for the user, which may take days.
    pub fn goes_on_by_itself(&self) -> bool {
        (self.due.is_some() || self.continues()) && self.record.interrupts.is_empty()
    }

    /// Nothing is in the way: what goes out depends on whether the transcript has the prompt that was cut short.
    pub(super) fn begin_continuation(&mut self) {
        if self.begin_line() {
            return;
        }
        let cut = self.record.cut.as_ref();
        let Some(cut) = cut.filter(|_| self.record.continuation.is_some()) else {
            self.go_on(Arrival::Present);
            return;
        };
        let sent = Box::new(cut.clone());
        self.start(
            OperationKind::Ascertain(None),
            Caller::none(),
            Work::Ascertain(sent),
        );
    }

    /// The transcript says whether it has the prompt.
    pub(super) fn ascertained(&mut self, arrival: Arrival, death: Option<Failure>) {
        match death {
            Some(death) => self.judge_death(death, arrival),
            // Who came meanwhile goes first; at a stop the next start continues it.
            None if self.turn.is_none() && !self.stopping => {
                let arrival = self.as_known(arrival);
                self.go_on(arrival);
            }
            None => {}
        }
    }

    /// What is known of the prompt that was cut short goes before what its transcript says by now, unless that has more.
    fn as_known(&self, arrival: Arrival) -> Arrival {
        let cut = self.record.cut.as_ref();
        match cut {
            _ if arrival == Arrival::Answered => arrival,
            // A tool runs for no prompt that the agent has not.
            Some(cut) if cut.has_arrived() => Arrival::Present,
            Some(cut) if cut.arrived == Some(false) => Arrival::Absent,
            _ => arrival,
        }
    }

    /// Sends the interrupted prompt again, or a text that asks the agent to continue it.
    fn go_on(&mut self, arrival: Arrival) {
        let (Some(turn_id), Some(continuation)) = (self.due.take(), &self.record.continuation) else {
            return;
        };
        let text = continuation.text.clone();
        let before = self.record.cut.as_ref().and_then(|cut| cut.before.clone());
        if arrival == Arrival::Answered && text.is_none() && before.is_none() {
            // Another program has gone on with it meanwhile, or the agent by itself.
            self.record.cut = None;
            self.rest(Resting::Idle);
            self.note_change();
            if !self.begin_line() {
                self.end_continuation();
            }
            return;
        }
        let cut = self.record.cut.as_ref();
        let mut request = None;
        // A text given by the user is always sent, after the prompt if there is one.
        let with_text = |prompt: PromptContent| match &text {
            Some(text) => prompt.followed_by(text),
            None => prompt,
        };
        let prompt = match (arrival, cut) {
            (Arrival::Absent, Some(cut)) if !cut.tool_started => {
                request = cut.open_request.clone();
                with_text(cut.whole())
            }
            // Nobody can tell whether it would be there twice: it is tried once.
            (Arrival::Unknown, Some(cut)) if !continuation.sent => with_text(cut.whole()),
            (Arrival::Unknown, _) => {
                self.give_up(
                    "the agent's transcript cannot be read, so it is unknown whether it has the prompt; the prompt was \
                     sent once and is not sent again",
                );
                return;
            }
            _ => {
                // The agent has the prompt already: a limited prompt stays in the history that the model is sent.
                let word = text
                    .clone()
                    .unwrap_or_else(|| PromptContent::text(CONTINUE_PROMPT));
                before.map_or_else(|| word.clone(), |before| before.followed_by(&word))
            }
        };
        let min_fidelity = cut.and_then(|cut| cut.min_fidelity);
        let mut open = self.open_requests.iter().map(|open| &open.request.id);
        let request = request.filter(|request| open.all(|id| *id != request.id));
        if let Some(request) = &request {
            self.open_call(request.clone());
        }
        let asked = Waiting {
            min_fidelity: min_fidelity.unwrap_or(Fidelity::Text),
            on_limit: OnLimit::Wait,
            continues: true,
            ..Waiting::new(turn_id, prompt, self.now, Caller { reply: None, request })
        };
        let is_apart = self.record.continuation.as_ref().is_some_and(|it| it.apart);
        if let Session::Live(live) = &mut self.session
            && is_apart
        {
            // Somebody had it opened meanwhile, beside others.
            live.is_to_move = true;
        }
        self.start_turn(asked);
        if let Some(turn) = &mut self.turn {
            turn.is_apart = is_apart;
        }
    }

    /// The scheduled continuation is done or cancelled.
    pub(super) fn end_continuation(&mut self) {
        let over = self.record.continuation.take();
        self.record.continuation = over.and_then(|over| over.next(self.now));
    }

    /// The interrupted turn is settled: no text to continue it is sent. A scheduled text of the user and the queue are
    /// kept.
    pub(super) fn end_word(&mut self) {
        let continuation = self.record.continuation.take();
        self.record.continuation = continuation.and_then(|it| it.without_word(self.now));
    }

    /// Gives the continuation up; the user has to decide.
    fn give_up(&mut self, why: &str) {
        self.end_continuation();
        self.record.resting = Resting::Failed;
        self.record.failure = Some(format!("the turn could not be continued: {why}"));
        self.note_change();
    }

    /// A continuation did not get to its agent.
    pub(super) fn continuation_unsent(&mut self, error: &ConversationError) {
        // The next life goes on with it.
        if matches!(error, ConversationError::ShuttingDown) {
            return;
        }
        let is_passing = matches!(
            error,
            ConversationError::AgentUnavailable(_)
                | ConversationError::StoreFailed(_)
                | ConversationError::Busy(_)
                | ConversationError::Passing { .. }
        );
        let resets_at = match error {
            ConversationError::Passing { limit, .. } => limit.as_ref().and_then(|limit| limit.resets_at),
            _ => None,
        };
        let Some(continuation) = &mut self.record.continuation else {
            return;
        };
        continuation.attempts += 1;
        if is_passing && continuation.attempts < ATTEMPTS_LIMIT {
            continuation.at = next_try(resets_at, continuation.attempts, self.now);
            self.note_change();
        } else {
            self.give_up(&error.to_string());
        }
    }

    /// Whether the turn, whose prompt no agent has, is to go out once the limit is over that its session met.
    pub(super) fn may_wait_for_limit(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| {
            turn.asked.on_limit == OnLimit::Wait && !turn.asked.continues && turn.answers.is_none()
        })
    }

    /// The session could not be opened because of a limit: the prompt goes out when that is over, as one that met it itself.
    pub(super) fn wait_for_limit(&mut self, message: &str, limit: &Limit) {
        let Some(turn) = &mut self.turn else { return };
        self.record.turn = Some(turn.asked.pending(self.now));
        // It is told as every other that has an end.
        turn.phase = TurnPhase::Sent;
        self.accept_prompt();
        let failure = Failure {
            kind: failure::FailureKind::RateLimited,
            message: message.to_owned(),
            resets_at: limit.resets_at,
            retryable: true,
            session_unknown: false,
        };
        self.end_turn_with_failure(failure);
    }

    /// Whether a prompt whose agent died may go out once more: the agent showed nothing of it, and its transcript can be
    /// asked.
    pub(super) fn may_send_again(&self) -> bool {
        let shows = |turn: &Turn<R>| turn.taken || turn.cancelled || turn.sent_again;
        let pending = self.record.turn.as_ref();
        self.turn.as_ref().is_some_and(|turn| !shows(turn))
            && pending.is_some_and(|pending| pending.anchor.is_some() && pending.phase == Progress::Sent)
            && self.op.is_none()
            && !self.stopping
    }

    /// Checks whether the transcript contains the prompt, once nothing of the dead agent runs any more.
    pub(super) fn ascertain_prompt(&mut self, death: Failure) {
        let Some(sent) = self.record.turn.as_ref().map(CutPrompt::from) else {
            return;
        };
        let kind = OperationKind::Ascertain(Some(death));
        self.start(kind, Caller::none(), Work::Ascertain(Box::new(sent)));
    }

    /// The agent died with a prompt of which it had shown nothing: it goes out again if it is nowhere.
    fn judge_death(&mut self, death: Failure, arrival: Arrival) {
        let is_out = |turn: &&mut Turn<R>| matches!(turn.phase, TurnPhase::Sent | TurnPhase::Accepted);
        let Some(turn) = self.turn.as_mut().filter(is_out) else {
            return;
        };
        if arrival == Arrival::Absent && !turn.cancelled && !self.stopping {
            turn.sent_again = true;
            self.take_prompt_back();
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
