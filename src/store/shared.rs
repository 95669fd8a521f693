//! What the readers and the committing thread have in common.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio_util::sync::CancellationToken;

use super::StoreStatus;
use super::apply::Mark;
use super::body::Bodies;
use super::error::StoreError;
use super::keyspace::Keyspace;
use super::record::Sequence;

/// The trees, and what is said about them.
pub(super) struct Shared {
    /// Another one takes its place only when it has failed; see the module `mend`.
    keyspace: RwLock<Keyspace>,
    /// Held by a reader for as long as its answer has to be of one moment, and by the thread while it applies a batch:
    /// microseconds either way, as no file is synced under it.
    pub(super) consistent: RwLock<()>,
    /// None in memory, where nothing is too large.
    pub(super) bodies: Option<Bodies>,
    figures: Mutex<StoreStatus>,
    /// Whether the thread was told already that a read has failed.
    pub(super) is_doubted: AtomicBool,
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
            is_doubted: AtomicBool::new(false),
            removed: CancellationToken::new(),
        };
        shared.set_figures(mark, None);
        shared
    }

    /// The trees. Nobody asks for them while holding them: who puts others in their place would wait between the two.
    pub(super) fn keyspace(&self) -> RwLockReadGuard<'_, Keyspace> {
        self.keyspace.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trees, to put others in their place. Readers wait.
    pub(super) fn keyspace_to_replace(&self) -> RwLockWriteGuard<'_, Keyspace> {
        self.keyspace.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_figures(&self, mark: &Mark, failure: Option<StoreError>) {
        if matches!(failure, Some(StoreError::Removed { .. })) {
            self.removed.cancel();
        }
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = StoreStatus {
            sequence: Sequence(mark.position.sequence),
            conversations: mark.conversations,
            journal_bytes: mark.position.end_offset,
            live_bytes: mark.live_bytes,
            is_ephemeral: self.bodies.is_none(),
            failure,
        };
    }

    pub(super) fn figures(&self) -> StoreStatus {
        self.figures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
