//! `transcript/…` and `checkpoint/…`.

use bridge_protocol::method::{
    Check, Forget, GetCheckpoint, Keep, ListTranscripts, MoveTree, Restore, TreeMoves, UndoTree,
};
use bridge_protocol::{AgentName, ConversationRef, UpstreamId};

use super::parameters::{LIST_LIMITS, page_limit};
use super::{Bridge, handlers};
use crate::conversation::error::ConversationError;
use crate::conversation::registry::{SessionSelector, TranscriptFilter, TreeMoveRequest};

handlers! {
    ListTranscripts(self, params, _) {
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        let filter = TranscriptFilter {
            agent: params.agent,
            cwd: self.registry.wanted_folder(params.cwd.as_deref()).await?,
            query: params.query,
        };
        let page = self.registry.transcripts(filter, params.cursor.as_ref(), limit);
        page.await
    }

    Check(self, params, request) {
        let target = self.session_selector(params.conversation_id.as_ref(), params.upstream_id, params.agent)?;
        let registry = &self.registry;
        let repaired = match (target.ok_or_else(no_target)?, params.repair) {
            (SessionSelector::Conversation(id), false) => return registry.check_head(id).await,
            (SessionSelector::Session(id, agent), false) => return registry.check_transcript(id, agent.as_ref()).await,
            (SessionSelector::Conversation(id), true) => registry.repair_head(id, request).await,
            (SessionSelector::Session(id, agent), true) => {
                registry.repair_transcript(id, agent.as_ref(), request).await
            }
        };
        repaired?.read()
    }

    Keep(self, params, request) {
        let target = self.session_selector(params.conversation_id.as_ref(), params.upstream_id, params.agent)?;
        match target {
            Some(target) => self.registry.back_up_named(target, request).await,
            None => self.registry.backup_totals().await,
        }
    }

    Restore(self, params, request) {
        let target = self.session_selector(params.conversation_id.as_ref(), params.upstream_id, params.agent)?;
        let target = target.ok_or_else(no_target)?;
        self.registry.restore_named(target, request).await
    }

    Forget(self, params, request) {
        let (id, agent) = (params.upstream_id, params.agent);
        self.registry.delete_backup_named(id, agent, request).await
    }

    MoveTree(self, params, request) {
        let tree = self.registry.tree_of(params.from, params.to).await?;
        let registry = &self.registry;
        if params.dry_run {
            return registry.plan_tree(tree).await;
        }
        let target = TreeMoveRequest::Move(tree);
        registry.move_tree(target, request).await?.read()
    }

    UndoTree(self, params, request) {
        let undo_id = params.undo_id;
        let id = undo_id.parse().map_err(|_| ConversationError::NotFound {
            what: format!("there is no folder move \"{undo_id}\" that can be undone"),
        })?;
        let target = TreeMoveRequest::Undo(id);
        self.registry.move_tree(target, request).await?.read()
    }

    TreeMoves(self, _, _) {
        self.registry.tree_moves().await
    }

    GetCheckpoint(self, params, _) {
        let conversation = self.resolve_named(params.conversation_id.as_ref())?;
        self.registry.checkpoint(params.checkpoint_id, conversation).await
    }
}

impl Bridge {
    /// The session that a call is about. `None` if the caller names none.
    fn session_selector(
        &self,
        conversation: Option<&ConversationRef>,
        session: Option<UpstreamId>,
        agent: Option<AgentName>,
    ) -> Result<Option<SessionSelector>, ConversationError> {
        let invalid = |parameter, why: &str| Err(ConversationError::invalid(parameter, why));
        match (conversation, session, agent) {
            (None, None, None) => Ok(None),
            (Some(name), None, None) => Ok(Some(SessionSelector::Conversation(self.resolve(name)?))),
            (None, Some(id), agent) => Ok(Some(SessionSelector::Session(id, agent))),
            (Some(_), Some(_), _) => invalid(
                "upstreamId",
                "name the conversation by conversationId or the transcript by upstreamId, not both",
            ),
            (Some(_), None, Some(_)) => invalid(
                "agent",
                "a conversation has its agent; leave out agent with conversationId",
            ),
            (None, None, Some(_)) => invalid(
                "agent",
                "agent is the agent of upstreamId; leave it out without upstreamId",
            ),
        }
    }
}

fn no_target() -> ConversationError {
    ConversationError::invalid(
        "upstreamId",
        "name the conversation by conversationId, or the transcript by upstreamId",
    )
}
