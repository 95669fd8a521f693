//! How the end of a turn affects the interrupted turn and scheduled continuations.

use bridge_protocol::conversation::{Continuation, OnLimit};
use bridge_protocol::turn::{self, FailureKind, StopReason};
use jiff::Timestamp;

use super::continuation::{MAX_ATTEMPTS, next_attempt_at};
use crate::conversation::effect::{Now, PromptArrival};
use crate::conversation::state::Model;
use crate::store::{CutShortPrompt, PendingContinuation};

impl<R> Model<R> {
    /// Settles the interrupted turn, this one or an earlier one, and the scheduled continuation at the end of a turn.
    /// `is_answered`: whether the agent answered the prompt. Returns the continuation to report with the turn's end.
    pub(super) fn settle_interrupted_turn(
        &mut self,
        stop_reason: &StopReason,
        failure: Option<&turn::Failure>,
        is_answered: bool,
    ) -> Option<Continuation> {
        let turn = self.turn.as_ref()?;
        let continues = turn.request.is_continuation;
        let is_cancelled = turn.cancelled && !turn.was_cut_by_daemon_stop;
        let is_counted = is_answered && !turn.was_session_cleared;
        let Some(failure) = failure else {
            if self.was_cut_by_stop(stop_reason) {
                self.record_interrupted_prompt(is_counted);
                self.note_continuation_sent();
            } else if self.was_cut_by_agent(stop_reason) {
                self.record_interrupted_prompt(false);
                self.note_continuation_sent();
                let earlier = self.record.continuation.take();
                self.record.continuation = earlier.and_then(|earlier| reschedule(earlier, None, self.now));
                return self.record.continuation.as_ref().map(Continuation::from);
            } else if continues || *stop_reason != StopReason::Cancelled {
                // A turn that was answered supersedes the interrupted one.
                self.record.cut = None;
                self.settle_queue_continuation(continues, stop_reason);
            } else {
                self.drop_repeated_prompt();
            }
            return None;
        };
        let is_permanent = matches!(
            failure.kind,
            FailureKind::ContextOverflow | FailureKind::InvalidRequest
        );
        if is_permanent || is_cancelled {
            // The same prompt would fail again, or a client cancelled the turn, whatever the agent reports last.
            if continues {
                self.record.cut = None;
                self.end_continuation();
            } else {
                self.drop_repeated_prompt();
            }
            return None;
        }
        self.record_interrupted_prompt(false);
        self.note_continuation_sent();
        self.schedule_after_failure(failure)
    }

    /// If the running turn is the interrupted prompt, sent again because its client repeated the call, the prompt is not
    /// continued any more: the agent may have it now.
    fn drop_repeated_prompt(&mut self) {
        let turn = self.turn.as_ref();
        let own = turn.and_then(|turn| turn.request.caller.key.as_ref());
        let cut = self.record.cut.as_ref();
        let interrupted = cut.and_then(|cut| cut.open_request.as_ref());
        let is_same_call = own
            .zip(interrupted)
            .is_some_and(|(own, interrupted)| own.id == interrupted.id);
        if is_same_call {
            self.record.cut = None;
            self.end_continuation_text();
        }
    }

