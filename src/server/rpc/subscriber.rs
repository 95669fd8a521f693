//! A client that listens, as the events see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::conversation::events::{Encoded, Subscriber, Taken};
use crate::server::outbox::{NotificationHead, Outbox, PushError};

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
