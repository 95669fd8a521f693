//! The outgoing queue of a connection: a bounded queue of bytes, and the task that writes them.
//!
//! Owns all writing to one connection. Answers and events use the same queue, so that they are sent in the order in which
//! they are pushed.
//!
//! Messages are copied into segments of contiguous bytes. The writer writes everything that is queued, one segment at a
//! time. While the writer sleeps and the queue is empty, a push writes to the socket itself, without blocking, so that the
//! first event after a pause is sent before anything else runs. It also wakes the writer, and messages pushed until the
//! writer runs are written together.
//!
//! Does not know the content of messages.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bridge_protocol::BridgeError;
use memchr::memchr;
use thiserror::Error;
use tokio::sync::Notify;

use super::stream::Socket;

#[cfg(test)]
mod tests;

/// How much a connection's queue may hold. When it is full, subscribers lag and answers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxLimits {
    /// The most queued messages. The fastest agent sends 800,000 updates a second. The queue holds those of 80 ms, for which
    /// a busy machine may not let the client run.
    pub messages: usize,
    /// The most queued bytes, including line endings. [`QueueMemory`] may allow fewer. A single larger message is accepted if
    /// the queue is empty.
    pub bytes: usize,
}

impl OutboxLimits {
    /// Whether a message of this length fits into a queue with this many messages and bytes.
    pub(crate) fn has_room(&self, messages: usize, bytes: usize, length: usize) -> bool {
        messages < self.messages && (bytes == 0 || bytes + length <= self.bytes)
    }
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self {
            messages: 65_536,
            bytes: 64 * 1024 * 1024,
        }
    }
}

/// What may wait in all queues together.
const TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// What may wait in each queue, even if the others hold all of [`TOTAL_BYTES`]: a client that reads needs a few segments.
const OWN_BYTES: usize = 4 * SEGMENT_BYTES;

/// The memory that the queues of all clients share. Clones share it too.
#[derive(Debug, Clone, Default)]
pub struct QueueMemory {
    used_bytes: Arc<AtomicUsize>,
}

impl QueueMemory {
    /// How much a queue that holds `own` bytes may hold now: half of what the other queues leave. One client that does not
    /// read takes half of the total that way, two take a third each, and there is always something left for those that read.
    fn allowance(&self, own: usize) -> usize {
        let of_others = self.used_bytes.load(Ordering::Relaxed).saturating_sub(own);
        (TOTAL_BYTES.saturating_sub(of_others) / 2).max(OWN_BYTES)
    }
}

/// The size at which a segment is full: small enough to copy while others wait for the lock, large enough that many
/// events need few writes. Below the default send buffer of a Unix socket.
const SEGMENT_BYTES: usize = 64 * 1024;

/// Why a message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PushError {
    /// The client reads too slowly. A subscriber must be notified that it lags.
    #[error("the client's queue is full")]
    Full,
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
}

/// The sending side of one connection. Cheap to clone; clones share the queue. It may outlive the connection; every push
/// then fails.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

/// Sends one subscription's events to its client. Cheap to clone.
#[derive(Clone)]
pub struct SubscriptionSink {
    outbox: Outbox,
    /// The beginning of each notification, encoded once.
    notification_prefix: Arc<str>,
}

/// The task that writes. Runs until the queue is finished and empty, or the peer has disconnected. Dropping it closes the
/// queue, because clones of the outbox remain in subscribers.
pub(super) struct Writer {
    shared: Arc<Shared>,
    socket: Arc<Socket>,
}

struct Shared {
    state: Mutex<State>,
    limits: OutboxLimits,
    memory: QueueMemory,
    /// Weak, so that an outbox that outlives its connection does not keep the socket open.
    socket: Weak<Socket>,
    /// Notified when there may be work for the writer.
    work: Notify,
    /// Notified when room becomes available, and when the queue closes.
    room: Notify,
}

#[derive(Default)]
struct State {
    /// No more messages are accepted. Queued messages are still written.
    is_closed: bool,
    /// Queued messages are not written either.
    is_abandoned: bool,
    segments: VecDeque<Segment>,
    /// The number of queued messages, including the segment that is being written.
    messages: usize,
    bytes: usize,
    /// Whether the writer sleeps. Then the queue is empty and no write is in progress.
    writer_sleeps: bool,
}

