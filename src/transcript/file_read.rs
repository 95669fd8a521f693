//! Detects whether a file is unchanged since it was read, has only grown, or must be read again. Blocks.
//!
//! A file is the same if device, inode, size and both times are. It has only grown if it is the same inode, is longer, and
//! the last [`TAIL_BYTES`] of its whole lines have the same hash as before. An agent writes each record once, at the end,
//! with its own id and time, so nothing removed, inserted or rewritten further up leaves the same bytes there. An edit in
//! place that keeps every length and is followed by an append is not noticed; the offsets are still right then, and readers
//! compare the id of each record they decode.

use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::LazyLock;

use jiff::Timestamp;

use super::meter::Metered;

/// How many bytes before the end of the last whole line are compared: usually that line and some before it.
const TAIL_BYTES: u64 = 64 * 1024;

/// How many bytes at the end of a file are compared before and after it is read.
const END_BYTES: u64 = 4 * 1024;

/// The buffer size for reading a whole file, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Hashes are only compared within this process.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The version of a file: values that change when the file does. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    /// The size, in bytes.
    pub bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// The version of a file with this metadata.
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

    /// The device and inode, which stay when the content changes.
    #[must_use]
    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// When the file was last written.
    #[must_use]
    pub fn modified_at(&self) -> Timestamp {
        let (seconds, nanoseconds) = self.modified;
        let at = Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0));
        at.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// A file that is about to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeforeRead {
    pub(super) version: FileVersion,
    /// A hash of its last bytes.
    end_hash: Option<u64>,
}

impl BeforeRead {
    pub(super) fn of(file: &File, version: FileVersion) -> Self {
        Self {
            version,
            end_hash: hash_before(file, version.bytes, END_BYTES),
        }
    }

    /// Whether the file has only grown since. If it was replaced during the read, the result may begin like the old
    /// file and end like the new one.
    fn is_unchanged_up_to_end(&self, file: &File) -> bool {
        self.end_hash.is_some() && hash_before(file, self.version.bytes, END_BYTES) == self.end_hash
    }
}

/// The state of a file when it was read.
#[derive(Debug)]
pub(super) struct ReadState {
    identity: FileVersion,
    /// Where the last whole line ends.
    pub(super) complete_bytes: u64,
    /// A hash of the bytes before that. `None` if the file must be read again after any change.
    tail: Option<u64>,
}

/// How a file changed since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileChange {
    Same,
    /// Lines were appended.
    Grown,
    /// The file was replaced or rewritten, or appended bytes may change what was read.
    Rewritten,
}

impl ReadState {
    /// Records the state of a file that was just read. Pass `file` if appended lines can be read without the earlier
    /// ones.
    pub(super) fn new(before: BeforeRead, whole_bytes: u64, file: Option<&File>) -> Self {
        let file = file.filter(|file| before.is_unchanged_up_to_end(file));
        Self {
            identity: before.version,
            complete_bytes: whole_bytes,
            tail: file.and_then(|file| tail_hash(file, whole_bytes)),
        }
    }

    /// Whether a file with this identity is unchanged.
    pub(super) fn is_unchanged(&self, now: &FileVersion) -> bool {
        self.identity == *now
    }

    /// Returns how the file changed. `file` is the open file, and `now` its current version.
    pub(super) fn change(&self, now: &FileVersion, file: &File) -> FileChange {
        let is_longer =
            now.device_and_inode() == self.identity.device_and_inode() && now.bytes > self.identity.bytes;
        if self.is_unchanged(now) {
            FileChange::Same
        } else if is_longer && self.tail.is_some() && tail_hash(file, self.complete_bytes) == self.tail {
            FileChange::Grown
        } else {
            FileChange::Rewritten
        }
    }
}

/// A hash of the last bytes before `end`. `None` if they cannot be read: the file is then read again, and that read reports the
/// error.
fn tail_hash(file: &File, end: u64) -> Option<u64> {
    hash_before(file, end, TAIL_BYTES)
}

/// A hash of up to this many bytes before `end`.
fn hash_before(file: &File, end: u64, bytes: u64) -> Option<u64> {
    let start = end.saturating_sub(bytes);
    let mut bytes = vec![0; usize::try_from(end - start).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some(HASHER.hash_one(&bytes))
}

/// The bytes from `start` to `end`. Bytes appended meanwhile are left for the next read.
pub(super) fn read_range(file: &File, start: u64, end: u64) -> BufReader<Metered<FileRange<'_>>> {
    let length = end.saturating_sub(start);
    let capacity = usize::try_from(length).unwrap_or(PIECE_BYTES);
    let piece = FileRange { file, at: start, end };
    BufReader::with_capacity(capacity.clamp(1, PIECE_BYTES), Metered::new(piece, length))
}

/// The start of the first line that begins after `start`. `None` if no line begins before `end`.
pub(super) fn line_after(file: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let mut reader = BufReader::new(FileRange { file, at: start, end });
    let skipped = reader.skip_until(b'\n')? as u64;
    Ok(Some(start + skipped).filter(|line| *line < end))
}

/// A part of a file, independent of its cursor.
pub(super) struct FileRange<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for FileRange<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_an_append_or_anything_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let changed_to = |text: &str, can_grow: bool| {
            std::fs::write(&path, "one\ntorn").expect("a file");
            let file = File::open(&path).expect("the file");
            let identity = FileVersion::of(&file.metadata().expect("metadata"));
            let before = BeforeRead::of(&file, identity);
            let read = ReadState::new(before, 4, can_grow.then_some(&file));
            if text != "one\ntorn" {
                std::fs::write(&path, text).expect("the file");
            }
            read.change(&FileVersion::of(&file.metadata().expect("metadata")), &file)
        };
        assert_eq!(changed_to("one\ntorn", true), FileChange::Same);
        assert_eq!(changed_to("one\ntorn no more\n", true), FileChange::Grown);
        assert_eq!(
            changed_to("one\nother words\n", true),
            FileChange::Grown,
            "after the whole lines"
        );
        assert_eq!(
            changed_to("two\ntorn no more\n", true),
            FileChange::Rewritten,
            "rewritten"
        );
        assert_eq!(changed_to("one\n", true), FileChange::Rewritten, "shorter");
        assert_eq!(
            changed_to("one\ntorn no more\n", false),
            FileChange::Rewritten,
            "may change what was read"
        );
    }
}
