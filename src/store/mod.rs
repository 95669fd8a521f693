//! The store: all data of the daemon that must survive a restart.
//!
//! It has two sides. The journal (`journal.jsonl`) is authoritative: it has one line per change, synced before the
//! change is acknowledged. The trees (sled, in `store/`) answer queries. Each batch of changes is applied to them
//! atomically, together with the journal's position. A start can therefore replay the changes that they lack, or
//! rebuild them if they are damaged. They are not synced with each commit, because the journal has every change that
//! they may lose; the modules `commit` and `trust` explain why that suffices. Values that are too large are files in
//! `bodies/`, named by their content.
//!
//! The store owns these files and all indexes over them. It does not know what turns, agents or clients do with a
//! record, or any wire code. Reads are synchronous and take microseconds, except for those that read all conversations.
//! Changes go through one thread, in order.

mod apply;
mod body;
mod commit;
mod compact;
mod error;
mod journal;
mod keyspace;
mod lookup;
mod open;
mod packed;
mod record;
mod request_memory;
mod salvage;
mod shared;
mod summary;
mod trust;
mod value;

use std::future::Future;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

pub use commit::{COMMIT_QUEUE_LIMIT, JournalDamage, REQUEST_ID_LIMIT_BYTES, UPSTREAM_ID_LIMIT_BYTES};
pub use error::{BodyLoss, LookupError, LostPart, StoreError};
pub use journal::BadRegion;
pub use lookup::ConversationBranch;
pub use open::{OpenReport, RebuildReason, free_damaged_store, set_aside_in};
pub use record::{
    Anchor, AnsweredInterrupt, BegunDeletion, CallKey, Change, ConversationRecord, CutShortPrompt,
    PendingContinuation, PendingEdit, PendingTurn, ProcessRecord, QueuedPromptRecord, RECORD_VERSION,
    RecentCursor, ReportedSettings, RequestId, RequestRecord, ResolvedBy, ResolvedConversation, RestingState,
    SalvagedRecord, Sequence, TranscriptRoot, TurnPhase, UnfinishedHead,
};
pub use request_memory::{REQUEST_MEMORY_COUNT, REQUEST_MEMORY_DAYS};
pub use summary::Summary;
pub use trust::boot_id;
pub use value::VALUE_LIMIT_BYTES;

use apply::AppliedState;
use body::Bodies;
use commit::{Job, Writer};
use journal::{JournalCheck, Position};
use keyspace::Keyspace;
use open::{StoreFiles, StorePaths};
use request_memory::MinimumClock;
use shared::Shared;

/// How many conversations [`Store::recent`] reads at once: a bit more than a client shows on the first page of its list.
const RECENT_PAGE: usize = 64;

/// How many conversations one step of a scan examines.
pub const SCAN_STEP_ENTRIES: usize = 256;

/// The result of one step of [`Store::scan_recent`].
#[derive(Clone, Debug, Default)]
pub struct ScanStep {
    /// The matching conversations and their positions.
    pub found: Vec<(RecentCursor, ConversationId)>,
    /// The first position examined; `None` if there was none.
    pub first: Option<RecentCursor>,
    /// The last position examined.
    pub last: Option<RecentCursor>,
    /// Whether `last` is the end of the list.
    pub is_end: bool,
}

/// Options for opening a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The current time. If given, requests older than [`REQUEST_MEMORY_DAYS`] are deleted in the background.
    /// Otherwise they are deleted only when new requests of the same conversation arrive.
    pub now: Option<Timestamp>,
    /// Whether the folder is known to have contained a store before. If it contains none now, that store is reported
    /// as lost.
    pub existed_before: bool,
}

/// An open store. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Arc<WriterThread>,
    /// `None` for a store in memory.
    journal: Option<Arc<Path>>,
    open_report: Arc<OpenReport>,
}

