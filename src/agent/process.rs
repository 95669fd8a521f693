//! One agent process: starting it, observing its end, stopping it.
//!
//! A process gets its own process group, pipes for its three streams, and a mark in its environment that every
//! descendant inherits. The spawn is recorded before the caller gets the pipes, so the next run of the daemon knows
//! every process that did any work. A stop escalates: end of input, SIGTERM to the group, SIGKILL to the group, then
//! [`super::sweep`].
//!
//! This module owns the child and its standard error. It does not know JSON-RPC, sessions or pools. It does not use
//! parent-death signals, which need unsafe code; the recorded mark serves the same purpose.

mod mark;
mod stderr;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::AgentName;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use mark::{Instance, MARK_VARIABLE, SpawnMark};
pub use stderr::{STDERR_TAIL_BYTES, StderrTail};

use super::catalog::find_program;
use super::sweep::{self, ProcessTree, SweepReport, SweepTarget};
use crate::store::{self, Change, ProcessRecord, RECORD_VERSION, Store, StoreError};

/// How to start an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCommand {
    /// A path, or a name that is looked up on `PATH`.
    pub program: PathBuf,
    /// The arguments.
    pub args: Vec<OsString>,
    /// Variables to add to the environment.
    pub env: BTreeMap<String, String>,
    /// Variables to remove from the environment.
    pub env_remove: Vec<String>,
}

impl AgentCommand {
    /// Returns the search path for its program.
    #[must_use]
    pub fn search_path(&self) -> Option<OsString> {
        let own = self.env.get("PATH");
        own.map(OsString::from).or_else(|| std::env::var_os("PATH"))
    }

    /// Returns the file to which its program currently resolves. `None` if it is not found.
    #[must_use]
    pub fn program_file(&self) -> Option<ProgramFile> {
        let program = find_program(&self.program, self.search_path().as_deref())?;
        let metadata = program.metadata().ok()?;
        Some(ProgramFile {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The identity of a program's file. It changes when the program is upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramFile {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program does not exist.
    #[error(
        "the agent's program {program:?} was not found; install it, or set `command` in its configuration to the \
         program's full path"
    )]
    Missing {
        /// The program as configured.
        program: PathBuf,
    },
    /// The file exists, but cannot be executed.
    #[error("the agent's program {program:?} cannot be executed; check its permissions and its format")]
    NotExecutable {
        /// The program as configured.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system has no more processes, memory or pipes.
    #[error("the agent's program {program:?} cannot be started")]
    System {
        /// The program as configured.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The process started, but could not be recorded, and was killed.
    #[error("the agent was not started: the spawn cannot be recorded")]
    NotRecorded(#[source] StoreError),
    /// The process ended before it answered `initialize`.
    #[error("the agent's program {program:?} ended before it was ready{printed}: {death}")]
    DiedAtOnce {
        /// The program as configured.
        program: PathBuf,
        /// Its exit status and the end of its standard error.
        death: Arc<Death>,
        /// What it printed instead of messages, as a suffix for a sentence; usually empty.
        printed: String,
    },
}

/// How an agent ended, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Death {
    /// The exit status. Absent if its output ended before the process.
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
            write!(formatter, "; it printed: {}", line.trim())?;
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
    /// From SIGKILL until the stop gives up.
    pub kill: Duration,
}

impl Default for StopDeadlines {
    /// Claude needs up to 2 s after the end of its input. Codex needs 7 s then, but 0.3 s after SIGTERM. So the grace
    /// is short, and the 5 s after SIGTERM let tools end cleanly.
    fn default() -> Self {
        Self {
            eof: Duration::from_secs(2),
            term: Duration::from_secs(5),
            kill: Duration::from_secs(2),
        }
    }
}

impl StopDeadlines {
    /// Returns the deadlines of the sweep after a stop. `hurry` skips the wait after SIGTERM.
    #[must_use]
    pub fn for_sweep(self, hurry: &CancellationToken) -> Self {
        let term = match hurry.is_cancelled() {
            true => Duration::ZERO,
            false => self.term,
        };
        Self { term, ..self }
    }
}

/// The step of a stop that ended the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopStep {
    /// It had already ended.
    AlreadyEnded,
    /// The end of its input.
    EndOfInput,
    /// SIGTERM to its group.
    Terminate,
    /// SIGKILL to its group.
    Kill,
    /// No step ended it: it was still running when the deadline after SIGKILL passed.
    Survived,
}

/// The result of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReport {
    /// The step that ended the process.
    pub last_step: StopStep,
    /// Its exit status.
    pub status: Option<ExitStatus>,
    /// The result of the sweep afterwards.
    pub sweep: SweepReport,
}

impl StopReport {
    /// Whether the process and all its descendants have ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.last_step != StopStep::Survived && self.sweep.survivors.is_empty()
    }
}

