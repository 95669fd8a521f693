//! `daemon/…` and `rpc.discover`.

use std::sync::LazyLock;
use std::time::Duration;

use bridge_protocol::PROTOCOL_VERSION;
use bridge_protocol::conversation::Empty;
use bridge_protocol::daemon::{DaemonStatus, StoreStatus, WorkAnswer};
use bridge_protocol::method::{Diagnose, Discover, RunningWork, Shutdown, Status};
use bridge_protocol::openrpc::{self, OpenRpcDocument};

use super::{Act, Daemon, Outcome, StopRequest};
use crate::conversation::answer::Request;
use crate::conversation::error::ConversationError;
use crate::conversation::services::chain_text;
use crate::diagnosis::{Question, diagnose};

/// The same for the life of the program; made when it is first asked for, which is rare.
static DOCUMENT: LazyLock<Result<OpenRpcDocument, String>> =
    LazyLock::new(|| openrpc::document().map_err(|error| error.to_string()));

impl Act<Status> for Daemon {
    async fn act(&self, _: Status, _: Option<Request>) -> Outcome<Status> {
        let services = self.registry.services();
        let store = services.store.status();
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_version: PROTOCOL_VERSION,
            pid: std::process::id(),
            home: self.home.to_string_lossy().into_owned(),
            socket: self.socket.to_string_lossy().into_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            conversations: store.conversations,
            live: self.registry.count_live(),
            agents: services.pool.running().len() as u64,
            store: StoreStatus {
                ephemeral: store.is_ephemeral,
                sequence: store.sequence.0,
                journal_bytes: store.journal_bytes,
                set_aside: self
                    .set_aside
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
                failure: store.failure.map(|failure| chain_text(&failure)),
            },
        })
    }
}

impl Act<RunningWork> for Daemon {
    async fn act(&self, _: RunningWork, _: Option<Request>) -> Outcome<RunningWork> {
        let work = self.registry.work();
        Ok(WorkAnswer { work })
    }
}

impl Act<Diagnose> for Daemon {
    async fn act(&self, params: Diagnose, _: Option<Request>) -> Outcome<Diagnose> {
        let question = Question {
            with_agents: params.agents != Some(false),
            path: params.path,
        };
        let mut found = diagnose(self.registry.services(), &question).await;
        found.diagnostics.insert(0, (self.configuration)());
        Ok(found)
    }
}

impl Act<Shutdown> for Daemon {
    async fn act(&self, params: Shutdown, _: Option<Request>) -> Outcome<Shutdown> {
        let request = StopRequest {
            grace: params.grace_ms.map(Duration::from_millis),
        };
        if let Err(error) = self.stop.try_send(request) {
            tracing::debug!(%error, "the daemon is stopping already");
        }
        Ok(Empty {})
    }
}

impl Act<Discover> for Daemon {
    async fn act(&self, _: Discover, _: Option<Request>) -> Outcome<Discover> {
        DOCUMENT.clone().map_err(|problem| {
            tracing::error!(problem, "the OpenRPC document cannot be made");
            ConversationError::Lost
        })
    }
}
