//! A data folder for the daemons of one test, the daemon as a process, and checks for everything that it may
//! leave behind.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use crate::signs::PATIENCE;
use crate::signs::{self, Watched};

/// The folders of one test's daemons.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    /// Creates an empty home with this configuration and a working directory.
    pub(crate) fn new(config: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("sb").tempdir().unwrap();
        let home = Self { folder };
        for below in ["config", "data", "log", "project"] {
            fs::create_dir(home.path().join(below)).unwrap();
        }
        home.configure(config);
        home
    }

    pub(crate) fn configure(&self, config: &str) {
        fs::write(self.path().join("config/config.toml"), config).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The working directory of the conversations.
    pub(crate) fn project(&self) -> String {
        self.path().join("project").to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("run/sessiond.sock")
    }

    fn log(&self) -> PathBuf {
        self.path().join("log/sessiond.log")
    }

    /// The end of the log of this home's daemons, for a failure message.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(120)..].join("\n")
    }

    /// The lines of that log that contain a text, for a failure message.
    pub(crate) fn words_about(&self, what: &str) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(what)).collect();
        lines.join("\n")
    }

    /// The command that starts the daemon, with an environment of its own.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sessiond"));
        command.env_clear();
        command.envs(self.environment());
        command.arg("--ready-on-stdin").current_dir("/");
        command
    }

    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let level = std::env::var_os("CRASH_LOG").unwrap_or_else(|| "info".into());
        vec![
            ("SESSIOND_HOME".into(), self.path().into()),
            ("SESSIOND_LOG".into(), level),
            ("PATH".into(), path),
        ]
    }

    /// Starts a daemon without waiting until it listens.
    pub(crate) fn spawn(&self) -> Daemon {
        self.spawn_as(self.command())
    }

    /// Starts a daemon with this command; its log goes to this home.
    pub(crate) fn spawn_as(&self, mut command: Command) -> Daemon {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        command.stdout(Stdio::null()).stderr(log);
        Daemon::spawn(command)
    }

    /// Starts a daemon and waits until it listens.
    #[track_caller]
    pub(crate) fn start(&self) -> Daemon {
        let mut daemon = self.spawn();
        assert!(
            daemon.wait_ready(),
            "the daemon did not start:\n{}",
            self.last_words()
        );
        daemon
    }

    /// The processes that belong to this home: those with its mark or its path in their environment or
    /// command line.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut needles = vec![self.path().as_os_str().as_bytes().to_vec()];
        if let Ok(instance) = fs::read_to_string(self.data().join("instance")) {
            needles.push(format!("SESSIOND_MARK={}:", instance.trim()).into_bytes());
        }
        let needles: Vec<&[u8]> = needles.iter().map(Vec::as_slice).collect();
        let found = signs::processes_naming(&needles).into_iter();
        found
            .map(|(pid, _)| pid)
            .filter(|pid| *pid != std::process::id())
            .collect()
    }

    /// The processes of this home except for this daemon.
    pub(crate) fn agents(&self, daemon: &Daemon) -> Vec<u32> {
        let mut found = self.processes();
        found.retain(|pid| *pid != daemon.pid());
        found
    }

    /// Panics if this home has processes other than these.
    #[track_caller]
    pub(crate) fn assert_nobody_but(&self, known: &[u32]) {
        let mut left = self.processes();
        left.retain(|pid| !known.contains(pid));
        assert!(
            left.is_empty(),
            "left behind: {:?}\n{}",
            lines_of(&left),
            self.last_words()
        );
    }

    /// Panics if a process of an earlier daemon still exists. This daemon may have started agents already,
    /// because it continues interrupted work.
    #[track_caller]
    pub(crate) fn assert_only_those_of(&self, daemon: &Daemon) {
        let began = began(daemon.pid());
        let is_its_own = |one: &u32| {
            let mut pid = *one;
            loop {
                if pid == daemon.pid() {
                    return true;
                }
                // A process that ends meanwhile is not left behind.
                match parent(pid) {
                    None => return true,
                    // An orphan that this daemon started after its own start, and is about to end.
                    Some(0 | 1) => return self::began(*one).is_none_or(|one| Some(one) >= began),
                    Some(parent) => pid = parent,
                }
            }
        };
        let mut left = self.processes();
        left.retain(|pid| !is_its_own(pid));
        assert!(
            left.is_empty(),
            "left behind by an earlier daemon: {:?}\n{}",
            lines_of(&left),
            self.last_words()
        );
    }

    /// Panics unless no process and no socket is left and the lock is free.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        self.assert_nobody_but(&[]);
        for socket in ["run/sessiond.sock", "run/acp.sock"] {
            assert!(!self.path().join(socket).exists(), "{socket} is still there");
        }
        assert!(self.lock_is_free(), "the lock is held");
    }

    pub(crate) fn lock_is_free(&self) -> bool {
        let file = File::open(self.data().join("sessiond.lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for Home {
    /// Kills the remaining processes, so that a failed test leaves none running.
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

/// A daemon's process. Dropping it kills the process if it still runs.
pub(crate) struct Daemon {
    child: Child,
    ready: Option<std::io::PipeReader>,
}

impl Daemon {
    /// Starts a daemon with this command, which reports through its stdin when it is ready.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let (ready, writer) = std::io::pipe().unwrap();
        command.stdin(writer);
        let child = command.spawn().unwrap();
        // The command also holds the write end of the pipe, which must close when the daemon ends.
        drop(command);
        Self {
            child,
            ready: Some(ready),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the daemon listens. Returns false if it ended before.
    pub(crate) fn wait_ready(&mut self) -> bool {
        let mut told = String::new();
        let ready = self.ready.take().unwrap();
        BufReader::new(ready).read_line(&mut told).unwrap();
        told.starts_with("ready")
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Kills the daemon after this many changes below its home, or earlier if its start or stop completes.
    pub(crate) fn kill_after(&mut self, home: &Watched, changes: usize) {
        if let Some(ready) = &self.ready {
            home.let_pass(changes, ready);
        } else if let Some(process) = signs::descriptor_of(self.pid()) {
            home.let_pass(changes, process);
        }
        self.kill();
    }

    /// Kills the daemon, unless it has already ended, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the daemon ends without being killed.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(ends_within(self.pid(), PATIENCE), "the daemon does not end");
        self.child.wait().unwrap()
    }

    /// Stops the daemon with SIGTERM and waits until it has ended.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "the daemon ended with {status}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
    }
}

/// Sends a signal. A process that no longer exists is not an error.
pub(crate) fn signal(pid: u32, which: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        match kill_process(pid, which) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("cannot signal {pid:?}: {error}"),
        }
    }
}

/// Whether a process ends within this time, or has already ended.
pub(crate) fn ends_within(pid: u32, limit: Duration) -> bool {
    signs::descriptor_of(pid).is_none_or(|process| signs::ends_within(process, limit))
}

/// The command lines of these processes, with their ids.
fn lines_of(processes: &[u32]) -> Vec<String> {
    let line_of = |pid: &u32| format!("{pid} ({})", signs::command_line(*pid));
    processes.iter().map(line_of).collect()
}

/// The parent of a process, or `None` if the process has ended.
fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.try_into().ok()
}

/// When a process started, in clock ticks since the boot, or `None` if it has ended.
fn began(pid: u32) -> Option<u64> {
    stat(pid, 19)
}

/// A number from `/proc/PID/stat`. Fields are counted from the state, which follows the name in parentheses;
/// the name may contain anything.
fn stat(pid: u32, place: usize) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    status
        .rsplit(')')
        .next()?
        .split_whitespace()
        .nth(place)?
        .parse()
        .ok()
}
