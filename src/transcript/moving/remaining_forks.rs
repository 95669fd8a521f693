//! Forks that stay in a folder when other sessions move out of it. The files that they borrow must stay too, because a
//! fork looks for them only in its own folder.
//!
//! Each folder is read once per move, however many sessions leave it. Only the sessions that each fork names are
//! stored, because the beginnings of transcripts may be large.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{is_fork, read_beginning};
use crate::transcript::{TranscriptError, parts};

/// The forks that stay in the folders of moving sessions.
#[derive(Debug, Default)]
pub struct RemainingForks {
    moving: HashSet<PathBuf>,
    folders: HashMap<PathBuf, FolderForks>,
}

/// [`RemainingForks`], shared by all sessions that move together.
#[derive(Clone, Debug, Default)]
pub struct SharedRemainingForks(Arc<Mutex<RemainingForks>>);

/// The forks in a folder that name a session, for each session with files of its own.
type FolderForks = HashMap<String, Vec<PathBuf>>;

impl SharedRemainingForks {
    /// Locks the forks for one session's move at a time.
    pub fn lock(&self) -> MutexGuard<'_, RemainingForks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemainingForks {
    /// Creates an empty lookup. `moving` are the transcripts that move together.
    #[must_use]
    pub fn new(moving: HashSet<PathBuf>) -> Self {
        Self {
            moving,
            folders: HashMap::new(),
        }
    }

    /// Whether a remaining fork names this session, which has files of its own.
    pub(super) fn has_fork(
        &mut self,
        project: &Path,
        transcript: &Path,
        session: &str,
    ) -> Result<bool, TranscriptError> {
        let known = self.folders.get(project).and_then(|folder| folder.get(session));
        if known.is_none() {
            let folder = read_forks(project, session, &self.moving)?;
            self.folders.insert(project.to_owned(), folder);
        }
        let known = self.folders.get(project).and_then(|folder| folder.get(session));
        let mut forks = known.into_iter().flatten();
        // A fork that was moved before took copies of the files that it borrows.
        Ok(forks.any(|path| path != transcript && path.exists()))
    }
}

/// Reads the forks in a folder. Includes `session` even if it has no folder of its own.
fn read_forks(
    project: &Path,
    session: &str,
    leaving: &HashSet<PathBuf>,
) -> Result<FolderForks, TranscriptError> {
    let to_error = |error| TranscriptError::io("read the folder", project)(error);
    let mut folder = HashMap::from([(session.to_owned(), Vec::new())]);
    let mut transcripts = Vec::new();
    for entry in fs::read_dir(project).map_err(to_error)? {
        let path = entry.map_err(to_error)?.path();
        if path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str());
            folder.extend(name.map(|name| (name.to_owned(), Vec::new())));
        } else if !leaving.contains(&path) && parts::is_lines(&path) && path.is_file() {
            transcripts.push(path);
        }
    }
    for path in transcripts {
        let beginning = read_beginning(&path)?;
        if !is_fork(&beginning) {
            continue;
        }
        // A fork names sessions by an id, or in a path.
        for name in beginning.split(|byte| matches!(byte, b'"' | b'/')) {
            let name = std::str::from_utf8(name).unwrap_or_default();
            if let Some(forks) = folder.get_mut(name)
                && forks.last() != Some(&path)
            {
                forks.push(path.clone());
            }
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork_of(session: &str) -> String {
        format!("{{\"forkedFrom\":{{\"sessionId\":\"{session}\"}}}}\n")
    }

    #[test]
    fn a_folder_is_read_once_and_what_has_gone_meanwhile_borrows_nothing() {
        let held = tempfile::tempdir().unwrap();
        let project = held.path();
        let put = |name: &str, text: &str| {
            let path = project.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        for session in ["one", "two", "odd.id", "nobodys"] {
            fs::create_dir(project.join(session)).unwrap();
        }
        let own = put("one.jsonl", &fork_of("one"));
        let fork = put("f.jsonl", &fork_of("one"));
        put(
            "g.jsonl",
            &format!("{}{{\"path\":\"/p/two/tool-results/r\"}}\n", fork_of("twofold")),
        );
        put("h.jsonl", &fork_of("odd.id"));
        put("i.jsonl", "{\"text\":\"nobodys\"}\n");
        let mut neighbours = RemainingForks::default();
        let mut has = |session: &str| {
            let transcript = project.join(format!("{session}.jsonl"));
            neighbours.has_fork(project, &transcript, session).unwrap()
        };
        assert_eq!(
            ["one", "two", "odd.id", "nobodys"].map(&mut has),
            [true, true, true, false]
        );
        // The folder was read already, so a later fork is not noticed. A deleted fork does not count any more.
        put("j.jsonl", &fork_of("nobodys"));
        assert!(!has("nobodys"));
        fs::remove_file(&fork).unwrap();
        assert!(!has("one"), "it is no fork of itself: {}", own.display());
        // The question about an unknown session reads the folder again.
        assert!(!has("new"));
        assert!(has("nobodys"));
        let mut leaving = RemainingForks::new(HashSet::from([project.join("h.jsonl")]));
        let transcript = project.join("odd.id.jsonl");
        assert!(!leaving.has_fork(project, &transcript, "odd.id").unwrap());
    }
}
