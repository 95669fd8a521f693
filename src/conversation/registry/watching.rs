//! Watches the agents' transcripts: which conversation a changed file belongs to, and when it is read.
//!
//! One task receives all changes; files are read on a blocking thread, one round at a time. A transcript belongs to the
//! conversations whose head it is, and to one that had a turn on it until that turn is reported: the head may change
//! before the last record is on disk. Other writes to an older session are in no history. While a turn runs, nothing is
//! judged, because transcripts lag behind the updates; the change is checked after the turn ends.

mod judging;
mod known_files;
mod sync_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::Link;
use bridge_protocol::transcript::Unwatched;
use bridge_protocol::{ConversationId, UpstreamId};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::lock::lock;
use super::super::running_work::StopMeter;
use super::super::services::now;
use super::super::transcript_growth::{RequestedRechecks, TranscriptGrowth};
use super::{Registry, panic_text};
use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use crate::transcript::index_cache::FileVersion;
use crate::transcript::meter::with_meter;
use crate::transcript::transcript_list::{self, Format, transcript_versions};
use crate::transcript::watch::TranscriptWatcher;
use judging::{ChangedTranscript, OwningConversation, judge};
use known_files::{FileComparison, KnownFiles};
pub(super) use sync_queue::SyncQueue;
use sync_queue::UnsyncedTranscript;

/// How many changed transcripts can wait for the end of a turn, or for their conversation. Above the limit, transcripts
/// without a conversation are dropped first, since most never get one; among equals, the oldest.
const MAX_PENDING_TRANSCRIPTS: usize = 1_024;

/// Limit of ended turns whose last record is not on disk yet. More than the number of agents that run at once.
const MAX_UNREPORTED_TURNS: usize = 1_024;

/// How long to wait for a turn's last record in a session that is no longer the head. The record is written within some
/// 100 ms. If the turn was cancelled before the agent wrote anything, there is none, and later writes are another program's.
const UNREPORTED_TURN_LIMIT: Duration = Duration::from_secs(60);

/// How long a start waits for the folders of transcripts. Thousands of files take some 40 ms; a folder on a file system
/// that does not respond must not keep the daemon from serving.
const START_WAIT_LIMIT: Duration = Duration::from_secs(1);

/// Limit of transcripts that are excluded because reading them panicked. Even one is a bug to fix.
const MAX_EXCLUDED: usize = 64;

/// When a transcript is read again after the end of a turn that is not reported yet, or after a failed read. If the folder
/// is not watched, nothing else triggers a read, and a read may fail for reasons that do not change the file. The last
/// record is written some 60 to 100 ms after the last update, and later on a slow disk. A turn that is not on disk after
/// the last delay is reported with the next change, or after the next turn.
const RECHECK_DELAYS: [Duration; 3] = [
    Duration::from_millis(150),
    Duration::from_millis(1_000),
    Duration::from_millis(5_000),
];

/// State of the watcher: the known files, and the transcripts that wait to be read again.
struct WatchState {
    watch: TranscriptWatcher,
    /// When this run of the daemon began.
    started_at: Timestamp,
    files: KnownFiles,
    /// Transcripts that wait, by path.
    pending: BTreeMap<PathBuf, PendingTranscript>,
    /// When a turn of this daemon ended, by session and conversation. An entry is removed when its turns are reported.
    unreported_turns: BTreeMap<(UpstreamId, ConversationId), Instant>,
    /// Transcripts that are never read again, because reading them panicked.
    excluded: BTreeSet<PathBuf>,
    /// When the next recheck is due, and its index in [`RECHECK_DELAYS`].
    next_recheck: Option<(Instant, usize)>,
    round: u64,
}

struct PendingTranscript {
    changed: ChangedTranscript,
    since_round: u64,
    /// Whether the transcript belongs to a conversation.
    is_owned: bool,
    /// How many reads of it have failed in a row.
    failed_reads: usize,
}

