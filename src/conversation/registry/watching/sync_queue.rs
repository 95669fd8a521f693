//! Syncs transcripts to disk before the turns in them are reported as saved.
//!
//! Owns the changes that wait for a sync, and the checkpoints whose transcript could not be read for its sync. Each task
//! reports the changes of one conversation and ends when none is left. A file system that hangs delays only conversations
//! with transcripts on it. Neither the watcher, nor the answer to a prompt, nor an update waits for a sync.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use bridge_protocol::event::Event;
use bridge_protocol::history::Checkpoint;
use bridge_protocol::{ConversationId, UpstreamId};
use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::super::super::actor::Message;
use super::super::super::lock::lock;
use super::super::super::services::{chain_text, now};
use super::super::super::transcript_growth::TranscriptGrowth;
use super::super::{Registry, panic_text};
use super::judging::ChangedTranscript;
use crate::files::open_file;
use crate::transcript::syncing::{SyncError, SyncLog};

/// How many files of one file system are synced at once. Disks sync several in the time of one, but each sync takes a thread.
const SYNCS_AT_ONCE: usize = 8;

/// How many sessions of one conversation may have a change that waits, each with an open file. A chain has at most as many
/// links (`CHAIN_LIMIT`).
const MAX_PENDING_REPORTS: usize = 16;

/// Limit of remembered transcripts that could not be read for a sync. Each holds an open file.
const MAX_FAILED_SYNCS: usize = 64;

/// Limit of checkpoints of one session that wait or whose sync failed. Above it, the oldest are never reported as saved.
const MAX_UNSAVED_CHECKPOINTS: usize = 1_024;

/// A transcript that is to be synced.
#[derive(Clone, Debug)]
pub(super) struct UnsyncedTranscript {
    /// The transcript, opened before it was read, so that the file that was read is the one that is synced.
    pub(super) file: Arc<File>,
    /// The number of its file system.
    pub(super) device: u64,
    pub(super) transcript: ChangedTranscript,
}

/// A change of a transcript that waits to be reported to a conversation.
struct PendingReport {
    growth: TranscriptGrowth,
    /// The transcript that must be synced before the report.
    unsynced: Option<UnsyncedTranscript>,
}

impl PendingReport {
    /// Adds a later change of the same transcript.
    fn merge(&mut self, later: Self) {
        let growth = later.growth;
        self.growth.new_checkpoints.extend(growth.new_checkpoints);
        drop_oldest_checkpoints(&mut self.growth.new_checkpoints);
        self.growth.prompts = growth.prompts.or(self.growth.prompts);
        self.growth.replaced |= growth.replaced;
        self.growth.rewritten |= growth.rewritten;
        // The later file is enough: if it replaced the earlier one, it contains the earlier turns as well.
        self.unsynced = later.unsynced.or(self.unsynced.take());
    }
}

/// Drops the oldest checkpoints above [`MAX_UNSAVED_CHECKPOINTS`].
fn drop_oldest_checkpoints(checkpoints: &mut Vec<Checkpoint>) {
    let excess = checkpoints.len().saturating_sub(MAX_UNSAVED_CHECKPOINTS);
    if excess > 0 {
        checkpoints.drain(..excess);
        log_forgotten();
    }
}

fn log_forgotten() {
    tracing::error!("too many turns wait for a sync; the oldest are never reported as saved");
}

type SyncFn = dyn Fn(&UnsyncedTranscript) -> Result<(), SyncError> + Send + std::marker::Sync;

/// The queues of changes that are reported after a sync.
pub(in crate::conversation::registry) struct SyncQueue {
    sync: Arc<SyncFn>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Waiting changes by conversation. An entry exists while a task works on it.
    queues: BTreeMap<ConversationId, VecDeque<PendingReport>>,
    /// Permits to sync files, by file system. An entry exists while a sync runs or waits.
    sync_permits: BTreeMap<u64, Arc<Semaphore>>,
    /// Reports whose transcript could not be read for its sync, oldest first. The next change of the transcript retries the
    /// sync.
    failed_syncs: VecDeque<(ConversationId, PendingReport)>,
}

impl Default for SyncQueue {
    fn default() -> Self {
        let log = SyncLog::default();
        Self::with_sync_fn(move |it| {
            let ChangedTranscript { root, format, path } = &it.transcript;
            log.sync(&it.file, path, root, *format)
        })
    }
}

impl SyncQueue {
    fn with_sync_fn(
        sync: impl Fn(&UnsyncedTranscript) -> Result<(), SyncError> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self {
            sync: Arc::new(sync),
            state: Mutex::default(),
        }
    }

