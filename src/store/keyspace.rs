//! Ordered trees of bytes that change together: sled on disk, or maps in memory for an ephemeral store.
//!
//! This module owns the choice between the two, and the atomicity of a batch. It does not know what the bytes mean.
//!
//! A batch over several sled trees is one sled transaction. sled 0.34 serializes transactions behind one lock, pins
//! its log while it applies the writes, and seals them with a manifest, so that recovery takes all of them or none.
//! Each insert reads the old value first; the caller has it in the cache anyway. Nothing is synced here: the journal
//! is synced first, and what sled loses in a power failure is replayed from it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sled::Transactional as _;
use sled::transaction::{ConflictableTransactionError, TransactionError};

use super::error::StoreError;
use crate::files::entries;

/// Cache size for sled's pages, in bytes. At the lower end of what sled allows, because pages take more memory than
/// sled counts.
const CACHE_BYTES: u64 = 8 << 20;

/// Cache size while a database is filled from the journal, in bytes. Random keys touch all pages repeatedly, and
/// reading them back would take most of the time. The memory is freed once the database is full.
const FILLING_CACHE_BYTES: u64 = 64 << 20;

/// How long sled may buffer writes, in milliseconds.
///
/// Nothing waits for it, because the journal is what makes changes durable. The interval only limits how much a start
/// has to replay.
const FLUSH_EVERY_MS: u64 = 1_000;

/// The size of sled's segments, in bytes. sled moves a page of more than a quarter of it to a file that it never
/// syncs. A page holds at most 17 values, none over [`super::VALUE_LIMIT_BYTES`].
const SEGMENT_BYTES: usize = 1 << 20;

/// How many entries are read at once when iterating over a tree.
pub(super) const PAGE_ENTRIES: usize = 256;

/// The name of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TreeId {
    /// Conversation id → record.
    Conversations,
    /// Packed: upstream id, root, conversation id.
    Upstream,
    /// Packed: conversation id, seq → entry.
    Lineage,
    /// Conversation id (or zeroes), request id → request record.
    Requests,
    /// Packed: conversation id (or zeroes), time, request id. The order in which each conversation's requests expire.
    RequestExpiry,
    /// Mark → process record.
    Processes,
    /// Packed: inverted number (or time) of the last change, conversation id → summary.
    Recent,
    /// Ids of the conversations that a start must handle, because they are not idle.
    Unfinished,
    /// The format and the position in the journal.
    Meta,
}

impl TreeId {
    /// All trees, in the order of their numbers.
    pub(super) const ALL: [Self; 9] = [
        Self::Conversations,
        Self::Upstream,
        Self::Lineage,
        Self::Requests,
        Self::RequestExpiry,
        Self::Processes,
        Self::Recent,
        Self::Unfinished,
        Self::Meta,
    ];

    /// Whether the tree's values are chunks of packed entries.
    pub(super) fn is_packed(self) -> bool {
        matches!(
            self,
            Self::Upstream | Self::Lineage | Self::RequestExpiry | Self::Recent
        )
    }

    /// Returns the tree's name on disk.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conversations => "conversations",
            Self::Upstream => "upstream",
            Self::Lineage => "lineage",
            Self::Requests => "turns",
            Self::RequestExpiry => "turnOrder",
            Self::Processes => "processes",
            Self::Recent => "recent",
            Self::Unfinished => "unfinished",
            Self::Meta => "meta",
        }
    }
}

/// A key and its value.
pub(super) type KeyValue = (Vec<u8>, Vec<u8>);

/// New values of keys; `None` removes the key.
pub(super) type Writes = BTreeMap<(TreeId, Vec<u8>), Option<Vec<u8>>>;

/// All trees in one map.
type MemoryTrees = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

/// Reads pages, each after the last key of the previous one, and passes them to `each` until one is empty.
pub(super) fn each_page(
    mut page: impl FnMut(Bound<&[u8]>) -> Result<Vec<KeyValue>, StoreError>,
    mut each: impl FnMut(Vec<KeyValue>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let pairs = page(last.as_deref().map_or(Bound::Unbounded, Bound::Excluded))?;
        let Some((key, _)) = pairs.last() else {
            return Ok(());
        };
        last = Some(key.clone());
        each(pairs)?;
    }
}

/// All trees of one store.
pub(super) enum Keyspace {
    /// On disk.
    Sled(SledTrees),
    /// In memory.
    Memory(RwLock<MemoryTrees>),
    /// Fails all writes. Fails reads too if it has no inner keyspace.
    #[cfg(test)]
    Failing(Option<Box<Keyspace>>),
}

