//! `rpc.…`.

use std::sync::LazyLock;

use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::openrpc::{self, OpenRpcDocument};
use bridge_protocol::rpc::{DiscoveryRpcServer, RpcResult};
use jsonrpsee::core::async_trait;

use super::Handlers;

/// The same for the life of the program; made when it is first asked for, which most never are.
static DOCUMENT: LazyLock<Result<OpenRpcDocument, String>> =
    LazyLock::new(|| openrpc::document().map_err(|error| error.to_string()));

#[async_trait]
impl DiscoveryRpcServer for Handlers {
    async fn discover(&self) -> RpcResult<OpenRpcDocument> {
        DOCUMENT
            .clone()
            .map_err(|problem| BridgeError::new(ErrorKind::InternalError, problem).into())
    }
}
