//! One agent as a process: starting it, knowing when and how it ended, stopping it.
//!
//! A process gets its own process group, pipes for its three streams, and a mark in its environment that every
//! descendant inherits. The spawn is recorded before the caller gets the pipes, so nothing can be asked of a process
//! that the next life of the daemon would not know of. Stopping goes from the mildest to the strongest: end of
//! input, SIGTERM to the group, SIGKILL to the group, then the sweep of [`super::sweep`].
//!
//! It owns the child and its standard error. It must not know JSON-RPC, sessions or pools. Parent-death signals are
//! not used: they need unsafe code, and the recorded mark does the same over a daemon's death.

mod mark;
mod stderr;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use mark::{Instance, MARK_VARIABLE, SpawnMark};
pub use stderr::{STDERR_TAIL_BYTES, StderrTail};

use super::sweep::{self, SweepDeadlines, SweepReport, SweepTarget};

/// How an agent is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCommand {
    /// A path, or a name that is looked up on `PATH`.
    pub program: PathBuf,
    /// What follows the program's name.
    pub args: Vec<OsString>,
    /// Added to the environment of this process.
    pub env: BTreeMap<String, String>,
    /// Taken out of it.
    pub env_remove: Vec<String>,
    /// Where it starts; this process's own folder when absent.
    pub working_dir: Option<PathBuf>,
}

/// What is written down about a spawn before the process is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnRecord {
    /// Process id, which is also the id of its process group.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`, in clock ticks since boot; absent where there is no `/proc`.
    pub start_time: Option<u64>,
    /// The kernel's boot id: a pid and start time mean nothing after a reboot.
    pub boot_id: Option<String>,
    /// What it carries in its environment.
    pub mark: SpawnMark,
    /// The agent's configured name.
    pub agent: String,
}

/// Why a spawn could not be recorded.
#[derive(Debug, thiserror::Error)]
#[error("the spawn cannot be recorded")]
pub struct RecordError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Writes spawns down, durably. Implemented by whoever owns the journal.
pub trait SpawnRecorder: Send + Sync {
    /// The record is synced when this is done; only then is the process used.
    fn record(&self, record: SpawnRecord) -> BoxFuture<'_, Result<(), RecordError>>;

    /// The process and all its descendants have ended: the record may go.
    fn ended(&self, mark: SpawnMark) -> BoxFuture<'_, Result<(), RecordError>>;
}

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program.
    #[error(
        "the agent's program {program:?} was not found; install it, or set `command` in its configuration to the \
         program's full path"
    )]
    Missing {
        /// As configured.
        program: PathBuf,
    },
    /// There is such a file, but it cannot be run.
    #[error("the agent's program {program:?} cannot be executed; check its permissions and its format")]
    NotExecutable {
        /// As configured.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The folder that it was to start in is not there.
    #[error("the folder {folder:?}, in which the agent was to start, cannot be entered")]
    WorkingDir {
        /// As given.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system has no more processes, memory or pipes.
    #[error("the agent's program {program:?} cannot be started")]
    System {
        /// As configured.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It started, but could not be recorded, and has been killed.
    #[error("the agent was not started")]
    NotRecorded(#[source] RecordError),
    /// It started and ended before it had answered `initialize`.
    #[error("the agent's program {program:?} ended before it was ready{printed}: {death}")]
    DiedAtOnce {
        /// As configured.
        program: PathBuf,
        /// Its exit status and last words.
        death: Arc<Death>,
        /// What it printed instead of messages, as words that go on behind a sentence; mostly empty.
        printed: String,
    },
}

/// How an agent ended, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Death {
    /// Absent when its output ended and the process itself had not (yet).
    pub status: Option<ExitStatus>,
    /// The end of its standard error, at most [`STDERR_TAIL_BYTES`].
    pub stderr_tail: String,
}

impl fmt::Display for Death {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(formatter, "{status}")?,
            None => formatter.write_str("its output ended")?,
        }
        // The last line is nearly always the reason; the rest is in the field.
        if let Some(line) = self
            .stderr_tail
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
        {
            write!(formatter, "; it said: {}", line.trim())?;
        }
        Ok(())
    }
}

/// How long each step of a stop may take before the next, stronger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopDeadlines {
    /// From the end of its input to SIGTERM.
    pub eof: Duration,
    /// From SIGTERM to SIGKILL.
    pub term: Duration,
    /// From SIGKILL until the process is given up as unkillable.
    pub kill: Duration,
}

