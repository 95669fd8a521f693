//! What the end of a turn means for an interrupted turn and for scheduled continuations.

use bridge_protocol::conversation::{Continuation, OnLimit};
use bridge_protocol::turn::{self, FailureKind, StopReason};
use jiff::Timestamp;

use super::due::{ATTEMPTS_LIMIT, next_try};
use crate::conversation::effect::{Arrival, Now, Part};
use crate::conversation::state::Model;
use crate::store::{CutPrompt, PendingContinuation};

impl<R> Model<R> {
    /// Settles the interrupted turn, this one or an earlier one, and the scheduled continuation at the end of a turn.
    /// Returns the continuation of a turn that waits for the end of its limit.
    pub(super) fn settle_cut(
        &mut self,
        stop_reason: &StopReason,
        failure: Option<&turn::Failure>,
    ) -> Option<Continuation> {
        let turn = self.turn.as_ref()?;
        let (continues, waits) = (turn.asked.continues, turn.asked.on_limit == OnLimit::Wait);
        let part = turn.part;
        let is_cancelled = turn.cancelled && !turn.stopped;
        let Some(failure) = failure else {
            if self.was_cut_by_stop(stop_reason) {
                self.note_cut();
                self.note_said();
            } else if self.was_cut_by_agent(stop_reason) {
                self.note_cut();
                self.note_said();
                let earlier = self.record.continuation.take();
                self.record.continuation = earlier.and_then(|earlier| try_again(earlier, None, self.now));
                return self.record.continuation.as_ref().map(Continuation::from);
            } else if continues || *stop_reason != StopReason::Cancelled {
                // Whoever got an answer has taken over.
                self.record.cut = None;
                self.settle_line(continues, stop_reason);
            }
            return None;
        };
        let is_hopeless = matches!(
            failure.kind,
            FailureKind::ContextOverflow | FailureKind::InvalidRequest
        );
        if is_hopeless || is_cancelled {
            // The same would fail again, or a person is done with it, whatever the agent says last.
            if continues {
                self.record.cut = None;
                self.end_continuation();
            }
            return None;
        }
        self.note_cut();
        let is_limited = failure.kind == FailureKind::RateLimited;
        let is_passing = matches!(
            failure.kind,
            FailureKind::Overloaded
                | FailureKind::Network
                | FailureKind::AgentDied
                | FailureKind::DaemonRestarted
        );
        self.note_said();
        let earlier = self.record.continuation.take();
        // What somebody wants at a time of its own is not affected by this turn.
        let is_later = |earlier: &PendingContinuation| !continues && earlier.at > self.now;
        let is_kept = earlier.as_ref().is_some_and(is_later);
        let has_text = earlier.as_ref().is_some_and(|earlier| earlier.text.is_some());
        let attempts = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        let has_died = failure.kind == FailureKind::AgentDied;
        let was_apart = earlier.as_ref().is_some_and(|earlier| earlier.apart);
        let is_anothers = match part {
            Part::Bystander => true,
            // Told from the one that is the cause by what becomes of it in a process of its own.
            Part::Suspect => !was_apart,
            Part::Alone => false,
        };
        let is_promised = has_died && is_anothers && (!is_kept || has_text) && attempts < ATTEMPTS_LIMIT;
        // A text for later stays that.
        let (earlier, later) = match earlier {
            Some(earlier) if is_kept && has_text && (is_promised || waits && is_limited) => {
                (None, earlier.put_off())
            }
            Some(earlier) => {
                let later = earlier.later.clone();
                (Some(earlier), later)
            }
            None => (None, None),
        };
        let line = earlier.as_ref().is_some_and(|earlier| earlier.line);
        if is_promised {
            self.record.continuation = Some(PendingContinuation {
                at: self.now,
                attempts,
                sent: continues && earlier.as_ref().is_some_and(|earlier| earlier.sent),
                apart: was_apart || part == Part::Suspect,
                line,
                text: earlier.and_then(|earlier| earlier.text),
                later,
            });
            self.due = None;
            return self.record.continuation.as_ref().map(Continuation::from);
        }
        if continues {
            let is_the_cause = has_died && was_apart;
            let goes_on = (is_limited || is_passing || failure.retryable) && !is_the_cause;
            self.record.continuation = earlier.and_then(|earlier| match goes_on {
                true => try_again(earlier, failure.resets_at, self.now),
                false => earlier.next(self.now),
            });
        } else if waits && is_limited {
            self.record.continuation = Some(PendingContinuation {
                at: next_try(failure.resets_at, attempts, self.now),
                attempts,
                sent: false,
                apart: false,
                line,
                text: earlier.and_then(|earlier| earlier.text),
                later,
            });
        } else {
            // What was due just now would meet the same limit.
            self.record.continuation = earlier.map(|earlier| {
                if !is_limited || earlier.at > self.now {
                    return earlier;
                }
                let at = next_try(failure.resets_at, attempts, self.now);
                PendingContinuation { at, ..earlier }
            });
        }
        let told = self.record.continuation.as_ref().filter(|_| waits);
        told.map(Continuation::from)
    }

    /// The scheduled continuation is the turn that is cut short now.
    fn note_said(&mut self) {
        let Some(pending) = self.record.turn.as_ref().filter(|pending| pending.continues) else {
            return;
        };
        let earlier = self.record.continuation.take();
        self.record.continuation = earlier.map(|earlier| earlier.having_sent(&pending.prompt));
    }

    /// Stores the prompt of the interrupted turn, so that it can be continued. A continuation that was already scheduled
    /// takes precedence.
    fn note_cut(&mut self) {
        let (Some(turn), Some(pending)) = (&self.turn, &self.record.turn) else {
            return;
        };
        let interrupts = &self.record.interrupts;
        let newer = CutPrompt {
            asks: interrupts
                .iter()
                .any(|interrupt| interrupt.raised_at >= turn.started_at),
            ..CutPrompt::from(pending)
        };
        let is_promised = self.record.continuation.is_some() && !turn.asked.continues;
        let waits = turn.asked.on_limit == OnLimit::Wait;
        let earlier = self.record.cut.take().filter(|_| is_promised);
        self.record.cut = Some(match earlier {
            // The agent has the earlier one: what becomes of the newer one does for both.
            Some(earlier) if waits && earlier.has_arrived() && earlier.before.is_none() => newer,
            Some(earlier) if waits => CutPrompt {
                before: Some(match earlier.has_arrived() {
                    true => earlier.before.unwrap_or(earlier.prompt),
                    false => earlier.whole(),
                }),
                ..newer
            },
            Some(earlier) => earlier,
            None => newer,
        });
    }

    /// Takes note of whether the transcript has the prompt that was cut short, before another one goes out behind it.
    pub(super) fn note_arrival(&mut self, arrival: Option<Arrival>) {
        let Some(cut) = &mut self.record.cut else { return };
        cut.arrived = match arrival {
            Some(Arrival::Absent) => Some(false),
            Some(Arrival::Present | Arrival::Answered) => Some(true),
            Some(Arrival::Unknown) | None => cut.arrived,
        };
    }
}

/// Schedules an interrupted continuation again, or what follows it after too many attempts.
fn try_again(
    earlier: PendingContinuation,
    resets_at: Option<Timestamp>,
    now: Now,
) -> Option<PendingContinuation> {
    if earlier.attempts >= ATTEMPTS_LIMIT {
        return earlier.next(now);
    }
    let at = next_try(resets_at, earlier.attempts, now);
    Some(PendingContinuation { at, ..earlier })
}
