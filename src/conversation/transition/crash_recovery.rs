//! Recovery from a crash: what happens to a running turn if the daemon or the conversation's task ended before it.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::link::LineageEntry;
use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};
use jiff::SignedDuration;

use super::editing::{append_edit_branch, drop_replaced_turns, log_abandoned_edit, turn_answer};
use crate::conversation::answer::Answer;
use crate::conversation::effect::{
    CallChange, Effect, Ledger, Milestone, PromptArrival, SettledQuestion, WritePart,
};
use crate::conversation::state::{Model, Turn, TurnPhase};
use crate::conversation::writer::PendingWrite;
use crate::store::{
    self, ConversationRecord, CutShortPrompt, PendingEdit, PendingTurn, RequestId, RequestRecord,
    RestingState,
};

/// How long a conversation waits after a failure of its task before it sends a scheduled continuation.
const DELAY_AFTER_PANIC: SignedDuration = SignedDuration::from_mins(1);

impl<R> Model<R> {
    /// Restarts from what is on disk, because the task failed and how far its work had come is unknown. The agent may have the
    /// prompt and still work on it, so neither the prompt nor a continuation that was already sent is sent again automatically.
    pub fn restart_from_disk(&mut self, why: &str, is_written: bool) {
        let before = self.state();
        let running = self.writer.in_progress.take().filter(|_| is_written);
        let (written, parts) = running.map_or((None, Vec::new()), |PendingWrite { record, parts }| {
            (Some(record).filter(|record| record.id == self.record.id), parts)
        });
        let record = written.unwrap_or_else(|| self.writer.on_disk.clone());
        let restarted = Self {
            last_job: self.last_job,
            // The tree move that holds the conversation releases it.
            is_paused: self.is_paused,
            now: self.now,
            ..Self::new(record, self.kind, self.rules.clone())
        };
        let failed = std::mem::replace(self, restarted);
        self.open_requests = failed.open_requests;
        let mut result = None;
        for part in parts {
            result = self.report_write_part(part).or(result);
        }
        if self.record.deleted_at.is_some() {
            self.effects.push(Effect::End);
            return;
        }
        let ledger = self.end_failed_turn(why, &mut result);
        // A turn that was not reported counts as never begun. Its caller is notified that the answer was lost.
        let turn = failed.turn.filter(|turn| turn.announced);
        let request = turn.as_ref().and_then(|turn| turn.request.caller.key.as_ref());
        self.open_requests
            .retain(|open| request.is_some_and(|request| request.id == open.key.id));
        let milestone = match turn.zip(result) {
            Some((turn, result)) => {
                self.turn = Some(Turn {
                    phase: TurnPhase::Ending,
                    ..turn
                });
                Milestone::TurnEnded(Box::new(result))
            }
            None => Milestone::Saved,
        };
        self.write(ledger, milestone);
        if self.turn.is_none() && self.state() == before {
            // The state did not change: it failed before, or is held and shown as moving.
            let state = ConversationState::Failed;
            self.emit(Event::StateChanged { state });
        }
    }

    /// Reports a part that is on disk. Returns the end of the turn, if the part contains it.
    fn report_write_part(&mut self, part: WritePart<R>) -> Option<TurnResult> {
        part.ledger.events.into_iter().for_each(|event| self.emit(event));
        match part.milestone {
            Milestone::TurnEnded(result) => return Some(*result),
            // The agent needs no answer, because its session is closed.
            Milestone::QuestionSettled(settled) => self.question_settled(SettledQuestion {
                answer: None,
                ..*settled
            }),
            // The session that was opened for the change is closed.
            Milestone::Changed(change) => self.change_written(
                CallChange {
                    opened_session: None,
                    ..*change
                },
                Ok(()),
            ),
            _ => {}
        }
        None
    }

