//! Files of notes: what the daemon is about to do, on disk before it does it.
//!
//! Owns their form, which all of them share: one note a line as JSON, with the version of the form and a checksum. A file
//! comes to be with its first note in one step, so that one without a readable first note is damaged. Of a later note a kill
//! may leave the beginning, without a newline: it was never acknowledged, and does not count. Any other line that cannot be read
//! makes the whole file unreadable, for nobody knows what it said. Lines that the version before this one wrote have neither
//! version nor checksum. Blocks; must not know what a note means.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::aside::{self, Unreadable};
use crate::files::durable::{self, NewFile};

/// The version of the form that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

/// The end of the name of a file that does not have its first note yet.
const UNBEGUN: &str = ".new";

/// A line.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    version: u64,
    /// Of the note as it is written here.
    crc32: u32,
    #[serde(borrow)]
    note: &'a RawValue,
}

/// Why the notes of a file are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file could not be read now; a later look may be able to.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What it holds is not readable.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            ReadError::Unreadable(why) => Self::new(io::ErrorKind::InvalidData, why),
        }
    }
}

/// A file that notes are appended to.
#[derive(Debug)]
pub(crate) struct NoteFile {
    path: PathBuf,
    file: File,
    /// Up to where its lines are whole, in bytes.
    whole_bytes: u64,
    /// Whether something may stand behind that.
    is_torn: bool,
}

impl NoteFile {
    /// Makes a file with its first note, in a folder that is there. It is on disk, with its name.
    ///
    /// # Errors
    /// What the system answers; [`io::ErrorKind::AlreadyExists`] for a name that is taken.
    pub(crate) fn create<N: Serialize>(path: &Path, first: &N) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let new = unbegun(path);
        let line = line(first)?;
        let mut file = NewFile::anew(&new)?;
        file.write_all(&line)?;
        file.sync()?;
        durable::rename(&new, path)?;
        durable::sync_folder(path.parent().unwrap_or(Path::new(".")))?;
        Ok(Self {
            path: path.to_owned(),
            file: OpenOptions::new().append(true).open(path)?,
            whole_bytes: line.len() as u64,
            is_torn: false,
        })
    }

    /// Opens a file whose notes were [read](read).
    ///
    /// # Errors
    /// What the system answers.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let text = fs::read(path)?;
        let mut file = OpenOptions::new().append(true).open(path)?;
        let mut whole = whole(&text).len();
        if whole == 0 && !text.is_empty() {
            // A single note, as the version before this one wrote it.
            file.write_all(b"\n")?;
            whole = text.len() + 1;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            whole_bytes: whole as u64,
            is_torn: whole < text.len(),
        })
    }

    /// Appends a note. It is on disk then.
    ///
    /// # Errors
    /// What the system answers. Half of the note may stand there then, which does not count.
    pub(crate) fn append<N: Serialize>(&mut self, note: &N) -> io::Result<()> {
        let line = line(note)?;
        if self.is_torn {
            self.file.set_len(self.whole_bytes)?;
        }
        self.is_torn = true;
        self.file.write_all(&line)?;
        durable::sync_file(&self.file, &self.path)?;
        self.whole_bytes += line.len() as u64;
        self.is_torn = false;
        Ok(())
    }
}

/// The notes of a file.
///
/// # Errors
/// [`ReadError`].
pub(crate) fn read<N: DeserializeOwned>(path: &Path) -> Result<Vec<N>, ReadError> {
    let text = fs::read(path)?;
    let whole = whole(&text);
    let mut notes = Vec::new();
    for (number, line) in whole.split(|byte| *byte == b'\n').enumerate() {
        // Versions before this one wrote empty lines too.
        if !line.trim_ascii().is_empty() {
            notes.push(note(line, number + 1)?);
        }
    }
    let rest = &text[whole.len()..];
    if notes.is_empty() {
        // The version before this one wrote single notes without an end.
        let single = serde_json::from_slice(rest);
        notes.push(single.map_err(|error| damaged(1, &error.to_string()))?);
    } else if !is_torn(rest) {
        return Err(damaged(notes.len() + 1, "it has no end").into());
    }
    Ok(notes)
}

/// The version of a file's form, as far as that is newer than this program reads.
pub(crate) fn newer_version(path: &Path) -> Option<Unreadable> {
    match read::<serde::de::IgnoredAny>(path) {
        Err(ReadError::Unreadable(why @ Unreadable::Newer { .. })) => Some(why),
        _ => None,
    }
}

/// The name of a file until it has its first note. What has this name is of no use to anybody after a kill.
fn unbegun(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(UNBEGUN);
    path.with_file_name(name)
}

