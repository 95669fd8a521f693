//! Syncs the files that an agent has written for a session, so that they survive a loss of power.
//!
//! Agents write their transcripts without syncing them. This module knows which files and folders to sync, what was
//! synced before, and which syncs failed. It never writes to a file. Blocks.
//!
//! The system reports a failed write to one sync only. Then it may drop the unwritten data, and the next sync succeeds. A
//! file or folder whose sync failed once is therefore never reported as synced again.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::TranscriptError;
use super::transcript_list::Format;
use crate::files::{durable, is_absence};

/// Files that were written up to this long before the last sync are synced again. File systems round times, and clocks
/// are set. Older data has been written by the system itself.
const SYNC_OVERLAP: Duration = Duration::from_secs(60);

/// How many transcripts are remembered. Forgetting one only costs another sync of its folders.
const REMEMBERED_LIMIT: usize = 4_096;

/// How many failed files and folders are remembered. If there are more, every sync fails.
const FAILED_LIMIT: usize = 4_096;

/// How many levels of folders next to a transcript are read. Agents make two.
const DEPTH_LIMIT: usize = 8;

/// Identifies a file or folder: device, inode, and creation time, since inodes are reused.
type FileKey = (u64, u64, Option<SystemTime>);

/// Why files were not synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// Something could not be opened or listed. A later sync may succeed.
    #[error(transparent)]
    ReadFailed(#[from] TranscriptError),
    /// The system could not write something to disk, now or in an earlier sync.
    #[error(transparent)]
    WriteFailed(TranscriptError),
}

/// The time of the last sync of each session's files.
#[derive(Debug)]
pub struct SyncLog {
    started_at: SystemTime,
    /// The start of the last sync, by transcript.
    last_syncs: Mutex<HashMap<FileKey, SystemTime>>,
    /// Whether the sync of a file or folder failed. An entry is locked during a sync, because the system reports an error
    /// to one of two concurrent syncs only. Entries that are not being synced and have not failed are removed.
    failed_syncs: Mutex<HashMap<FileKey, Arc<Mutex<bool>>>>,
}

impl Default for SyncLog {
    fn default() -> Self {
        Self {
            started_at: SystemTime::now(),
            last_syncs: Mutex::default(),
            failed_syncs: Mutex::default(),
        }
    }
}

impl SyncLog {
    /// Syncs a transcript, which is open as `file`, and the files in the folder next to it that were written since the last
    /// sync: tools' results and subagents. The first sync also syncs the names of the transcript and its folders, up to the
    /// agent's own.
    ///
    /// On a file system that cannot sync this does nothing.
    ///
    /// # Errors
    /// [`SyncError`] when something could not be synced.
    pub fn sync(&self, file: &File, path: &Path, root: &Path, format: Format) -> Result<(), SyncError> {
        let metadata = file.metadata().map_err(TranscriptError::io("sync", path))?;
        let file_key = identity(&metadata);
        let now = SystemTime::now();
        let last = lock(&self.last_syncs).get(&file_key).copied();
        let since = last.unwrap_or(self.started_at).checked_sub(SYNC_OVERLAP);
        if let Some(folder) = format.dialect().own_folder(path) {
            // The files are synced before the records that name them.
            self.sync_below(&folder, since, DEPTH_LIMIT)?;
        }
        self.sync_open(file, path, durable::sync_file)?;
        if last.is_none() {
            self.sync_names(path, root)?;
        }
        let mut synced = lock(&self.last_syncs);
        if synced.len() >= REMEMBERED_LIMIT {
            synced.clear();
        }
        synced.insert(file_key, now);
        Ok(())
    }

