//! What the last life of the daemon left unfinished gets its end, before anything new begins.

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};

use super::super::climbing::store_error;
use super::super::error::ConversationError;
use super::Registry;
use crate::store::{Change, ConversationRecord, RequestId, RequestRecord, Resting};

impl Registry {
    /// Gives every turn that the last life of the daemon left unfinished its end, and keeps its questions as orphans.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn end_last_life(&self) -> Result<(), ConversationError> {
        let store = &self.services.store;
        let mut writes = Vec::new();
        for id in store.unfinished().map_err(|error| store_error(&error))? {
            let Ok(record) = self.record(id) else { continue };
            if record.turn.is_none() && record.interrupts.iter().all(|interrupt| interrupt.orphaned) {
                continue;
            }
            let why = "the daemon ended while the turn ran";
            let (record, ended) = end_unfinished(record, FailureKind::DaemonRestarted, why);
            let kept = match &ended {
                Some((Some(request), result)) => store
                    .request(Some(id), request)
                    .map_err(|error| store_error(&error))?
                    .map(|kept| RequestRecord {
                        result: RawJson::from_value(result).ok(),
                        ..kept
                    }),
                _ => None,
            };
            // In line now, awaited together: a thousand cut turns cost a few syncs.
            writes.push(store.commit(Change {
                conversation: Some(record),
                requests: kept.into_iter().collect(),
                ..Change::default()
            }));
        }
        for write in writes {
            write.await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }
}

/// Takes a turn that will not end by itself off a record, and keeps its questions as orphans.
pub(in crate::conversation) fn end_unfinished(
    mut record: ConversationRecord,
    kind: FailureKind,
    why: &str,
) -> (ConversationRecord, Option<(Option<RequestId>, TurnResult)>) {
    for interrupt in &mut record.interrupts {
        interrupt.orphaned = true;
    }
    let Some(turn) = record.turn.take() else {
        return (record, None);
    };
    record.resting = Resting::Interrupted;
    // A turn had begun since: whether the limit still holds is not known, and the next prompt tells.
    record.limit = None;
    record.revision += 1;
    let result = TurnResult {
        turn_id: turn.turn_id,
        stop_reason: StopReason::Failed,
        failure: Some(Failure {
            kind,
            message: why.to_owned(),
            resets_at: None,
            retryable: true,
        }),
        upstream_id: turn.upstream_id.unwrap_or_else(|| "".into()),
        resumed: None,
        usage: None,
    };
    (record, Some((turn.request_id, result)))
}
