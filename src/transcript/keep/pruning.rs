//! What all copies cost together, and removing those that are older or more than is wanted.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use super::folder::Folder;
use super::{Archive, Key, ROOT_DIGITS};
use crate::transcript::TranscriptError;
use crate::transcript::aside;
use crate::transcript::locate::is_absence;

/// How a folder is called that is being removed.
pub(super) const GONE: &str = "gone-";

/// What all copies are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many sessions are kept.
    pub sessions: u64,
    /// How many files they have.
    pub files: u64,
    /// What they take on the disk.
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

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many sessions.
    pub sessions: u64,
    /// How many bytes these took.
    pub bytes: u64,
}

/// A session of which something is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSession {
    /// What it is known by.
    pub key: Key,
    /// When it was last written to, in milliseconds since the epoch.
    pub changed_ms: i64,
    /// How many files it has.
    pub files: u64,
    /// What its copies take on the disk.
    pub bytes: u64,
    /// Whether it is a rollout of Codex, in which the histories of others may begin.
    pub is_rollout: bool,
    /// Whether it stays for those others only.
    pub is_released: bool,
}

/// One session's folder, as a look at all of them sees it.
struct Seen {
    place: PathBuf,
    key: Key,
    changed_ms: i64,
    files: u64,
    bytes: u64,
    has_links: bool,
    is_rollout: bool,
    is_released: bool,
}

impl Archive {
    /// What all copies are together.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] when the folders cannot be read.
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
                is_rollout: seen.is_rollout,
                is_released: seen.is_released,
            });
        })?;
        Ok(sessions)
    }

    /// The sessions of which something is kept by a link only.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn linked(&self) -> Result<Vec<Key>, TranscriptError> {
        let mut linked = Vec::new();
        self.walk(|seen| linked.extend(seen.has_links.then_some(seen.key)))?;
        Ok(linked)
    }

    /// Removes the copies of sessions that were last written to before this time (in milliseconds since the epoch), and of
    /// the others those that were written to first, until all take no more than so many bytes.
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
        for seen in all {
            let is_old = oldest_ms.is_some_and(|oldest| seen.changed_ms < oldest);
            let with_it = kept_bytes.saturating_add(seen.bytes);
            // What is older than one that had no room has none either, unless it takes none.
            is_full |= most_bytes.is_some_and(|most| with_it > most);
            let has_room = !is_full || seen.bytes == 0;
            if has_room && !is_old {
                kept_bytes = with_it;
                continue;
            }
            self.remove_folder(&seen.place, &seen.key)?;
            pruned.sessions += 1;
            pruned.bytes += seen.bytes;
        }
        Ok(pruned)
    }

    /// The folders of sessions whose copies cannot be used, each with why, and what the daemon has not put among the copies.
    ///
    /// # Errors
    /// As [`Archive::total`].
    pub fn unusable(&self) -> Result<(Vec<(PathBuf, String)>, Vec<PathBuf>), TranscriptError> {
        let (mut unreadable, mut strangers) = (Vec::new(), Vec::new());
        self.each(|place, opened| match opened {
            Ok(Some(folder)) => strangers.extend(folder.strangers().unwrap_or_default()),
            Ok(None) => {}
            Err(error) => unreadable.push((place.to_owned(), error.to_string())),
        })?;
        for root in self.roots()? {
            let aside = aside::all_in(&root).map_err(TranscriptError::io("read the folder", &root))?;
            let why = "its list of copies could not be read";
            unreadable.extend(aside.into_iter().map(|path| (path, why.to_owned())));
        }
        Ok((unreadable, strangers))
    }

    /// Looks at the folder of each session that has copies. One that cannot be read is reported in the log and left.
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
                    is_rollout: folder.is_rollout(),
                    is_released: folder.is_released(),
                    place: place.to_owned(),
                });
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "the kept copies of a session cannot be read; they stay");
            }
        })
    }

    /// Opens the folder of each session.
    fn each(
        &self,
        mut look: impl FnMut(&Path, Result<Option<Folder>, TranscriptError>),
    ) -> Result<(), TranscriptError> {
        for root in self.roots()? {
            for place in folders(&root)? {
                if !aside::is_aside(&place) {
                    look(&place, Folder::open(&place));
                }
            }
        }
        Ok(())
    }

    /// The folder of each root. What was about to be removed is.
    fn roots(&self) -> Result<Vec<PathBuf>, TranscriptError> {
        let mut roots = folders(&self.folder)?;
        roots.retain(|root| {
            let name = root
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let going = name.strip_prefix(GONE).map(uuid::Uuid::try_parse);
            if matches!(going, Some(Ok(_))) {
                // Somebody was killed, or is at it.
                let _left = fs::remove_dir_all(root);
            }
            name.len() == ROOT_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        Ok(roots)
    }
}

pub(super) fn folders(folder: &Path) -> Result<Vec<PathBuf>, TranscriptError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_absence(&error) => return Ok(Vec::new()),
        Err(error) => return Err(TranscriptError::io("read the folder", folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(TranscriptError::io("read the folder", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
