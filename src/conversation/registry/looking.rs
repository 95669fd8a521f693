//! What can be answered without a conversation's task: one, a page of them, all that are not idle.

use std::collections::HashSet;

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::{AgentName, ConversationId, Cursor};
use tokio::sync::{mpsc, oneshot};

use super::super::actor::Message;
use super::super::climbing::store_error;
use super::super::error::ConversationError;
use super::super::events::{Encoded, Subscriber, snapshot_of_record};
use super::super::services::now;
use super::super::state::view_of_record;
use super::Registry;
use crate::store::RecentCursor;

/// What `list` looks for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The app.
    pub namespace: Option<String>,
    /// The agent.
    pub agent: Option<AgentName>,
    /// The folder.
    pub cwd: Option<String>,
    /// The state.
    pub state: Option<ConversationState>,
    /// A text that title or folder contain, in any case.
    pub query: Option<String>,
}

impl Filter {
    fn fits(&self, conversation: &Conversation) -> bool {
        let contains = |text: &str, query: &str| text.to_lowercase().contains(&query.to_lowercase());
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == conversation.namespace)
            && self
                .agent
                .as_ref()
                .is_none_or(|agent| *agent == conversation.agent)
            && self.cwd.as_ref().is_none_or(|cwd| *cwd == conversation.cwd)
            && self.state.is_none_or(|state| state == conversation.state)
            && self.query.as_ref().is_none_or(|query| {
                contains(&conversation.title, query) || contains(&conversation.cwd, query)
            })
    }
}

impl Registry {
    /// Adds a subscriber to everything: it is told of those conversations that are not idle, then of all.
    pub async fn subscribe_all(&self, subscriber: Box<dyn Subscriber>, after: Option<&Cursor>) {
        let since = self.services.hub.last();
        let held = after.and_then(|cursor| self.services.hub.sequence_of(cursor));
        let snapshots = if held.is_some_and(|from| self.services.hub.holds_after(from)) {
            Vec::new()
        } else {
            self.busy_snapshots(after.is_some()).await
        };
        self.services
            .hub
            .subscribe(subscriber, after, &snapshots, since, &now().to_string());
    }

    /// A snapshot of each conversation that is not idle.
    async fn busy_snapshots(&self, gap: bool) -> Vec<Encoded> {
        let mailboxes: Vec<(ConversationId, mpsc::Sender<Message>)> = {
            let live = self.lock();
            let busy = live
                .iter()
                .filter(|(_, entry)| entry.published.borrow().state != ConversationState::Idle);
            busy.map(|(id, entry)| (*id, entry.mailbox.clone())).collect()
        };
        let mut snapshots = Vec::new();
        let mut seen = HashSet::new();
        for (id, mailbox) in mailboxes {
            let (reply, snapshot) = oneshot::channel();
            if mailbox.try_send(Message::Snapshot(reply)).is_ok()
                && let Ok(snapshot) = snapshot.await
            {
                seen.insert(id);
                snapshots.push(snapshot);
            }
        }
        for id in self.services.store.unfinished().unwrap_or_default() {
            if seen.contains(&id) {
                continue;
            }
            if let Ok(Some(record)) = self.services.store.conversation(id) {
                let conversation = view_of_record(&record);
                let event = Event::Snapshot {
                    conversation,
                    gap,
                    running: None,
                    session: None,
                };
                snapshots.push(snapshot_of_record(
                    &self.services.hub,
                    id,
                    &now().to_string(),
                    &event,
                ));
            }
        }
        snapshots
    }

    /// A conversation as it stands.
    ///
    /// # Errors
    /// When there is none, or it was deleted.
    pub fn view(&self, id: ConversationId) -> Result<Conversation, ConversationError> {
        if let Some(entry) = self.lock().get(&id) {
            return Ok((**entry.published.borrow()).clone());
        }
        Ok(view_of_record(&self.record(id)?))
    }

    /// One page of conversations, newest first.
    ///
    /// # Errors
    /// When the cursor is not one of this method, or the store cannot be read.
    pub fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<Conversation>, Option<Cursor>), ConversationError> {
        let after = match cursor {
            Some(cursor) => Some(RecentCursor::from_text(cursor.as_str()).ok_or_else(|| {
                ConversationError::InvalidParams(
                    "the cursor is not one that conversation/list gave".to_owned(),
                )
            })?),
            None => None,
        };
        let mut page = Vec::new();
        let mut last = None;
        for item in self.services.store.recent(after) {
            let (place, record) = item.map_err(|error| store_error(&error))?;
            let live = self
                .lock()
                .get(&record.id)
                .map(|entry| (**entry.published.borrow()).clone());
            let conversation = live.unwrap_or_else(|| view_of_record(&record));
            if !filter.fits(&conversation) {
                continue;
            }
            if page.len() == limit {
                return Ok((page, last));
            }
            page.push(conversation);
            last = Some(Cursor::new(place.to_text()));
        }
        Ok((page, None))
    }

    /// How many conversations have an open session.
    #[must_use]
    pub fn count_live(&self) -> u64 {
        self.lock()
            .values()
            .filter(|entry| entry.published.borrow().live)
            .count() as u64
    }

    /// The conversations of an agent in which a turn runs.
    #[must_use]
    pub fn running_of_agent(&self, agent: &AgentName) -> Vec<ConversationId> {
        let runs = |conversation: &Conversation| {
            matches!(
                conversation.state,
                ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling
            )
        };
        let live = self.lock();
        let of_agent = live.iter().filter(|(_, entry)| {
            let published = entry.published.borrow();
            published.agent == *agent && runs(&published)
        });
        of_agent.map(|(id, _)| *id).collect()
    }

    /// The ids of all conversations of an agent.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn of_agent(&self, agent: &AgentName) -> Result<Vec<ConversationId>, ConversationError> {
        let mut ids = Vec::new();
        for item in self.services.store.recent(None) {
            let (_, record) = item.map_err(|error| store_error(&error))?;
            if record.agent == *agent {
                ids.push(record.id);
            }
        }
        Ok(ids)
    }
}
