//! The folders that the daemon owns: private to its user, and without links to the files of others.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::files::durable;
use crate::files::misplaced::{self, Misplaced};
use crate::paths::names;
use crate::paths::ownership::{self, ClaimError, Role};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be made, or another user owns it or can change it.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its permissions cannot be read or changed.
    #[error("cannot close the folder {} to other users", path.display())]
    Close {
        /// The folder.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// Its name, or that of a folder above it, cannot be synced.
    #[error("cannot sync the name of the folder {}", path.display())]
    Sync {
        /// The folder.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// An entry of the data folder cannot be looked at.
    #[error("cannot look at {}", path.display())]
    Look {
        /// The entry.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// An entry of the data folder is not what the daemon makes under this name.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
}

/// Checks that each entry of the data folder that the daemon uses is a file or a folder of its own, not a link.
///
/// # Errors
/// [`FolderError::Misplaced`] for the first one that is not, and [`FolderError::Look`].
pub fn check_entries(data: &Path) -> Result<(), FolderError> {
    for (name, kind) in names::all() {
        let path = data.join(name);
        match misplaced::find(&path, kind) {
            Ok(None) => {}
            Ok(Some(misplaced)) => return Err(misplaced.into()),
            Err(source) => return Err(FolderError::Look { path, source }),
        }
    }
    Ok(())
}

/// Makes a folder that only its owner may enter, with those above it. An existing folder must be this user's, and is
/// closed to others. All of them have their names on disk.
///
/// # Errors
/// [`FolderError`].
pub fn private(role: Role, path: &Path) -> Result<(), FolderError> {
    ownership::claim(role, path)?;
    let close = || -> io::Result<()> {
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    close().map_err(|source| FolderError::Close {
        path: path.to_path_buf(),
        source,
    })?;
    durable::sync_names(path).map_err(|source| FolderError::Sync {
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::durable::tests::Disk;

    /// Also if an earlier start was killed after it made one of them.
    #[test]
    fn a_private_folder_lasts_with_those_above_it() {
        let held = tempfile::tempdir().unwrap();
        let disk = Disk::of(held.path());
        std::fs::create_dir(held.path().join("a")).unwrap();
        for _start in 0..2 {
            private(Role::Data, &held.path().join("a/b/c")).unwrap();
            disk.check_lasts("a private folder");
        }
    }
}
