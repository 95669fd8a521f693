//! The store: what has to outlive the daemon, made durable before anyone hears of it.
//!
//! Two sides. The journal (`journal.jsonl`) has one line for each change, synced before the change is acknowledged; it
//! is believed. The trees (sled, in `store/`) are what is queried; each batch of changes goes there whole, together with
//! the journal's position, so that a start replays what they lack and rebuilds them when they are damaged. They are not
//! synced with each commit: what they lose is in the journal, and the modules `commit` and `trust` say why that is
//! enough. What is too large for a value is a file in `bodies/`, named by its content.
//!
//! The store owns these files and every index over them. It must not know what a turn, an agent or a client does with a
//! record, nor any wire code. Reads are synchronous and take microseconds; changes go through one thread, in order.

mod apply;
mod body;
mod commit;
mod compact;
mod digest;
mod error;
mod journal;
mod keyspace;
mod lookup;
mod open;
mod packed;
mod record;
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

use bridge_protocol::link::LineageEntry;
use bridge_protocol::{ConversationId, ConversationRef, UpstreamId};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

pub use commit::{
    COMMIT_LINE_LIMIT, JournalDamage, REQUEST_ID_LIMIT_BYTES, REQUEST_MEMORY_COUNT, REQUEST_MEMORY_DAYS,
    UPSTREAM_ID_LIMIT_BYTES,
};
pub use error::{Lookup, StoreError};
pub use journal::BadRegion;
pub use open::{OpenReport, RebuildReason, set_aside_in};
pub use record::{
    Anchor, AnsweredInterrupt, Change, ConversationRecord, CutPrompt, LaterText, OpenRequest,
    PendingContinuation, PendingEdit, PendingTurn, ProcessRecord, RECORD_VERSION, RecentCursor, Reported,
    RequestId, RequestRecord, Resolved, ResolvedBy, Resting, Sequence, TranscriptRoot, TurnPhase,
    WaitingPrompt,
};
pub use summary::Summary;
pub use value::VALUE_LIMIT_BYTES;

use apply::Mark;
use body::Bodies;
use commit::{Job, Writer};
use journal::{Journal, Position, Verified};
use keyspace::Keyspace;
use open::Places;
use shared::Shared;
use trust::Trust;

/// How many conversations an iteration by time reads at once.
const RECENT_PAGE: usize = 64;

/// How many conversations one step of a look through all of them sees.
pub const LOOK_STEP: usize = 256;

/// What one step of [`Store::look`] saw.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// What fits, and where it stands.
    pub found: Vec<(RecentCursor, ConversationId)>,
    /// The first that was seen; none when there was nothing.
    pub first: Option<RecentCursor>,
    /// The last that was seen.
    pub last: Option<RecentCursor>,
    /// Whether nothing stands behind `last`.
    pub is_end: bool,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The time by which requests are past [`REQUEST_MEMORY_DAYS`]: those are forgotten in the background. Without it they
    /// are forgotten only when further ones of the same conversation come.
    pub now: Option<Timestamp>,
    /// Whether something else says that the folder has held a store before. It has lost what was in it where none is there.
    pub has_past: bool,
}

/// The open store. Clones are the same store; the last one to go closes it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Arc<WriterThread>,
    /// None in memory.
    journal: Option<Arc<Path>>,
    opening: Arc<OpenReport>,
}

/// Figures of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreStatus {
    /// The last change that is durable.
    pub sequence: Sequence,
    /// How many conversations there are, without deleted ones.
    pub conversations: u64,
    /// How long the journal is, in bytes.
    pub journal_bytes: u64,
    /// How long it would be after a compaction, roughly, in bytes.
    pub live_bytes: u64,
    /// Whether nothing is on disk.
    pub is_ephemeral: bool,
    /// Why the last commit failed; none when it did not.
    pub failure: Option<StoreError>,
    /// Why the database is not used until the next start rebuilds it, and everything is in memory meanwhile.
    pub database_failure: Option<StoreError>,
}

/// The thread that commits, and the line in front of it.
struct WriterThread {
    /// None once the last store has gone.
    line: Option<mpsc::Sender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store in this folder, or makes it there. Blocks while it reads.
    ///
    /// The caller holds the lock that keeps a second daemon out of the folder.
    ///
    /// # Errors
    /// When a file can be neither read nor written, and when a newer version wrote the journal. Damage is no error: what journal
    /// and database have is put together, and the report says what was lost.
    pub fn open(folder: &Path, options: StoreOptions) -> Result<(Self, OpenReport), StoreError> {
        let opened = open::open(folder, options.has_past)?;
        let mut store = Self::start(
            opened.keyspace,
            Some(opened.bodies),
            Some((opened.journal, opened.trust, opened.places)),
            opened.mark,
            options,
        )?;
        store.opening = Arc::new(opened.report.clone());
        Ok((store, opened.report))
    }