impl Default for StopDeadlines {
    /// Claude needs up to 2 s after the end of its input, Codex 7 s, but 0.3 s after SIGTERM: so a short grace, then
    /// SIGTERM, whose 5 s let tools end cleanly.
    fn default() -> Self {
        Self {
            eof: Duration::from_secs(2),
            term: Duration::from_secs(5),
            kill: Duration::from_secs(2),
        }
    }
}

/// The step of a stop after which the process was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoppedBy {
    /// It had ended by itself.
    Itself,
    /// The end of its input.
    EndOfInput,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to its group.
    Kill,
    /// Nothing: it was still there after SIGKILL and its deadline.
    Nothing,
}

/// What a stop did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReport {
    /// Which step ended it.
    pub stopped_by: StoppedBy,
    /// Its exit status.
    pub status: Option<ExitStatus>,
    /// What was swept after it.
    pub sweep: SweepReport,
}

impl StopReport {
    /// Whether the process and all its descendants have ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stopped_by != StoppedBy::Nothing && self.sweep.survivors.is_empty()
    }
}

/// Knows when the process ends, and how; what the wire waits for beside the end of its output.
#[derive(Debug, Clone)]
pub struct DeathWatch {
    exit: watch::Receiver<Option<ExitStatus>>,
    stderr: StderrTail,
}

impl DeathWatch {
    /// For a peer that is no process: it never ends, only its output does.
    #[must_use]
    pub fn none() -> Self {
        let (_, exit) = watch::channel(None);
        Self {
            exit,
            stderr: StderrTail::empty(),
        }
    }

    /// Waits until the process has ended; for ever where there is none. Cancel safe.
    pub async fn ended(&mut self) -> ExitStatus {
        match self.exit.wait_for(Option::is_some).await.map(|status| *status) {
            Ok(Some(status)) => status,
            _ => std::future::pending().await,
        }
    }

    /// How the process ended, when its output has: its exit is waited for so long, and the rest of its standard error
    /// for a short while.
    pub async fn death_within(&mut self, patience: Duration) -> Death {
        match tokio::time::timeout(patience, self.exit.wait_for(Option::is_some)).await {
            // Ended, or no process at all.
            Ok(_) => {}
            Err(_) => tracing::debug!("an agent's output has ended, its process has not"),
        }
        self.stderr.settle().await;
        Death {
            status: *self.exit.borrow(),
            stderr_tail: self.stderr.text(),
        }
    }
}

/// A started agent. Dropped while it runs, its whole group is killed, and its descendants are swept by a thread.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    record: SpawnRecord,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    watch: DeathWatch,
}