/// Whether a file of this name was to be one of notes and has none.
pub(crate) fn is_unbegun(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(UNBEGUN))
}

/// Removes what kills have left in a folder of files that had no first note yet, and the folder where nothing else is in it. To
/// be called while nobody makes one.
pub(crate) fn sweep_unbegun(folder: &Path) {
    let swept = aside::entries(folder).and_then(|entries| {
        let mut unbegun = entries.iter().filter(|path| is_unbegun(path));
        unbegun.try_for_each(fs::remove_file)
    });
    if let Err(error) = swept {
        tracing::warn!(path = %folder.display(), %error, "what was not begun could not be removed");
    }
    // That of others stays.
    let _ = fs::remove_dir(folder);
}

fn line<N: Serialize>(note: &N) -> io::Result<Vec<u8>> {
    let note = serde_json::value::to_raw_value(note)?;
    let mut line = serde_json::to_vec(&Line {
        version: VERSION,
        crc32: crc32fast::hash(note.get().as_bytes()),
        note: &note,
    })?;
    line.push(b'\n');
    Ok(line)
}

fn note<N: DeserializeOwned>(line: &[u8], number: usize) -> Result<N, Unreadable> {
    #[derive(Deserialize)]
    struct Version {
        version: Option<u64>,
    }
    let wrong = |error: serde_json::Error| damaged(number, &error.to_string());
    let said = serde_json::from_slice::<Version>(line).ok();
    match said.and_then(|said| said.version) {
        // The version before this one.
        None => serde_json::from_slice(line).map_err(wrong),
        Some(VERSION) => {
            let line: Line<'_> = serde_json::from_slice(line).map_err(wrong)?;
            if crc32fast::hash(line.note.get().as_bytes()) != line.crc32 {
                return Err(damaged(number, "its checksum is another one"));
            }
            serde_json::from_str(line.note.get()).map_err(wrong)
        }
        Some(version) if version > VERSION => Err(Unreadable::Newer {
            version,
            newest: VERSION,
        }),
        Some(version) => Err(damaged(number, &format!("there is no version {version}"))),
    }
}

fn damaged(line: usize, why: &str) -> Unreadable {
    Unreadable::Damaged(format!("line {line}: {why}"))
}

/// The lines that have an end.
fn whole(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    &text[..end.map_or(0, |end| end + 1)]
}

/// Whether this is what a kill or a loss of power leaves of a line: its beginning, or room for it.
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
        let mut file = NoteFile::create(&path, &begun()).unwrap();
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
    fn what_was_noted_is_read_and_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done]);
        NoteFile::open(&path).unwrap().append(&Note::Done).unwrap();
        assert_eq!(read::<Note>(&path).unwrap().len(), 3);
        assert!(NoteFile::create(&path, &begun()).is_err());
        assert!(matches!(
            read::<Note>(&folder.path().join("none")),
            Err(ReadError::Io(_))
        ));
    }

    /// What was not acknowledged does not count, however much of it was written.
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
                NoteFile::open(&path).unwrap().append(&Note::Done).unwrap();
                assert_eq!(fs::read(&path).unwrap(), text, "{end} {zeros}");
            }
        }
        // The first note is there from the beginning.
        for end in 0..first {
            fs::write(&path, &text[..end]).unwrap();
            assert!(is_damaged(&path), "{end}");
        }
    }

    #[test]
    fn no_flipped_bit_is_taken_for_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                fs::write(&path, &flipped).unwrap();
                // A digit of the version may become one of a newer one, and then it is left to that.
                assert!(
                    matches!(read::<Note>(&path), Err(ReadError::Unreadable(_))),
                    "byte {at}, bit {bit}: {}",
                    String::from_utf8_lossy(&flipped)
                );
            }
        }
    }

    #[test]
    fn lines_of_the_version_before_are_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "{\"begun\":{\"path\":\"/some/where\"}}\n\n\"done\"\n").unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done]);
        NoteFile::open(&path).unwrap().append(&Note::Done).unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done, Note::Done]);
        // A single one had no end.
        fs::write(&path, "{\"begun\":{\"path\":\"/some/where\"}}").unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun()]);
        NoteFile::open(&path).unwrap().append(&Note::Done).unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), [begun(), Note::Done]);
    }

    #[test]
    fn a_newer_version_is_told_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        assert_eq!(newer_version(&path), None);
        fs::write(&path, "{\"version\":7,\"anything\":[]}\n").unwrap();
        let newer = Unreadable::Newer {
            version: 7,
            newest: VERSION,
        };
        assert_eq!(newer_version(&path), Some(newer));
    }
}