    /// A store that keeps everything in memory and touches no file.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn ephemeral() -> Result<Self, StoreError> {
        let nowhere = Position::before_lines(uuid::Uuid::nil(), 0, 0);
        Self::start(
            Keyspace::in_memory(),
            None,
            None,
            Mark::at(nowhere),
            StoreOptions::default(),
        )
    }

    /// Makes a change durable and then visible, all of it or nothing.
    ///
    /// The change is in line when this returns, so that two calls are carried out in their order however their futures
    /// are awaited. Dropping the future does not take the change back.
    ///
    /// # Errors
    /// The change was not made: it is too large or rewrites a newer version's record, the line is full, or it could not
    /// be written. A later call is tried again.
    pub fn commit(
        &self,
        change: Change,
    ) -> impl Future<Output = Result<Sequence, StoreError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let entered = self.enter(Job::Commit {
            change: Box::new(change),
            answer,
        });
        async move {
            entered?;
            answered.await.map_err(|_| StoreError::Closed)?
        }
    }

    /// Carries out what is in line, syncs the database, and ends the thread. Later commits are refused.
    ///
    /// # Errors
    /// When the database could not be synced; nothing is lost, the next start replays or rebuilds.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.enter(Job::Shutdown { answer })?;
        let closed = answered.await.map_err(|_| StoreError::Closed)?;
        self.writer.join();
        closed
    }

    /// The record of a conversation, also of a deleted one.
    ///
    /// # Errors
    /// When the record, or a body that it names, cannot be read.
    pub fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRecord>, StoreError> {
        self.watched(self.shared.conversation(id))
    }

    /// The conversation that a name leads to: its whole id, a prefix of it, or an upstream id that it ever held.
    ///
    /// A whole id comes first. What is a prefix of one and an upstream id of another is ambiguous, and so is a prefix of
    /// several, deleted ones among them: a short name must not come to mean another conversation by a deletion.
    ///
    /// # Errors
    /// See [`Lookup`].
    pub fn resolve(&self, reference: &ConversationRef) -> Result<Resolved, Lookup> {
        self.shared.resolve(reference).inspect_err(|lookup| {
            if let Lookup::Store(error) = lookup {
                self.hear(error);
            }
        })
    }

    /// The conversations that hold or held an upstream id, under one root or under any.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn owners(
        &self,
        upstream_id: &UpstreamId,
        root: Option<&TranscriptRoot>,
    ) -> Result<Vec<ConversationId>, StoreError> {
        self.watched(self.shared.owners(upstream_id, root))
    }

    /// Conversations by the time of their last change, newest first, without deleted ones; those behind a cursor, or all.
    ///
    /// A conversation that changes while one iterates moves to the front, where the iteration does not come by again.
    pub fn recent(
        &self,
        after: Option<RecentCursor>,
    ) -> impl Iterator<Item = Result<(RecentCursor, ConversationRecord), StoreError>> + use<> {
        Recent {
            shared: Arc::clone(&self.shared),
            after,
            page: Vec::new().into_iter(),
            has_ended: false,
        }
    }

    /// The first conversations behind a cursor, as [`Store::recent`], `limit` at most and read at once.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn recent_page(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
    ) -> Result<Vec<(RecentCursor, ConversationRecord)>, StoreError> {
        self.watched(self.shared.recent_page(after, limit))
    }

    /// One step of a look through all conversations behind a cursor, newest first, without deleted ones: ids of those
    /// that `fits` takes, `limit` at most. It sees [`LOOK_STEP`] at most, of one moment, in some tens of microseconds.
    ///
    /// `fits` gets no summary where that would be too long. It must not ask the store for anything.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn look(
        &self,
        after: Option<RecentCursor>,
        limit: usize,
        fits: impl FnMut(ConversationId, Option<Summary<'_>>) -> bool,
    ) -> Result<Looked, StoreError> {
        self.watched(self.shared.look(after, limit, fits))
    }

    /// Each conversation that branched off another one, without deleted ones, and the one that it branched off.
    ///
    /// Reads all conversations, a few hundred at a time: some tenths of a second where there are 100,000.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn branches(&self) -> Result<Vec<(ConversationId, ConversationId)>, StoreError> {
        self.watched(self.shared.branches())
    }

    /// The lineage of a conversation behind a `seq` (0: from the beginning), oldest first, `limit` entries at most.
    ///
    /// # Errors
    /// When an entry cannot be read.
    pub fn lineage(
        &self,
        id: ConversationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<LineageEntry>, StoreError> {
        self.watched(self.shared.lineage(id, after_seq, limit))
    }

    /// The whole lineage of a conversation, oldest first.
    ///
    /// # Errors
    /// When an entry cannot be read.
    pub fn lineage_all(&self, id: ConversationId) -> Result<Vec<LineageEntry>, StoreError> {
        self.watched(self.shared.lineage(id, 0, usize::MAX))
    }

    /// What is remembered of a request; without a conversation, of one that makes a conversation.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn request(
        &self,
        conversation_id: Option<ConversationId>,
        request_id: &RequestId,
    ) -> Result<Option<RequestRecord>, StoreError> {
        self.watched(self.shared.request(conversation_id, request_id))
    }

    /// All processes that are remembered.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessRecord>, StoreError> {
        self.watched(self.shared.processes())
    }

    /// The conversations that are not idle: with a pending turn, an open question or a continuation that is due, or
    /// limited, interrupted or failed.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn unfinished(&self) -> Result<Vec<ConversationId>, StoreError> {
        self.watched(self.shared.unfinished())
    }

    /// How many conversations there are, without deleted ones. Reads one number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.figures().conversations
    }

    /// Figures of the store as of the last commit.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        self.shared.figures()
    }

    /// What was found when the store was opened.
    #[must_use]
    pub fn opening(&self) -> &OpenReport {
        &self.opening
    }

    /// Forgets what was found when the store was opened: all that follows from it is done. Before this, a later process finds it in
    /// its report too.
    ///
    /// # Errors
    /// When the note of it cannot be removed.
    pub fn settle_opening(&self) -> Result<(), StoreError> {
        let Some(folder) = self.journal.as_deref().and_then(Path::parent) else {
            return Ok(());
        };
        body::remove_durably(&Places::in_folder(folder).report)
    }

    /// Reads the whole journal, and has it written anew from the database where a part of it cannot be read any more: what was
    /// acknowledged is in both, and the next damage would find it in one of them only. Tells what was damaged then.
    ///
    /// Blocks while it reads; changes wait only where there is damage.
    ///
    /// # Errors
    /// When the journal can be neither read nor written anew.
    pub fn check_journal(&self) -> Result<Option<JournalDamage>, StoreError> {
        let Some(journal) = &self.journal else {
            return Ok(None);
        };
        let figures = self.status();
        let found = journal::verify(journal, figures.journal_bytes, figures.sequence.0)?;
        if found == Verified::default() {
            return Ok(None);
        }
        let (answer, answered) = oneshot::channel();
        self.enter(Job::Renew { answer })?;
        answered.blocking_recv().map_err(|_| StoreError::Closed)?
    }

    /// Waits until a change finds that the store's files were removed: none can be kept from then on.
    pub async fn removed(&self) {
        self.shared.removed.cancelled().await;
    }

    fn start(
        keyspace: Keyspace,
        bodies: Option<Bodies>,
        durable: Option<(Journal, Trust, Places)>,
        mark: Mark,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(keyspace, bodies, &mark));
        let place = durable.as_ref().map(|(_, _, places)| Arc::from(&*places.journal));
        let (journal, trust, places) = match durable {
            Some((journal, trust, places)) => (Some(journal), Some(trust), Some(places)),
            None => (None, None, None),
        };
        let writer = Writer::new(Arc::clone(&shared), journal, trust, mark, places);
        // Sent by whoever commits, received by the thread alone.
        let (line, jobs) = mpsc::channel(COMMIT_LINE_LIMIT);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(jobs, options.now))
            .map_err(StoreError::io("start a thread for", Path::new("the store")))?;
        Ok(Self {
            shared,
            writer: Arc::new(WriterThread {
                line: Some(line),
                thread: Mutex::new(Some(thread)),
            }),
            journal: place,
            opening: Arc::default(),
        })
    }

    /// What a reader gets.
    fn watched<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        read.inspect_err(|error| self.hear(error))
    }

    /// Reports a database that failed to the thread, so that it is replaced although nothing is committed. Once is enough for all
    /// reads that fail meanwhile.
    fn hear(&self, error: &StoreError) {
        if error.is_of_database()
            && !self.shared.is_failing.swap(true, Ordering::Relaxed)
            && let Err(error) = self.enter(Job::Failed(error.clone()))
        {
            self.shared.is_failing.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "the database has failed, and is replaced with the next change");
        }
    }

    /// Takes a place in line, at once or not at all: who had to wait for one could be overtaken by a later change.
    fn enter(&self, job: Job) -> Result<(), StoreError> {
        let line = self.writer.line.as_ref().ok_or(StoreError::Closed)?;
        line.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::LineFull,
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
            tracing::error!("the store's thread panicked; its next start replays or rebuilds");
        }
    }
}

impl Drop for WriterThread {
    /// Closes the line and waits for the thread, so that the folder is free when the last store has gone.
    fn drop(&mut self) {
        self.line = None;
        self.join();
    }
}

/// See [`Store::recent`].
struct Recent {
    shared: Arc<Shared>,
    after: Option<RecentCursor>,
    page: std::vec::IntoIter<(RecentCursor, ConversationRecord)>,
    has_ended: bool,
}

impl Iterator for Recent {
    type Item = Result<(RecentCursor, ConversationRecord), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.has_ended {
            match self.shared.recent_page(self.after, RECENT_PAGE) {
                Ok(page) => {
                    self.has_ended = page.len() < RECENT_PAGE;
                    self.page = page.into_iter();
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
        let (cursor, record) = self.page.next()?;
        self.after = Some(cursor);
        Some(Ok((cursor, record)))
    }
}

#[cfg(test)]
mod tests;