    /// Removes the turn from the record, and notes why the conversation failed. `result`: how the turn ended, if that is known.
    fn end_failed_turn(&mut self, why: &str, result: &mut Option<TurnResult>) -> Ledger {
        let pending = self.record.turn.clone();
        let was_automatic = pending.as_ref().is_some_and(|turn| turn.continues);
        let record = &mut self.record;
        let ended = end_unfinished(record, FailureKind::Unknown, why, PromptArrival::Unknown);
        self.record.resting = RestingState::Failed;
        self.record.failure = Some(why.to_owned());
        if was_automatic {
            self.end_continuation();
        }
        let later = self.now.saturating_add(DELAY_AFTER_PANIC).unwrap_or(self.now);
        if let Some(continuation) = &mut self.record.continuation {
            continuation.at = continuation.at.max(later);
        }
        self.bump_revision();
        let request = pending.and_then(|turn| turn.call_key());
        let request = ended.ended_turn.and_then(|ended| {
            let record = request.map(|request| RequestRecord {
                turn_id: Some(ended.result.turn_id.clone()),
                result: ended.answer(&self.record).to_json().ok(),
                ..self.begun_request_record(&request)
            });
            result.get_or_insert(ended.result);
            record
        });
        Ledger {
            requests: request.into_iter().collect(),
            ..Ledger::with_links(ended.lineage, Vec::new())
        }
    }
}

/// The result of ending a conversation's unfinished turn.
#[derive(Debug, Default)]
pub(in crate::conversation) struct EndedUnfinished {
    /// How the turn ended. `None` if there was none, or all of it was undone.
    pub ended_turn: Option<EndedTurn>,
    /// New entries of the lineage.
    pub lineage: Vec<LineageEntry>,
    /// Whether it was an edit that was undone: the conversation is as before.
    pub is_undone_edit: bool,
}

/// How a turn ended that was cut short by the end of the last daemon or task.
#[derive(Debug)]
pub(in crate::conversation) struct EndedTurn {
    /// The idempotency key of the call that began it.
    pub request_id: Option<RequestId>,
    /// The end.
    pub result: TurnResult,
    /// The branch of the turn, if it replaced an earlier turn.
    edit: Option<PendingEdit>,
}

impl EndedTurn {
    /// The answer for the caller of the turn.
    pub(in crate::conversation) fn answer(&self, record: &ConversationRecord) -> Answer {
        let edit = self.edit.as_ref().map(|edit| edit.accepted.then_some(edit));
        turn_answer(record, edit, self.result.clone())
    }
}

/// Ends, in a record, the turn that an earlier daemon left unfinished. `arrived`: what the transcript shows about its prompt.
/// The idempotency key of a call whose prompt reached no agent is not recorded as used: a repeated call is carried out.
pub(in crate::conversation) fn end_turn_of_previous_run(
    record: &mut ConversationRecord,
    arrived: PromptArrival,
) -> EndedUnfinished {
    let Some(turn) = record.turn.clone() else {
        return end_unfinished(record, FailureKind::DaemonRestarted, "", arrived);
    };
    let tool_started = turn.phase >= store::TurnPhase::ToolStarted;
    let is_unsent = arrived == PromptArrival::Absent && !tool_started;
    let why = match arrived {
        PromptArrival::Absent if is_unsent => {
            "the daemon ended before the prompt reached the agent: it can be sent again"
        }
        PromptArrival::Absent | PromptArrival::Present => {
            "the daemon ended during the turn; the agent has the prompt, so continue it instead of sending it \
             again"
        }
        // An answered turn did end, so this failure is removed below.
        PromptArrival::Answered | PromptArrival::Unknown => "the daemon ended while the turn ran",
    };
    let mut ended = end_unfinished(record, FailureKind::DaemonRestarted, why, arrived);
    if ended.is_undone_edit {
        return ended;
    }
    match arrived {
        PromptArrival::Present => {
            record.chain.mark_written();
        }
        PromptArrival::Answered => {
            record.chain.acknowledge_turn();
            // The turn continued after its questions, so they were answered.
            record
                .interrupts
                .retain(|interrupt| interrupt.raised_at < turn.accepted_at);
        }
        PromptArrival::Absent | PromptArrival::Unknown => {}
    }
    if arrived == PromptArrival::Answered && record.continuation.as_ref().is_none_or(|_| turn.continues) {
        record.cut = None;
        record.resting = RestingState::Idle;
    }
    // Only a prompt is continued; an edit has already ended.
    let is_edit = turn.edit.is_some();
    // A prompt whose continuation was scheduled before this turn has its own key.
    let is_same_prompt =
        |cut: &&mut CutShortPrompt| is_unsent && cut.prompt == turn.prompt && cut.anchor == turn.anchor;
    if let Some(cut) = record.cut.as_mut().filter(is_same_prompt) {
        cut.open_request = turn.call_key().filter(|_| !is_edit);
    }
    // Known only now: the transcript may be missing when the turn is continued.
    let is_of_turn = |cut: &&mut CutShortPrompt| cut.prompt == turn.prompt && cut.anchor == turn.anchor;
    if arrived == PromptArrival::Present
        && let Some(cut) = record.cut.as_mut().filter(is_of_turn)
    {
        cut.arrived = Some(true);
    }
    if turn.continues {
        let continuation = record.continuation.take();
        // If it was sent, the user decides what follows.
        record.continuation = continuation
            .filter(|_| is_unsent)
            .map(|unsent| unsent.after_sending(&turn.prompt));
    }
    if let Some(of_turn) = &mut ended.ended_turn {
        if let Some(failure) = &mut of_turn.result.failure {
            failure.retryable =
                is_unsent || (arrived == PromptArrival::Unknown && !tool_started && !turn.taken);
        }
        of_turn.request_id = of_turn.request_id.take().filter(|_| !is_unsent || is_edit);
        // The transcript shows the end that the record lacks. The caller may have got it already, if the disk was full then.
        if arrived == PromptArrival::Answered {
            of_turn.result.stop_reason = StopReason::EndTurn;
            of_turn.result.failure = None;
        }
    }
    ended
}

