//! Bodies: files for values that are too large for the database, named by their content.
//!
//! A body is written whole (temporary file, sync, rename, folder sync) before the journal line that names it, and
//! never changed. Equal content shares one file. Unreferenced bodies are removed by a start that compacts the journal,
//! and by an erasure while no reader has a view of the store, so no reader loses one. This module does not know what
//! a body means.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::{BodyLoss, LostPart, StoreError};
use crate::files::digest::sha256;
use crate::files::set_aside::{self, Unreadable};
use crate::files::{durable, entries, is_absence, none_if_absent, read_file};

/// A reference to a body, in place of the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BodyRef {
    /// The SHA-256 of the content, and the file's name.
    pub(super) sha256: String,
    /// The length of the content.
    pub(super) bytes: u64,
}

/// The folder of bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    folder: PathBuf,
    name_durability: Mutex<NameDurability>,
}

/// Which file names in the folder are durable. Each successful write syncs all of them.
#[derive(Debug, Default)]
struct NameDurability {
    /// Whether all names are known to be synced. A kill or a failed sync may have left some unsynced.
    are_synced: bool,
    /// The exceptions: names whose bodies could not be written again on a full disk. The other names stay durable, so a change
    /// that needs only those succeeds.
    unwritten: HashSet<String>,
}

impl Bodies {
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self {
            folder,
            name_durability: Mutex::default(),
        }
    }

    /// Writes the content durably, unless that was already done. Only one thread may call this.
    pub(super) fn put(&self, content: &[u8]) -> Result<BodyRef, StoreError> {
        let body = BodyRef {
            sha256: sha256(content),
            bytes: content.len() as u64,
        };
        let path = self.path(&body);
        let mut names = self
            .name_durability
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_synced = names.are_synced && !names.unwritten.contains(&body.sha256);
        // Write a damaged body again, and one that may be unsynced. Syncing it again is not enough: after a failed sync, a
        // later one may succeed although data is lost.
        if is_synced && read(&path).is_ok_and(|found| found == content) {
            return Ok(body);
        }
        if !names.are_synced || !self.folder.is_dir() {
            durable::make_folders(&self.folder).map_err(StoreError::io("create", &self.folder))?;
        }
        match write_durably(&path, content) {
            Ok(()) => {
                *names = NameDurability {
                    are_synced: true,
                    ..NameDurability::default()
                };
                Ok(body)
            }
            Err(error) if error.full_disk_path().is_some() => {
                names.unwritten.insert(body.sha256);
                Err(error)
            }
            Err(error) => {
                names.are_synced = false;
                Err(error)
            }
        }
    }

    /// Reads a body and checks its hash. `member` is the part of the record that is stored in it.
    pub(super) fn get(&self, body: &BodyRef, member: &str) -> Result<String, LostPart> {
        let path = self.path(body);
        let loss = match read(&path) {
            Ok(content) if sha256(&content) == body.sha256 => match String::from_utf8(content) {
                Ok(content) => return Ok(content),
                Err(_) => BodyLoss::Damaged,
            },
            Ok(_) => BodyLoss::Damaged,
            Err(error) if error.kind() == ErrorKind::InvalidInput => BodyLoss::Damaged,
            Err(error) if is_absence(&error) => BodyLoss::Missing,
            Err(error) => BodyLoss::Unreadable(error.into()),
        };
        Err(LostPart {
            member: member.to_owned(),
            path,
            loss,
        })
    }

    /// Removes bodies that are not in `named`, and returns how many. Ignores files that the store did not write. Damaged
    /// bodies are set aside instead of removed: one may be unreferenced only because a conversation continued without
    /// its content.
    pub(super) fn remove_unreferenced(&self, named: &HashSet<String>) -> Result<usize, StoreError> {
        let mut removed = 0;
        for path in entries(&self.folder).map_err(StoreError::io("list", &self.folder))? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_folder = || path.symlink_metadata().is_ok_and(|found| found.is_dir());
            if !is_body(name) || named.contains(name) || is_folder() {
                continue;
            }
            if is_damaged(&path, name) {
                let why = Unreadable::Damaged("its content does not match its name".to_owned());
                // If the file cannot be renamed, it stays. `set_aside` logs that.
                drop(set_aside::set_aside(&path, &why));
                continue;
            }
            fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn path(&self, body: &BodyRef) -> PathBuf {
        self.folder.join(&body.sha256)
    }
}

/// Reads a file that the store wrote. Does not follow a link, because the store writes none and the target may change.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.symlink_metadata()?.is_symlink() {
        true => Err(ErrorKind::InvalidInput.into()),
        false => read_file(path),
    }
}

