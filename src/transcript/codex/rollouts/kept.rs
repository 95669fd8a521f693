//! What was read of rollouts, kept for the next who asks: where messages stand in a history, over all its files.
//!
//! Owns when a history must be read again, which is as soon as one of its files is not the one that was read, or another
//! size, or written since (device, inode, size and both times); and how much is kept. Of a file that has only grown, which
//! is when what stands before the end of its last whole line is the same as before, at most what was appended is read.
//! What this cannot see is an edit in place further up that keeps every length and is followed by an append; a message is
//! only told when its line bears the number that was noted. Blocks.

use std::fs::{self, File};
use std::hash::RandomState;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{open_file, open_with_metadata};
use crate::transcript::cache::Cache;
use crate::transcript::codex::book::{Book, Bookmark, Growth, PartEnd};
use crate::transcript::codex::rollout_name;
use crate::transcript::dialect::MissingSource;
use crate::transcript::library::{Identity, tail_hash};

/// How much is kept, in bytes: the book of a rollout of a gigabyte takes some 10 MB, and few are that large.
pub const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// What one history takes beside its book, in bytes, roughly: its name, its paths, and what stands around them.
const PLACE_BYTES: usize = 1024;

/// The histories that were read. Shared by all who read.
#[derive(Debug)]
pub struct RolloutBooks {
    hasher: RandomState,
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
    /// What it was before it was read.
    identity: Identity,
    end: PartEnd,
    /// A hash of the bytes before the end of what was read; none where they were not kept.
    tail: Option<u64>,
}

/// How what was read of a history stands to its files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Currency {
    /// It holds.
    Current,
    /// The last file has grown, and what was appended is to be taken.
    Grown,
    /// It has to be read anew.
    Stale,
}

impl KeptFile {
    /// Where the last line ends that was read.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.end.whole_bytes
    }
}

impl Volume {
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
            hasher: RandomState::new(),
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

    /// How what was read of a history stands to its files now.
    pub(super) fn standing(&self, volume: &Volume) -> Currency {
        let mut all = Currency::Current;
        for file in &volume.files {
            match self.currency(file) {
                Currency::Current => {}
                Currency::Grown => all = Currency::Grown,
                Currency::Stale => return Currency::Stale,
            }
        }
        all
    }

    /// How what was read of a file stands to it now.
    pub(super) fn currency(&self, file: &KeptFile) -> Currency {
        let look = || -> io::Result<Currency> {
            if Identity::of(&fs::metadata(&file.path)?) == file.identity {
                return Ok(Currency::Current);
            }
            if file.end.growth == Growth::ReadAnew {
                return Ok(Currency::Stale);
            }
            let (opened, metadata) = open_with_metadata(&file.path)?;
            let now = Identity::of(&metadata);
            Ok(
                match (self.has_only_grown(file, &now, &opened)?, file.end.growth) {
                    (true, Growth::Taken) => Currency::Grown,
                    (true, _) => Currency::Current,
                    (false, _) => Currency::Stale,
                },
            )
        };
        // What cannot be looked at is told by who reads it anew.
        look().unwrap_or(Currency::Stale)
    }

    /// Whether a file that is open is the one that was read, with something behind it.
    fn has_only_grown(&self, file: &KeptFile, now: &Identity, opened: &File) -> io::Result<bool> {
        if !now.may_have_grown_from(&file.identity) || file.tail.is_none() {
            return Ok(false);
        }
        Ok(tail_hash(&self.hasher, opened, file.end.whole_bytes)? == file.tail)
    }

    /// A file as it is to be kept: what it was before it was read, and how its reading ended.
    pub(super) fn file(&self, path: &Path, identity: Identity, end: PartEnd) -> KeptFile {
        // Without its tail it is read anew, which is never wrong.
        let tail = match end.growth {
            Growth::ReadAnew => None,
            _ => open_file(path)
                .and_then(|file| tail_hash(&self.hasher, &file, end.whole_bytes))
                .unwrap_or_default(),
        };
        KeptFile {
            path: path.to_owned(),
            identity,
            end,
            tail,
        }
    }

    /// How many turns the whole history holds that ends in this file, when that was read, nothing of it is missing and
    /// nothing has changed since. Does not wait for one who reads.
    pub(in crate::transcript) fn known_turns(&self, path: &Path, identity: &Identity) -> Option<u64> {
        let name = rollout_name(path.file_name()?.to_str()?)?;
        let is_it = |key: &Key| key.until.is_none() && key.upstream_id == name.upstream_id;
        let slots = self.kept.find(is_it);
        let is_same = |file: &KeptFile| {
            let now = fs::metadata(&file.path);
            now.is_ok_and(|now| Identity::of(&now) == file.identity)
        };
        slots.iter().find_map(|slot| {
            let known = slot.try_lock().ok()?;
            let volume = known.as_ref().filter(|volume| volume.missing.is_none())?;
            let own = volume.files.last()?;
            let is_current =
                own.path == path && own.identity == *identity && volume.files.iter().all(is_same);
            is_current.then_some(volume.book.turns() as u64)
        })
    }
}
