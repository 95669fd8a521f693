//! The journal: one line per durable change. It is the authoritative side of the store.
//!
//! This module owns the file's format, appending and reading. The first line is a header with the file's format and
//! generation; every later format keeps the members of [`Format`] readable. Each further line is
//! `{"seq":N,"sum":"<crc32>","change":{…}}`, with the checksum over sequence and change. A line is valid once it is
//! synced. This module does not know the content of changes.
//!
//! **A failed append leaves nothing.** The bytes of a failed write or sync are cut off. If that fails too, the next
//! append tries again, and otherwise overwrites them. Linux reports a failed sync only once and may then drop the
//! pages, so none of these bytes are reused: the lines are written again or not at all. All earlier lines are already
//! synced.
//!
//! **A torn tail is cut off.** A kill during an append leaves whole lines and the beginning of one, none of them
//! acknowledged. Any other bad line is damage; the module `open` handles it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::body::{remove_durably, sync_folder_of};
use super::error::StoreError;
use super::value::VALUE_LIMIT_BYTES;
use crate::files::durable;
use crate::paths::names;

/// The version of the file format that this program writes.
const FORMAT: u32 = 1;

/// The longest line, in bytes. A change has at most a few kilobytes per item, and a damaged file must not be read
/// into memory whole.
pub(super) const LINE_LIMIT_BYTES: usize = 64 << 20;

/// How many bytes are reserved after the last line for changes that cannot be refused: the ends of about 64 turns, each with a
/// record and an answer of the largest size that needs no file of its own. A larger answer is shortened if no file can hold it.
/// Usually the end of a turn takes a few kilobytes.
const RESERVE_BYTES: u64 = 64 * 2 * VALUE_LIMIT_BYTES as u64;

/// How many further bytes are allocated at once, if the disk has space.
const PREALLOCATED_BYTES: u64 = 16 << 10;

/// The file operations that the journal needs. Tests substitute a failing file.
pub(super) trait AppendFile: Send {
    /// Writes all bytes at the offset.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Allocates disk space for this range, without changing the length.
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()>;
    /// Makes data and length durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to this length.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Whether the file was unlinked: it has no name any more, not even this path.
    fn is_removed(&self, path: &Path) -> io::Result<bool>;
}

impl AppendFile for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let bytes = to.saturating_sub(from);
        let allocated =
            rustix::io::retry_on_intr(|| fallocate(&*self, FallocateFlags::KEEP_SIZE, from, bytes));
        Ok(allocated?)
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&mut self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn is_removed(&self, path: &Path) -> io::Result<bool> {
        let metadata = self.metadata()?;
        if metadata.nlink() > 0 {
            return Ok(false);
        }
        // Some file systems do not report the number of links, so check the path too.
        match std::fs::symlink_metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) != (metadata.dev(), metadata.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// What the first line of every format contains.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Format {
    journal: u32,
    /// Absent in journals of the first versions.
    #[serde(default)]
    written_by: Option<String>,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JournalHeader {
    /// [`FORMAT`].
    journal: u32,
    /// Distinguishes this file from the one that a compaction replaces.
    pub(super) generation: Uuid,
    /// The sequence that the compacted lines at the beginning add up to; 0 in a new journal.
    pub(super) base: u64,
    /// The program that created the file, so that an older one can name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written_by: Option<String>,
}

/// A position in a journal: after the line with this sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Position {
    pub(super) generation: Uuid,
    pub(super) sequence: u64,
    /// Where the last line begins; equals `end_offset` if there is none.
    pub(super) line_offset: u64,
    /// Where the next line goes.
    pub(super) end_offset: u64,
    /// The checksum of the last line, to detect a journal that diverged. `None` if there is no line, or if an earlier
    /// version wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) line_sum: Option<u32>,
}

impl Position {
    /// Returns the position before the first line.
    pub(super) fn before_lines(generation: Uuid, sequence: u64, offset: u64) -> Self {
        Self {
            generation,
            sequence,
            line_offset: offset,
            end_offset: offset,
            line_sum: None,
        }
    }

    /// Whether both are the same position, regardless of the line's checksum.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        let place = |of: &Self| (of.generation, of.sequence, of.end_offset);
        place(self) == place(other)
    }
}

