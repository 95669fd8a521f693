//! A client of the daemon: jsonrpsee's, over the daemon's Unix socket with one message a line.
//!
//! Owns the transport, its limits, and the check that the listener is this user's. [`Call`] calls the methods of
//! [`crate::method`].
//!
//! # Lagging
//! Notifications wait in a buffer of [`SUBSCRIPTION_BUFFER_EVENTS`] until the subscription is polled. A subscription that
//! is polled too slowly is closed: it yields what the buffer holds, then ends, and its `close_reason()` is `Lagged`. The
//! daemon has the same limit, and sends a last event `lagged`. Nothing is lost in either case: subscribe again with
//! `after` set to the cursor of the last event seen. If the daemon still holds the missed events, the subscription
//! continues without a gap; else it begins with a snapshot whose `gap` is true.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonrpsee::core::client::IdKind;
use jsonrpsee_core::client::ClientBuilder;
use thiserror::Error;
use tokio::net::UnixStream;

use crate::error::BridgeError;
use crate::method;
use transport::{LineReceiver, LineSender};

mod call;
mod transport;

pub use call::{ByName, Call};

/// jsonrpsee's client, connected to a daemon.
pub use jsonrpsee_core::client::Client;
/// Why a call has no result. `Call` is the daemon's answer, which [`crate::BridgeError`] reads; everything else is a failure of
/// the connection.
pub use jsonrpsee_core::client::Error as ClientError;
/// The events of a subscription, as they come.
pub use jsonrpsee_core::client::Subscription;

/// Longest line that is read from the daemon: longer than its longest answer and event.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// Notifications that one subscription buffers. An agent that streams at its fastest fills it in some tenths of a
/// second; see the section about lagging.
pub const SUBSCRIPTION_BUFFER_EVENTS: usize = 16 * 1024;

/// Requests that may wait to be sent. Below what the daemon takes in flight from one connection.
pub const REQUESTS_IN_FLIGHT: usize = 128;

