//! Ends every descendant that an agent leaves running, even one in its own session and group.
//!
//! On Linux, descendants are found by the mark in their environment, by the recorded pid if start time and boot match, and by
//! descent from any of those, now or before the agent ended. Descent finds processes that cleared their environment. A process
//! whose ancestors have all ended becomes a child of the daemon ([`adopt_orphans`]), which ends it when it stops. A sweep sends
//! SIGTERM, then SIGKILL, until a scan finds no process. Never signalled: a process whose start time differs from the scan, a
//! process of another user, this process, and another daemon with its descendants. On other systems nothing is swept; there is
//! only the group kill of [`super::process`].
//!
//! Everything here blocks: call it in `spawn_blocking`. This module owns no process. It does not know agents, pipes
//! or tasks.

#[cfg(target_os = "linux")]
mod orphans;
#[cfg_attr(target_os = "linux", path = "sweep/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "sweep/elsewhere.rs")]
mod system;
#[cfg(target_os = "linux")]
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process::{Instance, SpawnMark, StopDeadlines};
use crate::store::ProcessRecord;
pub use system::{DescendantWatch, adopt_orphans, descendants, find, start_time, sweep};

/// The processes to sweep.
#[derive(Debug, Clone, Default)]
pub struct SweepTarget {
    marks: Vec<SpawnMark>,
    instance: Option<Instance>,
    recorded: Vec<ProcessRecord>,
    /// Processes that descended from the agent when they were found.
    descendants: ProcessTree,
    /// Whether the orphans among this process's children are included.
    includes_orphans: bool,
}

/// Pid and start time of a process and its descendants.
#[derive(Debug, Clone, Default)]
pub struct ProcessTree(Vec<(u32, u64)>);

impl SweepTarget {
    /// Targets one agent and its descendants.
    #[must_use]
    pub fn process(record: ProcessRecord) -> Self {
        Self {
            marks: SpawnMark::parse(&record.mark).into_iter().collect(),
            recorded: vec![record],
            ..Self::default()
        }
    }

    /// Adds processes that were recorded earlier as its descendants.
    #[must_use]
    pub fn with_descendants(self, family: ProcessTree) -> Self {
        Self {
            descendants: family,
            ..self
        }
    }

    /// Targets the agents with these marks and their descendants.
    #[must_use]
    pub fn marked(marks: Vec<SpawnMark>) -> Self {
        Self {
            marks,
            ..Self::default()
        }
    }

    /// Targets every process left from any run of this instance. For the start of the daemon.
    #[must_use]
    pub fn instance(instance: Instance, recorded: Vec<ProcessRecord>) -> Self {
        Self {
            instance: Some(instance),
            recorded,
            ..Self::default()
        }
    }

    /// Targets every process that this daemon's agents have left, after they have ended.
    #[must_use]
    pub fn leftovers(instance: Instance) -> Self {
        Self {
            instance: Some(instance),
            includes_orphans: true,
            ..Self::default()
        }
    }
}

/// A process that a sweep found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweptProcess {
    /// Process id.
    pub pid: u32,
    /// The kernel's short name of the process.
    pub name: String,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// The processes that it ended.
    pub ended: Vec<SweptProcess>,
    /// The processes that are still running. Normally empty.
    pub survivors: Vec<SweptProcess>,
}

/// Returns the children that this process started itself and reaps elsewhere, so they are not orphans. Hold the lock
/// while starting one.
pub(super) fn started_children() -> MutexGuard<'static, BTreeSet<u32>> {
    /// One set per process, because the kernel's list of children is per process too.
    static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    // Each change is a single call, so a panic leaves the set consistent.
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}
