//! Closed sessions whose agents may still write to their transcripts.
//!
//! Owns when such a session counts as ended. Decides nothing about conversations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::agent::inbox::{InboxReceiver, Incoming};
use crate::agent::message::{AgentRequestId, CallError};
use crate::agent::pool::Agent;
use crate::agent::sweep::DescendantWatch;
use crate::agent::wire::SessionHandle;

use super::lock::lock;
use super::uncommitted_copies::UncommittedCopy;
use super::upstream::UpstreamSession;

/// ACP's code for an unknown session.
const NOT_FOUND: i64 = -32002;

/// How long a closed session's own process may continue before the session counts as not ended. It was measured to take 0.3 s.
const OWN_PROCESS_LIMIT: Duration = Duration::from_secs(5);

/// A session that is being closed, or was, and whose agent may still write to its transcript.
#[derive(Debug)]
pub(super) struct UnendedSession {
    agent: Arc<Agent>,
    handle: SessionHandle,
    /// The prompt that was unanswered when closing began.
    prompt: Option<AgentRequestId>,
    /// Whether the session's process may still write after the agent has answered the close.
    close_answers_early: bool,
    /// Whether the agent has answered the close.
    is_closed: AtomicBool,
    /// Whether the session is known to have ended.
    has_ended: AtomicBool,
    /// The copies to delete once the session has ended.
    copies: Mutex<Vec<UncommittedCopy>>,
}

impl Drop for UnendedSession {
    fn drop(&mut self) {
        let has_ended = self.is_known_to_have_ended();
        for copy in self.take_copies() {
            discard_copy(copy, has_ended);
        }
    }
}

impl UnendedSession {
    /// A session that is about to be closed.
    #[must_use]
    pub(super) fn closing(session: &UpstreamSession) -> Self {
        Self::new(
            session.lease.agent(),
            session.attachment.handle.clone(),
            session.prompt,
            session.close_answers_early,
        )
    }

    /// A session that the agent knows as `handle`. `prompt` is its unanswered prompt, if any.
    #[must_use]
    pub(super) fn new(
        agent: Arc<Agent>,
        handle: SessionHandle,
        prompt: Option<AgentRequestId>,
        close_answers_early: bool,
    ) -> Self {
        Self {
            agent,
            handle,
            prompt,
            close_answers_early,
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            copies: Mutex::default(),
        }
    }

    /// Closes a session, and waits until nothing writes to its transcript: until the agent has answered, the turn has ended,
    /// and the session's own process has ended, or until a dying agent and all its children have ended. If a transcript is
    /// moved or deleted earlier, it comes back as a stub. Returns whether the session has ended.
    ///
    /// If the agent does not close the session, it is abandoned. With a limit, the agent's process is ended instead, because
    /// two turns must never run in one session; other conversations in that process are notified and continue in a new one.
    pub(super) async fn close_and_wait(&self, mut session: UpstreamSession, limit: Option<Duration>) -> bool {
        session
            .copy
            .take()
            .into_iter()
            .for_each(|copy| self.remove_copy_later(copy));
        if limit.is_some() {
            // The process may be stopped soon, so it gets no new sessions.
            session.lease.retire();
        }
        let deadline = limit.unwrap_or(session.deadline);
        let end = Instant::now() + deadline;
        let handle = self.handle.as_str();
        let mut closed = self.close(deadline).await;
        if let (Ok(false), Some(prompt)) = (&closed, self.prompt)
            && !self.close_answers_early
        {
            // An agent may answer at once, while the turn still writes.
            let answer = timeout_at(end, wait_for_turn_end(&mut session.inbox, prompt)).await;
            closed = match answer {
                Ok(true) => Ok(true),
                Ok(false) => Ok(self.wait_for_agent_stop().await),
                Err(_) => Err(CallError::TimedOut { after: deadline }),
            };
        }
        let has_ended = match closed {
            Ok(has_ended) => {
                if !has_ended {
                    tracing::warn!(handle, "a process of a closed session is still running");
                }
                has_ended
            }
            Err(error) if limit.is_some() => {
                tracing::warn!(handle, %error, "the agent ignored a cancel and did not end the session; its process is ended");
                session.lease.terminate(
                    "it was stopped because it ignored the cancel of another conversation's turn and did not end that \
                     session",
                );
                self.wait_for_agent_stop().await
            }
            Err(error) => {
                tracing::debug!(handle, %error, "the session was not closed at the agent");
                false
            }
        };
        self.note_end(has_ended)
    }

