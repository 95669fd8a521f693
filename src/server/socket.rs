//! The accept loop: checks the peer's user, limits the number of connections, and closes them all at the end.
//!
//! Owns the set of connection tasks. Does not know the protocol of a connection.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::connection::{self, Service};
use super::outbox::{OutboxLimits, QueueMemory};

/// The limits of one socket and of each connection to it.
#[derive(Debug, Clone)]
pub struct SocketLimits {
    /// The longest line of input (`max_line_bytes`). A prompt with a few pictures fits.
    pub line_bytes: usize,
    /// The longest answer: twice the longest line, so that any input can be returned together with other members.
    pub response_bytes: usize,
    /// The number of connections at a time. The contract promises 256. With the agents' pipes, this stays below the usual
    /// limit of 1,024 descriptors.
    pub connections: ConnectionLimit,
    /// How many requests of one connection may be unanswered. The contract promises 64.
    pub requests_in_flight: usize,
    /// How many entries a batch may have.
    pub batch_entries: usize,
    /// How many subscriptions a connection may have: enough for each conversation of a full side bar.
    pub subscriptions: usize,
    /// The limits of the queue to one client.
    pub outbox: OutboxLimits,
    /// The memory that the queues to all clients share. Clones share it, so that it can apply to several sockets together.
    pub queue_memory: QueueMemory,
    /// How long requests in flight may take once the daemon stops.
    pub stop_grace: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            line_bytes: 16 * 1024 * 1024,
            response_bytes: 32 * 1024 * 1024,
            connections: ConnectionLimit::of(512),
            requests_in_flight: 256,
            batch_entries: 64,
            subscriptions: 1024,
            outbox: OutboxLimits::default(),
            queue_memory: QueueMemory::default(),
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// The limit on connected clients. Clones share it, so that it can apply to several sockets together.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    maximum: usize,
    free: Arc<Semaphore>,
}

impl ConnectionLimit {
    /// Creates a limit that no other socket shares.
    #[must_use]
    pub fn of(most: usize) -> Self {
        Self {
            maximum: most,
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// How long to wait after a failed accept. Descriptors become free when a connection or an agent ends, which this loop
/// cannot observe.
const ACCEPT_BACKOFF_MS: u64 = 100;

/// How often refused connections are logged: often enough to be seen, too rarely to fill the log.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts clients of this user and serves `service` to them until `stop` is cancelled. Then it accepts no more clients, lets
/// requests in flight finish within the grace of `limits`, and returns when every connection is closed.
///
/// A connection of another user is closed without an answer. A connection over the limit gets the error `busy`.
pub async fn serve(
    listener: UnixListener,
    service: impl Service,
    limits: SocketLimits,
    stop: CancellationToken,
) {
    let (ConnectionLimit { maximum: most, free }, stop_grace) =
        (limits.connections.clone(), limits.stop_grace);
    let limits = Arc::new(limits);
    let own_uid = rustix::process::geteuid().as_raw();
    let mut tasks = JoinSet::new();
    let mut accepted_so_far = 0;
    let (mut foreign, mut too_many) = (Refusals::default(), Refusals::default());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                log_connection_end(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(Duration::from_millis(ACCEPT_BACKOFF_MS)) => continue,
                }
            }
        };
        let peer = stream.peer_cred().map(|peer| peer.uid());
        if !matches!(peer, Ok(uid) if uid == own_uid) {
            if let Some(refused) = foreign.count(Instant::now()) {
                tracing::warn!(
                    ?peer,
                    refused,
                    "connections that are not known to be of this user are refused"
                );
            }
            continue;
        }
        let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
            refuse_one_too_many(stream, most);
            if let Some(refused) = too_many.count(Instant::now()) {
                tracing::warn!(
                    connections = most,
                    refused,
                    "connections over the limit are refused"
                );
            }
            continue;
        };
        accepted_so_far += 1;
        let (service, limits, stop) = (service.clone(), Arc::clone(&limits), stop.clone());
        let connection = connection::run(stream, accepted_so_far, service, limits, stop);
        tasks.spawn(connection.map(|()| drop(permit)));
    }
    // Drop the listener, so that no client waits in a queue that is no longer served.
    drop(listener);
    let all_ended = async {
        while let Some(ended) = tasks.join_next().await {
            log_connection_end(ended);
        }
    };
    if tokio::time::timeout(stop_grace, all_ended).await.is_err() {
        tracing::info!(
            connections = tasks.len(),
            "closing connections that still wait for answers"
        );
        tasks.shutdown().await;
    }
}

/// Refused connections of one kind, logged in one line per [`REFUSAL_LOG_INTERVAL`]: a refused client can retry a thousand
/// times a second, and must not fill the disk.
#[derive(Debug, Default)]
struct Refusals {
    unlogged: u64,
    logged_at: Option<Instant>,
}

impl Refusals {
    /// Counts a refused connection. If the next log line is due, returns the number since the last one.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self
            .logged_at
            .is_some_and(|logged| now < logged + REFUSAL_LOG_INTERVAL)
        {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

fn refuse_one_too_many(stream: UnixStream, limit: usize) {
    let message = format!("{limit} connections are open, which is the limit");
    let line = format!(
        "{}\n",
        answer::error_response(None, &BridgeError::new(ErrorKind::Busy, message))
    );
    // The send buffer of a new connection is empty, so one line fits. A client that has disconnected needs no answer.
    if let Err(error) = stream
        .into_std()
        .and_then(|mut stream| stream.write_all(line.as_bytes()))
    {
        tracing::debug!(%error, "a refused client has already disconnected");
    }
}

fn log_connection_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_one_line_an_interval() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        assert_eq!(refusals.count(start), Some(1), "the first at once");
        for _ in 0..1_000 {
            assert_eq!(refusals.count(start + REFUSAL_LOG_INTERVAL / 2), None);
        }
        assert_eq!(refusals.count(start + REFUSAL_LOG_INTERVAL), Some(1_001));
        assert_eq!(refusals.count(start + REFUSAL_LOG_INTERVAL * 3), Some(1));
    }
}
