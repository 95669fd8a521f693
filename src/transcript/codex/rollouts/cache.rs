//! A cache of the histories that were read, each with the positions of its messages in all its files.
//!
//! This module decides when to read a history again, and bounds the size of the cache. When a file has changed, its
//! histories are read again; when it has only grown, at most the appended lines are read. Blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{open_file, open_with_metadata};
use crate::transcript::cache::Cache;
use crate::transcript::codex::history::{AppendHandling, CodexHistory, PartEnd};
use crate::transcript::codex::rollout_name;
use crate::transcript::dialect::MissingSource;
use crate::transcript::file_read::{BeforeRead, FileChange, FileVersion, ReadState};

/// The size of the cache, in bytes. The history of a rollout of a gigabyte takes some 10 MB, and few are that large.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// The approximate size of a cache entry besides its history, in bytes: its key and its paths.
const ENTRY_BYTES: usize = 1024;

/// The histories that were read. Shared by all readers.
#[derive(Debug)]
pub struct RolloutCache {
    cache: Cache<HistoryKey, CachedHistory>,
}

/// Identifies a history: Codex' folder, the session, and the last turn with the session whose file contains it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HistoryKey {
    pub(super) root: PathBuf,
    pub(super) upstream_id: String,
    pub(super) until: Option<(String, String)>,
}

/// A cached history.
#[derive(Debug)]
pub(super) struct CachedHistory {
    pub(super) history: Arc<CodexHistory>,
    /// Its files, one for each part of the history.
    pub(super) files: Vec<CachedFile>,
    /// The beginning that was missing when it was read, if any.
    pub(super) missing: Option<MissingSource>,
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) path: PathBuf,
    pub(super) read_state: ReadState,
    append_handling: AppendHandling,
}

impl CachedFile {
    /// Creates the entry of a file that was just read. `end` is the result of the read.
    pub(super) fn new(path: &Path, before: BeforeRead, end: PartEnd) -> Self {
        let file = match end.append_handling {
            AppendHandling::ReadAgain => None,
            AppendHandling::Ignore | AppendHandling::ReadAppended => open_file(path).ok(),
        };
        Self {
            path: path.to_owned(),
            read_state: ReadState::new(before, end.complete_bytes, file.as_ref()),
            append_handling: end.append_handling,
        }
    }

    /// How the file changed since it was read. A file that cannot be opened counts as rewritten: reading it again reports the
    /// error.
    pub(super) fn change(&self) -> FileChange {
        // Usually the file is unchanged, and then it need not be opened.
        if fs::metadata(&self.path).is_ok_and(|now| self.read_state.is_unchanged(&FileVersion::of(&now))) {
            return FileChange::Same;
        }
        let opened = open_with_metadata(&self.path);
        let change =
            opened.map(|(file, metadata)| self.read_state.change(&FileVersion::of(&metadata), &file));
        match change.unwrap_or(FileChange::Rewritten) {
            FileChange::Grown if self.append_handling == AppendHandling::Ignore => FileChange::Same,
            change => change,
        }
    }
}

impl CachedHistory {
    /// How the files changed since they were read.
    pub(super) fn change(&self) -> FileChange {
        let mut all = FileChange::Same;
        for file in &self.files {
            match file.change() {
                FileChange::Same => {}
                FileChange::Grown => all = FileChange::Grown,
                FileChange::Rewritten => return FileChange::Rewritten,
            }
        }
        all
    }

    fn bytes(&self) -> usize {
        self.history.memory_bytes() + ENTRY_BYTES * (1 + self.files.len())
    }
}

impl Default for RolloutCache {
    fn default() -> Self {
        Self::with_limit(CACHE_BYTES)
    }
}

impl RolloutCache {
    /// Creates a cache of at most this many bytes, which evicts the least recently used history first.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self {
            cache: Cache::new(limit_bytes, limit_bytes),
        }
    }

    /// Updates a history and calls the caller's function with it. Other callers for the same history wait meanwhile.
    ///
    /// # Errors
    /// The error of `refresh`.
    pub(super) fn update<T, E>(
        &self,
        key: &HistoryKey,
        refresh: impl FnOnce(Option<CachedHistory>) -> Result<CachedHistory, E>,
        tell: impl FnOnce(&CachedHistory) -> T,
    ) -> Result<T, E> {
        self.cache.update(key, CachedHistory::bytes, |known| {
            let volume = refresh(known.take())?;
            Ok(tell(known.insert(volume)))
        })
    }

    /// The number of turns in the whole history that ends in this file. `None` unless the history was read, is
    /// complete, and has not changed since. Does not wait for a reader.
    pub(in crate::transcript) fn known_turns(&self, path: &Path, identity: &FileVersion) -> Option<u64> {
        let name = rollout_name(path.file_name()?.to_str()?)?;
        let is_it = |key: &HistoryKey| key.until.is_none() && key.upstream_id == name.upstream_id;
        let slots = self.cache.find(is_it);
        let is_same = |file: &CachedFile| {
            let now = fs::metadata(&file.path);
            now.is_ok_and(|now| file.read_state.is_unchanged(&FileVersion::of(&now)))
        };
        slots.iter().find_map(|slot| {
            let known = slot.try_lock().ok()?;
            let cached = known.as_ref().filter(|cached| cached.missing.is_none())?;
            let own_file = cached.files.last()?;
            let is_current = own_file.path == path
                && own_file.read_state.is_unchanged(identity)
                && cached.files.iter().all(is_same);
            is_current.then_some(cached.history.turns.len() as u64)
        })
    }
}
