//! Closed sessions of conversations, including their climbs and branches, to which the agent may still write, even
//! after the task of the conversation has ended. Moves, repairs and deletions of the conversation's files wait until
//! these sessions have ended.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bridge_protocol::{ConversationId, UpstreamId};
use futures_util::future::{BoxFuture, FutureExt, Shared};

use super::error::ConversationError;
use super::lock::lock;
use super::uncommitted_copies::UncommittedCopy;
use super::unended_session::UnendedSession;
use super::upstream::UpstreamSession;

/// The limit on remembered sessions that have not ended. If an agent cannot close sessions, they stay until its process
/// ends. Beyond the limit, the sessions of one process share an entry until the process ends.
const MAX_REMEMBERED: usize = 64;

/// A session that is being closed, or was. Clones refer to the same session.
#[derive(Clone, Debug)]
pub(super) struct ClosedSession {
    kind: ClosedKind,
    /// The session, until it has ended. Empty for an abandoned job.
    session: Weak<UnendedSession>,
    /// Resolves when the session is closed or given up: to the session, if it may still be written to.
    closing: Shared<BoxFuture<'static, Option<Arc<UnendedSession>>>>,
}

/// The meaning of an entry in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClosedKind {
    /// A session, by the agent's process id and the session's name there.
    Session(u32, String),
    /// The session that an abandoned job may open.
    AbandonedJob,
    /// All sessions of a process. They end with the process.
    Process(u32),
}

impl ClosedKind {
    fn of(session: &UnendedSession) -> Self {
        let (pid, handle) = session.process_and_name();
        Self::Session(pid, handle.to_owned())
    }
}

impl ClosedSession {
    /// Waits until the session is closed or given up.
    pub(super) async fn wait_until_closed(self) {
        let _unended = self.closing.await;
    }

    /// Waits until the session is closed or given up. Returns whether it has ended; a running agent is asked again.
    pub(super) async fn has_ended(&self) -> bool {
        match (self.closing.clone().await, &self.kind) {
            (None, _) => true,
            (Some(unended), ClosedKind::Process(_)) => unended.is_known_to_have_ended(),
            (Some(unended), ClosedKind::Session(..) | ClosedKind::AbandonedJob) => unended.has_ended().await,
        }
    }

    /// The session, if it was closed or given up and may still be written to.
    fn unended(&self) -> Option<Arc<UnendedSession>> {
        self.closing.clone().now_or_never().flatten()
    }

    fn is_being_closed(&self) -> bool {
        self.closing.clone().now_or_never().is_none()
    }

    /// Whether the session is known to have ended. Does not ask the agent.
    fn is_known_to_have_ended(&self) -> bool {
        let closed = self.closing.clone().now_or_never();
        closed.is_some_and(|unended| unended.is_none_or(|unended| unended.is_known_to_have_ended()))
    }
}

/// The closed sessions of one conversation that may still be written to. Clones share one list.
#[derive(Clone, Debug, Default)]
pub(super) struct ClosedSessions(Arc<Mutex<Vec<ClosedSession>>>);

/// The closed sessions of all conversations. A list stays while a task uses it or a session in it may still be written to.
#[derive(Debug, Default)]
pub(super) struct AllClosedSessions(Mutex<HashMap<ConversationId, ClosedSessions>>);

impl AllClosedSessions {
    /// The list of one conversation, for its task.
    pub(super) fn of(&self, id: ConversationId) -> ClosedSessions {
        let mut all = lock(&self.0);
        all.retain(|_, closed| Arc::strong_count(&closed.0) > 1 || !closed.are_known_to_have_ended());
        all.entry(id).or_default().clone()
    }
}

impl ClosedSessions {
    /// Closes a session in the background, whether or not anything waits for it.
    pub(super) fn close(&self, session: UpstreamSession) -> ClosedSession {
        self.close_within(session, None)
    }

    /// Closes a session in the background. If there is a limit and the session has not ended by then, its process is stopped.
    pub(super) fn close_within(&self, session: UpstreamSession, limit: Option<Duration>) -> ClosedSession {
        let unended = Arc::new(UnendedSession::closing(&session));
        let known = Arc::downgrade(&unended);
        self.add(
            ClosedKind::of(&unended),
            known,
            closing(unended, session, limit).boxed(),
        )
    }

    /// Closes the session that an abandoned job may open, in the background.
    pub(super) fn close_abandoned(
        &self,
        opening: impl Future<Output = Option<UpstreamSession>> + Send + 'static,
    ) {
        let closing = async move {
            let session = opening.await?;
            let unended = Arc::new(UnendedSession::closing(&session));
            closing(unended, session, None).await
        };
        let closing = tokio::spawn(closing);
        // A job that panicked returns nothing. It has dropped the session that it opened.
        let closing = closing.map(|closed| closed.ok().flatten());
        self.add(ClosedKind::AbandonedJob, Weak::new(), closing.boxed());
    }

