//! How turns end: with a result, with a failure, after an ignored cancel, or with the agent.

use bridge_protocol::conversation::Limit;
use bridge_protocol::event::Event;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{self, FailureKind, StopReason, TurnResult};
use serde::Deserialize;
use serde_json::Value;

use crate::agent::failure::{self, Failure};
use crate::agent::members::{Members, to_object};
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, Effect, Ledger, Milestone};
use crate::conversation::error::ConversationError;
use crate::conversation::naming::shortened_title;
use crate::conversation::state::{Model, Turn, TurnPhase};
use crate::store::{RequestRecord, RestingState, TurnPhase as Progress};
use crate::transcript::summary::title_of;

impl<R> Model<R> {
    /// Ends the turn with the agent's result, which may contain a failure.
    pub(super) fn end_turn_with_result(&mut self, raw: &RawJson, result: &Value, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.end_turn_with_failure(failure);
            return;
        }
        let reason = result.get("stopReason").filter(|reason| !reason.is_null());
        let Some(reason) = reason else {
            // The protocol requires a reason. Without one, it is unknown how the turn ended.
            let why = "the agent answered the prompt without a readable result";
            self.end_turn_with_failure(Failure::new(FailureKind::Unknown, why));
            return;
        };
        let stop_reason =
            StopReason::deserialize(reason).unwrap_or_else(|_| StopReason::Other(reason.to_string()));
        if stop_reason == StopReason::Failed {
            // This reason is the daemon's own and always comes with a failure, which an agent does not give.
            let why = "the agent ended the turn as failed and gave no reason";
            self.end_turn_with_failure(Failure::new(FailureKind::Unknown, why));
            return;
        }
        // A command that clears the session is recorded in the old session, in the new one or nowhere, depending on the agent.
        // It is not counted as a turn, so that it is not missed later.
        if !self.turn.as_ref().is_some_and(|turn| turn.was_session_cleared) {
            self.record.chain.acknowledge_turn();
        }
        self.set_resting_state_after(&stop_reason);
        self.end_turn(stop_reason, None, Some(raw));
    }

    /// The turn failed.
    pub(super) fn end_turn_with_failure(&mut self, failure: Failure) {
        self.end_turn_with_error(failure, None);
    }

    /// The turn failed. `upstream`: the agent's error, as the agent wrote it.
    pub(super) fn end_turn_with_error(&mut self, failure: Failure, upstream: Option<RawJson>) {
        let kind = failure.kind;
        let failure = turn::Failure {
            kind,
            message: failure.message,
            resets_at: failure.resets_at,
            // A retry would run a tool twice.
            retryable: failure.retryable && !self.has_started_a_tool(),
            upstream,
        };
        match kind {
            FailureKind::RateLimited => {
                self.set_resting_state(RestingState::Limited);
                self.record.limit = Some(Limit {
                    kind,
                    resets_at: failure.resets_at,
                });
            }
            FailureKind::AgentDied | FailureKind::DaemonRestarted => {
                if self.session.is_some() {
                    self.orphan_questions_of_dead_agent();
                }
                self.reopen_withdrawn_questions();
                self.set_resting_state(RestingState::Interrupted);
            }
            FailureKind::AuthRequired => {
                self.set_resting_state(RestingState::Idle);
                // The user signs in outside of this process, which may check the sign-in only when it starts.
                self.reopen_later();
                self.effects.push(Effect::RetireAgent);
            }
            _ => self.set_resting_state(RestingState::Idle),
        }
        self.end_turn(StopReason::Failed, Some(failure), None);
    }

    fn has_started_a_tool(&self) -> bool {
        let pending = self.record.turn.as_ref();
        pending.is_some_and(|pending| pending.phase >= Progress::ToolStarted)
    }

    /// Sets the state of the conversation while nothing runs.
    pub(super) fn set_resting_state(&mut self, resting: RestingState) {
        self.record.resting = resting;
        if resting != RestingState::Limited {
            self.record.limit = None;
        }
    }

    /// Sets the state after a turn that did not fail. A turn that was cut short counts as interrupted.
    fn set_resting_state_after(&mut self, stop_reason: &StopReason) {
        let is_cut = self.was_cut_by_stop(stop_reason) || self.was_cut_by_agent(stop_reason);
        self.set_resting_state(match is_cut {
            true => RestingState::Interrupted,
            false => RestingState::Idle,
        });
    }

    /// Whether the turn was ended by the stop of the daemon, and not by a client.
    pub(super) fn was_cut_by_stop(&self, stop_reason: &StopReason) -> bool {
        *stop_reason == StopReason::Cancelled
            && self.turn.as_ref().is_some_and(|turn| turn.was_cut_by_daemon_stop)
    }

    /// Whether the agent cancelled a continuation that no client cancelled and that it had not begun. An agent whose input
    /// ends does so before the prompt is in its transcript, which later shows whether to send it again.
    pub(super) fn was_cut_by_agent(&self, stop_reason: &StopReason) -> bool {
        let is_begun =
            |turn: &Turn<R>| turn.is_prompt_confirmed || turn.cancelled || turn.was_cut_by_daemon_stop;
        let turn = self.turn.as_ref();
        *stop_reason == StopReason::Cancelled
            && turn.is_some_and(|turn| turn.request.is_continuation && !is_begun(turn))
    }

    /// Ends the turn. `answer`: the agent's answer to the prompt, if it answered.
    pub(super) fn end_turn(
        &mut self,
        stop_reason: StopReason,
        failure: Option<turn::Failure>,
        answer: Option<&RawJson>,
    ) {
        let upstream_id = self
            .record
            .chain
            .head()
            .map_or_else(|| "".into(), |link| link.upstream_id.clone());
        // A live agent must be notified that there is no answer. Without a session, the questions are orphans.
        if self.session.is_some() {
            // Those that the agent asked before the turn are still open there.
            let earlier = self
                .turn
                .as_mut()
                .map(|turn| std::mem::take(&mut turn.earlier_questions));
            self.cancel_questions(&earlier.unwrap_or_default());
        }
        self.remove_from_queue_record();
        if failure.is_some() {
            self.hold_released_prompts();
        }
        let continuation = self.settle_interrupted_turn(&stop_reason, failure.as_ref(), answer.is_some());
        self.end_continuation_of_empty_queue();
        // With a continuation, a retry would send the prompt twice.
        let failure = failure.map(|failure| turn::Failure {
            retryable: failure.retryable && continuation.is_none(),
            ..failure
        });
        let Some(turn) = &mut self.turn else { return };
        turn.phase = TurnPhase::Ending;
        let (usage, other) = answer.map_or((None, None), split_usage);
        // Until the agent reports a title. Not every agent does.
        if self.record.title.is_empty() && self.later_prompts.is_empty() {
            self.record.title = title_of(&turn.request.prompt.to_text())
                .map_or_else(String::new, |title| shortened_title(&title));
            self.record.reported.title = Some(self.record.title.clone());
        }
        let result = TurnResult {
            turn_id: turn.request.turn_id.clone(),
            stop_reason,
            failure,
            upstream_id,
            resumed: turn.resumed.clone(),
            usage,
            other,
            continuation,
        };
        let turn = self.turn.as_ref();
        let edit = turn.and_then(|turn| turn.edit.as_ref());
        let request = turn.and_then(|turn| turn.request.caller.key.clone());
        let json_of = |result: TurnResult| self.turn_answer(edit, result).to_json().ok();
        // An agent may add any amount of data to its answer or its error.
        let short = |result: TurnResult| TurnResult {
            usage: None,
            other: None,
            failure: result.failure.map(|failure| turn::Failure {
                upstream: None,
                ..failure
            }),
            ..result
        };
        let request = request.and_then(|request| {
            Some(RequestRecord {
                turn_id: Some(result.turn_id.clone()),
                result: Some(json_of(result.clone())?),
                short_result: json_of(short(result.clone())),
                ..self.begun_request_record(&request)
            })
        });
        self.record.turn = None;
        // Stored for calls that come while no session is open.
        self.record.usage = self.session_info.usage.clone().or(self.record.usage.take());
        self.effects.push(Effect::Disarm(Deadline::Accept));
        self.effects.push(Effect::Disarm(Deadline::Cancel));
        self.bump_revision();
        let ledger = Ledger::with_request(request);
        self.write(ledger, Milestone::TurnEnded(Box::new(result)));
    }

    /// The agent stopped because the turn was cancelled.
    pub(super) fn end_turn_cancelled(&mut self) {
        self.set_resting_state_after(&StopReason::Cancelled);
        self.end_turn(StopReason::Cancelled, None, None);
    }

    /// The end of the turn is on disk, or could not be written. It is reported in either case.
    pub(super) fn turn_end_recorded(&mut self, result: TurnResult) {
        let Some(turn) = self.turn.take_if(|turn| turn.request.turn_id == result.turn_id) else {
            return;
        };
        if self.record.resting == RestingState::Limited
            && let Some(limit) = &self.record.limit
        {
            self.emit(Event::Limited { limit: limit.clone() });
        }
        self.emit(Event::TurnEnded { turn: result.clone() });
        let answer = Ok(self.turn_answer(turn.edit.as_ref(), result));
        self.answer(turn.request.caller, answer);
        for caller in turn.cancel_callers {
            self.answer(caller, Ok(Answer::Cancelled(true)));
        }
        self.arm_idle();
    }

    /// A deadline passed.
    pub fn elapsed(&mut self, deadline: Deadline) {
        match deadline {
            Deadline::Accept => self.accept_prompt(),
            Deadline::Cancel => self.cancel_ignored(),
            Deadline::Climb => self.give_up_climb(),
            Deadline::Idle => self.hibernate(),
            Deadline::Rewrite => self.writer.has_failed = false,
        }
    }

    /// The agent ignored the cancellation: the turn ends, and the session is closed. What the agent still sends belongs to
    /// no turn.
    fn cancel_ignored(&mut self) {
        let turn = self.turn.as_ref();
        if !turn.is_some_and(|turn| turn.cancelled && turn.is_sent()) {
            return;
        }
        self.accept_prompt();
        self.end_turn_cancelled();
        self.close_by_force();
    }

    /// The agent's process ended. `is_bystander`: the daemon ended it because of another conversation.
    pub fn agent_died(&mut self, status: &str, stderr_tail: &str, is_bystander: bool) {
        let was_open = self.session.is_some();
        self.orphan_questions();
        self.drop_session();
        let failure = failure::agent_died(status, stderr_tail);
        if let Some(turn) = &mut self.turn {
            turn.is_bystander = is_bystander;
        }
        let phase = self.turn.as_ref().map(|turn| turn.phase);
        if phase == Some(TurnPhase::Sent) && self.is_editing() {
            let error = ConversationError::AgentUnavailable(format!(
                "the agent ended before it accepted the prompt; the conversation is unchanged: {}",
                failure.message
            ));
            self.revert_edit(&error);
            return;
        }
        if was_open && phase.is_none() {
            // There is no turn whose end would report that the session is closed.
            self.emit(Event::Closed {});
        }
        match phase {
            Some(TurnPhase::Sent | TurnPhase::Accepted) => {
                if self.may_send_again() {
                    self.check_prompt_arrival(failure);
                    return;
                }
                self.accept_prompt();
                if self.turn.as_ref().is_some_and(|turn| turn.cancelled) {
                    self.end_turn_cancelled();
                } else {
                    self.end_turn_with_failure(failure);
                }
            }
            // A prompt that was not sent goes to the next process, for a limited number of times.
            Some(TurnPhase::Waiting | TurnPhase::Recording) => {
                self.abandon_edit();
                if let Some(turn) = &mut self.turn {
                    turn.deaths.push(failure.message);
                }
            }
            // An ended turn keeps its result.
            Some(TurnPhase::Ending) | None => {}
        }
    }
}

/// Splits the agent's answer to a prompt into the usage and its other members.
fn split_usage(answer: &RawJson) -> (Option<RawJson>, Option<RawJson>) {
    let mut members: Members = answer.read().unwrap_or_default();
    members.shift_remove("stopReason");
    let usage = members
        .shift_remove("usage")
        .filter(|usage| usage.get() != "null");
    (usage, to_object(&members))
}
