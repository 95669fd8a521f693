//! Ending what an agent leaves behind: every descendant, also one in a session and group of its own.
//!
//! On Linux they are found by the mark in their environment, by the recorded pid where its start time and the boot
//! are the recorded ones, and by descending from any of those, which finds a process that has scrubbed its
//! environment. They get SIGTERM, then SIGKILL, until a scan finds none. No process is signalled whose start time is
//! not the one that was scanned, none of another user, never this one, and no other daemon, nor what is below that.
//! Elsewhere nothing is swept: there the group kill of [`super::process`] is all there is.
//!
//! Everything here blocks and belongs into `spawn_blocking`. It owns no process and must not know agents, pipes or
//! tasks.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod watch;

use std::time::Duration;

use super::process::{Instance, SpawnMark, SpawnRecord};

/// How long the swept processes get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepDeadlines {
    /// From SIGTERM to SIGKILL; zero kills at once.
    pub term: Duration,
    /// From SIGKILL until a process is given up as unkillable.
    pub kill: Duration,
}

impl Default for SweepDeadlines {
    /// The same as for a stop: tools may take a moment to end cleanly.
    fn default() -> Self {
        Self {
            term: Duration::from_secs(5),
            kill: Duration::from_secs(2),
        }
    }
}

/// Which processes are meant.
#[derive(Debug, Clone, Default)]
pub struct SweepTarget {
    marks: Vec<SpawnMark>,
    instance: Option<Instance>,
    recorded: Vec<SpawnRecord>,
}

impl SweepTarget {
    /// One agent and its descendants.
    #[must_use]
    pub fn process(record: SpawnRecord) -> Self {
        Self {
            marks: vec![record.mark.clone()],
            instance: None,
            recorded: vec![record],
        }
    }

    /// Agents and their descendants, as far as these marks show them.
    #[must_use]
    pub fn marked(marks: Vec<SpawnMark>) -> Self {
        Self {
            marks,
            instance: None,
            recorded: Vec::new(),
        }
    }

    /// Everything that any life of this instance has left: what a daemon does when it starts.
    #[must_use]
    pub fn instance(instance: Instance, recorded: Vec<SpawnRecord>) -> Self {
        Self {
            marks: Vec::new(),
            instance: Some(instance),
            recorded,
        }
    }
}

/// A process that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Process id.
    pub pid: u32,
    /// The kernel's short name of it.
    pub name: String,
    /// The strongest signal that it needed.
    pub signal: SweepSignal,
}

/// What a swept process was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepSignal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// A process that could not be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Process id.
    pub pid: u32,
    /// The kernel's short name of it.
    pub name: String,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// What it ended.
    pub ended: Vec<Ended>,
    /// What was still there at the end; empty is the good case.
    pub survivors: Vec<Survivor>,
}

/// Ends every process that the target means, and waits until they are gone.
#[must_use]
pub fn sweep(target: &SweepTarget, deadlines: SweepDeadlines) -> SweepReport {
    #[cfg(target_os = "linux")]
    return linux::sweep(target, deadlines);
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = (target, deadlines);
        SweepReport::default()
    }
}

/// The processes that the target means, without touching them; the agent itself among them while it runs.
#[must_use]
pub fn find(target: &SweepTarget) -> Vec<u32> {
    #[cfg(target_os = "linux")]
    return linux::find(target);
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = target;
        Vec::new()
    }
}

/// The living descendants of a process, by their parents; none where there is no `/proc`. One that outlived its own
/// parent is not seen here; [`find`] sees it by its mark.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    #[cfg(target_os = "linux")]
    return linux::descendants(pid);
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = pid;
        Vec::new()
    }
}

/// Processes whose ends are waited for; none where there is no `/proc`. They are not touched.
#[derive(Debug)]
pub struct Watch {
    #[cfg(target_os = "linux")]
    watched: watch::Watched,
}

impl Watch {
    /// The descendants of an agent that one of its sessions has to itself: their command line has an argument that ends
    /// with the session's handle.
    #[must_use]
    pub fn of_session(pid: u32, handle: &str) -> Self {
        #[cfg(not(target_os = "linux"))]
        let _unused = (pid, handle);
        Self {
            #[cfg(target_os = "linux")]
            watched: watch::Watched::naming(pid, handle),
        }
    }

    /// Waits until all have ended; whether they did in time.
    #[must_use]
    pub fn wait(self, limit: Duration) -> bool {
        #[cfg(target_os = "linux")]
        return self.watched.wait(limit);
        #[cfg(not(target_os = "linux"))]
        {
            let _unused = limit;
            true
        }
    }
}

/// Field 22 of `/proc/<pid>/stat`: with the boot id it tells a process from a later one with the same pid.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    #[cfg(target_os = "linux")]
    return table::read_stat(pid).map(|stat| stat.start_time);
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = pid;
        None
    }
}

/// The kernel's id of this boot.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
