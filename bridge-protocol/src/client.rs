//! A client of the daemon: jsonrpsee's, over the daemon's Unix socket with one message a line.
//!
//! Owns the transport and its limits. [`Call`] calls the methods of [`crate::method`].
//!
//! # Lagging
//! Notifications wait in a buffer of [`SUBSCRIPTION_BUFFER_EVENTS`] until the subscription is polled. One that is
//! polled too slowly is closed: it yields what the buffer holds, then ends, and its `close_reason()` is `Lagged`. The
//! daemon does the same on its side, and says so in a last event `lagged`. Nothing is lost for good in either case:
//! subscribe again with `after` set to the cursor of the last event seen, which continues without a gap where the
//! daemon still holds what was missed, and with a snapshot that says `gap` where it does not.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonrpsee::core::client::IdKind;
use jsonrpsee_core::client::ClientBuilder;
use thiserror::Error;
use tokio::net::UnixStream;

use transport::{LineReceiver, LineSender};

mod call;
mod transport;

pub use call::Call;

/// jsonrpsee's client, connected to a daemon.
pub use jsonrpsee_core::client::Client;
/// Why a call has no result: `Call` is what the daemon answered, which [`crate::BridgeError`] reads; all else happened on
/// the way.
pub use jsonrpsee_core::client::Error as ClientError;
/// The events of a subscription, as they come.
pub use jsonrpsee_core::client::Subscription;
pub use transport::TransportError;

/// Longest line that is taken from the daemon: above the longest answer and event that it sends.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// Notifications that one subscription buffers. An agent that streams at its fastest fills it in some tenths of a
/// second; see the section about lagging.
pub const SUBSCRIPTION_BUFFER_EVENTS: usize = 16 * 1024;

/// Requests that may wait to be sent. Below what the daemon takes in flight from one connection.
pub const REQUESTS_IN_FLIGHT: usize = 128;

/// How long a request may take: a year, that is without limit. A turn ends when the agent ends it, which may be after
/// hours, and the daemon answers every request when it stops; a client that wants to wait less can cancel.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no socket: no daemon runs, or it uses another path.
    #[error("there is no socket at {}; no daemon runs there", path.display())]
    NotFound {
        /// Where one was expected.
        path: PathBuf,
    },
    /// There is a socket, at which nobody answers: the daemon was killed.
    #[error("nobody answers at the socket {}; the daemon is gone", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The socket belongs to another user.
    #[error("the socket {} may not be used by this user", path.display())]
    PermissionDenied {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else, among it a path that is too long for a socket.
    #[error("cannot connect to the socket {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Connects to the daemon that listens on `socket`.
///
/// Has to be called within a tokio runtime, which runs the connection until the client is dropped.
///
/// # Errors
/// See [`ConnectError`]: [`ConnectError::NotFound`] and [`ConnectError::Refused`] mean that no daemon runs.
pub async fn connect(socket: &Path) -> Result<Client, ConnectError> {
    connect_with(socket, builder()).await
}

/// Connects with a client configuration of the caller's own, best begun with [`builder`].
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(socket: &Path, builder: ClientBuilder) -> Result<Client, ConnectError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| classify(socket, source))?;
    let (read_half, write_half) = stream.into_split();
    let sender = LineSender::new(write_half, socket);
    let receiver = LineReceiver::new(read_half, socket, LINE_LIMIT_BYTES);
    Ok(builder.build_with_tokio(sender, receiver))
}

/// The configuration that [`connect`] uses: no time limit on requests, numbers as ids, this module's buffer sizes.
pub fn builder() -> ClientBuilder {
    ClientBuilder::new()
        .request_timeout(REQUEST_TIMEOUT)
        .max_concurrent_requests(REQUESTS_IN_FLIGHT)
        .max_buffer_capacity_per_subscription(SUBSCRIPTION_BUFFER_EVENTS)
        .id_format(IdKind::Number)
}

fn classify(socket: &Path, source: io::Error) -> ConnectError {
    let path = socket.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ConnectError::NotFound { path },
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { path },
        io::ErrorKind::PermissionDenied => ConnectError::PermissionDenied { path },
        _ => ConnectError::Io { path, source },
    }
}