/// Starts an agent and has the spawn recorded.
///
/// Must be called inside a tokio runtime with I/O and time enabled.
///
/// # Errors
///
/// [`SpawnError`]; whatever was started is killed again.
pub async fn spawn(
    command: &AgentCommand,
    agent: &str,
    mark: &SpawnMark,
    recorder: &dyn SpawnRecorder,
) -> Result<ChildProcess, SpawnError> {
    let mut child = build(command, mark)
        .spawn()
        .map_err(|error| spawn_error(command, error))?;
    let gone = || SpawnError::System {
        program: command.program.clone(),
        source: io::Error::other("the new process has no id"),
    };
    // Both are read before anything can reap the child: a process that has ended is still listed until then.
    let raw_pid = child.id().ok_or_else(gone)?;
    let pid = i32::try_from(raw_pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(gone)?;
    let record = SpawnRecord {
        pid: raw_pid,
        start_time: sweep::start_time(raw_pid),
        boot_id: sweep::boot_id(),
        mark: mark.clone(),
        agent: agent.to_owned(),
    };
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child
        .stderr
        .take()
        .map_or_else(StderrTail::empty, StderrTail::read_from);
    let watch = DeathWatch {
        exit: await_exit(child),
        stderr,
    };
    let process = ChildProcess {
        pid,
        record: record.clone(),
        stdin,
        stdout,
        watch,
    };
    recorder.record(record).await.map_err(SpawnError::NotRecorded)?;
    Ok(process)
}

impl ChildProcess {
    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    /// What was recorded about it.
    #[must_use]
    pub fn record(&self) -> &SpawnRecord {
        &self.record
    }

    /// Its input and output, once.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.stdin.take()?, self.stdout.take()?))
    }

    /// Another eye on its end.
    #[must_use]
    pub fn watch(&self) -> DeathWatch {
        self.watch.clone()
    }

    /// Whether it is still running, as far as has been noticed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.watch.exit.borrow().is_none()
    }

    /// Ends the process, its group and every descendant. Whoever took the pipes must have closed its input before.
    ///
    /// `hurry` cuts every wait but the last one short: the second signal of an impatient user.
    pub async fn stop(&mut self, deadlines: StopDeadlines, hurry: &CancellationToken) -> StopReport {
        self.stdin = None;
        let stopped_by = self.end_leader(deadlines, hurry).await;
        if cfg!(not(target_os = "linux")) {
            // Nothing can be swept there, so the rest of the group is ended here. Its number is not given to another
            // process while members of it live.
            self.signal_group(Signal::KILL);
        }
        let target = SweepTarget::process(self.record.clone());
        let sweep_deadlines = SweepDeadlines {
            term: if hurry.is_cancelled() {
                Duration::ZERO
            } else {
                deadlines.term
            },
            kill: deadlines.kill,
        };
        let sweep = tokio::task::spawn_blocking(move || sweep::sweep(&target, sweep_deadlines)).await;
        let sweep = sweep.unwrap_or_else(|error| {
            tracing::error!(%error, pid = self.record.pid, "the sweep after an agent did not finish");
            SweepReport::default()
        });
        StopReport {
            stopped_by,
            status: *self.watch.exit.borrow(),
            sweep,
        }
    }

    async fn end_leader(&mut self, deadlines: StopDeadlines, hurry: &CancellationToken) -> StoppedBy {
        if !self.is_running() {
            return StoppedBy::Itself;
        }
        if self.gone_within(deadlines.eof, hurry).await {
            return StoppedBy::EndOfInput;
        }
        self.signal_group(Signal::TERM);
        if self.gone_within(deadlines.term, hurry).await {
            return StoppedBy::Terminate;
        }
        self.signal_group(Signal::KILL);
        if self.gone_within(deadlines.kill, &CancellationToken::new()).await {
            return StoppedBy::Kill;
        }
        tracing::error!(pid = self.record.pid, "an agent survived SIGKILL");
        StoppedBy::Nothing
    }

    async fn gone_within(&mut self, deadline: Duration, hurry: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            _ = self.watch.ended() => true,
            () = tokio::time::sleep(deadline) => false,
            () = hurry.cancelled() => false,
        }
    }

    fn signal_group(&self, signal: Signal) {
        match kill_process_group(self.pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(%error, pid = self.record.pid, ?signal, "an agent's group cannot be signalled");
            }
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        self.signal_group(Signal::KILL);
        let target = SweepTarget::process(self.record.clone());
        let at_once = SweepDeadlines {
            term: Duration::ZERO,
            kill: StopDeadlines::default().kill,
        };
        let swept = std::thread::Builder::new()
            .name("agent-sweep".to_owned())
            .spawn(move || {
                let report = sweep::sweep(&target, at_once);
                tracing::debug!(?report, "swept after a dropped agent");
            });
        if let Err(error) = swept {
            tracing::warn!(%error, pid = self.record.pid, "a dropped agent's descendants are not swept");
        }
    }
}

fn build(command: &AgentCommand, mark: &SpawnMark) -> Command {
    let mut built = Command::new(&command.program);
    built.args(&command.args).envs(&command.env);
    for name in &command.env_remove {
        built.env_remove(name);
    }
    built.env(MARK_VARIABLE, mark.to_string());
    if let Some(folder) = &command.working_dir {
        built.current_dir(folder);
    }
    built
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    built.process_group(0).kill_on_drop(true);
    built
}

/// Reaps the child and tells every watch; in a task of its own, so that nobody's cancellation leaves a zombie.
fn await_exit(mut child: Child) -> watch::Receiver<Option<ExitStatus>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        match child.wait().await {
            Ok(status) => {
                sender.send_replace(Some(status));
            }
            Err(error) => tracing::error!(%error, "the end of an agent cannot be awaited"),
        }
    });
    receiver
}

fn spawn_error(command: &AgentCommand, source: io::Error) -> SpawnError {
    // The system gives the same code for a missing folder and a missing program.
    if let Some(folder) = &command.working_dir
        && let Err(source) = std::fs::read_dir(folder)
    {
        return SpawnError::WorkingDir {
            folder: folder.clone(),
            source,
        };
    }
    let program = command.program.clone();
    let is_format_error = source.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::Missing { program },
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program, source },
        _ if is_format_error => SpawnError::NotExecutable { program, source },
        _ => SpawnError::System { program, source },
    }
}

/// A recorder that keeps nothing, for a daemon that keeps everything in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRecorder;

impl SpawnRecorder for NoRecorder {
    fn record(&self, _: SpawnRecord) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(&self, _: SpawnMark) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