/// The open database.
pub(super) struct SledTrees {
    path: PathBuf,
    trees: Vec<sled::Tree>,
    /// `None` only while it is dropped.
    database: Option<sled::Db>,
}

/// sled syncs its file when it is dropped, and panics if that fails. What had to be durable was synced before.
impl Drop for SledTrees {
    fn drop(&mut self) {
        let parts = (std::mem::take(&mut self.trees), self.database.take());
        if catch_unwind(AssertUnwindSafe(|| drop(parts))).is_err() {
            tracing::warn!(path = %self.path.display(), "the database could not be closed cleanly");
        }
    }
}

/// The name of sled's file of segments.
const LOG_FILE: &str = "db";

/// The size of a segment's header in sled 0.34, in bytes.
const HEADER_BYTES: usize = 20;

/// How long to wait for sled's threads to release the file of a closed database. A few milliseconds were observed.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two tries.
const RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// Waits until sled's threads have released a database that this process closed. Opening it earlier fails. No other
/// process should have it open, because the daemon holds the lock of the data folder. If one does, sled reports that
/// after this wait ends.
fn wait_until_free(path: &Path) {
    let file = path.join(LOG_FILE);
    // A missing file is created, and `check_readable` reports an unreadable one.
    let Ok(held) = File::open(&file) else { return };
    let limit = Instant::now() + RELEASE_LIMIT;
    // The lock is released before sled takes it, because `held` is dropped.
    while flock(&held, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if Instant::now() >= limit {
            tracing::warn!(file = %file.display(), "a database file is still locked");
            return;
        }
        thread::sleep(RELEASE_PAUSE);
    }
}

/// Removes the snapshot that sled did not finish, for example because the disk was full. sled 0.34 renames it when it is
/// complete, but reads it at the next start in any case, and fails.
fn remove_unfinished_snapshot(path: &Path) -> Result<(), StoreError> {
    for file in entries(path).map_err(StoreError::io("list", path))? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_unfinished = name.starts_with("snap.") && name.ends_with(".generating");
        if is_unfinished && file.symlink_metadata().is_ok_and(|found| found.is_file()) {
            tracing::warn!(file = %file.display(), "removes an unfinished snapshot of the database");
            fs::remove_file(&file).map_err(StoreError::io("remove", &file))?;
        }
    }
    Ok(())
}

/// Reads the small files of a database, and the header of each segment, before sled opens it.
///
/// sled takes a segment whose header it cannot read for a free one, and writes over it: one failed read would empty the database.
/// sled's own reads come from the system's memory then.
///
/// # Errors
/// The system's error of a file that cannot be read now.
fn check_readable(path: &Path) -> Result<(), StoreError> {
    for file in entries(path).map_err(StoreError::io("list", path))? {
        if file.symlink_metadata().is_ok_and(|found| found.is_file()) {
            let read = File::open(&file).and_then(|mut opened| match file.ends_with(LOG_FILE) {
                true => read_headers(&opened),
                false => io::copy(&mut opened, &mut io::sink()).map(drop),
            });
            read.map_err(StoreError::io("read", &file))?;
        }
    }
    Ok(())
}

/// Reads the header of each segment.
fn read_headers(log: &File) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    for segment in (0..log.metadata()?.len()).step_by(SEGMENT_BYTES) {
        log.read_at(&mut header, segment)?;
    }
    Ok(())
}

impl Keyspace {
    pub(super) fn in_memory() -> Self {
        Self::Memory(RwLock::default())
    }

