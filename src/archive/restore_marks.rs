//! The marks of transcripts that were restored from older copies: how many turns each lacks, until its conversation has reported
//! that. Once a restored file has its name, nothing else shows what it lacks.
//!
//! Each mark is a file of its own, outside the folder of the copies. A list of copies that is damaged, set aside, pruned or of a
//! newer version therefore neither hides a mark nor looks like one: a transcript without a mark was not restored, or what it lacks
//! was reported. Beside the folders of the roots is that of all marks; in it a folder for each root, and in that a file for each
//! session.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Archive, SessionKey, relative_folder};
use crate::files::set_aside::{self, Unreadable};
use crate::files::{checked_lines, durable, is_absence, is_passing, misplaced};
use crate::paths::names::{Kind, UNREPORTED};
use crate::transcript::TranscriptError;

/// The version of a mark that this program writes.
const VERSION: u64 = 1;

/// How many turns a transcript or a copy of it lacks. An unknown number is more than any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingTurns {
    /// This many turns.
    Known(u64),
    /// An unknown number: of a copy for which no list says it, or of a mark that is damaged or that a newer version wrote.
    Unknown,
}

impl MissingTurns {
    /// The number of turns, 0 if it is unknown.
    #[must_use]
    pub fn turns(self) -> u64 {
        match self {
            Self::Known(turns) => turns,
            Self::Unknown => 0,
        }
    }
}

impl fmt::Display for MissingTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(turns) => turns.fmt(f),
            Self::Unknown => f.write_str("an unknown number"),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RestoreMark {
    /// For a user who looks into the folder.
    root: String,
    upstream_id: String,
    /// `None` if the number is unknown. Older versions take such a mark for a damaged one, which says the same.
    turns: Option<u64>,
}

impl Archive {
    /// What the restored transcript of a session lacks that its conversation has not reported as missing. Nothing is restored under
    /// an id that names no file.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the mark cannot be read now, which says nothing of it.
    pub fn unreported_missing_turns(
        &self,
        key: &SessionKey,
    ) -> Result<Option<MissingTurns>, TranscriptError> {
        let Ok(path) = self.mark_path(key) else {
            return Ok(None);
        };
        let found = read_mark(&path).map_err(TranscriptError::io("read", &path))?;
        Ok(found.map(|mark| match mark {
            Ok(mark) => mark.turns.map_or(MissingTurns::Unknown, MissingTurns::Known),
            Err(why) => {
                tracing::warn!(path = %path.display(), %why, "how many turns a restored transcript lacks is unknown");
                MissingTurns::Unknown
            }
        }))
    }

    /// Records that the conversation has reported what the restored transcript lacks, or is deleted.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn clear_restore_mark(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        let path = self.mark_path(key)?;
        let _held = self.lock(key);
        self.remove_mark(&path)
    }

    /// Restores a transcript that will lack these turns. `put` calls its argument right before the file gets its name; the mark
    /// is durable then. If the file does not get there, the mark is as it was before. The session is locked meanwhile.
    pub(super) fn restore_with_mark<T>(
        &self,
        key: &SessionKey,
        missing: MissingTurns,
        put: impl FnOnce(&mut dyn FnMut() -> Result<(), TranscriptError>) -> Result<T, TranscriptError>,
    ) -> Result<T, TranscriptError> {
        let path = self.mark_path(key)?;
        let before = self.unreported_missing_turns(key)?;
        if missing == MissingTurns::Known(0) || before >= Some(missing) {
            return put(&mut || Ok(()));
        }
        let mut is_written = false;
        let put = put(&mut || {
            self.check_mark_folder(&path)?;
            is_written = true;
            write_mark(&path, key, missing)
        });
        if put.is_err() && is_written {
            let back = match before {
                Some(before) => write_mark(&path, key, before),
                None => self.remove_mark(&path),
            };
            if let Err(error) = back {
                tracing::warn!(%error, "a transcript that was not restored is reported to lack turns");
            }
        }
        put
    }

    pub(super) fn mark_path(&self, key: &SessionKey) -> Result<PathBuf, TranscriptError> {
        // With an ending of its own, which is no longer than a transcript's: a file is written beside itself under another ending.
        let mut path = self
            .folder
            .join(UNREPORTED)
            .join(relative_folder(key)?)
            .into_os_string();
        path.push(".mark");
        Ok(path.into())
    }

    /// Checks the folder of a mark that is about to be changed. Reading one follows a link to the folder, because a mark that is
    /// not found hides a loss.
    fn check_mark_folder(&self, mark: &Path) -> Result<(), TranscriptError> {
        self.check_own_folder(mark.parent().unwrap_or(mark).to_owned())
            .map(drop)
    }

    /// Removes a mark. One that cannot be read, or what else is in its place, is set aside, because nothing else holds what it says.
    fn remove_mark(&self, path: &Path) -> Result<(), TranscriptError> {
        self.check_mark_folder(path)?;
        match read_mark(path).map_err(TranscriptError::io("read", path))? {
            None => Ok(()),
            Some(Ok(_)) => fs::remove_file(path).and_then(|()| durable::sync_folder_of(path)),
            // Renamed even if a newer version wrote it: in its place it would be reported at each resume, by that version too.
            Some(Err(why)) => set_aside::set_aside(path, &Unreadable::Damaged(why.to_string())).map(drop),
        }
        .map_err(TranscriptError::io("remove", path))
    }
}

/// The mark at this path, or why it is none.
///
/// # Errors
/// The system's error if it says nothing of the mark: see [`is_passing`].
fn read_mark(path: &Path) -> io::Result<Option<Result<RestoreMark, Unreadable>>> {
    let none_older = || serde::de::Error::custom("its version is unknown");
    let read = misplaced::find(path, Kind::File).and_then(|found| match found {
        Some(misplaced) => Err(io::Error::other(misplaced)),
        None => fs::read(path),
    });
    match read {
        Ok(text) => Ok(Some(checked_lines::decode(&text, 1, VERSION, |_| {
            Err(none_older())
        }))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) if is_passing(&error) => Err(error),
        Err(error) => Ok(Some(Err(Unreadable::Damaged(error.to_string())))),
    }
}

fn write_mark(path: &Path, key: &SessionKey, missing: MissingTurns) -> Result<(), TranscriptError> {
    let written = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            durable::make_folders(folder)?;
        }
        let mark = RestoreMark {
            root: key.root.to_string_lossy().into_owned(),
            upstream_id: key.upstream_id.clone(),
            turns: match missing {
                MissingTurns::Known(turns) => Some(turns),
                MissingTurns::Unknown => None,
            },
        };
        durable::write(path, &checked_lines::encode(VERSION, &mark)?)
    };
    written().map_err(TranscriptError::io("write", path))
}