/// The journal, open for appending.
pub(super) struct Journal {
    file: Box<dyn AppendFile>,
    path: PathBuf,
    position: Position,
    /// The end of the allocated space; 0 if unknown.
    allocated: u64,
    /// Whether a failed append may have left bytes after the end.
    may_have_leftover: bool,
    /// Whether a crash of the machine could bring back the journal that this one replaced.
    has_unsynced_name: bool,
}

/// An unreadable part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRegion {
    /// Its offset, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// The bytes after the last good line.
#[derive(Clone, Debug)]
pub(super) struct UnreadableEnd {
    pub(super) region: BadRegion,
    /// Whether they contain more than one unfinished line, so that they must be copied.
    pub(super) has_whole_line: bool,
}

/// The result of reading the file.
#[derive(Clone, Debug)]
pub(super) struct JournalScan {
    /// The position after the last good line.
    pub(super) position: Position,
    /// Bad regions before the last good line.
    pub(super) damaged: Vec<BadRegion>,
    pub(super) unreadable_end: Option<UnreadableEnd>,
    /// The sequences before the last good line for which there is no good line.
    pub(super) missing: Vec<RangeInclusive<u64>>,
}

/// Synced content that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalCheck {
    pub(super) damaged: Vec<BadRegion>,
    /// How many sequences have no good line.
    pub(super) missing: u64,
}

#[derive(Deserialize)]
struct JournalLine<'a> {
    seq: u64,
    #[serde(borrow)]
    sum: &'a str,
    #[serde(borrow)]
    change: &'a RawValue,
}

/// Encodes one line, with its line break.
pub(super) fn encode_line(sequence: u64, change: &str) -> Vec<u8> {
    let sum = checksum(sequence, change);
    format!("{{\"seq\":{sequence},\"sum\":\"{sum:08x}\",\"change\":{change}}}\n").into_bytes()
}

/// A journal under construction that will replace the existing one.
pub(super) struct NewJournal {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    position: Position,
}

impl NewJournal {
    /// Begins a journal whose lines add up to the sequence `base`.
    pub(super) fn begin(path: &Path, base: u64) -> Result<Self, StoreError> {
        let temporary = path.with_file_name(names::NEW_JOURNAL);
        let header = JournalHeader {
            journal: FORMAT,
            generation: Uuid::new_v4(),
            base,
            written_by: Some(concat!("session-bridge ", env!("CARGO_PKG_VERSION")).to_owned()),
        };
        let mut line = serde_json::to_vec(&header).map_err(StoreError::unwritable("journal header"))?;
        line.push(b'\n');
        let end_offset = line.len() as u64;
        // A link is removed, not followed.
        remove_durably(&temporary)?;
        let file = File::create_new(&temporary).map_err(StoreError::io("create", &temporary))?;
        let mut journal = Self {
            file: BufWriter::with_capacity(1 << 18, file),
            temporary,
            path: path.to_owned(),
            position: Position::before_lines(header.generation, base, end_offset),
        };
        journal.write(&line)?;
        Ok(journal)
    }

    /// Adds a line. All lines of a compacted journal carry its base as their sequence.
    pub(super) fn push(&mut self, change: &str) -> Result<(), StoreError> {
        let line = encode_line(self.position.sequence, change);
        self.write(&line)?;
        self.position.line_offset = self.position.end_offset;
        self.position.end_offset += line.len() as u64;
        self.position.line_sum = Some(crc32fast::hash(&line));
        Ok(())
    }

