//! Waits for an agent's own processes to end.
//!
//! It owns descriptors, so a process cannot be mistaken for a later one with its pid. It sends no signals.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// See [`super::Watch`].
#[derive(Debug)]
pub(super) struct Watched(Vec<OwnedFd>);

impl Watched {
    /// Opens the descendants of a process that have a command-line argument ending with `text`.
    pub(super) fn naming(pid: u32, text: &str) -> Self {
        let descriptors = super::descendants(pid).into_iter().filter_map(|found| {
            let descriptor =
                pidfd_open(Pid::from_raw(i32::try_from(found).ok()?)?, PidfdFlags::empty()).ok()?;
            // Read after opening the descriptor: this is the command line of that process, or nothing.
            let command_line = fs::read(format!("/proc/{found}/cmdline")).ok()?;
            let names_it = command_line
                .split(|byte| *byte == 0)
                .any(|argument| argument.ends_with(text.as_bytes()));
            names_it.then_some(descriptor)
        });
        Self(descriptors.collect())
    }

    /// Waits until all have ended. Returns whether they did in time.
    pub(super) fn wait(mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut polled: Vec<PollFd<'_>> = self
                .0
                .iter()
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN))
                .collect();
            if polled.is_empty() {
                return true;
            }
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot poll processes");
                    return false;
                }
            }
            let mut lives = polled
                .iter()
                .map(|one| one.revents().is_empty())
                .collect::<Vec<bool>>()
                .into_iter();
            self.0.retain(|_| lives.next().unwrap_or(true));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::agent::sweep::Watch;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn only_a_sessions_own_process_is_awaited() {
        let handle = uuid::Uuid::new_v4().to_string();
        // It waits for its input to end, which this test controls.
        let mut child = Command::new("sh")
            .args(["-c", "read line", &format!("--resume={handle}")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let own_pid = std::process::id();
        let watch = |text: &str| Watch::of_session(own_pid, text);
        assert!(watch("another session").wait(Duration::ZERO));
        assert!(!watch(&handle).wait(Duration::ZERO));
        let watched = watch(&handle);
        drop(child.stdin.take());
        assert!(watched.wait(LONG));
        child.wait().unwrap();
        assert!(watch(&handle).wait(Duration::ZERO));
    }
}