    /// Opens the database in this folder, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, CACHE_BYTES)
    }

    /// Opens the database for filling. The caller closes and reopens it afterwards.
    pub(super) fn open_to_fill(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, FILLING_CACHE_BYTES)
    }

    /// Closes the database, and waits until it can be opened again. sled's threads may hold its file a moment longer.
    pub(super) fn close(self) {
        let Self::Sled(trees) = &self else { return };
        let path = trees.path.clone();
        drop(self);
        wait_until_free(&path);
    }

    fn open_with(path: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Database {
            path: path.to_owned(),
            source,
        };
        wait_until_free(path);
        remove_unfinished_snapshot(path)?;
        check_readable(path)?;
        let database = sled::Config::new()
            .path(path)
            .cache_capacity(cache_bytes)
            .segment_size(SEGMENT_BYTES)
            .mode(sled::Mode::HighThroughput)
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .open()
            .map_err(failed)?;
        let trees = TreeId::ALL
            .iter()
            .map(|tree_id| database.open_tree(tree_id.name()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        Ok(Self::Sled(SledTrees {
            path: path.to_owned(),
            trees,
            database: Some(database),
        }))
    }

    pub(super) fn get(&self, tree_id: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            #[cfg(test)]
            Self::Failing(below) => below
                .as_ref()
                .map_or(Err(test_failure()), |below| below.get(tree_id, key)),
            Self::Sled(trees) => {
                let found = trees.call_sled(|| trees.tree(tree_id).get(key))?;
                Ok(found.map(|value| value.to_vec()))
            }
            Self::Memory(map) => {
                let map = map.read().unwrap_or_else(PoisonError::into_inner);
                Ok(map.get(&(tree_id, key.to_vec())).cloned())
            }
        }
    }

    /// Returns the last pair up to this key.
    pub(super) fn last(&self, tree_id: TreeId, until: Bound<&[u8]>) -> Result<Option<KeyValue>, StoreError> {
        match self {
            #[cfg(test)]
            Self::Failing(from_base) => from_base
                .as_ref()
                .map_or(Err(test_failure()), |from_base| from_base.last(tree_id, until)),
            Self::Sled(trees) => {
                let range = || trees.tree(tree_id).range::<&[u8], _>((Bound::Unbounded, until));
                let base_key = trees.call_sled(|| range().next_back().transpose())?;
                Ok(base_key.map(owned))
            }
            Self::Memory(map) => {
                let map = map.read().unwrap_or_else(PoisonError::into_inner);
                let from = Bound::Included((tree_id, Vec::new()));
                let until = until.map(|key| (tree_id, key.to_vec()));
                let base_key = map.range((from, until)).next_back();
                Ok(base_key.map(|((_, key), value)| (key.clone(), value.clone())))
            }
        }
    }

    /// Returns at most `limit` pairs, starting at this key.
    pub(super) fn page(
        &self,
        tree_id: TreeId,
        from: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyValue>, StoreError> {
        match self {
            #[cfg(test)]
            Self::Failing(below) => below
                .as_ref()
                .map_or(Err(test_failure()), |below| below.page(tree_id, from, limit)),
            Self::Sled(trees) => trees.call_sled(|| {
                let range = trees.tree(tree_id).range::<&[u8], _>((from, Bound::Unbounded));
                range.take(limit).map(|pair| pair.map(owned)).collect()
            }),
            Self::Memory(map) => {
                let from = match from {
                    Bound::Unbounded => Bound::Included((tree_id, Vec::new())),
                    bound => bound.map(|key| (tree_id, key.to_vec())),
                };
                let map = map.read().unwrap_or_else(PoisonError::into_inner);
                let found = map.range((from, Bound::Unbounded));
                Ok(found
                    .take_while(|((found_in, _), _)| *found_in == tree_id)
                    .take(limit)
                    .map(|((_, key), value)| (key.clone(), value.clone()))
                    .collect())
            }
        }
    }

    /// Applies all writes or none.
    pub(super) fn apply(&self, writes: Writes) -> Result<(), StoreError> {
        match self {
            #[cfg(test)]
            Self::Failing(_) => Err(test_failure()),
            Self::Sled(trees) => trees.apply(&writes),
            Self::Memory(map) => {
                let mut map = map.write().unwrap_or_else(PoisonError::into_inner);
                for (key, value) in writes {
                    match value {
                        Some(value) => map.insert(key, value),
                        None => map.remove(&key),
                    };
                }
                Ok(())
            }
        }
    }

    /// Applies the writes one by one, not atomically. For a database that is not used until it is complete.
    ///
    /// Keys come in order, so that each page is read and written only a few times. Nothing is pinned meanwhile, so
    /// sled frees pages as it goes.
    pub(super) fn apply_one_by_one(&self, writes: Writes) -> Result<(), StoreError> {
        let Self::Sled(trees) = self else {
            return self.apply(writes);
        };
        for ((tree_id, key), value) in writes {
            let tree = trees.tree(tree_id);
            trees.call_sled(|| match value {
                Some(value) => tree.insert(key, value),
                None => tree.remove(key),
            })?;
        }
        Ok(())
    }

    /// Flushes everything to the operating system, so that a crash of this process loses nothing.
    pub(super) fn flush_to_system(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(test)]
            Self::Failing(_) => Err(test_failure()),
            Self::Sled(trees) => {
                let flush = || trees.database.as_ref().map_or(Ok(0), |database| database.flush());
                trees.call_sled(flush).map(drop)
            }
            Self::Memory(_) => Ok(()),
        }
    }

    /// Flushes everything to the operating system and syncs the database's file.
    ///
    /// sled's own flush does not sync the file on Linux. Afterwards a start can trust the database even after a power
    /// failure.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.flush_to_system()?;
        let Self::Sled(trees) = self else {
            return Ok(());
        };
        let file = trees.path.join(LOG_FILE);
        File::open(&file)
            .and_then(|opened| opened.sync_all())
            .map_err(StoreError::io("sync", &file))
    }
}

