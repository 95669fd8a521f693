//! Iterates over a whole history, message by message.

use bridge_protocol::history::{HistoryGap, Message};

use super::History;
use crate::conversation::error::ConversationError;

impl History {
    /// Hands all messages over, oldest first, one at a time; gives how many turns they are, and what is missing.
    ///
    /// # Errors
    /// What `take` answers, and when a message cannot be told.
    pub(in crate::conversation) fn tell_all<E: From<ConversationError>>(
        mut self,
        mut take: impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(u64, Vec<HistoryGap>), E> {
        for number in 0..self.messages() {
            if let Some(message) = self.message(number)? {
                take(message)?;
            }
        }
        Ok((self.turns() as u64, self.gaps.listed))
    }
}
