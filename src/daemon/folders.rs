//! The folders that the daemon owns: private to its user.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It could not be made or read.
    #[error("cannot {action} the folder {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
}

/// Makes a folder that only its owner may enter, with those above it; one that exists is closed to others.
///
/// # Errors
/// [`FolderError`].
pub fn private(path: &Path) -> Result<(), FolderError> {
    let io = |action: &'static str| {
        let path = path.to_path_buf();
        move |source| FolderError::Io { action, path, source }
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io("make"))?;
    let metadata = std::fs::metadata(path).map_err(io("read"))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(io("close"))?;
    }
    Ok(())
}
