//! Recovery from a panic in the task of a conversation. Subscribers are notified that the conversation failed, and the
//! task restarts from the record on disk with the same subscribers and the same mailbox. After repeated panics the
//! conversation refuses calls for a while.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use crate::conversation::effect::{Call, Input};
use crate::conversation::error::ConversationError;
use crate::conversation::registry::panic_text;
use crate::conversation::services::now;
use crate::conversation::upstream::UncommittedCopy;
use crate::transcript::moving::Moving;

use super::{Actor, Job, Message};

/// How many panics within [`FAULTS_WITHIN`] make a conversation refuse calls: one that panics at each message would otherwise
/// restart endlessly, and one that panics without any message would keep a thread busy.
pub(in crate::conversation) const FAULTS_LIMIT: usize = 5;

/// See [`FAULTS_LIMIT`].
const FAULTS_WITHIN: Duration = Duration::from_secs(60);

/// How long a conversation refuses calls then.
pub(in crate::conversation) const REFUSES_FOR: Duration = Duration::from_secs(60);

/// The latest panics of a conversation's task.
#[derive(Default)]
pub(super) struct Faults(VecDeque<Instant>);

impl Faults {
    /// Adds one. Returns whether there were too many in a short time.
    pub(super) fn add(&mut self, at: Instant) -> bool {
        self.0
            .retain(|earlier| at.saturating_duration_since(*earlier) < FAULTS_WITHIN);
        self.0.push_back(at);
        if self.0.len() < FAULTS_LIMIT {
            return false;
        }
        self.0.pop_front();
        true
    }
}

/// Until when calls were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Until the time was over.
    Enough,
    /// Until the daemon stopped.
    UntilStop,
}

/// Why something panicked, if it did.
pub(super) async fn fault_of(work: impl Future<Output = ()>) -> Option<String> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.err().map(|panic| panic_text(panic.as_ref()))
}

impl Actor {
    /// Refuses calls because there were too many panics, the last of them for this reason. Subscribers are accepted.
    pub(super) async fn refuse_for_a_while(&mut self, why: &str) -> Refused {
        let id = self.id();
        tracing::error!(
            conversation = %id, why, seconds = REFUSES_FOR.as_secs(),
            "the task of a conversation failed too often; its calls are refused for a while"
        );
        let until = Instant::now() + REFUSES_FOR;
        let wall_clock = SignedDuration::try_from(REFUSES_FOR).unwrap_or_default();
        let retry_at = now().saturating_add(wall_clock).unwrap_or_else(|_| now());
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Refused::UntilStop,
                () = sleep_until(until) => return Refused::Enough,
                message = self.mailbox.recv() => message,
            };
            match message {
                // The registry is gone, and with it the daemon.
                None => return Refused::UntilStop,
                // It ends what a tree move began, which must not last until the daemon restarts.
                Some(Message::Call { call, request, reply }) if matches!(*call, Call::Release) => {
                    let releasing = async { self.message(Message::Call { call, request, reply }) };
                    if let Some(why) = fault_of(releasing).await {
                        tracing::error!(conversation = %id, why, "a conversation could not be released");
                    }
                }
                Some(Message::Call { reply, .. }) => {
                    let why = why.to_owned();
                    let error = ConversationError::Faulty { id, why, retry_at };
                    // A caller that hung up needs no answer.
                    let _gone = reply.send(Err(error));
                }
                Some(Message::Subscribe { subscriber, after }) => {
                    let subscribing = async { self.subscribe(subscriber, after.as_ref()) };
                    if let Some(why) = fault_of(subscribing).await {
                        tracing::error!(conversation = %id, why, "a subscriber could not be added");
                    }
                }
                // Dropping the place frees it for another conversation.
                Some(Message::Due(_)) => self.services.wakings.set(id, Some(retry_at)),
                Some(Message::TakeOver(_, session)) => {
                    self.closed.close(*session, false, Duration::ZERO);
                }
                Some(Message::Grown(growth)) => {
                    // Nothing reports it again.
                    let reporting = async { self.grown(*growth) };
                    if let Some(why) = fault_of(reporting).await {
                        tracing::error!(conversation = %id, why, "a change of the transcript could not be reported");
                    }
                }
                // The caller gets none.
                Some(Message::Snapshot(_)) => {}
            }
        }
    }

    /// Begins anew after a panic, which happened for this reason. How far its work had come is unknown, so that only what is
    /// on disk counts.
    pub(super) async fn begin_anew(&mut self, why: &str) {
        let id = self.id();
        tracing::error!(conversation = %id, why, "the task of a conversation failed");
        // What a step had caused before it panicked does not happen.
        drop(self.model.take_effects());
        self.end_jobs().await;
        self.let_go();
        let is_written = self.settle_writes().await;
        self.input(Input::Recovered {
            why: why.to_owned(),
            is_written,
        });
        while let Some(written) = self.writes.next().await {
            self.input(*written);
        }
        // The record on disk does not name where they are.
        if let Some(moved) = self.made.files.take() {
            let back = tokio::task::spawn_blocking(move || Moving::take_back(moved));
            // The next start takes back what could not be taken back here.
            let _is_back = back.await;
        }
    }

    /// Ends the jobs. Those that change files are waited for: what they have made is taken back, and nothing may begin with the
    /// files before. Another is abandoned.
    async fn end_jobs(&mut self) {
        match self.job.take() {
            Some(Job {
                work,
                is_on_files: true,
                progress,
            }) => {
                if let Some(progress) = progress {
                    progress.end_early();
                }
                // A job that panicked has left nothing, or what the next start settles.
                if let Ok(done) = AssertUnwindSafe(work).catch_unwind().await {
                    self.made.files = done.made.files;
                    if let Some(copy) = done.made.copy {
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
            // It may delete transcripts.
            let _closed = AssertUnwindSafe(closing.work).catch_unwind().await;
        }
    }

    /// Drops everything else that is under way. The sessions are closed, since their agents may still work.
    fn let_go(&mut self) {
        self.questions.clear();
        self.dead = None;
        self.place = None;
        self.deadlines.clear();
        self.leaves_at = None;
        let sessions = [self.session.take(), self.made.session.take()];
        let copies = self.made.copy.take().into_iter();
        let mut sessions: Vec<_> = sessions.into_iter().flatten().collect();
        let of_sessions = sessions.iter_mut().filter_map(|session| session.copy.take());
        // A record on disk may name them by now. The next start removes those that none names.
        copies.chain(of_sessions).for_each(UncommittedCopy::leave);
        for session in sessions {
            let runs = session.prompt.is_some();
            if runs && let Err(error) = session.lease.calls().cancel(&session.attachment.handle) {
                tracing::warn!(%error, "the cancellation could not be sent");
            }
            let grace = Duration::from_millis(self.model.rules.cancel_grace_ms);
            self.closed.close(session, runs, grace);
        }
    }

    /// Waits for the write that is under way. Returns whether it is on disk. Parts of the next write are lost with the task:
    /// nothing of them is on disk.
    async fn settle_writes(&mut self) -> bool {
        let mut is_written = false;
        while let Some(written) = self.writes.next().await {
            is_written |= matches!(*written, Input::Written(Ok(())));
        }
        is_written
    }
}
