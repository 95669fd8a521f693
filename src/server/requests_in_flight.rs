//! The unanswered requests of one connection, and the gate that delays its next line.
//!
//! Runs inside the connection's task, so that dropping the task frees everything that the client holds. Knows no protocol.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::outbox::{Outbox, PushError};

/// The requests of one connection that are not answered yet.
pub struct RequestsInFlight {
    pub(crate) outbox: Outbox,
    /// Each future resolves when its answer is in the outbox. Its value is the number of requests that it represents.
    running: FuturesUnordered<BoxFuture<'static, usize>>,
    in_flight: usize,
    /// While set, no further line is read: this must finish before the next request may start.
    gate: Option<BoxFuture<'static, ()>>,
}

impl RequestsInFlight {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            running: FuturesUnordered::new(),
            in_flight: 0,
            gate: None,
        }
    }

    /// How many requests are not answered yet.
    pub(crate) fn count(&self) -> usize {
        self.in_flight
    }

    /// Runs `work`, which represents this many requests, until their answer is in the outbox.
    pub(crate) fn run(&mut self, requests: usize, work: BoxFuture<'static, ()>) {
        self.in_flight += requests;
        self.running.push(work.map(move |()| requests).boxed());
    }

    /// Queues an answer that is ready. If the outbox is full, nothing more is read until there is room.
    pub(crate) fn answer(&mut self, text: Box<str>) {
        if let Err(PushError::Full) = self.outbox.try_push(&[&text]) {
            let outbox = self.outbox.clone();
            let pushed = async move {
                // Fails only if the writer has ended, which ends the connection.
                let _gone = outbox.push(&[&text]).await;
            };
            self.block_until(pushed.boxed());
        }
    }

    /// Stops reading lines until this future is done.
    pub(crate) fn block_until(&mut self, gate: BoxFuture<'static, ()>) {
        self.gate = Some(gate);
    }

    /// Whether the next line may be read.
    pub(super) fn is_open(&self) -> bool {
        self.gate.is_none()
    }

    /// Whether nothing is running.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.gate.is_none()
    }

    /// Polls the running work until one item is done. Cancel-safe. Never returns while idle.
    pub(super) async fn advance(&mut self) {
        tokio::select! {
            Some(requests) = self.running.next() => self.in_flight -= requests,
            Some(()) = OptionFuture::from(self.gate.as_mut()) => self.gate = None,
            else => std::future::pending().await,
        }
    }
}
