//! Our own copies of transcripts and of the files beside them, which outlive the agents' own.
//!
//! Owns their layout: a folder for each root of transcripts, in it a folder for each session, and in that a list and the copies;
//! and the marks of restored transcripts that lack turns. A copy is a hard link at first. The link costs nothing, survives when
//! the agent deletes its file, and shares what the agent appends, but also what it rewrites in place. Later the copy is a
//! compressed file, to which only new bytes are appended. If a file does not continue its newest copy, another copy is made beside that. A copy counts once the list names it, so a kill
//! leaves the old state or the new one. If a list cannot be read, the folder is set aside. Only files that this module wrote are
//! deleted. If a link or a file is in place of a folder, nothing is read or changed there. Blocks; knows neither conversations nor when something is to be kept.

mod folder;
mod list;
mod marks;
mod pruning;
mod removing;
mod restoring;
mod unpacking;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::TranscriptError;
use super::locate::file_name;
use super::parts::{Part, parts, rollout_part};
use super::shelf::Format;
use crate::files::{durable, misplaced};
use crate::paths::names::Kind;
use folder::{Folder, remove_ours};
use list::digest;

pub use marks::MissingTurns;
pub use pruning::{KeptSession, Pruned, Total};
pub use restoring::{KeptFrom, Placing};
use unpacking::Shelf;
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
    /// The copies that are unpacked for reading.
    shelf: Shelf,
}

impl Archive {
    /// The copies below a folder. The folder is created when something is kept.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            shelf: Shelf::default(),
        }
    }

    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a session's files survive if the agent deletes them: with hard links where the file system has them, otherwise with
    /// copies of what is not kept yet.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn link(&self, key: &Key, format: Format, transcript: &Path) -> Result<Noticed, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let parts = files(format, transcript)?;
        let mut folder = Folder::make(&place, key)?;
        let was_moved = folder.note_place(&key.root, transcript);
        let mut noticed = Noticed::default();
        let linked = each(&parts, |index, part| {
            let rewritten = folder.link(part)?;
            noticed.rewritten |= rewritten && index == 0 && !was_moved;
            Ok(())
        });
        folder.save()?;
        linked.map(|()| noticed)
    }

    /// Copies what the agent has of a session and is not copied yet, and deletes the links. If the transcript is missing or `None`,
    /// copies what the links hold. `turns` is how many turns were acknowledged on it before, if that is known.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn pack(
        &self,
        key: &Key,
        transcript: Option<(Format, &Path)>,
        turns: Option<u64>,
    ) -> Result<Noticed, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let parts = match transcript {
            Some((format, path)) => files(format, path)?,
            None => Vec::new(),
        };
        let opened = match parts.is_empty() {
            true => Folder::open_to_change(&place)?,
            false => Some(Folder::make(&place, key)?),
        };
        let Some(mut folder) = opened else {
            return Ok(Noticed::default());
        };
        let was_moved = transcript.is_some_and(|(_, path)| folder.note_place(&key.root, path));
        let mut noticed = Noticed::default();
        let left = folder.pack_links(&parts);
        let packed = each(&parts, |index, part| {
            let rewritten = folder.pack(part)?;
            noticed.rewritten |= rewritten && index == 0 && !was_moved;
            Ok(())
        });
        if transcript.is_some() && packed.is_ok() {
            folder.note_copied(turns);
        }
        folder.save()?;
        left.and(packed).map(|()| noticed)
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
        let place = self.place(key)?;
        let _held = self.lock(key);
        let Some(folder) = Folder::open(&place)? else {
            return Ok(None);
        };
        let Some(name) = folder.transcript() else {
            return Ok(None);
        };
        let best = folder.best(name)?;
        let later = best.and_then(|(copy, _)| folder.turns_behind(copy, acknowledged));
        Ok(later.map(MissingTurns::Known).max(self.unreported(key)))
    }

    /// Records that a session which continues this one was written to at this time (in milliseconds since the epoch), so that this one
    /// counts as no older than that. Differences below a day are not recorded.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn note_continued(&self, key: &Key, at_ms: i64) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        change(&place, |folder| folder.note_changed(at_ms))
    }

    /// The copies of a session; none if nothing of it is kept.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn held(&self, key: &Key) -> Result<Vec<HeldFile>, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        Ok(Folder::open(&place)?.map_or_else(Vec::new, |folder| folder.held()))
    }

    /// Whether the transcript of a session is kept.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn has_transcript(&self, key: &Key) -> Result<bool, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        Ok(Folder::open(&place)?.is_some_and(|folder| folder.transcript().is_some()))
    }

    /// Deletes all copies of a session, and what it had to report.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn remove(&self, key: &Key) -> Result<(), TranscriptError> {
        let noted = self.note_reported(key);
        let place = self.place(key)?;
        self.remove_folder(&place, key).and(noted)
    }

    /// Where the copies of a session are.
    fn place(&self, key: &Key) -> Result<PathBuf, TranscriptError> {
        self.own(self.folder.join(below(key)?))
    }

    /// Where the copies of all sessions of a root are.
    fn folder_of(&self, root: &Path) -> Result<PathBuf, TranscriptError> {
        self.own(self.folder.join(root_name(root)))
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

    /// Deletes the copies in a session's folder. The folder is renamed first, so that half of a session is never taken for one.
    /// Files that the daemon did not write are put back.
    fn remove_folder(&self, place: &Path, key: &Key) -> Result<(), TranscriptError> {
        let removing = self
            .folder
            .join(format!("{}{}", pruning::REMOVING, uuid::Uuid::new_v4()));
        let held = self.lock(key);
        let remove = || match place.exists() {
            false => Ok(()),
            true => {
                durable::rename(place, &removing)?;
                match remove_ours(&removing)? {
                    true => Ok(()),
                    false => durable::rename(&removing, place),
                }
            }
        };
        let removed = remove().map_err(TranscriptError::io("remove", place));
        // From here on nothing more of it is unpacked. A caller that unpacks takes the two locks in the other order.
        drop(held);
        removed.and(self.remove_unpacked(place))
    }
}

