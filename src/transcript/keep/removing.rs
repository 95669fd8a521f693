//! Removing the copies of rollouts that nobody else's history begins in: Codex puts away the file of a session that is deleted,
//! and goes on finding it there for those that continue it, so that a copy of it is theirs as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::folder::Folder;
use super::pruning::folders;
use super::restoring::base_of;
use super::{Archive, Key};
use crate::transcript::TranscriptError;
use crate::transcript::aside;

/// What is known of a kept session here.
struct Kept {
    /// The session whose history it continues.
    base: Option<String>,
    /// Whether it stays for others only.
    is_released: bool,
}

impl Archive {
    /// Removes all copies of these sessions of Codex, but for those in which the histories of others begin that are kept; and of
    /// those that stayed for that reason until now, unless `is_used` says that somebody has them again.
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
        let is_going = |id: &str, one: &Kept| ids.contains(id) || one.is_released && !is_used(id);
        let (going, staying): (Vec<_>, Vec<_>) = kept.iter().partition(|(id, one)| is_going(id, one));
        let mut needed = BTreeSet::new();
        for (_, one) in staying {
            let mut base = one.base.as_ref();
            // One that was there before has its own there too; so a circle ends.
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

    /// The kept sessions of a root in which the histories of others begin that are kept.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn bases(&self, root: &Path) -> Result<BTreeSet<String>, TranscriptError> {
        let kept = self.kept_rollouts(root)?;
        Ok(kept.into_values().filter_map(|one| one.base).collect())
    }

    /// The kept sessions of a root. One that cannot be read is told in the log, and what it continues is not known.
    fn kept_rollouts(&self, root: &Path) -> Result<BTreeMap<String, Kept>, TranscriptError> {
        let mut kept = BTreeMap::new();
        let places = folders(&self.folder_of(root))?.into_iter();
        for place in places.filter(|place| !aside::is_aside(place)) {
            let look = || -> Result<Option<(String, Kept)>, TranscriptError> {
                let Some(folder) = Folder::open(&place)? else {
                    return Ok(None);
                };
                let best = folder.transcript().map(|name| folder.best(name)).transpose()?;
                let base = match best.flatten() {
                    Some((copy, _)) => base_of(folder.text(copy)?, &place)?,
                    None => None,
                };
                let one = Kept {
                    base: base.map(|base| base.upstream_id),
                    is_released: folder.is_released(),
                };
                Ok(Some((folder.key().upstream_id, one)))
            };
            match look() {
                Ok(one) => kept.extend(one),
                Err(error) => {
                    tracing::warn!(folder = %place.display(), %error, "what is kept of a session cannot be read");
                }
            }
        }
        Ok(kept)
    }

    /// Notes that the copies of a session stay for others only.
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
