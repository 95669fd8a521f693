//! Deleting the copies of rollouts, except those in which the history of another kept session begins. Codex archives the file of a
//! deleted session and still finds it for the sessions that continue it, so they need its copy too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::folder::Folder;
use super::restoring::base_of;
use super::{Archive, Key, change};
use crate::files::{entries, set_aside};
use crate::transcript::TranscriptError;

/// What has to be known of a kept session before copies are deleted.
struct KeptRollout {
    /// The session whose history it continues.
    base: Option<String>,
    /// Whether it is deleted, and its copies stay for the sessions that continue it.
    is_released: bool,
}

/// The kept sessions of a root.
struct KeptRollouts {
    kept: BTreeMap<String, KeptRollout>,
    /// Whether each of them was read in full, and nothing is set aside that may continue another session.
    are_all_known: bool,
}

impl Archive {
    /// Deletes the copies of these sessions of Codex, except those in which the history of another kept session begins. Also deletes
    /// those that stayed until now for that reason, unless `is_used` says that a conversation has the session again. Deletes none
    /// while the base of a kept session is unknown.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn remove_rollouts(
        &self,
        root: &Path,
        ids: &BTreeSet<String>,
        is_used: impl Fn(&str) -> bool,
    ) -> Result<(), TranscriptError> {
        let KeptRollouts { kept, are_all_known } = self.kept_rollouts(root)?;
        let is_going = |id: &str, one: &KeptRollout| ids.contains(id) || one.is_released && !is_used(id);
        let (going, staying): (Vec<_>, Vec<_>) = kept.iter().partition(|(id, one)| is_going(id, one));
        let mut needed = BTreeSet::new();
        for (_, one) in staying {
            let mut base = one.base.as_ref();
            // A base that was inserted before has its own bases there too, so a circle ends.
            while let Some(id) = base.filter(|id| needed.insert((*id).clone())) {
                base = kept.get(id).and_then(|one| one.base.as_ref());
            }
        }
        let key = |id: &String| Key {
            root: root.to_owned(),
            upstream_id: id.clone(),
        };
        let mut first = Ok(());
        // Nobody is left to report to, also where nothing is kept any more or the copies stay.
        for id in ids {
            let key = key(id);
            first = first.and(match self.note_reported(&key).and(self.place(&key).map(drop)) {
                // Such a session has no files.
                Err(TranscriptError::InvalidId { .. }) => Ok(()),
                noted => noted,
            });
        }
        for (id, _) in going {
            let key = key(id);
            let done = match needed.contains(id) || !are_all_known {
                true => self.release(&key),
                false => self.remove(&key),
            };
            first = first.and(done);
        }
        first
    }

    /// The kept sessions of a root in which the history of another kept session begins.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn bases(&self, root: &Path) -> Result<BTreeSet<String>, TranscriptError> {
        let KeptRollouts { kept, .. } = self.kept_rollouts(root)?;
        Ok(kept.into_values().filter_map(|one| one.base).collect())
    }

    /// The kept sessions of a root. One that cannot be read is logged and left out.
    fn kept_rollouts(&self, root: &Path) -> Result<KeptRollouts, TranscriptError> {
        let mut kept = BTreeMap::new();
        let mut are_all_known = true;
        let root = self.folder_of(root)?;
        for place in entries(&root).map_err(TranscriptError::io("read the folder", &root))? {
            if set_aside::is_name(&place) || place.is_symlink() {
                are_all_known = false;
                continue;
            }
            // Not a session's.
            if !place.is_dir() {
                continue;
            }
            let mut look = || -> Result<Option<(String, KeptRollout)>, TranscriptError> {
                let Some(folder) = Folder::open(&place)? else {
                    return Ok(None);
                };
                let best = folder.transcript().map(|name| folder.best(name)).transpose()?;
                let base = match best.flatten() {
                    Some((copy, _)) => base_of(folder.dialect(), folder.text(copy)?, &place)?,
                    None => {
                        are_all_known = false;
                        None
                    }
                };
                let aside = set_aside::all_in(&place);
                are_all_known &= aside
                    .map_err(TranscriptError::io("read the folder", &place))?
                    .is_empty();
                let one = KeptRollout {
                    base,
                    is_released: folder.is_released(),
                };
                Ok(Some((folder.key().upstream_id, one)))
            };
            match look() {
                Ok(one) => kept.extend(one),
                Err(error) => {
                    are_all_known = false;
                    tracing::warn!(folder = %place.display(), %error, "cannot read the kept copies of a session");
                }
            }
        }
        Ok(KeptRollouts { kept, are_all_known })
    }

    /// Records that the copies of a deleted session stay for the sessions that continue it.
    fn release(&self, key: &Key) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        change(&place, Folder::release)
    }
}
