//! `rpc.discover`: about the methods.

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
#[cfg(feature = "schema")]
use crate::openrpc::Methods;
use crate::openrpc::OpenRpcDocument;

methods! {
    describe:
    /// Methods about the methods.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "rpc", namespace_separator = ".")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "rpc", namespace_separator = ".")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "rpc", namespace_separator = ".")
    )]
    pub trait DiscoveryRpc {
        /// This document: what the daemon can be asked, in the form of OpenRPC.
        #[method(name = "discover", param_kind = map)]
        async fn discover(&self) -> RpcResult<OpenRpcDocument>;
    }
}
