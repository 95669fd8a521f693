//! A cache of histories that were read: where their messages are, over all files of each.
//!
//! Owns when a history must be read again, and how much is kept. It is read again as soon as one of its files changes, but
//! if a file has only grown, at most the appended lines are read. Blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{open_file, open_with_metadata};
use crate::transcript::cache::Cache;
use crate::transcript::codex::history::{AppendHandling, CodexHistory, HistoryReadState, PartEnd};
use crate::transcript::codex::rollout_name;
use crate::transcript::dialect::MissingSource;
use crate::transcript::file_read::{FileChange, FileVersion, ReadState};

/// How much is kept, in bytes: the book of a rollout of a gigabyte takes some 10 MB, and few are that large.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// What one history takes beside its book, in bytes, roughly: its name, its paths, and what stands around them.
const ENTRY_BYTES: usize = 1024;

/// The histories that were read. Shared by all who read.
#[derive(Debug)]
pub struct RolloutCache {
    cache: Cache<HistoryKey, CachedHistory>,
}

/// Which history it is: Codex' folder, the session, and the turn with which it ends, by the session that holds it.
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
    pub(super) read_state: HistoryReadState,
    /// Its files, one for each part of the book.
    pub(super) files: Vec<CachedFile>,
    /// What was missing from its beginning when it was read.
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
    /// `identity` is that of the file before it was read, and `end` is how its reading ended.
    pub(super) fn new(path: &Path, identity: FileVersion, end: PartEnd) -> Self {
        let file = match end.append_handling {
            AppendHandling::ReadAgain => None,
            AppendHandling::Ignore | AppendHandling::ReadAppended => open_file(path).ok(),
        };
        Self {
            path: path.to_owned(),
            read_state: ReadState::new(identity, end.whole_bytes, file.as_ref()),
            append_handling: end.append_handling,
        }
    }

    /// What happened to the file since it was read. A file that cannot be opened counts as changed: reading it again reports why.
    pub(super) fn change(&self) -> FileChange {
        // Mostly it is: a file need not be opened for that.
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
    /// What happened to the files since they were read.
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
    /// Keeps this many bytes at most; what was used least recently leaves first.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self {
            cache: Cache::new(limit_bytes, limit_bytes),
        }
    }

    /// Brings what is known of a history up to date, and tells of it. Who asks for the same one meanwhile waits.
    ///
    /// # Errors
    /// What `refresh` answers.
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

    /// How many turns the whole history holds that ends in this file, when that was read, nothing of it is missing and
    /// nothing has changed since. Does not wait for one who reads.
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
            let volume = known.as_ref().filter(|volume| volume.missing.is_none())?;
            let own = volume.files.last()?;
            let is_current =
                own.path == path && own.read_state.is_unchanged(identity) && volume.files.iter().all(is_same);
            is_current.then_some(volume.history.turn_starts().len() as u64)
        })
    }
}
