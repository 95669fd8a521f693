//! Reading Claude's transcripts from disk.
//!
//! Opens the file, passes it to the pure modules of this folder, and adds the path to errors. Blocks.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::ClaudeIndex;
use super::check::{self, SideFile};
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::parts::own_folder;
use crate::transcript::reading::open;

/// The folder of a session that contains its subagents' transcripts.
const SUBAGENTS: &str = "subagents";

/// Reads the index of a transcript.
///
/// # Errors
/// [`TranscriptError::Io`] if it cannot be opened or read.
pub fn index(path: &Path) -> Result<ClaudeIndex, TranscriptError> {
    ClaudeIndex::read(open(path)?).map_err(TranscriptError::io("read", path))
}

/// Checks a transcript for damage.
///
/// # Errors
/// [`TranscriptError::Io`] if it cannot be opened or read.
pub fn check(path: &Path) -> Result<CheckReport, TranscriptError> {
    check_in_place(path, Path::new(""), Path::new(""))
}

/// Checks a transcript below the folder `root` that replaces the one at the same path below `agents`. Side files of either
/// one count as present.
///
/// # Errors
/// As [`check()`].
pub fn check_in_place(path: &Path, root: &Path, agents: &Path) -> Result<CheckReport, TranscriptError> {
    let original = path
        .strip_prefix(root)
        .map_or_else(|_| path.to_owned(), |relative| agents.join(relative));
    let subagents = (Subagents::new(path), Subagents::new(&original));
    let is_there = |file: &SideFile| match file {
        SideFile::ToolResult(name) => {
            let named_path = original.with_file_name(name);
            let relative = named_path.strip_prefix(agents);
            named_path.exists() || relative.is_ok_and(|relative| root.join(relative).exists())
        }
        SideFile::Subagent(agent) => subagents.0.has(agent) || subagents.1.has(agent),
    };
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    check::check(open(path)?, &id, is_there).map_err(TranscriptError::io("read", path))
}

/// Finds the transcripts of a session's subagents.
pub(super) struct Subagents<'a> {
    transcript: &'a Path,
    /// All files of subagents in the folder of the project, by name. Read once a file is not in its usual place.
    project_files: OnceCell<HashMap<OsString, PathBuf>>,
}

impl<'a> Subagents<'a> {
    pub(super) fn new(transcript: &'a Path) -> Self {
        Self {
            transcript,
            project_files: OnceCell::new(),
        }
    }

    fn has(&self, agent: &str) -> bool {
        self.find(agent).is_some()
    }

    /// The transcript of a subagent, in any of the folders in which agents store it.
    pub(super) fn find(&self, agent: &str) -> Option<PathBuf> {
        let name = format!("agent-{agent}.jsonl");
        let own = own_folder(self.transcript).map(|folder| folder.join(SUBAGENTS).join(&name));
        // Older versions stored them next to the transcript.
        let mut near = own.into_iter().chain([self.transcript.with_file_name(&name)]);
        let near = near.find(|path| path.exists());
        near.or_else(|| self.find_in_project().get(OsStr::new(&name)).cloned())
    }

    /// Returns the files of all subagents in the project, by name. The subagents of a fork stay with the session from
    /// which it was forked (Claude Code 2.1.316), which may be a fork too. Newer versions store some in folders of
    /// their own.
    fn find_in_project(&self) -> &HashMap<OsString, PathBuf> {
        self.project_files.get_or_init(|| {
            let project = self.transcript.parent().unwrap_or(Path::new(""));
            // A folder whose name begins with a dot does not belong to a session: files are being copied into it and are about
            // to move.
            let is_session = |path: &PathBuf| {
                path.file_name()
                    .is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
            };
            let sessions = entries(project).filter(is_session);
            let folders = sessions.map(|session| session.join(SUBAGENTS));
            let within = folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>());
            let with_name = |path: PathBuf| Some((path.file_name()?.to_owned(), path));
            let mut files = HashMap::new();
            for path in within {
                files.extend(entries(&path).filter_map(with_name));
                files.extend(with_name(path));
            }
            files
        })
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_walked_once_for_all_subagents_that_are_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        };
        put("source/subagents/agent-a1.jsonl");
        put("fork/subagents/workflow/agent-a2.jsonl");
        put(".fork.files.tmp/subagents/agent-a3.jsonl");
        let path = folder.path().join("fork.jsonl");
        let subagents = Subagents::new(&path);
        assert!(subagents.has("a1") && subagents.has("a2") && !subagents.has("a3"));
        put("source/subagents/agent-a3.jsonl");
        assert!(!subagents.has("a3"), "it was not looked at again");
        put("fork/subagents/agent-a3.jsonl");
        assert!(subagents.has("a3"));
        put("agent-a4.jsonl");
        assert!(subagents.has("a4"));
    }

    #[test]
    fn errors_name_the_file_and_keep_their_source() {
        let error = index(Path::new("/nowhere/s.jsonl")).expect_err("no such file");
        crate::words::check("a file that is not there", "transcript", &error.to_string());
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn what_is_no_file_is_refused_and_waited_for_by_nobody() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("s.jsonl");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        for path in [&pipe, folder.path()] {
            let error = index(path).expect_err("it is no file");
            assert!(matches!(error, TranscriptError::Io { .. }), "{error}");
        }
    }
}
