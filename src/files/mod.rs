//! Files and folders, whatever they hold: how writes become durable, and what is done with a file that cannot be read.
//!
//! Knows no transcript, no agent and no conversation. Everything here blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) mod checked_lines;
pub(crate) mod durable;
pub(crate) mod misplaced;
pub(crate) mod set_aside;

/// The longest file name that common file systems take, in bytes.
pub(crate) const FILE_NAME_LIMIT_BYTES: usize = 255;

/// Whether an error says that the path leads to nothing. A link that leads nowhere or in a circle leads to nothing too; any other
/// error leaves open what is there.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    let is_circle = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_circle
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
}

/// The paths of a folder's entries, sorted; none if there is no such folder.
///
/// # Errors
/// The system's error if the folder cannot be listed.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
