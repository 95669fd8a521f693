//! The lock on a data folder: it alone decides whether a daemon runs for the folder, and the lock file says where the
//! daemon can be reached.
//!
//! This module owns `sessiond.lock`. The kernel's lock on the file means that a daemon runs; it ends with the process
//! in any case. The file's content is only for finding that daemon. The file is written in place and never replaced
//! or removed, because a lock belongs to an open file, not to a name. Because users remove lock files, the daemon also
//! locks the folder. This module does not know sockets and starts nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_protocol::time;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::paths::ownership::NO_LINK;

#[cfg(test)]
mod tests;

/// How many times to try while only readers hold the lock, each for an instant.
const ATTEMPTS: usize = 10_000;

/// How many attempts are between two pauses while only readers are in the way. All pauses together take half a second.
const ATTEMPTS_PER_PAUSE: usize = 100;

/// How long to wait for the lock of a daemon that is dead or ending. A process that it was starting holds the lock
/// until its exec, which takes an instant.
const DYING_HOLDER_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two tries.
const DYING_HOLDER_PAUSE: Duration = Duration::from_millis(5);

/// How many bytes of a lock file are read. A daemon writes a few hundred.
const INFO_LIMIT_BYTES: u64 = 64 * 1024;

/// What the running daemon reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// The process id.
    pub pid: u32,
    /// The bridge socket.
    pub socket: PathBuf,
    /// The ACP socket, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acp_socket: Option<PathBuf>,
    /// The folder that holds everything, if it was started with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<PathBuf>,
    /// The configuration file. It may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// When it took the lock.
    #[serde(serialize_with = "time::write")]
    pub started_at: Timestamp,
}

/// Why the lock could not be taken, or the file could not be read.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon runs for this data folder.
    #[error("{}", describe_running(path, info.as_deref()))]
    AlreadyRunning {
        /// The lock file.
        path: PathBuf,
        /// What that daemon wrote about itself, if it has written anything yet.
        info: Option<Box<LockInfo>>,
    },
    /// Readers kept the lock busy.
    #[error("the lock {} is busy although no daemon holds it; try again", path.display())]
    Contended {
        /// The lock file.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("cannot {step} the lock {}", path.display())]
    Io {
        /// The attempted step, as a verb before the path.
        step: &'static str,
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The daemon's lock. Dropping it releases the lock.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
    path: PathBuf,
    /// The file's folder, locked too; none on a file system that cannot lock a folder, such as NFS.
    folder: Option<File>,
}

impl DaemonLock {
    /// Takes the lock at `path` and writes `info` into the file. Creates the file with mode 0600 if necessary; the
    /// folder must exist. Does not wait for a running daemon.
    ///
    /// # Errors
    /// [`LockError::AlreadyRunning`] if another process has the lock, or another [`LockError`].
    pub fn acquire(path: &Path, info: &LockInfo) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Do not follow a link: the daemon must not write to its target.
            .custom_flags(NO_LINK)
            .open(path)
            .map_err(io_error("open", path))?;
        let mut lock = Self {
            file,
            path: path.to_owned(),
            folder: None,
        };
        lock.lock_exclusively(&lock.file, std::thread::sleep)?;
        let folder = File::open(path.parent().unwrap_or(Path::new(".")))
            .map_err(io_error("open the folder of", path))?;
        match lock.lock_exclusively(&folder, std::thread::sleep) {
            Ok(()) => lock.folder = Some(folder),
            Err(LockError::Io { source, .. }) => {
                tracing::debug!(error = %source, "cannot lock the data folder itself");
            }
            Err(error) => return Err(error),
        }
        lock.publish(info)?;
        Ok(lock)
    }

    /// Replaces the file's content with `info`.
    ///
    /// # Errors
    /// [`LockError::Io`]. The lock is still held then.
    pub fn publish(&mut self, info: &LockInfo) -> Result<(), LockError> {
        // A path may not be UTF-8.
        let text = serde_json::to_vec(info).map_err(io::Error::from);
        let mut text = text.map_err(io_error("describe this daemon in", &self.path))?;
        text.push(b'\n');
        // Write over the old text, then truncate. A reader in between finds a complete object at the start or, for an
        // instant, none that parses, but never an empty file under a held lock.
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&text))
            .and_then(|()| self.file.set_len(text.len() as u64))
            .map_err(io_error("write", &self.path))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was moved, removed or replaced, so that clients cannot find this daemon through it. False if that cannot
    /// be checked.
    pub fn is_lost(&self) -> bool {
        let Ok(own) = self.file.metadata() else {
            return false;
        };
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != (own.dev(), own.ino()),
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
        }
    }

    /// Locks the file, or its folder.
    fn lock_exclusively(&self, target: &File, mut pause: impl FnMut(Duration)) -> Result<(), LockError> {
        let (mut waited, mut seen_alive) = (Duration::ZERO, false);
        for attempt in 1..=ATTEMPTS {
            if try_lock(target, FlockOperation::NonBlockingLockExclusive, &self.path)? {
                return Ok(());
            }
            // A daemon's lock excludes all others. If the lock can be shared, only a reader held it.
            if !try_lock(target, FlockOperation::NonBlockingLockShared, &self.path)? {
                let info = read_info(&self.file).map_err(io_error("read", &self.path))?;
                let is_dead = info.as_ref().is_some_and(|info| is_dead(info.pid));
                // A daemon that is being killed looks alive at first, so look once more even if it seems alive.
                if waited < DYING_HOLDER_LIMIT && (is_dead || !seen_alive) {
                    seen_alive |= !is_dead;
                    pause(DYING_HOLDER_PAUSE);
                    waited += DYING_HOLDER_PAUSE;
                    continue;
                }
                let info = info.map(Box::new);
                return Err(LockError::AlreadyRunning {
                    path: self.path.clone(),
                    info,
                });
            }
            flock(target, FlockOperation::Unlock)
                .map_err(|error| io_error("release", &self.path)(error.into()))?;
            if attempt % ATTEMPTS_PER_PAUSE == 0 {
                // A reader that holds the lock may be waiting for a processor.
                pause(DYING_HOLDER_PAUSE);
            } else {
                std::thread::yield_now();
            }
        }
        Err(LockError::Contended {
            path: self.path.clone(),
        })
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being started has the file open until its exec.
        for locked in self.folder.iter().chain([&self.file]) {
            if let Err(error) = flock(locked, FlockOperation::Unlock) {
                tracing::warn!(path = %self.path.display(), %error, "cannot release the lock");
            }
        }
    }
}

