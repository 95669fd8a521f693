//! Recovery: what becomes of a running turn if the daemon or the conversation's task ended before the turn did.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::link::LineageEntry;
use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};
use jiff::SignedDuration;

use super::editing::{abandon, append, edit_answer, leave_turns};
use crate::conversation::answer::Answer;
use crate::conversation::effect::{
    Arrival, CallChange, Effect, Ledger, Milestone, Now, SettledQuestion, WritePart,
};
use crate::conversation::state::{Model, Turn, TurnPhase};
use crate::conversation::writer::UnderWay;
use crate::store::{
    self, ConversationRecord, CutPrompt, PendingEdit, PendingTurn, RequestId, RequestRecord, Resting,
};

/// How long after a failure of its task a conversation waits until a scheduled continuation is sent.
const AFTER_A_FAULT: SignedDuration = SignedDuration::from_mins(1);

impl<R> Model<R> {
    /// Begins anew from what is on disk, because the task failed: how far its work had come is unknown. The agent may have the
    /// prompt and still work on it, so neither the prompt nor a continuation that was already sent is sent again automatically.
    pub(super) fn recover(&mut self, why: &str, is_written: bool) {
        let before = self.state();
        let under_way = self.writer.under_way.take().filter(|_| is_written);
        let (written, parts) = under_way.map_or((None, Vec::new()), |UnderWay { record, parts }| {
            (Some(record).filter(|record| record.id == self.record.id), parts)
        });
        let record = written.unwrap_or_else(|| self.writer.on_disk.clone());
        let anew = Self {
            last_job: self.last_job,
            // The tree move that holds it releases it.
            held: self.held,
            now: self.now,
            ..Self::new(record, self.kind, self.rules.clone())
        };
        let failed = std::mem::replace(self, anew);
        self.open_requests = failed.open_requests;
        let mut result = None;
        for part in parts {
            result = self.report_written(part).or(result);
        }
        if self.record.deleted_at.is_some() {
            self.out.push(Effect::End);
            return;
        }
        let ledger = self.end_failed_turn(why, &mut result);
        // A turn that was not reported has never begun, and its caller learns that the answer was lost.
        let turn = failed.turn.filter(|turn| turn.announced);
        let request = turn.as_ref().and_then(|turn| turn.asked.caller.request.as_ref());
        self.open_requests
            .retain(|open| request.is_some_and(|request| request.id == open.request.id));
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
            // It failed once more, or is held and shown as moving.
            let state = ConversationState::Failed;
            self.emit(Event::StateChanged { state });
        }
    }

    /// Reports what is on disk. Returns the end of the turn, if that is among it.
    fn report_written(&mut self, part: WritePart<R>) -> Option<TurnResult> {
        part.ledger.events.into_iter().for_each(|event| self.emit(event));
        match part.milestone {
            Milestone::TurnEnded(result) => return Some(*result),
            // The agent's session is closed, which answers the agent.
            Milestone::QuestionSettled(settled) => self.question_settled(SettledQuestion {
                answer: None,
                ..*settled
            }),
            // The session that was opened for it is closed.
            Milestone::Changed(change) => self.change_written(
                CallChange {
                    opened: None,
                    ..*change
                },
                Ok(()),
            ),
            _ => {}
        }
        None
    }

    /// Takes the turn off the record, and notes why the conversation failed. `result` is how the turn ended, if that is known.
    fn end_failed_turn(&mut self, why: &str, result: &mut Option<TurnResult>) -> Ledger {
        let pending = self.record.turn.clone();
        let went_out = pending.as_ref().is_some_and(|turn| turn.continues);
        let record = self.record.clone();
        let (record, ended) = end_unfinished(record, FailureKind::Unknown, why, Arrival::Unknown, self.now);
        self.record = record;
        self.record.resting = Resting::Failed;
        self.record.failure = Some(why.to_owned());
        if went_out {
            self.end_continuation();
        }
        let later = self.now.saturating_add(AFTER_A_FAULT).unwrap_or(self.now);
        if let Some(continuation) = &mut self.record.continuation {
            continuation.at = continuation.at.max(later);
        }
        self.touch();
        let request = pending.and_then(|turn| turn.call_key());
        let request = ended.result.and_then(|ended| {
            let record = request.map(|request| RequestRecord {
                turn_id: Some(ended.result.turn_id.clone()),
                result: ended.answer(&self.record).to_json().ok(),
                ..self.request_record(&request)
            });
            result.get_or_insert(ended.result);
            record
        });
        Ledger {
            requests: request.into_iter().collect(),
            ..Ledger::of_links(ended.lineage, Vec::new())
        }
    }
}