    /// Queues a change for its conversation, and starts a task if none works on the queue. If a change of the same
    /// transcript waits already, the two are merged. Never blocks.
    fn put<Report: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        id: ConversationId,
        growth: TranscriptGrowth,
        unsynced: Option<UnsyncedTranscript>,
        report: impl Fn(ConversationId, TranscriptGrowth) -> Report + Send + std::marker::Sync + 'static,
    ) {
        let change = PendingReport { growth, unsynced };
        let mut state = lock(&self.state);
        if let Some(queue) = state.queues.get_mut(&id) {
            let is_same = |it: &&mut PendingReport| it.growth.upstream_id == change.growth.upstream_id;
            if let Some(waiting) = queue.iter_mut().find(is_same) {
                waiting.merge(change);
                return;
            }
            if queue.len() >= MAX_PENDING_REPORTS {
                queue.pop_front();
                log_forgotten();
            }
            queue.push_back(change);
            return;
        }
        state.queues.insert(id, VecDeque::from([change]));
        drop(state);
        let task = ReportTask {
            queue: Arc::clone(self),
            id,
            is_over: false,
        };
        tokio::spawn(task.run(report));
    }

    /// Takes the next change of a conversation. If there is none, removes the queue; its task must end.
    fn take(&self, id: ConversationId) -> Option<PendingReport> {
        let mut state = lock(&self.state);
        let next = state.queues.get_mut(&id)?.pop_front();
        if next.is_none() {
            state.queues.remove(&id);
        }
        next
    }

    /// The permits to sync files of a file system.
    fn sync_permits(&self, device: u64) -> Arc<Semaphore> {
        let mut state = lock(&self.state);
        state.sync_permits.retain(|_, syncs| Arc::strong_count(syncs) > 1);
        let syncs = state.sync_permits.entry(device);
        Arc::clone(syncs.or_insert_with(|| Arc::new(Semaphore::new(SYNCS_AT_ONCE))))
    }

    /// Syncs the transcript of a change, if it has one. Returns what may be reported: without checkpoints if the sync failed.
    async fn sync(&self, id: ConversationId, change: PendingReport) -> TranscriptGrowth {
        let earlier = self.take_failed_sync(id, &change.growth.upstream_id);
        let is_retry = earlier.is_some();
        let PendingReport { mut growth, unsynced } = match earlier {
            Some(mut earlier) => {
                earlier.merge(change);
                earlier
            }
            None => change,
        };
        let Some(unsynced) = unsynced else { return growth };
        let permit = self.sync_permits(unsynced.device).acquire_owned().await;
        let (sync, file) = (Arc::clone(&self.sync), unsynced.clone());
        let synced = tokio::task::spawn_blocking(move || {
            // Held until the thread is free again, which may be after this task ends.
            let _permit = permit;
            sync(&file)
        });
        let failure = match synced.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((chain_text(&error), matches!(error, SyncError::ReadFailed(_)))),
            Err(error) => Some(match error.try_into_panic() {
                Ok(panic) => (panic_text(panic.as_ref()), true),
                Err(error) => (error.to_string(), true),
            }),
        };
        let path = unsynced.transcript.path.display().to_string();
        if let Some((error, false)) = failure {
            let turns = std::mem::take(&mut growth.new_checkpoints).len();
            tracing::error!(
                path,
                error,
                turns,
                "a transcript could not be written to disk; its last turns are never reported as saved"
            );
        } else if let Some((error, true)) = failure {
            tracing::error!(
                path,
                error,
                turns = growth.new_checkpoints.len(),
                "a transcript could not be synced; its last turns are reported as saved when it can be"
            );
            // The rest is reported now, and not again with the checkpoints.
            let unreported = TranscriptGrowth {
                new_checkpoints: std::mem::take(&mut growth.new_checkpoints),
                ..TranscriptGrowth::of(&growth.upstream_id)
            };
            self.remember_failed_sync(id, unreported, unsynced);
        } else if is_retry {
            tracing::info!(
                path,
                turns = growth.new_checkpoints.len(),
                "a transcript that could not be synced is on disk"
            );
        }
        growth
    }

    fn take_failed_sync(&self, id: ConversationId, upstream_id: &UpstreamId) -> Option<PendingReport> {
        let mut state = lock(&self.state);
        let is_it = |(of, failed): &(ConversationId, PendingReport)| {
            *of == id && failed.growth.upstream_id == *upstream_id
        };
        let index = state.failed_syncs.iter().position(is_it)?;
        state.failed_syncs.remove(index).map(|(_, failed)| failed)
    }

    fn remember_failed_sync(
        &self,
        id: ConversationId,
        mut growth: TranscriptGrowth,
        unsynced: UnsyncedTranscript,
    ) {
        drop_oldest_checkpoints(&mut growth.new_checkpoints);
        let failed = PendingReport {
            growth,
            unsynced: Some(unsynced),
        };
        let mut state = lock(&self.state);
        state.failed_syncs.push_back((id, failed));
        if state.failed_syncs.len() > MAX_FAILED_SYNCS {
            state.failed_syncs.pop_front();
            log_forgotten();
        }
    }
}

