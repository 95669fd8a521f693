//! Pins all processes to one core, so that the time of a message is the sum of the work of all processes.

use crate::Outcome;

/// Pins this thread, and the processes it starts meanwhile, to one core until dropped.
pub(crate) struct Pinned {
    #[cfg(target_os = "linux")]
    before: rustix::thread::CpuSet,
}

impl Pinned {
    /// Pins to the last core that this process may use, because the first core serves most interrupts.
    #[cfg(target_os = "linux")]
    pub(crate) fn to_one_core() -> Outcome<Self> {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let before = sched_getaffinity(None)?;
        let core = (0..CpuSet::MAX_CPU)
            .rev()
            .find(|core| before.is_set(*core))
            .ok_or("this process may use no core")?;
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }

    /// Other systems do not allow a process to choose, so the figures there are for all cores.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn to_one_core() -> Outcome<Self> {
        Ok(Self {})
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = rustix::thread::sched_setaffinity(None, &self.before) {
            crate::report::complain(&error);
        }
    }
}
