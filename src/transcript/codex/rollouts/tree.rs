//! The rollouts below Codex' folder, found in one walk that serves any number of sessions.
//!
//! Searches the same folders and names as the list of transcripts, so that it finds exactly the listed rollouts.
//! Blocks.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::is_absence;
use crate::transcript::TranscriptError;
use crate::transcript::codex::{is_compressed, rollout_name};
use crate::transcript::file_read::FileVersion;
use crate::transcript::locate::file_name;
use crate::transcript::transcript_list::{self, Format};

/// The files with names of rollouts that a walk found.
pub(super) struct RolloutTree {
    root: PathBuf,
    /// The paths, by session.
    paths_by_session: HashMap<String, Vec<PathBuf>>,
    /// The first folder that could not be read.
    unreadable: Option<(PathBuf, io::Error)>,
}

impl RolloutTree {
    pub(super) fn walk(root: &Path) -> Self {
        let (paths, unreadable) = transcript_list::transcript_names(root, Format::Codex);
        let mut named: HashMap<String, Vec<PathBuf>> = HashMap::new();
        for path in paths {
            if let Some(name) = path.file_name().and_then(OsStr::to_str).and_then(rollout_name) {
                let id = name.upstream_id.to_owned();
                named.entry(id).or_default().push(path);
            }
        }
        Self {
            root: root.to_owned(),
            paths_by_session: named,
            unreadable: unreadable.into_iter().next(),
        }
    }

    /// As [`super::locate`].
    pub(super) fn locate(&self, upstream_id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        file_name(upstream_id)?;
        let tops = Format::Codex.top_folders(&self.root);
        let mut seen = HashSet::new();
        let (mut candidates, mut failure) = (Vec::new(), None);
        for path in self.paths_by_session.get(upstream_id).into_iter().flatten() {
            let metadata = match fs::metadata(path) {
                Ok(metadata) => metadata,
                Err(error) => {
                    // A missing file has vanished, or is a link without a target.
                    if !is_absence(&error) && failure.is_none() {
                        failure = Some(TranscriptError::io("look at", path)(error));
                    }
                    continue;
                }
            };
            let identity = FileVersion::of(&metadata);
            // The same file may be reached by several paths.
            if !metadata.is_file() || !seen.insert((identity.device_and_inode(), path.file_name())) {
                continue;
            }
            let place = tops.iter().position(|top| path.starts_with(top));
            let written = std::cmp::Reverse(identity.modified_at());
            candidates.push((place, is_compressed(path), written, path));
        }
        if let Some(failure) = failure.filter(|_| candidates.is_empty()) {
            return Err(failure);
        }
        // A folder that cannot be read only matters if the session was not found elsewhere.
        if let (true, Some((folder, error))) = (candidates.is_empty(), &self.unreadable) {
            let error = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            return Err(TranscriptError::io("read the folder", folder)(error));
        }
        candidates.sort();
        Ok(candidates.into_iter().map(|(.., path)| path.clone()).collect())
    }

    /// As [`super::find`].
    pub(super) fn find(&self, upstream_id: &str) -> Result<PathBuf, TranscriptError> {
        let found = self.locate(upstream_id)?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| TranscriptError::not_found(&self.root, upstream_id))
    }
}
