//! Syncing transcripts before anybody is told what is saved in them.
//!
//! Owns the growths that wait for their sync. Those of one conversation are told in the order in which they came; a slow disk
//! holds up nobody else. Blocks, on threads that may: neither a prompt's answer nor an update waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use bridge_protocol::ConversationId;

use super::super::super::growth::Growth;
use super::super::super::services::chain_text;
use super::super::Registry;
use crate::transcript::shelf::Format;
use crate::transcript::syncing::SyncLog;

/// How many files are synced at once. Disks sync several for the price of one; each takes a thread.
const SYNCS_AT_ONCE: usize = 8;

/// How many growths may wait. Each may hold some hundred kilobytes and an open file; whoever brings more waits.
const WAITING: usize = 64;

/// A transcript that is to be synced.
#[derive(Clone, Debug)]
pub(super) struct Unsynced {
    /// The transcript, opened before it was read: what was read of it is what is synced.
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) root: PathBuf,
    pub(super) format: Format,
}

/// What a conversation is to be told.
struct Pending {
    growth: Growth,
    /// What has to be on disk before.
    unsynced: Option<Unsynced>,
}

/// The growths that wait for their sync.
#[derive(Default)]
pub(in crate::conversation::registry) struct Saving {
    log: SyncLog,
    queue: Mutex<Queue>,
    has_room: Condvar,
}

#[derive(Default)]
struct Queue {
    /// By conversation; the entry of one that a thread works on is there also when it is empty.
    pending: BTreeMap<ConversationId, Vec<Pending>>,
    /// The conversations that no thread works on.
    ready: VecDeque<ConversationId>,
    waiting: usize,
    threads: usize,
}

impl Saving {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change is whole before anything can panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something into the queue, once there is room. Whether a thread has to be started for it.
    fn put(&self, id: ConversationId, pending: Pending) -> bool {
        let queue = self.lock();
        let full = |queue: &mut Queue| queue.waiting >= WAITING;
        let mut queue = self
            .has_room
            .wait_while(queue, full)
            .unwrap_or_else(PoisonError::into_inner);
        queue.waiting += 1;
        if let Some(earlier) = queue.pending.get_mut(&id) {
            earlier.push(pending);
            return false;
        }
        queue.pending.insert(id, vec![pending]);
        queue.ready.push_back(id);
        let is_wanted = queue.threads < SYNCS_AT_ONCE;
        queue.threads += usize::from(is_wanted);
        is_wanted
    }

    /// Takes all that waits for one conversation, or lets the thread end.
    fn take(&self) -> Option<(ConversationId, Vec<Pending>)> {
        let mut queue = self.lock();
        let Some(id) = queue.ready.pop_front() else {
            queue.threads -= 1;
            return None;
        };
        let taken = queue.pending.get_mut(&id).map(std::mem::take).unwrap_or_default();
        queue.waiting -= taken.len();
        self.has_room.notify_all();
        Some((id, taken))
    }

    /// The thread is done with a conversation.
    fn finish(&self, id: ConversationId) {
        let mut queue = self.lock();
        match queue.pending.get(&id) {
            Some(more) if !more.is_empty() => queue.ready.push_back(id),
            _ => drop(queue.pending.remove(&id)),
        }
    }

    /// Syncs what has to be on disk, and gives what may be told.
    fn save(&self, pending: Pending) -> Growth {
        let Pending { mut growth, unsynced } = pending;
        let Some(unsynced) = unsynced else { return growth };
        let Unsynced {
            file,
            path,
            root,
            format,
        } = unsynced;
        if let Err(error) = self.log.sync(&file, &path, &root, format) {
            tracing::error!(
                path = %path.display(), error = chain_text(&error), turns = growth.saved.len(),
                "a transcript could not be synced; its last turns are not reported as saved"
            );
            growth.saved.clear();
        }
        growth
    }
}

impl Registry {
    /// Tells a conversation what has become of its transcript, once that is on disk. Waits while too much waits already.
    pub(super) fn tell_when_saved(
        self: &Arc<Self>,
        id: ConversationId,
        growth: Growth,
        unsynced: Option<Unsynced>,
    ) {
        if self.saving.put(id, Pending { growth, unsynced }) {
            let (saving, registry) = (Arc::clone(&self.saving), Arc::downgrade(self));
            tokio::task::spawn_blocking(move || work(&saving, &registry));
        }
    }
}

/// Syncs and tells until nothing waits.
fn work(saving: &Saving, registry: &Weak<Registry>) {
    while let Some((id, taken)) = saving.take() {
        for pending in taken {
            let growth = saving.save(pending);
            if let Some(registry) = registry.upgrade() {
                registry.tell_growth(id, growth);
            }
        }
        saving.finish(id);
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
mod tests {
    use super::*;

    fn growth(prompts: u64) -> Growth {
        Growth {
            upstream_id: "s1".into(),
            saved: Vec::new(),
            prompts: Some(prompts),
            replaced: false,
            rewritten: false,
        }
    }

    fn pending(prompts: u64) -> Pending {
        Pending {
            growth: growth(prompts),
            unsynced: None,
        }
    }

    fn prompts(taken: &[Pending]) -> Vec<Option<u64>> {
        taken.iter().map(|pending| pending.growth.prompts).collect()
    }

    #[test]
    fn what_comes_for_a_conversation_keeps_its_order_and_holds_up_no_other() {
        let saving = Saving::default();
        let [slow, other] = [ConversationId::mint(), ConversationId::mint()];
        assert!(saving.put(slow, pending(1)));
        let (id, taken) = saving.take().unwrap();
        assert_eq!((id, prompts(&taken)), (slow, vec![Some(1)]));
        // While a thread works on it, no other one takes what comes behind.
        assert!(!saving.put(slow, pending(2)));
        assert!(!saving.put(slow, pending(3)));
        assert!(saving.put(other, pending(4)), "a second thread");
        let (id, taken) = saving.take().unwrap();
        assert_eq!((id, prompts(&taken)), (other, vec![Some(4)]));
        saving.finish(other);
        assert!(saving.take().is_none(), "the second thread ends");
        saving.finish(slow);
        let (id, taken) = saving.take().unwrap();
        assert_eq!((id, prompts(&taken)), (slow, vec![Some(2), Some(3)]));
        saving.finish(slow);
        assert!(saving.take().is_none());
        assert!(saving.put(slow, pending(5)), "all threads have ended");
    }

    #[test]
    fn threads_and_what_waits_are_bounded() {
        let saving = Arc::new(Saving::default());
        let started = (0..WAITING).filter(|_| saving.put(ConversationId::mint(), pending(1)));
        assert_eq!(started.count(), SYNCS_AT_ONCE);
        let (brought, has_brought) = std::sync::mpsc::channel();
        let bringing = {
            let saving = Arc::clone(&saving);
            std::thread::spawn(move || {
                saving.put(ConversationId::mint(), pending(2));
                brought.send(()).unwrap();
            })
        };
        assert!(has_brought.try_recv().is_err());
        let (id, _) = saving.take().unwrap();
        bringing.join().unwrap();
        has_brought.recv().unwrap();
        saving.finish(id);
        assert_eq!(saving.lock().waiting, WAITING);
    }
}
