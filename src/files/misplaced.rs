//! Finds entries of the daemon's own folders that have the wrong kind, such as links. By following a link, the daemon
//! would read, write and delete files that it does not own. This module changes nothing; it returns a hint for the
//! user. Blocks.

use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

use super::is_absence;
use crate::paths::names::EntryKind;
use crate::paths::shell_word;

/// An entry of the wrong kind in the daemon's folders.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is {actual_kind}, but sessiond needs {} there", path.display(), describe_kind(*needed_kind))]
pub struct Misplaced {
    /// The entry.
    pub path: PathBuf,
    /// Its actual kind.
    actual_kind: &'static str,
    /// The kind that the daemon needs.
    needed_kind: EntryKind,
    /// The folder to suggest for moving it away.
    suggested_folder: PathBuf,
}

impl Misplaced {
    /// Sets the folder that the hint suggests. Required if the daemon would find the entry again in its current folder.
    #[must_use]
    pub(crate) fn with_suggested_folder(self, folder: &Path) -> Self {
        let to = folder.to_owned();
        Self {
            suggested_folder: to,
            ..self
        }
    }

    /// Returns what to do, with a command that can be pasted. `then` is the next step for the user.
    #[must_use]
    pub fn hint(&self, then: &str) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // `mv -n` would move nothing to a name that is taken.
        let endings = std::iter::once(String::new()).chain((2..).map(|number: u64| format!("-{number}")));
        let aside = endings
            .map(|ending| self.suggested_folder.join(format!("{name}.moved-away{ending}")))
            .find(|aside| aside.symlink_metadata().is_err())
            .unwrap_or_default();
        format!(
            "nothing was changed; replace a link with its target, or move it away{then}: mv -n {} {}",
            shell_word(&self.path.to_string_lossy()),
            shell_word(&aside.to_string_lossy())
        )
    }
}

/// Checks whether an entry has the needed kind. It may be missing.
///
/// # Errors
/// The system's error if it cannot be inspected.
pub(crate) fn find(path: &Path, needed: EntryKind) -> io::Result<Option<Misplaced>> {
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_needed = match needed {
        EntryKind::File => file_type.is_file(),
        EntryKind::Folder => file_type.is_dir(),
    };
    Ok((!is_needed).then(|| Misplaced {
        path: path.to_owned(),
        actual_kind: describe_file_type(file_type),
        needed_kind: needed,
        suggested_folder: path.parent().unwrap_or(path).to_owned(),
    }))
}

fn describe_file_type(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => describe_kind(EntryKind::Folder),
        _ if kind.is_file() => describe_kind(EntryKind::File),
        _ if kind.is_symlink() => "a symbolic link",
        _ => "neither a file nor a folder",
    }
}

const fn describe_kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "a file",
        EntryKind::Folder => "a folder",
    }
}
