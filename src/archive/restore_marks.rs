//! Marks of transcripts that were restored from older copies. A mark records how many turns the transcript lacks, and is
//! removed after its conversation has reported them. Nothing else records this once the restored file has its name.
//!
//! Each mark is a file of its own, outside the folder of the copies. Marks therefore do not depend on the lists of copies,
//! which may be damaged, set aside, pruned or of a newer version. A transcript without a mark either was not restored, or its
//! missing turns were reported. The folder of the marks is next to the folders of the roots. It has one folder per root, and in
//! that one file per session.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Archive, SessionKey, relative_folder};
use crate::files::set_aside::{self, Unreadable};
use crate::files::{checked_lines, durable, is_absence, is_passing, misplaced};
use crate::paths::names::{EntryKind, UNREPORTED};
use crate::transcript::TranscriptError;

/// The version of a mark that this program writes.
const VERSION: u64 = 1;

/// How many turns a transcript or a copy of it lacks. In the order, an unknown number is greater than any known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingTurns {
    /// This many turns.
    Known(u64),
    /// An unknown number: the list does not state it for the copy, or the mark is damaged or of a newer version.
    Unknown,
}

impl MissingTurns {
    /// Returns the number of turns; 0 if it is unknown.
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
    /// The transcript root. For users who look into the folder.
    root: String,
    upstream_id: String,
    /// `None` if the number is unknown. Older versions treat such a mark as damaged, which also means an unknown
    /// number.
    turns: Option<u64>,
}

impl Archive {
    /// Returns how many turns the restored transcript of a session lacks that its conversation has not yet reported as missing.
    /// `None` without a mark, and for an id that is not a valid file name, under which nothing is ever restored.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the mark cannot be read now, so that it is unknown whether there is one.
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

    /// Removes the mark of a session, because its conversation has reported the missing turns or was deleted.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn clear_restore_mark(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        let path = self.mark_path(key)?;
        let _held = self.lock(key);
        self.remove_mark(&path)
    }

    /// Restores a transcript that will lack these turns. `put` must call its argument right before the file gets its name; that
    /// call writes the mark durably. If `put` fails, the earlier mark is restored. The caller must hold the session's lock.
    pub(super) fn restore_with_mark<T>(
        &self,
        key: &SessionKey,
        missing: MissingTurns,
        put: impl FnOnce(&mut dyn FnMut() -> Result<(), TranscriptError>) -> Result<T, TranscriptError>,
    ) -> Result<T, TranscriptError> {
        let path = self.mark_path(key)?;
        let previous = self.unreported_missing_turns(key)?;
        if missing == MissingTurns::Known(0) || previous >= Some(missing) {
            return put(&mut || Ok(()));
        }
        let mut is_written = false;
        let put = put(&mut || {
            self.check_mark_folder(&path)?;
            is_written = true;
            write_mark(&path, key, missing)
        });
        if put.is_err() && is_written {
            let back = match previous {
                Some(previous) => write_mark(&path, key, previous),
                None => self.remove_mark(&path),
            };
            if let Err(error) = back {
                tracing::warn!(%error, "a transcript that was not restored is reported to lack turns");
            }
        }
        put
    }

    pub(super) fn mark_path(&self, key: &SessionKey) -> Result<PathBuf, TranscriptError> {
        // The suffix distinguishes a mark from the temporary files next to it. It is no longer than a transcript's, so the
        // name is never too long.
        let mut path = self
            .folder
            .join(UNREPORTED)
            .join(relative_folder(key)?)
            .into_os_string();
        path.push(".mark");
        Ok(path.into())
    }

    /// Checks the folder of a mark before a change. A read does not check it and follows a link to the folder, because an
    /// overlooked mark would hide a loss.
    fn check_mark_folder(&self, mark: &Path) -> Result<(), TranscriptError> {
        self.check_own_folder(mark.parent().unwrap_or(mark).to_owned())
            .map(drop)
    }

    /// Removes a mark. If it is unreadable or not a file, it is set aside instead, because its content exists nowhere else.
    fn remove_mark(&self, path: &Path) -> Result<(), TranscriptError> {
        self.check_mark_folder(path)?;
        match read_mark(path).map_err(TranscriptError::io("read", path))? {
            None => Ok(()),
            Some(Ok(_)) => fs::remove_file(path).and_then(|()| durable::sync_folder_of(path)),
            // Rename it even if a newer version wrote it. Otherwise it would be reported at each resume, also by that version.
            Some(Err(why)) => set_aside::set_aside(path, &Unreadable::Damaged(why.to_string())).map(drop),
        }
        .map_err(TranscriptError::io("remove", path))
    }
}

/// Reads the mark at this path. The inner error says why it is not a valid mark.
///
/// # Errors
/// The system's error if it may be temporary: see [`is_passing`].
fn read_mark(path: &Path) -> io::Result<Option<Result<RestoreMark, Unreadable>>> {
    let none_older = || serde::de::Error::custom("its version is unknown");
    let read = misplaced::find(path, EntryKind::File).and_then(|found| match found {
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