/// Whether this is the file name of a body, or of one being written.
fn is_body(name: &str) -> bool {
    let digits = name.strip_suffix(".new").unwrap_or(name);
    digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Whether a finished body does not have the content that its name says.
fn is_damaged(path: &Path, name: &str) -> bool {
    name.len() == 64 && read(path).is_ok_and(|content| sha256(&content) != name)
}

/// Writes a whole file durably.
pub(super) fn write_durably(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    durable::write(path, content).map_err(StoreError::io("write", path))
}

/// Renames a file or folder and syncs its folder, so that the name survives a crash.
pub(super) fn rename_durably(from: &Path, to: &Path) -> Result<(), StoreError> {
    durable::rename(from, to).map_err(StoreError::io("rename", from))?;
    sync_folder_of(to)
}

/// Removes a file durably, if it exists.
pub(super) fn remove_durably(path: &Path) -> Result<(), StoreError> {
    match none_if_absent(fs::remove_file(path)).map_err(StoreError::io("remove", path))? {
        Some(()) => sync_folder_of(path),
        None => Ok(()),
    }
}

/// Syncs the folder that contains the file.
pub(super) fn sync_folder_of(path: &Path) -> Result<(), StoreError> {
    durable::sync_folder_of(path).map_err(StoreError::io("sync the folder of", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::durable::tests::Disk;

    /// A kill may come between any two steps. The next start writes again what it finds before it relies on it.
    #[test]
    fn a_body_left_unsynced_by_a_kill_is_written_again_before_use() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("bodies");
        let disk = Disk::of(home.path());
        let first = Bodies::in_folder(folder.clone()).put(b"first").unwrap();
        assert_eq!(disk.check_lasts("a body in a new folder"), 1);

        // A kill between the rename and the sync of the folder.
        let content = b"second";
        let left = folder.join(sha256(content));
        let mut file = durable::NewFile::create_or_replace(&folder.join("left.new")).unwrap();
        std::io::Write::write_all(&mut file, content).unwrap();
        file.sync().unwrap();
        durable::rename(&folder.join("left.new"), &left).unwrap();
        assert_eq!(disk.lost().len(), 1);
        let bodies = Bodies::in_folder(folder.clone());
        bodies.put(content).unwrap();
        disk.check_lasts("the same body after a kill");

        // The same with a new folder that contains an unsynced copy of a body.
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::copy(folder.join(&first.sha256), other.join(&first.sha256)).unwrap();
        Bodies::in_folder(other).put(b"first").unwrap();
        disk.check_lasts("a folder after a kill");
    }

    /// A damaged file under this name does not stop the content from being saved.
    #[test]
    fn a_damaged_body_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::in_folder(folder.path().to_owned());
        let body = bodies.put(b"one").unwrap();
        fs::write(folder.path().join(&body.sha256), b"two").unwrap();
        bodies.put(b"one").unwrap();
        assert_eq!(bodies.get(&body, "turn.prompt").unwrap(), "one");
    }

    #[test]
    fn only_unreferenced_bodies_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::in_folder(folder.path().join("bodies"));
        assert_eq!(
            bodies.remove_unreferenced(&HashSet::new()).unwrap(),
            0,
            "no folder, nothing to do"
        );
        let kept = bodies.put(b"kept").unwrap();
        let dropped = bodies.put(b"dropped").unwrap();
        let half = folder.path().join("bodies").join(format!("{}.new", kept.sha256));
        fs::write(&half, "ke").unwrap();
        let damaged = bodies.put(b"damaged").unwrap();
        fs::write(bodies.path(&damaged), "something else").unwrap();
        let strangers = ["notes", "stray/notes"].map(|name| folder.path().join("bodies").join(name));
        fs::create_dir(strangers[1].parent().unwrap()).unwrap();
        strangers.iter().for_each(|path| fs::write(path, "mine").unwrap());
        assert_eq!(
            bodies
                .remove_unreferenced(&HashSet::from([kept.sha256.clone()]))
                .unwrap(),
            2
        );
        assert!(strangers.iter().all(|path| path.exists()) && !half.exists());
        assert!(bodies.get(&kept, "turn.prompt").is_ok());
        assert!(bodies.get(&dropped, "turn.prompt").is_err());
        assert!(!bodies.path(&damaged).exists());
        let aside = folder
            .path()
            .join("bodies")
            .join(format!("{}.set-aside-1", damaged.sha256));
        assert_eq!(fs::read(aside).unwrap(), b"something else");
    }
}
