//! What was read of rollouts, kept for later readers: where messages stand in a history, over all its files.
//!
//! Owns when a history must be read again, and how much is kept. It is read again as soon as one of its files changes, but
//! if a file has only grown, at most the appended lines are read. Blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{open_file, open_with_metadata};
use crate::transcript::cache::Cache;
use crate::transcript::codex::book::{Book, Bookmark, Growth, PartEnd};
use crate::transcript::codex::rollout_name;
use crate::transcript::dialect::MissingSource;
use crate::transcript::file_read::{Change, FileRead, Identity};

/// How much is kept, in bytes: the book of a rollout of a gigabyte takes some 10 MB, and few are that large.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// What one history takes beside its book, in bytes, roughly: its name, its paths, and what stands around them.
const PLACE_BYTES: usize = 1024;

/// The histories that were read. Shared by all who read.
#[derive(Debug)]
pub struct RolloutBooks {
    kept: Cache<Key, Volume>,
}

/// Which history it is: Codex' folder, the session, and the turn with which it ends, by the session that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) root: PathBuf,
    pub(super) upstream_id: String,
    pub(super) until: Option<(String, String)>,
}

/// A history that was read.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) book: Arc<Book>,
    pub(super) mark: Bookmark,
    /// Its files, one for each part of the book.
    pub(super) files: Vec<KeptFile>,
    /// What was missing from its beginning when it was read.
    pub(super) missing: Option<MissingSource>,
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct KeptFile {
    pub(super) path: PathBuf,
    pub(super) read: FileRead,
    growth: Growth,
}

impl KeptFile {
    /// `identity` is that of the file before it was read, and `end` is how its reading ended.
    pub(super) fn new(path: &Path, identity: Identity, end: PartEnd) -> Self {
        let file = match end.growth {
            Growth::ReadAnew => None,
            Growth::Ignored | Growth::Taken => open_file(path).ok(),
        };
        Self {
            path: path.to_owned(),
            read: FileRead::new(identity, end.whole_bytes, file.as_ref()),
            growth: end.growth,
        }
    }

    /// What happened to the file since it was read. A file that cannot be opened counts as changed: reading it again reports why.
    pub(super) fn change(&self) -> Change {
        // Mostly it is: a file need not be opened for that.
        if fs::metadata(&self.path).is_ok_and(|now| self.read.is(&Identity::of(&now))) {
            return Change::Same;
        }
        let opened = open_with_metadata(&self.path);
        let change = opened.map(|(file, metadata)| self.read.change(&Identity::of(&metadata), &file));
        match change.unwrap_or(Change::Other) {
            Change::Grown if self.growth == Growth::Ignored => Change::Same,
            change => change,
        }
    }
}

impl Volume {
    /// What happened to the files since they were read.
    pub(super) fn change(&self) -> Change {
        let mut all = Change::Same;
        for file in &self.files {
            match file.change() {
                Change::Same => {}
                Change::Grown => all = Change::Grown,
                Change::Other => return Change::Other,
            }
        }
        all
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
            kept: Cache::new(limit_bytes, limit_bytes),
        }
    }

    /// Brings what is known of a history up to date, and tells of it. Who asks for the same one meanwhile waits.
    ///
    /// # Errors
    /// What `refresh` answers.
    pub(super) fn look<T, E>(
        &self,
        key: &Key,
        refresh: impl FnOnce(Option<Volume>) -> Result<Volume, E>,
        tell: impl FnOnce(&Volume) -> T,
    ) -> Result<T, E> {
        self.kept.look(key, Volume::bytes, |known| {
            let volume = refresh(known.take())?;
            Ok(tell(known.insert(volume)))
        })
    }

    /// How many turns the whole history holds that ends in this file, when that was read, nothing of it is missing and
    /// nothing has changed since. Does not wait for one who reads.
    pub(in crate::transcript) fn known_turns(&self, path: &Path, identity: &Identity) -> Option<u64> {
        let name = rollout_name(path.file_name()?.to_str()?)?;
        let is_it = |key: &Key| key.until.is_none() && key.upstream_id == name.upstream_id;
        let slots = self.kept.find(is_it);
        let is_same = |file: &KeptFile| {
            let now = fs::metadata(&file.path);
            now.is_ok_and(|now| file.read.is(&Identity::of(&now)))
        };
        slots.iter().find_map(|slot| {
            let known = slot.try_lock().ok()?;
            let volume = known.as_ref().filter(|volume| volume.missing.is_none())?;
            let own = volume.files.last()?;
            let is_current = own.path == path && own.read.is(identity) && volume.files.iter().all(is_same);
            is_current.then_some(volume.book.turns().len() as u64)
        })
    }
}
