//! The folders that the daemon owns: private to its user, and without links to the files of others.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::conversation::{importing, keeping, trees, uncommitted_copies};
use crate::paths::ownership::{self, ClaimError, Role};
use crate::transcript::moving;

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
    /// An entry of the data folder cannot be looked at.
    #[error("cannot look at {}", path.display())]
    Look {
        /// The entry.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// An entry of the data folder is not what the daemon makes under this name. If it followed a link there, it would read, write
    /// and delete files that it does not own.
    #[error("{} is {found}, but sessiond needs {needed} there", path.display())]
    Misplaced {
        /// The entry.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What the daemon makes there.
        needed: &'static str,
    },
}

const FOLDER: &str = "a folder";
const FILE: &str = "a file";

/// The entries of the data folder that the daemon makes, each of which may be missing.
const ENTRIES: [(&str, &str); 18] = [
    ("sessiond.lock", FILE),
    ("instance", FILE),
    ("journal.jsonl", FILE),
    ("journal.new", FILE),
    ("last-used.json", FILE),
    ("exports", FOLDER),
    ("store", FOLDER),
    ("store.next", FOLDER),
    ("store.trust", FILE),
    ("store.report", FILE),
    ("bodies", FOLDER),
    ("loopback", FOLDER),
    (keeping::FOLDER, FOLDER),
    ("kept/unreported", FOLDER),
    (uncommitted_copies::KIND.folder, FOLDER),
    (importing::KIND.folder, FOLDER),
    (trees::KIND.folder, FOLDER),
    (moving::journal::KIND.folder, FOLDER),
];

/// Checks that each entry of the data folder that the daemon uses is a file or a folder of its own, not a link.
///
/// # Errors
/// [`FolderError::Misplaced`] for the first one that is not, and [`FolderError::Look`].
pub fn check_entries(data: &Path) -> Result<(), FolderError> {
    for (name, needed) in ENTRIES {
        let path = data.join(name);
        let found = match std::fs::symlink_metadata(&path) {
            Ok(metadata) => described(metadata.file_type()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(FolderError::Look { path, source }),
        };
        if found != needed {
            return Err(FolderError::Misplaced { path, found, needed });
        }
    }
    Ok(())
}

fn described(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => FOLDER,
        _ if kind.is_file() => FILE,
        _ if kind.is_symlink() => "a symbolic link",
        _ => "neither a file nor a folder",
    }
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
