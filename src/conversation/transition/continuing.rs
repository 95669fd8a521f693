//! Going on by itself: with what a limit, a crash or a stop cut short, at the reset or at a time, exactly once.

use bridge_protocol::conversation::{Continuation, ContinueAnswer, ContinueAt, Limit, OnLimit};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::CONTINUE_PROMPT;

use super::Changed;
use super::due::{ATTEMPTS_LIMIT, Due, next_try};
use crate::agent::failure::{self, Failure};
use crate::conversation::answer::{Answer, Request};
use crate::conversation::effect::{Arrival, Effect, Effects, Now, Sent};
use crate::conversation::error::ConversationError;
use crate::conversation::line::Waiting;
use crate::conversation::state::{JobKind, Model, OpenRequest, Session, Turn, TurnPhase};
use crate::store::{PendingContinuation, Resting, TurnPhase as Progress};

impl<R> Model<R> {
    /// Has the conversation go on by itself, or not any more.
    #[expect(clippy::too_many_arguments, reason = "the members of one call")]
    pub(super) fn continue_at(
        &mut self,
        at: Option<ContinueAt>,
        text: Option<PromptContent>,
        cancel: bool,
        request: Option<Request>,
        reply: R,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let before = self.record.clone();
        let wanted = if cancel {
            self.call_off(now, effects).map(|()| None)
        } else {
            self.wanted_continuation(at, text, now).map(Some)
        };
        let continuation = match wanted {
            Ok(continuation) => continuation,
            Err(error) => {
                self.answer(reply, request.as_ref(), Err(error), effects);
                return;
            }
        };
        self.record.continuation = continuation;
        self.due = None;
        self.touch(now);
        let answer = Answer::Continued(ContinueAnswer {
            continuation: self.record.continuation.as_ref().map(Continuation::from),
        });
        self.answer_change(reply, request, answer, Changed::from(before), now, effects);
    }

