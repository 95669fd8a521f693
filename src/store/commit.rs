//! Committing: the thread that makes changes durable, and the line in front of it.
//!
//! This module owns the order of a commit: bodies synced, journal lines written and synced, one batch applied to the
//! trees together with the journal's position, answer given. Whatever waits is taken together: one write, one sync, one
//! batch. It must not know how the trees are read.
//!
//! The trees are not synced here. That is sound because the batch carries the journal's position and is recovered whole
//! or not at all: trees that lost their newest batches say so by their position, and the start replays from there; trees
//! that may have lost anything else are not believed (see the module `trust`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bridge_protocol::ConversationId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::apply::{self, Entry, Held, LineageValue, Mark, RequestKey};
use super::compact;
use super::error::StoreError;
use super::journal::{self, BadRegion, Journal, Verified};
use super::keyspace::{Draft, Keyspace, PAGE_ENTRIES, Space};
use super::open::{self, Places};
use super::packed;
use super::record::{Change, RECORD_VERSION, RequestRecord, Sequence};
use super::shared::Shared;
use super::trust::Trust;
use super::value::Value;

/// How many changes may wait to be made durable; past it a commit is refused.
///
/// As many as the requests that the daemon admits at once at least (256 connections with 64 each): one that was let in is
/// not turned away here. A change is some kilobytes.
pub const COMMIT_LINE_LIMIT: usize = 16_384;

/// How many changes are made durable together. Enough to share the cost of a sync; sled frees no page while it applies
/// a batch, so larger ones cost memory.
pub(super) const GROUP_LIMIT: usize = 256;

/// How many conversations a first look at the list shows.
const FIRST_LIST: usize = 64;

/// How many bytes of lines are written at once; what waits beyond that is the next group.
const GROUP_LIMIT_BYTES: usize = 4 << 20;

/// For how many days a request is remembered.
pub const REQUEST_MEMORY_DAYS: u64 = 7;

/// The same in microseconds.
const MEMORY_MICROSECONDS: u64 = REQUEST_MEMORY_DAYS * 24 * 60 * 60 * 1_000_000;

/// How many requests of one conversation are remembered.
pub const REQUEST_MEMORY_COUNT: usize = 1_000;

/// The longest upstream id, in bytes. Ids are uuids or short words; an agent that sends more sends no id.
pub const UPSTREAM_ID_LIMIT_BYTES: usize = 1_024;

/// The longest transcript root, in bytes: the longest path on Linux.
const ROOT_LIMIT_BYTES: usize = 4_096;

/// The longest request id, in bytes.
pub const REQUEST_ID_LIMIT_BYTES: usize = 512;

/// Members of a conversation record that are structures of ours.
const CONVERSATION_STRUCTURES: &[&str] = &["settings", "turn", "cut", "continuation", "waiting"];

/// One thing for the thread to do.
pub(super) enum Job {
    Commit {
        change: Box<Change>,
        answer: oneshot::Sender<Result<Sequence, StoreError>>,
    },
    /// A reader found that the database has failed.
    Failed(StoreError),
    /// A reader found that the journal is damaged.
    Renew {
        answer: oneshot::Sender<Result<Option<JournalDamage>, StoreError>>,
    },
    Shutdown {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// What could not be read any more of a journal that was written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// The parts that are no good lines.
    pub damaged: Vec<BadRegion>,
    /// Changes that no good line has.
    pub missing: u64,
    /// Where the damaged file is kept.
    pub kept: PathBuf,
}

/// Everything that only the thread changes.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// None in memory.
    journal: Option<Journal>,
    trust: Option<Trust>,
    mark: Mark,
    /// None in memory.
    places: Option<Places>,
    /// Why the trees must not be built upon any more: a batch has failed in them, and they could not be replaced yet.
    broken: Option<StoreError>,
    /// Whether trees in memory have taken the place of a database that failed.
    stands_in: Option<StandIn>,
}

