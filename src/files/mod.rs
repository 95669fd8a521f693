//! Operations on files and folders, independent of their content: durable writes, and handling of unreadable files.
//!
//! Does not know transcripts, agents or conversations. Everything here blocks.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;

pub(crate) mod checked_lines;
pub(crate) mod digest;
pub(crate) mod durable;
pub(crate) mod identity;
pub(crate) mod intent;
pub(crate) mod misplaced;
pub(crate) mod set_aside;

/// The longest file name on common file systems, in bytes.
pub(crate) const FILE_NAME_LIMIT_BYTES: usize = 255;

/// How many bytes of a file are read at once.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// Whether an error means that the path does not exist. Dangling and circular links count as missing. Any other error
/// leaves open whether the path exists.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    let is_circle = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_circle
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
}

/// Turns an error for a missing path into `None`.
///
/// # Errors
/// Any other error of the call.
pub(crate) fn none_if_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the sorted paths of a folder's entries; empty if the folder does not exist.
///
/// # Errors
/// The system's error if the folder cannot be listed.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = none_if_absent(fs::read_dir(folder))?.into_iter().flatten();
    let paths = paths.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Opens a regular file for reading. Does not wait for a named pipe, which may never open.
///
/// # Errors
/// The system's error, and [`io::ErrorKind::InvalidInput`] for anything but a regular file or a link to one.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    open_with_metadata(path).map(|(file, _)| file)
}

/// As [`open_file`], but also returns the metadata of the open file.
///
/// # Errors
/// As [`open_file`].
pub(crate) fn open_with_metadata(path: &Path) -> io::Result<(File, Metadata)> {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
    }
}

/// Reads a whole regular file.
///
/// # Errors
/// As [`open_file`].
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether an error means that the process or the system is short of a resource: disk space, memory or open files. A later try
/// may succeed.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
    ];
    has_errno(error, &shortages)
}

/// Whether an error may be temporary and does not depend on the file itself: a shortage, or a failing disk or mount.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let failures = [
        Errno::IO,
        Errno::STALE,
        Errno::NOTCONN,
        Errno::TIMEDOUT,
        Errno::AGAIN,
    ];
    is_shortage(error) || has_errno(error, &failures)
}

/// Whether an error has one of these numbers.
pub(crate) fn has_errno(error: &io::Error, all: &[rustix::io::Errno]) -> bool {
    all.iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Refuses a path that passes through a symbolic link below `folder`, because a write would go elsewhere. `folder` is a
/// parent of the path.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if one of the folders in between is a link; the system's error.
pub(crate) fn refuse_links_below(folder: &Path, path: &Path) -> io::Result<()> {
    debug_assert!(
        path.starts_with(folder),
        "{} is not below {}",
        path.display(),
        folder.display()
    );
    let between = path
        .ancestors()
        .skip(1)
        .take_while(|ancestor| *ancestor != folder);
    for ancestor in between {
        match ancestor.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                let why = format!("{} is a link, and links are not followed", ancestor.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            Err(error) if !is_absence(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a file contains these bytes, which must be far fewer than [`BUFFER_BYTES`].
///
/// # Errors
/// The system's error.
pub(crate) fn file_contains(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let finder = Finder::new(bytes);
    let mut file = open_file(path)?;
    let (mut buffer, mut overlap) = (vec![0; BUFFER_BYTES], 0);
    loop {
        let read = file.read(&mut buffer[overlap..])?;
        let end = overlap + read;
        if finder.find(&buffer[..end]).is_some() {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The bytes may span two reads.
        overlap = end.min(bytes.len() - 1);
        buffer.copy_within(end - overlap..end, 0);
    }
}
