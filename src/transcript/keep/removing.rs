//! Deleting the copies of rollouts, except those in which the history of another kept session begins. Codex archives the file of a
//! deleted session and still finds it for the sessions that continue it, so they need its copy too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::folder::Folder;
use super::pruning::folders;
use super::restoring::base_of;
use super::{Archive, Key};
use crate::files::set_aside;
use crate::transcript::TranscriptError;

/// What has to be known of a kept session before copies are deleted.
struct KeptRollout {
    /// The session whose history it continues.
    base: Option<String>,
    /// Whether it is deleted, and its copies stay for the sessions that continue it.
    is_released: bool,
}

impl Archive {
    /// Deletes the copies of these sessions of Codex, except those in which the history of another kept session begins. Also deletes
    /// those that stayed until now for that reason, unless `is_used` says that a conversation has the session again.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn remove_rollouts(
        &self,
        root: &Path,
        ids: &BTreeSet<String>,
        is_used: impl Fn(&str) -> bool,
    ) -> Result<(), TranscriptError> {
        let kept = self.kept_rollouts(root)?;
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
        let mut first = Ok(());
        for (id, _) in going {
            let key = Key {
                root: root.to_owned(),
                upstream_id: id.clone(),
            };
            let done = match needed.contains(id) {
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
        let kept = self.kept_rollouts(root)?;
        Ok(kept.into_values().filter_map(|one| one.base).collect())
    }

    /// The kept sessions of a root. One that cannot be read is logged and left out.
    fn kept_rollouts(&self, root: &Path) -> Result<BTreeMap<String, KeptRollout>, TranscriptError> {
        let mut kept = BTreeMap::new();
        let places = folders(&self.folder_of(root))?.into_iter();
        for place in places.filter(|place| !set_aside::is_name(place)) {
            let look = || -> Result<Option<(String, KeptRollout)>, TranscriptError> {
                let Some(folder) = Folder::open(&place)? else {
                    return Ok(None);
                };
                let best = folder.transcript().map(|name| folder.best(name)).transpose()?;
                let base = match best.flatten() {
                    Some((copy, _)) => base_of(folder.text(copy)?, &place)?,
                    None => None,
                };
                let one = KeptRollout {
                    base: base.map(|base| base.upstream_id),
                    is_released: folder.is_released(),
                };
                Ok(Some((folder.key().upstream_id, one)))
            };
            match look() {
                Ok(one) => kept.extend(one),
                Err(error) => {
                    tracing::warn!(folder = %place.display(), %error, "cannot read the kept copies of a session");
                }
            }
        }
        Ok(kept)
    }

    /// Records that the copies of a deleted session stay for the sessions that continue it.
    fn release(&self, key: &Key) -> Result<(), TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        match Folder::open(&place)? {
            Some(mut folder) => {
                folder.release();
                folder.save()
            }
            None => Ok(()),
        }
    }
}
