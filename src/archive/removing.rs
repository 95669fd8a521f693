//! Deleting the copies of sessions. Those in which the history of another kept session begins stay: an agent that forks by reference
//! finds the file of a deleted session for the sessions that continue it, so they need its copy too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::folder::{SessionFolder, remove_ours};
use super::{Archive, SessionKey, pruning, root_name};
use crate::files::{durable, entries, set_aside};
use crate::transcript::TranscriptError;

/// Which of the kept sessions of a root continue which.
struct ContinuedSessions {
    /// Of each session: the session that it continues, and whether it was released.
    by_session: BTreeMap<String, (Option<String>, bool)>,
    /// Whether every session could be read. If not, an unknown session may continue any other.
    are_all_known: bool,
}

impl Archive {
    /// Deletes all copies of a session, and what it had to report. Completes removals that were cut short, which may be of this
    /// session.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn remove(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        let noted = self.clear_restore_mark(key);
        let place = self.session_folder(key)?;
        let removed = self.remove_copies(&place, key).and(noted);
        removed.and(self.complete_removals())
    }

    /// Deletes the copies of these sessions, except those in which the history of another kept session begins. Also deletes those that
    /// stayed until now for that reason, unless `is_used` says that a conversation has the session again. Deletes none while it is
    /// unknown which session a kept one continues. Completes removals that were cut short.
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
        let ContinuedSessions {
            by_session: kept,
            are_all_known,
        } = self.read_bases(root)?;
        let is_going = |id: &str, is_released: bool| ids.contains(id) || is_released && !is_used(id);
        let (going, staying): (Vec<_>, Vec<_>) = kept
            .iter()
            .partition(|(id, (_, is_released))| is_going(id, *is_released));
        let mut needed = BTreeSet::new();
        for (_, (base, _)) in staying {
            let mut base = base.as_ref();
            // Stops at a base that was seen before, so a circle ends.
            while let Some(id) = base.filter(|id| needed.insert((*id).clone())) {
                base = kept.get(id).and_then(|(base, _)| base.as_ref());
            }
        }
        let key = |id: &String| SessionKey {
            root: root.to_owned(),
            upstream_id: id.clone(),
        };
        // The conversations are deleted, so no restored transcript has losses to report any more.
        let noted = ids.iter().map(|id| {
            let key = key(id);
            match self
                .clear_restore_mark(&key)
                .and(self.session_folder(&key).map(drop))
            {
                // Such a session has no files.
                Err(TranscriptError::InvalidId { .. }) => Ok(()),
                noted => noted,
            }
        });
        let removed = going
            .into_iter()
            .map(|(id, _)| match needed.contains(id) || !are_all_known {
                true => self.change_list(&key(id), |folder| {
                    folder.release();
                    Ok(())
                }),
                false => self.remove(&key(id)),
            });
        // The others are deleted even if one fails.
        noted.chain(removed).fold(Ok(()), Result::and)
    }

    /// The kept sessions of a root in which the history of another kept session begins.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn bases(&self, root: &Path) -> Result<BTreeSet<String>, TranscriptError> {
        let kept = self.read_bases(root)?.by_session;
        Ok(kept.into_values().filter_map(|(base, _)| base).collect())
    }

    /// Which sessions the kept ones of a root continue. One that cannot be read is logged and left out.
    fn read_bases(&self, root: &Path) -> Result<ContinuedSessions, TranscriptError> {
        let mut kept = BTreeMap::new();
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
                kept.insert(folder.list.upstream_id.clone(), found);
                Ok(folder.best_transcript()?.is_some() && aside.is_empty())
            };
            are_all_known &= is_known().unwrap_or_else(|error| {
                tracing::warn!(folder = %place.display(), %error, "cannot read the kept copies of a session");
                false
            });
        }
        Ok(ContinuedSessions {
            by_session: kept,
            are_all_known,
        })
    }

    /// Deletes the copies in the folder of a session. It is renamed first, so that half of a session is never taken for one. Files that the
    /// daemon did not write are put back.
    pub(super) fn remove_copies(&self, place: &Path, key: &SessionKey) -> Result<(), TranscriptError> {
        let removing = format!("{}{}", pruning::REMOVING_PREFIX, uuid::Uuid::new_v4());
        let removing = self.folder.join(removing);
        let locked = self.lock(key);
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
        // A caller that unpacks takes the two locks in the other order.
        drop(locked);
        self.forget_unpacked_of(key);
        removed
    }
}