/// Whether the process does not exist or is about to end. Another user's process counts as alive.
fn is_dead(pid: u32) -> bool {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    known.is_none_or(|known| test_kill_process(known) == Err(Errno::SRCH)) || is_ending(pid)
}

/// Whether a process was killed but has not released its open files yet, which takes some milliseconds. Its sockets
/// close first.
#[cfg(target_os = "linux")]
fn is_ending(pid: u32) -> bool {
    /// The flag `PF_EXITING` of the kernel.
    const EXITING: u64 = 0x4;
    /// `SIGKILL` among the pending signals.
    const KILLED: u64 = 1 << 8;

    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name, the second field, may contain anything. See proc_pid_stat(5): the state is the third.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let has = |number: usize, bit: u64| {
        let value = fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
        value.is_some_and(|value| value & bit != 0)
    };
    matches!(fields.first(), Some(&("Z" | "X"))) || has(9, EXITING) || has(31, KILLED)
}

/// Not implemented for other systems.
#[cfg(not(target_os = "linux"))]
fn is_ending(_pid: u32) -> bool {
    false
}

fn try_lock(file: &File, operation: FlockOperation, path: &Path) -> Result<bool, LockError> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io_error("take", path)(error.into())),
        }
    }
}

fn read_info(mut file: &File) -> io::Result<Option<LockInfo>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(INFO_LIMIT_BYTES).read_to_end(&mut text)?;
    // Only the first line: the rest may be from a longer earlier text.
    let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice(first_line).ok())
}

fn describe_running(path: &Path, info: Option<&LockInfo>) -> String {
    match info {
        Some(info) => format!(
            "sessiond already runs as process {} on {} (lock {}); stop it first, or use another --home",
            info.pid,
            info.socket.display(),
            path.display()
        ),
        None => format!(
            "sessiond already runs or is just starting (lock {})",
            path.display()
        ),
    }
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LockError {
    let path = path.to_owned();
    move |source| LockError::Io { step, path, source }
}
