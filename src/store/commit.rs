//! Commits: the thread that makes changes durable, and its queue.
//!
//! This module owns the order of a commit: sync the bodies, write and sync the journal lines, apply one batch to the
//! trees together with the journal's position, answer. All queued changes share one write, one sync and one batch.
//! This module does not know how the trees are read.
//!
//! The trees are not synced here. The batch carries the journal's position and is recovered whole or not at all. If
//! trees lost their newest batches, their position shows it, and the next start replays from there. Trees that may
//! have lost anything else are not trusted (see the module `trust`).

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::RECENT_PAGE;
use super::apply::{self, AppliedState, JournalChange, LineageValue, RequestKey, UpstreamOwner};
use super::body::Bodies;
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, JournalCheck};
use super::keyspace::{Keyspace, PAGE_ENTRIES, TreeId, WriteBatch};
use super::open::{self, StoreFiles, StorePaths};
use super::packed;
use super::record::{Change, RECORD_VERSION, RequestRecord, Sequence};
use super::request_memory::{MinimumClock, expired_requests};
use super::shared::Shared;
use super::value::StoredValue;
use crate::files::set_aside;

/// How many changes may be queued. If the queue is full, the store refuses a commit.
///
/// At least as many as the requests that the contract promises to admit at once (256 connections with 64 each). The daemon
/// admits more, and those may be refused here. A change takes a few kilobytes.
pub const COMMIT_QUEUE_LIMIT: usize = 16_384;

/// How many changes are committed together. Enough to share the cost of a sync. sled frees no page while it applies a
/// batch, so larger batches cost memory.
pub(super) const GROUP_LIMIT: usize = 256;

/// The maximum length of the lines that are written at once, in bytes. Further changes go into the next group.
const GROUP_LIMIT_BYTES: usize = 4 << 20;

/// The longest upstream id, in bytes. Ids are UUIDs or short words.
pub const UPSTREAM_ID_LIMIT_BYTES: usize = 1_024;

/// The longest transcript root, in bytes: the longest path on Linux.
const ROOT_LIMIT_BYTES: usize = 4_096;

/// The longest request id, in bytes.
pub const REQUEST_ID_LIMIT_BYTES: usize = 512;

/// Members of a conversation record whose own members may move to bodies one by one.
const CONVERSATION_STRUCTURES: &[&str] = &["settings", "turn", "cut", "continuation", "waiting"];

/// A job for the committing thread.
pub(super) enum Job {
    Commit {
        change: Box<Change>,
        answer: oneshot::Sender<Result<Sequence, StoreError>>,
    },
    /// A reader found that the database has failed.
    DatabaseFailed(StoreError),
    /// A reader found that the journal is damaged.
    RewriteJournal {
        answer: oneshot::Sender<Result<Option<JournalDamage>, StoreError>>,
    },
    Shutdown {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// The damage of a journal that was then rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// The unreadable parts.
    pub damaged: Vec<BadRegion>,
    /// How many changes are in no readable line.
    pub missing: u64,
    /// Path of the damaged file's copy.
    pub copy: PathBuf,
}

/// The state of the committing thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// `None` for a store in memory.
    files: Option<StoreFiles>,
    applied: AppliedState,
    /// Why the trees must not be used: a batch failed in them and they could not be replaced yet.
    unusable_trees: Option<StoreError>,
    /// Set after trees in memory have replaced a failed database.
    fallback: Option<MemoryFallback>,
    /// Whether a change that is being committed requires erasing earlier states from the files.
    erases: bool,
}

/// Trees in memory that replace a failed database until the next start.
struct MemoryFallback {
    /// Whether the journal that they were read from was damaged. The database may still have the missing changes.
    is_incomplete: bool,
}

/// Changes that are written together.
struct Group<'a> {
    keyspace: &'a Keyspace,
    draft: WriteBatch<'a>,
    /// The state of the trees with the group's changes.
    state: AppliedState,
    /// The journal lines of the changes.
    lines: Vec<u8>,
    last_line_bytes: usize,
    /// Why a change was refused for lack of disk space.
    full_disk_error: Option<StoreError>,
    /// How the database failed. No more changes are added then.
    database_error: Option<StoreError>,
}

