//! `transcript/…`.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::keep::{ForgetAnswer, KeepAnswer, RestoreAnswer};
use bridge_protocol::rpc::{RpcResult, TranscriptRpcServer};
use bridge_protocol::transcript::{TranscriptPage, TreeMoveAnswer, TreeMoveList};
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
            .map(|cwd| wanted_folder("cwd", &cwd))
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
        max_tool_output: Option<u64>,
        request_id: Option<String>,
    ) -> RpcResult<CheckAnswer> {
        let says_what =
            "name the transcript by upstreamId, or the conversation whose head it is by conversationId";
        let invalid = |what: &str| wire(&ConversationError::InvalidParams(what.to_owned()));
        if conversation_id.is_some() && upstream_id.is_none() && agent.is_some() {
            return Err(invalid(
                "a conversation has its agent already; leave \"agent\" out beside conversationId",
            ));
        }
        let registry = &self.daemon.registry;
        if repair == Some(true) {
            if max_tool_output == Some(0) {
                return Err(invalid("maxToolOutput must be 1 or more bytes"));
            }
            let said = (&upstream_id, &agent, max_tool_output);
            let request = request("check", request_id, &said)?;
            let repaired = match (upstream_id, &conversation_id) {
                (Some(id), None) => {
                    registry
                        .repair_transcript(id, agent.as_ref(), max_tool_output, request)
                        .await
                }
                (None, Some(name)) => {
                    let id = self.resolve(name)?;
                    registry.repair_head(id, max_tool_output, request).await
                }
                (None, None) | (Some(_), Some(_)) => return Err(invalid(says_what)),
            };
            return read(&repaired.map_err(|error| wire(&error))?);
        }
        if max_tool_output.is_some() {
            return Err(invalid(
                "maxToolOutput says what a repaired copy is to have; leave it out without repair",
            ));
        }
        let checked = match (upstream_id, &conversation_id) {
            (Some(id), None) => registry.check_transcript(id, agent.as_ref()).await,
            (None, Some(name)) => registry.check_head(name).await,
            (None, None) | (Some(_), Some(_)) => return Err(invalid(says_what)),
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

    async fn forget(&self, upstream_id: UpstreamId, agent: Option<AgentName>) -> RpcResult<ForgetAnswer> {
        let forgotten = self.daemon.registry.forget_named(upstream_id, agent).await;
        forgotten.map_err(|error| wire(&error))
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

    async fn moves(&self) -> RpcResult<TreeMoveList> {
        let moves = self.daemon.registry.tree_moves().await;
        moves.map_err(|error| wire(&error))
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
