//! Creates the files of new sessions, for any format.
//!
//! Writes each file under a temporary name, syncs it, renames it if the final name is free, and syncs its folder. This
//! module also owns the temporary names. Blocks. It does not know why a file is created.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::locate;
use super::parts::own_folder;
use crate::files::durable::{self, NewFile, temporary_path, unfinished_path};
use crate::files::identity::same_content;
use crate::files::none_if_absent;

/// The suffix of a copy until it is complete, and of the folder next to it until all files in it are complete.
pub(super) const COPY: &str = "copy";
pub(super) const FILES: &str = "files";

/// Deletes the copy of this name, complete or not, with the files next to it. For a caller that was killed after it had
/// recorded the copy.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn remove_copy(transcript: &Path) -> Result<(), TranscriptError> {
    let copy = unfinished_path(folder_of(transcript), session_of(transcript), COPY);
    for file in [transcript, &copy] {
        none_if_absent(fs::remove_file(file)).map_err(TranscriptError::io("remove", file))?;
    }
    remove_unfinished_files(transcript)?;
    own_folder(transcript).map_or(Ok(()), |own| remove_folder(&own))
}

/// Deletes the unfinished side files of this transcript after a kill.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn remove_unfinished_files(transcript: &Path) -> Result<(), TranscriptError> {
    let unfinished = unfinished_path(folder_of(transcript), session_of(transcript), FILES);
    remove_folder(&unfinished)
}

fn remove_folder(folder: &Path) -> Result<(), TranscriptError> {
    let removed = none_if_absent(fs::remove_dir_all(folder));
    removed.map(drop).map_err(TranscriptError::io("remove", folder))
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

/// Creates a file that only its owner may read, complete or not at all, and never over an existing one. `fill` writes
/// its content. The folder must exist.
///
/// # Errors
/// As [`create_in`], and the errors of `fill`.
pub fn create<E: From<TranscriptError>>(
    target: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    create_first(target.to_owned(), std::iter::empty(), fill).map(drop)
}

/// As [`create`], with the first of several names in one folder that is free when the file is complete. Returns that path.
///
/// # Errors
/// As [`create`].
pub fn create_first<E: From<TranscriptError>>(
    first: PathBuf,
    others: impl IntoIterator<Item = PathBuf>,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let (temporary, ()) = fill_temporary(&temporary_path(&first), fill)?;
    let (mut target, mut others) = (first, others.into_iter());
    loop {
        let error = match rename_to_final(&temporary, &target) {
            Ok(()) => return Ok(target),
            Err(error) => error,
        };
        let is_taken = matches!(error, TranscriptError::AlreadyExists { .. });
        target = others.next().filter(|_| is_taken).ok_or(error)?;
    }
}

/// Whether `target` exists with the same content as the written file; `false` if it does not exist.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if its content differs, and [`TranscriptError::Io`].
pub fn target_has_same_content(written: &Temporary, target: &Path) -> Result<bool, TranscriptError> {
    if target.symlink_metadata().is_err() {
        return Ok(false);
    }
    match same_content(&written.0, target).map_err(TranscriptError::io("read", target))? {
        true => Ok(true),
        false => Err(TranscriptError::AlreadyExists {
            path: target.to_owned(),
        }),
    }
}

/// Writes the transcript of a new session into a folder, which must exist. Until it is complete its name contains `what`.
///
/// # Errors
/// [`TranscriptError::InvalidId`], [`TranscriptError::AlreadyExists`], [`TranscriptError::Io`], and the errors of `fill`.
pub fn create_in(
    folder: &Path,
    new_id: &str,
    what: &str,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), TranscriptError>,
) -> Result<PathBuf, TranscriptError> {
    let target = folder.join(locate::file_name(new_id)?);
    if target.symlink_metadata().is_ok() {
        return Err(TranscriptError::AlreadyExists { path: target });
    }
    let (temporary, ()) = fill_temporary(&unfinished_path(folder, new_id, what), fill)?;
    rename_to_final(&temporary, &target)?;
    Ok(target)
}

/// Writes a temporary file, which no reader looks for, and syncs it. Returns the result of `fill`.
///
/// # Errors
/// [`TranscriptError::Io`], and the errors of `fill`.
pub fn fill_temporary<T, E: From<TranscriptError>>(
    place: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<(Temporary, T), E> {
    let temporary = Temporary(place.to_owned());
    // The errors name the folder: the user does not know the temporary name.
    let folder = folder_of(place);
    let file = NewFile::create(&temporary.0);
    let mut file = file.map_err(TranscriptError::io("create a file in", folder))?;
    let said = fill(&mut file)?;
    file.flush()
        .map_err(TranscriptError::io("write a file in", folder))?;
    file.sync()
        .map_err(TranscriptError::io("sync a file in", folder))?;
    Ok((temporary, said))
}

/// Renames a complete file to its final name, if that is free.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if the name is taken, [`TranscriptError::Io`] otherwise.
pub fn rename_to_final(temporary: &Temporary, target: &Path) -> Result<(), TranscriptError> {
    rename_if_free(&temporary.0, target)?;
    let folder = folder_of(target);
    durable::sync_folder(folder).map_err(|error| {
        // The caller may retry after this failure, and would find the name taken.
        if let Err(error) = fs::remove_file(target) {
            tracing::warn!(path = %target.display(), %error, "a file that may not last could not be removed");
        }
        TranscriptError::io("sync the folder", folder)(error)
    })
}

/// The id of the session with this transcript, from the file name.
pub(super) fn session_of(source: &Path) -> &str {
    let stem = source.file_stem().and_then(|stem| stem.to_str());
    stem.unwrap_or_default()
}

/// Creates a folder for transcripts if it is missing, without access for other users, as the agents do.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn make_folder(folder: &Path) -> Result<(), TranscriptError> {
    durable::make_folders(folder).map_err(TranscriptError::io("make the folder", folder))
}

/// Syncs the entries of a folder.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn sync_folder(folder: &Path) -> Result<(), TranscriptError> {
    durable::sync_folder(folder).map_err(TranscriptError::io("sync the folder", folder))
}

/// Renames a file if the new name is free. On some file systems the file has both names until the temporary one is removed.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if the name is taken, [`TranscriptError::Io`] otherwise.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> Result<(), TranscriptError> {
    durable::rename_if_free(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => TranscriptError::AlreadyExists { path: to.to_owned() },
        _ => TranscriptError::io("create", to)(error),
    })
}

/// A temporary file, which is deleted on drop unless it was renamed.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = none_if_absent(fs::remove_file(&self.0)) {
            tracing::warn!(path = %self.0.display(), %error, "could not delete a temporary file");
        }
    }
}

#[cfg(test)]
mod tests;
