//! A snapshot of the process table from `/proc`, and which of its processes are targets.
//!
//! Reading is separate from deciding: [`select_targets`] is a pure function of what was read. This module sends no
//! signals.
//!
//! A daemon that was started inside an agent inherits that agent's mark, descends from it and may be in its session.
//! Neither it nor its own agents count as part of that agent. [`is_daemon`] recognises it by the lock that it holds;
//! nothing else makes a process a daemon. A daemon on a copy of the data folder uses the same marks and records as
//! this one, so its agents are recognised by their parent.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Pid;

use super::{SweepTarget, SweptProcess};
use crate::agent::process::MARK_VARIABLE;
use crate::paths::lock_holder;
use crate::store::ProcessRecord;

/// The parent of the kernel's threads, which have no environment and cannot be signalled.
const KERNEL_THREADS: u32 = 2;

/// Enough for a `stat` line and for most environments.
const USUAL_PROC_BYTES: usize = 8 * 1024;

/// How often a process without an environment is read again. An exec takes far less than all these pauses.
const REREADS: usize = 5;

/// The pause before each read.
const REREAD_PAUSE: Duration = Duration::from_millis(2);

/// One process: the relevant fields of `/proc/<pid>/stat`, and its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) has_ended: bool,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) start_time: u64,
    pub(super) mark: EnvironmentMark,
}

impl Process {
    /// Identifies the process among all processes with this pid.
    pub(super) fn key(&self) -> ProcessKey {
        (self.pid, self.start_time)
    }

    pub(super) fn swept(&self) -> SweptProcess {
        SweptProcess {
            pid: self.pid,
            name: self.name.clone(),
        }
    }
}

/// The pid and start time of a process.
pub(super) type ProcessKey = (u32, u64);

/// What the environment of a process shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvironmentMark {
    /// A wanted mark.
    Wanted,
    /// Another mark.
    Other,
    /// No mark.
    None,
    /// No environment: it was cleared on purpose, or is not set up yet.
    NoEnvironment,
}

/// Reads the `stat` line of a process, without its mark. `None` if it does not exist or is malformed.
pub(super) fn read_stat(pid: u32) -> Option<Process> {
    let line = read_proc(pid, "stat").ok()?;
    // The name may be any bytes.
    parse_stat(&String::from_utf8_lossy(&line))
}

/// Parses the text of a `stat` file. The name is in parentheses and may contain spaces and parentheses, so the last
/// one ends it.
pub(super) fn parse_stat(text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let (pid, name) = before.split_once('(')?;
    // `state` is field 3 of the line and the first one here.
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        has_ended: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: fields.get(19)?.parse().ok()?,
        mark: EnvironmentMark::None,
    })
}

/// Returns the children of this process, including those that have ended but are not yet reaped.
pub(super) fn children() -> impl Iterator<Item = Process> {
    let own_pid = std::process::id();
    let stats = entries().filter_map(|(pid, _)| read_stat(pid));
    stats.filter(move |stat| stat.parent == own_pid)
}

/// Returns the pid and the folder of each process.
fn entries() -> impl Iterator<Item = (u32, fs::DirEntry)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry)))
}

/// Reads all living processes of this user except this one, and looks for the marks of `target`.
pub(super) fn scan(target: &SweepTarget) -> Vec<Process> {
    let own_uid = rustix::process::geteuid().as_raw();
    let own_pid = std::process::id();
    let patterns = MarkPatterns::new(target);
    let is_other = |(pid, entry): &(u32, fs::DirEntry)| {
        *pid != own_pid && entry.metadata().is_ok_and(|metadata| metadata.uid() == own_uid)
    };
    let mut processes = Vec::new();
    let mut pending = Vec::new();
    for (pid, _) in entries().filter(is_other) {
        let Some(mut process) = read_stat(pid).filter(|process| !process.has_ended) else {
            continue;
        };
        let is_kernel_thread = pid == KERNEL_THREADS || process.parent == KERNEL_THREADS;
        if !patterns.is_empty() && !is_kernel_thread {
            process.mark = patterns.read_mark(pid);
        }
        if process.mark == EnvironmentMark::NoEnvironment {
            pending.push(processes.len());
        }
        processes.push(process);
    }
    reread_environments(&patterns, &mut processes, pending);
    processes
}

/// Reads processes without an environment again. A process has none for a moment during an exec, and treating it as
/// unmarked would leave it running.
fn reread_environments(needles: &MarkPatterns, processes: &mut [Process], mut pending: Vec<usize>) {
    for _ in 0..REREADS {
        if pending.is_empty() {
            return;
        }
        // Nothing signals the end of an exec.
        std::thread::sleep(REREAD_PAUSE);
        pending.retain(|index| {
            let Some(process) = processes.get_mut(*index) else {
                return false;
            };
            let mark = needles.read_mark(process.pid);
            let is_same = read_stat(process.pid).is_some_and(|stat| stat.start_time == process.start_time);
            process.mark = if is_same { mark } else { EnvironmentMark::None };
            process.mark == EnvironmentMark::NoEnvironment
        });
    }
}