/// What was ended of a conversation.
#[derive(Debug, Default)]
pub(in crate::conversation) struct Ended {
    /// How its turn ended; none where it had none, or all of it was taken back.
    pub result: Option<EndedTurn>,
    /// What the lineage gains.
    pub lineage: Vec<LineageEntry>,
    /// Whether it was an edit that came to nothing: the conversation is as it was.
    pub was_taken_back: bool,
}

/// How a turn ended that the last life cut short.
#[derive(Debug)]
pub(in crate::conversation) struct EndedTurn {
    /// Its caller's own name of the call that asked for it.
    pub request: Option<RequestId>,
    /// The end.
    pub result: TurnResult,
    /// The branch that it was on, when it replaced an earlier turn.
    edit: Option<PendingEdit>,
}

impl EndedTurn {
    /// The answer for the caller of the turn.
    pub(in crate::conversation) fn answer(&self, record: &ConversationRecord) -> Answer {
        let result = self.result.clone();
        match &self.edit {
            Some(edit) => {
                let edit = Some(edit).filter(|edit| edit.accepted);
                Answer::Edited(Box::new(edit_answer(record, edit, result)))
            }
            None => Answer::Turn(Box::new(result)),
        }
    }
}

/// Ends, in a record, the turn that an earlier daemon left unfinished, by what the transcript says of its prompt. The idempotency key
/// of a call whose prompt reached no agent is not recorded as used: if the call is repeated, it is carried out.
pub(in crate::conversation) fn end_last_life(
    record: ConversationRecord,
    arrived: Arrival,
    now: Now,
) -> (ConversationRecord, Ended) {
    let Some(turn) = record.turn.clone() else {
        return end_unfinished(record, FailureKind::DaemonRestarted, "", arrived, now);
    };
    let tool_started = turn.phase >= store::TurnPhase::ToolStarted;
    let is_unsent = arrived == Arrival::Absent && !tool_started;
    let why = match arrived {
        Arrival::Absent if is_unsent => {
            "the daemon ended before the prompt reached the agent: it can be sent again"
        }
        Arrival::Absent | Arrival::Present => {
            "the daemon ended during the turn; the agent has the prompt, so continue it instead of sending it \
             again"
        }
        // An answered turn did end, so that this failure is removed below.
        Arrival::Answered | Arrival::Unknown => "the daemon ended while the turn ran",
    };
    let (mut record, mut ended) = end_unfinished(record, FailureKind::DaemonRestarted, why, arrived, now);
    if ended.was_taken_back {
        return (record, ended);
    }
    match arrived {
        Arrival::Present => {
            record.chain.mark_written();
        }
        Arrival::Answered => {
            record.chain.acknowledge_turn();
            // The turn continued after its questions, so they were answered.
            record
                .interrupts
                .retain(|interrupt| interrupt.raised_at < turn.accepted_at);
        }
        Arrival::Absent | Arrival::Unknown => {}
    }
    if arrived == Arrival::Answered && record.continuation.as_ref().is_none_or(|_| turn.continues) {
        record.cut = None;
        record.resting = Resting::Idle;
    }
    // Only a prompt is continued; an edit has already ended.
    let is_edit = turn.edit.is_some();
    // One that was promised before this turn has a name of its own.
    let is_this = |cut: &&mut CutPrompt| is_unsent && cut.prompt == turn.prompt && cut.anchor == turn.anchor;
    if let Some(cut) = record.cut.as_mut().filter(is_this) {
        cut.open_request = turn.call_key().filter(|_| !is_edit);
    }
    if turn.continues {
        let continuation = record.continuation.take();
        record.continuation = continuation.and_then(|over| match is_unsent {
            true => Some(over.having_sent(&turn.prompt)),
            // The continuation was sent once. The user decides what follows.
            false => over.next(now),
        });
    }
    if let Some(of_turn) = &mut ended.result {
        if let Some(failure) = &mut of_turn.result.failure {
            failure.retryable = is_unsent || (arrived == Arrival::Unknown && !tool_started && !turn.taken);
        }
        of_turn.request = of_turn.request.take().filter(|_| !is_unsent || is_edit);
        // The transcript shows the end that the record lacks. Its caller may have been told of it, if the disk was full then.
        if arrived == Arrival::Answered {
            of_turn.result.stop_reason = StopReason::EndTurn;
            of_turn.result.failure = None;
        }
    }
    (record, ended)
}

