//! Append-only files of JSON values, one per line, each with a format version and a checksum.
//!
//! This module owns the format, and how such a file is created, appended to and read. A file gets its name together
//! with its first line, so a file without a readable first line is damaged. A kill may leave the beginning of a later
//! line, without a newline; that line was never acknowledged and is ignored. Any other unreadable line makes the whole
//! file unreadable, because its content is unknown. Lines without version and checksum are from an older version.
//! Blocks. Does not know what a value means.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::durable;
use super::set_aside::Unreadable;

/// The version of appended lines.
const VERSION: u64 = 1;

/// The suffix of a file that has no first line yet.
const INCOMPLETE_SUFFIX: &str = ".new";

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckedLine<'a> {
    version: u64,
    /// The checksum of `note`'s text.
    crc32: u32,
    #[serde(borrow)]
    note: &'a RawValue,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// Reading failed. A later attempt may succeed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The content is unreadable.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl ReadError {
    /// Whether the file does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            ReadError::Unreadable(why) => Self::new(io::ErrorKind::InvalidData, why),
        }
    }
}

/// A file to which lines are appended.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    path: PathBuf,
    file: File,
    /// The end of the last complete line, in bytes.
    complete_bytes: u64,
    /// Whether incomplete bytes may follow.
    is_torn: bool,
}

impl CheckedFile {
    /// Creates a file with its first line in an existing folder. Syncs the file and its name.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    pub(crate) fn create<N: Serialize>(path: &Path, first: &N) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Self::replace(path, std::slice::from_ref(first))
    }

    /// Writes a file with these lines in an existing folder, replacing an existing file. Syncs the file and its name.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn replace<N: Serialize>(path: &Path, lines: &[N]) -> io::Result<Self> {
        let lines = lines.iter().map(|line| encode(VERSION, line));
        let lines = lines.collect::<io::Result<Vec<_>>>()?.concat();
        durable::write_as(&incomplete_name(path), path, &lines)?;
        Ok(Self {
            path: path.to_owned(),
            file: OpenOptions::new().append(true).open(path)?,
            complete_bytes: lines.len() as u64,
            is_torn: false,
        })
    }

    /// Opens a file whose lines were [read](read).
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let text = fs::read(path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        let complete_bytes = complete_lines(&text).len();
        Ok(Self {
            path: path.to_owned(),
            file,
            complete_bytes: complete_bytes as u64,
            is_torn: complete_bytes < text.len(),
        })
    }

    /// Appends a line and syncs it.
    ///
    /// # Errors
    /// See [`CheckedFile::append_all`].
    pub(crate) fn append<N: Serialize>(&mut self, note: &N) -> io::Result<()> {
        self.append_all(std::slice::from_ref(note))
    }

    /// Appends lines and syncs them together.
    ///
    /// # Errors
    /// The system's error. The file may then have some of the lines, and an incomplete one, which is ignored.
    pub(crate) fn append_all<N: Serialize>(&mut self, notes: &[N]) -> io::Result<()> {
        let lines = notes.iter().map(|note| encode(VERSION, note));
        let lines = lines.collect::<io::Result<Vec<_>>>()?.concat();
        if self.is_torn {
            self.file.set_len(self.complete_bytes)?;
        }
        self.is_torn = true;
        self.file.write_all(&lines)?;
        durable::sync_file(&self.file, &self.path)?;
        self.complete_bytes += lines.len() as u64;
        self.is_torn = false;
        Ok(())
    }
}

/// Reads the values of a file's lines.
///
/// # Errors
/// [`ReadError`].
pub(crate) fn read<N: DeserializeOwned>(path: &Path) -> Result<Vec<N>, ReadError> {
    let text = super::read_file(path)?;
    let lines = complete_lines(&text);
    let mut notes = Vec::new();
    for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        // Older versions also wrote empty lines.
        if !line.trim_ascii().is_empty() {
            notes.push(decode(line, number + 1, VERSION, |line| {
                serde_json::from_slice(line)
            })?);
        }
    }
    let rest = &text[lines.len()..];
    if notes.is_empty() || !is_torn(rest) {
        return Err(damaged(notes.len() + 1, "it has no newline").into());
    }
    Ok(notes)
}

/// Returns the name of a file until it has its first line. If a kill leaves a file under this name, it has no content.
fn incomplete_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(INCOMPLETE_SUFFIX);
    path.with_file_name(name)
}

/// Whether a file with this name has no first line yet.
pub(crate) fn is_incomplete_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(INCOMPLETE_SUFFIX))
}

