//! What an agent says, on its way to the owner of one session.
//!
//! Bounded: past the limits updates are dropped and the receiver is told how many, in their place. Answers, the
//! agent's requests and its death are always taken, since their number is bounded by the requests in flight. The
//! sender never waits, so one slow session never holds up the others of its agent.
//!
//! It owns the queue and must not know the wire, sessions or what a method means. No lock is held over an await.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::envelope::Line;
use super::message::{CallError, MethodName, RawId, RequestId};
use super::process::Death;
use super::wire::Attachment;

/// How many requests of the agent may wait for an answer in one session; more are refused. A turn has a handful of
/// parallel tools at most.
pub const MAX_OPEN_REQUESTS: usize = 64;

/// How much an inbox takes before it drops updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxLimits {
    /// Waiting updates.
    pub updates: usize,
    /// Bytes of waiting updates.
    pub update_bytes: usize,
}

impl Default for InboxLimits {
    /// About a tenth of a second of the fastest agent, and four of the longest lines.
    fn default() -> Self {
        Self {
            updates: 16_384,
            update_bytes: 64 * 1024 * 1024,
        }
    }
}

/// One thing that an agent said, or that happened to it.
#[derive(Debug, Clone)]
pub enum Incoming {
    /// A notification: an update, or anything else that names the session.
    Notification {
        /// Its method.
        method: MethodName,
        /// The whole line.
        line: Line,
    },
    /// The agent asks and waits for `Connection::respond`.
    Request {
        /// What the answer must carry.
        id: RawId,
        /// Its method.
        method: MethodName,
        /// The whole line.
        line: Line,
    },
    /// The answer to a request that was started with this inbox; everything that the agent wrote before it came
    /// before it here.
    Response {
        /// What `start` or `open` returned.
        request: RequestId,
        /// The result as the agent wrote it.
        outcome: Result<Box<RawValue>, CallError>,
        /// Set for the success of an `open`: the new session is already routed here.
        attachment: Option<Attachment>,
        /// Whether it is the error of a prompt while others had no answer yet, or behind such a one with the same code: one cause
        /// may have ended them all.
        in_company: bool,
    },
    /// Updates are missing here.
    Overflow {
        /// How many, at least one.
        dropped: u64,
    },
    /// The agent has ended; nothing more comes from it, and nothing that was asked of it will be answered.
    Died(Arc<Death>),
}

/// What became of something that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It waits, with so many others.
    Waiting(usize),
    /// It was an update and the inbox is full.
    Dropped,
    /// The receiver is gone.
    Closed,
}

/// Makes an inbox. It should serve one connection: after that one's death nothing more is taken from it.
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

/// The wire's end; clones fill the same inbox.
#[derive(Debug, Clone)]
pub struct InboxSender {
    shared: Arc<Shared>,
}

/// The owner's end.
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
    waiting: VecDeque<Incoming>,
    updates: usize,
    update_bytes: usize,
    is_closed: bool,
}

impl InboxSender {
    /// A notification; dropped and counted when the limits are reached.
    pub fn push_update(&self, method: MethodName, line: Line) -> Pushed {
        let bytes = line.len_bytes();
        let limits = self.shared.limits;
        self.push(|state| {
            if state.updates >= limits.updates
                || state.update_bytes.saturating_add(bytes) > limits.update_bytes
            {
                state.drop_updates(1);
                return Pushed::Dropped;
            }
            state.updates += 1;
            state.update_bytes += bytes;
            state.waiting.push_back(Incoming::Notification { method, line });
            Pushed::Waiting(state.waiting.len())
        })
    }

    /// Updates that were lost before they came here.
    pub fn push_overflow(&self, dropped: u64) -> Pushed {
        self.push(|state| {
            state.drop_updates(dropped);
            Pushed::Dropped
        })
    }

    /// Anything but an update; always taken.
    pub fn push_control(&self, incoming: Incoming) -> Pushed {
        self.push(|state| {
            state.waiting.push_back(incoming);
            Pushed::Waiting(state.waiting.len())
        })
    }

    /// Whether the owner has gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Whether both fill the same inbox.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn push(&self, change: impl FnOnce(&mut State) -> Pushed) -> Pushed {
        let mut state = self.shared.lock();
        if state.is_closed {
            return Pushed::Closed;
        }
        let was_empty = state.waiting.is_empty();
        let pushed = change(&mut state);
        drop(state);
        // While something waits, the receiver has been woken for it and not come yet.
        if was_empty {
            self.shared.arrived.notify_one();
        }
        pushed
    }
}

impl InboxReceiver {
    /// Waits until something is there, then moves at most `limit` of it behind what `into` holds; gives how many.
    ///
    /// Cancel safe: nothing is taken unless this returns.
    pub async fn recv_up_to(&mut self, into: &mut Vec<Incoming>, limit: usize) -> usize {
        loop {
            let taken = self.take_up_to(into, limit);
            if taken > 0 {
                return taken;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// What is there now, at most `limit`.
    pub fn take_up_to(&mut self, into: &mut Vec<Incoming>, limit: usize) -> usize {
        let mut state = self.shared.lock();
        let count = limit.min(state.waiting.len());
        into.reserve(count);
        for _ in 0..count {
            if let Some(incoming) = state.waiting.pop_front() {
                state.forget(&incoming);
                into.push(incoming);
            }
        }
        count
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }
}

impl Drop for InboxReceiver {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.lock();
            state.is_closed = true;
            std::mem::take(&mut state.waiting)
        };
        // Freed outside the lock; it may be many megabytes.
        drop(waiting);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is left, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_updates(&mut self, count: u64) {
        if let Some(Incoming::Overflow { dropped }) = self.waiting.back_mut() {
            *dropped = dropped.saturating_add(count);
        } else {
            self.waiting.push_back(Incoming::Overflow { dropped: count });
        }
    }

    fn forget(&mut self, incoming: &Incoming) {
        if let Incoming::Notification { line, .. } = incoming {
            self.updates = self.updates.saturating_sub(1);
            self.update_bytes = self.update_bytes.saturating_sub(line.len_bytes());
        }
    }
}
