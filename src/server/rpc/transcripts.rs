//! `transcript/…`.

use bridge_protocol::rpc::{RpcResult, TranscriptRpcServer};
use bridge_protocol::transcript::TranscriptPage;
use bridge_protocol::{AgentName, Cursor};
use jsonrpsee::core::async_trait;

use super::Handlers;
use super::conversations::{LIST_LIMITS, page_limit};
use super::errors::wire;
use crate::conversation::folder::wanted_folder;
use crate::conversation::registry::TranscriptFilter;

#[async_trait]
impl TranscriptRpcServer for Handlers {
    async fn list_transcripts(
        &self,
        agent: Option<AgentName>,
        cwd: Option<String>,
        query: Option<String>,
        cursor: Option<Cursor>,
        limit: Option<u32>,
    ) -> RpcResult<TranscriptPage> {
        let limit = page_limit(limit, LIST_LIMITS).map_err(|error| wire(&error))?;
        let cwd = cwd
            .map(|cwd| wanted_folder(&cwd))
            .transpose()
            .map_err(|error| wire(&error))?;
        let filter = TranscriptFilter { agent, cwd, query };
        let page = self
            .daemon
            .registry
            .transcripts(filter, cursor.as_ref(), limit)
            .await;
        page.map_err(|error| wire(&error))
    }
}
