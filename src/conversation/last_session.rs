//! The session that a conversation had open last: whoever changes its files waits until nobody of ours writes to them.

use tokio::task::JoinHandle;

use super::error::ConversationError;

/// What is known of the end of that session.
pub(super) struct LastSession {
    /// Whether it may still be written to, and nobody can tell when that ends.
    pub goes_on: bool,
    /// Its closing, where that goes on beside.
    pub behind: Option<JoinHandle<bool>>,
}

impl LastSession {
    /// Waits for its end.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] when it has not ended.
    pub(super) async fn ended(self) -> Result<(), ConversationError> {
        let has_ended = match self.behind {
            Some(closing) => closing.await.unwrap_or(false),
            None => true,
        };
        if self.goes_on || !has_ended {
            return Err(ConversationError::Busy(
                "the agent has not ended the session yet and may still write to its transcript; try again"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}
