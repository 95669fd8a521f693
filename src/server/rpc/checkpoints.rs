//! `checkpoint/…`.

use bridge_protocol::history::CheckpointAnswer;
use bridge_protocol::rpc::{CheckpointRpcServer, RpcResult};
use bridge_protocol::{CheckpointId, ConversationRef};
use jsonrpsee::core::async_trait;

use super::Handlers;
use super::errors::wire;

#[async_trait]
impl CheckpointRpcServer for Handlers {
    async fn get_checkpoint(
        &self,
        checkpoint_id: CheckpointId,
        conversation_id: Option<ConversationRef>,
    ) -> RpcResult<CheckpointAnswer> {
        let conversation = conversation_id.map(|name| self.resolve(&name)).transpose()?;
        let answer = self.daemon.registry.checkpoint(checkpoint_id, conversation).await;
        answer.map_err(|error| wire(&error))
    }
}
