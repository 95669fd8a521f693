//! Kept sessions that are only to be read: unpacked into folders of our own, each laid out as the agent's, so that whoever
//! reads transcripts reads these in the same way, and nothing is written where the agent's files are.
//!
//! Owns how long they stay: for as long as anybody has one in hand, and some time behind that, since a history is read page by
//! page. What is unpacked never changes: of another state of the copies, or for other folders, another one is made.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::list::digest;
use super::pruning::{folders, is_digest};
use super::restoring::{base_of, inside, kept, put_claude, put_file, rollout_place, text_of};
use super::{Archive, DIGEST_DIGITS, Key, below};
use crate::files::is_absence;
use crate::paths::names::UNPACKED;
use crate::transcript::TranscriptError;
use crate::transcript::relocate::Relocation;
use crate::transcript::rollouts::{self, LINEAGE_LIMIT};

/// How long it stays behind its last use.
const STAYS: Duration = Duration::from_secs(10 * 60);

/// How much may stay that nobody has in hand, in bytes: some long transcripts. Past it what was used least recently goes.
const STAY_BYTES: u64 = 1024 * 1024 * 1024;

/// A kept session as its agent had it, for as long as this is held.
#[derive(Clone, Debug)]
pub struct Unpacked {
    root: PathBuf,
    sessions: Arc<[String]>,
}

impl Unpacked {
    /// A folder that is laid out as the agent's own.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The sessions in it that are read from copies; others are there because the agent has them.
    #[must_use]
    pub fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// Whether a session is read from its copy.
    #[must_use]
    pub fn holds(&self, upstream_id: &str) -> bool {
        self.sessions.iter().any(|id| id == upstream_id)
    }
}

/// What is unpacked.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    places: Mutex<HashMap<PathBuf, Place>>,
}

#[derive(Debug)]
struct Place {
    sessions: Arc<[String]>,
    last_use: Instant,
    bytes: u64,
}

impl Place {
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.sessions) > 1
    }
}

impl Archive {
    /// Unpacks what is kept of a session that stands alone. Its records name other folders by `relocation`.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] when no transcript is kept, [`TranscriptError::Io`].
    pub fn unpack_alone(&self, key: &Key, relocation: &Relocation) -> Result<Unpacked, TranscriptError> {
        let place = self.place(key)?;
        let mut shelf = self.shelf.lock();
        let _held = self.lock(key);
        let (folder, transcript) = kept(&place, key)?;
        let state = format!("{} {:?}", folder.state(), relocation.folders);
        self.unpack(&mut shelf, key, &state, |root| {
            put_claude(&folder, &transcript, key, root, None, relocation, &mut |_, _| {
                Ok(())
            })?;
            Ok(vec![key.upstream_id.clone()])
        })
    }

    /// Unpacks what is kept of a session and of those that it continues by reference, as far as its agent does not have them. What
    /// that has is found there too.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] when none of those is kept that it does not have, [`TranscriptError::Io`].
    pub fn unpack_with_bases(&self, key: &Key) -> Result<Unpacked, TranscriptError> {
        let mut shelf = self.shelf.lock();
        let mut there: Vec<PathBuf> = Vec::new();
        let mut missing: Vec<Key> = Vec::new();
        let mut states = Vec::new();
        let mut wanted = Some(key.clone());
        while let Some(next) = wanted.take() {
            let is_known = missing.contains(&next);
            if is_known || missing.len() + there.len() >= LINEAGE_LIMIT {
                break;
            }
            let base = match rollouts::locate(&next.root, &next.upstream_id)?
                .into_iter()
                .next()
            {
                Some(path) if there.contains(&path) => break,
                Some(path) => {
                    let base = base_of(text_of(&path)?, &path)?;
                    states.push(path.to_string_lossy().into_owned());
                    there.push(path);
                    base
                }
                None => {
                    let place = self.place(&next)?;
                    let _held = self.lock(&next);
                    // What it continues may never have been kept. Whoever reads it says what is missing.
                    let Some((folder, name)) = absent(kept(&place, &next))? else {
                        break;
                    };
                    states.push(folder.state());
                    missing.push(next.clone());
                    match folder.best(&name)? {
                        Some((copy, _)) => base_of(folder.text(copy)?, &place)?,
                        None => None,
                    }
                }
            };
            wanted = base.map(|base| Key {
                root: key.root.clone(),
                upstream_id: base.upstream_id,
            });
        }
        if missing.is_empty() {
            return Err(TranscriptError::NotFound {
                upstream_id: key.upstream_id.clone(),
                root: self.folder.clone(),
            });
        }
        self.unpack(&mut shelf, key, &states.join(" "), |root| {
            for path in &there {
                link(path, &key.root, root)?;
            }
            for key in &missing {
                let place = self.place(key)?;
                let _held = self.lock(key);
                let (folder, name) = kept(&place, key)?;
                let path = rollout_place(root, inside(&name, &place)?);
                put_file(&folder, &name, &path, root)?;
            }
            Ok(missing.iter().map(|key| key.upstream_id.clone()).collect())
        })
    }

