//! Finds files that other processes hold open, if that is visible: on Linux, for processes of the same user.
//!
//! Does not find an agent that opens its transcript for each line that it writes, so such an agent must be ended first.

use std::path::PathBuf;

use super::super::TranscriptError;

/// Checks that no other process holds one of these files open.
///
/// # Errors
/// [`TranscriptError::InUse`] for the first file that is open.
pub(crate) fn check_not_open(files: &[PathBuf]) -> Result<(), TranscriptError> {
    #[cfg(target_os = "linux")]
    if let Some((path, pid)) = linux::holder(files) {
        return Err(TranscriptError::InUse { path, pid });
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

    use crate::paths::lock_holder::parent_of;

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
            if let Some(path) = held.find(|path| files.contains(path))
                && !is_being_started(pid, own_pid)
            {
                return Some((path, pid));
            }
        }
        None
    }

    /// Whether this process is just starting that one: until its program begins, it has this process' files open.
    fn is_being_started(pid: u32, own: u32) -> bool {
        let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok();
        parent_of(pid) == Some(own) && line(pid) == line(own)
    }
}
