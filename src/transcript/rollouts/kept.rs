//! What was read of rollouts, kept for the next who asks: where messages stand in a history, over all its files.
//!
//! Owns when a history must be read again, which is as soon as one of its files is not the one that was read, or another
//! size, or written since (device, inode, size and both times); and how much is kept. A file that has grown is read anew as
//! a whole. Blocks.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::transcript::codex::book::Book;

/// How much is kept, in bytes: the book of a rollout of a gigabyte takes some 10 MB, and few are that large.
pub const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// What one history takes beside its book, in bytes, roughly: its name, its paths, and what stands around them.
const PLACE_BYTES: usize = 1024;

/// The histories that were read. Shared by all who read.
#[derive(Debug)]
pub struct RolloutBooks {
    limit_bytes: usize,
    /// The one that was used last stands last.
    kept: Mutex<Vec<(Key, Arc<Volume>)>>,
}

/// Which history it is: Codex' folder, the session, and the turn with which it ends, by the session that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) root: PathBuf,
    pub(super) upstream_id: String,
    pub(super) until: Option<(String, String)>,
}

/// A history that was read.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) book: Arc<Book>,
    /// Its files, one for each part of the book, as they were before they were read.
    pub(super) files: Vec<(PathBuf, Identity)>,
}

/// What changes when a file does. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Volume {
    fn is_current(&self) -> bool {
        let is_same = |(path, identity): &(PathBuf, Identity)| {
            fs::metadata(path).is_ok_and(|metadata| Identity::of(&metadata) == *identity)
        };
        self.files.iter().all(is_same)
    }

    fn bytes(&self) -> usize {
        self.book.memory_bytes() + PLACE_BYTES * (1 + self.files.len())
    }
}

impl Default for RolloutBooks {
    fn default() -> Self {
        Self::with_limit(KEPT_BYTES)
    }
}

impl RolloutBooks {
    /// Keeps this many bytes at most; what was used least recently leaves first.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            kept: Mutex::default(),
        }
    }

    /// What was read of a history, unless one of its files has changed since.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Volume>> {
        let volume = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let place = kept.iter().position(|(other, _)| other == key)?;
            let slot = kept.remove(place);
            let volume = Arc::clone(&slot.1);
            kept.push(slot);
            volume
        };
        volume.is_current().then_some(volume)
    }

    /// Keeps what was read of a history, in place of what was kept of it before.
    pub(super) fn put(&self, key: Key, volume: Volume) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(other, _)| *other != key);
        kept.push((key, Arc::new(volume)));
        let mut bytes: usize = kept.iter().map(|(_, volume)| volume.bytes()).sum();
        while bytes > self.limit_bytes && !kept.is_empty() {
            bytes -= kept.remove(0).1.bytes();
        }
    }
}
