//! The disk space of all copies, and deleting those that are older or larger than the user allows.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use super::folder::{Folder, remove_ours, strangers};
use super::{Archive, DIGEST_DIGITS, Key};
use crate::files::{entries, set_aside};
use crate::paths::names::UNREPORTED;
use crate::transcript::TranscriptError;

/// How the name of a folder begins whose copies are being deleted; a UUID follows.
pub(super) const REMOVING: &str = "gone-";

/// The total of all copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many sessions are kept.
    pub sessions: u64,
    /// How many files they have.
    pub files: u64,
    /// How many bytes of disk space they take.
    pub bytes: u64,
}

impl<'a> FromIterator<&'a KeptSession> for Total {
    fn from_iter<T: IntoIterator<Item = &'a KeptSession>>(sessions: T) -> Self {
        let mut total = Self::default();
        for session in sessions {
            total.sessions += 1;
            total.files += session.files;
            total.bytes += session.bytes;
        }
        total
    }
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many sessions.
    pub sessions: u64,
    /// How many bytes of disk space they took.
    pub bytes: u64,
}

/// A session of which something is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSession {
    /// Its key.
    pub key: Key,
    /// When it was last written to, in milliseconds since the epoch.
    pub changed_ms: i64,
    /// How many files it has.
    pub files: u64,
    /// How many bytes of disk space its copies take.
    pub bytes: u64,
    /// Whether the history of another session may begin in it.
    pub may_be_base: bool,
    /// Whether its copies stay only for those other sessions.
    pub is_released: bool,
}

/// The facts about one session's folder.
struct Seen {
    place: PathBuf,
    key: Key,
    changed_ms: i64,
    files: u64,
    bytes: u64,
    has_links: bool,
    may_be_base: bool,
    is_released: bool,
}

impl Archive {
    /// The total of all copies.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] if the folders cannot be read.
    pub fn total(&self) -> Result<Total, TranscriptError> {
        Ok(self.sessions()?.iter().collect())
    }