impl<'a> Group<'a> {
    fn new(keyspace: &'a Keyspace, applied: &AppliedState) -> Self {
        Self {
            keyspace,
            draft: WriteBatch::new(keyspace),
            state: applied.clone(),
            lines: Vec::new(),
            last_line_bytes: 0,
            full_disk_error: None,
            database_error: None,
        }
    }

    /// Adds a change and its line.
    fn add(&mut self, entry: &JournalChange, line: &[u8]) -> Result<(), StoreError> {
        self.state.position.sequence += 1;
        self.last_line_bytes = line.len();
        self.lines.extend_from_slice(line);
        match apply::apply(&mut self.draft, &mut self.state, entry) {
            Err(error) if error.is_database_error() => self.database_error = Some(error),
            applied => applied?,
        }
        Ok(())
    }
}

/// Receives the outcome of a commit.
type CommitReply = oneshot::Sender<Result<Sequence, StoreError>>;

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, files: Option<StoreFiles>, applied: AppliedState) -> Self {
        Self {
            shared,
            files,
            applied,
            unusable_trees: None,
            fallback: None,
            erases: false,
        }
    }

    /// Runs the thread until a shutdown, or until all senders are dropped.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>, now: Option<Timestamp>) {
        // Do this here so that the start need not wait for it. If it fails, a commit tries again.
        if let Some(files) = &mut self.files
            && let Err(error) = files.trust.mark_open()
        {
            tracing::warn!(%error, "cannot mark the store as in use; the next commit retries");
        }
        // Load the pages for the first list, so that no client waits for them.
        let newest = self.shared.read(|view| view.recent_page(None, RECENT_PAGE));
        let elapsed = newest.as_ref().ok().zip(now).map(|(page, now)| {
            let last = page.first().map(|(_, salvaged)| salvaged.record.updated_at);
            MinimumClock::starting_at(last.map_or(now, |last| last.min(now)))
        });
        let mut pruning = elapsed.as_ref().map(|_| Vec::new());
        let oldest_kept = elapsed.as_ref().map_or(0, MinimumClock::oldest_remembered);
        // Cannot fail: nothing else sets it.
        let _is_set = self.shared.minimum_clock.set(elapsed);
        if let Err(error) = newest {
            tracing::warn!(%error, "cannot read the newest conversations");
            self.fail_over_if_database_failed(&error);
        }
        // An earlier run was killed before the erasure was complete, or had no disk space for it.
        if self.applied.is_to_erase {
            self.erase_or_log();
        }
        let (mut stop, mut rewrite) = (None, None);
        while stop.is_none()
            && let Some(first) = queue
                .try_recv()
                .ok()
                .or_else(|| self.prune_until_next_job(&mut pruning, oldest_kept, &mut queue))
        {
            let mut group = Vec::new();
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Commit { change, answer } => group.push((*change, answer)),
                    Job::DatabaseFailed(error) => {
                        self.fail_over_if_database_failed(&error);
                        self.shared.has_reported_failure.store(false, Ordering::Relaxed);
                    }
                    Job::RewriteJournal { answer } => {
                        rewrite = Some(answer);
                        break;
                    }
                    Job::Shutdown { answer } => {
                        stop = Some(answer);
                        break;
                    }
                }
                next = (group.len() < GROUP_LIMIT)
                    .then(|| queue.try_recv().ok())
                    .flatten();
            }
            self.commit(group);
            if let Some(answer) = rewrite.take() {
                // Ignore a dropped caller: the journal is rewritten anyway.
                drop(answer.send(self.rewrite_journal()));
            }
        }
        // Jobs after the shutdown are refused.
        queue.close();
        while let Ok(job) = queue.try_recv() {
            match job {
                Job::Commit { answer, .. } => send_answer(answer, Err(StoreError::Closed)),
                Job::DatabaseFailed(_) => {}
                Job::RewriteJournal { answer } => drop(answer.send(Err(StoreError::Closed))),
                Job::Shutdown { answer } => drop(answer.send(Err(StoreError::Closed))),
            }
        }
        let closed = self.close();
        if let Err(error) = &closed {
            tracing::error!(%error, "the store did not close cleanly; the next start replays or rebuilds it");
        }
        drop(self);
        if let Some(answer) = stop {
            // Ignore a dropped caller: the store is closed anyway.
            drop(answer.send(closed));
        }
    }

    /// Waits for the next job. Meanwhile deletes expired requests, once per run. Without this, the requests of
    /// inactive conversations would never be deleted.
    ///
    /// `pruning` is the key after which to continue; `None` when all requests were checked.
    fn prune_until_next_job(
        &mut self,
        pruning: &mut Option<Vec<u8>>,
        oldest_kept: u64,
        queue: &mut mpsc::Receiver<Job>,
    ) -> Option<Job> {
        while let Some(after) = pruning {
            match self.prune_page(after, oldest_kept) {
                Ok(next) => *pruning = next,
                Err(error) => {
                    tracing::warn!(%error, "cannot delete expired requests; the next start retries");
                    self.fail_over_if_database_failed(&error);
                    *pruning = None;
                }
            }
            if let Ok(job) = queue.try_recv() {
                return Some(job);
            }
        }
        queue.blocking_recv()
    }

    /// Deletes the expired requests of one page. Returns the key of the page's last entry, or `None` after the last
    /// page.
    fn prune_page(&mut self, after: &[u8], oldest_kept: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let from = Bound::Excluded(after);
        let page = packed::page(
            &self.shared.keyspace(),
            TreeId::RequestExpiry,
            from,
            &[],
            PAGE_ENTRIES,
        )?;
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        let old = page
            .iter()
            .filter_map(|(key, _)| apply::read_request_order_key(key).map(|read| (key, read)))
            .filter(|(_, (at, _))| *at < oldest_kept)
            .filter_map(|(key, (_, request_id))| Some((apply::read_request_owner(key)?, request_id)))
            .collect::<Vec<_>>();
        if !old.is_empty() {
            let (answer, mut answered) = oneshot::channel();
            let change = Change {
                requests_removed: old,
                ..Change::default()
            };
            self.commit(vec![(change, answer)]);
            answered.try_recv().unwrap_or(Err(StoreError::Closed))?;
        }
        Ok(Some(last.clone()))
    }

    /// Commits changes together, in order. A change that cannot be encoded fails alone; a failed write fails all of
    /// them.
    pub(super) fn commit(&mut self, group: Vec<(Change, CommitReply)>) {
        let mut waiting: VecDeque<_> = group.into();
        // Whether a change that cannot be refused may be tried again with the trees that replace a failed database.
        let mut may_repeat = true;
        while !waiting.is_empty() {
            let mut answers = Vec::new();
            let outcome = match self
                .unusable_trees
                .clone()
                .map_or(Ok(()), |error| self.fail_over(&error))
            {
                Ok(()) => self.commit_some(&mut waiting, &mut may_repeat, &mut answers),
                Err(error) => {
                    for (_, answer) in waiting.drain(..) {
                        send_answer(answer, Err(error.clone()));
                    }
                    Err(error)
                }
            };
            if let Err(error) = &outcome {
                self.fail_over_if_database_failed(error);
            }
            if outcome.is_ok() && std::mem::take(&mut self.erases) {
                self.erase_or_log();
            }
            let failure = match &outcome {
                Ok(lack) => lack.clone(),
                Err(error) => Some(error.clone()),
            };
            self.shared.update_status(&self.applied, failure);
            for (sequence, answer) in answers {
                send_answer(answer, outcome.clone().map(|_| sequence));
            }
        }
    }

    /// Commits some of the queued changes. Returns the reason if others were refused for lack of disk space.
    fn commit_some(
        &mut self,
        waiting: &mut VecDeque<(Change, CommitReply)>,
        may_retry: &mut bool,
        answers: &mut Vec<(Sequence, CommitReply)>,
    ) -> Result<Option<StoreError>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let keyspace = shared.keyspace();
        let mut group = Group::new(&keyspace, &self.applied);
        while group.lines.len() < GROUP_LIMIT_BYTES
            && group.database_error.is_none()
            && let Some((change, answer)) = waiting.pop_front()
        {
            if change.is_empty() {
                answers.push((Sequence(group.state.position.sequence), answer));
                continue;
            }
            let retry = change.may_use_reserve.then(|| change.clone());
            match self.encode(&group, change) {
                Ok((entry, line)) => {
                    self.erases |= entry.erases;
                    answers.push((Sequence(group.state.position.sequence + 1), answer));
                    group.add(&entry, &line)?;
                }
                // The error is the database's, not this change's. The database is replaced before the next change.
                Err(error) if error.is_database_error() => {
                    match retry.filter(|_| !group.lines.is_empty() || std::mem::take(may_retry)) {
                        Some(change) => waiting.push_front((change, answer)),
                        None => send_answer(answer, Err(error.clone())),
                    }
                    // The changes before it are saved first.
                    group.database_error = Some(error);
                }
                Err(error) => {
                    if error.full_disk_path().is_some() {
                        group.full_disk_error = Some(error.clone());
                    }
                    send_answer(answer, Err(error));
                }
            }
        }
        let Group {
            mut draft,
            mut state,
            lines,
            last_line_bytes,
            full_disk_error,
            database_error,
            ..
        } = group;
        if lines.is_empty() {
            return database_error.map_or(Ok(full_disk_error), Err);
        }
        if let Some(StoreFiles { journal, trust, .. }) = &mut self.files {
            if self.fallback.is_none() {
                trust.mark_open()?;
            }
            journal.append(&lines, state.position.sequence, last_line_bytes)?;
            state.position = journal.position().clone();
        }
        state.write(&mut draft)?;
        let applied = match database_error {
            Some(error) => Err(error),
            None => {
                let _readers_wait = shared
                    .snapshot_lock
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                keyspace.apply(draft.into_writes())
            }
        };
        let before = std::mem::replace(&mut self.applied, state);
        drop(keyspace);
        applied.or_else(|error| self.apply_from_journal(&error, before))?;
        Ok(full_disk_error)
    }

    /// Encodes the group's next change, and its line in the journal. Reserves space for the line, unless the change may use the
    /// reserve.
    fn encode(&mut self, group: &Group<'_>, change: Change) -> Result<(JournalChange, Vec<u8>), StoreError> {
        let next = group.state.position.sequence + 1;
        let may_use_reserve = change.may_use_reserve;
        let entry = prepare(&self.shared, group.keyspace, &group.draft, change, next)?;
        let line = write_line(next, &entry)?;
        if let Some(files) = self.files.as_mut().filter(|_| !may_use_reserve) {
            files.journal.ensure_reserve(group.lines.len() + line.len())?;
        }
        Ok((entry, line))
    }

    /// Called when the database failed after the journal was written. Switches to trees in memory, read from the
    /// journal. If that fails too, removes the lines from the journal, because they are not acknowledged.
    fn apply_from_journal(&mut self, error: &StoreError, before: AppliedState) -> Result<(), StoreError> {
        let Err(failed) = self.fail_over(error) else {
            return Ok(());
        };
        tracing::error!(error = %failed, "the database failed and cannot be replaced");
        // sled may hold a part of the batch in memory.
        self.unusable_trees = Some(error.clone());
        self.applied = before;
        if let Some(StoreFiles { journal, trust, .. }) = &mut self.files {
            if let Err(error) = journal.undo_append(self.applied.position.clone()) {
                tracing::error!(%error, "cannot remove lines that were not applied from the journal");
            }
            if let Err(error) = trust.revoke_trust() {
                tracing::error!(%error, "cannot mark the database as untrusted");
            }
        }
        Err(failed)
    }

    /// Switches to trees in memory if the error is the database's.
    fn fail_over_if_database_failed(&mut self, error: &StoreError) {
        if error.is_database_error()
            && self.fallback.is_none()
            && let Err(error) = self.fail_over(error)
        {
            tracing::error!(%error, "the database failed and cannot be replaced");
        }
    }

    /// Replaces a failed database with trees in memory, read from the journal. Until the next start rebuilds the
    /// database, all stored data is in memory.
    fn fail_over(&mut self, error: &StoreError) -> Result<(), StoreError> {
        let (Some(files), None) = (&mut self.files, &self.fallback) else {
            return Err(error.clone());
        };
        let StoreFiles {
            journal,
            trust,
            paths,
        } = files;
        journal.remove_leftover()?;
        let trees = Keyspace::in_memory();
        let filled = open::fill_from_journal(&paths.journal, &trees)?;
        if !filled.applied.position.is_at(journal.position()) {
            return Err(error.clone());
        }
        trust.revoke_trust()?;
        tracing::error!(
            %error,
            "the database failed; reading from memory until the next start rebuilds it; changes are still saved in the journal"
        );
        self.applied = filled.applied;
        self.shared.use_fallback(trees, error.clone());
        self.unusable_trees = None;
        self.fallback = Some(MemoryFallback {
            is_incomplete: filled.is_damaged,
        });
        Ok(())
    }

    /// Rewrites a damaged journal from the trees, which have every acknowledged change. Keeps a copy of the damaged
    /// file.
    ///
    /// If the new journal cannot be put in place, nothing has changed. If it is in place but cannot be opened, the
    /// next change finds that the open file was replaced, and is refused.
    fn rewrite_journal(&mut self) -> Result<Option<JournalDamage>, StoreError> {
        let Some(files) = &mut self.files else {
            return Ok(None);
        };
        let StoreFiles {
            journal,
            trust,
            paths,
        } = files;
        if let Some(error) = &self.unusable_trees {
            return Err(error.clone());
        }
        if self.fallback.as_ref().is_some_and(|trees| trees.is_incomplete) {
            // The changes that the journal lost are only in the failed database. The next start reads it.
            return Err(StoreError::BothDamaged {
                path: paths.journal.clone(),
            });
        }
        journal.remove_leftover()?;
        let position = journal.position();
        let check = journal::verify(&paths.journal, position.end_offset, position.sequence)?;
        if check == JournalCheck::default() {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        let keyspace = shared.keyspace();
        // The trees are the state at the beginning of the new journal.
        keyspace.sync()?;
        if self.fallback.is_none() {
            trust.mark_open()?;
        }
        // Write the journal first: if there is no room for it, no copy is made either.
        let renewed = compact::write(&paths.journal, &keyspace, &self.applied)?;
        let kept = open::copy_aside(&paths.journal, open::DAMAGED_JOURNAL)?;
        let (renewed, state, _) = renewed.put_in_place()?;
        *journal = renewed;
        self.applied = state;
        journal.sync_name()?;
        journal.try_ensure_reserve();
        if let Err(error) = compact::record_position(&keyspace, &self.applied) {
            tracing::warn!(%error, "the database does not record the rewritten journal yet");
        }
        self.shared.update_status(&self.applied, None);
        tracing::warn!(kept = %kept.display(), "rewrote the damaged journal from the database");
        Ok(Some(JournalDamage {
            damaged: check.damaged,
            missing: check.missing,
            copy: kept,
        }))
    }

    fn erase_or_log(&mut self) {
        let failure = self.erase().err();
        // Turns may be running, so reserve room for their ends. The replaced journal no longer takes space.
        if let Some(files) = &mut self.files {
            files.journal.try_ensure_reserve();
        }
        if let Some(error) = &failure {
            tracing::error!(
                %error,
                "what was deleted may still be in the files of the store; the next start tries again"
            );
        }
        self.shared.set_erasure_failure(failure);
    }

    /// Rewrites journal and database, so that their files contain only the current data. Deletes replaced databases and
    /// unreferenced bodies.
    ///
    /// # Errors
    /// [`StoreError::SetAsideFilesRemain`] if set-aside files remain that may be the only copy of something. The rest is erased.
    fn erase(&mut self) -> Result<(), StoreError> {
        let Some(files) = &mut self.files else {
            self.applied.is_to_erase = false;
            return Ok(());
        };
        let StoreFiles {
            journal,
            trust,
            paths,
        } = files;
        if let Some(error) = &self.unusable_trees {
            return Err(error.clone());
        }
        let shared = Arc::clone(&self.shared);
        if let Some(error) = shared.status().database_failure {
            // The next start sets the failed database aside.
            return Err(error);
        }
        journal.remove_leftover()?;
        trust.mark_open()?;
        // Remove these first, to make room for the copies.
        let mut outcome = open::remove_replaced(&paths.journal);
        let opened = {
            let keyspace = shared.keyspace();
            // The trees are the state at the beginning of the new journal.
            keyspace.sync()?;
            let journal_text = compact::write(&paths.journal, &keyspace, &self.applied)?;
            let renewed = open::DatabaseCopy::copy(paths, &keyspace)?;
            let (renewed_journal, state, named) = journal_text.put_in_place()?;
            *journal = renewed_journal;
            self.applied = state;
            journal.sync_name()?;
            // If a kill comes here, the next start uses the old database and erases again.
            compact::record_position(&keyspace, &self.applied)?;
            if let Some(bodies) = &shared.bodies {
                let _readers_wait = shared
                    .snapshot_lock
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                outcome = outcome.and(remove_erased_bodies(paths, bodies, &named));
            }
            let erased = AppliedState {
                is_to_erase: outcome.is_err(),
                ..self.applied.clone()
            };
            renewed.put_in_place(&erased)?
        };
        drop(shared.replace_database(opened));
        open::remove_unfinished(paths)?;
        self.applied.is_to_erase = outcome.is_err();
        shared.update_status(&self.applied, None);
        outcome
    }

    fn close(&mut self) -> Result<(), StoreError> {
        if let Some(error) = &self.unusable_trees {
            return Err(error.clone());
        }
        if self.fallback.is_some() {
            return Ok(());
        }
        self.shared.keyspace().sync()?;
        let sequence = self.applied.position.sequence;
        self.files
            .as_mut()
            .map_or(Ok(()), |files| files.trust.mark_closed(sequence))
    }
}

