//! Operations on the copies of all sessions: listing them and the disk space that they take, deleting those over the
//! configured limits, and finding unusable files.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use super::folder::{SessionFolder, is_own_file, remove_own_files};
use super::{Archive, DIGEST_DIGITS, SessionKey};
use crate::files::{entries, set_aside};
use crate::paths::names::UNREPORTED;
use crate::transcript::TranscriptError;

/// The prefix of the name of a folder whose copies are being deleted. A UUID follows it.
pub(super) const REMOVING_PREFIX: &str = "gone-";

/// The total of several sessions' copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveTotal {
    /// The number of sessions.
    pub sessions: u64,
    /// The number of files.
    pub files: u64,
    /// The disk space that the files take, in bytes.
    pub bytes: u64,
}

impl ArchiveTotal {
    fn add(&mut self, session: &ArchivedSession) {
        self.sessions += 1;
        self.files += session.files;
        self.bytes += session.bytes;
    }
}

impl<'a> FromIterator<&'a ArchivedSession> for ArchiveTotal {
    fn from_iter<T: IntoIterator<Item = &'a ArchivedSession>>(sessions: T) -> Self {
        let mut total = Self::default();
        sessions.into_iter().for_each(|session| total.add(session));
        total
    }
}

/// A session that has copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedSession {
    /// Its key.
    pub key: SessionKey,
    /// When it was last written to, in milliseconds since the epoch.
    pub changed_ms: i64,
    /// How many files it has.
    pub files: u64,
    /// How many bytes of disk space its copies take.
    pub bytes: u64,
    /// Whether a copy is a link.
    pub has_links: bool,
    /// Whether another session may continue it by reference.
    pub may_be_base: bool,
    /// Whether its copies are kept only for those other sessions.
    pub is_released: bool,
    /// Its folder. This identifies it reliably, because its list may name another session.
    folder: PathBuf,
}