/// Observes the end of a process. The wire waits for it as well as for the end of the output.
#[derive(Debug, Clone)]
pub struct DeathWatch {
    exit: watch::Receiver<Option<ExitStatus>>,
    stderr: StderrTail,
}

impl DeathWatch {
    /// Waits until the process has ended; forever if there is none. Cancel safe.
    pub async fn ended(&mut self) -> ExitStatus {
        match self.exit.wait_for(Option::is_some).await.map(|status| *status) {
            Ok(Some(status)) => status,
            _ => std::future::pending().await,
        }
    }

    /// Returns how the process ended, after its output ended. Waits up to `patience` for its exit, and briefly for
    /// the rest of its standard error.
    pub async fn death_within(&mut self, patience: Duration) -> Death {
        match tokio::time::timeout(patience, self.exit.wait_for(Option::is_some)).await {
            // Ended, or there is no process.
            Ok(_) => {}
            Err(_) => tracing::debug!("an agent's output ended, but its process did not"),
        }
        self.stderr.wait_for_rest().await;
        Death {
            status: *self.exit.borrow(),
            stderr_tail: self.stderr.text(),
        }
    }
}

/// A started agent. Dropping it while it runs kills its process group, and a thread sweeps its descendants.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    record: ProcessRecord,
    watch: DeathWatch,
    /// Its descendants, recorded before it was asked to end.
    descendants: ProcessTree,
}

