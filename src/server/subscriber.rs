//! `conversation/subscribe`, and a connection as a subscriber of events.

use std::sync::{Arc, Weak};

use bridge_protocol::BridgeError;
use bridge_protocol::method::Subscribe;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::calls::StartSubscription;
use super::outbox::{PushError, SubscriptionSink};
use super::parameters;
use crate::bridge::{Bridge, Delivery, EncodedEvent, Subscriber};

/// Reads the parameters of a subscription.
pub(super) fn subscription(bridge: &Arc<Bridge>, params: &str) -> Result<StartSubscription, BridgeError> {
    let Subscribe {
        conversation_id,
        after,
    } = parameters::read(params)?;
    let id_of_name = conversation_id.as_ref().map(|name| bridge.conversation(name));
    let (id, bridge) = (id_of_name.transpose()?, Arc::clone(bridge));
    Ok(Box::new(move |feed| {
        Box::pin(async move {
            // Held weakly by the subscriber: when the client unsubscribes or disconnects, this future and `ended` are dropped.
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
    feed: SubscriptionSink,
    /// Notified when the subscriber receives no more events.
    ended: Weak<Notify>,
}

impl Subscriber for SocketSubscriber {
    fn deliver(&mut self, event: &EncodedEvent) -> Delivery {
        if self.is_disconnected() {
            return Delivery::Disconnected;
        }
        if event.subagent_params().is_some() {
            return Delivery::Delivered;
        }
        match self.feed.try_send(&event.text) {
            Ok(()) => Delivery::Delivered,
            Err(PushError::Full) => Delivery::QueueFull,
            Err(PushError::Closed) => Delivery::Disconnected,
        }
    }

    fn deliver_when_room<'a>(&'a mut self, event: &'a EncodedEvent) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            !self.is_disconnected()
                && (event.subagent_params().is_some() || self.feed.send(&event.text).await.is_ok())
        })
    }

    fn lagged(self: Box<Self>, text: String) -> Option<Box<dyn Subscriber>> {
        tokio::spawn(async move {
            // The last message waits for room. A client that disconnects meanwhile does not need it.
            let _gone = self.feed.send(&text).await;
            if let Some(ended) = self.ended.upgrade() {
                ended.notify_one();
            }
        });
        None
    }

    fn is_disconnected(&self) -> bool {
        self.ended.strong_count() == 0 || self.feed.is_closed()
    }
}