/// Task that syncs and reports the changes of one conversation. If it is dropped early, as by a panic, it removes the queue,
/// so that the next change starts a new task.
struct ReportTask {
    queue: Arc<SyncQueue>,
    id: ConversationId,
    is_over: bool,
}

impl ReportTask {
    async fn run<Report: Future<Output = ()>>(
        mut self,
        report: impl Fn(ConversationId, TranscriptGrowth) -> Report,
    ) {
        while let Some(change) = self.queue.take(self.id) {
            let growth = self.queue.sync(self.id, change).await;
            let reporting = AssertUnwindSafe(async { report(self.id, growth).await });
            if let Err(panic) = reporting.catch_unwind().await {
                let why = panic_text(panic.as_ref());
                tracing::error!(conversation = %self.id, why, "could not report the saved turns of a transcript");
            }
        }
        // The queue is removed by now, and a new one may belong to another task: `drop` must leave that alone.
        self.is_over = true;
    }
}

impl Drop for ReportTask {
    fn drop(&mut self) {
        if !self.is_over {
            lock(&self.queue.state).queues.remove(&self.id);
        }
    }
}

impl Registry {
    /// Reports a transcript change to its conversation, after the transcript is synced.
    pub(super) fn report_when_synced(
        self: &Arc<Self>,
        id: ConversationId,
        growth: TranscriptGrowth,
        unsynced: Option<UnsyncedTranscript>,
    ) {
        let registry = Arc::downgrade(self);
        let report = move |id, growth| {
            let registry = registry.upgrade();
            async move {
                if let Some(registry) = registry {
                    registry.report_growth(id, growth).await;
                }
            }
        };
        self.sync_queue.put(id, growth, unsynced, report);
    }

    /// Reports a transcript change to its conversation or, if that has no task, to the subscribers of all conversations.
    /// Waits for room in the mailbox.
    pub(in crate::conversation::registry) async fn report_growth(
        &self,
        id: ConversationId,
        growth: TranscriptGrowth,
    ) {
        let mailbox = {
            let live = self.lock();
            let entry = live.get(&id).filter(|entry| entry.essential_lost.is_empty());
            entry.map(|entry| entry.mailbox.clone())
        };
        let undelivered = match mailbox {
            None => Some(growth),
            Some(mailbox) => send_growth(&mailbox, growth, &self.stop).await,
        };
        let Some(growth) = undelivered else { return };
        if growth.rewritten {
            let upstream_id = growth.upstream_id;
            let event = Event::ForeignWriter { upstream_id };
            self.services.hub.announce(id, &event, &now().to_string());
        }
        for checkpoint in growth.new_checkpoints {
            let event = Event::CheckpointSaved { checkpoint };
            self.services.hub.announce(id, &event, &now().to_string());
        }
    }
}

/// Sends a change to a mailbox. Waits for room until the daemon stops; returns the change if the mailbox is closed.
async fn send_growth(
    mailbox: &mpsc::Sender<Message>,
    growth: TranscriptGrowth,
    stop: &CancellationToken,
) -> Option<TranscriptGrowth> {
    let sent = tokio::select! {
        biased;
        sent = mailbox.send(Message::TranscriptGrown(Box::new(growth))) => sent,
        () = stop.cancelled() => return None,
    };
    match sent.err()?.0 {
        Message::TranscriptGrown(growth) => Some(*growth),
        _ => None,
    }
}

impl UnsyncedTranscript {
    /// Opens a transcript; none if it cannot be read.
    pub(super) fn open(transcript: &ChangedTranscript) -> Option<Self> {
        let file = open_file(&transcript.path).ok()?;
        Some(Self {
            device: file.metadata().ok()?.dev(),
            file: Arc::new(file),
            transcript: transcript.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
