//! Files and names that outlast a loss of power.
//!
//! Owns the steps by which a file comes to be: written where nobody looks for it, synced, named, and its folder synced, so
//! that no name ever leads to half a file. Whoever writes something that is to last does it here, and nowhere by hand
//! (`tests/tidy`), so that tests see the order of all steps. Blocks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;
use uuid::Uuid;

/// How much is written at once, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The name beside `target` under which a file is written before it gets that name. It is another each time.
pub(crate) fn temporary_beside(target: &Path) -> PathBuf {
    target.with_file_name(format!(".{}.tmp", Uuid::new_v4()))
}

/// The name under which a file or a folder is written before it gets its own. It is the same each time, so that whoever knows
/// whose it is finds what a kill has left.
pub(crate) fn unfinished(folder: &Path, owner: &str, what: &str) -> PathBuf {
    folder.join(format!(".{owner}.{what}.tmp"))
}

/// A file that is written under a name by which nobody looks for it. Only its owner may read it.
pub(crate) struct NewFile {
    path: PathBuf,
    writer: BufWriter<File>,
}

impl NewFile {
    /// Begins a file where there is none.
    ///
    /// # Errors
    /// What the system answers.
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

    /// Begins a file in the place of one that a kill may have left there. A link in its place is removed, not followed.
    ///
    /// # Errors
    /// What the system answers.
    pub(crate) fn anew(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Self::create(path),
        }
    }
    /// For its times and permissions. What was written last may not be in it before a flush.
    pub(crate) fn file(&self) -> &File {
        self.writer.get_ref()
    }

    /// Ends it: all of it is on disk, under the name that it has.
    ///
    /// # Errors
    /// What the system answers.
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

/// Puts a file in its place whole, also in the place of another one. It has its name on disk.
///
/// # Errors
/// What the system answers; the file is as it was before then.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let written = NewFile::anew(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync()
    });
    if written.is_err() {
        // What matters is the first error.
        fs::remove_file(&temporary).unwrap_or_default();
    }
    written?;
    rename(&temporary, path)?;
    sync_folder_of(path)
}

/// Syncs the names in the folder that a file is in.
///
/// # Errors
/// What the system answers.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or(Path::new(".")))
}

/// Syncs what was written to a file, which has this path.
///
/// # Errors
/// What the system answers.
pub(crate) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    seen(file.sync_all(), Step::File(path))
}

/// Syncs the names in a folder.
///
/// # Errors
/// What the system answers.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    sync_open_folder(&File::open(path)?, path)
}

/// Syncs the names in a folder that is open, which has this path.
///
/// # Errors
/// What the system answers.
pub(crate) fn sync_open_folder(folder: &File, path: &Path) -> io::Result<()> {
    seen(folder.sync_all(), Step::Folder(path))
}

/// The folders that have to be made for one to be there, the outermost first.
pub(crate) fn missing_folders(folder: &Path) -> Vec<&Path> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let mut missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    missing.reverse();
    missing
}

/// Makes a folder into which nobody else may look, with those above it. Each has its name on disk before the next one is made, so
/// after a kill at most the innermost folder that exists lacks that: its name is synced too.
///
/// # Errors
/// What the system answers.
pub(crate) fn make_folders(folder: &Path) -> io::Result<()> {
    let missing = missing_folders(folder);
    let there = missing.first().map_or(Some(folder), |first| first.parent());
    if let Some(there) = there.filter(|there| may_have_made(there)) {
        sync_folder_of(there)?;
    }
    for folder in missing {
        match DirBuilder::new().mode(0o700).create(folder) {
            // Another thread made it.
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

/// Syncs the name of a folder that exists, and of those above it that this user may have made.
///
/// # Errors
/// What the system answers.
pub(crate) fn sync_names(folder: &Path) -> io::Result<()> {
    let mut made = folder.ancestors().take_while(|folder| may_have_made(folder));
    made.try_for_each(sync_folder_of)
}

/// Whether this user can make folders beside this one. A home or a mount point may be in a folder that cannot be synced.
fn may_have_made(folder: &Path) -> bool {
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    above.is_some_and(|above| access(above, Access::WRITE_OK).is_ok())
}

/// Gives a file or a folder another name, also in the place of another file.
///
/// # Errors
/// What the system answers.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    before(from, to);
    fs::rename(from, to)
}

/// The same where the name is free. Where the file system cannot do that at once, the file has both names.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when it is not free, and what else the system answers.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    before(from, to);
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A hard link is as careful.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::hard_link(from, to),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file a second name, where that is free.
///
/// # Errors
/// What the system answers.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    before(from, to);
    fs::hard_link(from, to)
}

/// What was synced.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
enum Step<'a> {
    File(&'a Path),
    Folder(&'a Path),
}

/// Tells tests of a sync, with what the system answered to it.
fn seen(synced: io::Result<()>, step: Step<'_>) -> io::Result<()> {
    #[cfg(test)]
    if synced.is_ok() {
        tests::synced(step);
    }
    #[cfg(not(test))]
    let _ = step;
    synced
}

/// Tells tests of a name that is about to be given.
fn before(from: &Path, to: &Path) {
    #[cfg(test)]
    tests::named(from, to);
    #[cfg(not(test))]
    let _ = (from, to);
}

#[cfg(test)]
pub(crate) mod tests;
