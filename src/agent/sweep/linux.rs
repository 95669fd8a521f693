//! Scan, signal, wait, until nothing is left.
//!
//! It owns the process descriptors while it waits; what is meant is decided in `table`.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::table::{self, Key, Process};
use super::{Ended, Survivor, SweepDeadlines, SweepReport, SweepSignal, SweepTarget};

/// After this many scans that still find someone, the rest is reported as surviving: something makes processes faster
/// than they can be ended.
const MAX_ROUNDS: usize = 16;

/// From this round on there is no SIGTERM first: whoever appears now was made by a process that was told to end.
const KILL_FROM_ROUND: usize = 2;

/// How often a process is looked at that has no descriptor to poll, on kernels before 5.3.
const RECHECK: Duration = Duration::from_millis(10);

/// See [`super::sweep`].
pub(super) fn sweep(target: &SweepTarget, deadlines: SweepDeadlines) -> SweepReport {
    let boot_id = super::boot_id();
    let mut ended: HashMap<Key, Ended> = HashMap::new();
    let mut unkillable: Vec<Key> = Vec::new();
    let mut known: HashSet<Key> = HashSet::new();
    for round in 0..=MAX_ROUNDS {
        let processes = table::scan(target);
        let mut found = meant(&processes, target, boot_id.as_deref(), &known);
        if found.iter().all(|process| unkillable.contains(&process.key())) {
            return report(ended, &found);
        }
        if round == MAX_ROUNDS {
            return report(ended, &found);
        }
        known.extend(found.iter().map(|process| process.key()));
        found.retain(|process| !unkillable.contains(&process.key()));
        let mut held: Vec<Held<'_>> = found.into_iter().filter_map(Held::open).collect();
        if round < KILL_FROM_ROUND && !deadlines.term.is_zero() {
            signal_and_wait(&mut held, SweepSignal::Terminate, deadlines.term, &mut ended);
        }
        signal_and_wait(&mut held, SweepSignal::Kill, deadlines.kill, &mut ended);
        unkillable.extend(held.iter().map(Held::key));
    }
    SweepReport::default()
}

/// See [`super::find`].
pub(super) fn find(target: &SweepTarget) -> Vec<u32> {
    let processes = table::scan(target);
    let boot_id = super::boot_id();
    let found = meant(&processes, target, boot_id.as_deref(), &HashSet::new());
    found.into_iter().map(|process| process.pid).collect()
}

/// See [`super::descendants`].
pub(super) fn descendants(pid: u32) -> Vec<u32> {
    let processes = table::scan(&SweepTarget::default());
    let mut family = table::descendants(&processes, vec![pid], &HashSet::new());
    family.remove(&pid);
    family.into_iter().collect()
}

/// The first process. Orphans of every daemon are its children, whatever it is.
const FIRST: u32 = 1;

/// The processes that are meant, without the daemons among them and what is theirs. A daemon on a copy of this data folder has
/// agents with the same marks and records: they are its children.
fn meant<'table>(
    processes: &'table [Process],
    target: &SweepTarget,
    boot_id: Option<&str>,
    known: &HashSet<Key>,
) -> Vec<&'table Process> {
    let but = |daemons: &HashSet<u32>| table::meant(processes, &target.recorded, boot_id, known, daemons);
    let found = but(&HashSet::new());
    let own = std::process::id();
    let pids = found.iter().flat_map(|process| [process.pid, process.parent]);
    let pids: HashSet<u32> = pids.filter(|pid| ![own, FIRST].contains(pid)).collect();
    let daemons: HashSet<u32> = pids.into_iter().filter(|pid| table::is_daemon(*pid)).collect();
    match daemons.is_empty() {
        true => found,
        false => but(&daemons),
    }
}

fn report(ended: HashMap<Key, Ended>, left: &[&Process]) -> SweepReport {
    let survivors: Vec<Survivor> = left
        .iter()
        .map(|process| Survivor {
            pid: process.pid,
            name: process.name.clone(),
        })
        .collect();
    let is_left = |key: &Key| left.iter().any(|process| process.key() == *key);
    let ended = ended.into_iter().filter(|(key, _)| !is_left(key));
    let mut ended: Vec<Ended> = ended.map(|(_, ended)| ended).collect();
    ended.sort_by_key(|ended| ended.pid);
    SweepReport { ended, survivors }
}

/// A process that is about to be signalled.
struct Held<'table> {
    process: &'table Process,
    pid: Pid,
    /// Absent where the kernel has no process descriptors.
    descriptor: Option<OwnedFd>,
}

impl<'table> Held<'table> {
    /// Takes hold of a process; none when it has gone meanwhile, or its pid belongs to another one now. The start
    /// time is compared after the descriptor was opened, so the descriptor cannot be a later process's.
    fn open(process: &'table Process) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok();
        let held = Self {
            process,
            pid,
            descriptor,
        };
        held.is_alive().then_some(held)
    }

    fn key(&self) -> Key {
        self.process.key()
    }

    fn is_alive(&self) -> bool {
        table::read_stat(self.process.pid)
            .is_some_and(|stat| !stat.is_gone && stat.start_time == self.process.start_time)
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        match &self.descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None if self.is_alive() => kill_process(self.pid, signal),
            None => Ok(()),
        }
    }
}

/// Signals all, waits until they are gone or the deadline has passed, and keeps those that are left.
fn signal_and_wait(
    held: &mut Vec<Held<'_>>,
    signal: SweepSignal,
    deadline: Duration,
    ended: &mut HashMap<Key, Ended>,
) {
    let number = match signal {
        SweepSignal::Terminate => Signal::TERM,
        SweepSignal::Kill => Signal::KILL,
    };
    for one in held.iter() {
        let name = one.process.name.clone();
        match one.signal(number) {
            Ok(()) => {
                ended.insert(
                    one.key(),
                    Ended {
                        pid: one.process.pid,
                        name,
                        signal,
                    },
                );
            }
            Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(%error, pid = one.process.pid, name, "a process cannot be signalled");
            }
        }
    }
    let until = Instant::now() + deadline;
    loop {
        held.retain(Held::is_alive);
        let left = until.saturating_duration_since(Instant::now());
        if held.is_empty() || left.is_zero() {
            return;
        }
        wait_for_one(held, left);
    }
}

/// Returns when one of them has ended, or after the given time, or earlier where not all can be polled.
fn wait_for_one(held: &[Held<'_>], left: Duration) {
    let mut polled: Vec<PollFd<'_>> = held
        .iter()
        .filter_map(|one| one.descriptor.as_ref())
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN))
        .collect();
    let wait = if polled.len() == held.len() {
        left
    } else {
        left.min(RECHECK)
    };
    let timeout = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    if let Err(error) = poll(&mut polled, Some(&timeout))
        && error != rustix::io::Errno::INTR
    {
        // Without polling only looking again remains.
        tracing::debug!(%error, "processes cannot be polled");
        std::thread::sleep(wait.min(RECHECK));
    }
}
