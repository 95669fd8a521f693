//! Syncing transcripts before anyone is notified of what is saved in them.
//!
//! Owns the changes that wait for their sync, and the checkpoints whose sync failed. The changes of one conversation are
//! reported in order, by a task that ends when none is left; a slow disk delays no other conversation. Neither the answer to a
//! prompt nor an update waits for any of it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_protocol::history::Checkpoint;
use bridge_protocol::{ConversationId, UpstreamId};
use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::super::growth::Growth;
use super::super::super::services::chain_text;
use super::super::{Registry, panic_text};
use crate::transcript::TranscriptError;
use crate::transcript::shelf::Format;
use crate::transcript::syncing::SyncLog;

/// How many files are synced at once. Disks sync several for the price of one; each takes a thread.
const SYNCS_AT_ONCE: usize = 8;

/// How many changes may wait. Each may hold some hundred kilobytes and an open file; the watching waits when there are more.
const WAITING: usize = 64;

/// How many transcripts are remembered whose sync failed, each with an open file.
const UNSAVED: usize = 64;

/// How many checkpoints of one of them are remembered. An older one is never reported as saved.
const UNSAVED_CHECKPOINTS: usize = 1_024;

/// A transcript that is to be synced.
#[derive(Clone, Debug)]
pub(super) struct Unsynced {
    /// The transcript, opened before it was read: what was read of it is what is synced.
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) root: PathBuf,
    pub(super) format: Format,
}

/// A change of a transcript that waits to be reported to a conversation.
struct Change {
    growth: Growth,
    /// What has to be on disk before.
    unsynced: Option<Unsynced>,
    /// Its place among those that wait.
    _permit: OwnedSemaphorePermit,
}

/// A transcript whose sync failed: the next change of it tries again.
struct Unsaved {
    conversation: ConversationId,
    upstream_id: UpstreamId,
    unsynced: Unsynced,
    /// The checkpoints that were not reported, oldest first.
    checkpoints: Vec<Checkpoint>,
}

type Sync = dyn Fn(&Unsynced) -> Result<(), TranscriptError> + Send + std::marker::Sync;

/// The changes that wait for their sync.
pub(in crate::conversation::registry) struct Saving {
    sync: Arc<Sync>,
    state: Mutex<State>,
    waiting: Arc<Semaphore>,
    syncs: Semaphore,
}

#[derive(Default)]
struct State {
    /// By conversation. There is an entry for as long as a task works on it.
    queues: BTreeMap<ConversationId, VecDeque<Change>>,
    /// The oldest first.
    unsaved: VecDeque<Unsaved>,
}

impl Default for Saving {
    fn default() -> Self {
        let log = SyncLog::default();
        Self::with(move |it| log.sync(&it.file, &it.path, &it.root, it.format))
    }
}

