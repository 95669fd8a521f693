//! Wakes the conversations whose scheduled continuation is due.

use std::sync::Arc;

use super::super::actor::Message;
use super::super::error::ConversationError;
use super::super::lost_parts;
use super::Registry;

impl Registry {
    /// Wakes the conversations whose scheduled continuation is due, until the daemon stops.
    pub fn wake_conversations(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        let (services, stop) = (Arc::clone(&self.services), self.stop.clone());
        self.tasks.spawn(async move {
            let wake = |id, slot| {
                let Some(registry) = registry.upgrade() else {
                    return false;
                };
                match registry.salvaged(id) {
                    Ok(found) if lost_parts::can_continue(&found) => {
                        registry.deliver(id, Message::ContinuationDue(slot)).is_ok()
                    }
                    Ok(found) if lost_parts::is_transient(&found.lost) => false,
                    Ok(found) => {
                        let what = lost_parts::describe_loss(id, &found.lost);
                        tracing::error!("{what}; its scheduled continuation is not sent");
                        true
                    }
                    // The conversation was deleted meanwhile.
                    Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => true,
                    Err(_) => false,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = services.wakeups.run(wake) => {}
            }
        });
    }
}
