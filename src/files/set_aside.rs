//! Sets aside files that the daemon cannot use: they are renamed and reported, but never deleted.
//!
//! This module owns the names. The new name is `NAME.set-aside-N`, with a long name truncated. The daemon can reuse
//! the old name and no longer reads the file, but the user can find it. A file of a newer version stays where that
//! version expects it. Blocks.

use std::io;
use std::path::{Path, PathBuf};

use super::{FILE_NAME_LIMIT_BYTES, durable, entries, none_if_absent};

/// The text between the old name and the number.
const SET_ASIDE_INFIX: &str = ".set-aside-";

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Its content is invalid or inconsistent.
    #[error("{0}")]
    Damaged(String),
    /// It describes files that may be deleted only if no conversation owns them, which is unknown.
    #[error("the store lost changes, so it is unknown whether a conversation owns the files")]
    OwnerUnknown,
    /// It describes a copy without a conversation, and the file may have been used since it was written.
    #[error("no conversation owns the copy, but its file may have been used since it was written")]
    CopyChanged,
    /// It contains the originals of a recorded move, and some of them may not be at their destinations.
    #[error("the files of a finished move are not known to be where they went, so its originals are kept")]
    OriginalsDiffer,
    /// A newer version of the program wrote it.
    #[error(
        "a newer version of sessiond wrote it, in format {version}; this version reads formats up to {newest}"
    )]
    Newer {
        /// The file's format.
        version: u64,
        /// The newest format that this program reads.
        newest: u64,
    },
}

/// Sets a file or folder aside and logs that. Returns its new path.
///
/// # Errors
/// The system's error if it cannot be renamed. It keeps its name then.
pub(crate) fn set_aside(path: &Path, why: &Unreadable) -> io::Result<PathBuf> {
    if matches!(why, Unreadable::Newer { .. }) {
        tracing::error!(path = %path.display(), %why, "cannot use a file; leaving it for the version that wrote it");
        return Ok(path.to_owned());
    }
    let renamed = rename(path);
    match &renamed {
        Ok(aside) => tracing::error!(
            path = %path.display(), aside = %aside.display(), %why,
            "set aside an unusable file; nothing was deleted"
        ),
        Err(error) => tracing::error!(
            path = %path.display(), %why, %error,
            "cannot set aside an unusable file; leaving it where it is"
        ),
    }
    renamed
}

/// Returns the first free name for a file that is set aside.
///
/// # Errors
/// The system's error if a name cannot be looked up.
pub(crate) fn free_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 1_u64;
    loop {
        let ending = format!("{SET_ASIDE_INFIX}{number}");
        let mut end = name.len().min(FILE_NAME_LIMIT_BYTES - ending.len());
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let aside = path.with_file_name(format!("{}{ending}", &name[..end]));
        if none_if_absent(aside.symlink_metadata())?.is_none() {
            return Ok(aside);
        }
        number += 1;
    }
}

fn rename(path: &Path) -> io::Result<PathBuf> {
    let aside = free_name(path)?;
    // No other program uses such names, so this one is still free.
    durable::rename(path, &aside)?;
    if let Some(folder) = aside.parent() {
        durable::sync_folder(folder)?;
    }
    Ok(aside)
}

/// Whether this is the path of a set-aside file.
pub(crate) fn is_set_aside(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = name
        .and_then(|name| name.rsplit_once(SET_ASIDE_INFIX))
        .map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Returns the set-aside files in a folder, sorted by name; empty if the folder does not exist.
///
/// # Errors
/// The system's error if the folder cannot be listed.
pub(crate) fn set_aside_files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = entries(folder)?;
    found.retain(|path| is_set_aside(path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn damaged() -> Unreadable {
        Unreadable::Damaged("garbage".to_owned())
    }

    #[test]
    fn each_set_aside_file_has_its_own_name_and_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for text in ["one", "two"] {
            fs::write(&path, text).unwrap();
            let aside = set_aside(&path, &damaged()).unwrap();
            assert!(!path.exists() && is_set_aside(&aside));
            assert_eq!(fs::read_to_string(aside).unwrap(), text);
        }
        fs::create_dir(&path).unwrap();
        set_aside(&path, &damaged()).unwrap();
        fs::write(folder.path().join("other"), "").unwrap();
        let found = set_aside_files_in(folder.path()).unwrap();
        let expected = [1, 2, 3].map(|number| folder.path().join(format!("journal.set-aside-{number}")));
        assert_eq!(found, expected);
        assert_eq!(set_aside_files_in(&path).unwrap(), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_long_name_is_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{}.mark", "ü".repeat(125)));
        for text in ["one", "two"] {
            fs::write(&path, text).unwrap();
            let aside = set_aside(&path, &damaged()).unwrap();
            assert!(!path.exists() && is_set_aside(&aside));
            assert_eq!(fs::read_to_string(aside).unwrap(), text);
        }
    }

    #[test]
    fn a_file_of_a_newer_version_stays_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        fs::write(&path, "text").unwrap();
        let newer = Unreadable::Newer {
            version: 2,
            newest: 1,
        };
        assert_eq!(set_aside(&path, &newer).unwrap(), path);
        assert!(path.exists() && !is_set_aside(&path));
    }

    #[test]
    fn set_aside_names_end_with_a_number() {
        for (name, expected) in [
            ("a.set-aside-1", true),
            ("a.set-aside-12", true),
            ("a.set-aside-", false),
            ("a.set-aside-x", false),
            ("set-aside-1", false),
            ("a", false),
        ] {
            assert_eq!(is_set_aside(Path::new(name)), expected, "{name}");
        }
    }
}
