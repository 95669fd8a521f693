//! Unpacks copies into temporary folders with the agent's layout, so that they can be read like transcripts. Nothing is written
//! to the agent's folders.
//!
//! A folder is deleted when its last user drops it. Because a history is read page by page, the most recently used folders
//! remain until the next [`Archive::forget_unpacked`], up to [`UNPACKED_LIMIT_BYTES`]. A folder never changes: after the copies
//! change, they are unpacked into a new one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::folder::SessionFolder;
use super::list::is_transcript;
use super::pruning::is_digest;
use super::rejoining::RejoinedCopy;
use super::restoring::{HistorySession, RelocationLookup, target_paths, write_copy};
use super::{Archive, SessionKey};
use crate::files::durable::NewFile;
use crate::files::{entries, is_absence};
use crate::paths::names::UNPACKED;
use crate::transcript::TranscriptError;
use crate::transcript::copy::make_folder;
use crate::transcript::dialect::Dialect;
use crate::transcript::relocate::Relocation;

/// The limit for unused unpacked files, in bytes: enough for a few long transcripts. The latest folder remains even if it is
/// larger.
const UNPACKED_LIMIT_BYTES: u64 = 256 * 1024 * 1024;

/// An unpacked session in its agent's layout. Its files exist until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Unpacked(Arc<UnpackedFolder>);

/// A folder of unpacked files. Dropping this deletes it.
#[derive(Debug)]
struct UnpackedFolder {
    root: PathBuf,
    sessions: Vec<String>,
    bytes: u64,
}

impl Drop for UnpackedFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.root) {
            tracing::warn!(%error, "could not delete an unpacked copy; the next start deletes it");
        }
    }
}

impl Unpacked {
    /// Returns the folder, which has the layout of the agent's own.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns the sessions in it that are read from copies. The others are links to the agent's transcripts.
    #[must_use]
    pub fn sessions(&self) -> &[String] {
        &self.0.sessions
    }

    /// Whether this session is read from its copy.
    #[must_use]
    pub fn has_session(&self, upstream_id: &str) -> bool {
        self.sessions().iter().any(|id| id == upstream_id)
    }
}

/// The most recently unpacked sessions, each with the state of its copies and its folder.
#[derive(Debug, Default)]
pub(super) struct RecentlyUnpacked {
    unpacked: Vec<(SessionKey, String, Unpacked)>,
    /// Whether the folders that an earlier daemon left were deleted.
    is_swept: bool,
}

impl Archive {
    /// Unpacks the copies of a session, and of the sessions that it continues by reference, whose transcripts the agent does
    /// not have. The agent's own transcripts are linked into the same folder.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] if there is no copy of a transcript that the agent lacks,
    /// [`TranscriptError::Io`].
    pub fn unpack(
        &self,
        dialect: &dyn Dialect,
        key: &SessionKey,
        relocation: RelocationLookup<'_>,
    ) -> Result<Unpacked, TranscriptError> {
        let mut recent = self.recent();
        let members = self.history_sessions(dialect, key, relocation)?;
        if members.iter().all(|member| member.transcript.is_some()) {
            return Err(TranscriptError::NotFound {
                upstream_id: key.upstream_id.clone(),
                root: self.folder.clone(),
            });
        }
        let states = members.iter().map(|member| member.state.as_str());
        let state = states.collect::<Vec<_>>().join("\n");
        let recent = &mut recent.unpacked;
        let index = recent.iter().position(|(of, at, _)| of == key && *at == state);
        let unpacked = match index {
            Some(index) => recent.remove(index).2,
            None => self.unpack_members(dialect, &key.root, &members, relocation)?,
        };
        recent.push((key.clone(), state, unpacked.clone()));
        let mut bytes: u64 = recent.iter().map(|(_, _, unpacked)| unpacked.0.bytes).sum();
        while recent.len() > 1 && bytes > UNPACKED_LIMIT_BYTES {
            bytes -= recent.remove(0).2.0.bytes;
        }
        Ok(unpacked)
    }

