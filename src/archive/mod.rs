//! Backups of transcripts and of the files that belong to them. They remain if an agent deletes its own files.
//!
//! This module owns the layout of the archive: one folder per transcript root, in it one folder per session, and in that a list
//! and the copies. It also owns the marks of restored transcripts that lack turns. A copy starts as a hard link. The link costs
//! nothing, survives when the agent deletes its file, and shares what the agent appends, but also what it rewrites in place.
//! Later the copy becomes a compressed file, to which only new bytes are appended. If a file does not continue its newest copy,
//! another copy is made. A copy is used only if the list names it, so a kill leaves either the old state or the new one. If a
//! list cannot be read, nothing is deleted: the folder is set aside. Only files that this module wrote are deleted. Nothing is
//! read or changed through a link, or through a file in place of a folder. Blocks. This module does not know conversations or
//! when a session is backed up. Differences between formats belong to the [`Dialect`].

mod folder;
mod list;
mod pruning;
mod rejoining;
mod removing;
mod restore_marks;
mod restoring;
mod unpacking;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::digest::sha256;
use crate::files::misplaced;
use crate::paths::names::EntryKind;
use crate::transcript::TranscriptError;
use crate::transcript::dialect::Dialect;
use crate::transcript::locate::file_name;
use folder::SessionFolder;
use list::FileStamp;

pub use pruning::{ArchiveTotal, ArchivedSession};
pub use restore_marks::MissingTurns;
pub use restoring::{CopyOrigin, CopyWithLostTurns, OnPlacing, RelocationLookup, RestoreCallbacks};
use unpacking::RecentlyUnpacked;
pub use unpacking::Unpacked;

/// How many locks the sessions share. Sessions with the same lock are not backed up or restored at the same time.
const LOCK_COUNT: usize = 64;

/// The length of the name of a root's folder, in hexadecimal digits.
const DIGEST_DIGITS: usize = 16;

/// The key of a backed-up session. An upstream id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The agent's folder of transcripts.
    pub root: PathBuf,
    /// The agent's own id of the session.
    pub upstream_id: String,
}

/// The result of backing up a session.
#[derive(Debug, Default)]
pub struct BackupOutcome {
    /// Whether the transcript is shorter than its newest copy or begins differently. Not set by a move.
    pub is_rewritten: bool,
    /// The first error. The other files are backed up nevertheless.
    pub error: Option<TranscriptError>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// The path of the copy.
    pub path: PathBuf,
    /// How many bytes of disk space it takes; 0 for a link to a file that the agent still has.
    pub bytes: u64,
}

/// The archive: the copies of all sessions.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    locks: Vec<Mutex<()>>,
    /// The copies that were most recently unpacked for reading.
    recent: Mutex<RecentlyUnpacked>,
}

