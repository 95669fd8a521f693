//! `transcript/…`.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::keep::{KeepAnswer, RestoreAnswer};
use bridge_protocol::rpc::{RpcResult, TranscriptRpcServer};
use bridge_protocol::transcript::{TranscriptPage, TreeMoveAnswer};
use bridge_protocol::{AgentName, ConversationRef, Cursor, UpstreamId};
use jsonrpsee::core::async_trait;

use super::conversations::read;
use super::errors::wire;
use super::parameters::{LIST_LIMITS, page_limit};
use super::{Handlers, request};
use crate::conversation::error::ConversationError;
use crate::conversation::folder::wanted_folder;
use crate::conversation::registry::{TranscriptFilter, tree};

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

    async fn check(
        &self,
        upstream_id: Option<UpstreamId>,
        conversation_id: Option<ConversationRef>,
        agent: Option<AgentName>,
        repair: Option<bool>,
    ) -> RpcResult<CheckAnswer> {
        if repair == Some(true) {
            let error = ConversationError::Unsupported(
                "this version finds what is wrong and repairs nothing; leave \"repair\" out".to_owned(),
            );
            return Err(wire(&error));
        }
        let registry = &self.daemon.registry;
        let checked = match (upstream_id, &conversation_id) {
            (None, Some(_)) if agent.is_some() => Err(ConversationError::InvalidParams(
                "a conversation has its agent already; leave \"agent\" out beside conversationId".to_owned(),
            )),
            (Some(id), None) => registry.check_transcript(id, agent.as_ref()).await,
            (None, Some(name)) => registry.check_head(name).await,
            (None, None) | (Some(_), Some(_)) => Err(ConversationError::InvalidParams(
                "name the transcript by upstreamId, or the conversation whose head it is by conversationId"
                    .to_owned(),
            )),
        };
        checked.map_err(|error| wire(&error))
    }

    async fn keep(
        &self,
        upstream_id: Option<UpstreamId>,
        conversation_id: Option<ConversationRef>,
        agent: Option<AgentName>,
    ) -> RpcResult<KeepAnswer> {
        let upstream = of_agent(upstream_id, agent).map_err(|error| wire(&error))?;
        let kept = self
            .daemon
            .registry
            .keep_named(conversation_id.as_ref(), upstream)
            .await;
        kept.map_err(|error| wire(&error))
    }

    async fn restore(
        &self,
        upstream_id: Option<UpstreamId>,
        conversation_id: Option<ConversationRef>,
        agent: Option<AgentName>,
    ) -> RpcResult<RestoreAnswer> {
        let upstream = of_agent(upstream_id, agent).map_err(|error| wire(&error))?;
        let restored = self
            .daemon
            .registry
            .restore_named(conversation_id.as_ref(), upstream)
            .await;
        restored.map_err(|error| wire(&error))
    }

    async fn move_tree(
        &self,
        from: String,
        to: String,
        settings: Option<bool>,
        dry_run: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<TreeMoveAnswer> {
        let tree = tree(&from, &to).map_err(|error| wire(&error))?;
        let with_settings = settings == Some(true);
        let registry = &self.daemon.registry;
        if dry_run == Some(true) {
            let planned = registry.plan_tree(tree, with_settings).await;
            return planned.map_err(|error| wire(&error));
        }
        let request = request("moveTree", request_id, &(from, to, with_settings))?;
        let answer = registry.move_tree(tree, with_settings, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn undo_tree(&self, undo_id: String, request_id: Option<String>) -> RpcResult<TreeMoveAnswer> {
        let id = undo_id.parse().map_err(|_| {
            let what =
                format!("there is no move \"{undo_id}\"; transcript/move tells the id of one as undoId");
            wire(&ConversationError::NotFound { what })
        })?;
        let request = request("undoTree", request_id, &undo_id)?;
        let answer = self.daemon.registry.undo_tree(id, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }
}

/// A transcript by its own id, with its agent; an agent alone names none.
fn of_agent(
    id: Option<UpstreamId>,
    agent: Option<AgentName>,
) -> Result<Option<(UpstreamId, Option<AgentName>)>, ConversationError> {
    match (id, agent) {
        (Some(id), agent) => Ok(Some((id, agent))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConversationError::InvalidParams(
            "\"agent\" says where a transcript is that upstreamId names; leave it out without that"
                .to_owned(),
        )),
    }
}