    /// Asks the agent again to close the session. Returns whether it has ended.
    pub(super) async fn has_ended(&self) -> bool {
        if self.is_known_to_have_ended() {
            return self.note_end(true);
        }
        let has_ended = match self.close(OWN_PROCESS_LIMIT).await {
            Ok(has_ended) => has_ended,
            Err(error) => {
                tracing::debug!(handle = self.handle.as_str(), %error, "the session was not closed at the agent");
                false
            }
        };
        self.note_end(has_ended)
    }

    /// Whether the session is known to have ended. Does not ask the agent.
    #[must_use]
    pub(super) fn is_known_to_have_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || self.agent.has_stopped()
    }

    /// If the agent is dying, waits for its end. Returns whether the agent is alive or has ended completely: false if a process
    /// survives SIGKILL.
    pub(super) async fn agent_lives_or_has_stopped(&self) -> bool {
        !self.agent.is_ending() || self.wait_for_agent_stop().await
    }

    /// Whether the turn that was running when closing began may still be running.
    #[must_use]
    pub(super) fn may_run_a_turn(&self) -> bool {
        let awaits = |prompt| self.agent.connection().awaits(prompt);
        !self.is_known_to_have_ended() && self.prompt.is_some_and(awaits)
    }

    /// The process and the name by which the agent knows the session.
    #[must_use]
    pub(super) fn process_and_name(&self) -> (u32, &str) {
        (self.agent.pid(), self.handle.as_str())
    }

    fn note_end(&self, has_ended: bool) -> bool {
        self.has_ended.fetch_or(has_ended, Ordering::Relaxed);
        if has_ended {
            self.take_copies()
                .into_iter()
                .for_each(|copy| discard_copy(copy, true));
        }
        has_ended
    }

    /// Deletes a copy once the session has ended. The session was or may have been opened from that copy.
    pub(super) fn remove_copy_later(&self, copy: UncommittedCopy) {
        lock(&self.copies).push(copy);
    }

    fn take_copies(&self) -> Vec<UncommittedCopy> {
        std::mem::take(&mut *lock(&self.copies))
    }

    /// Waits until the pool has ended the agent with all its children, up to its deadlines. Returns whether that succeeded.
    async fn wait_for_agent_stop(&self) -> bool {
        self.agent.stopped().await;
        self.agent.has_stopped()
    }

    /// Asks the agent to close the session, unless it has. Returns whether nothing writes to the transcript.
    async fn close(&self, deadline: Duration) -> Result<bool, CallError> {
        let watch = self.watch_own_process().await;
        if !self.is_closed.load(Ordering::Relaxed) {
            match self.agent.calls().close(&self.handle, deadline).await {
                Ok(_) => {}
                // An earlier call closed it, and its answer came too late.
                Err(CallError::Agent(error)) if error.code == NOT_FOUND => {}
                // The agent does not answer, but its children may still write.
                Err(CallError::Died(_) | CallError::Closing) => return Ok(self.wait_for_agent_stop().await),
                Err(error) => return Err(error),
            }
            self.is_closed.store(true, Ordering::Relaxed);
        }
        let Some(watch) = watch else {
            return Ok(!self.may_run_a_turn());
        };
        let ended = tokio::task::spawn_blocking(move || watch.wait(OWN_PROCESS_LIMIT)).await;
        Ok(matches!(ended, Ok(true)))
    }

    async fn watch_own_process(&self) -> Option<DescendantWatch> {
        if !self.close_answers_early {
            return None;
        }
        let (pid, handle) = (self.agent.pid(), self.handle.clone());
        tokio::task::spawn_blocking(move || DescendantWatch::of_session(pid, handle.as_str()))
            .await
            .ok()
    }
}

/// Deletes the copy of a session if the session has ended. Else the agent may still write to it: the copy stays, and the next
/// start decides, because by then every agent has ended.
pub(super) fn discard_copy(copy: UncommittedCopy, has_ended: bool) {
    match has_ended {
        // Nothing waits for the deletion.
        true => drop(copy.remove_in_background()),
        false => copy.leave_to_next_start(),
    }
}

/// Waits until the agent has answered a prompt (true) or has died (false). Other messages are ignored.
async fn wait_for_turn_end(inbox: &mut InboxReceiver, prompt: AgentRequestId) -> bool {
    let mut batch = Vec::new();
    loop {
        inbox.recv_up_to(&mut batch, 64).await;
        for incoming in batch.drain(..) {
            match incoming {
                Incoming::Response { request, outcome, .. } if request == prompt => {
                    return !matches!(outcome, Err(CallError::Died(_)));
                }
                Incoming::Died(_) => return false,
                _ => {}
            }
        }
    }
}
