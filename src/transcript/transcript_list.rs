//! The list of all transcripts below the folders of agents, with a summary of each.
//!
//! The list has a summary of each file, in order, and reads a file again when its stat changes. Each scan checks every
//! file, so that it includes everything written before. Nothing is stored on disk. An unreadable folder, a file that
//! vanishes or a cyclic link affects only its own entries. Blocks. This module must not know agents or conversations.

mod file_ends;
mod folder_walk;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::file_read::FileVersion;
use super::meter::SharedMeter;
use file_ends::{Buffers, on_threads, read_entry};
use folder_walk::{FolderWalk, FoundFile};

/// How many unreadable files and folders are listed: enough to see what is wrong.
const UNREADABLE_LIMIT: usize = 20;

/// The format of the transcripts below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// `projects/<folder>/<id>.jsonl`.
    Claude,
    /// `sessions/**/rollout-<time>-<id>.jsonl`, and the same below `archived_sessions`.
    Codex,
    /// `projects/<folder>/chats/<id>.jsonl`.
    Qwen,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Qwen];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Qwen => "qwen",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The top folders below a root, which contain all transcripts.
    #[must_use]
    pub fn top_folders(self, root: &Path) -> Vec<PathBuf> {
        let tops = self.dialect().layout().tops;
        tops.iter().map(|name| root.join(name)).collect()
    }

    /// Whether a file of this name is a transcript.
    #[must_use]
    pub fn is_transcript(self, name: &str) -> bool {
        self.upstream_id(name).is_some()
    }

    /// The session to which a file of this name belongs.
    #[must_use]
    pub fn upstream_id(self, name: &str) -> Option<&str> {
        self.dialect().upstream_id(name)
    }
}

/// An entry of the list: one transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTranscript {
    /// Its session.
    pub upstream_id: String,
    /// Its path.
    pub path: Arc<Path>,
    /// Its size, in bytes.
    pub bytes: u64,
    /// When it last changed: the time of its last record, or the file's modification time if that is earlier.
    pub updated_at: Timestamp,
    /// Its title; empty if it contains no text that could be one.
    pub title: String,
    /// The folder in which the agent worked; empty if the transcript does not say.
    pub cwd: String,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// Whether it is the session of a subagent, which no list shows.
    pub is_subagent: bool,
    /// The version of the file that was read.
    pub identity: FileVersion,
}

/// A position in the order of all transcripts: newest first, and by path if the times are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition(Reverse<Timestamp>, Arc<Path>);

impl ListPosition {
    /// The position of the transcript at `path` that changed at this time.
    #[must_use]
    pub fn new(updated_at: Timestamp, path: &Path) -> Self {
        Self(Reverse(updated_at), Arc::from(path))
    }

    /// The position of this entry.
    #[must_use]
    pub fn of(entry: &ListedTranscript) -> Self {
        Self(Reverse(entry.updated_at), Arc::clone(&entry.path))
    }

    /// The time and path.
    #[must_use]
    pub fn parts(&self) -> (Timestamp, &Path) {
        (self.0.0, &self.1)
    }
}

/// All transcripts below a root with their versions. Those that cannot be read are left out.
pub fn transcript_versions(root: &Path, format: Format) -> impl Iterator<Item = (PathBuf, FileVersion)> {
    let found = FolderWalk::in_root(root, format).files;
    found.into_iter().map(|found| (found.path, found.identity))
}

/// The paths below a root that are named like transcripts, whatever they are, in the order of their folders; and the
/// folders that could not be read.
pub(super) fn transcript_names(root: &Path, format: Format) -> (Vec<PathBuf>, Vec<(PathBuf, io::Error)>) {
    FolderWalk::names(root, format)
}

/// The title that a list shows for a file, if any. Reads the two ends of the file.
#[must_use]
pub fn listed_title(path: &Path, format: Format) -> Option<String> {
    // A linked transcript is listed with the title of its target.
    let found = FoundFile::at_path(path.canonicalize().ok()?)?;
    file_ends::summary(&found, format, &mut Buffers::default())
        .ok()?
        .title
}

/// The transcripts in a folder, and below it if the format uses subfolders.
pub fn files(folder: &Path, format: Format) -> impl Iterator<Item = PathBuf> {
    let found = FolderWalk::in_folder(folder, format).files;
    found.into_iter().map(|found| found.path)
}

/// The list of the transcripts below one root.
#[derive(Debug, Default)]
pub struct TranscriptList {
    /// In list order.
    entries: Vec<Arc<ListedTranscript>>,
    unreadable: BTreeSet<PathBuf>,
    scanned: bool,
}

impl TranscriptList {
    /// Whether a scan was ever completed.
    #[must_use]
    pub fn is_scanned(&self) -> bool {
        self.scanned
    }

    /// All transcripts after a position, in order.
    pub fn entries_after(
        &self,
        place: Option<&ListPosition>,
    ) -> impl Iterator<Item = &Arc<ListedTranscript>> {
        let is_before =
            |entry: &Arc<ListedTranscript>| place.is_some_and(|place| ListPosition::of(entry) <= *place);
        let start = self.entries.partition_point(is_before);
        self.entries.iter().skip(start)
    }

    /// Files and folders that could not be read in the last scan, 20 at most.
    pub fn unreadable(&self) -> impl Iterator<Item = &Path> {
        self.unreadable
            .iter()
            .map(PathBuf::as_path)
            .take(UNREADABLE_LIMIT)
    }

    /// Checks every file below `root` and reads the ends of new and changed files. If the scan is stopped early, the list
    /// does not count as scanned, but what was read is kept.
    pub fn scan(&mut self, root: &Path, format: Format) {
        // A panic leaves an empty list rather than half of one.
        let mut entries = std::mem::take(self).entries;
        let FolderWalk { files, unreadable } = FolderWalk::in_root(root, format);
        let mut unreadable: BTreeSet<PathBuf> = unreadable.into_iter().map(|(path, _)| path).collect();
        let versions: HashMap<&Path, &FileVersion> = files
            .iter()
            .map(|file| (file.path.as_path(), &file.identity))
            .collect();
        entries.retain(|entry| versions.get(entry.path.as_ref()) == Some(&&entry.identity));
        let known: HashSet<&Path> = entries.iter().map(|entry| entry.path.as_ref()).collect();
        let is_known = |file: &FoundFile| known.contains(file.path.as_path());
        let changed: Vec<&FoundFile> = files.iter().filter(|file| !is_known(file)).collect();
        let tally = SharedMeter::new(changed.iter().map(|file| file_ends::bytes_to_read(file)).sum());
        let is_stopped = AtomicBool::new(false);
        let read = on_threads(&changed, |file, buffers| {
            if is_stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let entry = read_entry(file, format, buffers);
            is_stopped.fetch_or(
                tally.count_bytes(file_ends::bytes_to_read(file)).is_err(),
                Ordering::Relaxed,
            );
            entry
        });
        for (file, read) in changed.into_iter().zip(read) {
            match read {
                Ok(Some(entry)) => entries.push(Arc::new(entry)),
                // The file has no id or has vanished, or nobody waits for the scan any more.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => {
                    unreadable.insert(file.path.clone());
                }
            }
        }
        entries.sort_by_cached_key(|entry| ListPosition::of(entry));
        *self = Self {
            entries,
            unreadable,
            scanned: !is_stopped.into_inner(),
        };
    }
}

#[cfg(test)]
mod tests;
