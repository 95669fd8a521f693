//! Deletes the side files of a deleted transcript: tool results and the transcripts of subagents.
//!
//! Deletes no file that a fork may need. A fork may refer to files of the session from which it was forked, and of that
//! session's ancestors, by paths and names anywhere in its text, but it names only its direct parent. So if the folder
//! contains any fork, all side files in it are kept. Blocks.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::moving::FORKED;
use super::parts::{is_lines, own_folder};
use crate::files::{file_contains, is_absence};

/// Whether the side files were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideFilesRemoval {
    /// The side files were deleted, or there were none.
    Removed,
    /// A fork in the same folder may need them.
    KeptForFork,
}

/// Which folders contain forks. Each folder is read once.
#[derive(Debug, Default)]
pub struct ForkLookup {
    folders: HashMap<PathBuf, bool>,
}

impl ForkLookup {
    /// Whether this folder contains a fork other than the session's own transcript.
    fn has_other_fork(&mut self, project: &Path, transcript: &Path) -> Result<bool, TranscriptError> {
        if let Some(known) = self.folders.get(project) {
            return Ok(*known);
        }
        let to_error = |error| TranscriptError::io("read the folder", project)(error);
        let mut has_fork = false;
        for entry in fs::read_dir(project).map_err(to_error)? {
            let path = entry.map_err(to_error)?.path();
            if path != transcript && is_lines(&path) && path.is_file() {
                // A quoted mention of the field in a message has escaped quotes, so it does not match.
                has_fork = has_fork
                    || file_contains(&path, FORKED.as_bytes()).map_err(TranscriptError::io("read", &path))?;
            }
        }
        self.folders.insert(project.to_owned(), has_fork);
        Ok(has_fork)
    }
}

/// Deletes the folder of a session's side files, unless a fork may need it. The transcript itself may be deleted already.
///
/// # Errors
/// [`TranscriptError::Io`] if the folder cannot be read or deleted, or is a link or not a folder.
pub fn remove_side_files(
    transcript: &Path,
    forks: &mut ForkLookup,
) -> Result<SideFilesRemoval, TranscriptError> {
    let Some(side_folder) = own_folder(transcript) else {
        return Ok(SideFilesRemoval::Removed);
    };
    let failed = |error| TranscriptError::io("remove", &side_folder)(error);
    match side_folder.symlink_metadata() {
        Err(error) if is_absence(&error) => return Ok(SideFilesRemoval::Removed),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            let why = "it is not a folder";
            return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, why)));
        }
    }
    if forks.has_other_fork(transcript.parent().unwrap_or(Path::new("/")), transcript)? {
        return Ok(SideFilesRemoval::KeptForFork);
    }
    match fs::remove_dir_all(&side_folder) {
        Err(error) if !is_absence(&error) => Err(failed(error)),
        _ => Ok(SideFilesRemoval::Removed),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;
    use crate::files::BUFFER_BYTES;

    fn put(path: &Path, text: &str) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        path.to_owned()
    }

    fn remove(transcript: &Path) -> Result<SideFilesRemoval, TranscriptError> {
        remove_side_files(transcript, &mut ForkLookup::default())
    }

    #[test]
    fn what_a_fork_names_stays_until_the_fork_is_gone() {
        let held = tempfile::tempdir().unwrap();
        let project = held.path();
        let result = put(&project.join("s1/tool-results/r.txt"), "long");
        // A fork of a fork names its direct parent, possibly after a long member.
        for long in [0, BUFFER_BYTES - 20, BUFFER_BYTES, 3 * BUFFER_BYTES] {
            let text = "x".repeat(long);
            let fork = put(
                &project.join("s3.jsonl"),
                &format!("{{\"message\":\"{text}\",\"forkedFrom\":{{\"sessionId\":\"s2\"}}}}\n"),
            );
            assert_eq!(
                remove(&project.join("s1.jsonl")).unwrap(),
                SideFilesRemoval::KeptForFork,
                "{long}"
            );
            assert!(result.exists());
            fs::remove_file(fork).unwrap();
        }
        put(
            &project.join("s4.jsonl"),
            "{\"message\":\"what is \\\"forkedFrom\\\"?\"}\n",
        );
        assert_eq!(
            remove(&project.join("s1.jsonl")).unwrap(),
            SideFilesRemoval::Removed
        );
        assert!(!result.exists());
    }

    #[test]
    fn a_link_in_its_place_is_left() {
        let held = tempfile::tempdir().unwrap();
        let file = put(&held.path().join("elsewhere/file"), "kept");
        let project = held.path().join("project");
        fs::create_dir(&project).unwrap();
        symlink(held.path().join("elsewhere"), project.join("s1")).unwrap();
        let error = remove(&project.join("s1.jsonl")).unwrap_err();
        assert!(matches!(error, TranscriptError::Io { .. }), "{error:?}");
        assert!(file.exists() && project.join("s1").symlink_metadata().is_ok());
    }
}