/// Starts an agent and records the spawn. Returns the process, its input and its output.
///
/// Must be called inside a tokio runtime with I/O and time enabled.
///
/// # Errors
///
/// [`SpawnError`]. A started process is killed.
pub async fn spawn(
    command: &AgentCommand,
    agent: &str,
    mark: &SpawnMark,
    store: &Store,
) -> Result<(ChildProcess, ChildStdin, ChildStdout), SpawnError> {
    let mut child = {
        let mut started = sweep::started_children();
        let child = build(command, mark).spawn();
        started.extend(child.as_ref().ok().and_then(Child::id));
        child.map_err(|error| spawn_error(command, error))?
    };
    let spawn_failed = || SpawnError::System {
        program: command.program.clone(),
        source: io::Error::other("the new process has no id or no pipes"),
    };
    // Read both before the child can be reaped: until then, even an ended process is listed.
    let raw_pid = child.id().ok_or_else(spawn_failed)?;
    let pid = i32::try_from(raw_pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(spawn_failed)?;
    let record = ProcessRecord {
        version: RECORD_VERSION,
        mark: mark.to_string(),
        pid: raw_pid,
        start_time_ticks: sweep::start_time(raw_pid),
        boot_id: store::boot_id(),
        agent: AgentName::new(agent),
        spawned_at: Timestamp::now(),
    };
    let stdin = child.stdin.take().ok_or_else(spawn_failed)?;
    let stdout = child.stdout.take().ok_or_else(spawn_failed)?;
    let stderr = child.stderr.take().ok_or_else(spawn_failed)?;
    let watch = DeathWatch {
        exit: await_exit(child),
        stderr: StderrTail::read_from(stderr),
    };
    let process = ChildProcess {
        pid,
        record: record.clone(),
        watch,
        descendants: ProcessTree::default(),
    };
    let recorded = Change {
        processes_put: vec![record],
        ..Change::default()
    };
    store.commit(recorded).await.map_err(SpawnError::NotRecorded)?;
    Ok((process, stdin, stdout))
}

impl ChildProcess {
    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    /// Returns its record.
    #[must_use]
    pub fn record(&self) -> &ProcessRecord {
        &self.record
    }

    /// Returns another watch for its end.
    #[must_use]
    pub fn watch(&self) -> DeathWatch {
        self.watch.clone()
    }

    /// Whether it is still running, as far as noticed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.watch.exit.borrow().is_none()
    }

    /// Records its descendants for [`ChildProcess::stop`]. Once the process has ended, descendants without a mark can no
    /// longer be traced to it, so call this before closing its input.
    pub async fn record_descendants(&mut self) {
        let record = self.record.clone();
        match tokio::task::spawn_blocking(move || ProcessTree::of(&record)).await {
            Ok(family) => self.descendants = family,
            Err(error) => {
                tracing::error!(%error, pid = self.record.pid, "cannot note the descendants of an agent");
            }
        }
    }

    /// Ends the process, its group and every descendant. The owner of the pipes must have closed its input before.
    ///
    /// `hurry` skips all waits but the last one: the user sent a second signal.
    pub async fn stop(&mut self, deadlines: StopDeadlines, skip_waits: &CancellationToken) -> StopReport {
        let stopped_by = self.end_leader(deadlines, skip_waits).await;
        if cfg!(not(target_os = "linux")) {
            // Those systems have no sweep, so kill the rest of the group. A group's number is not reused while it has
            // members.
            self.signal_group(Signal::KILL);
        }
        let target =
            SweepTarget::process(self.record.clone()).with_descendants(std::mem::take(&mut self.descendants));
        let sweep_deadlines = deadlines.for_sweep(skip_waits);
        let sweep = tokio::task::spawn_blocking(move || sweep::sweep(&target, sweep_deadlines)).await;
        let sweep = sweep.unwrap_or_else(|error| {
            tracing::error!(%error, pid = self.record.pid, "the sweep after an agent failed");
            SweepReport::default()
        });
        StopReport {
            last_step: stopped_by,
            status: *self.watch.exit.borrow(),
            sweep,
        }
    }

    async fn end_leader(&mut self, deadlines: StopDeadlines, skip_waits: &CancellationToken) -> StopStep {
        if !self.is_running() {
            return StopStep::AlreadyEnded;
        }
        if self.ends_within(deadlines.eof, skip_waits).await {
            return StopStep::EndOfInput;
        }
        self.signal_group(Signal::TERM);
        if self.ends_within(deadlines.term, skip_waits).await {
            return StopStep::Terminate;
        }
        self.signal_group(Signal::KILL);
        if self.ends_within(deadlines.kill, &CancellationToken::new()).await {
            return StopStep::Kill;
        }
        tracing::error!(pid = self.record.pid, "an agent survived SIGKILL");
        StopStep::Survived
    }

    async fn ends_within(&mut self, deadline: Duration, hurry: &CancellationToken) -> bool {
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
                tracing::warn!(%error, pid = self.record.pid, ?signal, "cannot signal an agent's process group");
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
        let at_once = StopDeadlines {
            term: Duration::ZERO,
            ..StopDeadlines::default()
        };
        let swept = std::thread::Builder::new()
            .name("agent-sweep".to_owned())
            .spawn(move || {
                let report = sweep::sweep(&target, at_once);
                tracing::debug!(?report, "swept after a dropped agent");
            });
        if let Err(error) = swept {
            tracing::warn!(%error, pid = self.record.pid, "cannot sweep the descendants of a dropped agent");
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
    built
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    built.process_group(0).kill_on_drop(true);
    built
}

/// Reaps the child and notifies every watch. A separate task, so that a cancelled caller leaves no zombie.
fn await_exit(mut child: Child) -> watch::Receiver<Option<ExitStatus>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let pid = child.id();
        let ended = child.wait().await;
        sweep::started_children().retain(|started| Some(*started) != pid);
        match ended {
            Ok(status) => {
                sender.send_replace(Some(status));
            }
            Err(error) => tracing::error!(%error, "cannot wait for the end of an agent"),
        }
    });
    receiver
}

fn spawn_error(command: &AgentCommand, source: io::Error) -> SpawnError {
    let program = command.program.clone();
    let is_format_error = source.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::Missing { program },
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program, source },
        _ if is_format_error => SpawnError::NotExecutable { program, source },
        _ => SpawnError::System { program, source },
    }
}
