//! The sweep on systems other than Linux: finds no process and ends none.

use std::io;
use std::time::Duration;

use super::{ProcessRecord, ProcessTree, StopDeadlines, SweepReport, SweepTarget};

/// Ends no process.
#[must_use]
pub fn sweep(_: &SweepTarget, _: StopDeadlines) -> SweepReport {
    SweepReport::default()
}

/// Finds no process.
#[must_use]
pub fn find(_: &SweepTarget) -> Vec<u32> {
    Vec::new()
}

/// Finds no descendant.
#[must_use]
pub fn descendants(_: u32) -> Vec<u32> {
    Vec::new()
}

/// Start times are unknown.
#[must_use]
pub fn start_time(_: u32) -> Option<u64> {
    None
}

/// Does nothing.
///
/// # Errors
/// Never.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

impl ProcessTree {
    /// Returns an empty tree.
    #[must_use]
    pub fn of(_: &ProcessRecord) -> Self {
        Self::default()
    }
}

/// Processes to wait for: none.
#[derive(Debug)]
pub struct DescendantWatch;

impl DescendantWatch {
    /// Watches no process.
    #[must_use]
    pub fn of_session(_: u32, _: &str) -> Self {
        Self
    }

    /// Returns at once.
    #[must_use]
    pub fn wait(self, _: Duration) -> bool {
        true
    }
}