    /// Syncs the file, still under its temporary name.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.file
            .flush()
            .and_then(|()| durable::sync_file(self.file.get_ref(), &self.temporary))
            .map_err(StoreError::io("write", &self.temporary))
    }

    /// Replaces the old journal with this one, which the caller has synced. The new name is durable after
    /// [`Journal::sync_name`], at the latest with the next append.
    ///
    /// # Errors
    /// Only if the old journal is still in place. So no error can leave the caller with a journal that has no name.
    pub(super) fn put_in_place(self) -> Result<Journal, StoreError> {
        let file = self
            .file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let file = file.map_err(StoreError::io("write", &self.temporary))?;
        durable::rename(&self.temporary, &self.path).map_err(StoreError::io("rename", &self.temporary))?;
        Ok(Journal {
            has_unsynced_name: true,
            ..Journal::with_file(Box::new(file), &self.path, self.position)
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(bytes)
            .map_err(StoreError::io("write", &self.temporary))
    }
}

/// Creates an empty journal.
pub(super) fn create(path: &Path) -> Result<Position, StoreError> {
    let mut journal = NewJournal::begin(path, 0)?;
    journal.sync()?;
    let mut journal = journal.put_in_place()?;
    journal.sync_name()?;
    Ok(journal.position)
}

/// Reads the header. Returns it with the offset of the next line, or `None` if the first line is not a header.
///
/// # Errors
/// [`StoreError::NewerJournal`] if a newer version wrote it. Nothing else is read then.
pub(super) fn read_header(path: &Path) -> Result<Option<(JournalHeader, u64)>, StoreError> {
    /// A header of this format takes about 150 bytes; later ones may be longer.
    const HEADER_LIMIT_BYTES: u64 = 64 << 10;
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let mut line = Vec::new();
    BufReader::new(file.take(HEADER_LIMIT_BYTES))
        .read_until(b'\n', &mut line)
        .map_err(StoreError::io("read", path))?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    if let Ok(format) = serde_json::from_slice::<Format>(&line)
        && format.journal > FORMAT
    {
        return Err(StoreError::NewerJournal {
            path: path.to_owned(),
            format: format.journal,
            newest: FORMAT,
            written_by: format.written_by,
        });
    }
    let header = serde_json::from_slice::<JournalHeader>(&line).ok();
    Ok(header
        .filter(|header| header.journal == FORMAT)
        .map(|header| (header, line.len() as u64)))
}

/// Whether the line before the position exists, is complete, and is the same as when the position was recorded.
pub(super) fn contains_line_at(path: &Path, position: &Position) -> Result<bool, StoreError> {
    let (Some(length), true) = (
        position.end_offset.checked_sub(position.line_offset),
        position.end_offset.saturating_sub(position.line_offset) <= LINE_LIMIT_BYTES as u64,
    ) else {
        return Ok(false);
    };
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let file_length = file.metadata().map_err(StoreError::io("inspect", path))?.len();
    if position.end_offset > file_length {
        return Ok(false);
    }
    if length == 0 {
        return Ok(true);
    }
    let mut line = vec![0; usize::try_from(length).unwrap_or(LINE_LIMIT_BYTES)];
    file.read_exact_at(&mut line, position.line_offset)
        .map_err(StoreError::io("read", path))?;
    let has_sum = position.line_sum.is_none_or(|sum| sum == crc32fast::hash(&line));
    Ok(has_sum && decode_line(&line).is_some_and(|line| line.seq == position.sequence))
}

/// Reads the lines after a position and passes each good line with a new sequence to `each`.
///
/// `base` is the header's: lines up to it may share one sequence, as a compaction writes them. Without a readable
/// header, any lines may.
pub(super) fn scan(
    path: &Path,
    from: &Position,
    base: Option<u64>,
    each: impl FnMut(&Position, &str) -> Result<(), StoreError>,
) -> Result<JournalScan, StoreError> {
    scan_until(path, from, u64::MAX, base, each)
}

/// Checks all lines up to `end_offset`. Another thread may be appending after it.
pub(super) fn verify(path: &Path, end_offset: u64, sequence: u64) -> Result<JournalCheck, StoreError> {
    let header = read_header(path)?;
    let (base, begin) = header.map_or((None, 0), |(header, begin)| (Some(header.base), begin));
    let from = Position::before_lines(Uuid::nil(), 0, begin);
    let scanned = scan_until(path, &from, end_offset, base, |_, _| Ok(()))?;
    let mut damaged = scanned.damaged;
    // Everything up to `end_offset` was synced, so whatever is unreadable or missing is damage.
    damaged.extend(scanned.unreadable_end.map(|end| end.region));
    let length = std::fs::metadata(path)
        .map_err(StoreError::io("inspect", path))?
        .len();
    if length < end_offset {
        damaged.push(BadRegion {
            offset: length,
            bytes: end_offset - length,
        });
    }
    let last = scanned.position.sequence.max(base.unwrap_or(0));
    Ok(JournalCheck {
        damaged,
        missing: sequence_count(&scanned.missing) + sequence.saturating_sub(last),
    })
}

/// Returns how many sequences the ranges contain.
pub(super) fn sequence_count(ranges: &[RangeInclusive<u64>]) -> u64 {
    ranges.iter().map(|range| range.end() - range.start() + 1).sum()
}

/// Returns the part of the ranges after `sequence`.
pub(super) fn ranges_after(ranges: &[RangeInclusive<u64>], sequence: u64) -> Vec<RangeInclusive<u64>> {
    let later = ranges.iter().filter(|range| *range.end() > sequence);
    later
        .map(|range| (sequence + 1).max(*range.start())..=*range.end())
        .collect()
}

fn scan_until(
    path: &Path,
    from: &Position,
    end_offset: u64,
    base: Option<u64>,
    mut each: impl FnMut(&Position, &str) -> Result<(), StoreError>,
) -> Result<JournalScan, StoreError> {
    let mut file = File::open(path).map_err(StoreError::io("open", path))?;
    file.seek(SeekFrom::Start(from.end_offset))
        .map_err(StoreError::io("read", path))?;
    let mut reader = BufReader::with_capacity(1 << 20, file.take(end_offset.saturating_sub(from.end_offset)));
    let mut scanned = JournalScan {
        position: from.clone(),
        damaged: Vec::new(),
        unreadable_end: None,
        missing: Vec::new(),
    };
    let mut offset = from.end_offset;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader)
            .take(LINE_LIMIT_BYTES as u64)
            .read_until(b'\n', &mut line)
            .map_err(StoreError::io("read", path))?;
        if read == 0 {
            return Ok(scanned);
        }
        let start = offset;
        offset += read as u64;
        let last = scanned.position.sequence;
        let valid = decode_line(&line)
            .filter(|line| line.seq > last || (line.seq == last && base.is_none_or(|base| line.seq <= base)));
        let Some(valid) = valid else {
            let end = scanned.unreadable_end.get_or_insert(UnreadableEnd {
                region: BadRegion {
                    offset: start,
                    bytes: 0,
                },
                has_whole_line: false,
            });
            end.region.bytes += read as u64;
            end.has_whole_line |= line.last() == Some(&b'\n');
            continue;
        };
        scanned
            .damaged
            .extend(scanned.unreadable_end.take().map(|end| end.region));
        // Without a header, it is unknown which changes came before the first line.
        let last_accounted = match base {
            Some(base) => last.max(base),
            None if last == 0 => valid.seq,
            None => last,
        };
        if valid.seq > last_accounted + 1 {
            scanned.missing.push(last_accounted + 1..=valid.seq - 1);
        }
        scanned.position.sequence = valid.seq;
        scanned.position.line_offset = start;
        scanned.position.end_offset = offset;
        scanned.position.line_sum = Some(crc32fast::hash(&line));
        each(&scanned.position, valid.change.get())?;
    }
}

