//! Processes that a daemon left behind: their command line or environment names the folder of the demonstration.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The processes that belong to the folder, this one not counted: id and name. `None` where the system does not show them.
fn processes_of(folder: &Path) -> Option<Vec<(u32, String)>> {
    let needle = folder.as_os_str().as_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else {
            continue;
        };
        // A process that ends meanwhile, or is another user's, shows nothing.
        let shown = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let names_folder = |file: &str| shown(file).windows(needle.len()).any(|window| window == needle);
        if names_folder("cmdline") || names_folder("environ") {
            found.push((pid, String::from_utf8_lossy(&shown("comm")).trim().to_owned()));
        }
    }
    Some(found)
}

/// The processes of the folder that stay, in words, after those that are ending have had some seconds.
pub(super) fn staying(folder: &Path) -> Option<Vec<String>> {
    for (pid, _) in processes_of(folder)? {
        wait_for_end(pid);
    }
    let stay = processes_of(folder)?.into_iter();
    Some(stay.map(|(pid, name)| format!("{pid} ({name})")).collect())
}

#[cfg(target_os = "linux")]
fn wait_for_end(pid: u32) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    /// How long a process that has let go of everything may take to end.
    const LIMIT: Timespec = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // One that cannot be opened has ended meanwhile.
    if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        // One that is still there is reported.
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LIMIT));
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_end(_: u32) {}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::processes_of;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_names_the_folder_is_found_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        // It says back what it hears until its input ends, that is for as long as this test wants.
        let mut child = Command::new("cat")
            .env("FOLDER_OF_A_TEST", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // A process is handed out before the system has given it its environment; one that answers has it.
        let mut heard = [0];
        child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
        let found = processes_of(folder.path()).unwrap();
        assert_eq!(found, [(child.id(), "cat".to_owned())]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(processes_of(folder.path()).unwrap(), []);
    }
}