    fn unpack_members(
        &self,
        dialect: &dyn Dialect,
        agents: &Path,
        members: &[HistorySession],
        relocation: RelocationLookup<'_>,
    ) -> Result<Unpacked, TranscriptError> {
        let root = self.check_own_folder(self.folder.join(UNPACKED))?;
        let root = root.join(uuid::Uuid::new_v4().to_string());
        make_folder(&root)?;
        let mut scratch = UnpackedFolder {
            root: root.clone(),
            sessions: Vec::new(),
            bytes: 0,
        };
        for member in members {
            let key = &member.key;
            if let Some(path) = &member.transcript {
                let link = root.join(path.strip_prefix(agents).unwrap_or(Path::new("")));
                make_folder(link.parent().unwrap_or(&root))?;
                symlink(path, &link).map_err(TranscriptError::io("link", &link))?;
                continue;
            }
            let folder = self.archived_folder(key)?;
            let relocation = folder.relocation(relocation)?;
            for (name, path) in target_paths(dialect, &folder, &root, None)? {
                let rejoined = member.rejoined.as_ref().filter(|_| is_transcript(&name));
                scratch.bytes += unpack_file(&folder, &name, &path, (&relocation, rejoined))?;
            }
            if !member
                .rejoined
                .as_ref()
                .is_some_and(RejoinedCopy::continues_with_transcript)
            {
                scratch.sessions.push(key.upstream_id.clone());
            }
        }
        Ok(Unpacked(Arc::new(scratch)))
    }

    /// Drops all unpacked sessions. Folders in use are deleted when their users drop them.
    pub fn forget_unpacked(&self) {
        self.recent().unpacked.clear();
    }

    /// Drops the unpacked folders that contain this session's copy.
    pub(super) fn forget_unpacked_of(&self, key: &SessionKey) {
        let recent = &mut self.recent().unpacked;
        recent.retain(|(_, _, unpacked)| !unpacked.has_session(&key.upstream_id));
    }

    /// Locks the recently unpacked sessions, so that only one thread at a time unpacks.
    fn recent(&self) -> MutexGuard<'_, RecentlyUnpacked> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.is_swept {
            let swept = self.sweep_unpacked();
            recent.is_swept = swept.is_ok();
            if let Err(error) = swept {
                tracing::warn!(%error, "could not delete the unpacked copies of an earlier daemon");
            }
        }
        recent
    }

    /// Deletes the folders that an earlier daemon left.
    fn sweep_unpacked(&self) -> Result<(), TranscriptError> {
        let all = self.check_own_folder(self.folder.join(UNPACKED))?;
        let leftovers = entries(&all).map_err(TranscriptError::io("read the folder", &all))?;
        let is_ours = |path: &&PathBuf| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            // Earlier versions created a folder for each root, named by its digest.
            let is_named = uuid::Uuid::try_parse(name).is_ok() || is_digest(path);
            is_named && path.symlink_metadata().is_ok_and(|found| found.is_dir())
        };
        leftovers.iter().filter(is_ours).try_for_each(|path| remove(path))
    }
}

/// Unpacks a file from its copy. The file need not survive a crash, so it is not synced. Returns the length of the copy in
/// bytes.
fn unpack_file(
    folder: &SessionFolder<'_>,
    name: &str,
    path: &Path,
    changes: (&Relocation, Option<&RejoinedCopy>),
) -> Result<u64, TranscriptError> {
    let Some(copy) = folder.best(name)? else {
        return Ok(0);
    };
    make_folder(path.parent().unwrap_or(path))?;
    let failed = |error| TranscriptError::io("write", path)(error);
    let mut file = NewFile::create(path).map_err(failed)?;
    let bytes = write_copy(folder, copy, path, changes, &mut file)?;
    file.flush().map_err(failed)?;
    Ok(bytes)
}

fn remove(folder: &Path) -> Result<(), TranscriptError> {
    match fs::remove_dir_all(folder) {
        Err(error) if !is_absence(&error) => Err(TranscriptError::io("remove", folder)(error)),
        _ => Ok(()),
    }
}
