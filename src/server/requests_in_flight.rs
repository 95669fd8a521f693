//! What one connection has begun and not ended: its requests, and what has to be done before the next line is read.
//!
//! Runs inside the connection's task, so that dropping it frees everything that the client holds. Knows no protocol.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::outbox::{Outbox, PushError};

/// The requests of one connection that are not answered yet.
pub struct RequestsInFlight {
    pub(crate) outbox: Outbox,
    /// Each resolves, to how many requests it stood for, when its answer is in the outbox.
    running: FuturesUnordered<BoxFuture<'static, usize>>,
    in_flight: usize,
    /// While set, no further line is read: something has to be done before the next request may be admitted.
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

    /// Runs what stands for so many requests, until their answer is in the outbox.
    pub(crate) fn run(&mut self, requests: usize, work: BoxFuture<'static, ()>) {
        self.in_flight += requests;
        self.running.push(work.map(move |()| requests).boxed());
    }

    /// Queues an answer that is ready; where there is no room, nothing more is read until there is.
    pub(crate) fn answer(&mut self, text: Box<str>) {
        if let Err(PushError::Full) = self.outbox.try_push(&[&text]) {
            let outbox = self.outbox.clone();
            let pushed = async move {
                // Closed: the writer has ended, which ends the connection.
                let _gone = outbox.push(&[&text]).await;
            };
            self.block_until(pushed.boxed());
        }
    }

    /// Reads nothing more until this is done.
    pub(crate) fn block_until(&mut self, gate: BoxFuture<'static, ()>) {
        self.gate = Some(gate);
    }

    /// Whether the next line may be taken.
    pub(super) fn is_open(&self) -> bool {
        self.gate.is_none()
    }

    /// Whether nothing is running.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.gate.is_none()
    }

    /// Drives what is running until one of it is done. Cancel-safe; never ends while idle.
    pub(super) async fn advance(&mut self) {
        tokio::select! {
            Some(requests) = self.running.next() => self.in_flight -= requests,
            Some(()) = OptionFuture::from(self.gate.as_mut()) => self.gate = None,
            else => std::future::pending().await,
        }
    }
}