    /// Adds a session that the agent may be opening for a caller that no longer waits. It is closed when something waits for
    /// its end.
    pub(super) fn add_given_up(&self, unended: UnendedSession) {
        let unended = Arc::new(unended);
        let known = Arc::downgrade(&unended);
        self.add(ClosedKind::of(&unended), known, ready(Some(unended)).boxed());
    }

    /// Deletes the copy that the session `id` was to be opened from, once the session has ended if an agent may have opened it.
    pub(super) async fn remove_copy(&self, id: &UpstreamId, copy: UncommittedCopy) {
        let all = lock(&self.0).clone();
        for closed in all {
            let may_be_open = match &closed.kind {
                ClosedKind::Session(_, handle) => handle == id.as_str(),
                ClosedKind::Process(_) => true,
                ClosedKind::AbandonedJob => false,
            };
            if may_be_open
                && let Some(unended) = closed.closing.await
                && !unended.is_known_to_have_ended()
            {
                return unended.remove_copy_later(copy);
            }
        }
        copy.remove().await;
    }

    fn add(
        &self,
        what: ClosedKind,
        session: Weak<UnendedSession>,
        closing: BoxFuture<'static, Option<Arc<UnendedSession>>>,
    ) -> ClosedSession {
        let mut all = lock(&self.0);
        // A session that was opened again in the same process ends with its last closing.
        all.retain(|closed| {
            (closed.kind != what || what == ClosedKind::AbandonedJob) && !closed.is_known_to_have_ended()
        });
        if all.len() >= MAX_REMEMBERED {
            merge_by_process(&mut all);
        }
        let closed = ClosedSession {
            kind: what,
            session,
            closing: closing.shared(),
        };
        all.push(closed.clone());
        closed
    }

    /// Waits until all are closed or given up.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] if one has not ended yet.
    pub(super) async fn wait_until_ended(self) -> Result<(), ConversationError> {
        let all = lock(&self.0).clone();
        for closed in all {
            if !closed.has_ended().await {
                return Err(ConversationError::Busy(
                    "the agent has not ended the session yet and may still write to its transcript; try again"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Waits until all are closed or given up, and until agents that are dying have ended.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] if a process of a dead agent could not be ended.
    pub(super) async fn wait_for_dying_agents(self) -> Result<(), ConversationError> {
        let all = lock(&self.0).clone();
        for closed in all {
            if let Some(unended) = closed.closing.await
                && !unended.agent_lives_or_has_stopped().await
            {
                return Err(ConversationError::Busy(
                    "a process of the agent, which has died, could not be ended and may still write to the transcript"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Waits until nothing writes to sessions that are about to be opened again: until dying agents have ended, and also turns
    /// that were running when their sessions were closed.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] if one of them could not be ended.
    pub(super) async fn wait_for_writers(&self) -> Result<(), ConversationError> {
        let all = lock(&self.0).clone();
        for closed in all {
            let Some(session) = closed.session.upgrade() else {
                continue;
            };
            if session.may_run_a_turn() {
                let _unended = closed.closing.clone().await;
            }
            if session.may_run_a_turn() || !session.agent_lives_or_has_stopped().await {
                return Err(ConversationError::Busy(
                    "a process of the agent, which still writes to the transcript, could not be ended"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Whether all are known to have ended. Asks no agent.
    pub(super) fn are_known_to_have_ended(&self) -> bool {
        lock(&self.0).iter().all(ClosedSession::is_known_to_have_ended)
    }

    /// The sessions that are being closed. No session with the same id is opened until then.
    pub(super) fn being_closed(&self) -> Vec<ClosedSession> {
        let is_closing =
            |closed: &&ClosedSession| closed.kind != ClosedKind::AbandonedJob && closed.is_being_closed();
        lock(&self.0).iter().filter(is_closing).cloned().collect()
    }
}

#[cfg(test)]
impl ClosedSessions {
    pub(super) const MAX_REMEMBERED: usize = MAX_REMEMBERED;

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Replaces all sessions of a process that were closed and have not ended by one entry for the process.
fn merge_by_process(all: &mut Vec<ClosedSession>) {
    let mut merged: Vec<ClosedSession> = Vec::new();
    for mut closed in std::mem::take(all) {
        if let Some(unended) = closed.unended() {
            closed.kind = ClosedKind::Process(unended.process_and_name().0);
            if merged.iter().any(|other| other.kind == closed.kind) {
                continue;
            }
        }
        merged.push(closed);
    }
    *all = merged;
}

/// Closes a session in its own task. Resolves to the session if it may still be written to.
fn closing(
    unended: Arc<UnendedSession>,
    session: UpstreamSession,
    limit: Option<Duration>,
) -> impl Future<Output = Option<Arc<UnendedSession>>> {
    let own = Arc::clone(&unended);
    let closing = tokio::spawn(async move { own.close_and_wait(session, limit).await });
    // If the task panicked, nothing has ended.
    closing.map(|closed| (!closed.unwrap_or(false)).then_some(unended))
}
