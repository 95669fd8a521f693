//! What was read of transcripts, kept for the next who asks: where the records stand, and the books of messages.
//!
//! Owns when a transcript must be read again, and how much of this is kept. Blocks. Knows neither conversations nor who
//! asks.
//!
//! A file that was not touched (device, inode, size and both times are the same) is not read. One that has only grown
//! is read from where its last whole line ended, and that it has only grown is taken from three things: it is the same
//! inode, it is longer, and the bytes before that place, up to [`TAIL_BYTES`], are what they were. An agent writes each
//! record once, at the end, with an id and a time of its own, so nothing that was removed, put in or written anew before
//! that place leaves the same bytes there. What this cannot see is an edit in place that keeps every length and is
//! followed by an append; then the offsets still hold, and a record is only told when it bears the uuid that was noted.
//! Everything else is read anew.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::TranscriptError;
use super::cache::Cache;
use super::claude::Index;
use super::claude::book::Book;
use super::claude::reading::OpenBook;
use super::codex::rollouts::RolloutBooks;
use super::dialect::TurnEnd;
use super::meter::Metered;
use super::origin::Origin;
use super::qwen::QwenBooks;
use super::reading::READ_BYTES;
use crate::files::open_with_metadata;

/// How much is kept, in bytes: the index of a transcript of a gigabyte takes some 20 MB, and few are that large.
pub const LIBRARY_BYTES: usize = 64 * 1024 * 1024;

/// How much is kept all the same of the one transcript that was used last, in bytes, until another is asked for: one that
/// does not fit by itself would else be read anew for each page of it. Records take some 60 bytes, so that this holds
/// four millions of them; a transcript with more is read each time, as the memory of the daemon is not its to take.
pub const NEWEST_BYTES: usize = 256 * 1024 * 1024;

/// How many bytes before the end of the last whole line are compared: mostly that line and some before it.
pub const TAIL_BYTES: u64 = 64 * 1024;

/// How many books of one transcript are kept: that of the live branch, and those of forks from it.
const BOOKS_OF_ONE: usize = 4;

/// From this length on a transcript is read in two halves at once: below it a second thread gains little.
const HALVES_BYTES: u64 = 32 * 1024 * 1024;

/// How much is read at once of a transcript as a whole, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// What one place in the library takes beside what was read, in bytes, roughly: its path and what stands around it.
const PLACE_BYTES: usize = 1024;

/// The transcripts that were read. Shared by all who read.
#[derive(Debug)]
pub struct Library {
    halves_bytes: u64,
    hasher: RandomState,
    kept: Cache<PathBuf, Volume>,
    /// The same for the rollouts of Codex, which keep their own count.
    pub(crate) rollouts: RolloutBooks,
    /// The same for the transcripts of Qwen Code.
    pub(super) qwen: QwenBooks,
}

/// How a transcript stands, for one who watches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How many prompts it holds, those of abandoned branches too.
    pub prompts: u64,
    /// Whether the last turn of the live branch is over: its last message is a reply's text with which the model
    /// ended, an error in place of one, or the mark of an interruption.
    pub turn_end: TurnEnd,
    /// How many bytes were read.
    pub bytes: u64,
}

/// What is known of one transcript.
#[derive(Debug)]
struct Volume {
    identity: Identity,
    /// A hash of the bytes before the end of the last whole line.
    tail: u64,
    index: Arc<Index>,
    /// The books that were asked for, by the record with which they end; the last one used stands first.
    books: Vec<(Option<String>, Arc<Book>)>,
}

/// What changes when a file does. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Default for Library {
    fn default() -> Self {
        Self::with_limit(LIBRARY_BYTES)
    }
}

