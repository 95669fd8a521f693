//! Our own copies of transcripts and of the files beside them, which outlive the agents' own.
//!
//! Owns their layout: a folder for each root of transcripts, in it a folder for each session, and in that a list and the copies;
//! and the marks of restored transcripts that lack turns. A copy is a hard link at first. The link costs nothing, survives when
//! the agent deletes its file, and shares what the agent appends, but also what it rewrites in place. Later the copy is a
//! compressed file, to which only new bytes are appended. If a file does not continue its newest copy, another copy is made. A
//! copy counts once the list names it, so a kill leaves the old state or the new one. A list that cannot be read deletes nothing:
//! the folder is set aside. Only files that this room wrote are deleted, and nothing is read or changed through a link or a file
//! in place of a folder. Blocks. Knows neither conversations nor when a session is kept, and names no format: what differs between
//! them is the [`Dialect`]'s.

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
use crate::paths::names::Kind;
use crate::transcript::TranscriptError;
use crate::transcript::dialect::Dialect;
use crate::transcript::locate::file_name;
use folder::{SessionFolder, SourceFacts};

pub use pruning::{ArchiveTotal, ArchivedSession};
pub use restore_marks::MissingTurns;
pub use restoring::{CopyOrigin, OnPlacing, RelocationLookup, RestoreCallbacks};
use unpacking::RecentlyUnpacked;
pub use unpacking::Unpacked;

/// How many sessions can be kept or restored at the same time: sessions that share a lock wait for each other.
const LOCK_COUNT: usize = 64;

/// How many hexadecimal digits the name of a root's folder has.
const DIGEST_DIGITS: usize = 16;

/// The key of a session whose files are kept: an id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The agent's folder of transcripts.
    pub root: PathBuf,
    /// The agent's own id of the session.
    pub upstream_id: String,
}

/// What happened while a session was kept.
#[derive(Debug, Default)]
pub struct BackupOutcome {
    /// Whether the transcript is shorter than its newest copy or begins differently. A move does not count.
    pub is_rewritten: bool,
    /// The first error. The files without an error are kept all the same.
    pub error: Option<TranscriptError>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes of disk space it takes; 0 while it is a link to a file that the agent has too.
    pub bytes: u64,
}

/// All copies.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    locks: Vec<Mutex<()>>,
    /// The copies that were unpacked for reading last.
    recent: Mutex<RecentlyUnpacked>,
}

impl Archive {
    /// The copies below a folder. The folder is created when something is kept.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            locks: (0..LOCK_COUNT).map(|_| Mutex::default()).collect(),
            recent: Mutex::default(),
        }
    }

    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies the links of a session whose transcript is missing, and deletes them. `turns` is as for [`Archive::keep`].
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn pack_links(&self, key: &SessionKey, turns: Option<u64>) -> Result<(), TranscriptError> {
        self.change_list(key, |folder| folder.compress_links(turns, |_| false))
    }

    /// Makes a session's files survive if the agent deletes them: with hard links where the file system has them, otherwise with
    /// copies. If `is_packed`, the part of the agent's files that no copy has yet is copied, and the links are deleted. `turns` is how
    /// many turns were acknowledged on the session before, if that is known.
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
            let below = transcript
                .parent()
                .and_then(|folder| folder.strip_prefix(&key.root).ok());
            let mut origin = SourceFacts {
                folder: below.and_then(Path::to_str).unwrap_or_default().to_owned(),
                turns,
            };
            let mut done = Ok(());
            for (index, part) in parts.iter().enumerate() {
                // Only of the first, the transcript.
                let origin = std::mem::take(&mut origin);
                let kept = match is_packed {
                    true => folder.compress(part, &origin),
                    false => folder.link(part, &origin),
                };
                match kept {
                    Ok(rewritten) => is_rewritten |= rewritten && index == 0,
                    // The other files are kept even if this one fails.
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

    /// How many acknowledged turns of a session are later than the copy that would be restored. `None` if no transcript is kept. The
    /// file alone may not show it, because it contains cancelled turns too. A copy of a transcript that was restored before lacks
    /// what that lacked.
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

    /// Records that a session which continues this one was written to at this time (in milliseconds since the epoch), so that this one
    /// counts as no older than that. Differences below a day are not recorded.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn record_continued(&self, key: &SessionKey, at_ms: i64) -> Result<(), TranscriptError> {
        self.change_list(key, |folder| {
            folder.record_change_time(at_ms);
            Ok(())
        })
    }

    /// The copies of a session; none if nothing of it is kept.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn archived_files(&self, key: &SessionKey) -> Result<Vec<ArchivedFile>, TranscriptError> {
        Ok(self
            .open(key)?
            .map_or_else(Vec::new, |folder| folder.archived_files()))
    }

    /// Whether the transcript of a session is kept.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn has_transcript(&self, key: &SessionKey) -> Result<bool, TranscriptError> {
        Ok(self
            .open(key)?
            .is_some_and(|folder| folder.transcript().is_some()))
    }

    /// The folder of a session, if something of it is kept. The session is locked while it is held.
    fn open(&self, key: &SessionKey) -> Result<Option<SessionFolder<'_>>, TranscriptError> {
        let place = self.session_folder(key)?;
        SessionFolder::open(&place, Some(self.lock(key)))
    }

    /// Changes the list of a session, if there is one. What was changed before an error is saved too.
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

    /// Where the copies of a session are.
    fn session_folder(&self, key: &SessionKey) -> Result<PathBuf, TranscriptError> {
        self.check_own_folder(self.folder.join(relative_folder(key)?))
    }

    /// A folder of the archive that may be read and changed: neither it nor one above it is something else, such as a link to the
    /// files of others. It may be missing.
    ///
    /// # Errors
    /// [`TranscriptError::Misplaced`] for the outermost that is something else, [`TranscriptError::Io`].
    fn check_own_folder(&self, folder: PathBuf) -> Result<PathBuf, TranscriptError> {
        let is_ours = |above: &&Path| above.starts_with(&self.folder);
        let way: Vec<&Path> = folder.ancestors().take_while(is_ours).collect();
        for above in way.into_iter().rev() {
            let found = misplaced::find(above, Kind::Folder);
            if let Some(misplaced) = found.map_err(TranscriptError::io("look at", above))? {
                let data = self.folder.parent().unwrap_or(&self.folder);
                return Err(TranscriptError::Misplaced(misplaced.moved_to(data)));
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

/// Where a session's files are below the folder of all of them. The id must be a file name, as it is for the agent.
fn relative_folder(key: &SessionKey) -> Result<PathBuf, TranscriptError> {
    file_name(&key.upstream_id)?;
    Ok(Path::new(&root_name(&key.root)).join(&key.upstream_id))
}

/// The name of a root's folder.
fn root_name(root: &Path) -> String {
    let mut name = sha256(root.as_os_str().as_encoded_bytes());
    name.truncate(DIGEST_DIGITS);
    name
}

#[cfg(test)]
mod tests;