impl Journal {
    /// Opens the file for appending at this position. Truncates what comes after it.
    pub(super) fn open(path: &Path, position: Position) -> Result<Self, StoreError> {
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(StoreError::io("open", path))?;
        let length = file.metadata().map_err(StoreError::io("inspect", path))?.len();
        if length > position.end_offset {
            file.set_len(position.end_offset)
                .and_then(|()| file.sync_data())
                .map_err(StoreError::io("cut", path))?;
        }
        Ok(Self::with_file(Box::new(file), path, position))
    }

    pub(super) fn with_file(medium: Box<dyn AppendFile>, path: &Path, position: Position) -> Self {
        Self {
            file: medium,
            path: path.to_owned(),
            position,
            allocated: 0,
            may_have_leftover: false,
            has_unsynced_name: false,
        }
    }

    /// Makes the name of a journal that replaced another one durable, unless it is already.
    pub(super) fn sync_name(&mut self) -> Result<(), StoreError> {
        if self.has_unsynced_name {
            sync_folder_of(&self.path)?;
            self.has_unsynced_name = false;
        }
        Ok(())
    }

    /// Ensures that after appending this many bytes, there is still room for changes that cannot be refused. Called for a
    /// change that can be refused.
    ///
    /// # Errors
    /// If there is not enough room.
    pub(super) fn ensure_reserve(&mut self, bytes: usize) -> Result<(), StoreError> {
        let from = self.position.end_offset;
        let to = from + bytes as u64 + RESERVE_BYTES;
        if to <= self.allocated {
            return Ok(());
        }
        let preallocated_end = to + PREALLOCATED_BYTES;
        let allocated = match self.file.allocate(from, preallocated_end) {
            Ok(()) => Ok(preallocated_end),
            Err(_) => self.file.allocate(from, to).map(|()| to),
        };
        match allocated {
            Ok(to) => self.allocated = to,
            Err(error) if is_disk_full(&error) => return Err(StoreError::io("write", &self.path)(error)),
            // The file system cannot allocate space.
            Err(_) => self.allocated = u64::MAX,
        }
        Ok(())
    }

