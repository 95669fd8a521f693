//! Looks for processes that a daemon left behind.
//!
//! It owns the way to find them: their command line or environment names the folder of the demonstration. Only where the
//! system shows both.

use std::path::Path;

/// A process that should be gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leftover {
    pid: u32,
    name: String,
}

/// The processes that belong to the folder, this one not counted; nothing where the system does not tell.
#[cfg(target_os = "linux")]
fn processes_of(folder: &Path) -> Option<Vec<Leftover>> {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    let needle = folder.as_os_str().as_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let path = entry.path();
        // A process that ends meanwhile, or is somebody else's, has nothing to show.
        let shown = |file: &str| fs::read(path.join(file)).unwrap_or_default();
        let belongs = ["cmdline", "environ"]
            .iter()
            .any(|file| contains(&shown(file), needle));
        if belongs {
            let name = String::from_utf8_lossy(&shown("comm")).trim().to_owned();
            found.push(Leftover { pid, name });
        }
    }
    Some(found)
}

/// The processes of the folder that stay: one that is on its way out is waited for.
#[cfg(target_os = "linux")]
pub(super) fn staying(folder: &Path) -> Option<Vec<Leftover>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    for process in processes_of(folder)? {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        // One that cannot be opened has ended meanwhile.
        let Some(Ok(descriptor)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
            continue;
        };
        let limit = Timespec {
            tv_sec: EXIT_LIMIT_SECONDS,
            tv_nsec: 0,
        };
        if poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).is_err() {
            break;
        }
    }
    processes_of(folder)
}

/// The processes of the folder that stay; this system does not tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn staying(_: &Path) -> Option<Vec<Leftover>> {
    None
}

/// How long a process that has let go of everything may take to be gone.
#[cfg(target_os = "linux")]
const EXIT_LIMIT_SECONDS: i64 = 5;

/// The processes in words, to stand behind a sentence.
pub(super) fn told(left: &[Leftover]) -> String {
    let names: Vec<String> = left
        .iter()
        .map(|process| format!("{} ({})", process.pid, process.name))
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(": {}", names.join(", "))
    }
}

#[cfg(target_os = "linux")]
fn contains(text: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::{processes_of, told};

    #[test]
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
        assert_eq!(
            found.iter().map(|process| process.pid).collect::<Vec<_>>(),
            [child.id()]
        );
        assert!(told(&found).contains("cat"), "{}", told(&found));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(processes_of(folder.path()).unwrap(), []);
    }
}
