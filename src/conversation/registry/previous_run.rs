//! Ends the turns that an earlier daemon left unfinished, before anything new begins.

use std::sync::Arc;

use bridge_protocol::conversation::TranscriptsOnDelete;
use bridge_protocol::id::ConversationId;
use bridge_protocol::raw::PromptContent;
use jiff::Timestamp;

use super::super::arrival::find_prompt;
use super::super::backup::BackupMode;
use super::super::effect::{Call, Ledger, PromptArrival};
use super::super::error::ConversationError;
use super::super::importing;
use super::super::lost_parts;
use super::super::moving;
use super::super::services::{Services, SessionRef, chain_text, now};
use super::super::transition::{EndedTurn, EndedUnfinished, end_turn_of_previous_run};
use super::Registry;
use crate::store::{
    BegunDeletion, ConversationRecord, CutShortPrompt, PendingContinuation, RequestRecord, RestingState,
    SalvagedRecord,
};

impl Registry {
    /// Ends every turn that the previous run of the daemon left unfinished, and keeps its questions as orphans. If the store
    /// lost changes, continuations that are due by now are not sent.
    ///
    /// Returns the deletions that the previous run began, for [`Self::finish_deletions`].
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn end_turns_of_previous_run(
        &self,
    ) -> Result<Vec<(ConversationId, BegunDeletion)>, ConversationError> {
        let store = &self.services.store;
        let has_lost = store.open_report().may_have_lost();
        let mut writes = Vec::new();
        let mut deletions = Vec::new();
        for id in store.unfinished()? {
            // Missing parts of a record are reported when the conversation is used.
            let Ok(salvaged) = self.salvaged(id) else { continue };
            if let Some(deletion) = salvaged.record.begun_deletion.clone() {
                deletions.push((id, deletion));
            }
            if !lost_parts::can_continue(&salvaged) {
                continue;
            }
            let SalvagedRecord { mut record, lost } = salvaged;
            let is_ended =
                record.turn.is_none() && record.interrupts.iter().all(|interrupt| interrupt.orphaned);
            let ended = match is_ended {
                true => EndedUnfinished::default(),
                false => self.end_by_transcript(&mut record).await,
            };
            let is_given_up = has_lost && drop_due_continuation(&mut record, now());
            wake_when_due(&self.services, &record);
            if is_ended && !is_given_up {
                continue;
            }
            let record = self.record_to_start(SalvagedRecord { record, lost });
            if let Some(head) = record.chain.head().filter(|head| !is_ended && head.written) {
                let session = SessionRef::from(head);
                self.services.backups.request(session, BackupMode::Linked);
            }
            let result = stored_turn_result(&self.services, &record, ended.ended_turn.as_ref())?;
            let ledger = Ledger {
                requests: result.into_iter().collect(),
                ..Ledger::with_links(ended.lineage, Vec::new())
            };
            // Queued now and awaited together: a thousand interrupted turns cost a few syncs.
            writes.push(store.commit(self.services.change(record, ledger)));
        }
        for write in writes {
            write.await?;
        }
        Ok(deletions)
    }
}

/// The result of the prompt whose turn was ended here, to be stored under the request id of its caller.
fn stored_turn_result(
    services: &Services,
    record: &ConversationRecord,
    ended: Option<&EndedTurn>,
) -> Result<Option<RequestRecord>, ConversationError> {
    let Some((request, ended)) = ended.and_then(|ended| Some((ended.request_id.as_ref()?, ended))) else {
        return Ok(None);
    };
    let stored = services.store.request(Some(record.id), request)?;
    Ok(stored.map(|stored| RequestRecord {
        result: ended.answer(record).to_json().ok(),
        ..stored
    }))
}

/// Drops a continuation that is due: it may have been sent, and the store may have lost the record of that. A continuation
/// whose time is later cannot have been sent. Returns whether one was dropped.
fn drop_due_continuation(record: &mut ConversationRecord, now: Timestamp) -> bool {
    let is_due = |continuation: &PendingContinuation| continuation.at <= now;
    let Some(given_up) = record.continuation.take_if(|continuation| is_due(continuation)) else {
        return false;
    };
    let text = given_up.text.as_ref().map(PromptContent::to_text);
    let text = text.map(|text| format!("; its text is: {text}"));
    record.failure = Some(format!(
        "it did not continue automatically: the store lost changes, so the prompt may have been sent already{}",
        text.unwrap_or_default()
    ));
    record.resting = RestingState::Failed;
    record.revision += 1;
    true
}

/// Schedules the wake-up of a conversation that has a continuation.
fn wake_when_due(services: &Services, record: &ConversationRecord) {
    if let Some(continuation) = &record.continuation {
        services.wakeups.set(record.id, Some(continuation.at));
    }
}

impl Registry {
    /// Ends a turn that an earlier daemon cut short, according to the agent's transcript.
    async fn end_by_transcript(&self, record: &mut ConversationRecord) -> EndedUnfinished {
        let arrived = match &record.turn {
            Some(turn) => {
                let (snapshot, sent) = (record.clone(), CutShortPrompt::from(turn));
                let look = self
                    .services
                    .blocking(move |services| find_prompt(services, &snapshot, &sent));
                // If the read panicked, nothing is known.
                look.await.unwrap_or(PromptArrival::Unknown)
            }
            None => PromptArrival::Unknown,
        };
        end_turn_of_previous_run(record, arrived)
    }

    /// Finishes or undoes the imports, copies and moves that an earlier daemon left unfinished. Returns whether each import and
    /// copy is settled or set aside.
    pub async fn settle_unfinished_work(self: &Arc<Self>) -> bool {
        let settle: [fn(&Services) -> bool; 3] = [
            importing::undo_unfinished,
            |services| services.copy_plans.settle(),
            |services| {
                moving::settle_unfinished(services);
                true
            },
        ];
        let mut is_settled = true;
        // One by one, so that a panic in one leaves the others.
        for settle in settle {
            let work = self.services.blocking(move |services| settle(services));
            is_settled &= work.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "could not settle what the previous run left unfinished");
                false
            });
        }
        self.settle_tree_moves().await;
        is_settled
    }

    /// Finishes the deletions that an earlier daemon began. A repeated call gets the result.
    pub fn finish_deletions(self: &Arc<Self>, deletions: Vec<(ConversationId, BegunDeletion)>) {
        for (id, deletion) in deletions {
            let call = Call::Delete(TranscriptsOnDelete::Delete);
            let begun = self.call(id, call, deletion.request);
            self.tasks.spawn(async move {
                let result = match begun {
                    Ok(answer) => answer.await.unwrap_or(Err(ConversationError::Internal)),
                    Err(error) => Err(error),
                };
                if let Err(error) = result {
                    tracing::error!(conversation = %id, error = chain_text(&error), "its deletion stays unfinished");
                }
            });
        }
    }
}