/// Trees in memory that serve until the next start.
struct StandIn {
    /// Whether the journal that they were read from had lost something, which the database may still have.
    is_incomplete: bool,
}

/// Where one answer goes.
type Answer = oneshot::Sender<Result<Sequence, StoreError>>;

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        journal: Option<Journal>,
        trust: Option<Trust>,
        mark: Mark,
        places: Option<Places>,
    ) -> Self {
        Self {
            shared,
            journal,
            trust,
            mark,
            places,
            broken: None,
            stands_in: None,
        }
    }

    /// The thread's whole life: until it is told to stop, or until nobody is left who could ask.
    pub(super) fn run(mut self, mut line: mpsc::Receiver<Job>, now: Option<Timestamp>) {
        // Done here, off the path of the start; a commit that comes before it succeeded tries again.
        if let Some(trust) = &mut self.trust
            && let Err(error) = trust.mark_open()
        {
            tracing::warn!(%error, "the store cannot be marked as in use yet");
        }
        // Brings the pages that the first list asks for into memory, so that nobody waits for them.
        if let Err(error) = self.shared.recent_page(None, FIRST_LIST) {
            tracing::warn!(%error, "the newest conversations cannot be read");
            self.heed(&error);
        }
        let (mut stop, mut renewal) = (None, None);
        let oldest_kept = now.map_or(0, |now| apply::ascending(now).saturating_sub(MEMORY_MICROSECONDS));
        let mut pruning = now.map(|_| Vec::new());
        while stop.is_none()
            && let Some(first) = line
                .try_recv()
                .ok()
                .or_else(|| self.prune_until_called(&mut pruning, oldest_kept, &mut line))
        {
            let mut group = Vec::new();
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Commit { change, answer } => group.push((*change, answer)),
                    Job::Failed(error) => {
                        self.heed(&error);
                        self.shared.is_failing.store(false, Ordering::Relaxed);
                    }
                    Job::Renew { answer } => {
                        renewal = Some(answer);
                        break;
                    }
                    Job::Shutdown { answer } => {
                        stop = Some(answer);
                        break;
                    }
                }
                next = (group.len() < GROUP_LIMIT)
                    .then(|| line.try_recv().ok())
                    .flatten();
            }
            self.commit(group);
            if let Some(answer) = renewal.take() {
                // Who asked may be gone; it is written anew all the same.
                drop(answer.send(self.renew()));
            }
        }
        // Whoever waits in line behind a stop is told so.
        line.close();
        while let Ok(job) = line.try_recv() {
            match job {
                Job::Commit { answer, .. } => give(answer, Err(StoreError::Closed)),
                Job::Failed(_) => {}
                Job::Renew { answer } => drop(answer.send(Err(StoreError::Closed))),
                Job::Shutdown { answer } => drop(answer.send(Err(StoreError::Closed))),
            }
        }
        let closed = self.close();
        if let Err(error) = &closed {
            tracing::error!(%error, "the store did not close cleanly; its next start replays or rebuilds");
        }
        drop(self);
        if let Some(answer) = stop {
            // Who asked for the stop may be gone; the store is closed all the same.
            drop(answer.send(closed));
        }
    }

    /// Waits for the next job, and meanwhile forgets requests past their time, once a life: those of a conversation to
    /// which no further ones come would stay for ever.
    ///
    /// `pruning` is the key behind which to go on; none once all were seen.
    fn prune_until_called(
        &mut self,
        pruning: &mut Option<Vec<u8>>,
        oldest_kept: u64,
        line: &mut mpsc::Receiver<Job>,
    ) -> Option<Job> {
        while let Some(after) = pruning {
            match self.prune_some(after, oldest_kept) {
                Ok(next) => *pruning = next,
                Err(error) => {
                    tracing::warn!(%error, "requests past their time stay until the next start");
                    self.heed(&error);
                    *pruning = None;
                }
            }
            if let Ok(job) = line.try_recv() {
                return Some(job);
            }
        }
        line.blocking_recv()
    }

    /// Forgets those past their time of one page of requests. Gives the key of the last; none when there were no more.
    fn prune_some(&mut self, after: &[u8], oldest_kept: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let from = Bound::Excluded(after);
        let page = packed::page(&self.shared.keyspace(), Space::TurnOrder, from, &[], PAGE_ENTRIES)?;
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

    /// Makes changes durable together, in their order. A change that cannot be written down fails alone; what fails in
    /// writing fails for all.
    pub(super) fn commit(&mut self, group: Vec<(Change, Answer)>) {
        let mut waiting = group.into_iter();
        while waiting.len() > 0 {
            let mut answers = Vec::new();
            let outcome = match self.broken.clone().map_or(Ok(()), |error| self.fail_over(&error)) {
                Ok(()) => self.commit_some(&mut waiting, &mut answers),
                Err(error) => {
                    for (_, answer) in waiting.by_ref() {
                        give(answer, Err(error.clone()));
                    }
                    Err(error)
                }
            };
            if let Err(error) = &outcome {
                self.heed(error);
            }
            let failure = outcome.as_ref().err().cloned();
            self.shared.set_figures(&self.mark, failure);
            for (sequence, answer) in answers {
                give(answer, outcome.clone().map(|()| sequence));
            }
        }
    }

    fn commit_some(
        &mut self,
        waiting: &mut impl Iterator<Item = (Change, Answer)>,
        answers: &mut Vec<(Sequence, Answer)>,
    ) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let keyspace = shared.keyspace();
        let mut draft = Draft::over(&keyspace);
        let mut mark = self.mark.clone();
        let mut lines: Vec<u8> = Vec::new();
        let mut last_line_bytes = 0;
        while lines.len() < GROUP_LIMIT_BYTES
            && let Some((change, answer)) = waiting.next()
        {
            if change.is_empty() {
                answers.push((Sequence(mark.position.sequence), answer));
                continue;
            }
            let next = mark.position.sequence + 1;
            let prepared = prepare(&shared, &keyspace, &draft, change).and_then(|entry| {
                let line = write_line(next, &entry)?;
                Ok((entry, line))
            });
            match prepared {
                Ok((entry, line)) => {
                    mark.position.sequence = next;
                    answers.push((Sequence(next), answer));
                    apply::apply(&mut draft, &mut mark, &entry)?;
                    last_line_bytes = line.len();
                    lines.extend_from_slice(&line);
                }
                // Not this change but the database, which is replaced before the next one.
                Err(error) if error.is_of_database() => {
                    give(answer, Err(error.clone()));
                    return Err(error);
                }
                Err(error) => give(answer, Err(error)),
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        if let (Some(trust), None) = (&mut self.trust, &self.stands_in) {
            trust.mark_open()?;
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&lines, mark.position.sequence, last_line_bytes)?;
            mark.position = journal.position().clone();
        }
        mark.write(&mut draft)?;
        let applied = {
            let _readers_wait = shared.consistent.write().unwrap_or_else(PoisonError::into_inner);
            keyspace.apply(draft.into_writes())
        };
        let before = std::mem::replace(&mut self.mark, mark);
        drop(keyspace);
        applied.or_else(|error| self.journal_alone(&error, before))
    }

    /// The database failed after the journal had the lines: trees that are read from the journal carry them out. Where that fails
    /// too, the lines are taken back, since they are not acknowledged then.
    fn journal_alone(&mut self, error: &StoreError, before: Mark) -> Result<(), StoreError> {
        let Err(failed) = self.fail_over(error) else {
            return Ok(());
        };
        tracing::error!(error = %failed, "the database has failed and cannot be replaced");
        // A part of the batch may be in its memory.
        self.broken = Some(error.clone());
        self.mark = before;
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.take_back(self.mark.position.clone())
        {
            tracing::error!(%error, "lines that were not carried out stay in the journal");
        }
        if let Some(trust) = &mut self.trust
            && let Err(error) = trust.revoke()
        {
            tracing::error!(%error, "the database cannot be marked as not to be believed");
        }
        Err(failed)
    }

    /// Sees to what failed: where it is the database, the journal is used without it.
    fn heed(&mut self, error: &StoreError) {
        if error.is_of_database()
            && self.stands_in.is_none()
            && let Err(error) = self.fail_over(error)
        {
            tracing::error!(%error, "the database has failed and cannot be replaced");
        }
    }

    /// Puts trees in memory, read from the journal, in the place of a database that failed. They take as much memory as everything
    /// that is stored, until the next start rebuilds the database.
    fn fail_over(&mut self, error: &StoreError) -> Result<(), StoreError> {
        let (Some(journal), Some(trust), Some(places), None) =
            (&mut self.journal, &mut self.trust, &self.places, &self.stands_in)
        else {
            return Err(error.clone());
        };
        journal.settle()?;
        let trees = Keyspace::in_memory();
        let filled = open::fill(&places.journal, &trees)?;
        if !filled.mark.position.is_at(journal.position()) {
            return Err(error.clone());
        }
        trust.revoke()?;
        tracing::error!(
            %error,
            "the database has failed; everything is read from memory until the next start rebuilds it, and changes are kept in the journal"
        );
        self.mark = filled.mark;
        self.shared.stand_in(trees, error.clone());
        self.broken = None;
        self.stands_in = Some(StandIn {
            is_incomplete: filled.is_damaged,
        });
        Ok(())
    }

    /// Writes a journal of which a part cannot be read any more anew from the trees, which hold all that was acknowledged, and
    /// keeps the damaged one. Where one that follows is not put in place, nothing has changed; where it cannot be opened then, the
    /// next change finds the old one without a name, and is refused.
    fn renew(&mut self) -> Result<Option<JournalDamage>, StoreError> {
        let (Some(journal), Some(trust), Some(places)) = (&mut self.journal, &mut self.trust, &self.places)
        else {
            return Ok(None);
        };
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.stands_in.as_ref().is_some_and(|trees| trees.is_incomplete) {
            // What the journal has lost is in the database only, which the next start reads.
            return Err(StoreError::BothDamaged {
                path: places.journal.clone(),
            });
        }
        journal.settle()?;
        let position = journal.position();
        let found = journal::verify(&places.journal, position.end_offset, position.sequence)?;
        if found == Verified::default() {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        let keyspace = shared.keyspace();
        // The trees are a state of the new journal from the beginning.
        keyspace.sync()?;
        if self.stands_in.is_none() {
            trust.mark_open()?;
        }
        // Written first: where there is no room for it, nothing is kept aside either.
        let renewed = compact::write(&places.journal, &keyspace, &self.mark)?;
        let kept = open::keep_aside(&places.journal, open::DAMAGED)?;
        let (mark, _) = renewed.put_in_place()?;
        *journal = Journal::open(&places.journal, mark.position.clone())?;
        self.mark = mark;
        if let Err(error) = compact::adopt(&keyspace, &self.mark) {
            tracing::warn!(%error, "the database does not know yet that the journal is another one");
        }
        self.shared.set_figures(&self.mark, None);
        tracing::warn!(kept = %kept.display(), "the journal was damaged, and was written anew from the database");
        Ok(Some(JournalDamage {
            damaged: found.damaged,
            missing: found.missing,
            kept,
        }))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.stands_in.is_some() {
            return Ok(());
        }
        self.shared.keyspace().sync()?;
        let sequence = self.mark.position.sequence;
        self.trust
            .as_mut()
            .map_or(Ok(()), |trust| trust.mark_closed(sequence))
    }
}

/// Checks a change and writes its values down, bodies included. Nothing is changed in the trees.
fn prepare(
    shared: &Shared,
    keyspace: &Keyspace,
    draft: &Draft<'_>,
    change: Change,
) -> Result<Entry, StoreError> {
    let bodies = shared.bodies.as_ref();
    let mut entry = Entry::default();
    if let Some(mut record) = change.conversation {
        let stored = apply::conversation_header(draft, record.id)?.map_or(0, |header| header.version);
        let newest = stored.max(record.version);
        if newest > RECORD_VERSION {
            return Err(StoreError::NewerRecord {
                id: record.id,
                version: newest,
            });
        }
        record.version = RECORD_VERSION;
        let value = Value::of("conversation", &record, CONVERSATION_STRUCTURES, bodies)?;
        entry.conversations.push(value);
    }
    for (id, mut lineage) in change.lineage {
        // It follows from the chain at the time of reading.
        lineage.in_chain = false;
        entry.lineage.push(LineageValue {
            id,
            seq: lineage.seq,
            value: Value::of("lineage entry", &lineage, &[], bodies)?,
        });
    }
    for (id, root, upstream_id) in change.upstream {
        check_length("upstream id", upstream_id.as_str(), UPSTREAM_ID_LIMIT_BYTES)?;
        check_length("transcript root", root.as_str(), ROOT_LIMIT_BYTES)?;
        if upstream_id.as_str().contains('\0') || root.as_str().contains('\0') {
            return Err(StoreError::NulInKey);
        }
        entry.upstream.push(Held {
            upstream_id,
            root,
            id,
        });
    }
    for request in &change.requests {
        check_length("request id", request.request_id.as_str(), REQUEST_ID_LIMIT_BYTES)?;
        entry.requests.push(Value::of("request", request, &[], bodies)?);
    }
    entry.requests_removed = forgotten(keyspace, &change.requests)?;
    let removed = change.requests_removed.into_iter();
    entry
        .requests_removed
        .extend(removed.map(|(conversation_id, request_id)| RequestKey {
            conversation_id,
            request_id,
        }));
    entry.processes = change.processes_put;
    entry.processes_removed = change.processes_removed;
    Ok(entry)
}

/// The requests that are forgotten as these come: those past their time, by the newcomers' time, and the oldest past
/// the count. It is part of the change, so that a replay forgets the same ones.
fn forgotten(keyspace: &Keyspace, requests: &[RequestRecord]) -> Result<Vec<RequestKey>, StoreError> {
    let conversations: BTreeSet<Option<ConversationId>> =
        requests.iter().map(|request| request.conversation_id).collect();
    let mut forgotten = Vec::new();
    for conversation_id in conversations {
        let new: Vec<&RequestRecord> = requests
            .iter()
            .filter(|request| request.conversation_id == conversation_id)
            .collect();
        let newest = new.iter().map(|request| apply::ascending(request.at)).max();
        let oldest_kept = newest.unwrap_or_default().saturating_sub(MEMORY_MICROSECONDS);
        let prefix = apply::request_prefix(conversation_id);
        // One page holds all: no conversation ever has more than this beyond its count.
        let limit = REQUEST_MEMORY_COUNT + GROUP_LIMIT;
        let known = packed::page(
            keyspace,
            Space::TurnOrder,
            Bound::Included(&prefix),
            &prefix,
            limit,
        )?;
        let known: Vec<_> = known
            .into_iter()
            .filter_map(|(key, _)| apply::read_request_order_key(&key))
            .filter(|(_, request_id)| new.iter().all(|request| request.request_id != *request_id))
            .collect();
        let too_many = (known.len() + new.len()).saturating_sub(REQUEST_MEMORY_COUNT);
        let leaving = known
            .into_iter()
            .enumerate()
            .filter(|(index, (at, _))| *index < too_many || *at < oldest_kept);
        forgotten.extend(leaving.map(|(_, (_, request_id))| RequestKey {
            conversation_id,
            request_id,
        }));
    }
    Ok(forgotten)
}

/// The journal's line of a change.
fn write_line(sequence: u64, entry: &Entry) -> Result<Vec<u8>, StoreError> {
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

fn give(answer: Answer, outcome: Result<Sequence, StoreError>) {
    // Who asked may be gone; the change stands or fell all the same.
    drop(answer.send(outcome));
}

#[cfg(test)]
mod tests;
