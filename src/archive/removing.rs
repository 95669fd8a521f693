//! Deletes the copies of sessions, except those that another archived session continues by reference. Such an agent also reads
//! the files of deleted sessions for the sessions that continue them, so their copies are needed too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::folder::{SessionFolder, remove_own_files};
use super::{Archive, SessionKey, pruning, root_name};
use crate::files::{durable, entries, set_aside};
use crate::transcript::TranscriptError;

/// For each archived session of a root: the session that it continues, and whether it was released.
type ContinuedSessions = BTreeMap<String, (Option<String>, bool)>;

impl Archive {
    /// Deletes all copies of a session and its restore mark. Completes interrupted removals, which may be of this session.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn remove(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        let noted = self.clear_restore_mark(key);
        let place = self.session_folder(key)?;
        let removed = self.remove_copies(&place, key).and(noted);
        removed.and(self.complete_removals())
    }

    /// Deletes the copies of these sessions. Sessions that another archived session continues are only marked as
    /// released. Also deletes sessions that were released earlier and are no longer needed, unless `is_used` says that
    /// a conversation has them again. If a session cannot be read, it may continue any other, so all are only marked.
    /// Completes interrupted removals.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn remove_unneeded(
        &self,
        root: &Path,
        ids: &BTreeSet<String>,
        is_used: impl Fn(&str) -> bool,
    ) -> Result<(), TranscriptError> {
        self.complete_removals()?;
        let (archived, are_all_known) = self.read_bases(root)?;
        let is_to_delete = |id: &str, is_released: bool| ids.contains(id) || is_released && !is_used(id);
        let (to_delete, remaining): (Vec<_>, Vec<_>) = archived
            .iter()
            .partition(|(id, (_, is_released))| is_to_delete(id, *is_released));
        let mut needed = BTreeSet::new();
        for (_, (base, _)) in remaining {
            let mut base = base.as_ref();
            // Stop at a session that was visited before, because references may form a ring.
            while let Some(id) = base.filter(|id| needed.insert((*id).clone())) {
                base = archived.get(id).and_then(|(base, _)| base.as_ref());
            }
        }
        let key = |id: &String| SessionKey {
            root: root.to_owned(),
            upstream_id: id.clone(),
        };
        // The conversations are deleted, so their restore marks will not be reported any more.
        let marks_cleared = ids.iter().map(|id| {
            let key = key(id);
            match self
                .clear_restore_mark(&key)
                .and(self.session_folder(&key).map(drop))
            {
                // Nothing is archived under an invalid id.
                Err(TranscriptError::InvalidId { .. }) => Ok(()),
                cleared => cleared,
            }
        });
        let removed = to_delete
            .into_iter()
            .map(|(id, _)| match needed.contains(id) || !are_all_known {
                true => self.change_list(&key(id), |folder| {
                    folder.release();
                    Ok(())
                }),
                false => self.remove(&key(id)),
            });
        // Continue with the others if one fails.
        marks_cleared.chain(removed).fold(Ok(()), Result::and)
    }

    /// Returns the ids of the sessions that the archived sessions of a root continue.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn bases(&self, root: &Path) -> Result<BTreeSet<String>, TranscriptError> {
        let kept = self.read_bases(root)?.0;
        Ok(kept.into_values().filter_map(|(base, _)| base).collect())
    }

    /// Reads which sessions the archived sessions of a root continue, and whether every session could be read. If not, an
    /// unknown session may continue any other. A session that cannot be read is logged and omitted.
    fn read_bases(&self, root: &Path) -> Result<(ContinuedSessions, bool), TranscriptError> {
        let mut archived = BTreeMap::new();
        let mut are_all_known = true;
        let root = self.check_own_folder(self.folder.join(root_name(root)))?;
        for place in entries(&root).map_err(TranscriptError::io("read the folder", &root))? {
            let mut is_known = || -> Result<bool, TranscriptError> {
                if set_aside::is_set_aside(&place) || place.is_symlink() {
                    return Ok(false);
                }
                // A file here belongs to no session.
                let opened = if place.is_dir() {
                    SessionFolder::open(&place, None)?
                } else {
                    None
                };
                let Some(folder) = opened else { return Ok(true) };
                let aside = set_aside::set_aside_files_in(&place);
                let aside = aside.map_err(TranscriptError::io("read the folder", &place))?;
                let found = (folder.continued_session()?, folder.list.released);
                archived.insert(folder.list.upstream_id.clone(), found);
                Ok(folder.best_transcript()?.is_some() && aside.is_empty())
            };
            are_all_known &= is_known().unwrap_or_else(|error| {
                tracing::warn!(folder = %place.display(), %error, "cannot read the backups of a session");
                false
            });
        }
        Ok((archived, are_all_known))
    }

    /// Deletes the copies in the folder of a session. The folder is renamed first, so that a partly deleted session is never
    /// taken for a complete one. If it has files that the daemon did not write, it is renamed back.
    pub(super) fn remove_copies(&self, folder_path: &Path, key: &SessionKey) -> Result<(), TranscriptError> {
        let removing = format!("{}{}", pruning::REMOVING_PREFIX, uuid::Uuid::new_v4());
        let removing = self.folder.join(removing);
        let locked = self.lock(key);
        let remove = || match folder_path.exists() {
            false => Ok(()),
            true => {
                durable::rename(folder_path, &removing)?;
                match remove_own_files(&removing)? {
                    true => Ok(()),
                    false => durable::rename(&removing, folder_path),
                }
            }
        };
        let removed = remove().map_err(TranscriptError::io("remove", folder_path));
        // Release this lock first: unpacking takes the two locks in the opposite order.
        drop(locked);
        self.forget_unpacked_of(key);
        removed
    }
}
