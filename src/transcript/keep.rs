//! Our own copies of transcripts and of the files beside them, which outlive the agents' own.
//!
//! Owns their layout: below its folder one for each root of transcripts, in that one for each session, with a list and the
//! copies in it. A copy is a hard link at first, which costs nothing, survives that the agent's file is deleted, and shares
//! what is appended, but also what is rewritten in place; then a compressed file of its own, to which only what was
//! appended is added. What is no continuation of the newest copy becomes another copy beside it. A copy counts once the
//! list names it, so that after a kill there is the old state or the new one. Copies whose list cannot be read are set aside. Blocks; knows neither conversations nor when
//! something is to be kept.

mod folder;
mod list;
mod pruning;
mod removing;
mod restoring;
mod unpacking;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::TranscriptError;
use super::locate::file_name;
use super::parts::{Part, parts, rollout_part};
use super::shelf::Format;
use crate::files::durable;
use folder::Folder;
use list::digest;

pub use pruning::{KeptSession, Pruned, Total};
pub use restoring::{KeptFrom, Placing};
use unpacking::Shelf;
pub use unpacking::Unpacked;

/// How many sessions are kept or restored at once: those that share a lock wait for each other.
const LOCKS: usize = 64;

/// How many hexadecimal digits the name of a root's folder has.
const ROOT_DIGITS: usize = 16;

/// A session whose files are kept: an id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The agent's folder of transcripts.
    pub root: PathBuf,
    /// The agent's own id of the session.
    pub upstream_id: String,
}

/// What keeping a session has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Whether the transcript has become shorter, or begins otherwise than its newest copy, where it was when that was made.
    pub rewritten: bool,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it takes on the disk; nothing as long as it is a link to a file that the agent has too.
    pub bytes: u64,
}

/// All copies.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    locks: Vec<Mutex<()>>,
    /// What is unpacked of them to be read.
    shelf: Shelf,
}

impl Archive {
    /// The copies below a folder, which is made when something is kept.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            shelf: Shelf::default(),
        }
    }

    /// The folder that everything is below.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sees to it that a session's files survive that the agent deletes them, without copying anything where the file system
    /// can give a file two names. Elsewhere what is not kept yet is copied.
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

    /// Copies what the agent has of a session, as far as it is not copied yet, and lets go of the links. Where its transcript
    /// is gone, or none is given, what the links hold is copied. `turns` were acknowledged on it before, as far as that is known.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn pack(
        &self,
        key: &Key,
        format: Format,
        transcript: Option<&Path>,
        turns: Option<u64>,
    ) -> Result<Noticed, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let parts = match transcript {
            Some(path) => files(format, path)?,
            None => Vec::new(),
        };
        let opened = match parts.is_empty() {
            true => Folder::open(&place)?,
            false => Some(Folder::make(&place, key)?),
        };
        let Some(mut folder) = opened else {
            return Ok(Noticed::default());
        };
        let was_moved = transcript.is_some_and(|transcript| folder.note_place(&key.root, transcript));
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

    /// How many of the turns that were acknowledged on a session are later than the copy that would be restored, as far as that is
    /// known: the file alone may not show it, since turns that were cancelled stand in it too.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn turns_behind(&self, key: &Key, acknowledged: u64) -> Result<u64, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let Some(folder) = Folder::open(&place)? else {
            return Ok(0);
        };
        let Some(name) = folder.transcript() else {
            return Ok(0);
        };
        let best = folder.best(name)?;
        Ok(best.map_or(0, |(copy, _)| folder.turns_behind(copy, acknowledged)))
    }

    /// Notes that something that was written to at this time (in milliseconds since the epoch) goes on from a session, so that
    /// it counts as no older than that. Days count, so that it is not written down each time.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn note_continued(&self, key: &Key, at_ms: i64) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        match Folder::open(&place)? {
            Some(mut folder) => {
                folder.note_changed(at_ms);
                folder.save()
            }
            None => Ok(()),
        }
    }

    /// The copies of a session; none when nothing of it is kept.
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

    /// Removes all copies of a session.
    ///
    /// # Errors
    /// As [`Archive::link`].
    pub fn remove(&self, key: &Key) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        self.remove_folder(&place, key)
    }

    /// Where the copies of a session are.
    fn place(&self, key: &Key) -> Result<PathBuf, TranscriptError> {
        // It has to be the name of a file, as at the agent.
        file_name(&key.upstream_id)?;
        Ok(self.folder_of(&key.root).join(&key.upstream_id))
    }

    /// Where the copies of all sessions of a root are.
    fn folder_of(&self, root: &Path) -> PathBuf {
        let root = digest(root.as_os_str().as_encoded_bytes());
        self.folder.join(&root[..ROOT_DIGITS])
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, ()> {
        let sum = key.upstream_id.bytes().fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        // Nothing is held by it but the turn.
        self.locks[sum % LOCKS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Out of the way in one step, so that half of a session is never taken for one.
    fn remove_folder(&self, place: &Path, key: &Key) -> Result<(), TranscriptError> {
        let gone = self
            .folder
            .join(format!("{}{}", pruning::GONE, uuid::Uuid::new_v4()));
        let held = self.lock(key);
        let removed = match durable::rename(place, &gone) {
            Ok(()) => fs::remove_dir_all(&gone).map_err(TranscriptError::io("remove", &gone)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(TranscriptError::io("remove", place)(error)),
        };
        // Nobody unpacks any more of it from here on; whoever unpacks something waits for a session, and not the other way round.
        drop(held);
        removed.and(self.remove_unpacked(place))
    }
}

/// What an agent has of a session, the transcript first.
fn files(format: Format, transcript: &Path) -> Result<Vec<Part>, TranscriptError> {
    // What a link leads to is kept, and not the link.
    let path = fs::canonicalize(transcript).map_err(TranscriptError::io("look for", transcript))?;
    match format {
        Format::Claude => {
            let mut parts = parts(&path)?;
            for what in parts.left_out {
                tracing::debug!(what, "a file beside a transcript is not kept");
            }
            // What lies beside a file of another name is of that one.
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
        Format::Codex => Ok(vec![rollout_part(&path)?]),
    }
}

/// Goes through all of them, whatever goes wrong with one; gives what went wrong first.
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
