//! Recovery from a panic in the task of a conversation. Subscribers are notified that the conversation failed, and the
//! task restarts from the record on disk with the same subscribers and the same mailbox.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};

use crate::conversation::registry::panic_text;
use crate::conversation::upstream::UncommittedCopy;
use crate::transcript::moving::RunningMove;

use super::{Actor, Job, WriteEnd};

/// After how long without a panic a task counts as stable again.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// The longest pause before a task restarts. Calls wait for that time.
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(15);

/// How long to wait before a task restarts that ran for `served` before it panicked. Without a pause, a task that panics
/// without any message would keep a thread busy and fill the log.
pub(super) fn restart_pause(served: Duration, last_pause: Duration) -> Duration {
    if served >= STABLE_AFTER {
        return Duration::ZERO;
    }
    (last_pause * 2).clamp(Duration::from_millis(100), MAX_RESTART_PAUSE)
}

/// The message of a panic during this work, if it panicked.
pub(super) async fn panic_message(work: impl Future<Output = ()>) -> Option<String> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.err().map(|panic| panic_text(panic.as_ref()))
}

impl Actor {
    /// Restarts after a panic with this message. How far the work had come is unknown, so only what is on disk counts.
    pub(super) async fn restart_after_panic(&mut self, why: &str) {
        tracing::error!(conversation = %self.model.id(), why, "the task of a conversation failed");
        // The effects of a step that panicked are dropped.
        drop(self.model.take_effects());
        self.end_jobs().await;
        self.close_everything();
        let is_written = self.wait_for_writes().await;
        self.apply(|model| model.restart_from_disk(why, is_written));
        while let Some(written) = self.writes.next().await {
            self.write_ended(written);
        }
        // The record on disk does not name the new location of the files.
        if let Some(moved) = self.last_resource.files.take() {
            let undo = tokio::task::spawn_blocking(move || RunningMove::undo(moved));
            // The next start undoes what could not be undone here.
            let _is_back = undo.await;
        }
    }

    /// Ends the jobs. Waits for a job that changes files: what it made is undone, and nothing else may touch the files before
    /// that. Any other job is abandoned.
    async fn end_jobs(&mut self) {
        match self.job.take() {
            Some(Job {
                work,
                changes_files: true,
                progress,
                ..
            }) => {
                if let Some(progress) = progress {
                    progress.end_early();
                }
                // A job that panicked left nothing, or something that the next start cleans up.
                if let Ok(Ok((_, made))) = AssertUnwindSafe(work).catch_unwind().await {
                    self.last_resource.files = made.files;
                    if let Some(copy) = made.copy {
                        copy.remove().await;
                    }
                }
            }
            other => {
                self.job = other;
                self.abandon_job();
            }
        }
        if let Some(closing) = self.closing.take() {
            // Wait for it, because it may delete transcripts.
            let _closed = AssertUnwindSafe(closing.work).catch_unwind().await;
        }
    }

    /// Drops all other work. The sessions are closed, because their agents may still be working.
    fn close_everything(&mut self) {
        self.forget_requests();
        self.dead_agent = None;
        self.continuation_slot = None;
        self.deadlines.clear();
        self.next_leave_check = None;
        let sessions = [self.session.take(), self.last_resource.session.take()];
        let copies = self.last_resource.copy.take().into_iter();
        let mut sessions: Vec<_> = sessions.into_iter().flatten().collect();
        let of_sessions = sessions.iter_mut().filter_map(|session| session.copy.take());
        // A record on disk may name the copies by now. The next start deletes those that no record names.
        copies
            .chain(of_sessions)
            .for_each(UncommittedCopy::leave_to_next_start);
        for session in sessions {
            let runs = session.prompt.is_some();
            if runs && let Err(error) = session.lease.calls().cancel(&session.attachment.handle, None) {
                tracing::warn!(%error, "the cancellation could not be sent");
            }
            let limit = runs.then(|| Duration::from_millis(self.model.rules.cancel_grace_ms));
            self.closed_sessions.close_within(session, limit);
        }
    }

    /// Waits for the running write and returns whether it succeeded. The next write was not begun and is lost with the
    /// task.
    async fn wait_for_writes(&mut self) -> bool {
        let mut is_written = false;
        while let Some(written) = self.writes.next().await {
            is_written |= matches!(written, WriteEnd::Written(Ok(())));
        }
        is_written
    }
}
