//! `daemon/…` and `rpc.discover`.

use std::time::Duration;

use bridge_protocol::PROTOCOL_VERSION;
use bridge_protocol::conversation::Empty;
use bridge_protocol::daemon::{DaemonStatus, StoreStatus, WorkAnswer};
use bridge_protocol::method::{Diagnose, Discover, RunningWork, Shutdown, Status};
use bridge_protocol::openrpc;

use super::{StopRequest, handlers};
use crate::conversation::error::ConversationError;
use crate::conversation::services::chain_text;
use crate::diagnosis::{DiagnosisOptions, diagnose};

handlers! {
    Status(self, _, _) {
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
                    .set_aside_store
                    .as_ref()
                    // An erasure may have deleted the file.
                    .filter(|path| path.exists())
                    .map(|path| path.to_string_lossy().into_owned()),
                failure: store.failure.map(|failure| chain_text(&failure)),
            },
        })
    }

    RunningWork(self, _, _) {
        let work = self.registry.running_work();
        Ok(WorkAnswer { work })
    }

    Diagnose(self, params, _) {
        let question = DiagnosisOptions {
            with_agents: params.agents != Some(false),
            path: params.path,
        };
        let services = self.registry.services();
        let mut found = diagnose(services, &question).await;
        found.diagnostics.insert(0, (services.diagnose_configuration)());
        Ok(found)
    }

    Shutdown(self, params, _) {
        let request = StopRequest {
            grace: params.grace_ms.map(Duration::from_millis),
        };
        if let Err(error) = self.stop.try_send(request) {
            tracing::debug!(%error, "the daemon is stopping already");
        }
        Ok(Empty {})
    }

    Discover(self, _, _) {
        openrpc::document().map_err(|error| {
            tracing::error!(%error, "the OpenRPC document cannot be made");
            ConversationError::Internal
        })
    }
}
