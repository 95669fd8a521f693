//! The sweep: scan, signal and wait until no target is left.
//!
//! This module owns the process descriptors while it waits, so a process cannot be mistaken for a later one with its pid.
//! `table` decides which processes are targets.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

pub use super::orphans::adopt_orphans;
use super::orphans::are_adopted;
use super::table::{self, Process, ProcessKey};
use super::{ProcessRecord, ProcessTree, StopDeadlines, SweepReport, SweepTarget, SweptProcess};
use crate::store::boot_id;

/// After this many scans, the remaining targets are reported as survivors: they create processes faster than the sweep
/// can end them.
const MAX_ROUNDS: usize = 16;

/// From this round on, SIGKILL is sent at once: new processes were created by processes that had been signalled.
const KILL_FROM_ROUND: usize = 2;

/// How often a process without a descriptor is checked, on kernels before 5.3.
const RECHECK: Duration = Duration::from_millis(10);

/// Ends all target processes and waits until they have ended. The deadlines are those after SIGTERM, which is not sent if
/// this one is zero, and after SIGKILL.
#[must_use]
pub fn sweep(target: &SweepTarget, deadlines: StopDeadlines) -> SweepReport {
    let boot_id = boot_id();
    let mut ended: HashMap<ProcessKey, SweptProcess> = HashMap::new();
    let mut unkillable: Vec<ProcessKey> = Vec::new();
    let mut known: HashSet<ProcessKey> = target.descendants.0.iter().copied().collect();
    for round in 0..=MAX_ROUNDS {
        let (processes, orphans) = scan(target);
        let mut targets = select_targets(&processes, target, boot_id.as_deref(), &known, &orphans);
        if targets.iter().all(|process| unkillable.contains(&process.key())) {
            return report(ended, &targets);
        }
        if round == MAX_ROUNDS {
            return report(ended, &targets);
        }
        known.extend(targets.iter().map(|process| process.key()));
        targets.retain(|process| !unkillable.contains(&process.key()));
        let mut open: Vec<OpenProcess<'_>> = targets.into_iter().filter_map(OpenProcess::open).collect();
        if round < KILL_FROM_ROUND && !deadlines.term.is_zero() {
            signal_and_wait(&mut open, Signal::TERM, deadlines.term, &mut ended);
        }
        signal_and_wait(&mut open, Signal::KILL, deadlines.kill, &mut ended);
        unkillable.extend(open.iter().map(OpenProcess::key));
    }
    SweepReport::default()
}

/// Reads the processes. If the target includes orphans, also returns which ones are: children that this process did not
/// start.
fn scan(target: &SweepTarget) -> (Vec<Process>, HashSet<u32>) {
    if !target.includes_orphans || !are_adopted() {
        return (table::scan(target), HashSet::new());
    }
    // Hold the lock during the scan. Otherwise a process that is being started would be taken for an orphan.
    let started = super::started_children();
    let (processes, own) = (table::scan(target), std::process::id());
    let children = processes.iter().filter(|process| process.parent == own);
    let orphans = children
        .map(|child| child.pid)
        .filter(|pid| !started.contains(pid));
    let orphans = orphans.collect();
    (processes, orphans)
}

/// Finds the target processes without signalling them. Includes the agent itself while it runs.
#[must_use]
pub fn find(target: &SweepTarget) -> Vec<u32> {
    let processes = table::scan(target);
    let boot_id = boot_id();
    let none = HashSet::new();
    let found = select_targets(&processes, target, boot_id.as_deref(), &none, &HashSet::new());
    found.into_iter().map(|process| process.pid).collect()
}

/// Returns the living descendants of a process by parent pid. Does not find a descendant whose own parent has ended;
/// [`find`] does, by its mark.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let processes = table::scan(&SweepTarget::default());
    let mut family = table::descendants(&processes, vec![pid], &HashSet::new());
    family.remove(&pid);
    family.into_iter().collect()
}

/// Field 22 of `/proc/<pid>/stat`. Together with the boot id, it distinguishes a process from a later one with the
/// same pid.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    table::read_stat(pid).map(|stat| stat.start_time)
}

impl ProcessTree {
    /// Returns the tree of a recorded process; empty if the process has ended.
    #[must_use]
    pub fn of(record: &ProcessRecord) -> Self {
        // The pid may belong to another process by now.
        let is_running = table::read_stat(record.pid)
            .is_some_and(|process| !process.has_ended && Some(process.start_time) == record.start_time_ticks);
        if !is_running {
            return Self::default();
        }
        let processes = table::scan(&SweepTarget::default());
        let family = table::descendants(&processes, vec![record.pid], &HashSet::new());
        let members = processes.iter().filter(|process| family.contains(&process.pid));
        Self(members.map(Process::key).collect())
    }
}

/// The pid of the first process, which adopts the orphans of every daemon.
const INIT_PID: u32 = 1;

/// Returns the target processes, without daemons and their descendants. A daemon on a copy of this data folder has agents with
/// the same marks and records: they are its children.
fn select_targets<'table>(
    processes: &'table [Process],
    target: &SweepTarget,
    boot_id: Option<&str>,
    known: &HashSet<ProcessKey>,
    orphans: &HashSet<u32>,
) -> Vec<&'table Process> {
    let select_without = |daemons: &HashSet<u32>| {
        table::select_targets(processes, &target.recorded, boot_id, known, orphans, daemons)
    };
    let targets = select_without(&HashSet::new());
    let own = std::process::id();
    let pids = targets.iter().flat_map(|process| [process.pid, process.parent]);
    let pids: HashSet<u32> = pids.filter(|pid| ![own, INIT_PID].contains(pid)).collect();
    let daemons: HashSet<u32> = pids.into_iter().filter(|pid| table::is_daemon(*pid)).collect();
    match daemons.is_empty() {
        true => targets,
        false => select_without(&daemons),
    }
}

