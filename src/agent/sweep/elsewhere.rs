//! The sweep on systems other than Linux: finds no process and ends none.

use std::io;
use std::time::Duration;

use super::{SpawnRecord, SweepDeadlines, SweepReport, SweepTarget};

pub(super) fn sweep(_: &SweepTarget, _: SweepDeadlines) -> SweepReport {
    SweepReport::default()
}

pub(super) fn find(_: &SweepTarget) -> Vec<u32> {
    Vec::new()
}

pub(super) fn descendants(_: u32) -> Vec<u32> {
    Vec::new()
}

pub(super) fn family(_: &SpawnRecord) -> Vec<(u32, u64)> {
    Vec::new()
}

pub(super) fn start_time(_: u32) -> Option<u64> {
    None
}

pub(super) fn adopt() -> io::Result<()> {
    Ok(())
}

#[derive(Debug)]
pub(super) struct WatchedProcesses;

impl WatchedProcesses {
    pub(super) fn with_argument(_: u32, _: &str) -> Self {
        Self
    }

    pub(super) fn wait(self, _: Duration) -> bool {
        true
    }
}
