//! Syncing the files that an agent has written for a session, so that a loss of power takes none of them.
//!
//! Agents write their transcripts without syncing them. Owns which files and folders belong to such a sync and what was
//! synced before; never writes to any of them. Blocks.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::TranscriptError;
use super::shelf::Format;
use crate::files::{durable, is_absence};

/// How long before the last sync a file may have been written that is synced again. File systems round times, and clocks
/// are set; what is older than this the system has written by itself.
const SLACK: Duration = Duration::from_secs(60);

/// How many transcripts are remembered. One that was forgotten only costs a sync of its folders.
const REMEMBERED: usize = 4_096;

/// How deep the folder beside a transcript is entered. Agents make two levels of folders.
const DEPTH_LIMIT: usize = 8;

/// When the files of which sessions were synced last.
#[derive(Debug)]
pub struct SyncLog {
    began: SystemTime,
    /// By device and inode of the transcript: when its last sync began.
    synced: Mutex<HashMap<(u64, u64), SystemTime>>,
}

impl Default for SyncLog {
    fn default() -> Self {
        Self {
            began: SystemTime::now(),
            synced: Mutex::default(),
        }
    }
}

impl SyncLog {
    /// Syncs a transcript, which is open as `file`, and what was written since in the folder beside it: results of tools and
    /// subagents. The first time also the names of the transcript and its folders, up to the agent's own.
    ///
    /// On a file system that cannot sync this does nothing.
    ///
    /// # Errors
    /// [`TranscriptError::Io`] when something could not be synced.
    pub fn sync(&self, file: &File, path: &Path, root: &Path, format: Format) -> Result<(), TranscriptError> {
        let failed = |error| TranscriptError::io("sync", path)(error);
        let metadata = file.metadata().map_err(failed)?;
        let known_as = (metadata.dev(), metadata.ino());
        let now = SystemTime::now();
        let last = self.lock().get(&known_as).copied();
        let since = last.unwrap_or(self.began).checked_sub(SLACK);
        if format == Format::Claude {
            // Before the records that name them.
            sync_below(&path.with_extension(""), since, DEPTH_LIMIT)?;
        }
        possible(durable::sync_file(file, path)).map_err(failed)?;
        if last.is_none() {
            sync_names(path, root)?;
        }
        let mut synced = self.lock();
        if synced.len() >= REMEMBERED {
            synced.clear();
        }
        synced.insert(known_as, now);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, u64), SystemTime>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs the folders that lead to a transcript.
fn sync_names(path: &Path, root: &Path) -> Result<(), TranscriptError> {
    let folders = path.ancestors().skip(1);
    let below_root = folders.take_while(|folder| folder.starts_with(root));
    for folder in below_root.chain(root.parent()) {
        sync_folder(folder)?;
    }
    Ok(())
}

/// Syncs what was written in a folder since a time, and in those below it. Follows no symbolic link.
fn sync_below(folder: &Path, since: Option<SystemTime>, depth: usize) -> Result<(), TranscriptError> {
    let is_new = |metadata: &Metadata| {
        let modified = metadata.modified().ok();
        since.is_none_or(|since| modified.is_none_or(|modified| modified >= since))
    };
    let Some(metadata) = there(folder.symlink_metadata(), folder)?.filter(Metadata::is_dir) else {
        return Ok(());
    };
    let Some(entries) = there(fs::read_dir(folder), folder)? else {
        return Ok(());
    };
    for entry in entries {
        let path = entry
            .map_err(TranscriptError::io("read the folder", folder))?
            .path();
        let Some(metadata) = there(path.symlink_metadata(), &path)? else {
            continue;
        };
        if metadata.is_dir() && depth > 0 {
            sync_below(&path, since, depth - 1)?;
        } else if metadata.is_file()
            && is_new(&metadata)
            && let Some(file) = there(File::open(&path), &path)?
        {
            possible(durable::sync_file(&file, &path)).map_err(TranscriptError::io("sync", &path))?;
        }
    }
    if is_new(&metadata) {
        sync_folder(folder)?;
        // Its own name too.
        folder.parent().map_or(Ok(()), sync_folder)?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<(), TranscriptError> {
    there(possible(durable::sync_folder(folder)), folder).map(drop)
}

/// What is there. An agent may remove or move its files at any time.
fn there<T>(found: io::Result<T>, path: &Path) -> Result<Option<T>, TranscriptError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(TranscriptError::io("sync", path)(error)),
    }
}

/// A sync, where the file system has one.
fn possible(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::durable::tests::Disk;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn make(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        append(path, text);
    }

    #[test]
    fn all_that_a_session_has_written_lasts() {
        let held = tempfile::tempdir().unwrap();
        let base = held.path().canonicalize().unwrap();
        let disk = Disk::of(&base);
        let root = base.join("agent");
        let path = root.join("projects/-p/s1.jsonl");
        let log = SyncLog::default();
        let sync = |path: &Path, format| log.sync(&File::open(path).unwrap(), path, &root, format).unwrap();
        make(&path, "one\n");
        make(&root.join("projects/-p/s1/tool-results/r1.txt"), "long");
        make(&root.join("projects/-p/s1/subagents/deep/a.jsonl"), "{}\n");
        sync(&path, Format::Claude);
        disk.check_lasts("the first turn");
        append(&path, "two\n");
        append(&root.join("projects/-p/s1/tool-results/r2.txt"), "longer");
        sync(&path, Format::Claude);
        disk.check_lasts("a later turn");
        let rollout = root.join("sessions/2026/11/24/rollout-s2.jsonl");
        make(&rollout, "one\n");
        sync(&rollout, Format::Codex);
        disk.check_lasts("a rollout");
    }

    #[test]
    fn what_is_no_sessions_or_was_written_long_ago_is_left() {
        let held = tempfile::tempdir().unwrap();
        let base = held.path().canonicalize().unwrap();
        let root = base.join("agent");
        let path = root.join("projects/-p/s1.jsonl");
        let log = SyncLog::default();
        make(&path, "one\n");
        let disk = Disk::of(&base);
        let old = root.join("projects/-p/s1/tool-results/old.txt");
        make(&old, "long");
        let before = SystemTime::now() - 2 * SLACK;
        File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(before)
            .unwrap();
        make(&base.join("elsewhere"), "another's");
        symlink(base.join("elsewhere"), root.join("projects/-p/s1/link")).unwrap();
        log.sync(&File::open(&path).unwrap(), &path, &root, Format::Claude)
            .unwrap();
        let left = ["agent/projects/-p/s1/tool-results/old.txt", "elsewhere"];
        assert_eq!(disk.lost(), BTreeSet::from(left.map(Into::into)));
    }

    #[test]
    fn one_that_was_removed_meanwhile_is_no_failure() {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().join("agent");
        let path = root.join("projects/-p/s1.jsonl");
        make(&path, "one\n");
        let file = File::open(&path).unwrap();
        fs::remove_dir_all(root.join("projects")).unwrap();
        SyncLog::default()
            .sync(&file, &path, &root, Format::Claude)
            .unwrap();
    }
}
