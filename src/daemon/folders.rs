//! The folders that the daemon owns: private to its user, and without links to other files.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::failure::StartError;
use crate::files::misplaced;
use crate::files::{durable, entries};
use crate::paths::names::{self, EntryKind};
use crate::paths::ownership::{self, Role};

/// Checks that each entry of the data folder that the daemon uses is a file or a folder, not a link.
///
/// # Errors
/// [`StartError::Misplaced`] for the first one that is not, or [`StartError::Io`].
pub(super) fn check_entries(data: &Path) -> Result<(), StartError> {
    for (name, kind) in names::all_entries() {
        check_entry(&data.join(name), kind)?;
    }
    // The database opens its files itself, and would follow a link or wait at a pipe.
    let store = data.join(names::STORE);
    for path in entries(&store).map_err(StartError::io(format!("cannot inspect {}", store.display())))? {
        let kind = match path.is_dir() {
            true => EntryKind::Folder,
            false => EntryKind::File,
        };
        check_entry(&path, kind).map_err(|error| match error {
            // Within that folder it would be found again.
            StartError::Misplaced(misplaced) => misplaced.with_suggested_folder(data).into(),
            error => error,
        })?;
    }
    Ok(())
}

fn check_entry(path: &Path, kind: EntryKind) -> Result<(), StartError> {
    let found = misplaced::find(path, kind);
    match found.map_err(StartError::io(format!("cannot inspect {}", path.display())))? {
        None => Ok(()),
        Some(misplaced) => Err(misplaced.into()),
    }
}

/// Creates a private folder and its missing parents. An existing folder must belong to this user, and is made
/// private. Syncs all their names.
///
/// # Errors
/// [`StartError::CreateFolder`], [`StartError::Io`].
pub(super) fn create_private(role: Role, path: &Path) -> Result<(), StartError> {
    ownership::create_and_check(role, path)?;
    let close = || -> io::Result<()> {
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    let folder = path.display();
    close().map_err(StartError::io(format!("cannot make the folder {folder} private")))?;
    let synced = durable::sync_names(path);
    synced.map_err(StartError::io(format!(
        "cannot sync the name of the folder {folder}"
    )))
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
