//! `daemon/…`.

use bridge_protocol::PROTOCOL_VERSION;
use bridge_protocol::conversation::Empty;
use bridge_protocol::daemon::{DaemonStatus, StoreStatus, WorkAnswer};
use bridge_protocol::diagnosis::Diagnosis;
use bridge_protocol::rpc::{DaemonRpcServer, RpcResult};
use jsonrpsee::core::async_trait;

use super::{Handlers, StopRequest};
use crate::conversation::services::chain_text;
use crate::diagnosis::{Question, diagnose};

#[async_trait]
impl DaemonRpcServer for Handlers {
    async fn status(&self) -> RpcResult<DaemonStatus> {
        let services = self.daemon.registry.services();
        let store = services.store.status();
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_version: PROTOCOL_VERSION,
            pid: std::process::id(),
            home: self.daemon.home.to_string_lossy().into_owned(),
            uptime_seconds: self.daemon.started.elapsed().as_secs(),
            conversations: store.conversations,
            live: self.daemon.registry.count_live(),
            agents: services.pool.running().len() as u64,
            store: StoreStatus {
                ephemeral: store.is_ephemeral,
                sequence: store.sequence.0,
                journal_bytes: store.journal_bytes,
                set_aside: self
                    .daemon
                    .set_aside
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
                failure: store.failure.map(|failure| chain_text(&failure)),
            },
        })
    }

    async fn work(&self) -> RpcResult<WorkAnswer> {
        let work = self.daemon.registry.work();
        Ok(WorkAnswer { work })
    }

    async fn diagnose(&self, agents: Option<bool>, path: Option<String>) -> RpcResult<Diagnosis> {
        let question = Question {
            with_agents: agents != Some(false),
            path,
        };
        let mut found = diagnose(self.daemon.registry.services(), &question).await;
        found.diagnostics.insert(0, (self.daemon.configuration)());
        Ok(found)
    }

    async fn shutdown(&self, grace_ms: Option<u64>) -> RpcResult<Empty> {
        let request = StopRequest {
            grace: grace_ms.map(std::time::Duration::from_millis),
        };
        if let Err(error) = self.daemon.stop.try_send(request) {
            tracing::debug!(%error, "the daemon is stopping already");
        }
        Ok(Empty {})
    }
}
