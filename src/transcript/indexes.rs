//! The cached indexes of append-only transcripts, and the branches read from them.
//!
//! An unchanged transcript is not read again. One that has only grown is read from the end of its last whole line, any
//! other completely. This module knows no format. Blocks.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::TranscriptError;
use super::cache::Cache;
use super::file_read::{BeforeRead, FileChange, FileVersion, ReadState, read_range};
use crate::files::open_with_metadata;

/// How many branches of one transcript are cached: the live one, and those of forks.
const BRANCH_LIMIT: usize = 4;

/// The approximate size of a cache entry besides its index and branches, in bytes: its path and the entry itself.
const ENTRY_BYTES: usize = 1024;

/// The positions of a transcript's records, on all branches.
pub(super) trait GrowingIndex: Clone + Debug + Default {
    /// Reads this many bytes from the start of a file.
    ///
    /// # Errors
    /// The system's error.
    fn read_file(file: &File, end: u64) -> io::Result<Self> {
        let mut index = Self::default();
        index.extend(read_range(file, 0, end))?;
        Ok(index)
    }

    /// How much of the transcript was read.
    fn extent(&self) -> ReadExtent;

    /// Reads the lines after [`ReadExtent::complete_bytes`], where the reader starts. Only if [`ReadExtent::can_extend`].
    ///
    /// # Errors
    /// The reader's error. The index is unusable after one.
    fn extend(&mut self, reader: impl BufRead) -> io::Result<()>;

    /// About how much memory the index takes, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// How much of a transcript was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadExtent {
    /// How many bytes were read.
    pub(super) bytes: u64,
    /// The end of the last line that has a newline.
    pub(super) complete_bytes: u64,
    /// Whether appended lines can be read without those before them. False if the last line was read without its newline:
    /// appended bytes may continue it.
    pub(super) can_extend: bool,
}

/// The messages and turns of one branch.
pub(super) trait IndexedBranch: Sized + Debug {
    type Index: GrowingIndex;

    /// The branch that ends with the record `until`, or the live one. `None` if there is no such record.
    fn read(index: &Arc<Self::Index>, until: Option<&str>) -> Option<Self>;

    /// The first message of each turn.
    fn turn_starts(&self) -> &[u32];

    /// About how much memory the branch takes besides the index, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// The indexes that were read, by path.
#[derive(Debug)]
pub(super) struct IndexesByPath<B: IndexedBranch> {
    pub(super) cache: Cache<PathBuf, CachedIndex<B>>,
}

/// The index of a transcript that was read.
#[derive(Debug)]
pub(super) struct CachedIndex<B: IndexedBranch> {
    read_state: ReadState,
    pub(super) index: Arc<B::Index>,
    /// The branches that were requested, by their last record. The most recently used one is first.
    branches: Vec<(Option<String>, Arc<B>)>,
}

impl<B: IndexedBranch> IndexesByPath<B> {
    /// Caches at most `limit_bytes` and evicts the least recently used transcript first. The most recently used
    /// transcript may take up to `newest_limit_bytes` even if that is more.
    pub(super) fn new(limit_bytes: usize, newest_limit_bytes: usize) -> Self {
        Self {
            cache: Cache::new(limit_bytes, newest_limit_bytes),
        }
    }

    /// Updates the index of a transcript and calls `look` with it. Other callers for the same transcript wait. `read` reads
    /// this many bytes from the start of the file.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the path is not a file or cannot be read, and the errors of `look`.
    pub(super) fn update<T>(
        &self,
        path: &Path,
        read: impl FnOnce(&File, u64) -> io::Result<B::Index>,
        look: impl FnOnce(&mut CachedIndex<B>, File) -> Result<T, TranscriptError>,
    ) -> Result<T, TranscriptError> {
        self.cache
            .update(&path.to_owned(), CachedIndex::memory_bytes, |slot| {
                let before = slot.take();
                let (file, metadata) = open_with_metadata(path).map_err(TranscriptError::io("open", path))?;
                let indexed = CachedIndex::refresh(before, &file, FileVersion::of(&metadata), read);
                let mut indexed = indexed.map_err(TranscriptError::io("read", path))?;
                let found = look(&mut indexed, file);
                *slot = Some(indexed);
                found
            })
    }

    /// How many turns the live branch has, if it was read and the file has not changed since. Does not wait for a reader.
    pub(super) fn known_turns(&self, path: &Path, now: &FileVersion) -> Option<u64> {
        let slot = self.cache.get(&path.to_owned())?;
        let indexed = slot.try_lock().ok()?;
        let indexed = indexed
            .as_ref()
            .filter(|indexed| indexed.read_state.is_unchanged(now))?;
        let (_, branch) = indexed.branches.iter().find(|(until, _)| until.is_none())?;
        Some(branch.turn_starts().len() as u64)
    }
}

impl<B: IndexedBranch> CachedIndex<B> {
    fn refresh(
        previous: Option<Self>,
        file: &File,
        version: FileVersion,
        read: impl FnOnce(&File, u64) -> io::Result<B::Index>,
    ) -> io::Result<Self> {
        let known = match previous.map(|previous| (previous.read_state.change(&version, file), previous)) {
            Some((FileChange::Same, previous)) => return Ok(previous),
            Some((FileChange::Grown, previous)) => Some(previous),
            Some((FileChange::Rewritten, _)) | None => None,
        };
        let before_read = BeforeRead::of(file, version);
        let index = match known {
            Some(previous) => {
                // The branches share the index. Drop them so that it need not be cloned.
                drop(previous.branches);
                let mut index = Arc::unwrap_or_clone(previous.index);
                index.extend(read_range(
                    file,
                    previous.read_state.complete_bytes,
                    version.bytes,
                ))?;
                index
            }
            None => read(file, version.bytes)?,
        };
        let extent = index.extent();
        Ok(Self {
            read_state: ReadState::new(
                before_read,
                extent.complete_bytes,
                extent.can_extend.then_some(file),
            ),
            index: Arc::new(index),
            branches: Vec::new(),
        })
    }

    /// The branch that ends with the record `until`, or the live one.
    ///
    /// # Errors
    /// [`TranscriptError::RecordNotFound`].
    pub(super) fn branch(&mut self, path: &Path, until: Option<&str>) -> Result<Arc<B>, TranscriptError> {
        let not_found = || TranscriptError::RecordNotFound {
            path: path.to_owned(),
            uuid: until.unwrap_or_default().to_owned(),
        };
        let index = self.branches.iter().position(|(end, _)| end.as_deref() == until);
        let entry = match index {
            Some(index) => self.branches.remove(index),
            None => {
                let branch = B::read(&self.index, until).ok_or_else(not_found)?;
                (until.map(str::to_owned), Arc::new(branch))
            }
        };
        let branch = Arc::clone(&entry.1);
        self.branches.insert(0, entry);
        self.branches.truncate(BRANCH_LIMIT);
        Ok(branch)
    }

    fn memory_bytes(&self) -> usize {
        let branches = self.branches.iter().map(|(_, branch)| branch.memory_bytes());
        ENTRY_BYTES + self.index.memory_bytes() + branches.sum::<usize>()
    }
}