/// Ends, in a record, the turn that the last task or daemon left unfinished, and keeps its questions as orphans. An edit stays if
/// its prompt was accepted or is in the transcript.
pub(in crate::conversation) fn end_unfinished(
    mut record: ConversationRecord,
    kind: FailureKind,
    why: &str,
    arrived: Arrival,
    now: Now,
) -> (ConversationRecord, Ended) {
    for interrupt in &mut record.interrupts {
        interrupt.orphaned = true;
    }
    let mut ended = Ended::default();
    let Some(turn) = record.turn.take() else {
        return (record, ended);
    };
    if let Some(edit) = turn.edit.as_ref().filter(|edit| !edit.accepted) {
        if matches!(arrived, Arrival::Present | Arrival::Answered) {
            ended.lineage = append(&mut record, edit);
            leave_turns(&mut record, turn.accepted_at, now);
        } else {
            ended.lineage.extend(abandon(&mut record, edit, edit.link.at));
            ended.was_taken_back = true;
            record.revision += 1;
            if arrived != Arrival::Absent {
                // It may have been carried out there: the same call is not to do it again.
                ended.result = Some(EndedTurn {
                    request: turn.request_id.clone(),
                    edit: turn.edit.clone(),
                    result: failed(turn, kind, why, false),
                });
            }
            return (record, ended);
        }
    }
    record.resting = Resting::Interrupted;
    // A scheduled continuation of an earlier prompt is kept instead.
    if record.cut.is_none() || record.continuation.is_none() || turn.continues {
        let mut interrupts = record.interrupts.iter();
        record.cut = Some(CutPrompt {
            asks: interrupts.any(|interrupt| interrupt.raised_at >= turn.accepted_at),
            ..CutPrompt::from(&turn)
        });
    }
    // A turn had begun since: whether the limit still holds is not known, and the next prompt tells.
    record.limit = None;
    record.revision += 1;
    let stands = turn.edit.clone().map(|edit| PendingEdit {
        accepted: true,
        ..edit
    });
    ended.result = Some(EndedTurn {
        request: turn.request_id.clone(),
        edit: stands,
        result: failed(turn, kind, why, true),
    });
    (record, ended)
}

/// The end of a turn that was cut short.
fn failed(turn: PendingTurn, kind: FailureKind, why: &str, retryable: bool) -> TurnResult {
    TurnResult {
        turn_id: turn.turn_id,
        stop_reason: StopReason::Failed,
        failure: Some(Failure {
            kind,
            message: why.to_owned(),
            resets_at: None,
            retryable,
        }),
        upstream_id: turn.upstream_id.unwrap_or_else(|| "".into()),
        resumed: None,
        usage: None,
        other: None,
        continuation: None,
    }
}