fn report(ended: HashMap<ProcessKey, SweptProcess>, left: &[&Process]) -> SweepReport {
    let survivors = left.iter().map(|process| process.swept()).collect();
    let is_left = |key: &ProcessKey| left.iter().any(|process| process.key() == *key);
    let ended = ended.into_iter().filter(|(key, _)| !is_left(key));
    let mut ended: Vec<SweptProcess> = ended.map(|(_, ended)| ended).collect();
    ended.sort_by_key(|ended| ended.pid);
    SweepReport { ended, survivors }
}

/// A process to signal.
struct OpenProcess<'table> {
    process: &'table Process,
    pid: Pid,
    /// Absent if the kernel has no process descriptors.
    descriptor: Option<OwnedFd>,
}

impl<'table> OpenProcess<'table> {
    /// Opens a process. `None` if it has ended, or another process has its pid now. The start time is compared after
    /// opening the descriptor, so the descriptor cannot belong to a later process.
    fn open(process: &'table Process) -> Option<Self> {
        let pid = table::as_pid(process.pid)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok();
        let open = Self {
            process,
            pid,
            descriptor,
        };
        open.is_alive().then_some(open)
    }

    fn key(&self) -> ProcessKey {
        self.process.key()
    }

    fn is_alive(&self) -> bool {
        table::read_stat(self.process.pid)
            .is_some_and(|stat| !stat.has_ended && stat.start_time == self.process.start_time)
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        match &self.descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None if self.is_alive() => kill_process(self.pid, signal),
            None => Ok(()),
        }
    }
}

/// Signals all processes, waits until they have ended or the deadline has passed, and retains those that are left.
fn signal_and_wait(
    open: &mut Vec<OpenProcess<'_>>,
    signal: Signal,
    deadline: Duration,
    ended: &mut HashMap<ProcessKey, SweptProcess>,
) {
    for open_process in open.iter() {
        match open_process.signal(signal) {
            Ok(()) => {
                ended.insert(open_process.key(), open_process.process.swept());
            }
            Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(%error, pid = open_process.process.pid, name = open_process.process.name, "cannot signal a process");
            }
        }
    }
    let until = Instant::now() + deadline;
    loop {
        open.retain(OpenProcess::is_alive);
        let remaining = until.saturating_duration_since(Instant::now());
        if open.is_empty() || remaining.is_zero() {
            return;
        }
        wait_for_one(open, remaining);
    }
}

/// Waits until a process has ended or the time has passed. May return earlier if some processes cannot be polled.
fn wait_for_one(open: &[OpenProcess<'_>], left: Duration) {
    let descriptors: Vec<&OwnedFd> = open.iter().filter_map(|one| one.descriptor.as_ref()).collect();
    let wait = if descriptors.len() == open.len() {
        left
    } else {
        left.min(RECHECK)
    };
    if ended_within(&descriptors, wait).is_none() {
        // The processes cannot be polled, so the caller checks them again.
        std::thread::sleep(wait.min(RECHECK));
    }
}

/// Waits until a process has ended or the time has passed, and returns which ones have ended. `None` if they cannot be
/// polled.
fn ended_within(descriptors: &[&OwnedFd], wait: Duration) -> Option<Vec<bool>> {
    let timeout = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    let polled = descriptors.iter();
    let mut polled: Vec<PollFd<'_>> = polled
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN))
        .collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {
            Some(polled.iter().map(|one| !one.revents().is_empty()).collect())
        }
        Err(error) => {
            tracing::debug!(%error, "cannot poll processes");
            None
        }
    }
}

/// Processes to wait for, without signalling them.
#[derive(Debug)]
pub struct DescendantWatch(Vec<OwnedFd>);

impl DescendantWatch {
    /// Watches an agent's descendants that belong to one session: those with a command-line argument that ends with
    /// the session's handle.
    #[must_use]
    pub fn of_session(pid: u32, handle: &str) -> Self {
        let descriptors = descendants(pid).into_iter().filter_map(|found| {
            let descriptor = pidfd_open(table::as_pid(found)?, PidfdFlags::empty()).ok()?;
            // Read after opening the descriptor: this is the command line of that process, or nothing.
            let command_line = fs::read(table::proc_path(found, "cmdline")).ok()?;
            let names_it = command_line
                .split(|byte| *byte == 0)
                .any(|argument| argument.ends_with(handle.as_bytes()));
            names_it.then_some(descriptor)
        });
        Self(descriptors.collect())
    }

    /// Waits until all have ended. Returns whether they did in time.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.0.is_empty() {
            let remaining = until.saturating_duration_since(Instant::now());
            let Some(ended) = ended_within(&self.0.iter().collect::<Vec<_>>(), remaining) else {
                return false;
            };
            if remaining.is_zero() && !ended.contains(&true) {
                return false;
            }
            let mut ended = ended.into_iter();
            self.0.retain(|_| !ended.next().unwrap_or_default());
        }
        true
    }
}