impl Archive {
    /// Returns the total of all copies.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn total(&self) -> Result<ArchiveTotal, TranscriptError> {
        Ok(self.sessions()?.iter().collect())
    }

    /// Returns all sessions that have copies. A session that cannot be read is logged and omitted.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the folders cannot be read.
    pub fn sessions(&self) -> Result<Vec<ArchivedSession>, TranscriptError> {
        let mut sessions = Vec::new();
        self.for_each_session(|place, opened| match opened {
            Ok(Some(folder)) if !folder.list.files.is_empty() => {
                let held = folder.archived_files();
                sessions.push(ArchivedSession {
                    key: folder.key(),
                    changed_ms: folder.changed_ms(),
                    files: held.len() as u64,
                    bytes: held.iter().map(|file| file.bytes).sum(),
                    has_links: folder.links().next().is_some(),
                    may_be_base: folder.dialect().abilities().continues_by_reference,
                    is_released: folder.list.released,
                    folder: place.to_owned(),
                });
            }
            // Not logged here: the session's backup reports it, and so does `unusable`.
            Ok(_) | Err(TranscriptError::Misplaced(_)) => {}
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "cannot read the backups of a session; they stay");
            }
        })?;
        Ok(sessions)
    }

    /// Deletes the copies of sessions that were last written to before `oldest_ms` (in milliseconds since the epoch). Then
    /// deletes the copies of the sessions with the oldest writes until all copies take at most `most_bytes`. Marks of
    /// restored transcripts are not deleted, so their missing turns are still reported. Returns the total of the deleted
    /// copies.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn prune(
        &self,
        oldest_ms: Option<i64>,
        most_bytes: Option<u64>,
    ) -> Result<ArchiveTotal, TranscriptError> {
        let mut sessions = self.sessions()?;
        sessions.sort_by_key(|session| Reverse(session.changed_ms));
        let mut kept_bytes = 0_u64;
        let mut pruned = ArchiveTotal::default();
        let mut is_full = false;
        let mut done = Ok(());
        for session in sessions {
            let is_old = oldest_ms.is_some_and(|oldest| session.changed_ms < oldest);
            let with_it = kept_bytes + session.bytes;
            // After the first session that does not fit, all older ones are deleted too, unless they take no space.
            is_full |= most_bytes.is_some_and(|most| with_it > most);
            let has_room = !is_full || session.bytes == 0;
            if has_room && !is_old {
                kept_bytes = with_it;
                continue;
            }
            match self.remove_copies(&session.folder, &session.key) {
                Ok(()) => pruned.add(&session),
                // Delete the others nevertheless.
                Err(error) => done = done.and(Err(error)),
            }
        }
        done.map(|()| pruned)
    }

    /// Returns the unusable files and folders of the archive, each with the reason, and the files that the daemon did not
    /// write, without a reason.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn unusable(&self) -> Result<Vec<(PathBuf, Option<String>)>, TranscriptError> {
        let mut found = Vec::new();
        let strangers_in = |folder: &Path| {
            let others = entries(folder).unwrap_or_default().into_iter();
            others.filter(|path| !is_own_file(path)).map(|path| {
                let why = "the copy was not as its list said";
                let why = set_aside::is_set_aside(&path).then(|| why.to_owned());
                (path, why)
            })
        };
        self.for_each_session(|session_path, opened| match opened {
            Ok(_) => found.extend(strangers_in(session_path)),
            Err(error) => found.push((session_path.to_owned(), Some(error.to_string()))),
        })?;
        // Also look in folders whose removal was interrupted by a kill before the files of others were moved back.
        let all = entries(&self.folder).map_err(TranscriptError::io("read the folder", &self.folder))?;
        let removing = all
            .iter()
            .filter(|folder| is_removing_name(folder) && !folder.is_symlink());
        found.extend(removing.flat_map(|folder| strangers_in(folder)));
        let why = "its list of copies could not be read";
        let mut folders: Vec<_> = self.roots()?.into_iter().map(|root| (root, why)).collect();
        let marks = self.folder.join(UNREPORTED);
        match self.check_own_folder(marks.clone()) {
            Ok(marks) => {
                let why = "how many turns a restored transcript lacks could not be read from it";
                let roots = entries(&marks).map_err(TranscriptError::io("read the folder", &marks))?;
                folders.extend(roots.into_iter().map(|root| (root, why)));
            }
            Err(why) => found.push((marks, Some(why.to_string()))),
        }
        for (folder, why) in folders {
            match self.check_own_folder(folder.clone()) {
                Ok(folder) => {
                    let aside = set_aside::set_aside_files_in(&folder);
                    let aside = aside.map_err(TranscriptError::io("read the folder", &folder))?;
                    found.extend(aside.into_iter().map(|path| (path, Some(why.to_owned()))));
                }
                Err(why) => found.push((folder, Some(why.to_string()))),
            }
        }
        Ok(found)
    }

    /// Opens the folder of each session.
    fn for_each_session(
        &self,
        mut look: impl FnMut(&Path, Result<Option<SessionFolder<'_>>, TranscriptError>),
    ) -> Result<(), TranscriptError> {
        for root in self
            .roots()?
            .into_iter()
            .filter_map(|root| self.check_own_folder(root).ok())
        {
            for path in entries(&root).map_err(TranscriptError::io("read the folder", &root))? {
                if !set_aside::is_set_aside(&path) {
                    let opened = self
                        .check_own_folder(path.clone())
                        .and_then(|path| SessionFolder::open(&path, None));
                    look(&path, opened);
                }
            }
        }
        Ok(())
    }

    /// Completes removals that a kill interrupted: deletes the folders that they had renamed.
    pub(super) fn complete_removals(&self) -> Result<(), TranscriptError> {
        self.roots().map(drop)
    }

    /// Returns the folder of each root. The caller must check that it is a folder. Completes interrupted removals.
    fn roots(&self) -> Result<Vec<PathBuf>, TranscriptError> {
        let folder = self.check_own_folder(self.folder.clone())?;
        let mut roots = entries(&folder).map_err(TranscriptError::io("read the folder", &folder))?;
        roots.retain(|root| {
            if is_removing_name(root) && self.check_own_folder(root.clone()).is_ok() {
                // A kill interrupted the removal, or another thread is performing it. Ignore errors: a later call
                // tries again.
                let _left = remove_own_files(root);
            }
            is_digest(root)
        });
        Ok(roots)
    }
}

/// Whether this is the name of a folder whose copies are being deleted.
fn is_removing_name(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let uuid = name.and_then(|name| name.strip_prefix(REMOVING_PREFIX));
    uuid.is_some_and(|uuid| uuid::Uuid::try_parse(uuid).is_ok())
}

/// Whether the name of a folder is a digest, as for the folder of a root.
pub(super) fn is_digest(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        name.len() == DIGEST_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}
