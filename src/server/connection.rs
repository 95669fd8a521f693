//! One client connection, from its first line to its last answer.
//!
//! Owns the connection's calls, which run inside this task, and its subscriptions, whose tasks end with it. So everything a
//! client holds is freed when it disconnects.
//! Reads one line, passes it to the [`Dialogue`], and then reads the next. Nothing here waits for the client to read: if the
//! outbox is full, the answer waits among the requests in flight.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::outbox::{self, Outbox};
use super::requests_in_flight::RequestsInFlight;
use super::socket::SocketLimits;
use super::stream::Socket;
use crate::agent::split::{SplitLine, Splitter};

/// The size of the read buffer. Small, because every idle connection has one.
const READ_BYTES: usize = 8 * 1024;

/// How long the last answers may take to reach a client that sends nothing more. A client that reads at all receives
/// them in milliseconds.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(30);

/// The protocol that a socket serves.
pub trait Service: Clone + Send + 'static {
    /// One connection.
    type Dialogue: Dialogue;

    /// Opens a connection.
    fn open(&self, outbox: Outbox, limits: Arc<SocketLimits>) -> Self::Dialogue;
}

/// The handler of one connection's lines, with its unanswered requests. Dropping it frees everything that the client holds.
pub trait Dialogue: Send {
    /// Handles a line, without waiting.
    fn take_line(&mut self, line: SplitLine<'_>);

    /// Called when the client sends nothing more.
    fn input_ended(&mut self) {}

    /// The requests that are not answered yet.
    fn requests_in_flight(&mut self) -> &mut RequestsInFlight;
}

/// Drives a connection until nothing is running.
async fn finish(requests: &mut RequestsInFlight) {
    while !requests.is_idle() {
        requests.advance().await;
    }
}

/// Serves one client until it disconnects or `stop` is cancelled. Then answers the requests in flight before it returns.
///
/// The caller limits how long that may take. Dropping the future frees everything immediately.
pub(super) async fn run(
    stream: UnixStream,
    id: usize,
    service: impl Service,
    limits: Arc<SocketLimits>,
    stop: CancellationToken,
) {
    let socket = match Socket::new(stream) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::warn!(connection = id, %error, "a client cannot be served");
            return;
        }
    };
    let (outbox, writer) = outbox::open(Arc::clone(&socket), limits.outbox, limits.queue_memory.clone());
    let mut writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    let mut lines = Splitter::new(limits.line_bytes, READ_BYTES);
    let mut dialogue = service.open(outbox.clone(), limits);

    let mut stopped = Box::pin(stop.cancelled());
    loop {
        tokio::select! {
            biased;
            // The peer has disconnected, or the queue to it was abandoned.
            _ = &mut writer => return,
            () = &mut stopped => {
                dialogue.input_ended();
                break;
            }
            () = dialogue.requests_in_flight().advance(), if !dialogue.requests_in_flight().is_idle() => {}
            line = next_line(&socket, &mut lines), if dialogue.requests_in_flight().is_open() => match line {
                Ok(Some(line)) => dialogue.take_line(line),
                Ok(None) => {
                    dialogue.input_ended();
                    break;
                }
                Err(error) => {
                    tracing::debug!(connection = id, %error, "the client has disconnected");
                    return;
                }
            },
        }
        // Any number of buffered lines is ready immediately. Yield, because the thread has other tasks.
        tokio::task::coop::consume_budget().await;
    }

    // Half closed or stopping: start no new requests, but answer those in flight.
    tokio::select! {
        biased;
        _ = &mut writer => return,
        () = finish(dialogue.requests_in_flight()) => {}
        watched = socket.closed_by_client() => match watched {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(connection = id, %error, "cannot watch a client that has finished sending; it is kept until it is answered");
                finish(dialogue.requests_in_flight()).await;
            }
        },
    }
    outbox.finish();
    if tokio::time::timeout(LAST_ANSWERS_LIMIT, &mut writer)
        .await
        .is_err()
    {
        tracing::debug!(connection = id, "the client does not read its last answers");
    }
}

/// Reads the next line. `None` at the end of input. The last line needs no line ending. Cancel-safe.
async fn next_line<'lines>(
    socket: &Socket,
    lines: &'lines mut Splitter,
) -> io::Result<Option<SplitLine<'lines>>> {
    while !lines.has_line() && !lines.has_ended() {
        let read = socket.read(lines.space()).await?;
        lines.advance(read);
    }
    Ok(lines.next_line())
}
