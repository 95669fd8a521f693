//! The servers of the daemon's sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::presence::{LostFile, PresenceWatch};
use crate::acp::AcpService;
use crate::bridge::Bridge;
use crate::conversation::services::chain_text;
use crate::server::{
    ConnectionLimit, Methods, OutboxLimits, PrivateSocket, SocketFile, SocketLimits, methods, serve,
};

/// Serves clients: apps and commands on one socket, editors on the other.
pub(super) struct Servers {
    methods: Arc<Methods>,
    editors: AcpService,
    /// The socket for editors.
    acp_socket: PathBuf,
    limits: SocketLimits,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Servers {
    pub(super) fn new(bridge: Arc<Bridge>, acp_socket: &Path, config: &Config) -> Self {
        Self {
            editors: AcpService::new(Arc::clone(&bridge), config.editors.commands),
            methods: Arc::new(methods(bridge)),
            acp_socket: acp_socket.to_owned(),
            limits: socket_limits(config),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Serves on a socket, and returns its file.
    pub(super) fn serve(&mut self, socket: PrivateSocket) -> SocketFile {
        let PrivateSocket { listener, file } = socket;
        let (limits, stop) = (self.limits.clone(), self.stop.clone());
        match file.path() == self.acp_socket {
            true => (self.tasks).spawn(serve(listener, self.editors.clone(), limits, stop)),
            false => (self.tasks).spawn(serve(listener, Arc::clone(&self.methods), limits, stop)),
        };
        file
    }

    /// Stops serving, and waits until every connection is closed.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the server failed");
            }
        }
    }
}

/// Creates each socket again that is removed. Returns when the lock file is lost.
pub(super) async fn restore_sockets(presence: &mut PresenceWatch<'_>, servers: &mut Servers) {
    while let LostFile::Socket(path) = presence.wait_until_lost().await {
        match PrivateSocket::bind(&path) {
            Ok(socket) => {
                tracing::warn!(path = %path.display(), "the socket was removed; created a new one");
                presence.replace_socket(servers.serve(socket));
            }
            Err(error) => {
                tracing::debug!(
                    error = chain_text(&error),
                    "the socket was removed; cannot create a new one yet"
                );
                presence.retry_later();
            }
        }
    }
}

fn socket_limits(config: &Config) -> SocketLimits {
    let usual = SocketLimits::default();
    SocketLimits {
        line_bytes: config.limits.max_line_bytes,
        connections: ConnectionLimit::of(config.limits.connections),
        requests_in_flight: config.limits.requests_in_flight,
        outbox: OutboxLimits {
            messages: config.limits.subscriber_events,
            ..usual.outbox
        },
        ..usual
    }
}
