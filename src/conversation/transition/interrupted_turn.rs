//! How the end of a turn affects the interrupted turn and scheduled continuations.

use bridge_protocol::conversation::{Continuation, OnLimit};
use bridge_protocol::turn::{self, FailureKind, StopReason};
use jiff::Timestamp;

use super::retry_schedule::{MAX_ATTEMPTS, next_attempt_at};
use crate::conversation::effect::{DeathInvolvement, Now, PromptArrival};
use crate::conversation::state::Model;
use crate::store::{CutShortPrompt, PendingContinuation};

impl<R> Model<R> {
    /// Settles the interrupted turn, this one or an earlier one, and the scheduled continuation at the end of a turn.
    /// Returns the continuation of a turn that waits for the end of its limit.
    pub(super) fn settle_interrupted_turn(
        &mut self,
        stop_reason: &StopReason,
        failure: Option<&turn::Failure>,
    ) -> Option<Continuation> {
        let turn = self.turn.as_ref()?;
        let (continues, waits) = (
            turn.request.is_continuation,
            turn.request.on_limit == OnLimit::Wait,
        );
        let involvement = turn.death_involvement;
        let is_cancelled = turn.cancelled && !turn.was_cut_by_daemon_stop;
        let Some(failure) = failure else {
            if self.was_cut_by_stop(stop_reason) {
                self.record_interrupted_prompt();
                self.note_continuation_sent();
            } else if self.was_cut_by_agent(stop_reason) {
                self.record_interrupted_prompt();
                self.note_continuation_sent();
                let earlier = self.record.continuation.take();
                self.record.continuation = earlier.and_then(|earlier| reschedule(earlier, None, self.now));
                return self.record.continuation.as_ref().map(Continuation::from);
            } else if continues || *stop_reason != StopReason::Cancelled {
                // A turn that was answered supersedes the interrupted one.
                self.record.cut = None;
                self.settle_queue_continuation(continues, stop_reason);
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
            }
            return None;
        }
        self.record_interrupted_prompt();
        let is_limited = failure.kind == FailureKind::RateLimited;
        let is_transient = matches!(
            failure.kind,
            FailureKind::Overloaded
                | FailureKind::Network
                | FailureKind::AgentDied
                | FailureKind::DaemonRestarted
        );
        self.note_continuation_sent();
        let earlier = self.record.continuation.take();
        // A continuation that is scheduled for a later time is not affected by this turn.
        let is_later = |earlier: &PendingContinuation| !continues && earlier.at > self.now;
        let is_kept = earlier.as_ref().is_some_and(is_later);
        let has_text = earlier.as_ref().is_some_and(|earlier| earlier.text.is_some());
        let attempts = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        let has_died = failure.kind == FailureKind::AgentDied;
        let was_apart = earlier.as_ref().is_some_and(|earlier| earlier.apart);
        let is_bystander = match involvement {
            DeathInvolvement::Bystander => true,
            // Whether this turn is the cause shows when it runs in a process of its own.
            DeathInvolvement::Suspect => !was_apart,
            DeathInvolvement::Alone => false,
        };
        let is_resent = has_died && is_bystander && (!is_kept || has_text) && attempts < MAX_ATTEMPTS;
        // A text that is scheduled for later keeps its time.
        let (earlier, later) = match earlier {
            Some(earlier) if is_kept && has_text && (is_resent || waits && is_limited) => {
                (None, earlier.into_deferred_text())
            }
            Some(earlier) => {
                let later = earlier.later.clone();
                (Some(earlier), later)
            }
            None => (None, None),
        };
        let line = earlier.as_ref().is_some_and(|earlier| earlier.line);
        if is_resent {
            self.record.continuation = Some(PendingContinuation {
                at: self.now,
                attempts,
                sent: continues && earlier.as_ref().is_some_and(|earlier| earlier.sent),
                apart: was_apart || involvement == DeathInvolvement::Suspect,
                line,
                text: earlier.and_then(|earlier| earlier.text),
                later,
            });
            self.due_turn = None;
            return self.record.continuation.as_ref().map(Continuation::from);
        }
        if continues {
            let is_the_cause = has_died && was_apart;
            let is_retried = (is_limited || is_transient || failure.retryable) && !is_the_cause;
            self.record.continuation = earlier.and_then(|earlier| match is_retried {
                true => reschedule(earlier, failure.resets_at, self.now),
                false => earlier.into_next(self.now),
            });
        } else if waits && is_limited {
            self.record.continuation = Some(PendingContinuation {
                at: next_attempt_at(failure.resets_at, attempts, self.now),
                attempts,
                sent: false,
                apart: false,
                line,
                text: earlier.and_then(|earlier| earlier.text),
                later,
            });
        } else {
            // A continuation that is due now would hit the same limit.
            self.record.continuation = earlier.map(|earlier| {
                if !is_limited || earlier.at > self.now {
                    return earlier;
                }
                let at = next_attempt_at(failure.resets_at, attempts, self.now);
                PendingContinuation { at, ..earlier }
            });
        }
        let reported = self.record.continuation.as_ref().filter(|_| waits);
        reported.map(Continuation::from)
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
    /// takes precedence.
    fn record_interrupted_prompt(&mut self) {
        let (Some(turn), Some(pending)) = (&self.turn, &self.record.turn) else {
            return;
        };
        let interrupts = &self.record.interrupts;
        let newer = CutShortPrompt {
            asks: interrupts
                .iter()
                .any(|interrupt| interrupt.raised_at >= turn.started_at),
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

/// Schedules an interrupted continuation again or, after too many attempts, the one that follows it.
fn reschedule(
    earlier: PendingContinuation,
    resets_at: Option<Timestamp>,
    now: Now,
) -> Option<PendingContinuation> {
    if earlier.attempts >= MAX_ATTEMPTS {
        return earlier.into_next(now);
    }
    let at = next_attempt_at(resets_at, earlier.attempts, now);
    Some(PendingContinuation { at, ..earlier })
}
