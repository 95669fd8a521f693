//! The indexes of transcripts that are only appended to, and the branches read from them, cached for later readers.
//!
//! Owns when a transcript must be read again: not at all if it is unchanged, from the end of its last whole line if it has
//! only grown, and completely otherwise. Knows no format. Blocks.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::TranscriptError;
use super::cache::Cache;
use super::file_read::{FileChange, FileVersion, ReadState, read_range};
use crate::files::open_with_metadata;

/// How many branches of one transcript are kept: the live one, and those of forks.
const BRANCH_LIMIT: usize = 4;

/// What one transcript takes beside what was read, in bytes, roughly: its path and the entry of the cache.
const ENTRY_BYTES: usize = 1024;

/// Where the records of a transcript are, on all branches.
pub(super) trait GrowingIndex: Clone + Debug {
    /// How far the transcript was read.
    fn extent(&self) -> ReadExtent;

    /// Reads the lines after [`Extent::whole_bytes`], where the reader starts. Only if [`Extent::can_extend`].
    ///
    /// # Errors
    /// The reader's error. The index is unusable after one.
    fn extend(&mut self, reader: impl BufRead) -> io::Result<()>;

    /// About how much memory the index takes, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// How far a transcript was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadExtent {
    /// How many bytes were read.
    pub(super) bytes: u64,
    /// Where the last line ends that has a newline.
    pub(super) whole_bytes: u64,
    /// Whether appended lines can be read without those before them. Not if the last line was taken without its newline: what is
    /// appended may continue it.
    pub(super) can_extend: bool,
}

/// The messages and turns of one branch.
pub(super) trait IndexedBranch: Sized + Debug {
    type Index: GrowingIndex;

    /// The branch that ends with the record `until`, or the live one. `None` if there is no such record.
    fn of(index: &Arc<Self::Index>, until: Option<&str>) -> Option<Self>;

    /// The message with which each turn begins.
    fn turn_starts(&self) -> &[u32];

    /// About how much memory the branch takes beside the index, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// The transcripts that were read, by path.
#[derive(Debug)]
pub(super) struct IndexesByPath<B: IndexedBranch> {
    pub(super) cache: Cache<PathBuf, CachedIndex<B>>,
}

/// A transcript that was read.
#[derive(Debug)]
pub(super) struct CachedIndex<B: IndexedBranch> {
    read: ReadState,
    pub(super) index: Arc<B::Index>,
    /// The branches that were asked for, by the record with which they end. The last one used is first.
    branches: Vec<(Option<String>, Arc<B>)>,
}

impl<B: IndexedBranch> IndexesByPath<B> {
    /// Keeps at most `limit_bytes`, of which the least recently used leaves first. The most recently used transcript may
    /// take up to `newest_limit_bytes` even if that is more.
    pub(super) fn new(limit_bytes: usize, newest_limit_bytes: usize) -> Self {
        Self {
            cache: Cache::new(limit_bytes, newest_limit_bytes),
        }
    }

    /// Updates what is known of a transcript and looks at it. Others that ask for the same one wait. `read` reads its first
    /// so many bytes.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if it is not a file or cannot be read, and those of `look`.
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
                let indexed = CachedIndex::refreshed(before, &file, FileVersion::of(&metadata), read);
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
            .filter(|indexed| indexed.read.is_unchanged(now))?;
        let (_, branch) = indexed.branches.iter().find(|(until, _)| until.is_none())?;
        Some(branch.turn_starts().len() as u64)
    }
}

impl<B: IndexedBranch> CachedIndex<B> {
    fn refreshed(
        before: Option<Self>,
        file: &File,
        mut identity: FileVersion,
        read: impl FnOnce(&File, u64) -> io::Result<B::Index>,
    ) -> io::Result<Self> {
        let index = match before.map(|before| (before.read.change(&identity, file), before)) {
            Some((FileChange::Same, before)) => return Ok(before),
            Some((FileChange::Grown, before)) => {
                // The branches hold the index, which would have to be copied.
                drop(before.branches);
                let mut index = Arc::unwrap_or_clone(before.index);
                index.extend(read_range(file, before.read.whole_bytes, identity.bytes))?;
                index
            }
            Some((FileChange::Rewritten, _)) | None => read(file, identity.bytes)?,
        };
        let extent = index.extent();
        // If it is shorter than when it was opened, it is being rewritten, and the next reader finds other times.
        identity.bytes = extent.bytes;
        Ok(Self {
            read: ReadState::new(identity, extent.whole_bytes, extent.can_extend.then_some(file)),
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
        let known = self.branches.iter().position(|(end, _)| end.as_deref() == until);
        let kept = match known {
            Some(known) => self.branches.remove(known),
            None => {
                let branch = B::of(&self.index, until).ok_or_else(not_found)?;
                (until.map(str::to_owned), Arc::new(branch))
            }
        };
        let branch = Arc::clone(&kept.1);
        self.branches.insert(0, kept);
        self.branches.truncate(BRANCH_LIMIT);
        Ok(branch)
    }

    fn memory_bytes(&self) -> usize {
        let branches = self.branches.iter().map(|(_, branch)| branch.memory_bytes());
        ENTRY_BYTES + self.index.memory_bytes() + branches.sum::<usize>()
    }
}
