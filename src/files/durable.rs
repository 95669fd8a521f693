//! Files and names that survive a power failure.
//!
//! This module owns the steps that create a file: write it under a temporary name, sync it, rename it, sync its
//! folder. So no name ever refers to half a file. All code that writes lasting files uses this module (`tests/tidy`
//! checks that), so that tests see the order of all steps. Blocks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;
use uuid::Uuid;

use super::none_if_absent;

/// How many bytes are written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Returns a temporary name in the folder of `target`, different in each call.
pub(crate) fn temporary_path(target: &Path) -> PathBuf {
    target.with_file_name(format!(".{}.tmp", Uuid::new_v4()))
}

/// Returns a temporary name in `folder`, the same in each call, so that a later start can find and delete what a kill
/// left.
pub(crate) fn unfinished_path(folder: &Path, owner: &str, what: &str) -> PathBuf {
    folder.join(format!(".{owner}.{what}.tmp"))
}

/// A file under a temporary name. Only its owner may read it.
pub(crate) struct NewFile {
    path: PathBuf,
    writer: BufWriter<File>,
}

impl NewFile {
    /// Creates a file. Fails if it exists.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            writer: BufWriter::with_capacity(BUFFER_BYTES, file),
        })
    }

    /// Creates a file. Replaces one that a kill may have left; a link is removed, not followed.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn create_or_replace(path: &Path) -> io::Result<Self> {
        none_if_absent(fs::remove_file(path))?;
        Self::create(path)
    }
    /// Returns the file, for its times and permissions. The last writes may be missing before a flush.
    pub(crate) fn file(&self) -> &File {
        self.writer.get_ref()
    }

    /// Flushes and syncs the file under its current name.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn sync(mut self) -> io::Result<()> {
        self.writer.flush()?;
        sync_file(self.file(), &self.path)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Writes a whole file, and replaces an existing one. Syncs the file and its name.
///
/// # Errors
/// The system's error. The file is unchanged then.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let usual = path.with_extension("new");
    // Do not touch a folder at this path: the daemon did not create it.
    let is_folder = fs::symlink_metadata(&usual).is_ok_and(|found| found.is_dir());
    let temporary = if is_folder { temporary_path(path) } else { usual };
    write_as(&temporary, path, content)
}

/// As [`write`], with this temporary name, which is the same in each call.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_as(temporary: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let written = NewFile::create_or_replace(temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync()
    });
    if written.is_err() {
        // Return the first error.
        fs::remove_file(temporary).unwrap_or_default();
    }
    written?;
    rename(temporary, path)?;
    sync_folder_of(path)
}

/// Syncs the names in the folder that contains the file.
///
/// # Errors
/// The system's error.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or(Path::new(".")))
}

/// Syncs the content of the file at this path.
///
/// # Errors
/// The system's error.
pub(crate) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    report_sync(file.sync_all(), SyncStep::File(path))
}

/// Syncs the names in a folder.
///
/// # Errors
/// The system's error.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    sync_open_folder(&File::open(path)?, path)
}

/// Syncs the names in an open folder at this path.
///
/// # Errors
/// The system's error.
pub(crate) fn sync_open_folder(folder: &File, path: &Path) -> io::Result<()> {
    report_sync(folder.sync_all(), SyncStep::Folder(path))
}

/// Returns the folders that must be created for this one to exist, the outermost first.
pub(crate) fn missing_folders(folder: &Path) -> Vec<&Path> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let mut missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    missing.reverse();
    missing
}

/// Creates a folder and its missing parents, accessible only to this user. Each name is synced before the next folder
/// is created, so after a kill at most the innermost existing folder has an unsynced name. That one is synced too.
///
/// # Errors
/// The system's error.
pub(crate) fn make_folders(folder: &Path) -> io::Result<()> {
    let missing = missing_folders(folder);
    let existing = missing.first().map_or(Some(folder), |first| first.parent());
    if let Some(existing) = existing.filter(|existing| can_create_beside(existing)) {
        sync_folder_of(existing)?;
    }
    for folder in missing {
        match DirBuilder::new().mode(0o700).create(folder) {
            // Another thread created it.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => {
                return Err(error);
            }
            _ => sync_folder_of(folder)?,
        }
    }
    match folder.is_dir() {
        true => Ok(()),
        false => Err(rustix::io::Errno::EXIST.into()),
    }
}

/// Syncs the name of an existing folder, and those of its parents that this user may have created.
///
/// # Errors
/// The system's error.
pub(crate) fn sync_names(folder: &Path) -> io::Result<()> {
    let mut made = folder.ancestors().take_while(|folder| can_create_beside(folder));
    made.try_for_each(sync_folder_of)
}

/// Whether this user can create folders next to this one. The parent of a home or a mount point may not be syncable.
fn can_create_beside(folder: &Path) -> bool {
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    above.is_some_and(|above| access(above, Access::WRITE_OK).is_ok())
}

/// Renames a file or a folder, and replaces an existing file.
///
/// # Errors
/// The system's error.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    report_rename(from, to);
    fs::rename(from, to)
}

/// Renames a file if the new name is free. If the file system cannot do that in one step, this creates a hard link and
/// the file has both names.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if the name is taken, or the system's error.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    report_rename(from, to);
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A hard link fails too if the name is taken.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::hard_link(from, to),
        Err(error) => Err(error.into()),
    }
}

/// Creates a hard link, if the name is free.
///
/// # Errors
/// The system's error.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    report_rename(from, to);
    fs::hard_link(from, to)
}

/// A completed sync.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "read by tests"))]
enum SyncStep<'a> {
    File(&'a Path),
    Folder(&'a Path),
}

/// Reports a sync to the tests, with the system's result.
fn report_sync(synced: io::Result<()>, step: SyncStep<'_>) -> io::Result<()> {
    #[cfg(test)]
    if synced.is_ok() {
        tests::synced(step);
    }
    #[cfg(not(test))]
    let _ = step;
    synced
}

/// Reports a rename to the tests, before it happens.
fn report_rename(from: &Path, to: &Path) {
    #[cfg(test)]
    tests::named(from, to);
    #[cfg(not(test))]
    let _ = (from, to);
}

#[cfg(test)]
pub(crate) mod tests;
