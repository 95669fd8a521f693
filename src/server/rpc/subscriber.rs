//! `conversation/subscribe`, and a connection as a subscriber of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_protocol::method::{Method, Module, Subscribe};
use bridge_protocol::{ConversationId, Cursor};
use futures_util::future::BoxFuture;
use jsonrpsee::core::{RegisterMethodError, SubscriptionResult};
use jsonrpsee::{Extensions, PendingSubscriptionSink};
use tokio::sync::Notify;

use super::{Handlers, parameters};
use crate::conversation::events::{Encoded, Subscriber, Taken};
use crate::server::ConnectionInfo;
use crate::server::outbox::{NotificationHead, Outbox, PushError};

/// Adds the subscription to what is served.
pub(super) fn register(module: &mut Module<Handlers>) -> Result<(), RegisterMethodError> {
    let (name, event, unsubscribe) = (Subscribe::NAME, "conversation/event", "conversation/unsubscribe");
    module.register_subscription(
        name,
        event,
        unsubscribe,
        |params, pending, handlers, extensions| async move {
            let target = parameters::read::<Subscribe>(&params).and_then(|params| {
                let id = params
                    .conversation_id
                    .as_ref()
                    .map(|name| handlers.resolve(name))
                    .transpose()?;
                Ok((id, params.after))
            });
            match target {
                Ok((id, after)) => handlers.events(pending, &extensions, id, after).await,
                Err(error) => {
                    pending.reject(error).await;
                    Ok(())
                }
            }
        },
    )?;
    Ok(())
}

impl Handlers {
    /// Sends events to a subscription until it ends.
    async fn events(
        &self,
        pending: PendingSubscriptionSink,
        extensions: &Extensions,
        conversation: Option<ConversationId>,
        after: Option<Cursor>,
    ) -> SubscriptionResult {
        let Some(connection) = extensions.get::<ConnectionInfo>() else {
            return Err("a subscription needs a connection that can be written to".into());
        };
        let head = NotificationHead::new("conversation/event", &pending.subscription_id());
        let sink = pending.accept().await?;
        let shared = Arc::new(Shared::default());
        let subscriber = Box::new(SocketSubscriber::new(
            connection.outbox.clone(),
            head,
            Arc::clone(&shared),
        ));
        match conversation {
            Some(id) => self.registry().subscribe(id, subscriber, after)?,
            None => {
                tokio::select! {
                    () = self.registry().subscribe_all(subscriber, after.as_ref()) => {}
                    () = sink.closed() => {}
                }
            }
        }
        tokio::select! {
            () = sink.closed() => {}
            () = shared.ended.notified() => {}
        }
        shared.leave();
        Ok(())
    }
}

/// The state that a subscription's handler and its subscriber share.
#[derive(Default)]
pub(super) struct Shared {
    gone: AtomicBool,
    /// Notified when the subscriber gets nothing more.
    pub(super) ended: Notify,
}

impl Shared {
    /// The client unsubscribed or left.
    pub(super) fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Puts events into a connection's queue.
pub(super) struct SocketSubscriber {
    outbox: Outbox,
    head: NotificationHead,
    shared: Arc<Shared>,
}

impl SocketSubscriber {
    pub(super) fn new(outbox: Outbox, head: NotificationHead, shared: Arc<Shared>) -> Self {
        Self { outbox, head, shared }
    }
}

impl Subscriber for SocketSubscriber {
    fn take(&mut self, event: &Encoded) -> Taken {
        if self.is_gone() {
            return Taken::Gone;
        }
        match self.outbox.try_notify(&self.head, &event.text) {
            Ok(()) => Taken::Yes,
            Err(PushError::Full) => Taken::Full,
            Err(PushError::Closed) => Taken::Gone,
        }
    }

    fn take_when_room<'a>(&'a mut self, event: &'a Encoded) -> BoxFuture<'a, bool> {
        Box::pin(async move { !self.is_gone() && self.outbox.notify(&self.head, &event.text).await.is_ok() })
    }

    fn lagged(self: Box<Self>, text: String) {
        tokio::spawn(async move {
            // The last word waits for room; a client that leaves meanwhile needs none.
            let _gone = self.outbox.notify(&self.head, &text).await;
            self.shared.ended.notify_one();
        });
    }

    fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Relaxed) || self.outbox.is_closed()
    }
}
