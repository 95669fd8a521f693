//! Copies of transcripts under new ids.
//!
//! Owns how a copy is made: streamed into a temporary file, synced, renamed only if the name is free, and the folder synced. An
//! exact copy includes the files beside its source. Its records differ in two things only: the token that holds the old id, and
//! the paths of tool results, which lead to the copy's own files. The source is only read. Blocks; does not know why a copy is
//! made.

use std::fs;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::claude::side_files::SideFiles;
use super::lines::{LINE_LIMIT_BYTES, text_of_same_length};
use super::locate;
use super::meter::Metered;
use super::parts::own_folder;
use super::rewrite::{EditableRecord, Edits, Rewriter, Verdict, token};
use crate::files::durable::{self, NewFile, temporary_beside, unfinished};
use crate::files::identity::same_content;
use crate::files::open_with_metadata;

/// What a copy is called until it is whole, and the folder beside it until all files in it are whole.
pub(super) const COPY: &str = "copy";
pub(super) const FILES: &str = "files";

/// How much is read at once, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Copies a whole transcript into `folder`, which is made when it is missing, with the files beside it and those of other sessions
/// that its records name. A torn last line is left out.
///
/// # Errors
/// [`TranscriptError::InvalidId`] for a new id that is no file name, [`TranscriptError::AlreadyExists`] when it is
/// taken, [`TranscriptError::Io`] otherwise. Nothing is left behind by a failure.
pub fn copy_as(source: &Path, folder: &Path, new_id: &str) -> Result<PathBuf, TranscriptError> {
    let old_id = session_of(source);
    let lines = open_lines(source)?;
    with_files("copy", source, folder, new_id, |files, writer| {
        files.own(old_id)?;
        lines.all(writer, |line, edits| {
            // Longer than the limit: not inspected, copied unchanged.
            let Some(bytes) = line.bytes else {
                return Ok(Verdict::Keep);
            };
            let text = text_of_same_length(bytes);
            match EditableRecord::parse(&text) {
                Some(record) => edit_session(&record, old_id, new_id, edits),
                // A killed writer left it.
                None if !line.ended => return Ok(Verdict::Drop),
                None => {}
            }
            files.record(bytes, edits)?;
            Ok(Verdict::Keep)
        })
    })
}

/// Writes the transcript of a new session into `folder`, which is created if it is missing, with the files of others that its
/// records name: `write` gives each record to the collection of files. `action` says in an error what was tried.
///
/// # Errors
/// As [`copy_as`].
pub(super) fn with_files<'a>(
    action: &'static str,
    source: &'a Path,
    folder: &'a Path,
    new_id: &'a str,
    write: impl FnOnce(&mut SideFiles<'a>, &mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, TranscriptError> {
    make_folder(folder)?;
    let mut files = SideFiles::new(source, folder, new_id);
    let made = create_in(folder, new_id, COPY, |writer| {
        let written = write(&mut files, writer);
        // Before the transcript has a name, so that none ever names files that are not there.
        let written = written.and_then(|()| files.settle());
        written.map_err(TranscriptError::io(action, source))
    })?;
    files.keep();
    Ok(made)
}

/// Deletes the copy of this name, finished or not, with the files beside it. For a caller that recorded the copy before it was made,
/// and was killed.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn remove_copy(transcript: &Path) -> Result<(), TranscriptError> {
    let folder = transcript.parent().unwrap_or(Path::new("."));
    let id = session_of(transcript);
    let removed = [
        (
            transcript.to_owned(),
            fs::remove_file as fn(PathBuf) -> io::Result<()>,
        ),
        (unfinished(folder, id, COPY), fs::remove_file),
        (unfinished(folder, id, FILES), fs::remove_dir_all),
    ];
    let own =
        own_folder(transcript).map(|folder| (folder, fs::remove_dir_all as fn(PathBuf) -> io::Result<()>));
    for (path, remove) in removed.into_iter().chain(own) {
        match remove(path.clone()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TranscriptError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Deletes what a kill left of the files that were about to be brought to this transcript.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn remove_unfinished_files(transcript: &Path) -> Result<(), TranscriptError> {
    let folder = transcript.parent().unwrap_or(Path::new("."));
    let unfinished = unfinished(folder, session_of(transcript), FILES);
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TranscriptError::io("remove", &unfinished)(error))
        }
        _ => Ok(()),
    }
}

/// Writes a file that only its owner may read, whole or not at all, and never over one that is there: `fill` writes its
/// content. The folder must be there.
///
/// # Errors
/// As [`copy_as`], and what `fill` answers.
pub fn create<E: From<TranscriptError>>(
    target: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    create_first(target.to_owned(), std::iter::empty(), fill).map(drop)
}