#[derive(Default)]
struct Segment {
    bytes: Vec<u8>,
    written: usize,
    messages: usize,
}

/// Creates the queue of a connection: the sending side, and the writer, which the caller must run.
pub(super) fn open(socket: Arc<Socket>, limits: OutboxLimits, memory: QueueMemory) -> (Outbox, Writer) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        limits,
        memory,
        socket: Arc::downgrade(&socket),
        work: Notify::new(),
        room: Notify::new(),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        socket,
    };
    (Outbox { shared }, writer)
}

impl SubscriptionSink {
    /// Creates a sink that sends notifications of the method `event` for the subscription with this id.
    pub(super) fn new(outbox: Outbox, event: &str, subscription: u64) -> Self {
        let notification_prefix =
            format!(r#"{{"jsonrpc":"2.0","method":"{event}","params":{{"subscription":{subscription},"#);
        Self {
            outbox,
            notification_prefix: notification_prefix.into(),
        }
    }

    /// Sends an event, which must be JSON, without waiting.
    ///
    /// # Errors
    /// [`PushError::Full`] if the client lags, [`PushError::Closed`] if it has disconnected. Nothing was sent then.
    pub fn try_send(&self, event: &str) -> Result<(), PushError> {
        self.outbox
            .try_push(&[&self.notification_prefix, r#""result":"#, event, "}}"])
    }

    /// Sends an event and waits for room: for the first events of a subscription, and for the last message to a subscriber that
    /// lags.
    ///
    /// # Errors
    /// [`PushError::Closed`] only.
    pub async fn send(&self, event: &str) -> Result<(), PushError> {
        let parts = [&self.notification_prefix, r#""result":"#, event, "}}"];
        self.outbox.push(&parts).await
    }

    /// Ends the subscription with an error.
    pub(super) async fn fail(&self, error: &BridgeError) {
        let message = serde_json::Value::from(error.message.as_str()).to_string();
        let parts = [&self.notification_prefix, r#""error":"#, &message, "}}"];
        // A client that has disconnected needs no error.
        let _gone = self.outbox.push(&parts).await;
    }

    /// Whether sending can no longer succeed.
    pub fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }
}

impl Outbox {
    /// Whether pushing can no longer succeed.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Closes the queue. The writer writes the queued messages and ends.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_closed = true;
        self.shared.work.notify_one();
        self.shared.room.notify_waiters();
    }

    /// Closes the queue, drops the queued messages and ends the connection: for a client that does not read.
    pub(crate) fn abandon(&self) {
        {
            let mut state = self.shared.lock();
            (state.is_abandoned, state.segments) = (true, VecDeque::new());
        }
        self.finish();
    }

    /// The limits of the queue.
    pub(crate) fn limits(&self) -> OutboxLimits {
        self.shared.limits
    }

    /// Pushes a message given in parts, and waits for room. Cancel-safe: the message is pushed completely or not at all.
    ///
    /// # Errors
    /// [`PushError::Closed`] only.
    pub async fn push(&self, parts: &[&str]) -> Result<(), PushError> {
        self.push_within(1, parts).await
    }

    /// Like [`Outbox::push`], but uses only half of the queue, so that a long series of messages leaves room for urgent ones.
    ///
    /// # Errors
    /// [`PushError::Closed`] only.
    pub(crate) async fn push_leaving_room(&self, parts: &[&str]) -> Result<(), PushError> {
        self.push_within(2, parts).await
    }

    /// Pushes a message that may use one part of the queue, of `share` equal parts.
    async fn push_within(&self, share: usize, parts: &[&str]) -> Result<(), PushError> {
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            // Enabled before the attempt, so that room that becomes available in between is not missed.
            room.as_mut().enable();
            match self.try_push_within(share, parts) {
                Err(PushError::Full) => room.await,
                outcome => return outcome,
            }
        }
    }

    /// Pushes a message without waiting. Its parts together must be JSON.
    ///
    /// # Errors
    /// As [`SubscriptionSink::try_send`].
    pub fn try_push(&self, parts: &[&str]) -> Result<(), PushError> {
        self.try_push_within(1, parts)
    }

    fn try_push_within(&self, share: usize, parts: &[&str]) -> Result<(), PushError> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let shared = &self.shared;
        let mut state = shared.lock();
        if state.is_closed {
            return Err(PushError::Closed);
        }
        let limits = OutboxLimits {
            messages: (shared.limits.messages / share).max(1),
            bytes: shared.limits.bytes.min(shared.memory.allowance(state.bytes)) / share,
        };
        if !limits.has_room(state.messages, state.bytes, length) {
            return Err(PushError::Full);
        }
        state.append(parts, length);
        shared.memory.used_bytes.fetch_add(length, Ordering::Relaxed);
        if std::mem::take(&mut state.writer_sleeps) {
            if let Some(socket) = shared.socket.upgrade() {
                shared.write_directly(&mut state, &socket);
            }
            shared.work.notify_one();
        }
        Ok(())
    }
}

impl Writer {
    /// Writes until the queue is closed and empty.
    ///
    /// # Errors
    /// If writing fails, nearly always because the peer has disconnected, or if the queue was abandoned.
    pub(super) async fn run(self) -> io::Result<()> {
        while let Some(mut segment) = self.next_segment().await {
            while segment.written < segment.bytes.len() {
                if self.shared.lock().is_abandoned {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                match self.socket.try_write(&segment.bytes[segment.written..]) {
                    Ok(written) => segment.written += written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                        writable = self.socket.writable() => writable?,
                        () = self.shared.work.notified() => {}
                    },
                    Err(error) => return Err(error),
                }
            }
            self.shared.release(&mut self.shared.lock(), &segment);
            self.shared.room.notify_waiters();
            // A reader that is as fast as this writer must not keep the other tasks of the thread waiting.
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    /// Waits for the next segment to write. `None` if there will be no more.
    async fn next_segment(&self) -> Option<Segment> {
        loop {
            {
                let mut state = self.shared.lock();
                let segment = state.segments.pop_front();
                if segment.is_some() || state.is_closed {
                    return segment;
                }
                state.writer_sleeps = true;
            }
            self.shared.work.notified().await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.segments = VecDeque::new();
        let bytes = std::mem::take(&mut state.bytes);
        self.shared.memory.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.room.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves the queue half changed, not even by a panic in an allocation.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the message just queued, as far as the socket accepts it, without waiting for the writer. Only while the
    /// writer sleeps. An error is ignored: the writer will get it too.
    fn write_directly(&self, state: &mut State, socket: &Socket) {
        let Some(mut segment) = state.segments.pop_front() else {
            return;
        };
        segment.written = socket.try_write(&segment.bytes).unwrap_or_default();
        if segment.written == segment.bytes.len() {
            self.release(state, &segment);
        } else {
            state.segments.push_front(segment);
        }
    }

    /// Gives back the room of a segment that was written.
    fn release(&self, state: &mut State, segment: &Segment) {
        state.messages -= segment.messages;
        state.bytes -= segment.bytes.len();
        self.memory
            .used_bytes
            .fetch_sub(segment.bytes.len(), Ordering::Relaxed);
    }
}

impl State {
    fn append(&mut self, parts: &[&str], length: usize) {
        let is_full = |last: &Segment| last.bytes.len() + length > SEGMENT_BYTES;
        if self.segments.back().is_none_or(is_full) {
            self.segments.push_back(Segment::default());
        }
        let Some(segment) = self.segments.back_mut() else {
            return;
        };
        segment.bytes.reserve(length);
        for part in parts {
            let begin = segment.bytes.len();
            segment.bytes.extend_from_slice(part.as_bytes());
            // JSON that a method forwards may contain newlines, but only between tokens, because strings cannot
            // contain them. There, a space means the same.
            if memchr(b'\n', part.as_bytes()).is_some() {
                segment.bytes[begin..]
                    .iter_mut()
                    .filter(|byte| **byte == b'\n')
                    .for_each(|byte| *byte = b' ');
            }
        }
        segment.bytes.push(b'\n');
        segment.messages += 1;
        self.messages += 1;
        self.bytes += length;
    }
}
