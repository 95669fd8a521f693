//! The folders that the daemon owns: private to its user, and without links to other files.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::files::misplaced::{self, Misplaced};
use crate::files::{durable, entries};
use crate::paths::names::{self, EntryKind};
use crate::paths::ownership::{self, CreateFolderError, Role};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be created, or another user owns it or can change it.
    #[error(transparent)]
    Claim(#[from] CreateFolderError),
    /// The system refused a step.
    #[error("cannot {what}")]
    Io {
        /// The step and the folder or entry.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// An entry of the data folder has the wrong kind.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
}

/// Checks that each entry of the data folder that the daemon uses is a file or a folder, not a link.
///
/// # Errors
/// [`FolderError::Misplaced`] for the first one that is not, or [`FolderError::Io`].
pub fn check_entries(data: &Path) -> Result<(), FolderError> {
    for (name, kind) in names::all_entries() {
        check_entry(&data.join(name), kind)?;
    }
    // The database opens its files itself, and would follow a link or wait at a pipe.
    let store = data.join(names::STORE);
    let in_store =
        entries(&store).map_err(|source| io_error(format!("inspect {}", store.display()), source))?;
    for path in in_store {
        let kind = match path.is_dir() {
            true => EntryKind::Folder,
            false => EntryKind::File,
        };
        check_entry(&path, kind).map_err(|error| match error {
            // Within that folder it would be found again.
            FolderError::Misplaced(misplaced) => misplaced.with_suggested_folder(data).into(),
            error => error,
        })?;
    }
    Ok(())
}

fn check_entry(path: &Path, kind: EntryKind) -> Result<(), FolderError> {
    match misplaced::find(path, kind) {
        Ok(None) => Ok(()),
        Ok(Some(misplaced)) => Err(misplaced.into()),
        Err(source) => Err(io_error(format!("inspect {}", path.display()), source)),
    }
}

fn io_error(what: String, source: io::Error) -> FolderError {
    FolderError::Io { what, source }
}

/// Creates a private folder and its missing parents. An existing folder must belong to this user, and is made
/// private. Syncs all their names.
///
/// # Errors
/// [`FolderError`].
pub fn create_private(role: Role, path: &Path) -> Result<(), FolderError> {
    ownership::create_and_check(role, path)?;
    let close = || -> io::Result<()> {
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    let folder = path.display();
    close().map_err(|source| io_error(format!("make the folder {folder} private"), source))?;
    durable::sync_names(path)
        .map_err(|source| io_error(format!("sync the name of the folder {folder}"), source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::durable::tests::Disk;

    /// Even if an earlier start was killed after it created one of them.
    #[test]
    fn a_private_folder_survives_with_its_parents() {
        let held = tempfile::tempdir().unwrap();
        let disk = Disk::of(held.path());
        std::fs::create_dir(held.path().join("a")).unwrap();
        for _start in 0..2 {
            create_private(Role::Data, &held.path().join("a/b/c")).unwrap();
            disk.check_lasts("a private folder");
        }
    }
}