/// How long a request may take: a year, that is without limit. A turn ends when the agent ends it, which may be after
/// hours, and the daemon answers every request when it stops. A client that wants to wait less can cancel.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a daemon may take to answer the first call. It answers `daemon/status` from memory, within milliseconds.
pub const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Why there is no connection, or why it ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No daemon runs, or it uses another path: there is no socket, or no process listens on it.
    #[error("no daemon listens on the socket {}", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// This user may not connect to the socket.
    #[error("this user may not connect to the socket {}", path.display())]
    PermissionDenied {
        /// The socket.
        path: PathBuf,
    },
    /// Another user's process listens on the socket. Nothing was sent to it.
    #[error("refusing the socket {}: user {owner} listens on it, and you are user {own}", path.display())]
    ForeignListener {
        /// The socket.
        path: PathBuf,
        /// The user of the listener.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// A process listens on the socket and does not answer.
    #[error("{} on the socket {} has not answered within {} s", listener(*pid), path.display(), limit.as_secs())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The process that listens, if the system reports it.
        pid: Option<u32>,
        /// How long the client waited.
        limit: Duration,
    },
    /// The daemon closed the connection: it stopped or was killed.
    #[error("the daemon closed the connection at {}", path.display())]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// Another program than a daemon listens on the socket.
    #[error("{} on the socket {} is not sessiond: it sent an unreadable message", listener(*pid), path.display())]
    OtherProtocol {
        /// The socket.
        path: PathBuf,
        /// The process that listens, if the system reports it.
        pid: Option<u32>,
    },
    /// The daemon refused the connection, reported why, and closed it: too many are open.
    #[error("the daemon refused the connection at {}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The error that the daemon reported.
        #[source]
        error: BridgeError,
    },
    /// Any other failure, such as a path that is too long for a socket, or a line from the daemon that exceeds the limit.
    #[error("cannot {step} the socket {}", path.display())]
    Io {
        /// The failed operation: a verb phrase that fits before the path.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Connects to the daemon that listens on `socket`, if that is a process of this user. Sends nothing.
///
/// Must be called within a tokio runtime, which runs the connection until the client is dropped.
///
/// # Errors
/// See [`ConnectError`]: [`ConnectError::NotRunning`] means that no daemon runs.
pub async fn connect(socket: &Path) -> Result<Client, ConnectError> {
    open(socket).await.map(|(client, _)| client)
}

/// Connects as [`connect`] does, and calls `daemon/status` to see that the daemon answers, whatever the answer is. Waits for
/// `limit` at most, best [`FIRST_ANSWER_LIMIT`]; later calls have no limit.
///
/// # Errors
/// As [`connect`], and [`ConnectError::NoAnswer`], [`ConnectError::OtherProtocol`] and [`ConnectError::Closed`].
pub async fn connect_answering(socket: &Path, limit: Duration) -> Result<Client, ConnectError> {
    let (client, pid) = open(socket).await?;
    let path = socket.to_owned();
    match tokio::time::timeout(limit, client.call(method::Status::default())).await {
        Err(_) => Err(ConnectError::NoAnswer { path, pid, limit }),
        Ok(Err(ClientError::RestartNeeded(error))) if !matches!(*error, ClientError::Transport(_)) => {
            Err(ConnectError::OtherProtocol { path, pid })
        }
        Ok(Err(error)) if is_lost(&error) => Err(ConnectError::Closed { path }),
        // An error is an answer too.
        Ok(_) => Ok(client),
    }
}

/// The error with which the daemon refused the connection, if it did: too many are open.
pub fn refusal(error: &ClientError) -> Option<&BridgeError> {
    match error {
        ClientError::RestartNeeded(error) => refusal(error),
        ClientError::Transport(error) => match error.downcast_ref()? {
            ConnectError::Refused { error, .. } => Some(error),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the connection ended without a reason from the daemon.
pub fn is_lost(error: &ClientError) -> bool {
    let has_ended = matches!(
        error,
        ClientError::Transport(_) | ClientError::RestartNeeded(_) | ClientError::ServiceDisconnect
    );
    has_ended && refusal(error).is_none()
}

/// A connection to a listener of this user, and the listener's process id.
async fn open(socket: &Path) -> Result<(Client, Option<u32>), ConnectError> {
    let failed = |source| classify(socket, "connect to", source);
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    // Before anything is sent: the path alone does not say who listens.
    let peer = stream.peer_cred().map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if let Some(error) = foreign_listener(socket, peer.uid(), own) {
        return Err(error);
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    let (read_half, write_half) = stream.into_split();
    let sender = LineSender {
        stream: write_half,
        path: socket.to_owned(),
    };
    let receiver = LineReceiver::new(read_half, socket, LINE_LIMIT_BYTES);
    let client = ClientBuilder::new()
        .request_timeout(REQUEST_TIMEOUT)
        .max_concurrent_requests(REQUESTS_IN_FLIGHT)
        .max_buffer_capacity_per_subscription(SUBSCRIPTION_BUFFER_EVENTS)
        .id_format(IdKind::Number)
        .build_with_tokio(sender, receiver);
    Ok((client, pid))
}

/// Refuses every listener but those of the user `own`; root is no exception, since root has a daemon of its own.
fn foreign_listener(socket: &Path, owner: u32, own: u32) -> Option<ConnectError> {
    (owner != own).then(|| ConnectError::ForeignListener {
        path: socket.to_owned(),
        owner,
        own,
    })
}

fn listener(pid: Option<u32>) -> String {
    pid.map_or_else(|| "the listener".to_owned(), |pid| format!("process {pid}"))
}

/// What a failure of the system means.
fn classify(socket: &Path, step: &'static str, source: io::Error) -> ConnectError {
    let path = socket.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ConnectError::NotRunning { path },
        // Also when the connection was still waiting to be accepted.
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ConnectError::Closed { path },
        io::ErrorKind::PermissionDenied => ConnectError::PermissionDenied { path },
        _ => ConnectError::Io { step, path, source },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn a_connection_that_ends_with_its_daemon_is_closed() {
        let table = [
            (io::ErrorKind::NotFound, "NotRunning"),
            (io::ErrorKind::ConnectionRefused, "NotRunning"),
            (io::ErrorKind::ConnectionReset, "Closed"),
            (io::ErrorKind::BrokenPipe, "Closed"),
            (io::ErrorKind::PermissionDenied, "PermissionDenied"),
            (io::ErrorKind::InvalidInput, "Io"),
        ];
        for (kind, expected) in table {
            let error = format!("{:?}", classify(Path::new("/s"), "connect to", kind.into()));
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn only_a_listener_of_this_user_is_accepted() {
        let path = Path::new("/run/s.sock");
        for (owner, own, is_refused) in [
            (1000, 1000, false),
            (1001, 1000, true),
            (0, 1000, true),
            (1000, 0, true),
        ] {
            assert_eq!(
                foreign_listener(path, owner, own).is_some(),
                is_refused,
                "{owner} {own}"
            );
        }
    }
}
