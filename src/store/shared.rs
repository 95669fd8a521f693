//! State shared by the readers and the committing thread.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use tokio_util::sync::CancellationToken;

use super::StoreStatus;
use super::apply::AppliedState;
use super::body::Bodies;
use super::error::StoreError;
use super::keyspace::Keyspace;
use super::record::Sequence;
use super::request_memory::MinimumClock;

/// The trees and their statistics.
pub(super) struct Shared {
    /// The trees. If the database fails, trees in memory replace it.
    keyspace: RwLock<Keyspace>,
    /// Locked shared by a reader, and exclusively by the thread while it applies a batch or removes erased bodies. A batch
    /// and most reads take microseconds. Readers of bodies, and an erasure, read files under it.
    pub(super) snapshot_lock: RwLock<()>,
    /// `None` for a store in memory, where nothing is too large.
    pub(super) bodies: Option<Bodies>,
    status: Mutex<StoreStatus>,
    /// Whether a failed read was reported to the thread but not handled yet.
    pub(super) has_reported_failure: AtomicBool,
    /// Set by the thread when it begins. The inner value is `None` if nothing expires.
    pub(super) minimum_clock: OnceLock<Option<MinimumClock>>,
    /// Cancelled when a change finds that the journal was removed.
    pub(super) removed: CancellationToken,
}

impl Shared {
    pub(super) fn new(keyspace: Keyspace, bodies: Option<Bodies>, state: &AppliedState) -> Self {
        let shared = Self {
            keyspace: RwLock::new(keyspace),
            snapshot_lock: RwLock::new(()),
            bodies,
            status: Mutex::new(StoreStatus::default()),
            has_reported_failure: AtomicBool::new(false),
            minimum_clock: OnceLock::new(),
            removed: CancellationToken::new(),
        };
        shared.update_status(state, None);
        shared
    }

    /// Returns the trees. Do not call this while holding its guard: a pending replacement would deadlock the two.
    pub(super) fn keyspace(&self) -> RwLockReadGuard<'_, Keyspace> {
        self.keyspace.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the database fail from now on. With `has_reads`, reads still work.
    #[cfg(test)]
    pub(super) fn fail_database(&self, has_reads: bool) {
        let mut keyspace = self.keyspace.write().unwrap_or_else(PoisonError::into_inner);
        let below = std::mem::replace(&mut *keyspace, Keyspace::Failing(None));
        *keyspace = Keyspace::Failing(has_reads.then(|| Box::new(below)));
    }

    pub(super) fn update_status(&self, state: &AppliedState, failure: Option<StoreError>) {
        if matches!(failure, Some(StoreError::Removed { .. })) {
            self.removed.cancel();
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        *status = StoreStatus {
            sequence: Sequence(state.position.sequence),
            conversations: state.conversations,
            journal_bytes: state.position.end_offset,
            is_ephemeral: self.bodies.is_none(),
            failure,
            database_failure: status.database_failure.take(),
            erasure_failure: status.erasure_failure.take(),
        };
    }

    pub(super) fn set_erasure_failure(&self, failure: Option<StoreError>) {
        let mut figures = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        figures.erasure_failure = failure;
    }

    /// Replaces the database with one that has the same content. Returns the previous one, still open.
    pub(super) fn replace_database(&self, new: Keyspace) -> Keyspace {
        let mut keyspace = self.keyspace.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *keyspace, new)
    }

    /// Replaces a failed database with trees in memory.
    pub(super) fn use_fallback(&self, trees: Keyspace, failure: StoreError) {
        *self.keyspace.write().unwrap_or_else(PoisonError::into_inner) = trees;
        let mut figures = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        figures.database_failure = Some(failure);
    }

    pub(super) fn status(&self) -> StoreStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