impl Registry {
    /// Starts watching the transcripts of all agents. If the preparation takes longer than `START_WAIT_LIMIT`, this
    /// returns early; the preparation continues in the background, and watching begins when it is done.
    ///
    /// Whatever a file contains at its first scan counts as old and gets no event. If the scan is slow, this includes
    /// turns that were written after the first client was served, also turns of this daemon.
    pub async fn watch_transcripts(self: &Arc<Self>) {
        let Ok(roots) = self.listed_folders(None) else {
            return;
        };
        let wake = self.services.rechecks.waker();
        let prepared = tokio::task::spawn_blocking(move || {
            let mut state = WatchState::new(TranscriptWatcher::new(wake));
            for root in &roots {
                state.watch.add_root(&root.root, root.format);
            }
            // After the watch is set up, so that each change is either included in the noted size or reported.
            for root in &roots {
                for (path, identity) in transcript_versions(&root.root, root.format) {
                    if let Some(id) = upstream_id(&path, root.format) {
                        state.files.note_at_start(&path, &id, &identity);
                    }
                }
            }
            state
        });
        self.watch_when_prepared(prepared).await;
    }

    /// Starts watching when `prepared` is ready. Waits for that no longer than [`START_WAIT_LIMIT`].
    async fn watch_when_prepared(
        self: &Arc<Self>,
        prepared: impl Future<Output = Result<WatchState, JoinError>> + Send + 'static,
    ) {
        let (began, has_begun) = oneshot::channel();
        let (registry, stop) = (Arc::downgrade(self), self.stop.clone());
        self.tasks.spawn(async move {
            // A file system that does not respond must not delay a stop.
            let prepared = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                prepared = prepared => prepared,
            };
            if let (Some(registry), Ok(state)) = (registry.upgrade(), &prepared) {
                registry.note_unwatched(&state.watch);
            }
            // After a slow preparation, the receiver is dropped.
            let is_slow = began.send(()).is_err();
            let state = match prepared {
                Ok(state) => state,
                Err(error) => {
                    tracing::error!(%error, "transcripts cannot be watched; saved turns are not reported");
                    return;
                }
            };
            if is_slow {
                tracing::info!("watching transcripts");
            }
            watch_until_stop(registry, state, stop).await;
        });
        // The wait also ends when the sender is dropped.
        if timeout(START_WAIT_LIMIT, has_begun).await.is_err() {
            tracing::warn!(
                "the folders of transcripts are slow; saved turns are reported after they were read"
            );
        }
    }

    /// Stores which folders cannot be watched, for `transcript/list`.
    fn note_unwatched(&self, watch: &TranscriptWatcher) {
        let unwatched = watch.problems().map(|(path, problem)| Unwatched {
            path: path.to_string_lossy().into_owned(),
            problem,
        });
        *lock(&self.unwatched) = unwatched.collect();
    }

    /// Whether a turn runs on a conversation.
    fn is_running(&self, id: ConversationId) -> bool {
        let live = self.lock();
        let state = live.get(&id).map(|entry| entry.published.borrow().state);
        matches!(
            state,
            Some(ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling)
        )
    }

    /// The transcript of a session in a conversation's chain.
    fn transcript_of(&self, owner: ConversationId, id: &UpstreamId) -> Option<ChangedTranscript> {
        let services = &self.services;
        let record = log_store_error(services.store.conversation(owner))??;
        let link = record.chain.link(id)?;
        let (root, format) = services.catalog.get(&link.agent)?.listed_transcripts()?;
        // The transcript is missing if the agent has written nothing yet.
        let path = services.transcripts(&link.agent)?.find(&link.cwd, id).ok()?;
        let root = root.to_owned();
        Some(ChangedTranscript { root, format, path })
    }

    /// The conversations that a session belongs to: those whose head it is, and those with an unreported turn on it (`unreported`).
    fn owners_of(
        &self,
        root: &Path,
        id: &UpstreamId,
        unreported: &BTreeMap<(UpstreamId, ConversationId), Instant>,
    ) -> Vec<OwningConversation> {
        let root = TranscriptRoot::new(root.to_string_lossy());
        let holders = log_store_error(self.services.store.holders(id, Some(&root)));
        let owner = |record: ConversationRecord| {
            let mut links = record.chain.links().iter();
            let link_index = links.rposition(|link| link.upstream_id == *id)?;
            Some(OwningConversation { record, link_index })
        };
        let owners = holders.unwrap_or_default().into_iter().filter_map(owner);
        let counts = |owner: &OwningConversation| {
            owner.is_head() || unreported.contains_key(&(id.clone(), owner.record.id))
        };
        owners.filter(counts).collect()
    }
}

