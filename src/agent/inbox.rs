//! The queue of messages from an agent to the owner of one session.
//!
//! The queue is bounded: beyond the limits, updates are dropped, and an entry in their place reports how many.
//! Responses, the agent's requests and its death are never dropped, because the requests in flight bound their number.
//! The sender never waits, so one slow session never delays the agent's others.
//!
//! This module owns the queue. It does not know the wire, sessions or the meaning of a method. No lock is held across
//! an await.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::envelope::Line;
use super::message::{AgentRequestId, CallError, MethodName, RawId};
use super::process::Death;
use super::wire::Attachment;

/// How many of the agent's requests may be unanswered in one session. Further ones are refused. The limit is high because
/// agents read many of the client's files at once, and have a request open for each terminal that they wait for.
pub const MAX_OPEN_REQUESTS: usize = 256;

/// How much an inbox holds before it drops updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLimits {
    /// The number of queued updates.
    pub updates: usize,
    /// The bytes of queued updates.
    pub update_bytes: usize,
}

impl Default for InboxLimits {
    /// Holds what the fastest agent sends in 20 ms, or four lines of the maximum length.
    fn default() -> Self {
        Self {
            updates: 16_384,
            update_bytes: 64 * 1024 * 1024,
        }
    }
}

/// A message from the agent, or an event.
#[derive(Debug, Clone)]
pub enum Incoming {
    /// A notification: an update, or another one for the session.
    Notification {
        /// Its method.
        method: MethodName,
        /// The whole line.
        line: Line,
    },
    /// A request of the agent. It waits for `Connection::respond`.
    Request {
        /// The id that the answer must carry.
        id: RawId,
        /// Its method.
        method: MethodName,
        /// The whole line.
        line: Line,
    },
    /// The answer to a request that was started with this inbox. Everything that the agent wrote earlier arrives
    /// earlier.
    Response {
        /// The value that `start` or `open` returned.
        request: AgentRequestId,
        /// The result as the agent wrote it.
        outcome: Result<Box<RawValue>, CallError>,
        /// Set when an `open` succeeded: the new session is already routed to this inbox.
        attachment: Option<Attachment>,
    },
    /// Updates were dropped at this point.
    Overflow {
        /// How many; at least one.
        dropped: u64,
    },
    /// The agent has ended. It sends nothing more, and unanswered requests stay unanswered.
    Died(Arc<Death>),
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    /// Queued; the number of queued entries.
    Queued(usize),
    /// An update that was dropped because the inbox is full.
    Dropped,
    /// The receiver was dropped.
    Closed,
}

/// Creates an inbox. Use it for one connection: after that connection's death, nothing more is delivered.
#[must_use]
pub fn inbox(limits: InboxLimits) -> (InboxSender, InboxReceiver) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        arrived: Notify::new(),
        limits,
    });
    (
        InboxSender {
            shared: Arc::clone(&shared),
        },
        InboxReceiver { shared },
    )
}

/// The sending half, for the wire. Clones send to the same inbox.
#[derive(Debug, Clone)]
pub struct InboxSender {
    shared: Arc<Shared>,
}

/// The receiving half, for the session's owner.
#[derive(Debug)]
pub struct InboxReceiver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
    limits: InboxLimits,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Incoming>,
    updates: usize,
    update_bytes: usize,
    is_closed: bool,
}

impl InboxSender {
    /// Pushes a notification. Drops and counts it beyond the limits.
    pub fn push_update(&self, method: MethodName, line: Line) -> PushResult {
        let bytes = line.text().len();
        let limits = self.shared.limits;
        self.push(|state| {
            if state.updates >= limits.updates
                || state.update_bytes.saturating_add(bytes) > limits.update_bytes
            {
                state.drop_updates(1);
                return PushResult::Dropped;
            }
            state.updates += 1;
            state.update_bytes += bytes;
            state.queue.push_back(Incoming::Notification { method, line });
            PushResult::Queued(state.queue.len())
        })
    }

    /// Records updates that were lost before they reached the inbox.
    pub fn push_overflow(&self, dropped: u64) -> PushResult {
        self.push(|state| {
            state.drop_updates(dropped);
            PushResult::Dropped
        })
    }

    /// Pushes anything but an update. Never drops it.
    pub fn push_control(&self, incoming: Incoming) -> PushResult {
        self.push(|state| {
            state.queue.push_back(incoming);
            PushResult::Queued(state.queue.len())
        })
    }

    /// Whether the receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Whether both send to the same inbox.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn push(&self, change: impl FnOnce(&mut State) -> PushResult) -> PushResult {
        let mut state = self.shared.lock();
        if state.is_closed {
            return PushResult::Closed;
        }
        let was_empty = state.queue.is_empty();
        let pushed = change(&mut state);
        drop(state);
        // If the queue was not empty, the receiver is already notified and has not run yet.
        if was_empty {
            self.shared.arrived.notify_one();
        }
        pushed
    }
}

impl InboxReceiver {
    /// Waits until something is queued, then appends at most `limit` entries to `into`. Returns how many.
    ///
    /// Cancel safe: takes nothing unless it returns.
    pub async fn recv_up_to(&mut self, into: &mut Vec<Incoming>, limit: usize) -> usize {
        loop {
            let taken = self.take_up_to(into, limit);
            if taken > 0 {
                return taken;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// Appends at most `limit` queued entries to `into`, without waiting. Returns how many.
    pub fn take_up_to(&mut self, into: &mut Vec<Incoming>, limit: usize) -> usize {
        let mut state = self.shared.lock();
        let count = limit.min(state.queue.len());
        into.reserve(count);
        for _ in 0..count {
            if let Some(incoming) = state.queue.pop_front() {
                state.release_quota(&incoming);
                into.push(incoming);
            }
        }
        count
    }
}

impl Drop for InboxReceiver {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.lock();
            state.is_closed = true;
            std::mem::take(&mut state.queue)
        };
        // Dropped outside the lock, because it may be many megabytes.
        drop(waiting);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is released, so a panic elsewhere leaves a consistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_updates(&mut self, count: u64) {
        if let Some(Incoming::Overflow { dropped }) = self.queue.back_mut() {
            *dropped = dropped.saturating_add(count);
        } else {
            self.queue.push_back(Incoming::Overflow { dropped: count });
        }
    }

    fn release_quota(&mut self, incoming: &Incoming) {
        if let Incoming::Notification { line, .. } = incoming {
            self.updates = self.updates.saturating_sub(1);
            self.update_bytes = self.update_bytes.saturating_sub(line.text().len());
        }
    }
}
