//! Ends the turns that an earlier daemon left unfinished, before anything new begins.

use std::sync::Arc;

use bridge_protocol::link::LineageEntry;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{FailureKind, StopReason};
use jiff::Timestamp;

use super::super::actor::Message;
use super::super::arrival::arrival;
use super::super::effect::Arrival;
use super::super::error::ConversationError;
use super::super::lost_parts;
use super::super::services::{Services, now};
use super::super::transition::{Ended, EndedTurn, end_unfinished};
use super::Registry;
use crate::store::{
    Change, ConversationRecord, CutPrompt, PendingContinuation, RequestRecord, Resting, Salvaged, TurnPhase,
};

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
            // What the record lacks is reported when the conversation is used.
            let Ok(found) = self.salvaged(id) else { continue };
            if !lost_parts::can_continue(&found) {
                continue;
            }
            let Salvaged { record, lost } = found;
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
            let record = self.record_to_start(Salvaged { record, lost });
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
    Ok(kept.map(|kept| RequestRecord {
        result: ended.answer(record).to_json().ok(),
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

/// Gives up a continuation that is due: the record of its sending may be among the changes that the store lost. One whose time
/// is later cannot have been sent. Whether there was one.
fn give_up_due(record: &mut ConversationRecord, now: Timestamp) -> bool {
    let is_due = |continuation: &PendingContinuation| continuation.at <= now;
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
    if let Some(continuation) = &record.continuation {
        services.wakings.set(record.id, Some(continuation.at));
    }
}

impl Registry {
    /// Ends a turn that an earlier daemon cut short, according to the agent's transcript. The idempotency key of a call
    /// whose prompt reached no agent is not recorded as used: if the call is repeated, it is carried out.
    async fn end_by_transcript(&self, record: ConversationRecord) -> (ConversationRecord, Ended) {
        let Some(turn) = record.turn.clone() else {
            return end_unfinished(record, FailureKind::DaemonRestarted, "", Arrival::Unknown, now());
        };
        let (asked, sent) = (record.clone(), CutPrompt::from(&turn));
        let look = self
            .services
            .blocking(move |services| arrival(services, &asked, &sent));
        // A look that panicked saw nothing.
        let arrived = look.await.unwrap_or(Arrival::Unknown);
        let tool_started = turn.phase >= TurnPhase::ToolStarted;
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
        let (mut record, mut ended) =
            end_unfinished(record, FailureKind::DaemonRestarted, why, arrived, now());
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
        // What is gone on with is a prompt, and no edit: that one has had its end.
        let is_edit = turn.edit.is_some();
        // One that was promised before this turn has a name of its own.
        let is_this =
            |cut: &&mut CutPrompt| is_unsent && cut.prompt == turn.prompt && cut.anchor == turn.anchor;
        if let Some(cut) = record.cut.as_mut().filter(is_this) {
            cut.open_request = turn.call_key().filter(|_| !is_edit);
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
            // The transcript shows the end that the record lacks. Its caller may have been told of it, if the disk was full then.
            if arrived == Arrival::Answered {
                of_turn.result.stop_reason = StopReason::EndTurn;
                of_turn.result.failure = None;
            }
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
                match registry.salvaged(id) {
                    Ok(found) if lost_parts::can_continue(&found) => {
                        registry.deliver(id, Message::Due(place)).is_ok()
                    }
                    Ok(found) if lost_parts::is_passing(&found.lost) => false,
                    Ok(found) => {
                        let what = lost_parts::described(id, &found.lost);
                        tracing::error!("{what}; its scheduled continuation is not sent");
                        true
                    }
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