/// Runs a round for each change, request or due recheck, until the daemon stops.
async fn watch_until_stop(registry: Weak<Registry>, mut state: WatchState, stop: CancellationToken) {
    let Some(services) = registry.upgrade().map(|registry| Arc::clone(&registry.services)) else {
        return;
    };
    loop {
        let late = async {
            match state.next_recheck {
                Some((at, _)) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let is_recheck = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = late => true,
            () = services.rechecks.wait() => false,
        };
        let Some(registry) = registry.upgrade() else {
            return;
        };
        let meter = Arc::new(StopMeter(stop.clone()));
        let round = tokio::task::spawn_blocking(move || {
            // The panic is caught here so that the watch state survives it.
            let round = || with_meter(meter, || state.round(&registry, is_recheck));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(round)) {
                let why = panic_text(panic.as_ref());
                tracing::error!(
                    why,
                    "could not look at the transcripts; some saved turns are not reported"
                );
            }
            state
        });
        // The round may hang in a file system that does not respond.
        let round = tokio::select! {
            biased;
            round = round => round,
            () = stop.cancelled() => return,
        };
        let Ok(again) = round else { return };
        state = again;
    }
}

impl WatchState {
    fn new(watch: TranscriptWatcher) -> Self {
        Self {
            watch,
            started_at: now(),
            files: KnownFiles::default(),
            pending: BTreeMap::new(),
            unreported_turns: BTreeMap::new(),
            excluded: BTreeSet::new(),
            next_recheck: None,
            round: 0,
        }
    }

    /// Checks all changed transcripts, and those that waited for a turn that has ended.
    fn round(&mut self, registry: &Arc<Registry>, is_late: bool) {
        self.round += 1;
        // Taken first: if anything below panics, the recheck is not due again at once.
        let recheck = self.next_recheck.take();
        let changes = self.watch.take_changes();
        registry.note_unwatched(&self.watch);
        let mut changed = Vec::new();
        for changes in changes {
            let of_path = |path: PathBuf| ChangedTranscript {
                root: changes.root.clone(),
                format: changes.format,
                path,
            };
            // Missing files are checked too, so that their state is dropped.
            let missing = |folder: &Path| {
                let missing = self.files.present_below(folder).filter(|path| !path.exists());
                missing.map(Path::to_owned).collect::<Vec<_>>()
            };
            if changes.changes.is_everything {
                let differs = |(path, identity): (PathBuf, FileVersion)| {
                    self.files.differs(&path, &identity).then_some(path)
                };
                let differing = transcript_versions(&changes.root, changes.format).filter_map(differs);
                changed.extend(differing.chain(missing(&changes.root)).map(of_path));
            }
            for folder in &changes.changes.folders {
                let existing = transcript_list::files(folder, changes.format);
                changed.extend(existing.chain(missing(folder)).map(of_path));
            }
            changed.extend(changes.changes.files.into_iter().map(of_path));
        }
        let requested = registry.services.rechecks.take();
        let has_ended = !requested.0.is_empty();
        let again = self.due(requested, is_late);
        changed.extend(again);
        // If all folders are watched, a change event comes, before or after the end of the turn.
        if is_late || (has_ended && !self.watch.is_complete()) {
            let unwatched = self.transcripts_without_event(registry, &changed);
            changed.extend(unwatched);
        }
        // Existing files come first, so that a moved file keeps its known state.
        changed.sort_by_cached_key(|changed| !changed.path.exists());
        self.check_each(changed, |ears, changed| ears.check_transcript(registry, changed));
        self.next_recheck = match recheck {
            _ if has_ended => self.schedule_recheck(0),
            Some((_, number)) if is_late => self.schedule_recheck(number + 1),
            None if self.has_failed_reads() => self.schedule_recheck(0),
            set => set,
        };
        while self.pending.len() > MAX_PENDING_TRANSCRIPTS {
            let rank = |waiting: &PendingTranscript| (waiting.is_owned, waiting.since_round);
            let oldest = self.pending.iter().min_by_key(|(_, waiting)| rank(waiting));
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else {
                return;
            };
            self.pending.remove(&oldest);
        }
    }

