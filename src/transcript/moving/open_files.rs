//! Finds files that other processes hold open, if that is visible: on Linux, for processes of the same user.
//!
//! Does not find an agent that opens its transcript for each line that it writes, so such an agent must be ended first.

use std::path::PathBuf;

use super::super::TranscriptError;

/// Checks that no other process holds one of these files open. Waits for one that holds it only for a moment: a program
/// that searches or copies files, or one that has inherited it and not begun its own program yet.
///
/// # Errors
/// [`TranscriptError::InUse`] for the first file that stays open.
pub(crate) fn check_not_open(files: &[PathBuf]) -> Result<(), TranscriptError> {
    #[cfg(target_os = "linux")]
    for look in (0..linux::LOOKS).rev() {
        match linux::holder(files) {
            None => break,
            Some((path, pid)) if look == 0 => return Err(TranscriptError::InUse { path, pid }),
            Some(_) => std::thread::sleep(linux::LOOK_AGAIN),
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _unused = files;
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    /// How many looks, over two seconds, must find a file open before it counts as in use.
    pub(super) const LOOKS: u32 = 40;

    /// How long after one look the next one comes.
    pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

    pub(super) fn holder(files: &[PathBuf]) -> Option<(PathBuf, u32)> {
        // The paths as the kernel reports them.
        let files: HashSet<PathBuf> = files
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok())
            .collect();
        let own_pid = std::process::id();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|pid: &u32| *pid != own_pid) else {
                continue;
            };
            // Processes of other users, and processes that end meanwhile, cannot be read.
            let Ok(open) = fs::read_dir(entry.path().join("fd")) else {
                continue;
            };
            let mut held = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
            if let Some(path) = held.find(|path| files.contains(path)) {
                return Some((path, pid));
            }
        }
        None
    }
}
