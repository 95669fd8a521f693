//! The lock file: the only authority on whether a daemon runs for a data folder, and where it can be reached.
//!
//! Owns `sessiond.lock`. The kernel's lock on it says that a daemon runs, and ends with the process however that ends;
//! what the file says is only meant for those who look for that daemon. The file is written in place and never
//! replaced or removed, since a lock belongs to the file that was opened and not to its name. Knows no sockets and
//! starts nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::paths::ownership::NO_LINK;

#[cfg(test)]
mod tests;

/// How often the lock is tried again while only readers, who hold it for an instant, stand in the way.
const ATTEMPTS: usize = 10_000;

/// For how long the lock of a daemon that is dead, or dying, is waited for: a process that it was just starting holds it
/// until it has become another program, which takes an instant.
const LEFT_BEHIND_LIMIT: Duration = Duration::from_secs(2);

/// How long one of these waits is.
const LEFT_BEHIND_PAUSE: Duration = Duration::from_millis(5);

/// The most that is read of a lock file; what a daemon writes has a few hundred bytes.
const INFO_LIMIT_BYTES: u64 = 64 * 1024;

/// What the running daemon says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// Its process id.
    pub pid: u32,
    /// Its bridge socket.
    pub socket: PathBuf,
    /// Its ACP socket, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acp_socket: Option<PathBuf>,
    /// The folder that everything is under, where it was started with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<PathBuf>,
    /// Its configuration file, whether it is there or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// When it took the lock.
    pub started_at: Timestamp,
}

/// What a lock file shows to somebody who looks for a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockState {
    /// Whether a daemon runs. Without that, `info` is what the last one said.
    pub held: bool,
    /// None where the file is empty, or is being written just now.
    pub info: Option<LockInfo>,
}

/// Why the lock was not taken or the file not read.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon runs for this data folder.
    #[error("{}", describe_running(path, info.as_deref()))]
    AlreadyRunning {
        /// The lock file.
        path: PathBuf,
        /// What that daemon says about itself, where it has said so already.
        info: Option<Box<LockInfo>>,
    },
    /// Readers kept the lock busy.
    #[error("the lock {} is busy although no daemon holds it; try again", path.display())]
    Contended {
        /// The lock file.
        path: PathBuf,
    },
    /// A path that the lock file has to name is not text.
    #[error("cannot describe this daemon in {}", path.display())]
    Encode {
        /// The lock file.
        path: PathBuf,
        /// Which value could not be written.
        #[source]
        source: serde_json::Error,
    },
    /// The system refused a step.
    #[error("cannot {step} the lock {}", path.display())]
    Io {
        /// What was tried, as a verb that fits before the path.
        step: &'static str,
        /// The lock file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
    path: PathBuf,
}

impl DaemonLock {
    /// Takes the lock `path`, making the file with mode 0600 where there is none, and writes `info` into it. The
    /// folder has to exist. Waits for nobody who lives.
    ///
    /// # Errors
    /// [`LockError::AlreadyRunning`] when another process has it; see there for the others.
    pub fn acquire(path: &Path, info: &LockInfo) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // What a link names is not ours to write to.
            .custom_flags(NO_LINK)
            .open(path)
            .map_err(io_error("open", path))?;
        let mut lock = Self {
            file,
            path: path.to_owned(),
        };
        lock.take(std::thread::sleep)?;
        lock.publish(info)?;
        Ok(lock)
    }

    /// Writes `info` in place of what the file said.
    ///
    /// # Errors
    /// [`LockError::Encode`] and [`LockError::Io`]; the lock is still held then.
    pub fn publish(&mut self, info: &LockInfo) -> Result<(), LockError> {
        let mut text = serde_json::to_vec(info).map_err(|source| LockError::Encode {
            path: self.path.clone(),
            source,
        })?;
        text.push(b'\n');
        // Written over the old text and then cut, so that a reader in between finds one whole object at the start or,
        // for an instant, none that parses, but never an empty file under a held lock.
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&text))
            .and_then(|()| self.file.set_len(text.len() as u64))
            .map_err(io_error("write", &self.path))
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is not at its path any more, or another one is: nobody finds this daemon by it then. Where that
    /// cannot be seen, it is taken to be there.
    pub fn is_astray(&self) -> bool {
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

    fn take(&self, mut pause: impl FnMut(Duration)) -> Result<(), LockError> {
        let (mut waited, mut seen_alive) = (Duration::ZERO, false);
        for _ in 0..ATTEMPTS {
            if try_lock(&self.file, FlockOperation::NonBlockingLockExclusive, &self.path)? {
                return Ok(());
            }
            // A daemon excludes everybody. If the lock can be shared, it was only somebody who looked.
            if !try_lock(&self.file, FlockOperation::NonBlockingLockShared, &self.path)? {
                let info = read_info(&self.file).map_err(io_error("read", &self.path))?;
                let is_dead = info.as_ref().is_some_and(|info| is_dead(info.pid));
                // Once more for one that is killed in this instant, which shows no sign of it for a part of that.
                if waited < LEFT_BEHIND_LIMIT && (is_dead || !seen_alive) {
                    seen_alive |= !is_dead;
                    pause(LEFT_BEHIND_PAUSE);
                    waited += LEFT_BEHIND_PAUSE;
                    continue;
                }
                let info = info.map(Box::new);
                return Err(LockError::AlreadyRunning {
                    path: self.path.clone(),
                    info,
                });
            }
            flock(&self.file, FlockOperation::Unlock)
                .map_err(|error| io_error("release", &self.path)(error.into()))?;
            std::thread::yield_now();
        }
        Err(LockError::Contended {
            path: self.path.clone(),
        })
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started has the file open too, until it is another program.
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "the lock was not released");
        }
    }
}

/// What the lock file `path` shows; none where there is no file. Takes nothing away from a daemon that runs or
/// starts.
///
/// # Errors
/// [`LockError::Io`] when the file cannot be read.
pub fn read_lock(path: &Path) -> Result<Option<LockState>, LockError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error("open", path)(source)),
    };
    let held = !try_lock(&file, FlockOperation::NonBlockingLockShared, path)?;
    // Given back at once by closing the file, if it was got.
    let info = read_info(&file).map_err(io_error("read", path))?;
    Ok(Some(LockState { held, info }))
}

/// Whether there is no such process, or one that is about to end. One that is another user's lives.
fn is_dead(pid: u32) -> bool {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    known.is_none_or(|known| test_kill_process(known) == Err(Errno::SRCH)) || is_ending(pid)
}

/// Whether a process has been killed and has not given back yet what it has open: that takes some milliseconds, and its
/// sockets go first.
#[cfg(target_os = "linux")]
fn is_ending(pid: u32) -> bool {
    /// The flag `PF_EXITING` of the kernel.
    const EXITING: u64 = 0x4;
    /// `SIGKILL` among signals that are still to be delivered.
    const KILLED: u64 = 1 << 8;

    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // Its name, which comes second, may hold anything. See proc_pid_stat(5): the state is the third.
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

/// Other systems tell it in other ways, which are not asked.
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
    // The first line alone: what follows may be left of a longer text before.
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