/// Encodes a value as a line of this version.
///
/// # Errors
/// If the value cannot be encoded as JSON.
pub(crate) fn encode<N: Serialize>(version: u64, note: &N) -> io::Result<Vec<u8>> {
    let note = serde_json::value::to_raw_value(note)?;
    let mut line = serde_json::to_vec(&CheckedLine {
        version,
        crc32: crc32fast::hash(note.get().as_bytes()),
        note: &note,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Decodes a line. `newest` is the newest version that the caller knows. `old` decodes lines of older versions and
/// without a version, which have no checksum.
///
/// # Errors
/// [`Unreadable`].
pub(crate) fn decode<N: DeserializeOwned>(
    line: &[u8],
    number: usize,
    newest: u64,
    old: impl FnOnce(&[u8]) -> serde_json::Result<N>,
) -> Result<N, Unreadable> {
    #[derive(Deserialize)]
    struct Version {
        version: Option<u64>,
    }
    let wrong = |error: serde_json::Error| damaged(number, &error.to_string());
    let version = serde_json::from_slice::<Version>(line).ok();
    match version.and_then(|found| found.version) {
        Some(version) if version > newest => Err(Unreadable::Newer { version, newest }),
        Some(version) if version == newest => {
            let line: CheckedLine<'_> = serde_json::from_slice(line).map_err(wrong)?;
            if crc32fast::hash(line.note.get().as_bytes()) != line.crc32 {
                return Err(damaged(number, "its checksum does not match"));
            }
            serde_json::from_str(line.note.get()).map_err(wrong)
        }
        Some(_) | None => old(line).map_err(wrong),
    }
}

fn damaged(line: usize, why: &str) -> Unreadable {
    Unreadable::Damaged(format!("line {line}: {why}"))
}

/// Returns the lines that end with a newline.
fn complete_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    &text[..end.map_or(0, |end| end + 1)]
}

/// Whether the bytes are an unfinished line, as a kill or a power failure leaves it: the beginning of a line, or
/// zeros.
fn is_torn(rest: &[u8]) -> bool {
    let end = rest.iter().rposition(|byte| *byte != 0);
    let written = &rest[..end.map_or(0, |end| end + 1)];
    match serde_json::from_slice::<serde::de::IgnoredAny>(written) {
        Ok(_) => true,
        Err(error) => error.is_eof(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Note {
        Begun { path: String },
        Done,
    }

    fn begun() -> Note {
        Note::Begun {
            path: "/some/where".to_owned(),
        }
    }

    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("notes");
        let mut file = CheckedFile::create(&path, &begun()).unwrap();
        file.append(&Note::Done).unwrap();
        path
    }

    fn is_damaged(path: &Path) -> bool {
        matches!(
            read::<Note>(path),
            Err(ReadError::Unreadable(Unreadable::Damaged(_)))
        )
    }

    #[test]
    fn appended_lines_are_read_and_can_be_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done]);
        CheckedFile::open(&path).unwrap().append(&Note::Done).unwrap();
        assert_eq!(read::<Note>(&path).unwrap().len(), 3);
        assert!(CheckedFile::create(&path, &begun()).is_err());
        assert!(matches!(
            read::<Note>(&folder.path().join("none")),
            Err(ReadError::Io(_))
        ));
    }

    /// An unacknowledged line is ignored, however much of it was written.
    #[test]
    fn a_torn_end_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let text = fs::read(&path).unwrap();
        let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..text.len() {
            for zeros in [0, 100] {
                let mut torn = text[..end].to_vec();
                torn.resize(torn.len() + zeros, 0);
                fs::write(&path, torn).unwrap();
                assert_eq!(read::<Note>(&path).unwrap(), [begun()], "{end} {zeros}");
                CheckedFile::open(&path).unwrap().append(&Note::Done).unwrap();
                assert_eq!(fs::read(&path).unwrap(), text, "{end} {zeros}");
            }
        }
        // The first line was there from the beginning.
        for end in 0..first {
            fs::write(&path, &text[..end]).unwrap();
            assert!(is_damaged(&path), "{end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                fs::write(&path, &flipped).unwrap();
                // A flipped bit may turn the version into a newer one.
                assert!(
                    matches!(read::<Note>(&path), Err(ReadError::Unreadable(_))),
                    "byte {at}, bit {bit}: {}",
                    String::from_utf8_lossy(&flipped)
                );
            }
        }
    }

    #[test]
    fn lines_of_the_previous_version_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "{\"begun\":{\"path\":\"/some/where\"}}\n\n\"done\"\n").unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done]);
        CheckedFile::open(&path).unwrap().append(&Note::Done).unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done, Note::Done]);
    }

    #[test]
    fn a_newer_version_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        fs::write(&path, "{\"version\":7,\"anything\":[]}\n").unwrap();
        let newer = Unreadable::Newer {
            version: 7,
            newest: VERSION,
        };
        let read = read::<Note>(&path);
        assert!(matches!(read, Err(ReadError::Unreadable(why)) if why == newer));
    }
}
