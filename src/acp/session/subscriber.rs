//! A session as a subscriber of its conversation.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Session, Snapshot};
use crate::agent::message::RawId;
use crate::bridge::{ClientRequest, ClientSuitability, Delivery, EncodedEvent, Subscriber};

/// Passes the events of a subscription on to its session.
pub(super) struct SessionSubscriber {
    pub(super) session: Weak<Session>,
    pub(super) number: u64,
    /// Receives the snapshot. Dropped with the subscriber, so that no caller waits forever.
    pub(super) snapshot: Option<oneshot::Sender<Snapshot>>,
    /// Whether the editor does not read fast enough.
    pub(super) is_slow: bool,
}

impl SessionSubscriber {
    /// The session, if this subscription is the current one or still receives the agent's requests.
    fn session(&self) -> Option<Arc<Session>> {
        let session = self.session.upgrade()?;
        let state = session.lock();
        let is_current = state.load_subscription.unwrap_or(state.subscription) == self.number;
        drop(state);
        is_current.then_some(session)
    }
}

impl Subscriber for SessionSubscriber {
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        let Some(session) = self.session.upgrade() else {
            return Delivery::Disconnected;
        };
        let delivery = session.on_encoded(self.number, event, &mut self.snapshot);
        self.is_slow = delivery == Delivery::QueueFull;
        delivery
    }

    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        // Only subscribers to all conversations receive their first events this way.
        Box::pin(async move { self.deliver(event) == Delivery::Delivered })
    }

    /// Disconnects an editor that is too slow. Its conversations remain. If the conversation itself missed updates, the
    /// editor continues with the next event.
    fn lagged(self: Box<Self>, _: String) -> Option<Box<dyn Subscriber>> {
        let session = self.session()?;
        if self.is_slow {
            tracing::warn!("an editor reads too slowly, and is disconnected");
            session.peer.outbox.abandon();
            return None;
        }
        session.report_missing_updates();
        Some(self)
    }

    fn is_editor(&self) -> bool {
        true
    }

    fn suitability(&self, request: &ClientRequest) -> ClientSuitability {
        let session = self.session();
        session.map_or(ClientSuitability::Unsuited, |session| session.suits(request))
    }

    fn forward_request(&mut self, request: ClientRequest) {
        if let Some(session) = self.session() {
            session.forward(request);
        }
    }

    fn withdraw_requests(&mut self, id: Option<&RawId>) {
        if let Some(session) = self.session() {
            session.withdraw(id);
        }
    }

    fn forward_notification(&mut self, method: &str, params: &str) {
        if let Some(session) = self.session() {
            session.handle_notification(method, params);
        }
    }

    fn is_disconnected(&self) -> bool {
        self.session.upgrade().is_none_or(|session| {
            let state = session.lock();
            session.peer.outbox.is_closed()
                || state.load_subscription.unwrap_or(state.subscription) > self.number
        })
    }
}
