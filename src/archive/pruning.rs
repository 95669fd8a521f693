//! All copies: the disk space that they take, which of them are older or larger than the user allows, and what cannot be used.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use super::folder::{SessionFolder, is_ours, remove_ours};
use super::{Archive, DIGEST_DIGITS, SessionKey};
use crate::files::{entries, set_aside};
use crate::paths::names::UNREPORTED;
use crate::transcript::TranscriptError;

/// How the name of a folder begins whose copies are being deleted; a UUID follows.
pub(super) const REMOVING_PREFIX: &str = "gone-";

/// What some copies are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveTotal {
    /// How many sessions.
    pub sessions: u64,
    /// How many files they have.
    pub files: u64,
    /// How many bytes of disk space they take.
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

/// A session of which something is kept.
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
    /// Whether a file is kept by a link.
    pub has_links: bool,
    /// Whether the history of another session may begin in it.
    pub may_be_base: bool,
    /// Whether its copies stay only for those other sessions.
    pub is_released: bool,
    /// Its folder, which counts: its list may name another session.
    folder: PathBuf,
}

impl Archive {
    /// The total of all copies.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn total(&self) -> Result<ArchiveTotal, TranscriptError> {
        Ok(self.sessions()?.iter().collect())
    }

    /// All sessions of which something is kept. One that cannot be read is logged and left out.
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
            // The backup of the session reports it, and so does `unusable`.
            Ok(_) | Err(TranscriptError::Misplaced(_)) => {}
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "cannot read the kept copies of a session; they stay");
            }
        })?;
        Ok(sessions)
    }

    /// Deletes the copies of sessions that were last written to before this time (in milliseconds since the epoch), and then those of
    /// the sessions that were written to longest ago, until all copies take no more than this many bytes. What a restored transcript
    /// lacks is still reported: its mark stays. Returns what was deleted.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn prune(
        &self,
        oldest_ms: Option<i64>,
        most_bytes: Option<u64>,
    ) -> Result<ArchiveTotal, TranscriptError> {
        let mut all = self.sessions()?;
        all.sort_by_key(|session| Reverse(session.changed_ms));
        let mut kept_bytes = 0_u64;
        let mut pruned = ArchiveTotal::default();
        let mut is_full = false;
        let mut done = Ok(());
        for session in all {
            let is_old = oldest_ms.is_some_and(|oldest| session.changed_ms < oldest);
            let with_it = kept_bytes + session.bytes;
            // Once one does not fit, older ones do not either, unless they take no space.
            is_full |= most_bytes.is_some_and(|most| with_it > most);
            let has_room = !is_full || session.bytes == 0;
            if has_room && !is_old {
                kept_bytes = with_it;
                continue;
            }
            match self.remove_copies(&session.folder, &session.key) {
                Ok(()) => pruned.add(&session),
                // The others are deleted all the same.
                Err(error) => done = done.and(Err(error)),
            }
        }
        done.map(|()| pruned)
    }

    /// What cannot be used of the copies, each with why, and the files among them that the daemon did not write, which have no
    /// reason.
    ///
    /// # Errors
    /// As [`Archive::sessions`].
    pub fn unusable(&self) -> Result<Vec<(PathBuf, Option<String>)>, TranscriptError> {
        let mut found = Vec::new();
        let strangers_in = |folder: &Path| {
            let others = entries(folder).unwrap_or_default().into_iter();
            others.filter(|path| !is_ours(path)).map(|path| {
                let why = "the copy was not as its list said";
                let why = set_aside::is_set_aside(&path).then(|| why.to_owned());
                (path, why)
            })
        };
        self.for_each_session(|place, opened| match opened {
            Ok(_) => found.extend(strangers_in(place)),
            Err(error) => found.push((place.to_owned(), Some(error.to_string()))),
        })?;
        // Where a kill came before they were put back.
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
            for place in entries(&root).map_err(TranscriptError::io("read the folder", &root))? {
                if !set_aside::is_set_aside(&place) {
                    let opened = self
                        .check_own_folder(place.clone())
                        .and_then(|place| SessionFolder::open(&place, None));
                    look(&place, opened);
                }
            }
        }
        Ok(())
    }

    /// Deletes the folders that a removal had renamed when a kill came.
    pub(super) fn complete_removals(&self) -> Result<(), TranscriptError> {
        self.roots().map(drop)
    }

    /// The folder of each root, or what is in its place. Removals that were cut short are completed.
    fn roots(&self) -> Result<Vec<PathBuf>, TranscriptError> {
        let folder = self.check_own_folder(self.folder.clone())?;
        let mut roots = entries(&folder).map_err(TranscriptError::io("read the folder", &folder))?;
        roots.retain(|root| {
            if is_removing_name(root) && self.check_own_folder(root.clone()).is_ok() {
                // A kill cut it short, or another thread is at it. A later call tries again.
                let _left = remove_ours(root);
            }
            is_digest(root)
        });
        Ok(roots)
    }
}

/// Whether a folder is called as one whose copies are being deleted.
fn is_removing_name(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let uuid = name.and_then(|name| name.strip_prefix(REMOVING_PREFIX));
    uuid.is_some_and(|uuid| uuid::Uuid::try_parse(uuid).is_ok())
}

/// Whether a folder is called by the digest of something, as the folder of a root is.
pub(super) fn is_digest(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        name.len() == DIGEST_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}