/// Statistics of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreStatus {
    /// The last durable change.
    pub sequence: Sequence,
    /// How many conversations exist, without deleted ones.
    pub conversations: u64,
    /// The length of the journal.
    pub journal_bytes: u64,
    /// Whether the store is only in memory.
    pub is_ephemeral: bool,
    /// Why the last commit failed, if it did.
    pub failure: Option<StoreError>,
    /// Why the database is not used, if it failed. All data is served from memory until the next start rebuilds the
    /// database.
    pub database_failure: Option<StoreError>,
    /// Why data that a change erased may still be in the files. The next start tries again to erase it.
    pub erasure_failure: Option<StoreError>,
}

/// The committing thread and its queue.
struct WriterThread {
    /// `None` once the last store was dropped.
    queue: Option<mpsc::Sender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store in this folder, or creates it. Blocks while it reads.
    ///
    /// The caller must hold the lock of the folder, so that no second daemon uses it.
    ///
    /// # Errors
    /// If a file cannot be read or written, or if a newer version wrote the journal. Damage is not an error: journal
    /// and database are merged, and the report says what was lost.
    pub fn open(folder: &Path, options: StoreOptions) -> Result<(Self, OpenReport), StoreError> {
        let opened = open::open(folder, options.existed_before)?;
        let mut store = Self::start(
            opened.keyspace,
            Some(opened.bodies),
            Some(opened.files),
            opened.applied,
            options,
        )?;
        store.open_report = Arc::new(opened.report.clone());
        Ok((store, opened.report))
    }