/// Where a session's files are below the folder of all of them. The id must be a file name, as it is for the agent.
fn below(key: &Key) -> Result<PathBuf, TranscriptError> {
    file_name(&key.upstream_id)?;
    Ok(Path::new(&root_name(&key.root)).join(&key.upstream_id))
}

/// The name of a root's folder.
fn root_name(root: &Path) -> String {
    let mut name = digest(root.as_os_str().as_encoded_bytes());
    name.truncate(DIGEST_DIGITS);
    name
}

/// Changes the list of a session, if there is one.
fn change(place: &Path, change: impl FnOnce(&mut Folder)) -> Result<(), TranscriptError> {
    match Folder::open_to_change(place)? {
        Some(mut folder) => {
            change(&mut folder);
            folder.save()
        }
        None => Ok(()),
    }
}

/// The agent's files of a session, the transcript first.
fn files(format: Format, transcript: &Path) -> Result<Vec<Part>, TranscriptError> {
    // A symbolic link is followed: its target is kept.
    let path = fs::canonicalize(transcript).map_err(TranscriptError::io("look for", transcript))?;
    match format {
        Format::Claude => {
            let mut parts = parts(&path)?;
            for what in parts.left_out {
                tracing::debug!(what, "a file beside a transcript is not kept");
            }
            // The files beside a target of another name belong to that name.
            if let Some(name) = transcript
                .file_name()
                .filter(|name| path.file_name() != Some(name))
                && let Some(own) = parts.files.first_mut()
            {
                own.name = name.to_string_lossy().into_owned();
                parts.files.truncate(1);
            }
            Ok(parts.files)
        }
        Format::Codex | Format::Qwen => Ok(vec![rollout_part(&path)?]),
    }
}

/// Works on all parts, even if one fails. Returns the first error.
fn each(
    parts: &[Part],
    mut work: impl FnMut(usize, &Part) -> Result<(), TranscriptError>,
) -> Result<(), TranscriptError> {
    let mut first = Ok(());
    for (index, part) in parts.iter().enumerate() {
        let done = work(index, part);
        first = first.and(done);
    }
    first
}

#[cfg(test)]
mod tests;
