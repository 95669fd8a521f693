//! Finds out whether a process is a daemon: a daemon holds the lock on its data folder.
//!
//! Only the lock counts. A command line can name any program, and a daemon can be started under any name.

use std::fs;
use std::path::{Path, PathBuf};

use super::names::LOCK;

/// Returns the data folder whose lock a process holds. `None` if it holds none, or if the system does not show its
/// open files.
#[must_use]
pub fn data_folder_of(pid: u32) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    descriptors.flatten().find_map(|descriptor| {
        let file = fs::read_link(descriptor.path()).ok()?;
        if file.file_name()? != LOCK {
            return None;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).ok()?;
        let holds = info.lines().any(is_exclusive_lock);
        holds.then(|| file.parent().map(Path::to_owned)).flatten()
    })
}

/// Whether a marked process belongs to a daemon. Follows the parents up to and including the first one without the
/// mark, and looks for a daemon among them. Stops at process 1, which adopts the orphans of all daemons. False if the
/// system does not show the parents.
#[must_use]
pub fn belongs_to_daemon(mut pid: u32, is_marked: impl Fn(u32) -> bool) -> bool {
    while pid > 1 {
        if data_folder_of(pid).is_some() {
            return true;
        }
        match parent_of(pid).filter(|_| is_marked(pid)) {
            Some(parent) => pid = parent,
            None => return false,
        }
    }
    false
}

/// The parent of a process. It adopts the process if the one that started it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// `lock: 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF` is a daemon's lock. A shared lock belongs to a process
/// that only checks.
fn is_exclusive_lock(line: &str) -> bool {
    line.starts_with("lock:") && line.contains("FLOCK") && line.contains("WRITE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_shared_lock_is_not_a_daemon() {
        let table = [
            ("lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", true),
            ("lock:\t1: FLOCK  ADVISORY  READ 4711 fe:00:1234 0 EOF", false),
            ("lock:\t1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", false),
            ("flags:\t0100002", false),
            ("", false),
        ];
        for (line, expected) in table {
            assert_eq!(is_exclusive_lock(line), expected, "{line}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_lock_names_the_data_folder() {
        use rustix::fs::{FlockOperation, flock};

        let folder = tempfile::tempdir().unwrap();
        let lock = fs::File::create(folder.path().join(LOCK)).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        // Other tests of this process may hold locks too.
        assert!(data_folder_of(std::process::id()).is_some_and(|folder| folder.is_absolute()));
    }
}
