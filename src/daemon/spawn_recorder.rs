//! Records every started process in the store, so that the next run of the daemon can end it.

use bridge_protocol::AgentName;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::agent::process::{RecordError, SpawnMark, SpawnRecord, SpawnRecorder};
use crate::store::{Change, ProcessRecord, RECORD_VERSION, Store};

/// Records spawns in the store.
pub struct StoreRecorder {
    store: Store,
}

impl StoreRecorder {
    /// Creates a recorder for this store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    fn commit(&self, change: Change) -> BoxFuture<'_, Result<(), RecordError>> {
        let commit = self.store.commit(change);
        let recorded = async move {
            commit
                .await
                .map(drop)
                .map_err(|error| RecordError(Box::new(error)))
        };
        recorded.boxed()
    }
}

impl SpawnRecorder for StoreRecorder {
    fn record(&self, record: SpawnRecord) -> BoxFuture<'_, Result<(), RecordError>> {
        let process = ProcessRecord {
            version: RECORD_VERSION,
            mark: record.mark.to_string(),
            pid: record.pid,
            start_time_ticks: record.start_time,
            boot_id: record.boot_id,
            agent: AgentName::new(record.agent),
            spawned_at: Timestamp::now(),
        };
        self.commit(Change {
            processes_put: vec![process],
            ..Change::default()
        })
    }

    fn ended(&self, mark: SpawnMark) -> BoxFuture<'_, Result<(), RecordError>> {
        self.commit(Change {
            processes_removed: vec![mark.to_string()],
            ..Change::default()
        })
    }
}

/// Converts a stored process record for the sweep.
#[must_use]
pub fn spawn_record(record: &ProcessRecord) -> Option<SpawnRecord> {
    Some(SpawnRecord {
        pid: record.pid,
        start_time: record.start_time_ticks,
        boot_id: record.boot_id.clone(),
        mark: SpawnMark::parse(&record.mark)?,
        agent: record.agent.to_string(),
    })
}