impl Archive {
    /// Creates the archive in this folder. The folder itself is created by the first backup.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            locks: (0..LOCK_COUNT).map(|_| Mutex::default()).collect(),
            recent: Mutex::default(),
        }
    }

    /// Returns the folder of the archive.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces the links of a session whose transcript is missing with compressed copies. `turns` is as for
    /// [`Archive::back_up`].
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn pack_links(&self, key: &SessionKey, turns: Option<u64>) -> Result<(), TranscriptError> {
        self.change_list(key, |folder| folder.compress_links(turns, |_| false))
    }

    /// Backs up a session's files: with hard links if the file system supports them, otherwise with copies. If `is_packed`,
    /// appends the new part of each file to its compressed copy and deletes the links. `turns` is how many turns had been
    /// acknowledged on the session before the call, if known.
    #[must_use]
    pub fn back_up(
        &self,
        key: &SessionKey,
        dialect: &dyn Dialect,
        transcript: &Path,
        turns: Option<u64>,
        is_packed: bool,
    ) -> BackupOutcome {
        let mut is_rewritten = false;
        let mut keep_files = || {
            let place = self.session_folder(key)?;
            let locked = self.lock(key);
            let parts = dialect.own_parts(transcript)?.files;
            let mut folder = SessionFolder::open_or_create(&place, key, locked)?;
            let relative_folder = transcript
                .parent()
                .and_then(|folder| folder.strip_prefix(&key.root).ok());
            let relative_folder = relative_folder.and_then(Path::to_str).unwrap_or_default();
            let mut done = Ok(());
            for (index, part) in parts.iter().enumerate() {
                // Only the first file, the transcript, has these facts.
                let origin = if index == 0 {
                    (relative_folder, turns)
                } else {
                    ("", None)
                };
                let kept = match is_packed {
                    true => folder.compress(part, origin),
                    false => folder.link(part, origin),
                };
                match kept {
                    Ok(rewritten) => is_rewritten |= rewritten && index == 0,
                    // The other files are backed up even if this one fails.
                    Err(error) => done = done.and(Err(error)),
                }
            }
            if is_packed {
                let is_there = |name: &str| parts.iter().any(|part| part.name == name);
                done = done.and(folder.compress_links(None, is_there));
            }
            folder.save()?;
            done
        };
        let error = keep_files().err();
        BackupOutcome { is_rewritten, error }
    }

    /// Returns how many acknowledged turns the copy lacks that would be restored. `None` if the transcript has no copy. The
    /// file alone may not show this, because it contains cancelled turns too. If the transcript itself was restored earlier,
    /// its copies also lack the turns that it lacked.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn missing_turns(
        &self,
        key: &SessionKey,
        acknowledged: u64,
    ) -> Result<Option<MissingTurns>, TranscriptError> {
        let Some(folder) = self.open(key)? else {
            return Ok(None);
        };
        let later = folder.missing_turns(acknowledged)?;
        let unreported = self
            .unreported_missing_turns(key)?
            .unwrap_or(MissingTurns::Known(0));
        Ok(later.map(|later| later.max(unreported)))
    }

    /// Records that a session which continues this one was written to at this time (in milliseconds since the epoch). This
    /// session then counts as changed at that time. Differences below a day are not recorded.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn record_continued(&self, key: &SessionKey, at_ms: i64) -> Result<(), TranscriptError> {
        self.change_list(key, |folder| {
            folder.record_change_time(at_ms);
            Ok(())
        })
    }

    /// Returns the copies of a session; empty if it is not backed up.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn archived_files(&self, key: &SessionKey) -> Result<Vec<ArchivedFile>, TranscriptError> {
        Ok(self
            .open(key)?
            .map_or_else(Vec::new, |folder| folder.archived_files()))
    }

    /// Whether the transcript of a session is backed up. Copies without any content do not count.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn has_transcript(&self, key: &SessionKey) -> Result<bool, TranscriptError> {
        Ok(self
            .open(key)?
            .is_some_and(|folder| folder.has_transcript_content()))
    }

    /// Whether the transcript of a session is backed up, and no copy is a hard link to this file.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn is_backed_up_apart(&self, key: &SessionKey, transcript: &Path) -> Result<bool, TranscriptError> {
        let Some(folder) = self.open(key)?.filter(SessionFolder::has_transcript_content) else {
            return Ok(false);
        };
        let own = FileStamp::read(transcript).map_err(TranscriptError::io("look at", transcript))?;
        Ok(!folder.links_to(&own))
    }

    /// Opens the folder of a session, if it has copies. The session stays locked until the returned folder is dropped.
    fn open(&self, key: &SessionKey) -> Result<Option<SessionFolder<'_>>, TranscriptError> {
        let place = self.session_folder(key)?;
        SessionFolder::open(&place, Some(self.lock(key)))
    }

    /// Changes the list of a session, if it has one. Saves the changes made before an error too.
    fn change_list(
        &self,
        key: &SessionKey,
        change: impl FnOnce(&mut SessionFolder<'_>) -> Result<(), TranscriptError>,
    ) -> Result<(), TranscriptError> {
        let place = self.session_folder(key)?;
        let Some(mut folder) = SessionFolder::open_to_change(&place, Some(self.lock(key)))? else {
            return Ok(());
        };
        let changed = change(&mut folder);
        folder.save()?;
        changed
    }

    /// Returns the folder of a session's copies.
    fn session_folder(&self, key: &SessionKey) -> Result<PathBuf, TranscriptError> {
        self.check_own_folder(self.folder.join(relative_folder(key)?))
    }

    /// Returns this folder of the archive if it may be read and changed. It may be missing, but neither it nor a parent within
    /// the archive may be something other than a folder, such as a link to files of other programs.
    ///
    /// # Errors
    /// [`TranscriptError::Misplaced`] for the outermost one that is not a folder, [`TranscriptError::Io`].
    fn check_own_folder(&self, folder: PathBuf) -> Result<PathBuf, TranscriptError> {
        let is_ours = |ancestor: &&Path| ancestor.starts_with(&self.folder);
        let way: Vec<&Path> = folder.ancestors().take_while(is_ours).collect();
        for ancestor in way.into_iter().rev() {
            let found = misplaced::find(ancestor, EntryKind::Folder);
            if let Some(misplaced) = found.map_err(TranscriptError::io("look at", ancestor))? {
                let data = self.folder.parent().unwrap_or(&self.folder);
                return Err(TranscriptError::Misplaced(misplaced.with_suggested_folder(data)));
            }
        }
        Ok(folder)
    }

    fn lock(&self, key: &SessionKey) -> MutexGuard<'_, ()> {
        let sum = key.upstream_id.bytes().fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        // The mutex guards no data, only exclusivity.
        self.locks[sum % LOCK_COUNT]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path of a session's folder within the archive. The id must be a valid file name, as it is for the
/// agent.
fn relative_folder(key: &SessionKey) -> Result<PathBuf, TranscriptError> {
    file_name(&key.upstream_id)?;
    Ok(Path::new(&root_name(&key.root)).join(&key.upstream_id))
}

/// Returns the name of a root's folder.
fn root_name(root: &Path) -> String {
    let mut name = sha256(root.as_os_str().as_encoded_bytes());
    name.truncate(DIGEST_DIGITS);
    name
}

#[cfg(test)]
mod tests;