    /// Creates a store in memory that uses no files.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn ephemeral() -> Result<Self, StoreError> {
        let nowhere = Position::before_lines(uuid::Uuid::nil(), 0, 0);
        Self::start(
            Keyspace::in_memory(),
            None,
            None,
            AppliedState::at(nowhere),
            StoreOptions::default(),
        )
    }

    /// Makes a change durable and then visible, as a whole or not at all.
    ///
    /// The change is queued before this returns, so calls are carried out in order, even if their futures are awaited
    /// in another order. Dropping the future does not cancel the change.
    ///
    /// # Errors
    /// If the change was not made: it is too large, it rewrites a record of a newer version, the queue is full, or
    /// the change could not be written. Later calls are unaffected.
    pub fn commit(
        &self,
        change: Change,
    ) -> impl Future<Output = Result<Sequence, StoreError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let enqueued = self.enqueue(Job::Commit {
            change: Box::new(change),
            answer,
        });
        async move {
            enqueued?;
            answered.await.map_err(|_| StoreError::Closed)?
        }
    }

    /// Carries out the queued changes, syncs the database, and ends the thread. Later commits are refused.
    ///
    /// # Errors
    /// If the database could not be synced. Nothing is lost: the next start replays or rebuilds it.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.enqueue(Job::Shutdown { answer })?;
        let closed = answered.await.map_err(|_| StoreError::Closed)?;
        self.writer.join();
        closed
    }

    /// Iterates over conversations by the time of their last change, newest first, without deleted ones.
    ///
    /// A conversation that changes during the iteration moves to the front and is not visited again. For a record
    /// whose chain is lost, it returns an error and then continues.
    pub fn recent(&self) -> impl Iterator<Item = Result<ConversationRecord, StoreError>> + use<> {
        let shared = Arc::clone(&self.shared);
        let (mut page, mut after, mut has_ended) = (Vec::new().into_iter(), None, false);
        std::iter::from_fn(move || {
            if page.len() == 0 && !has_ended {
                let next = shared.read(|view| view.recent_page(after, RECENT_PAGE));
                has_ended = next.as_ref().map_or(true, |next| next.len() < RECENT_PAGE);
                match next {
                    Ok(next) => page = next.into_iter(),
                    Err(error) => return Some(Err(error)),
                }
            }
            let (cursor, salvaged) = page.next()?;
            after = Some(cursor);
            Some(SalvagedRecord::into_record(salvaged))
        })
    }

    /// Returns the statistics as of the last commit.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        self.shared.status()
    }

    /// Returns what the store found when it was opened.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.open_report
    }

    /// Deletes the saved opening report, after everything that follows from it was done. Until then, later processes
    /// get it in their reports too.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn delete_open_report(&self) -> Result<(), StoreError> {
        let Some(folder) = self.journal.as_deref().and_then(Path::parent) else {
            return Ok(());
        };
        body::remove_durably(&StorePaths::in_folder(folder).report)
    }

    /// Verifies the whole journal. If a part cannot be read, rewrites the journal from the database and returns the
    /// damage. Without the rewrite, the acknowledged changes would exist only once, so the next damage could lose
    /// them.
    ///
    /// Blocks while it reads. Changes wait only if there is damage.
    ///
    /// # Errors
    /// If the journal cannot be read, or cannot be rewritten.
    pub fn check_journal(&self) -> Result<Option<JournalDamage>, StoreError> {
        let Some(journal) = &self.journal else {
            return Ok(None);
        };
        let status = self.status();
        let found = journal::verify(journal, status.journal_bytes, status.sequence.0)?;
        if found == JournalCheck::default() {
            return Ok(None);
        }
        let (answer, answered) = oneshot::channel();
        self.enqueue(Job::RewriteJournal { answer })?;
        answered.blocking_recv().map_err(|_| StoreError::Closed)?
    }

    /// Returns a lower bound of the current time that does not trust the system's clock: the time of the last change of an
    /// earlier run, plus the time since this run began. Use it to delete data by age. `None` if nothing is to be deleted.
    /// Blocks until it is known.
    #[must_use]
    pub fn minimum_time(&self) -> Option<Timestamp> {
        self.shared.minimum_clock.wait().as_ref().map(MinimumClock::now)
    }

    /// Waits until a change finds that the store's files were removed. From then on, nothing can be saved.
    pub async fn removed(&self) {
        self.shared.removed.cancelled().await;
    }

    fn start(
        keyspace: Keyspace,
        bodies: Option<Bodies>,
        files: Option<StoreFiles>,
        applied: AppliedState,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(keyspace, bodies, &applied));
        let journal = files.as_ref().map(|files| Arc::from(&*files.paths.journal));
        let writer = Writer::new(Arc::clone(&shared), files, applied);
        // Senders are callers of `commit`; the only receiver is the thread.
        let (queue, jobs) = mpsc::channel(COMMIT_QUEUE_LIMIT);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(jobs, options.now))
            .map_err(StoreError::io("start a thread for", Path::new("the store")))?;
        Ok(Self {
            shared,
            writer: Arc::new(WriterThread {
                queue: Some(queue),
                thread: Mutex::new(Some(thread)),
            }),
            journal,
            open_report: Arc::default(),
        })
    }

    /// Reports a failed database to the thread, so that it is replaced even if nothing is committed. One report is
    /// enough for all reads that fail meanwhile.
    fn report_failure(&self, error: &StoreError) {
        if error.is_database_error()
            && !self.shared.has_reported_failure.swap(true, Ordering::Relaxed)
            && let Err(error) = self.enqueue(Job::DatabaseFailed(error.clone()))
        {
            self.shared.has_reported_failure.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "the database failed; the next change replaces it");
        }
    }

    /// Queues a job without waiting for room. If callers waited, a later change could overtake an earlier one.
    fn enqueue(&self, job: Job) -> Result<(), StoreError> {
        let queue = self.writer.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })
    }
}

impl WriterThread {
    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked; the next start replays or rebuilds the store");
        }
    }
}

impl Drop for WriterThread {
    /// Closes the queue and waits for the thread, so that the folder is no longer in use when the last store was
    /// dropped.
    fn drop(&mut self) {
        self.queue = None;
        self.join();
    }
}

#[cfg(test)]
mod tests;