    /// The place of a state of a session, made by `fill` where it is not there yet.
    fn unpack(
        &self,
        shelf: &mut HashMap<PathBuf, Place>,
        key: &Key,
        state: &str,
        fill: impl FnOnce(&Path) -> Result<Vec<String>, TranscriptError>,
    ) -> Result<Unpacked, TranscriptError> {
        let all = self.folder.join(UNPACKED).join(below(key)?);
        let root = self.own(all.join(&digest(state.as_bytes())[..DIGEST_DIGITS]))?;
        if let Some(place) = shelf.get_mut(&root) {
            place.last_use = Instant::now();
            return Ok(Unpacked {
                root,
                sessions: Arc::clone(&place.sessions),
            });
        }
        // What one who was killed has left is not whole.
        remove(&root)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(TranscriptError::io("make the folder", &root))?;
        let filled = fill(&root).and_then(|sessions| Ok((sessions, bytes_below(&root)?)));
        let (sessions, bytes) = filled.inspect_err(|_| {
            // Else the next look does.
            let _left = remove(&root);
        })?;
        let sessions: Arc<[String]> = sessions.into();
        let place = Place {
            sessions: Arc::clone(&sessions),
            last_use: Instant::now(),
            bytes,
        };
        shelf.insert(root.clone(), place);
        make_room(shelf);
        Ok(Unpacked { root, sessions })
    }

    /// Removes what was unpacked and is not used any more, also by a daemon before this one.
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn sweep_unpacked(&self) -> Result<(), TranscriptError> {
        let mut shelf = self.shelf.lock();
        shelf.retain(|_, place| place.is_held() || place.last_use.elapsed() < STAYS);
        for root in folders(&self.own(self.folder.join(UNPACKED))?)? {
            for session in folders(&root)? {
                for place in folders(&session)? {
                    if is_digest(&place) && !shelf.contains_key(&place) {
                        remove(&place)?;
                    }
                }
                // Where something is left in it, it stays.
                let _used = fs::remove_dir(&session);
            }
            let _used = fs::remove_dir(&root);
        }
        Ok(())
    }

    /// Removes all that was unpacked of the session whose copies are in this folder.
    pub(super) fn remove_unpacked(&self, copies: &Path) -> Result<(), TranscriptError> {
        let below = copies.strip_prefix(&self.folder).unwrap_or(copies);
        let of_session = self.own(self.folder.join(UNPACKED).join(below))?;
        let mut shelf = self.shelf.lock();
        shelf.retain(|place, _| !place.starts_with(&of_session));
        for place in folders(&of_session)?.iter().filter(|place| is_digest(place)) {
            remove(place)?;
        }
        // Fails if files of others are in it.
        let _ = fs::remove_dir(&of_session);
        Ok(())
    }
}

impl Shelf {
    /// Whoever unpacks or removes something does it alone.
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of what nobody has in hand until the rest has room.
fn make_room(shelf: &mut HashMap<PathBuf, Place>) {
    let mut left: u64 = shelf.values().map(|place| place.bytes).sum();
    let unused = shelf.iter().filter(|(_, place)| !place.is_held());
    let mut unused: Vec<(Instant, PathBuf)> = unused
        .map(|(path, place)| (place.last_use, path.clone()))
        .collect();
    unused.sort();
    for (_, path) in unused {
        if left <= STAY_BYTES {
            return;
        }
        left -= shelf.remove(&path).map_or(0, |place| place.bytes);
        if let Err(error) = remove(&path) {
            tracing::warn!(path = %path.display(), %error, "what was unpacked could not be removed; a later look does");
        }
    }
}

/// Puts a link to a file of the agent's at the same place below another folder.
fn link(path: &Path, root: &Path, to: &Path) -> Result<(), TranscriptError> {
    let below = path.strip_prefix(root).unwrap_or(Path::new(""));
    let target = to.join(below);
    let made = || -> io::Result<()> {
        let parent = target.parent().unwrap_or(to);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        symlink(path, &target)
    };
    made().map_err(TranscriptError::io("link", &target))
}

/// What a look found; none where there is nothing.
fn absent<T>(found: Result<T, TranscriptError>) -> Result<Option<T>, TranscriptError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(TranscriptError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(folder: &Path) -> Result<(), TranscriptError> {
    match fs::remove_dir_all(folder) {
        Err(error) if !is_absence(&error) => Err(TranscriptError::io("remove", folder)(error)),
        _ => Ok(()),
    }
}

/// What the files below a folder take; what links lead to is not theirs.
fn bytes_below(folder: &Path) -> Result<u64, TranscriptError> {
    let failed = |error| TranscriptError::io("read the folder", folder)(error);
    let mut bytes = 0;
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_dir() {
            names.push(entry.file_name());
        } else {
            bytes += metadata.size();
        }
    }
    for name in names {
        bytes += bytes_below(&folder.join(name))?;
    }
    Ok(bytes)
}
