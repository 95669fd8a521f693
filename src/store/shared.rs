//! What the readers and the committing thread have in common.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use tokio_util::sync::CancellationToken;

use super::StoreStatus;
use super::apply::Mark;
use super::body::Bodies;
use super::error::StoreError;
use super::keyspace::Keyspace;
use super::record::Sequence;

/// The trees, and what is said about them.
pub(super) struct Shared {
    /// Trees in memory take its place when it has failed.
    keyspace: RwLock<Keyspace>,
    /// Held by a reader for as long as its answer has to be of one moment, and by the thread while it applies a batch:
    /// microseconds either way, as no file is synced under it.
    pub(super) consistent: RwLock<()>,
    /// None in memory, where nothing is too large.
    pub(super) bodies: Option<Bodies>,
    figures: Mutex<StoreStatus>,
    /// Whether a failed read was reported to the thread, which has not seen to it yet.
    pub(super) is_failing: AtomicBool,
    /// Cancelled once a change found the journal removed.
    pub(super) removed: CancellationToken,
}

impl Shared {
    pub(super) fn new(keyspace: Keyspace, bodies: Option<Bodies>, mark: &Mark) -> Self {
        let shared = Self {
            keyspace: RwLock::new(keyspace),
            consistent: RwLock::new(()),
            bodies,
            figures: Mutex::new(StoreStatus::default()),
            is_failing: AtomicBool::new(false),
            removed: CancellationToken::new(),
        };
        shared.set_figures(mark, None);
        shared
    }

    /// The trees. Nobody asks for them while holding them: who puts others in their place would wait between the two.
    pub(super) fn keyspace(&self) -> RwLockReadGuard<'_, Keyspace> {
        self.keyspace.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the database fail from now on; reads only where nothing is left to read from.
    #[cfg(test)]
    pub(super) fn fail_database(&self, has_reads: bool) {
        let mut keyspace = self.keyspace.write().unwrap_or_else(PoisonError::into_inner);
        let below = std::mem::replace(&mut *keyspace, Keyspace::Failing(None));
        *keyspace = Keyspace::Failing(has_reads.then(|| Box::new(below)));
    }

    pub(super) fn set_figures(&self, mark: &Mark, failure: Option<StoreError>) {
        if matches!(failure, Some(StoreError::Removed { .. })) {
            self.removed.cancel();
        }
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        *figures = StoreStatus {
            sequence: Sequence(mark.position.sequence),
            conversations: mark.conversations,
            journal_bytes: mark.position.end_offset,
            live_bytes: mark.live_bytes,
            is_ephemeral: self.bodies.is_none(),
            failure,
            database_failure: figures.database_failure.take(),
        };
    }

    /// Puts trees in memory in the place of a database that failed.
    pub(super) fn stand_in(&self, trees: Keyspace, failure: StoreError) {
        *self.keyspace.write().unwrap_or_else(PoisonError::into_inner) = trees;
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.database_failure = Some(failure);
    }

    pub(super) fn figures(&self) -> StoreStatus {
        self.figures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