impl Saving {
    fn with(
        sync: impl Fn(&Unsynced) -> Result<(), TranscriptError> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self {
            sync: Arc::new(sync),
            state: Mutex::default(),
            waiting: Arc::new(Semaphore::new(WAITING)),
            syncs: Semaphore::new(SYNCS_AT_ONCE),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a change into the queue of its conversation, which a task works on. Waits while too many wait already, but not
    /// longer than the daemon runs.
    async fn put<Told: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        id: ConversationId,
        growth: Growth,
        unsynced: Option<Unsynced>,
        stop: &CancellationToken,
        tell: impl Fn(ConversationId, Growth) -> Told + Send + std::marker::Sync + 'static,
    ) {
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&self.waiting).acquire_owned() => permit,
            () = stop.cancelled() => return,
        };
        // It is never closed.
        let Ok(permit) = permit else { return };
        let change = Change {
            growth,
            unsynced,
            _permit: permit,
        };
        let mut state = self.lock();
        if let Some(queue) = state.queues.get_mut(&id) {
            queue.push_back(change);
            return;
        }
        state.queues.insert(id, VecDeque::from([change]));
        drop(state);
        let task = Task {
            saving: Arc::clone(self),
            id,
            is_over: false,
        };
        tokio::spawn(task.run(tell));
    }

    /// The next change of a conversation; none ends its task.
    fn take(&self, id: ConversationId) -> Option<Change> {
        let mut state = self.lock();
        let next = state.queues.get_mut(&id)?.pop_front();
        if next.is_none() {
            state.queues.remove(&id);
        }
        next
    }

    /// Syncs what has to be on disk. Returns what may be reported.
    async fn save(&self, id: ConversationId, change: Change) -> Growth {
        let Change {
            mut growth, unsynced, ..
        } = change;
        let earlier = self.take_unsaved(id, &growth.upstream_id);
        let is_retry = earlier.is_some();
        let unsynced = match earlier {
            Some(earlier) => {
                growth.saved.splice(..0, earlier.checkpoints);
                // The transcript may be another file by now, in which they stand as well.
                Some(unsynced.unwrap_or(earlier.unsynced))
            }
            None => unsynced,
        };
        let Some(unsynced) = unsynced else { return growth };
        let (sync, it) = (Arc::clone(&self.sync), unsynced.clone());
        let synced = tokio::task::spawn_blocking(move || sync(&it).map_err(|error| chain_text(&error)));
        let failure = match synced.await {
            Ok(synced) => synced.err(),
            Err(error) => Some(match error.try_into_panic() {
                Ok(panic) => panic_text(panic.as_ref()),
                Err(error) => error.to_string(),
            }),
        };
        let path = unsynced.path.display().to_string();
        if let Some(error) = failure {
            tracing::error!(
                path,
                error,
                turns = growth.saved.len(),
                "a transcript could not be synced; its last turns are reported as saved when it can be"
            );
            self.remember(Unsaved {
                conversation: id,
                upstream_id: growth.upstream_id.clone(),
                unsynced,
                checkpoints: std::mem::take(&mut growth.saved),
            });
        } else if is_retry {
            tracing::info!(
                path,
                turns = growth.saved.len(),
                "a transcript that could not be synced is on disk"
            );
        }
        growth
    }

    fn take_unsaved(&self, id: ConversationId, upstream_id: &UpstreamId) -> Option<Unsaved> {
        let mut state = self.lock();
        let is_it = |it: &Unsaved| it.conversation == id && it.upstream_id == *upstream_id;
        let index = state.unsaved.iter().position(is_it)?;
        state.unsaved.remove(index)
    }

    fn remember(&self, mut unsaved: Unsaved) {
        let excess = unsaved.checkpoints.len().saturating_sub(UNSAVED_CHECKPOINTS);
        unsaved.checkpoints.drain(..excess);
        let mut state = self.lock();
        let forgotten = match state.unsaved.len() < UNSAVED {
            true => None,
            false => state.unsaved.pop_front(),
        };
        state.unsaved.push_back(unsaved);
        drop(state);
        if excess > 0 || forgotten.is_some() {
            tracing::error!("too many turns could not be synced; the oldest are never reported as saved");
        }
    }
}

/// Works on the changes of one conversation. Dropped before its end, as by a panic, it leaves the conversation to the next
/// change.
struct Task {
    saving: Arc<Saving>,
    id: ConversationId,
    is_over: bool,
}

impl Task {
    async fn run<Told: Future<Output = ()>>(mut self, tell: impl Fn(ConversationId, Growth) -> Told) {
        while let Some(change) = self.saving.take(self.id) {
            // It is never closed.
            let Ok(sync) = self.saving.syncs.acquire().await else {
                return;
            };
            let growth = self.saving.save(self.id, change).await;
            drop(sync);
            let telling = AssertUnwindSafe(async { tell(self.id, growth).await });
            if let Err(panic) = telling.catch_unwind().await {
                let why = panic_text(panic.as_ref());
                tracing::error!(conversation = %self.id, why, "what was saved of a transcript could not be reported");
            }
        }
        // Another task may work on it by now.
        self.is_over = true;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_over {
            self.saving.lock().queues.remove(&self.id);
        }
    }
}

impl Registry {
    /// Reports a change of its transcript to a conversation, once that is on disk. Waits while too many wait already: to be
    /// called on a thread that may block.
    pub(super) fn tell_when_saved(
        self: &Arc<Self>,
        id: ConversationId,
        growth: Growth,
        unsynced: Option<Unsynced>,
    ) {
        let registry = Arc::downgrade(self);
        let tell = move |id, growth| {
            let registry = registry.upgrade();
            async move {
                if let Some(registry) = registry {
                    registry.tell_growth(id, growth).await;
                }
            }
        };
        Handle::current().block_on(self.saving.put(id, growth, unsynced, &self.stop, tell));
    }
}

impl Unsynced {
    /// Opens a transcript; none where it cannot be read.
    pub(super) fn open(path: &Path, root: &Path, format: Format) -> Option<Self> {
        let file = File::open(path).ok()?;
        Some(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            root: root.to_owned(),
            format,
        })
    }
}

#[cfg(test)]
mod tests;
