//! Bodies: what is too large for a value, as files named by their content.
//!
//! A body is written whole (temporary file, sync, rename, folder sync) before the journal line that names it, and never
//! changed. The same content is the same file. Bodies that nothing names are removed at a start that compacts the
//! journal, and at no other time, so that no reader ever loses one. This module must not know what a body means.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::sha256_hex;
use super::error::StoreError;

/// What stands in a value in the place of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BodyRef {
    /// The SHA-256 of the content, which is the file's name.
    pub(super) sha256: String,
    /// How long it is.
    pub(super) bytes: u64,
}

/// The folder of bodies.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    folder: PathBuf,
}

impl Bodies {
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Makes the content durable, unless it is already.
    pub(super) fn put(&self, content: &[u8]) -> Result<BodyRef, StoreError> {
        let body = BodyRef {
            sha256: sha256_hex(content),
            bytes: content.len() as u64,
        };
        let path = self.path(&body);
        // A rename came after the sync, so a file of this name is whole.
        if path.try_exists().map_err(StoreError::io("look for", &path))? {
            return Ok(body);
        }
        fs::create_dir_all(&self.folder).map_err(StoreError::io("create", &self.folder))?;
        write_durably(&path, content)?;
        Ok(body)
    }

    /// Reads a body and checks it against its name.
    pub(super) fn get(&self, body: &BodyRef) -> Result<String, StoreError> {
        let path = self.path(body);
        let content = fs::read(&path).map_err(StoreError::io("read", &path))?;
        if sha256_hex(&content) != body.sha256 {
            return Err(StoreError::DamagedBody { path });
        }
        String::from_utf8(content).map_err(|_| StoreError::DamagedBody { path })
    }

    /// Removes the bodies that are not among these. Returns how many. What the store has not put there stays.
    pub(super) fn sweep(&self, named: &HashSet<String>) -> Result<usize, StoreError> {
        let listed = match fs::read_dir(&self.folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(StoreError::io("list", &self.folder)(error)),
        };
        let mut removed = 0;
        for file in listed {
            let file = file.map_err(StoreError::io("list", &self.folder))?;
            let name = file.file_name();
            let is_unnamed = name
                .to_str()
                .is_some_and(|name| is_body(name) && !named.contains(name));
            if !is_unnamed || file.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            fs::remove_file(file.path()).map_err(StoreError::io("remove", &file.path()))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn path(&self, body: &BodyRef) -> PathBuf {
        self.folder.join(&body.sha256)
    }
}

/// Whether a file's name is that of a body, or of one that is being written.
fn is_body(name: &str) -> bool {
    let digits = name.strip_suffix(".new").unwrap_or(name);
    digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Puts a file in place whole: temporary file beside it, sync, rename, folder sync.
pub(super) fn write_durably(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("new");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    if let Err(error) = written {
        // The half-written file is in nobody's way; what matters is the first error.
        fs::remove_file(&temporary).unwrap_or_default();
        return Err(StoreError::io("write", &temporary)(error));
    }
    rename_durably(&temporary, path)
}

/// Renames a file and syncs its folder, so that the name survives too.
pub(super) fn rename_durably(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(StoreError::io("rename", from))?;
    sync_folder_of(to)
}

/// Syncs the folder that a file is in.
pub(super) fn sync_folder_of(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|opened| opened.sync_all())
        .map_err(StoreError::io("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::in_folder(folder.path().join("bodies"));
        let first = bodies.put(b"\"a long prompt\"").unwrap();
        assert_eq!(bodies.put(b"\"a long prompt\"").unwrap(), first);
        assert_eq!(bodies.get(&first).unwrap(), "\"a long prompt\"");
        assert_eq!(fs::read_dir(folder.path().join("bodies")).unwrap().count(), 1);
    }

    #[test]
    fn a_body_that_was_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::in_folder(folder.path().to_owned());
        let body = bodies.put(b"one").unwrap();
        fs::write(folder.path().join(&body.sha256), b"two").unwrap();
        assert!(matches!(bodies.get(&body), Err(StoreError::DamagedBody { .. })));
        fs::remove_file(folder.path().join(&body.sha256)).unwrap();
        assert!(matches!(
            bodies.get(&body),
            Err(StoreError::Io { action: "read", .. })
        ));
    }

    #[test]
    fn only_what_nobody_names_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::in_folder(folder.path().join("bodies"));
        assert_eq!(
            bodies.sweep(&HashSet::new()).unwrap(),
            0,
            "no folder, nothing to do"
        );
        let kept = bodies.put(b"kept").unwrap();
        let dropped = bodies.put(b"dropped").unwrap();
        let half = folder.path().join("bodies").join(format!("{}.new", kept.sha256));
        fs::write(&half, "ke").unwrap();
        let strangers = ["notes", "stray/notes"].map(|name| folder.path().join("bodies").join(name));
        fs::create_dir(strangers[1].parent().unwrap()).unwrap();
        strangers.iter().for_each(|path| fs::write(path, "mine").unwrap());
        assert_eq!(bodies.sweep(&HashSet::from([kept.sha256.clone()])).unwrap(), 2);
        assert!(strangers.iter().all(|path| path.exists()) && !half.exists());
        assert!(bodies.get(&kept).is_ok());
        assert!(bodies.get(&dropped).is_err());
    }
}
