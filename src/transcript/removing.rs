//! Removing what lies beside a transcript that is deleted: results of tools, and what subagents said.
//!
//! Owns that nothing goes which a fork names that stays, and that no link is followed. Blocks.

use std::fs;
use std::io;
use std::path::Path;

use super::TranscriptError;
use super::locate::is_absence;
use super::moving::Neighbours;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It is gone, or nothing lay there.
    Gone,
    /// A fork in the same folder names it.
    Borrowed,
}

/// Removes the folder of a session that lies beside its transcript, be that gone, unless a fork names it.
///
/// # Errors
/// [`TranscriptError::Io`] when it cannot be looked at or removed, also when it is no folder.
pub fn remove_beside(transcript: &Path, neighbours: &mut Neighbours) -> Result<Beside, TranscriptError> {
    let beside = transcript.with_extension("");
    let failed = |error| TranscriptError::io("remove", &beside)(error);
    match beside.symlink_metadata() {
        Err(error) if is_absence(&error) => return Ok(Beside::Gone),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            let why = "it is no folder, and no link is followed";
            return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, why)));
        }
    }
    let (project, session) = (beside.parent(), beside.file_name());
    let (Some(project), Some(session)) = (project, session.and_then(|session| session.to_str())) else {
        let why = "it has no name that a session has";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
    };
    if neighbours.has_fork(project, transcript, session)? {
        return Ok(Beside::Borrowed);
    }
    match fs::remove_dir_all(&beside) {
        Err(error) if !is_absence(&error) => Err(failed(error)),
        _ => Ok(Beside::Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn put(path: &Path, text: &str) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        path.to_owned()
    }

    fn remove(transcript: &Path) -> Result<Beside, TranscriptError> {
        remove_beside(transcript, &mut Neighbours::default())
    }

    #[test]
    fn what_lies_beside_goes_with_all_that_is_in_it() {
        let held = tempfile::tempdir().unwrap();
        let project = held.path();
        let elsewhere = put(&project.join("elsewhere"), "kept");
        let other = put(&project.join("s2/tool-results/r.txt"), "kept");
        put(&project.join("s1/subagents/deep/agent-1.jsonl"), "{}\n");
        symlink(&elsewhere, project.join("s1/link")).unwrap();
        let transcript = project.join("s1.jsonl");
        assert_eq!(remove(&transcript).unwrap(), Beside::Gone);
        assert!(!project.join("s1").exists());
        assert!(elsewhere.exists() && other.exists());
        assert_eq!(
            remove(&transcript).unwrap(),
            Beside::Gone,
            "nothing is there any more"
        );
    }

    #[test]
    fn what_a_fork_names_stays_until_the_fork_is_gone() {
        let held = tempfile::tempdir().unwrap();
        let project = held.path();
        let result = put(&project.join("s1/tool-results/r.txt"), "long");
        let fork = put(
            &project.join("s2.jsonl"),
            "{\"forkedFrom\":{\"sessionId\":\"s1\"}}\n",
        );
        assert_eq!(remove(&project.join("s1.jsonl")).unwrap(), Beside::Borrowed);
        assert!(result.exists());
        fs::remove_file(fork).unwrap();
        assert_eq!(remove(&project.join("s1.jsonl")).unwrap(), Beside::Gone);
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