    /// Checks the transcripts one by one. A panic on one of them affects only that one.
    fn check_each(
        &mut self,
        changed: Vec<ChangedTranscript>,
        mut look: impl FnMut(&mut Self, ChangedTranscript),
    ) {
        for changed in changed {
            if self.excluded.contains(&changed.path) {
                continue;
            }
            let path = changed.path.clone();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| look(self, changed))) {
                let why = panic_text(panic.as_ref());
                tracing::error!(
                    path = %path.display(), why,
                    "could not look at a transcript; its saved turns are no longer reported"
                );
                self.pending.remove(&path);
                if self.excluded.len() < MAX_EXCLUDED {
                    self.excluded.insert(path);
                }
            }
        }
    }

    /// When to recheck unreported turns and failed reads; none if there are none. `number` indexes [`RECHECK_DELAYS`].
    fn schedule_recheck(&self, number: usize) -> Option<(Instant, usize)> {
        let is_wanted = !self.unreported_turns.is_empty() || self.has_failed_reads();
        let after = RECHECK_DELAYS.get(number).filter(|_| is_wanted)?;
        Some((Instant::now() + *after, number))
    }

    /// Whether a failed read is still to be repeated.
    fn has_failed_reads(&self) -> bool {
        let is_to_repeat =
            |waiting: &PendingTranscript| (1..=RECHECK_DELAYS.len()).contains(&waiting.failed_reads);
        self.pending.values().any(is_to_repeat)
    }

    /// The pending transcripts that are due: their turn has ended, the head has changed, or a read is repeated. Notes the turns
    /// that have ended.
    fn due(&mut self, (requested, all): RequestedRechecks, is_recheck: bool) -> Vec<ChangedTranscript> {
        let is_due = |waiting: &&PendingTranscript| {
            let id = upstream_id(&waiting.changed.path, waiting.changed.format);
            let is_asked = id.is_some_and(|id| requested.contains_key(&id));
            all || is_asked || (is_recheck && waiting.failed_reads > 0)
        };
        let due = self.pending.values().filter(is_due);
        let again = due.map(|waiting| waiting.changed.clone()).collect();
        let owed = requested
            .into_iter()
            .flat_map(|(id, owners)| owners.into_iter().map(move |owner| (id.clone(), owner)));
        let now = Instant::now();
        self.unreported_turns
            .retain(|_, since| now.duration_since(*since) < UNREPORTED_TURN_LIMIT);
        self.unreported_turns.extend(owed.map(|owed| (owed, now)));
        while self.unreported_turns.len() > MAX_UNREPORTED_TURNS {
            let oldest = self.unreported_turns.iter().min_by_key(|(_, since)| **since);
            let Some(oldest) = oldest.map(|(owed, _)| owed.clone()) else {
                break;
            };
            self.unreported_turns.remove(&oldest);
        }
        again
    }

    /// The transcripts of unreported turns for which no change event came: their folder may not be watched.
    fn transcripts_without_event(
        &self,
        registry: &Registry,
        changed: &[ChangedTranscript],
    ) -> Vec<ChangedTranscript> {
        let of_changed = |changed: &ChangedTranscript| upstream_id(&changed.path, changed.format);
        let heard: BTreeSet<UpstreamId> = changed.iter().filter_map(of_changed).collect();
        let unheard = self.unreported_turns.keys().filter(|(id, _)| !heard.contains(id));
        unheard
            .filter_map(|(id, owner)| registry.transcript_of(*owner, id))
            .collect()
    }

    /// Checks one transcript, and notifies its conversations.
    fn check_transcript(&mut self, registry: &Arc<Registry>, changed: ChangedTranscript) {
        self.check_transcript_with(registry, changed, UnsyncedTranscript::open);
    }

    fn check_transcript_with(
        &mut self,
        registry: &Arc<Registry>,
        changed: ChangedTranscript,
        open: impl FnOnce(&ChangedTranscript) -> Option<UnsyncedTranscript>,
    ) {
        let Some(id) = upstream_id(&changed.path, changed.format) else {
            return;
        };
        let owners = registry.owners_of(&changed.root, &id, &self.unreported_turns);
        let is_owned = !owners.is_empty();
        let Ok(metadata) = std::fs::metadata(&changed.path) else {
            match is_owned {
                true => self.files.mark_missing(&changed.path),
                false => self.files.forget(&changed.path),
            }
            self.pending.remove(&changed.path);
            registry.services.index_cache.forget(&changed.path);
            return;
        };
        let (mut seen, comparison) = self.files.take(&changed.path, &id, &FileVersion::of(&metadata));
        if is_owned {
            // After the owners are read: an import, an adoption and a copy note the size before the file gets an owner.
            let old = registry.services.old_bytes.take_length(&id);
            let restored = (comparison == FileComparison::New
                && owners.iter().all(|owner| self.is_from_previous_run(owner)))
            .then_some(seen.bytes);
            seen.judged_bytes = old.or(restored).unwrap_or_default().max(seen.judged_bytes);
            // A turn ended in a file that is shorter than before it was deleted or cut off: it was begun anew, not restored.
            if seen.judged_bytes > seen.bytes && owners.iter().any(|owner| self.has_unreported_turn(owner)) {
                // Unless it was also restored: what a restored file contains is old.
                seen.judged_bytes = old.unwrap_or_default().min(seen.bytes).max(seen.cut_at);
            }
        }
        let before = seen.clone();
        // Opened before it is read, so that the file that is read is the one that is synced.
        let is_to_sync = is_owned && metadata.is_file();
        let transcript = is_to_sync.then(|| open(&changed)).flatten();
        // If the file became shorter, the end of the next turn shows whether it was begun anew.
        let mut is_waiting = !is_owned || seen.judged_bytes > seen.bytes;
        // Nothing is reported as saved that cannot be synced.
        let has_no_sync = is_to_sync && transcript.is_none();
        let mut is_unread = has_no_sync;
        is_waiting |= has_no_sync;
        for owner in owners.into_iter().filter(|_| !has_no_sync) {
            let has_ended = self.has_unreported_turn(&owner);
            let report = |growth: TranscriptGrowth| {
                let unsynced = transcript.clone();
                let unsynced = unsynced.filter(|_| has_ended || !growth.new_checkpoints.is_empty());
                registry.report_when_synced(owner.record.id, growth, unsynced);
            };
            let Some(judgement) = judge(registry, &owner, &changed, &before, comparison, report) else {
                // The transcript may be readable at the next check.
                (is_waiting, is_unread) = (true, true);
                continue;
            };
            is_waiting |= !judgement.is_final;
            seen.judged_bytes = seen.judged_bytes.max(judgement.judged_bytes);
            seen.prompts = judgement.prompts;
            seen.last_reported_prompt = judgement.last_reported_prompt;
            if judgement.is_fully_reported {
                self.unreported_turns.remove(&(id.clone(), owner.record.id));
            }
        }
        self.files.put(&changed.path, seen);
        match is_waiting {
            // A stop interrupts reads; that does not count as a failed read.
            true => self.keep_pending(changed, is_owned, is_unread && !registry.stop.is_cancelled()),
            false => drop(self.pending.remove(&changed.path)),
        }
    }

    /// Has a transcript checked again later. Counts its failed reads, and logs the first of them.
    fn keep_pending(&mut self, changed: ChangedTranscript, is_owned: bool, is_unread: bool) {
        let path = changed.path.clone();
        let before = self.pending.get(&path).map_or(0, |waiting| waiting.failed_reads);
        let failed_reads = if is_unread { before + 1 } else { 0 };
        if failed_reads == 1 {
            tracing::warn!(path = %path.display(), "a changed transcript cannot be read; its saved turns are reported when it can be");
        }
        let waiting = PendingTranscript {
            changed,
            since_round: self.round,
            is_owned,
            failed_reads,
        };
        self.pending.insert(path, waiting);
    }

    /// Whether all turns of a session are from an earlier run of the daemon. If its file appears now, it was restored.
    fn is_from_previous_run(&self, owner: &OwningConversation) -> bool {
        let is_of_before = |link: &Link| link.at < self.started_at && link.written;
        owner.link().is_some_and(is_of_before) && !self.has_unreported_turn(owner)
    }

    /// Whether a turn of this daemon on the session has ended and is not reported yet.
    fn has_unreported_turn(&self, owner: &OwningConversation) -> bool {
        let of_it = |link: &Link| (link.upstream_id.clone(), owner.record.id);
        owner
            .link()
            .is_some_and(|link| self.unreported_turns.contains_key(&of_it(link)))
    }
}

fn upstream_id(path: &Path, format: Format) -> Option<UpstreamId> {
    let name = path.file_name()?.to_str()?;
    format.upstream_id(name).map(UpstreamId::new)
}

/// Logs an error of the store, because no caller receives it.
fn log_store_error<T>(read: Result<T, StoreError>) -> Option<T> {
    let result = read.inspect_err(
        |error| tracing::warn!(%error, "cannot look up which conversation a changed transcript belongs to"),
    );
    result.ok()
}

#[cfg(test)]
pub(super) mod tests;
