//! Sets files of the store aside under numbered names. They are never deleted, except that an erasure deletes the
//! databases whose content is in the journal.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BROKEN_STORE, DAMAGED_JOURNAL, DAMAGED_STORE, UNREADABLE_REPORT, UNREFERENCED_BODIES};
use crate::files::durable;
use crate::paths::names;
use crate::store::body::{rename_durably, sync_folder_of};
use crate::store::error::StoreError;

/// Renames a file or folder, if it exists, to a free numbered name.
pub(super) fn set_aside(path: &Path, name: &str) -> Result<Option<PathBuf>, StoreError> {
    if !exists(path)? {
        return Ok(None);
    }
    let aside = free_name(path, name)?;
    rename_durably(path, &aside)?;
    Ok(Some(aside))
}

/// Copies the file to a free numbered name.
pub(in crate::store) fn copy_aside(path: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let aside = free_name(path, name)?;
    let copied = fs::copy(path, &aside)
        .and_then(|_| durable::sync_file(&fs::File::open(&aside)?, &aside))
        .map_err(StoreError::io("copy", path))
        .and_then(|()| sync_folder_of(&aside));
    if copied.is_err() {
        // Remove a partial copy: it is useless, and disk space may be short.
        let _left = fs::remove_file(&aside);
    }
    copied.map(|()| aside)
}

/// Returns a free name for a database that cannot be read now and may have content that the journal lacks.
///
/// # Errors
/// If the folder cannot be listed.
pub fn free_damaged_store(database: &Path) -> Result<PathBuf, StoreError> {
    free_name(database, DAMAGED_STORE)
}

/// Returns the name with the number after the highest in use, so that the numbers show the order.
pub(super) fn free_name(beside: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let highest = numbered(beside, name)?.last().map_or(0, |(number, _)| *number);
    Ok(beside.with_file_name(format!("{name}-{}", highest + 1)))
}

/// Returns the siblings of `beside` with this name and a number, in order.
fn numbered(sibling: &Path, name: &str) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let folder = sibling.parent().unwrap_or(sibling);
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut siblings: Vec<(u64, PathBuf)> = entries
        .map_err(StoreError::io("list", folder))?
        .into_iter()
        .filter_map(|entry| {
            let file_name = entry.file_name();
            let number = file_name.to_str()?.strip_prefix(name)?.strip_prefix('-')?;
            // No higher number could follow the highest.
            let number = number.parse().ok().filter(|number| *number < u64::MAX)?;
            Some((number, entry.path()))
        })
        .collect();
    siblings.sort();
    Ok(siblings)
}

/// Removes the set-aside databases whose content is all in the journal.
pub(in crate::store) fn remove_replaced(beside: &Path) -> Result<(), StoreError> {
    for (_, path) in numbered(beside, BROKEN_STORE)? {
        let removed = path.symlink_metadata().and_then(|found| match found.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        });
        removed.map_err(StoreError::io("remove", &path))?;
        sync_folder_of(&path)?;
    }
    Ok(())
}

/// Returns the set-aside files that may be the only copy of their content.
pub(in crate::store) fn damaged_files(beside: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut found = numbered(beside, DAMAGED_STORE)?;
    found.extend(numbered(beside, DAMAGED_JOURNAL)?);
    Ok(found)
}

/// Returns the set-aside files of a store.
///
/// # Errors
/// [`StoreError::Io`] if the folder cannot be listed.
pub fn set_aside_in(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let beside = folder.join(names::JOURNAL);
    let mut paths = Vec::new();
    for name in [
        BROKEN_STORE,
        DAMAGED_STORE,
        DAMAGED_JOURNAL,
        UNREFERENCED_BODIES,
        UNREADABLE_REPORT,
    ] {
        paths.extend(numbered(&beside, name)?.into_iter().map(|(_, path)| path));
    }
    Ok(paths)
}

/// Whether a path exists.
pub(super) fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}
