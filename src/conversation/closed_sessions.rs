//! The sessions that a conversation has closed, until nobody of ours can write to them any more. Whoever changes a
//! conversation's files waits for that.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};

use super::error::ConversationError;
use super::upstream::{self, UnendedSession, UpstreamSession};

/// A session that is being closed, or was. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct ClosedSession {
    /// The number of the process that has it, and its name there.
    known_as: (u32, String),
    /// Gives the session when it was closed and may still be written to.
    closing: Shared<BoxFuture<'static, Option<Arc<UnendedSession>>>>,
}

impl ClosedSession {
    /// Waits until it is closed, or given up.
    pub(super) async fn closed(self) {
        let _unended = self.closing.await;
    }

    /// Waits until it is closed. Whether nobody writes to it any more; what went on before is asked again.
    async fn has_ended(&self) -> bool {
        match self.closing.clone().await {
            None => true,
            Some(unended) => unended.has_ended().await,
        }
    }

    /// Whether nobody writes to it any more, as far as that is known without asking.
    fn is_known_to_have_ended(&self) -> bool {
        matches!(self.closing.clone().now_or_never(), Some(None))
    }

    fn is_being_closed(&self) -> bool {
        self.closing.clone().now_or_never().is_none()
    }
}

/// All that may still be written to.
#[derive(Clone, Debug, Default)]
pub(super) struct ClosedSessions(Vec<ClosedSession>);

impl ClosedSessions {
    /// Closes a session. That goes on whether or not anybody waits for it.
    pub(super) fn close(
        &mut self,
        session: UpstreamSession,
        by_force: bool,
        grace: Duration,
    ) -> ClosedSession {
        let known_as = (session.lease.pid(), session.attachment.handle.as_str().to_owned());
        let closing = tokio::spawn(upstream::close(session, by_force, grace));
        // A closing that panicked has dropped the session with its process' lease.
        let closing = closing.map(|closed| closed.ok().flatten().map(Arc::new));
        self.add(known_as, closing.boxed())
    }

    fn add(
        &mut self,
        known_as: (u32, String),
        closing: BoxFuture<'static, Option<Arc<UnendedSession>>>,
    ) -> ClosedSession {
        // One that was opened again in the same process ends with its last closing.
        self.0
            .retain(|closed| closed.known_as != known_as && !closed.is_known_to_have_ended());
        let closed = ClosedSession {
            known_as,
            closing: closing.shared(),
        };
        self.0.push(closed.clone());
        closed
    }

    /// Waits until all are closed. Whoever asks again is told the same until they have ended.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] when one has not ended.
    pub(super) async fn ended(self) -> Result<(), ConversationError> {
        for closed in self.0 {
            if !closed.has_ended().await {
                return Err(ConversationError::Busy(
                    "the agent has not ended the session yet and may still write to its transcript; try again"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// The sessions whose closing is not over: a session of the same id is not opened before.
    pub(super) fn closing(&self) -> Vec<ClosedSession> {
        let sessions = self.0.iter();
        sessions
            .filter(|closed| closed.is_being_closed())
            .cloned()
            .collect()
    }
}