/// Removes the bodies that are not in `named`, unless a set-aside file may reference them.
///
/// # Errors
/// [`StoreError::SetAsideFilesRemain`] if set-aside files may still contain the erased data.
fn remove_erased_bodies(
    paths: &StorePaths,
    bodies: &Bodies,
    named: &HashSet<String>,
) -> Result<(), StoreError> {
    let set_aside_files = open::damaged_files(&paths.journal)?.into_iter();
    let mut set_aside_files: Vec<PathBuf> = set_aside_files.map(|(_, path)| path).collect();
    if set_aside_files.is_empty() {
        bodies.remove_unreferenced(named)?;
    }
    let damaged =
        set_aside::set_aside_files_in(&paths.bodies).map_err(StoreError::io("list", &paths.bodies))?;
    set_aside_files.extend(damaged);
    match set_aside_files.is_empty() {
        true => Ok(()),
        false => Err(StoreError::SetAsideFilesRemain {
            paths: set_aside_files,
        }),
    }
}

/// Checks the change with the number `next` and encodes its values, bodies included. Does not change the trees.
fn prepare(
    shared: &Shared,
    keyspace: &Keyspace,
    draft: &WriteBatch<'_>,
    change: Change,
    next: u64,
) -> Result<JournalChange, StoreError> {
    let bodies = shared.bodies.as_ref();
    let must_fit = change.may_use_reserve;
    let mut entry = JournalChange::default();
    if let Some(mut record) = change.conversation {
        let stored = apply::conversation_header(draft, record.id)?;
        let version = stored.as_ref().map_or(0, |header| header.version);
        let newest = version.max(record.version);
        if newest > RECORD_VERSION {
            return Err(StoreError::NewerRecord {
                id: record.id,
                version: newest,
            });
        }
        record.version = RECORD_VERSION;
        record.order = stored
            .as_ref()
            .map_or(next, |stored| stored.order_of(&record, next));
        record.created_order = stored.map_or(next, |stored| stored.created_order);
        let value = StoredValue::encode("conversation", &record, CONVERSATION_STRUCTURES, bodies, must_fit)?;
        entry.conversations.push(value);
    }
    for (id, mut lineage) in change.lineage {
        // Do not store it: readers derive it from the chain.
        lineage.in_chain = false;
        entry.lineage.push(LineageValue {
            id,
            seq: lineage.seq,
            value: StoredValue::encode("lineage entry", &lineage, &[], bodies, must_fit)?,
        });
    }
    for (id, root, upstream_id) in change.upstream {
        check_length("upstream id", upstream_id.as_str(), UPSTREAM_ID_LIMIT_BYTES)?;
        check_length("transcript root", root.as_str(), ROOT_LIMIT_BYTES)?;
        if upstream_id.as_str().contains('\0') || root.as_str().contains('\0') {
            return Err(StoreError::NulInKey);
        }
        entry.upstream.push(UpstreamOwner {
            upstream_id,
            root,
            id,
        });
    }
    for request in &change.requests {
        check_length("request id", request.request_id.as_str(), REQUEST_ID_LIMIT_BYTES)?;
        entry.requests.push(request_value(request, bodies, must_fit)?);
    }
    let elapsed = shared.minimum_clock.get().and_then(Option::as_ref);
    let oldest_kept = elapsed.map(MinimumClock::oldest_remembered);
    entry.requests_removed = expired_requests(keyspace, &change.requests, oldest_kept)?;
    let removed = change.requests_removed.into_iter();
    entry
        .requests_removed
        .extend(removed.map(|(conversation_id, request_id)| RequestKey {
            conversation_id,
            request_id,
        }));
    entry.processes = change.processes_put;
    entry.processes_removed = change.processes_removed;
    entry.erases = change.erases;
    Ok(entry)
}

