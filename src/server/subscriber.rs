//! `conversation/subscribe`, and a connection as a subscriber of events.

use std::sync::{Arc, Weak};

use bridge_protocol::BridgeError;
use bridge_protocol::method::Subscribe;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::calls::Begin;
use super::outbox::{Feed, PushError};
use super::parameters;
use crate::bridge::{Bridge, Encoded, Subscriber, Taken};

/// Reads what is subscribed to.
pub(super) fn subscription(bridge: &Arc<Bridge>, params: &str) -> Result<Begin, BridgeError> {
    let Subscribe {
        conversation_id,
        after,
    } = parameters::read(params)?;
    let named = conversation_id.as_ref().map(|name| bridge.conversation(name));
    let (id, bridge) = (named.transpose()?, Arc::clone(bridge));
    Ok(Box::new(move |feed| {
        Box::pin(async move {
            // The subscriber is gone once this is: when the client unsubscribes or leaves, this future is dropped.
            let ended = Arc::new(Notify::new());
            let subscriber = Box::new(SocketSubscriber {
                feed,
                ended: Arc::downgrade(&ended),
            });
            bridge.subscribe(id, subscriber, after).await?;
            ended.notified().await;
            Ok(())
        })
    }))
}

/// Sends events to a client.
struct SocketSubscriber {
    feed: Feed,
    /// Notified when the subscriber gets nothing more.
    ended: Weak<Notify>,
}

impl Subscriber for SocketSubscriber {
    fn take(&mut self, event: &Encoded) -> Taken {
        if self.is_gone() {
            return Taken::Gone;
        }
        if event.of_subagent().is_some() {
            return Taken::Yes;
        }
        match self.feed.try_send(&event.text) {
            Ok(()) => Taken::Yes,
            Err(PushError::Full) => Taken::Full,
            Err(PushError::Closed) => Taken::Gone,
        }
    }

    fn take_when_room<'a>(&'a mut self, event: &'a Encoded) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            !self.is_gone() && (event.of_subagent().is_some() || self.feed.send(&event.text).await.is_ok())
        })
    }

    fn lagged(self: Box<Self>, text: String) -> Option<Box<dyn Subscriber>> {
        tokio::spawn(async move {
            // The last word waits for room; a client that leaves meanwhile needs none.
            let _gone = self.feed.send(&text).await;
            if let Some(ended) = self.ended.upgrade() {
                ended.notify_one();
            }
        });
        None
    }

    fn is_gone(&self) -> bool {
        self.ended.strong_count() == 0 || self.feed.is_closed()
    }
}
