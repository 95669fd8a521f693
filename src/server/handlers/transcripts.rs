//! `transcript/…` and `checkpoint/…`.

use std::sync::Arc;

use bridge_protocol::method::{
    Check, Forget, GetCheckpoint, Keep, ListTranscripts, MoveTree, Restore, TreeMoves, UndoTree,
};
use bridge_protocol::{AgentName, UpstreamId};

use super::parameters::{LIST_LIMITS, page_limit};
use super::{handlers, read};
use crate::conversation::error::ConversationError;
use crate::conversation::folder::wanted_folder;
use crate::conversation::registry::{Registry, TranscriptFilter, tree};

handlers! {
    ListTranscripts(self, params, _) {
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        let filter = TranscriptFilter {
            agent: params.agent,
            cwd: params.cwd.map(|cwd| wanted_folder("cwd", &cwd)).transpose()?,
            query: params.query,
        };
        let page = self.registry.transcripts(filter, params.cursor.as_ref(), limit);
        page.await
    }

    Check(self, params, request) {
        let Check {
            upstream_id,
            conversation_id,
            agent,
            repair,
            ..
        } = params;
        let invalid = ConversationError::invalid;
        let target =
            "name the transcript by upstreamId, or by conversationId the conversation whose head it is";
        if conversation_id.is_some() && upstream_id.is_none() && agent.is_some() {
            return Err(invalid(
                "agent",
                "a conversation has its agent; leave out agent with conversationId",
            ));
        }
        let (registry, agent) = (&self.registry, agent.as_ref());
        let upstream_id = match upstream_id {
            Some(id) => Some(registry.whole_id(id, agent).await?),
            None => None,
        };
        let repaired = match (upstream_id, &conversation_id) {
            (Some(id), None) if repair => registry.repair_transcript(id, agent, request).await,
            (None, Some(name)) if repair => registry.repair_head(self.resolve(name)?, request).await,
            (Some(id), None) => return registry.check_transcript(id, agent).await,
            (None, Some(name)) => return registry.check_head(self.resolve(name)?).await,
            (None, None) | (Some(_), Some(_)) => return Err(invalid("upstreamId", target)),
        };
        read(&repaired?)
    }

    Keep(self, params, request) {
        let session = of_agent(params.upstream_id, params.agent)?;
        let of = self.resolve_named(params.conversation_id.as_ref())?;
        // Nothing is named: only the totals are asked for.
        let request = request.filter(|_| of.is_some() || session.is_some());
        let keep = |registry: Arc<Registry>| async move { registry.keep_named(of, session).await };
        self.once(of, request, keep).await
    }

    Restore(self, params, request) {
        let session = of_agent(params.upstream_id, params.agent)?;
        let of = self.resolve_named(params.conversation_id.as_ref())?;
        let restore = |registry: Arc<Registry>| async move { registry.restore_named(of, session).await };
        self.once(of, request, restore).await
    }

    Forget(self, params, request) {
        let (id, agent) = (params.upstream_id, params.agent);
        let forget = |registry: Arc<Registry>| async move { registry.forget_named(id, agent).await };
        self.once(None, request, forget).await
    }

    MoveTree(self, params, request) {
        let tree = tree(&params.from, &params.to)?;
        let registry = &self.registry;
        if params.dry_run {
            return registry.plan_tree(tree).await;
        }
        read(&registry.move_tree(tree, request).await?)
    }

    UndoTree(self, params, request) {
        let undo_id = params.undo_id;
        let id = undo_id.parse().map_err(|_| ConversationError::NotFound {
            what: format!("there is no folder move \"{undo_id}\" that can be undone"),
        })?;
        read(&self.registry.undo_tree(id, request).await?)
    }

    TreeMoves(self, _, _) {
        self.registry.tree_moves().await
    }

    GetCheckpoint(self, params, _) {
        let conversation = self.resolve_named(params.conversation_id.as_ref())?;
        self.registry.checkpoint(params.checkpoint_id, conversation).await
    }
}

/// A session by its own id, and its agent; an agent alone names none.
fn of_agent(
    id: Option<UpstreamId>,
    agent: Option<AgentName>,
) -> Result<Option<(UpstreamId, Option<AgentName>)>, ConversationError> {
    match (id, agent) {
        (Some(id), agent) => Ok(Some((id, agent))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConversationError::invalid(
            "agent",
            "agent is the agent of upstreamId; leave it out without upstreamId",
        )),
    }
}