/// Encodes a request, with its short result if it `must_fit` and no file can hold the whole one.
fn request_value(
    request: &RequestRecord,
    bodies: Option<&Bodies>,
    must_fit: bool,
) -> Result<StoredValue, StoreError> {
    let encode =
        |request: &RequestRecord, must_fit| StoredValue::encode("request", request, &[], bodies, must_fit);
    match &request.short_result {
        Some(short) if must_fit => encode(request, false).or_else(|_| {
            let request = RequestRecord {
                result: Some(short.clone()),
                ..request.clone()
            };
            encode(&request, true)
        }),
        _ => encode(request, must_fit),
    }
}

/// Encodes the journal line of a change.
fn write_line(sequence: u64, entry: &JournalChange) -> Result<Vec<u8>, StoreError> {
    let change = serde_json::to_string(entry).map_err(StoreError::unwritable("change"))?;
    let line = journal::encode_line(sequence, &change);
    if line.len() > journal::LINE_LIMIT_BYTES {
        return Err(StoreError::TooLarge {
            what: "change",
            bytes: line.len(),
            limit_bytes: journal::LINE_LIMIT_BYTES,
        });
    }
    Ok(line)
}

fn check_length(what: &'static str, text: &str, limit_bytes: usize) -> Result<(), StoreError> {
    if text.len() > limit_bytes {
        return Err(StoreError::TooLarge {
            what,
            bytes: text.len(),
            limit_bytes,
        });
    }
    Ok(())
}

fn send_answer(answer: CommitReply, outcome: Result<Sequence, StoreError>) {
    // Ignore a dropped caller: the outcome does not change.
    drop(answer.send(outcome));
}

#[cfg(test)]
mod tests;