    /// Tries to reserve the same room without appending. If that fails, the next change that can be refused tries again.
    pub(super) fn try_ensure_reserve(&mut self) {
        if let Err(error) = self.ensure_reserve(0) {
            tracing::warn!(%error, "there is no room yet for the ends of running turns");
        }
    }

    /// Returns the position after the last synced line.
    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Appends lines with one write and one sync. `sequence` is that of the last line, which has `last_line_bytes`
    /// bytes. On an error, none of the lines is valid.
    pub(super) fn append(
        &mut self,
        lines: &[u8],
        sequence: u64,
        last_line_bytes: usize,
    ) -> Result<(), StoreError> {
        self.sync_name()?;
        self.remove_leftover()?;
        let end = self.position.end_offset;
        self.may_have_leftover = true;
        let written = self
            .file
            .write_at(lines, end)
            .map_err(StoreError::io("write", &self.path))
            .and_then(|()| self.file.sync().map_err(StoreError::io("sync", &self.path)))
            .and_then(|()| self.check_not_removed());
        if let Err(error) = written {
            if let Err(cutting) = self.truncate_to_position() {
                tracing::warn!(%cutting, "cannot cut off what a failed append left; the next append retries");
            }
            return Err(error);
        }
        self.may_have_leftover = false;
        self.position.sequence = sequence;
        self.position.end_offset = end + lines.len() as u64;
        self.position.line_offset = self.position.end_offset - last_line_bytes as u64;
        let last_line = lines
            .len()
            .checked_sub(last_line_bytes)
            .and_then(|at| lines.get(at..));
        self.position.line_sum = last_line.map(crc32fast::hash);
        Ok(())
    }

    /// Fails if the file was unlinked: writing to it succeeds, but the data would be lost.
    fn check_not_removed(&self) -> Result<(), StoreError> {
        let removed = self.file.is_removed(&self.path);
        if removed.map_err(StoreError::io("inspect", &self.path))? {
            return Err(StoreError::Removed {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    /// Undoes the last append, because its change could not be applied.
    pub(super) fn undo_append(&mut self, before: Position) -> Result<(), StoreError> {
        self.position = before;
        self.may_have_leftover = true;
        self.truncate_to_position()
    }

    /// Cuts off what a failed append may have left, so that the file ends at the position.
    pub(super) fn remove_leftover(&mut self) -> Result<(), StoreError> {
        if self.may_have_leftover {
            self.truncate_to_position()?;
        }
        Ok(())
    }

    fn truncate_to_position(&mut self) -> Result<(), StoreError> {
        self.file
            .truncate(self.position.end_offset)
            .and_then(|()| self.file.sync())
            .map_err(StoreError::io("cut", &self.path))?;
        // Truncating may have freed the space that was allocated after the end.
        self.allocated = 0;
        self.may_have_leftover = false;
        self.try_ensure_reserve();
        Ok(())
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn decode_line(bytes: &[u8]) -> Option<JournalLine<'_>> {
    let text = bytes.strip_suffix(b"\n")?;
    let line: JournalLine<'_> = serde_json::from_slice(text).ok()?;
    let sum = u32::from_str_radix(line.sum, 16).ok()?;
    (sum == checksum(line.seq, line.change.get())).then_some(line)
}

fn checksum(sequence: u64, change: &str) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_be_bytes());
    hasher.update(change.as_bytes());
    hasher.finalize()
}

#[cfg(test)]
pub(super) mod tests;