impl Library {
    /// A library that keeps this many bytes at most; what was used least recently leaves first. The one used last may take
    /// more by itself, up to [`NEWEST_BYTES`].
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self {
            halves_bytes: HALVES_BYTES,
            hasher: RandomState::new(),
            kept: Cache::new(limit_bytes, NEWEST_BYTES.max(limit_bytes)),
            rollouts: RolloutBooks::default(),
            qwen: QwenBooks::default(),
        }
    }

    /// Where the chain records of a transcript stand.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] when it is not a file, or cannot be opened or read.
    pub fn index(&self, path: &Path) -> Result<Arc<Index>, TranscriptError> {
        self.look(path, |volume, _| Ok(Arc::clone(&volume.index)))
    }

    /// Opens a transcript, with its messages up to the record `until` or of its live branch.
    ///
    /// # Errors
    /// As [`Library::index`], and [`TranscriptError::RecordNotFound`] when `until` is not there.
    pub fn open(&self, path: &Path, until: Option<&str>) -> Result<OpenBook, TranscriptError> {
        self.look(path, |volume, file| {
            let book = volume.book(until);
            let book = book.ok_or_else(|| TranscriptError::RecordNotFound {
                path: path.to_owned(),
                uuid: until.unwrap_or_default().to_owned(),
            })?;
            Ok(OpenBook::new(path, file, book))
        })
    }

    /// What a transcript says of where it came from.
    ///
    /// # Errors
    /// As [`Library::index`].
    pub fn origin(&self, path: &Path) -> Result<Origin, TranscriptError> {
        self.look(path, |volume, file| {
            let reader = BufReader::with_capacity(READ_BYTES, file);
            Origin::of(&volume.index, own_id(path), reader).map_err(TranscriptError::io("read", path))
        })
    }

    /// How a transcript stands: read from what is known of it, what was appended, and its last message.
    ///
    /// # Errors
    /// As [`Library::index`].
    pub fn standing(&self, path: &Path) -> Result<Standing, TranscriptError> {
        self.look(path, |volume, file| {
            let reader = BufReader::with_capacity(READ_BYTES, file);
            let turn_end = volume.index.live_turn_end(reader);
            Ok(Standing {
                prompts: volume.index.prompts(),
                turn_end: turn_end.map_err(TranscriptError::io("read", path))?,
                bytes: volume.index.bytes(),
            })
        })
    }

    /// How many turns a transcript holds on its live branch (a rollout with those that it continues), when they were
    /// counted before and the file is the one that was read. Reads nothing, and does not wait for one who reads.
    #[must_use]
    pub fn known_turns(&self, path: &Path, identity: &Identity) -> Option<u64> {
        let Some(slot) = self.kept.get(&path.to_owned()) else {
            let known = self.rollouts.known_turns(path, identity);
            return known.or_else(|| self.qwen.known_turns(path, identity));
        };
        let known = slot.try_lock().ok()?;
        let volume = known.as_ref().filter(|volume| volume.identity == *identity)?;
        let (_, book) = volume.books.iter().find(|(until, _)| until.is_none())?;
        Some(book.turns() as u64)
    }

    /// Forgets a transcript, as when it was removed.
    pub fn forget(&self, path: &Path) {
        self.kept.forget(&path.to_owned());
    }

    /// How much is kept, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Brings what is known of a transcript up to date and looks at it. Who asks for the same one meanwhile waits.
    fn look<T>(
        &self,
        path: &Path,
        tell: impl FnOnce(&mut Volume, File) -> Result<T, TranscriptError>,
    ) -> Result<T, TranscriptError> {
        self.kept.look(&path.to_owned(), Volume::memory_bytes, |known| {
            let (mut volume, file) = self.refreshed(path, known.take())?;
            let told = tell(&mut volume, file);
            *known = Some(volume);
            told
        })
    }

    /// What is known of a transcript as it is now, and the file.
    fn refreshed(&self, path: &Path, known: Option<Volume>) -> Result<(Volume, File), TranscriptError> {
        let (file, metadata) = open_with_metadata(path).map_err(TranscriptError::io("open", path))?;
        let identity = Identity::of(&metadata);
        let volume = match known {
            Some(volume) if volume.identity == identity => Ok(volume),
            Some(volume) => match self.has_only_grown(&volume, &identity, &file) {
                Ok(true) => self.extended(volume, identity, &file),
                Ok(false) => self.read(identity, &file),
                Err(error) => Err(error),
            },
            None => self.read(identity, &file),
        };
        Ok((volume.map_err(TranscriptError::io("read", path))?, file))
    }

    fn has_only_grown(&self, volume: &Volume, now: &Identity, file: &File) -> io::Result<bool> {
        if !now.may_have_grown_from(&volume.identity) || !volume.index.can_extend() {
            return Ok(false);
        }
        Ok(self.tail(file, volume.index.whole_bytes())? == Some(volume.tail))
    }

    fn extended(&self, mut volume: Volume, identity: Identity, file: &File) -> io::Result<Volume> {
        // The books of before the growth would only keep the index from being changed where it is.
        volume.books.clear();
        let mut index = Arc::unwrap_or_clone(volume.index);
        index.extend(piece(file, index.whole_bytes(), identity.bytes))?;
        self.volume(index, identity, file)
    }

    fn read(&self, identity: Identity, file: &File) -> io::Result<Volume> {
        let end = identity.bytes;
        let middle = match end < self.halves_bytes {
            true => None,
            false => line_behind(file, end / 2, end)?,
        };
        let index = match middle {
            None => Index::read(piece(file, 0, end))?,
            Some(middle) => Index::read_parts(piece(file, 0, middle), piece(file, middle, end), middle)?,
        };
        self.volume(index, identity, file)
    }

    fn volume(&self, index: Index, mut identity: Identity, file: &File) -> io::Result<Volume> {
        // Shorter than it was when it was opened: it is being written anew, and the next to ask finds other times.
        identity.bytes = index.bytes();
        let tail = self.tail(file, index.whole_bytes())?;
        Ok(Volume {
            identity,
            tail: tail.unwrap_or_default(),
            index: Arc::new(index),
            books: Vec::new(),
        })
    }

    /// A hash of the last bytes before `end`; none when the file is shorter.
    fn tail(&self, file: &File, end: u64) -> io::Result<Option<u64>> {
        tail_hash(&self.hasher, file, end)
    }
}