/// Selects the target processes: the marked ones, the recorded ones that are still the same process, the `known` ones, those in
/// a group or session that a `known` process led, the `orphans`, and the descendants of all of them. Excludes processes with
/// another mark, the `daemons`, and the descendants of the daemons.
///
/// `known` processes were found in an earlier scan. A process that one of them forked just before it ended now has
/// another parent and perhaps no mark, but still has the same group and session. The kernel does not reuse the number
/// of a group or session while it has members. So if another process has that number as its pid, the group or session
/// is a later one.
pub(super) fn select_targets<'table>(
    processes: &'table [Process],
    recorded: &[ProcessRecord],
    boot_id: Option<&str>,
    known: &HashSet<ProcessKey>,
    orphans: &HashSet<u32>,
    daemons: &HashSet<u32>,
) -> Vec<&'table Process> {
    let excluded = descendants(processes, daemons.iter().copied().collect(), &HashSet::new());
    let mut leaders: HashSet<u32> = known.iter().map(|(pid, _)| *pid).collect();
    for process in processes {
        if !known.contains(&process.key()) {
            leaders.remove(&process.pid);
        }
    }
    let is_target = |process: &Process| match process.mark {
        EnvironmentMark::Wanted => true,
        EnvironmentMark::Other => false,
        EnvironmentMark::None | EnvironmentMark::NoEnvironment => {
            known.contains(&process.key())
                || leaders.contains(&process.group)
                || leaders.contains(&process.session)
                || orphans.contains(&process.pid)
        }
    };
    let roots = processes.iter().filter(|process| {
        let is_recorded = recorded
            .iter()
            .any(|record| is_recorded(process, record, boot_id));
        // A recorded process is a target even if it has become a daemon, but not if it is the agent of another daemon.
        (is_recorded && !excluded.contains(&process.parent))
            || (is_target(process) && !excluded.contains(&process.pid))
    });
    let found = descendants(processes, roots.map(|process| process.pid).collect(), &excluded);
    processes
        .iter()
        .filter(|process| found.contains(&process.pid))
        .collect()
}

/// Returns the processes with these pids and all their descendants, without `excluded` and their descendants.
pub(super) fn descendants(processes: &[Process], roots: Vec<u32>, excluded: &HashSet<u32>) -> HashSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in processes
        .iter()
        .filter(|process| !excluded.contains(&process.pid))
    {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut visited: HashSet<u32> = HashSet::new();
    let mut waiting = roots;
    while let Some(pid) = waiting.pop() {
        if visited.insert(pid) {
            waiting.extend(children.get(&pid).into_iter().flatten().copied());
        }
    }
    visited
}

/// Whether a process is a daemon.
pub(super) fn is_daemon(pid: u32) -> bool {
    lock_holder::data_folder_of(pid).is_some()
}

fn is_recorded(process: &Process, record: &ProcessRecord, boot_id: Option<&str>) -> bool {
    process.pid == record.pid
        && record.start_time_ticks == Some(process.start_time)
        && record.boot_id.is_some()
        && record.boot_id.as_deref() == boot_id
}

/// The environment entries to look for.
struct MarkPatterns {
    exact: Vec<Vec<u8>>,
    prefix: Option<Vec<u8>>,
}

impl MarkPatterns {
    fn new(target: &SweepTarget) -> Self {
        Self {
            exact: target
                .marks
                .iter()
                .map(|mark| mark.environment_entry().into_bytes())
                .collect(),
            prefix: target
                .instance
                .as_ref()
                .map(|instance| instance.environment_prefix().into_bytes()),
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefix.is_none()
    }

    fn read_mark(&self, pid: u32) -> EnvironmentMark {
        match read_proc(pid, "environ") {
            Ok(environment) if environment.is_empty() => EnvironmentMark::NoEnvironment,
            Ok(environment) => self.mark_in(&environment),
            Err(_) => EnvironmentMark::None,
        }
    }

    fn mark_in(&self, environment: &[u8]) -> EnvironmentMark {
        let entries = environment.split(|byte| *byte == 0);
        let mut marks = entries
            .filter(|entry| {
                let value = entry.strip_prefix(MARK_VARIABLE.as_bytes());
                value.is_some_and(|value| value.starts_with(b"="))
            })
            .peekable();
        if marks.peek().is_none() {
            return EnvironmentMark::None;
        }
        let is_wanted = |entry: &[u8]| {
            let prefix = self.prefix.as_ref();
            self.exact.iter().any(|exact| exact == entry)
                || prefix.is_some_and(|prefix| entry.starts_with(prefix))
        };
        if marks.any(is_wanted) {
            EnvironmentMark::Wanted
        } else {
            EnvironmentMark::Other
        }
    }
}

pub(super) fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Reads a file of a process with four system calls. `fs::read` needs a dozen, for each process of the system: it begins with
/// 32 bytes and doubles them, because the kernel reports a size of 0. `take` prevents a query of that size.
fn read_proc(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(USUAL_PROC_BYTES);
    File::open(proc_path(pid, file))?
        .take(u64::MAX)
        .read_to_end(&mut content)?;
    Ok(content)
}

pub(super) fn proc_path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}
