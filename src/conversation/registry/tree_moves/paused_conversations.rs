//! Pauses conversations while they move to another folder together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::ConversationId;

use super::super::super::effect::Call;
use super::super::super::error::ConversationError;
use super::Registry;

/// Delay before a failed attempt to resume a conversation is repeated.
const RESUME_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Paused conversations. They resume when this is dropped.
pub(super) struct PausedConversations {
    registry: Arc<Registry>,
    ids: HashSet<ConversationId>,
}

impl PausedConversations {
    pub(super) fn new(registry: &Arc<Registry>) -> Self {
        Self {
            registry: Arc::clone(registry),
            ids: HashSet::new(),
        }
    }

    /// The conversations among `ids` that are not paused.
    pub(super) fn not_paused(&self, ids: impl Iterator<Item = ConversationId>) -> Vec<ConversationId> {
        ids.filter(|id| !self.ids.contains(id)).collect()
    }

    /// Pauses one more conversation.
    ///
    /// # Errors
    /// When something in the conversation must end first.
    pub(super) async fn pause(&mut self, id: ConversationId) -> Result<(), ConversationError> {
        // If its task fails before it answers, the conversation counts as paused: the pause survives the failure.
        self.ids.insert(id);
        let result = self.registry.ask(id, Call::PauseForMove).await;
        if !matches!(result, Ok(_) | Err(ConversationError::Internal)) {
            self.ids.remove(&id);
        }
        result.map(drop)
    }

    pub(super) async fn resume_conversations(mut self) {
        let (registry, ids) = (Arc::clone(&self.registry), std::mem::take(&mut self.ids));
        release(&registry, ids).await;
    }
}

impl Drop for PausedConversations {
    fn drop(&mut self) {
        let (registry, ids) = (Arc::clone(&self.registry), std::mem::take(&mut self.ids));
        if !ids.is_empty() {
            // Not resumed before the drop: the task of the move panicked.
            let tasks = registry.tasks.clone();
            tasks.spawn(async move { release(&registry, ids).await });
        }
    }
}

async fn release(registry: &Arc<Registry>, ids: HashSet<ConversationId>) {
    for id in ids {
        // The mailbox may be full, or the task may have failed before it answered.
        while let Err(ConversationError::Busy(_) | ConversationError::Internal) =
            registry.ask(id, Call::ResumeAfterMove).await
        {
            if registry.stop.is_cancelled() {
                return;
            }
            tokio::time::sleep(RESUME_RETRY_DELAY).await;
        }
    }
}
