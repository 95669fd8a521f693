//! Copies Claude transcripts under new ids.
//!
//! An exact copy includes the side files of its source. Its records differ only in the token with the old id, and in the paths
//! of tool results, which lead to the copy's own files. The source is only read. Blocks; does not know why a copy is made.

use std::io::{self, BufRead, Seek, Write};
use std::path::{Path, PathBuf};

use super::side_files::SideFiles;
use crate::transcript::TranscriptError;
use crate::transcript::copy::{COPY, create_in, make_folder, session_of};
use crate::transcript::lines::{LINE_LIMIT_BYTES, text_of_same_length};
use crate::transcript::reading;
use crate::transcript::rewrite::{EditableRecord, Edits, Rewriter, Verdict, json_string};

/// Copies a whole transcript into `folder`, which is created if it is missing, with its side files and the files of other
/// sessions that its records name. A torn last line is left out.
///
/// # Errors
/// [`TranscriptError::InvalidId`] for a new id that cannot be a file name, [`TranscriptError::AlreadyExists`] if
/// it is taken, [`TranscriptError::Io`] otherwise. After a failure no file is left.
pub(in crate::transcript) fn copy_as(
    source: &Path,
    folder: &Path,
    new_id: &str,
) -> Result<PathBuf, TranscriptError> {
    let old_id = session_of(source);
    let lines = open_lines(source)?;
    write_with_files("copy", source, folder, new_id, |files, writer| {
        files.copy_own_folder(old_id)?;
        lines.rewrite_all(writer, |line, edits| {
            // Copy a line over the limit unchanged, because it is not buffered.
            let Some(bytes) = line.bytes else {
                return Ok(Verdict::Keep);
            };
            let text = text_of_same_length(bytes);
            match EditableRecord::parse(&text) {
                Some(record) => edit_session(&record, old_id, new_id, edits),
                // A killed writer left this line incomplete.
                None if !line.ended => return Ok(Verdict::Drop),
                None => {}
            }
            files.copy_named_files(bytes, edits)?;
            Ok(Verdict::Keep)
        })
    })
}

/// Writes the transcript of a new session into `folder`, which is created if it is missing, with the files of other sessions
/// that its records name. `write` passes each record to [`SideFiles`]. `action` is the action that errors report.
///
/// # Errors
/// As [`copy_as`].
pub(super) fn write_with_files<'a>(
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
        // Put the files in place before the transcript is renamed, so that no transcript ever names missing files.
        let written = written.and_then(|()| files.settle(false));
        written.map_err(TranscriptError::io(action, source))
    })?;
    files.keep_copies();
    Ok(made)
}

/// Opens a transcript to rewrite its lines. The meter counts what is read.
///
/// # Errors
/// [`TranscriptError::Io`].
pub(crate) fn open_lines(source: &Path) -> Result<Rewriter<impl BufRead + Seek + use<>>, TranscriptError> {
    Ok(Rewriter::new(reading::open(source)?, LINE_LIMIT_BYTES))
}

/// The error for a source that changed after it was indexed.
pub(super) fn source_changed_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the transcript is no longer what it was when it was read; try again",
    )
}

/// Replaces the id of a record's session if it is the old one.
pub(super) fn edit_session(record: &EditableRecord<'_>, old_id: &str, new_id: &str, edits: &mut Edits) {
    if let Some((_, place)) = record.text(&["sessionId"]).filter(|(id, _)| id == old_id) {
        edits.replace(place, json_string(new_id));
    }
}

#[cfg(test)]
mod tests;
