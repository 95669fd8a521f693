//! Ends the turns that an earlier daemon left unfinished, before anything new begins.

use std::sync::Arc;

use bridge_protocol::link::LineageEntry;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};

use jiff::{SignedDuration, Timestamp};

use super::super::actor::Message;
use super::super::arrival::arrival;
use super::super::effect::Arrival;
use super::super::error::ConversationError;
use super::super::services::{Services, now};
use super::super::transition::editing::{abandon, append, edit_answer, leave_turns};
use super::Registry;
use crate::store::{
    Change, ConversationRecord, CutPrompt, OpenRequest, PendingContinuation, PendingEdit, PendingTurn,
    RequestId, RequestRecord, Resting, TurnPhase,
};

/// How long after a failure of its task a conversation waits until a scheduled continuation is sent.
const AFTER_A_FAULT: SignedDuration = SignedDuration::from_mins(1);

impl Registry {
    /// Gives every turn that the last life of the daemon left unfinished its end, and keeps its questions as orphans. If the store
    /// lost changes, what was to be sent by now is not sent.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn end_last_life(&self) -> Result<(), ConversationError> {
        let store = &self.services.store;
        let has_lost = store.opening().may_have_lost();
        let mut writes = Vec::new();
        for id in store.unfinished()? {
            let Ok(record) = self.record(id) else { continue };
            let is_ended =
                record.turn.is_none() && record.interrupts.iter().all(|interrupt| interrupt.orphaned);
            let (mut record, ended) = match is_ended {
                true => (record, Ended::default()),
                false => self.end_by_transcript(record).await,
            };
            let is_given_up = has_lost && give_up_due(&mut record, now());
            wake_when_due(&self.services, &record);
            if is_ended && !is_given_up {
                continue;
            }
            // In line now, awaited together: a thousand cut turns cost a few syncs.
            writes.push(
                store.commit(Change {
                    requests: result_of(&self.services, &record, ended.result.as_ref())?
                        .into_iter()
                        .collect(),
                    ..with_lineage(&self.services, record, ended.lineage)
                }),
            );
        }
        for write in writes {
            write.await?;
        }
        Ok(())
    }
}

/// The result of the call that asked for a turn which was ended here, to be remembered under the caller's own name of it.
fn result_of(
    services: &Services,
    record: &ConversationRecord,
    ended: Option<&EndedTurn>,
) -> Result<Option<RequestRecord>, ConversationError> {
    let Some((request, ended)) = ended.and_then(|ended| Some((ended.request.as_ref()?, ended))) else {
        return Ok(None);
    };
    let kept = services.store.request(Some(record.id), request)?;
    let result = match &ended.edit {
        Some(edit) => {
            let edit = Some(edit).filter(|edit| edit.accepted);
            RawJson::from_value(&edit_answer(record, edit, ended.result.clone()))
        }
        None => RawJson::from_value(&ended.result),
    };
    Ok(kept.map(|kept| RequestRecord {
        result: result.ok(),
        ..kept
    }))
}

/// A record that is to be written down, with what its lineage gains.
fn with_lineage(services: &Services, record: ConversationRecord, lineage: Vec<LineageEntry>) -> Change {
    let id = record.id;
    let entry = services.catalog.get(&record.agent);
    let upstream = entry.into_iter().flat_map(|entry| {
        let root = entry.transcript_root();
        let ids = lineage.iter().map(|entry| entry.upstream_id.clone());
        ids.map(move |held| (id, root.clone(), held))
    });
    Change {
        upstream: upstream.collect(),
        lineage: lineage.into_iter().map(|entry| (id, entry)).collect(),
        conversation: Some(record),
        ..Change::default()
    }
}

/// The record of a conversation whose task failed, and the end of its turn. Its agent may have the prompt and still work on
/// it, so neither the prompt nor a continuation that was already sent is sent again automatically. A continuation that
/// waits keeps waiting.
pub(in crate::conversation) fn end_failed_task(
    services: &Services,
    record: ConversationRecord,
    why: &str,
) -> (Change, Option<EndedTurn>) {
    let went_out = record.turn.as_ref().is_some_and(|turn| turn.continues);
    let (mut record, ended) = end_unfinished(record, FailureKind::Unknown, why, Arrival::Unknown);
    record.resting = Resting::Failed;
    record.failure = Some(why.to_owned());
    record.revision += 1;
    if went_out {
        record.continuation = record.continuation.and_then(|over| over.next(now()));
    }
    let later = now().saturating_add(AFTER_A_FAULT).unwrap_or_else(|_| now());
    if let Some(continuation) = &mut record.continuation {
        continuation.at = continuation.at.max(later);
    }
    wake_when_due(services, &record);
    let kept = result_of(services, &record, ended.result.as_ref()).unwrap_or_else(|error| {
        tracing::error!(conversation = %record.id, %error, "cannot look up the call that started a turn");
        None
    });
    let change = Change {
        requests: kept.into_iter().collect(),
        ..with_lineage(services, record, ended.lineage)
    };
    (change, ended.result)
}