/// Ends, in a record, the turn that the last task or daemon left unfinished, and keeps its questions as orphans. An edit stays
/// if its prompt was accepted or is in the transcript.
pub(in crate::conversation) fn end_unfinished(
    record: &mut ConversationRecord,
    kind: FailureKind,
    why: &str,
    arrived: PromptArrival,
) -> EndedUnfinished {
    for interrupt in &mut record.interrupts {
        interrupt.orphaned = true;
    }
    let mut ended = EndedUnfinished::default();
    let Some(turn) = record.turn.take() else {
        return ended;
    };
    if let Some(edit) = turn.edit.as_ref().filter(|edit| !edit.accepted) {
        if matches!(arrived, PromptArrival::Present | PromptArrival::Answered) {
            record.save_unfinished_head();
            ended.lineage = append_edit_branch(record, edit);
            drop_replaced_turns(record, turn.accepted_at);
        } else {
            ended
                .lineage
                .extend(log_abandoned_edit(record, edit, edit.link.at));
            ended.is_undone_edit = true;
            record.revision += 1;
            if arrived != PromptArrival::Absent {
                // The prompt may have been carried out on the branch, so a repeated call must not send it again.
                ended.ended_turn = Some(EndedTurn {
                    request_id: turn.request_id.clone(),
                    edit: turn.edit.clone(),
                    result: failed_turn(turn, kind, why, false),
                });
            }
            return ended;
        }
    }
    record.resting = RestingState::Interrupted;
    // A scheduled continuation of an earlier prompt is kept instead.
    if record.cut.is_none() || record.continuation.is_none() || turn.continues {
        let mut interrupts = record.interrupts.iter();
        record.cut = Some(CutShortPrompt {
            asks: interrupts.any(|interrupt| interrupt.raised_at >= turn.accepted_at),
            ..CutShortPrompt::from(&turn)
        });
    }
    // A turn has begun since, so it is unknown whether the limit still applies. The next prompt will show.
    record.limit = None;
    record.revision += 1;
    let stands = turn.edit.clone().map(|edit| PendingEdit {
        accepted: true,
        ..edit
    });
    ended.ended_turn = Some(EndedTurn {
        request_id: turn.request_id.clone(),
        edit: stands,
        result: failed_turn(turn, kind, why, true),
    });
    ended
}

/// The end of a turn that was cut short.
fn failed_turn(turn: PendingTurn, kind: FailureKind, why: &str, retryable: bool) -> TurnResult {
    let failure = Failure {
        kind,
        message: why.to_owned(),
        resets_at: None,
        retryable,
        upstream: None,
    };
    let upstream_id = turn.upstream_id.unwrap_or_else(|| "".into());
    TurnResult {
        failure: Some(failure),
        ..TurnResult::new(turn.turn_id, StopReason::Failed, upstream_id)
    }
}