/// As [`create`], under the first of several names in one folder that is free when the file is whole, which it gives.
///
/// # Errors
/// As [`create`].
pub fn create_first<E: From<TranscriptError>>(
    first: PathBuf,
    others: impl IntoIterator<Item = PathBuf>,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let (temporary, ()) = fill_temporary(&temporary_beside(&first), fill)?;
    let (mut target, mut others) = (first, others.into_iter());
    loop {
        let error = match settle(&temporary, &target) {
            Ok(()) => return Ok(target),
            Err(error) => error,
        };
        let is_taken = matches!(error, TranscriptError::AlreadyExists { .. });
        target = others.next().filter(|_| is_taken).ok_or(error)?;
    }
}

/// Whether a file of this name holds the same as one that is written; `false` if there is none.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if another file is there, and [`TranscriptError::Io`].
pub fn is_there(written: &Temporary, target: &Path) -> Result<bool, TranscriptError> {
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

/// Writes the transcript of a new session into a folder, which must exist. Until it is whole its name says `what` it becomes.
///
/// # Errors
/// As [`copy_as`], and those of `fill`.
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
    let (temporary, ()) = fill_temporary(&unfinished(folder, new_id, what), fill)?;
    settle(&temporary, &target)?;
    Ok(target)
}

/// Writes the content where it is not looked for yet, and syncs it. Returns what `fill` does.
///
/// # Errors
/// [`TranscriptError::Io`], and those of `fill`.
pub fn fill_temporary<T, E: From<TranscriptError>>(
    place: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<(Temporary, T), E> {
    let temporary = Temporary(place.to_owned());
    let file = NewFile::create(&temporary.0);
    let mut file = file.map_err(TranscriptError::io("create", &temporary.0))?;
    let said = fill(&mut file)?;
    file.flush().map_err(TranscriptError::io("write", &temporary.0))?;
    file.sync().map_err(TranscriptError::io("sync", &temporary.0))?;
    Ok((temporary, said))
}

/// Gives a file that is whole its name, where that is free.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if it is not, [`TranscriptError::Io`] otherwise.
pub fn settle(temporary: &Temporary, target: &Path) -> Result<(), TranscriptError> {
    rename_if_free(&temporary.0, target)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    durable::sync_folder(folder).map_err(|error| {
        // Who is told of a failure may try again, and would find the name taken.
        if let Err(error) = fs::remove_file(target) {
            tracing::warn!(path = %target.display(), %error, "a file that may not last could not be removed");
        }
        TranscriptError::io("sync the folder", folder)(error)
    })
}

/// The id of the session with this transcript.
pub(super) fn session_of(source: &Path) -> &str {
    let stem = source.file_stem().and_then(|stem| stem.to_str());
    stem.unwrap_or_default()
}

/// The lines of a transcript, which is counted as it is read.
///
/// # Errors
/// [`TranscriptError::Io`].
pub(crate) fn open_lines(source: &Path) -> Result<Rewriter<impl BufRead + Seek + use<>>, TranscriptError> {
    let (file, metadata) = open_with_metadata(source).map_err(TranscriptError::io("open", source))?;
    let reader = BufReader::with_capacity(BUFFER_BYTES, Metered::new(file, metadata.len()));
    Ok(Rewriter::new(reader, LINE_LIMIT_BYTES))
}

/// The error for a source that changed after it was indexed.
pub(super) fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the transcript is no longer what it was when it was read; try again",
    )
}

/// Replaces the id of a record's session if it is the old one.
pub(super) fn edit_session(record: &EditableRecord<'_>, old_id: &str, new_id: &str, edits: &mut Edits) {
    if let Some((_, place)) = record.text(&["sessionId"]).filter(|(id, _)| id == old_id) {
        edits.replace(place, token(new_id));
    }
}

/// Creates a folder for transcripts if it is missing, as the agents do: other users may not look in.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn make_folder(folder: &Path) -> Result<(), TranscriptError> {
    durable::make_folders(folder).map_err(TranscriptError::io("make the folder", folder))
}

/// Syncs the names in a folder.
///
/// # Errors
/// [`TranscriptError::Io`].
pub fn sync_folder(folder: &Path) -> Result<(), TranscriptError> {
    durable::sync_folder(folder).map_err(TranscriptError::io("sync the folder", folder))
}

/// Gives a file another name, where that is free. On some file systems it has both; the temporary one goes later.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] when it is not, [`TranscriptError::Io`] otherwise.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> Result<(), TranscriptError> {
    durable::rename_if_free(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => TranscriptError::AlreadyExists { path: to.to_owned() },
        _ => TranscriptError::io("create", to)(error),
    })
}

/// A temporary file that is removed unless it was renamed.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "could not delete a temporary file");
        }
    }
}

#[cfg(test)]
mod tests;
