//! `checkpoint/…`: about checkpoints.

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
use crate::history::CheckpointAnswer;
use crate::id::{CheckpointId, ConversationRef};
#[cfg(feature = "schema")]
use crate::openrpc::Methods;

methods! {
    describe:
    /// Methods about checkpoints.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "checkpoint", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "checkpoint", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "checkpoint", namespace_separator = "/")
    )]
    pub trait CheckpointRpc {
        /// A checkpoint and the messages of its turn.
        ///
        /// - `checkpointId`: The checkpoint.
        /// - `conversationId`: The conversation in whose lineage it has to be. Default: it is found by its id alone.
        ///
        /// # Errors
        /// `checkpointNotFound`, `unsupported`, `transcriptDamaged`.
        #[method(name = "get", param_kind = map)]
        async fn get_checkpoint(
            &self,
            #[argument(rename = "checkpointId")] checkpoint_id: CheckpointId,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
        ) -> RpcResult<CheckpointAnswer>;
    }
}
