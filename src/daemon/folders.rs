//! The folders that the daemon owns: private to its user.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
}

/// Makes a folder that only its owner may enter, with those above it. An existing folder must be this user's, and is
/// closed to others.
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
    })
}
