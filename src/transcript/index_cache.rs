//! A cache of transcript indexes: one per format.
//!
//! This module bounds the size of the caches. Blocks. It does not know conversations or callers.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use super::TranscriptError;
use super::claude::ClaudeIndex;
use super::claude::history::{ClaudeHistory, OpenClaudeTranscript};
use super::codex::rollouts::RolloutCache;
use super::copy::session_of;
use super::dialect::{TranscriptState, TurnEnd};
pub use super::file_read::FileVersion;
use super::file_read::{line_after, read_range};
use super::indexes::{CachedIndex, GrowingIndex, IndexesByPath};
use super::origin::Origin;
use super::qwen::QwenHistory;
use super::reading::READ_BYTES;

/// The size of the cache, in bytes. The index of a transcript of a gigabyte takes some 20 MB, and few are that large.
const CLAUDE_BYTES: usize = 64 * 1024 * 1024;

/// The size that the most recently used transcript may take, in bytes, even if that exceeds the limit: otherwise it would be
/// read again for each of its pages. Records take some 60 bytes, so this holds four million of them. A transcript with more is
/// read each time, so that the daemon's memory stays bounded.
const NEWEST_BYTES: usize = 256 * 1024 * 1024;

/// The same limit for Qwen Code: a record takes less than two hundred bytes, so this is some fifty thousand turns.
const QWEN_BYTES: usize = 32 * 1024 * 1024;

/// Transcripts of at least this size are read in two halves in parallel. Below it a second thread gains little.
const PARALLEL_FROM_BYTES: u64 = 32 * 1024 * 1024;

/// The indexes of the transcripts that were read. Shared by all readers.
#[derive(Debug)]
pub struct IndexCache {
    parallel_from_bytes: u64,
    claude: IndexesByPath<ClaudeHistory>,
    pub(super) qwen: IndexesByPath<QwenHistory>,
    pub(crate) rollouts: RolloutCache,
}

impl Default for IndexCache {
    fn default() -> Self {
        Self {
            parallel_from_bytes: PARALLEL_FROM_BYTES,
            claude: IndexesByPath::new(CLAUDE_BYTES, NEWEST_BYTES),
            qwen: IndexesByPath::new(QWEN_BYTES, QWEN_BYTES),
            rollouts: RolloutCache::default(),
        }
    }
}

impl IndexCache {
    /// The index of a transcript's chain records.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if it is not a file, or cannot be opened or read.
    pub fn index(&self, path: &Path) -> Result<Arc<ClaudeIndex>, TranscriptError> {
        self.with_index(path, |indexed, _| Ok(Arc::clone(&indexed.index)))
    }

    /// Opens a transcript, with its messages up to the record `until`, or those of its live branch.
    ///
    /// # Errors
    /// As [`IndexCache::index`], and [`TranscriptError::RecordNotFound`] if there is no record `until`.
    pub fn open(
        &self,
        path: &Path,
        until: Option<&str>,
    ) -> Result<OpenClaudeTranscript<BufReader<File>>, TranscriptError> {
        self.with_index(path, |indexed, reader| {
            Ok(OpenClaudeTranscript::new(
                path,
                reader,
                indexed.branch(path, until)?,
            ))
        })
    }

    /// The [`Origin`] that a transcript records.
    ///
    /// # Errors
    /// As [`IndexCache::index`].
    pub fn origin(&self, path: &Path) -> Result<Origin, TranscriptError> {
        self.with_index(path, |indexed, reader| {
            Origin::of(&indexed.index, session_of(path), reader).map_err(TranscriptError::io("read", path))
        })
    }

    /// The state of a transcript. Uses the cached index, and reads only what was appended, and its last message.
    ///
    /// # Errors
    /// As [`IndexCache::index`].
    pub fn state(&self, path: &Path) -> Result<TranscriptState, TranscriptError> {
        self.with_index(path, |indexed, reader| {
            let turn_end = indexed.index.live_turn_end(reader);
            let turn_end = turn_end.map_err(TranscriptError::io("read", path))?;
            Ok(TranscriptState {
                turn_end,
                is_answered: turn_end == TurnEnd::Ended,
                prompts: Some(indexed.index.prompts),
                bytes: indexed.index.extent().bytes,
            })
        })
    }

    /// The number of turns on a transcript's live branch, for a rollout including the turns that it continues. `None` if
    /// it was not read or has changed since. Reads nothing, and does not wait for a reader.
    #[must_use]
    pub fn known_turns(&self, path: &Path, identity: &FileVersion) -> Option<u64> {
        let known = self.claude.known_turns(path, identity);
        let known = known.or_else(|| self.qwen.known_turns(path, identity));
        known.or_else(|| self.rollouts.known_turns(path, identity))
    }

    /// Removes a transcript from the cache, for example after it was deleted.
    pub fn forget(&self, path: &Path) {
        self.claude.cache.forget(&path.to_owned());
        self.qwen.cache.forget(&path.to_owned());
    }

    fn with_index<T>(
        &self,
        path: &Path,
        look: impl FnOnce(&mut CachedIndex<ClaudeHistory>, BufReader<File>) -> Result<T, TranscriptError>,
    ) -> Result<T, TranscriptError> {
        let read = |file: &File, end| self.read(file, end);
        self.claude.update(path, read, |indexed, file| {
            look(indexed, BufReader::with_capacity(READ_BYTES, file))
        })
    }

    fn read(&self, file: &File, end: u64) -> io::Result<ClaudeIndex> {
        let middle = match end < self.parallel_from_bytes {
            true => None,
            false => line_after(file, end / 2, end)?,
        };
        match middle {
            None => ClaudeIndex::read(read_range(file, 0, end)),
            Some(middle) => {
                ClaudeIndex::read_parts(read_range(file, 0, middle), read_range(file, middle, end), middle)
            }
        }
    }
}

#[cfg(test)]
mod tests;