    /// Syncs the folders that lead to a transcript.
    fn sync_names(&self, path: &Path, root: &Path) -> Result<(), SyncError> {
        let folders = path.ancestors().skip(1);
        let below_root = folders.take_while(|folder| folder.starts_with(root));
        for folder in below_root.chain(root.parent()) {
            self.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Syncs what was written in a folder and its subfolders since a time. Follows no symbolic link.
    fn sync_below(&self, folder: &Path, since: Option<SystemTime>, depth: usize) -> Result<(), SyncError> {
        let is_new = |metadata: &Metadata| {
            let modified = metadata.modified().ok();
            since.is_none_or(|since| modified.is_none_or(|modified| modified >= since))
        };
        let Some(metadata) = ok_if_present(folder.symlink_metadata(), folder)?.filter(Metadata::is_dir)
        else {
            return Ok(());
        };
        let Some(entries) = ok_if_present(fs::read_dir(folder), folder)? else {
            return Ok(());
        };
        for entry in entries {
            let path = entry
                .map_err(TranscriptError::io("read the folder", folder))?
                .path();
            let Some(metadata) = ok_if_present(path.symlink_metadata(), &path)? else {
                continue;
            };
            if metadata.is_dir() && depth > 0 {
                self.sync_below(&path, since, depth - 1)?;
            } else if metadata.is_file()
                && is_new(&metadata)
                && let Some(file) = ok_if_present(File::open(&path), &path)?
            {
                self.sync_open(&file, &path, durable::sync_file)?;
            }
        }
        if is_new(&metadata) {
            self.sync_folder(folder)?;
            // Sync the folder's own name too.
            folder.parent().map_or(Ok(()), |above| self.sync_folder(above))?;
        }
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), SyncError> {
        match ok_if_present(File::open(folder), folder)? {
            Some(opened) => self.sync_open(&opened, folder, durable::sync_open_folder),
            None => Ok(()),
        }
    }

    /// Syncs an open file or folder, or fails if an earlier sync of it failed.
    fn sync_open(
        &self,
        file: &File,
        path: &Path,
        sync: fn(&File, &Path) -> io::Result<()>,
    ) -> Result<(), SyncError> {
        let metadata = file.metadata().map_err(TranscriptError::io("sync", path))?;
        let identity = identity(&metadata);
        let unwritten = |error| SyncError::WriteFailed(TranscriptError::io("sync", path)(error));
        let has_failed = {
            let mut failed = lock(&self.failed_syncs);
            if failed.len() >= FAILED_LIMIT {
                return Err(unwritten(io::Error::other("too many earlier syncs failed")));
            }
            Arc::clone(failed.entry(identity).or_default())
        };
        let synced = {
            let mut has_failed = lock(&has_failed);
            let synced = match *has_failed {
                true => Err(io::Error::other("an earlier sync of it failed")),
                false => ok_if_unsupported(sync(file, path)),
            };
            *has_failed = synced.is_err();
            synced
        };
        if synced.is_ok() {
            let mut failed = lock(&self.failed_syncs);
            drop(has_failed);
            // If another sync waits for this one, it removes the entry.
            if failed.get(&identity).is_some_and(|it| Arc::strong_count(it) == 1) {
                failed.remove(&identity);
            }
        }
        synced.map_err(unwritten)
    }
}

fn identity(metadata: &Metadata) -> FileKey {
    (metadata.dev(), metadata.ino(), metadata.created().ok())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result, or `None` if the file is missing. An agent may remove or move its files at any time.
fn ok_if_present<T>(found: io::Result<T>, path: &Path) -> Result<Option<T>, TranscriptError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(TranscriptError::io("sync", path)(error)),
    }
}

/// Ignores the error of a file system that does not support syncing.
fn ok_if_unsupported(synced: io::Result<()>) -> io::Result<()> {
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
        let before = log.started_at - 2 * SYNC_OVERLAP;
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

    /// As after a disk error: one sync reports the error, and the next one finds nothing to write.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_whose_sync_failed_is_never_reported_as_synced() {
        use std::os::unix::fs::OpenOptionsExt;

        let held = tempfile::tempdir().unwrap();
        let root = held.path().join("agent");
        let path = root.join("projects/-p/s1.jsonl");
        make(&path, "one\n");
        let log = SyncLog::default();
        let sync = |file: &File| log.sync(file, &path, &root, Format::Claude);
        // A descriptor that no system can sync.
        let flags = i32::try_from(rustix::fs::OFlags::PATH.bits()).unwrap();
        let failing = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path)
            .unwrap();
        assert!(matches!(sync(&failing), Err(SyncError::WriteFailed(_))));
        for _ in 0..2 {
            let again = sync(&File::open(&path).unwrap());
            assert!(matches!(again, Err(SyncError::WriteFailed(_))), "{again:?}");
        }
        // A new file of the same name can be synced, and the failed one stays recorded.
        let anew = root.join("projects/-p/new");
        make(&anew, "one\n");
        fs::rename(&anew, &path).unwrap();
        sync(&File::open(&path).unwrap()).unwrap();
        assert_eq!(lock(&log.failed_syncs).len(), 1);
    }
}
