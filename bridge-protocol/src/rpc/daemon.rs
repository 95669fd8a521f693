//! `daemon/…`: about the daemon itself.

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
use crate::conversation::Empty;
use crate::daemon::{DaemonStatus, WorkAnswer};
use crate::diagnosis::Diagnosis;
#[cfg(feature = "schema")]
use crate::openrpc::Methods;

methods! {
    describe:
    /// Methods about the daemon itself.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "daemon", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "daemon", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "daemon", namespace_separator = "/")
    )]
    pub trait DaemonRpc {
        /// How the daemon is.
        #[method(name = "status", param_kind = map)]
        async fn status(&self) -> RpcResult<DaemonStatus>;

        /// How far calls have come that take long because of the files that they read or write, those that began first first.
        #[method(name = "work", param_kind = map)]
        async fn work(&self) -> RpcResult<WorkAnswer>;

        /// Looks at what the daemon stands on: store, disks, agents, their transcripts and how long these are kept,
        /// processes that were left behind. Nothing is changed, but that a journal with damaged lines is written anew from the
        /// database, for which changes wait.
        ///
        /// - `agents`: Whether agents that do not run are started and asked who they are. Default: true.
        /// - `path`: The caller's own `PATH`: agents that are found there and not on the daemon's are told. Default:
        ///   only the daemon's is looked at.
        #[method(name = "diagnose", param_kind = map)]
        async fn diagnose(&self, agents: Option<bool>, path: Option<String>) -> RpcResult<Diagnosis>;

        /// Stops the daemon. Running turns get a while to end.
        ///
        /// - `graceMs`: How long running turns get to end, in milliseconds. Default: the configured `cancel_grace_ms`.
        #[method(name = "shutdown", param_kind = map)]
        async fn shutdown(&self, #[argument(rename = "graceMs")] grace_ms: Option<u64>) -> RpcResult<Empty>;
    }
}