/// Gives up a continuation that is due: the record of its sending may be among the changes that the store lost. One whose time
/// is later cannot have been sent. Whether there was one.
fn give_up_due(record: &mut ConversationRecord, now: Timestamp) -> bool {
    let is_due = |continuation: &PendingContinuation| continuation.wakes_at(now) <= now;
    let Some(given_up) = record.continuation.take_if(|continuation| is_due(continuation)) else {
        return false;
    };
    let text = given_up.text.as_ref().map(PromptContent::texts);
    let text = text.map(|texts| format!("; its text is: {}", texts.join("\n")));
    record.failure = Some(format!(
        "it did not continue automatically: the store lost changes, so the prompt may have been sent already{}",
        text.unwrap_or_default()
    ));
    record.continuation = given_up.next(now).filter(|later| !is_due(later));
    record.resting = Resting::Failed;
    record.revision += 1;
    true
}

/// Has a conversation that waits for its time woken then.
fn wake_when_due(services: &Services, record: &ConversationRecord) {
    let Some(continuation) = &record.continuation else {
        return;
    };
    let at = continuation.wakes_at(now());
    services.wakings.set(record.id, Some(at));
}

impl Registry {
    /// Ends a turn that an earlier daemon cut short, according to the agent's transcript. The idempotency key of a call
    /// whose prompt reached no agent is not recorded as used: if the call is repeated, it is carried out.
    async fn end_by_transcript(&self, record: ConversationRecord) -> (ConversationRecord, Ended) {
        let Some(turn) = record.turn.clone() else {
            return end_unfinished(record, FailureKind::DaemonRestarted, "", Arrival::Unknown);
        };
        let services = Arc::clone(&self.services);
        let (asked, sent) = (record.clone(), CutPrompt::from(&turn));
        let look = tokio::task::spawn_blocking(move || arrival(&services, &asked, &sent));
        // A look that panicked saw nothing.
        let arrived = look.await.unwrap_or(Arrival::Unknown);
        let tool_started = turn.phase >= TurnPhase::ToolStarted;
        let (why, is_unsent) = match arrived {
            Arrival::Absent if !tool_started => (
                "the daemon ended before the prompt reached the agent: it can be sent again",
                true,
            ),
            Arrival::Absent | Arrival::Present => (
                "the daemon ended while the turn ran, and the agent has the prompt: go on with it rather than send it \
                 again",
                false,
            ),
            Arrival::Answered => (
                "the daemon ended while the turn ran; the agent has answered the prompt, and the history has its answer",
                false,
            ),
            Arrival::Unknown => ("the daemon ended while the turn ran", false),
        };
        let (mut record, mut ended) = end_unfinished(record, FailureKind::DaemonRestarted, why, arrived);
        if ended.was_taken_back {
            return (record, ended);
        }
        if matches!(arrived, Arrival::Present | Arrival::Answered) {
            record.chain.mark_written();
        }
        if arrived == Arrival::Answered && record.continuation.as_ref().is_none_or(|_| turn.continues) {
            record.cut = None;
            record.resting = Resting::Idle;
        }
        // What is gone on with is a prompt, and no edit: that one has had its end.
        let is_edit = turn.edit.is_some();
        let open_request = turn.request_id.clone().zip(turn.fingerprint.clone());
        let open_request = open_request.filter(|_| !is_edit);
        // One that was promised before this turn has a name of its own.
        let is_this =
            |cut: &&mut CutPrompt| is_unsent && cut.prompt == turn.prompt && cut.anchor == turn.anchor;
        if let Some(cut) = record.cut.as_mut().filter(is_this) {
            cut.open_request = open_request.map(|(id, fingerprint)| OpenRequest { id, fingerprint });
        }
        if turn.continues {
            let continuation = record.continuation.take();
            record.continuation = continuation.and_then(|over| match is_unsent {
                true => Some(over.having_sent(&turn.prompt)),
                // It went out by itself, once. What came of it a person has to look at.
                false => over.next(now()),
            });
        }
        if let Some(of_turn) = &mut ended.result {
            if let Some(failure) = &mut of_turn.result.failure {
                failure.retryable =
                    is_unsent || (arrived == Arrival::Unknown && !tool_started && !turn.taken);
            }
            of_turn.request = of_turn.request.take().filter(|_| !is_unsent || is_edit);
        }
        (record, ended)
    }

    /// Wakes the conversations whose scheduled continuation is due, until the daemon stops.
    pub fn wake_conversations(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        let (services, stop) = (Arc::clone(&self.services), self.stop.clone());
        self.tasks.spawn(async move {
            let wake = |id, place| {
                let Some(registry) = registry.upgrade() else {
                    return false;
                };
                match registry.record(id) {
                    Ok(_) => registry.deliver(id, Message::Due(place)).is_ok(),
                    // It was deleted meanwhile.
                    Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => true,
                    Err(_) => false,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = services.wakings.run(wake) => {}
            }
        });
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
    was_taken_back: bool,
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

/// Takes a turn that will not end by itself off a record, and keeps its questions as orphans. An edit stands when its prompt
/// was accepted, or had arrived.
pub(in crate::conversation) fn end_unfinished(
    mut record: ConversationRecord,
    kind: FailureKind,
    why: &str,
    arrived: Arrival,
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
            leave_turns(&mut record, turn.accepted_at, now());
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
    // What was promised to go out by itself comes first.
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
        continuation: None,
    }
}