    /// Schedules the continuation of the turn that just failed, or keeps the one that is scheduled already. Returns the one to
    /// report with the turn's end.
    fn schedule_after_failure(&mut self, failure: &turn::Failure) -> Option<Continuation> {
        let turn = self.turn.as_ref()?;
        let continues = turn.request.is_continuation;
        let waits = turn.request.on_limit == OnLimit::Wait;
        let has_died = failure.kind == FailureKind::AgentDied;
        let is_limited = failure.kind == FailureKind::RateLimited;
        let is_transient = matches!(
            failure.kind,
            FailureKind::Overloaded
                | FailureKind::Network
                | FailureKind::AgentDied
                | FailureKind::DaemonRestarted
        );
        let earlier = self.record.continuation.take();
        let attempts = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        let is_later = earlier
            .as_ref()
            .is_some_and(|earlier| !continues && earlier.at > self.now);
        // The agent did not end because of this turn, so the turn continues at once.
        let is_resent = turn.is_bystander && has_died && !is_later && attempts < MAX_ATTEMPTS;
        if is_resent {
            self.due_turn = None;
        }
        let next_attempt = next_attempt_at(failure.resets_at, attempts, self.now);
        self.record.continuation = match earlier {
            // A scheduled text keeps its time, and continues this turn too.
            Some(earlier) if is_later && earlier.text.is_some() => Some(earlier),
            earlier if is_resent => Some(PendingContinuation {
                at: self.now,
                sent: continues && earlier.as_ref().is_some_and(|earlier| earlier.sent),
                ..earlier.unwrap_or_else(|| PendingContinuation::at_once(self.now))
            }),
            Some(earlier) if continues && (is_limited || is_transient || failure.retryable) => {
                reschedule(earlier, failure.resets_at, self.now)
            }
            _ if continues => None,
            earlier if waits && is_limited => Some(PendingContinuation {
                at: next_attempt,
                sent: false,
                ..earlier.unwrap_or_else(|| PendingContinuation::at_once(self.now))
            }),
            // One that is due now would hit the same limit.
            Some(earlier) if is_limited && !is_later => Some(PendingContinuation {
                at: next_attempt,
                ..earlier
            }),
            earlier => earlier,
        };
        let scheduled = self.record.continuation.as_ref().filter(|_| waits || is_resent);
        scheduled.map(Continuation::from)
    }

    /// If the interrupted turn is the scheduled continuation, records that it was sent.
    fn note_continuation_sent(&mut self) {
        let Some(pending) = self.record.turn.as_ref().filter(|pending| pending.continues) else {
            return;
        };
        let earlier = self.record.continuation.take();
        self.record.continuation = earlier.map(|earlier| earlier.after_sending(&pending.prompt));
    }

    /// Stores the prompt of the interrupted turn, so that it can be continued. A continuation that was already scheduled
    /// takes precedence. `counted`: whether the chain counts the turn.
    fn record_interrupted_prompt(&mut self, counted: bool) {
        let (Some(turn), Some(pending)) = (&self.turn, &self.record.turn) else {
            return;
        };
        let interrupts = &self.record.interrupts;
        let newer = CutShortPrompt {
            asks: interrupts
                .iter()
                .any(|interrupt| interrupt.raised_at >= turn.started_at),
            counted,
            ..CutShortPrompt::from(pending)
        };
        let is_promised = self.record.continuation.is_some() && !turn.request.is_continuation;
        let waits = turn.request.on_limit == OnLimit::Wait;
        let earlier = self.record.cut.take().filter(|_| is_promised);
        self.record.cut = Some(match earlier {
            // The agent has the earlier prompt, so continuing the newer one continues both.
            Some(earlier) if waits && earlier.has_arrived() && earlier.before.is_none() => newer,
            Some(earlier) if waits => CutShortPrompt {
                before: Some(match earlier.has_arrived() {
                    true => earlier.before.unwrap_or(earlier.prompt),
                    false => earlier.full_prompt(),
                }),
                ..newer
            },
            Some(earlier) => earlier,
            None => newer,
        });
    }

    /// Records whether the transcript contains the interrupted prompt, before another prompt is sent after it.
    pub(super) fn note_arrival(&mut self, arrival: Option<PromptArrival>) {
        let Some(cut) = &mut self.record.cut else { return };
        cut.arrived = match arrival {
            Some(PromptArrival::Absent) => Some(false),
            Some(PromptArrival::Present | PromptArrival::Answered) => Some(true),
            Some(PromptArrival::Unknown) | None => cut.arrived,
        };
    }
}

/// Schedules an interrupted continuation again, unless there were too many attempts.
fn reschedule(
    earlier: PendingContinuation,
    resets_at: Option<Timestamp>,
    now: Now,
) -> Option<PendingContinuation> {
    if earlier.attempts >= MAX_ATTEMPTS {
        return None;
    }
    let at = next_attempt_at(resets_at, earlier.attempts, now);
    Some(PendingContinuation { at, ..earlier })
}