#[cfg(test)]
fn test_failure() -> StoreError {
    StoreError::Database {
        path: PathBuf::new(),
        source: sled::Error::ReportableBug("this test makes it fail".to_owned()),
    }
}

impl SledTrees {
    fn tree(&self, tree_id: TreeId) -> &sled::Tree {
        // The trees are opened in the order of the enum.
        &self.trees[tree_id as usize]
    }

    /// Calls sled. sled checks much of what it reads with assertions, so a panic counts as an error.
    fn call_sled<T>(&self, ask: impl FnOnce() -> sled::Result<T>) -> Result<T, StoreError> {
        let answer = catch_unwind(AssertUnwindSafe(ask));
        let panicked = |_| Err(sled::Error::ReportableBug("a panic in the database".to_owned()));
        answer
            .unwrap_or_else(panicked)
            .map_err(|source| StoreError::Database {
                path: self.path.clone(),
                source,
            })
    }

    fn apply(&self, writes: &Writes) -> Result<(), StoreError> {
        self.call_sled(|| {
            let outcome: Result<(), TransactionError<sled::Error>> =
                self.trees.as_slice().transaction(|trees| {
                    for ((tree_id, key), value) in writes {
                        let tree = &trees[*tree_id as usize];
                        match value {
                            Some(value) => tree.insert(key.as_slice(), value.as_slice())?,
                            None => tree.remove(key.as_slice())?,
                        };
                    }
                    Ok::<(), ConflictableTransactionError<sled::Error>>(())
                });
            outcome.map_err(|error| match error {
                TransactionError::Abort(source) | TransactionError::Storage(source) => source,
            })
        })
    }
}

fn owned((key, value): (sled::IVec, sled::IVec)) -> KeyValue {
    (key.to_vec(), value.to_vec())
}

/// A batch under construction. Reads see its own writes before those of the trees.
pub(super) struct WriteBatch<'a> {
    base: &'a Keyspace,
    writes: Writes,
    /// The total length of the keys and values put.
    bytes: usize,
}

impl<'a> WriteBatch<'a> {
    pub(super) fn new(below: &'a Keyspace) -> Self {
        Self {
            base: below,
            writes: Writes::new(),
            bytes: 0,
        }
    }

    /// Returns the approximate length of the keys and values put.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, space: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.writes.get(&(space, key.to_vec())) {
            Some(written) => Ok(written.clone()),
            None => self.base.get(space, key),
        }
    }

    pub(super) fn put(&mut self, tree_id: TreeId, key: &[u8], value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        let replaced = self.writes.insert((tree_id, key.to_vec()), Some(value));
        if let Some(Some(replaced)) = replaced {
            self.bytes -= key.len() + replaced.len();
        }
    }

    pub(super) fn remove(&mut self, tree_id: TreeId, key: &[u8]) {
        if let Some(Some(replaced)) = self.writes.insert((tree_id, key.to_vec()), None) {
            self.bytes -= key.len() + replaced.len();
        }
    }

    /// Returns the last pair up to this key, as if the batch were applied.
    pub(super) fn last(&self, space: TreeId, until: Bound<&[u8]>) -> Result<Option<KeyValue>, StoreError> {
        let in_space = (
            Bound::Included((space, Vec::new())),
            until.map(|key| (space, key.to_vec())),
        );
        let written = self
            .writes
            .range(in_space)
            .rev()
            .find_map(|((_, key), value)| value.as_ref().map(|value| (key.clone(), value.clone())));
        let mut below = self.base.last(space, until)?;
        while let Some((found, _)) = &below {
            // The batch has the same key or a later one, which is the last pair.
            if written.as_ref().is_some_and(|(key, _)| key >= found) {
                return Ok(written);
            }
            // The batch removes this key, so continue with the previous one.
            if !self.writes.contains_key(&(space, found.clone())) {
                break;
            }
            below = self.base.last(space, Bound::Excluded(found))?;
        }
        Ok(below.or(written))
    }

    pub(super) fn into_writes(self) -> Writes {
        self.writes
    }
}