impl Volume {
    fn book(&mut self, until: Option<&str>) -> Option<Arc<Book>> {
        let place = self.books.iter().position(|(end, _)| end.as_deref() == until);
        let kept = match place {
            Some(place) => self.books.remove(place),
            None => (until.map(str::to_owned), Arc::new(Book::of(&self.index, until)?)),
        };
        let book = Arc::clone(&kept.1);
        self.books.insert(0, kept);
        self.books.truncate(BOOKS_OF_ONE);
        Some(book)
    }

    fn memory_bytes(&self) -> usize {
        let books = self.books.iter().map(|(_, book)| book.memory_bytes());
        PLACE_BYTES + self.index.memory_bytes() + books.sum::<usize>()
    }
}

impl Identity {
    /// Of a file that was looked at.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Which file it is, whatever became of it: device and inode.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When it was written last.
    pub(super) fn modified_at(&self) -> Timestamp {
        let (seconds, nanoseconds) = self.modified;
        let at = Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0));
        at.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Whether it is the same file and longer than it was.
    pub(super) fn may_have_grown_from(&self, before: &Self) -> bool {
        self.file() == before.file() && self.bytes > before.bytes
    }
}

/// A hash of the last bytes before `end`; none when the file is shorter.
pub(super) fn tail_hash(hasher: &RandomState, file: &File, end: u64) -> io::Result<Option<u64>> {
    let start = end.saturating_sub(TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or_default()];
    match file.read_exact_at(&mut bytes, start) {
        Ok(()) => Ok(Some(hasher.hash_one(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The session whose transcript this is, by the file's name.
fn own_id(path: &Path) -> &str {
    path.file_stem().and_then(OsStr::to_str).unwrap_or_default()
}

/// The bytes from `start` to `end`: what is appended while they are read belongs to the next reading.
fn piece(file: &File, start: u64, end: u64) -> BufReader<Metered<Piece<'_>>> {
    let length = end.saturating_sub(start);
    let capacity = usize::try_from(length).unwrap_or(PIECE_BYTES);
    let piece = Piece { file, at: start, end };
    BufReader::with_capacity(capacity.clamp(1, PIECE_BYTES), Metered::new(piece, length))
}

/// Where the first line begins that begins behind `start`; none before `end`.
fn line_behind(file: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let mut reader = BufReader::new(Piece { file, at: start, end });
    let skipped = reader.skip_until(b'\n')? as u64;
    Ok(Some(start + skipped).filter(|line| *line < end))
}

/// A part of a file, whatever others read of it.
struct Piece<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Piece<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
