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
mod marks;
mod pruning;
mod removing;
mod restoring;
mod unpacking;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::identity::sha256;
use crate::files::misplaced;
use crate::paths::names::Kind;
use crate::transcript::TranscriptError;
use crate::transcript::dialect::Dialect;
use crate::transcript::locate::file_name;
use folder::Folder;

pub use marks::MissingTurns;
pub use pruning::{KeptSession, Total};
pub use restoring::{KeptFrom, Placing};
use unpacking::Recent;
pub use unpacking::Unpacked;

/// How many sessions can be kept or restored at the same time: sessions that share a lock wait for each other.
const LOCKS: usize = 64;

/// How many hexadecimal digits the name of a root's folder has.
const DIGEST_DIGITS: usize = 16;

/// The key of a session whose files are kept: an id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The agent's folder of transcripts.
    pub root: PathBuf,
    /// The agent's own id of the session.
    pub upstream_id: String,
}

/// What was noticed while a session was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Whether the transcript is shorter than its newest copy or begins differently, and is still in the same folder.
    pub rewritten: bool,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFile {
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
    recent: Mutex<Recent>,
}

impl Archive {
    /// The copies below a folder. The folder is created when something is kept.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            recent: Mutex::default(),
        }
    }

    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a session's files survive if the agent deletes them: with hard links where the file system has them, otherwise with
    /// copies. A moved transcript is copied too, because its records may name another folder and do not continue the earlier copies.
    /// `turns` is how many turns were acknowledged on it before, if that is known.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn link(
        &self,
        key: &Key,
        dialect: &dyn Dialect,
        transcript: &Path,
        turns: Option<u64>,
    ) -> Result<Noticed, TranscriptError> {
        self.keep(key, Some((dialect, transcript)), turns, false)
    }

    /// Copies the part of the agent's files that no copy has yet, and deletes the links. If the transcript is missing or `None`, the
    /// links are copied. `turns` is as for [`Archive::link`].
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn pack(
        &self,
        key: &Key,
        transcript: Option<(&dyn Dialect, &Path)>,
        turns: Option<u64>,
    ) -> Result<Noticed, TranscriptError> {
        self.keep(key, transcript, turns, true)
    }

    fn keep(
        &self,
        key: &Key,
        transcript: Option<(&dyn Dialect, &Path)>,
        turns: Option<u64>,
        is_packed: bool,
    ) -> Result<Noticed, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let parts = match transcript {
            Some((dialect, path)) => dialect.own_parts(path)?.files,
            None => Vec::new(),
        };
        let opened = match parts.is_empty() {
            true => Folder::open_to_change(&place, None)?,
            false => Some(Folder::make(&place, key)?),
        };
        let mut noticed = Noticed::default();
        let Some(mut folder) = opened else {
            return Ok(noticed);
        };
        let now = transcript.and_then(|(_, path)| path.parent()?.strip_prefix(&key.root).ok()?.to_str());
        let was_moved = folder.was_moved(now);
        let is_copied = is_packed || was_moved;
        let mut done = match is_copied {
            true => folder.pack_links(&parts),
            false => Ok(()),
        };
        for (index, part) in parts.iter().enumerate() {
            let kept = match is_copied {
                true => folder.pack(part),
                false => folder.link(part),
            };
            // The link has what the agent appends before the next call.
            let kept = match is_copied && !is_packed && !part.packed {
                true => kept.and_then(|rewritten| folder.add_link(part).map(|_| rewritten)),
                false => kept,
            };
            // The other files are kept even if this one fails.
            match kept {
                Ok(rewritten) => noticed.rewritten |= rewritten && index == 0 && !was_moved,
                Err(error) => done = done.and(Err(error)),
            }
        }
        if transcript.is_some() && done.is_ok() {
            folder.note_kept(now, is_copied.then_some(turns));
        }
        folder.save()?;
        done.map(|()| noticed)
    }

    /// How many acknowledged turns of a session are later than the copy that would be restored, if that is known. The file alone may
    /// not show it, because it contains cancelled turns too. A copy of a transcript that was restored before lacks what that lacked.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn turns_behind(
        &self,
        key: &Key,
        acknowledged: u64,
    ) -> Result<Option<MissingTurns>, TranscriptError> {
        let Some(folder) = self.open(key)?.filter(|folder| folder.transcript().is_some()) else {
            return Ok(None);
        };
        let later = folder.turns_behind(acknowledged)?.map(MissingTurns::Known);
        Ok(later.max(self.unreported(key)))
    }

    /// Records that a session which continues this one was written to at this time (in milliseconds since the epoch), so that this one
    /// counts as no older than that. Differences below a day are not recorded.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn note_continued(&self, key: &Key, at_ms: i64) -> Result<(), TranscriptError> {
        self.change(key, |folder| folder.note_changed(at_ms))
    }

    /// The copies of a session; none if nothing of it is kept.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn held(&self, key: &Key) -> Result<Vec<HeldFile>, TranscriptError> {
        Ok(self.open(key)?.map_or_else(Vec::new, |folder| folder.held()))
    }

    /// Whether the transcript of a session is kept.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn has_transcript(&self, key: &Key) -> Result<bool, TranscriptError> {
        Ok(self
            .open(key)?
            .is_some_and(|folder| folder.transcript().is_some()))
    }

    /// The folder of a session, if something of it is kept. The session is locked while it is held.
    fn open(&self, key: &Key) -> Result<Option<Folder<'_>>, TranscriptError> {
        let place = self.place(key)?;
        Folder::open(&place, Some(self.lock(key)))
    }

    /// Changes the list of a session, if there is one.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Folder<'_>)) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        let Some(mut folder) = Folder::open_to_change(&place, Some(self.lock(key)))? else {
            return Ok(());
        };
        change(&mut folder);
        folder.save()
    }

    /// Where the copies of a session are.
    fn place(&self, key: &Key) -> Result<PathBuf, TranscriptError> {
        self.own(self.folder.join(below(key)?))
    }

    /// A folder of the archive that may be read and changed: neither it nor one above it is something else, such as a link to the
    /// files of others. It may be missing.
    ///
    /// # Errors
    /// [`TranscriptError::Misplaced`] for the outermost that is something else, [`TranscriptError::Io`].
    fn own(&self, folder: PathBuf) -> Result<PathBuf, TranscriptError> {
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

    fn lock(&self, key: &Key) -> MutexGuard<'_, ()> {
        let sum = key.upstream_id.bytes().fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        // The mutex guards no data, only exclusivity.
        self.locks[sum % LOCKS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a session's files are below the folder of all of them. The id must be a file name, as it is for the agent.
fn below(key: &Key) -> Result<PathBuf, TranscriptError> {
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