    /// All sessions of which something is kept.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn sessions(&self) -> Result<Vec<KeptSession>, TranscriptError> {
        let mut sessions = Vec::new();
        self.walk(|seen| {
            sessions.push(KeptSession {
                key: seen.key,
                changed_ms: seen.changed_ms,
                files: seen.files,
                bytes: seen.bytes,
                may_be_base: seen.may_be_base,
                is_released: seen.is_released,
            });
        })?;
        Ok(sessions)
    }

    /// The sessions of which a file is kept by a link.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn linked(&self) -> Result<Vec<Key>, TranscriptError> {
        let mut linked = Vec::new();
        self.walk(|seen| linked.extend(seen.has_links.then_some(seen.key)))?;
        Ok(linked)
    }

    /// Deletes the copies of sessions that were last written to before this time (in milliseconds since the epoch), and then those of
    /// the sessions that were written to longest ago, until all copies take no more than this many bytes. What a restored transcript
    /// lacks is still reported: its mark stays.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn prune(&self, oldest_ms: Option<i64>, most_bytes: Option<u64>) -> Result<Pruned, TranscriptError> {
        let mut all = Vec::new();
        self.walk(|seen| all.push(seen))?;
        all.sort_by_key(|seen| Reverse(seen.changed_ms));
        let mut kept_bytes = 0_u64;
        let mut pruned = Pruned::default();
        let mut is_full = false;
        let mut failed = Ok(());
        for seen in all {
            let is_old = oldest_ms.is_some_and(|oldest| seen.changed_ms < oldest);
            let with_it = kept_bytes.saturating_add(seen.bytes);
            // Once one does not fit, older ones do not either, unless they take no space.
            is_full |= most_bytes.is_some_and(|most| with_it > most);
            let has_room = !is_full || seen.bytes == 0;
            if has_room && !is_old {
                kept_bytes = with_it;
                continue;
            }
            match self.remove_folder(&seen.place, &seen.key) {
                Ok(()) => {
                    pruned.sessions += 1;
                    pruned.bytes += seen.bytes;
                }
                // The others are deleted all the same.
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| pruned)
    }

    /// The folders of sessions whose copies cannot be used, each with why, and the files among the copies that the daemon did not
    /// write.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn unusable(&self) -> Result<(Vec<(PathBuf, String)>, Vec<PathBuf>), TranscriptError> {
        let (mut unreadable, mut found) = (Vec::new(), Vec::new());
        let mut strangers_in = |folder: &Path, unreadable: &mut Vec<(PathBuf, String)>| {
            let all = strangers(folder).unwrap_or_default().into_iter();
            let (aside, strange): (Vec<_>, Vec<_>) = all.partition(|path| set_aside::is_name(path));
            let why = "the copy was not as its list said";
            unreadable.extend(aside.into_iter().map(|path| (path, why.to_owned())));
            found.extend(strange);
        };
        self.each(|place, opened| match opened {
            Ok(_) => strangers_in(place, &mut unreadable),
            Err(error) => unreadable.push((place.to_owned(), error.to_string())),
        })?;
        for root in self.roots()?.into_iter().filter_map(|root| self.own(root).ok()) {
            let aside = set_aside::all_in(&root).map_err(TranscriptError::io("read the folder", &root))?;
            let why = "its list of copies could not be read";
            unreadable.extend(aside.into_iter().map(|path| (path, why.to_owned())));
        }
        match self.own(self.folder.join(UNREPORTED)) {
            Ok(marks) => {
                let roots = entries(&marks).map_err(TranscriptError::io("read the folder", &marks))?;
                for root in roots {
                    if let Err(why) = self.own(root.clone()) {
                        unreadable.push((root, why.to_string()));
                        continue;
                    }
                    let aside =
                        set_aside::all_in(&root).map_err(TranscriptError::io("read the folder", &root))?;
                    let why = "how many turns a restored transcript lacks could not be read from it";
                    unreadable.extend(aside.into_iter().map(|path| (path, why.to_owned())));
                }
            }
            Err(why) => unreadable.push((self.folder.join(UNREPORTED), why.to_string())),
        }
        // Where a kill came before they were put back.
        let all = entries(&self.folder).map_err(TranscriptError::io("read the folder", &self.folder))?;
        let removing = all
            .iter()
            .filter(|folder| is_removing(folder) && !folder.is_symlink());
        removing.for_each(|folder| strangers_in(folder, &mut unreadable));
        Ok((unreadable, found))
    }

    /// Visits the folder of each session that has copies. One that cannot be read is logged and left alone.
    fn walk(&self, mut see: impl FnMut(Seen)) -> Result<(), TranscriptError> {
        self.each(|place, opened| match opened {
            Ok(Some(folder)) if !folder.is_empty() => {
                let held = folder.held();
                see(Seen {
                    key: folder.key(),
                    changed_ms: folder.changed_ms(),
                    files: held.len() as u64,
                    bytes: held.iter().map(|file| file.bytes).sum(),
                    has_links: folder.has_links(),
                    may_be_base: folder.dialect().can().by_reference,
                    is_released: folder.is_released(),
                    place: place.to_owned(),
                });
            }
            // The backup of the session reports it, and so does `unusable`.
            Ok(_) | Err(TranscriptError::Misplaced(_)) => {}
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "cannot read the kept copies of a session; they stay");
            }
        })
    }

    /// Opens the folder of each session.
    fn each(
        &self,
        mut look: impl FnMut(&Path, Result<Option<Folder>, TranscriptError>),
    ) -> Result<(), TranscriptError> {
        for root in self.roots()? {
            if let Err(error) = self.own(root.clone()) {
                look(&root, Err(error));
                continue;
            }
            for place in entries(&root).map_err(TranscriptError::io("read the folder", &root))? {
                if !set_aside::is_name(&place) {
                    look(
                        &place,
                        self.own(place.clone()).and_then(|place| Folder::open(&place)),
                    );
                }
            }
        }
        Ok(())
    }

    /// The folder of each root, or what is in its place. Removals that were cut short are completed.
    fn roots(&self) -> Result<Vec<PathBuf>, TranscriptError> {
        let folder = self.own(self.folder.clone())?;
        let mut roots = entries(&folder).map_err(TranscriptError::io("read the folder", &folder))?;
        roots.retain(|root| {
            if is_removing(root) && self.own(root.clone()).is_ok() {
                // A kill cut it short, or another thread is at it. A later call tries again.
                let _left = remove_ours(root);
            }
            is_digest(root)
        });
        Ok(roots)
    }
}

/// Whether a folder is called as one whose copies are being deleted.
fn is_removing(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let uuid = name.and_then(|name| name.strip_prefix(REMOVING));
    uuid.is_some_and(|uuid| uuid::Uuid::try_parse(uuid).is_ok())
}

/// Whether a folder is called by the digest of something, as the folder of a root is.
pub(super) fn is_digest(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        name.len() == DIGEST_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}