    /// Keeps a continuation that is about to go out from going out.
    fn call_off(&mut self, now: Now, effects: &mut Effects<R>) -> Result<(), ConversationError> {
        self.call_line_off(effects);
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.asked.continues) else {
            return Ok(());
        };
        match turn.phase {
            TurnPhase::Waiting => {
                self.drop_turn_unsent(now, effects);
                self.spare_climb(effects);
            }
            // It is dropped when that is done.
            TurnPhase::Recording => turn.cancelled = true,
            TurnPhase::Sent | TurnPhase::Accepted | TurnPhase::Ending => {
                return Err(ConversationError::Busy(
                    "it has gone out already; cancel the turn that runs".to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn wanted_continuation(
        &self,
        at: Option<ContinueAt>,
        text: Option<PromptContent>,
        now: Now,
    ) -> Result<PendingContinuation, ConversationError> {
        if self.turn.is_some() || !self.queue.is_empty() {
            return Err(ConversationError::Busy(
                "a turn is running; wait for its end, or send the prompt with onLimit: wait".to_owned(),
            ));
        }
        let due = match at {
            Some(ContinueAt::Time(at)) => Due::named(at, now),
            Some(ContinueAt::Now) => Due::named(now, now),
            Some(ContinueAt::Reset) => match &self.record.limit {
                Some(limit) => limit
                    .resets_at
                    .map_or_else(|| next_try(None, 0, now), |at| Due::named(at, now)),
                None => {
                    return Err(ConversationError::Conflict(
                        "the conversation has not run into a limit, so nothing resets; name a time"
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
        if due.at <= now && !self.record.interrupts.is_empty() {
            return Err(ConversationError::Conflict(
                "a question of the agent is open, and nothing goes on before it is answered; answer it, or name a later time"
                    .to_owned(),
            ));
        }
        // What is asked for once more for the same time, or is due all the same, is what it was; what is held goes behind it.
        let same = |kept: &&PendingContinuation| kept.at == due.at || kept.at.max(due.at) <= now;
        let kept = self.record.continuation.as_ref().filter(same);
        let kept = kept.filter(|_| text.is_none()).cloned();
        let wanted = PendingContinuation {
            at: due.at,
            since: due.since,
            attempts: 0,
            sent: false,
            line: self.has_held(),
            ..kept.unwrap_or_else(|| PendingContinuation {
                text,
                ..PendingContinuation::at_once(now)
            })
        };
        if self.record.cut.is_none() && wanted.text.is_none() && !wanted.line {
            return Err(ConversationError::Conflict(
                "no turn of this conversation was cut short; give a text to be sent".to_owned(),
            ));
        }
        Ok(wanted)
    }

    /// The time has come.
    pub(super) fn fall_due(&mut self, turn_id: TurnId, now: Now) {
        self.reckon_anew(now);
        let is_due = self
            .record
            .continuation
            .as_ref()
            .is_some_and(|continuation| continuation.at <= now);
        if is_due && self.due.is_none() && self.record.deleted_at.is_none() && !self.deleting {
            self.due = Some(turn_id);
        }
    }

    /// A clock that was set back makes no wait longer than it was reckoned. A time that somebody named, as the reset of a
    /// limit, is the clock's own.
    fn reckon_anew(&mut self, now: Now) {
        let Some(continuation) = &mut self.record.continuation else {
            return;
        };
        if !continuation.clock_was_set_back(now) {
            return;
        }
        let since = continuation.since.unwrap_or(now);
        let wait = continuation.at.duration_since(since);
        continuation.at = now.saturating_add(wait).unwrap_or(now);
        continuation.since = Some(now);
        self.note_change();
    }

    /// Whether the turn that runs is one with which it goes on by itself.
    pub fn continues(&self) -> bool {
        let is_by_itself = |turn: &Turn<R>| turn.asked.continues || turn.asked.is_held;
        self.turn.as_ref().is_some_and(is_by_itself)
    }

    /// Whether it goes on by itself, or is about to. Not while a person has to answer first, which may take days.
    pub fn goes_on_by_itself(&self) -> bool {
        (self.due.is_some() || self.continues()) && self.record.interrupts.is_empty()
    }

    /// Nothing is in the way: what goes out depends on whether the transcript has the prompt that was cut short.
    pub(super) fn begin_continuation(&mut self, now: Now, effects: &mut Effects<R>) {
        if self.begin_line(now, effects) {
            return;
        }
        let cut = self.record.cut.as_ref();
        let Some(cut) = cut.filter(|_| self.record.continuation.is_some()) else {
            self.go_on(Arrival::Present, now, effects);
            return;
        };
        let sent = Sent::from(cut);
        let job = self.start_job(JobKind::Ascertaining(None));
        effects.push(Effect::Ascertain { job, sent });
    }

    /// The transcript says whether it has the prompt.
    pub(super) fn ascertained(&mut self, job: u64, arrival: Arrival, now: Now, effects: &mut Effects<R>) {
        match self.finish_job(job) {
            Some(JobKind::Ascertaining(Some(death))) => self.judge_death(death, arrival, now, effects),
            // Who came meanwhile goes first; at a stop the next life goes on with it.
            Some(JobKind::Ascertaining(None)) if self.turn.is_none() && !self.stopping => {
                let arrival = self.as_known(arrival);
                self.go_on(arrival, now, effects);
            }
            _ => {}
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

    /// Sends the prompt that was cut short, or a word that it be gone on with.
    fn go_on(&mut self, arrival: Arrival, now: Now, effects: &mut Effects<R>) {
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
            if !self.begin_line(now, effects) {
                self.end_continuation(now);
            }
            return;
        }
        let cut = self.record.cut.as_ref();
        let mut request = None;
        // What somebody wants to be said is said, be it behind the prompt.
        let with_text = |prompt: PromptContent| match &text {
            Some(text) => prompt.followed_by(text),
            None => prompt,
        };
        let prompt = match (arrival, cut) {
            (Arrival::Absent, Some(cut)) if !cut.tool_started => {
                request = cut.open_request.as_ref().map(|open| Request {
                    id: open.id.clone(),
                    fingerprint: open.fingerprint.clone(),
                });
                with_text(cut.whole())
            }
            // Nobody can tell whether it would be there twice: it is tried once.
            (Arrival::Unknown, Some(cut)) if !continuation.sent => with_text(cut.whole()),
            (Arrival::Unknown, _) => {
                self.give_up(
                    "the agent's transcript cannot be read, so nobody can tell whether the prompt is in it already; \
                     it was sent once and not again",
                    now,
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
        // Whoever asks the same again under the same name waits for this turn.
        let is_open = |request: &Request| {
            self.open_requests
                .iter()
                .any(|open| open.request.id == request.id)
        };
        let request = request.filter(|request| !is_open(request));
        self.open_requests
            .extend(request.clone().map(|request| OpenRequest {
                request,
                followers: Vec::new(),
            }));
        let asked = Waiting {
            min_fidelity: min_fidelity.unwrap_or(Fidelity::Text),
            request,
            on_limit: OnLimit::Wait,
            continues: true,
            ..Waiting::new(turn_id, prompt, now, None)
        };
        let is_apart = self.record.continuation.as_ref().is_some_and(|it| it.apart);
        if let Session::Live(live) = &mut self.session
            && is_apart
        {
            // Somebody had it opened meanwhile, beside others.
            live.is_to_move = true;
        }
        self.start_turn(asked, now, effects);
        if let Some(turn) = &mut self.turn {
            turn.is_apart = is_apart;
        }
    }

    /// What was to go out by itself is done, or not to go out any more.
    pub(super) fn end_continuation(&mut self, now: Now) {
        let over = self.record.continuation.take();
        self.record.continuation = over.and_then(|over| over.next(now));
    }

    /// What was cut short is done with: no word goes out that it be gone on with. What somebody wants said does, and the line.
    pub(super) fn end_word(&mut self, now: Now) {
        let continuation = self.record.continuation.take();
        self.record.continuation = continuation.and_then(|it| it.without_word(now));
    }

    /// It does not go out by itself; a person has to look.
    fn give_up(&mut self, why: &str, now: Now) {
        self.end_continuation(now);
        self.record.resting = Resting::Failed;
        self.record.failure = Some(format!("it did not go on by itself: {why}"));
        self.note_change();
    }

    /// A continuation did not get to its agent.
    pub(super) fn continuation_unsent(&mut self, error: &ConversationError, now: Now) {
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
            let due = next_try(resets_at, continuation.attempts, now);
            (continuation.at, continuation.since) = (due.at, due.since);
            self.note_change();
        } else {
            self.give_up(&error.to_string(), now);
        }
    }

    /// Whether the turn, whose prompt no agent has, is to go out once the limit is over that its session met.
    pub(super) fn may_wait_for_limit(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| {
            turn.asked.on_limit == OnLimit::Wait && !turn.asked.continues && turn.answers.is_none()
        })
    }

    /// Its session was not to be had for a limit: the prompt goes out when that is over, as one that met it itself.
    pub(super) fn wait_for_limit(
        &mut self,
        message: &str,
        limit: &Limit,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Some(turn) = &mut self.turn else { return };
        self.record.turn = Some(turn.asked.pending(now));
        // It is told as every other that has an end.
        turn.phase = TurnPhase::Sent;
        self.accept_prompt(effects);
        let failure = Failure {
            kind: failure::FailureKind::RateLimited,
            message: message.to_owned(),
            resets_at: limit.resets_at,
            retryable: true,
            session_unknown: false,
        };
        self.end_turn_with_failure(failure, now, effects);
    }

    /// Whether a prompt whose agent died may go out once more: the agent showed nothing of it, and its transcript can be
    /// asked.
    pub(super) fn may_send_again(&self) -> bool {
        let shows = |turn: &Turn<R>| turn.taken || turn.cancelled || turn.sent_again;
        let pending = self.record.turn.as_ref();
        self.turn.as_ref().is_some_and(|turn| !shows(turn))
            && pending.is_some_and(|pending| pending.anchor.is_some() && pending.phase == Progress::Sent)
            && self.job.is_none()
            && !self.stopping
    }

    /// Asks the transcript whether the prompt is in it, once nothing of the dead agent runs any more.
    pub(super) fn ascertain_prompt(&mut self, death: Failure, effects: &mut Effects<R>) {
        let Some(sent) = self.record.turn.as_ref().map(Sent::from) else {
            return;
        };
        let job = self.start_job(JobKind::Ascertaining(Some(death)));
        effects.push(Effect::Ascertain { job, sent });
    }

    /// The agent died with a prompt of which it had shown nothing: it goes out again if it is nowhere.
    fn judge_death(&mut self, death: Failure, arrival: Arrival, now: Now, effects: &mut Effects<R>) {
        let is_out = |turn: &&mut Turn<R>| matches!(turn.phase, TurnPhase::Sent | TurnPhase::Accepted);
        let Some(turn) = self.turn.as_mut().filter(is_out) else {
            return;
        };
        if arrival == Arrival::Absent && !turn.cancelled && !self.stopping {
            turn.sent_again = true;
            self.take_prompt_back(now);
            return;
        }
        let cancelled = turn.cancelled;
        self.accept_prompt(effects);
        if cancelled {
            self.end_turn_cancelled(now, effects);
        } else {
            self.end_turn_with_failure(death, now, effects);
        }
    }
}
