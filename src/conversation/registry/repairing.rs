//! Calls that repair transcripts: the head of a conversation, through its task, and sessions that belong to no
//! conversation.

use std::sync::Arc;

use bridge_protocol::{AgentName, ConversationId, UpstreamId};
use tokio::runtime::Handle;

use super::super::answer::{Answer, CallKey};
use super::super::effect::Call;
use super::super::error::ConversationError;
use super::super::repairing;
use super::super::services::{Services, chain_text, now};
use super::Registry;
use super::adopting::{LocatedTranscript, locate_transcript};
use crate::chain::{UndoEffect, next_undo};
use crate::store::{Change, ConversationRecord};
use crate::transcript::TranscriptError;

impl Registry {
    /// Replaces the head of a conversation with a repaired copy, if it can be repaired. The repair continues if the caller
    /// disconnects.
    ///
    /// # Errors
    /// When something else must end first, the transcript cannot be repaired completely, or a write fails.
    pub async fn repair_head(
        self: &Arc<Self>,
        id: ConversationId,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        self.call_detached(id, "transcript/check", Call::Repair, request)
            .await
    }

    /// Repairs the transcript with this id, or whose id starts with it. If the session is the head of a conversation, this
    /// repairs that conversation. If no conversation has it, a repaired copy is made in the same folder; none has that either.
    ///
    /// # Errors
    /// As [`Registry::repair_head`]; when there is no such transcript, several agents have one, or conversations have it, but
    /// it is the head of none or of several.
    pub async fn repair_transcript(
        self: &Arc<Self>,
        id: UpstreamId,
        agent: Option<&AgentName>,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let repair = |id| self.repair_session(id, agent, request);
        self.with_whole_id("transcript/check", id, agent, repair).await
    }

    async fn repair_session(
        self: &Arc<Self>,
        id: UpstreamId,
        agent: Option<&AgentName>,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let (entries, roots) = self.agents_with_distinct_roots(agent)?;
        let root = agent.and_then(|_| roots.first());
        let owners = self.services.store.owners(&id, root);
        // Checked first: after an earlier call with this key, the conversation's head is the copy, or it was deleted.
        for owner in owners? {
            if let Some(stored) = self.stored_answer(Some(owner), request.as_ref())? {
                return Ok(stored);
            }
        }
        let holders = self.services.store.holders(&id, root)?;
        if let Some(holder) = self.conversation_to_repair(&id, &holders)? {
            return self.repair_head(holder, request).await;
        }
        let (registry, key) = (Arc::clone(self), request.clone());
        let work = || async move {
            let services = Arc::clone(&registry.services);
            let repair = move || {
                let located = locate_transcript(&services, &entries, &id)?;
                repair_unowned(&services, &located, key.as_ref())
            };
            registry.run_file_change("transcript/check", repair).await
        };
        self.run_idempotent(None, request, work).await
    }

    /// The conversation that must be repaired to repair a session: the one whose head the session is. None if no conversation
    /// has the session.
    fn conversation_to_repair(
        &self,
        id: &UpstreamId,
        holders: &[ConversationRecord],
    ) -> Result<Option<ConversationId>, ConversationError> {
        let current = holders.iter().filter(|record| record.chain.is_head(id));
        let current: Vec<ConversationId> = current.map(|record| record.id).collect();
        match (current.as_slice(), holders) {
            ([], []) => Ok(None),
            ([only], _) => Ok(Some(*only)),
            ([], [holder, ..]) => {
                let or_undo = match self.undo_leads_to(holder, id)? {
                    true => ", or undo what has come after it",
                    false => "",
                };
                Err(ConversationError::Conflict(format!(
                    "{id} is an earlier session of conversation {}, which no longer uses it, so a repair would change nothing: fork the conversation at one of the session's checkpoints{or_undo}, then repair the fork",
                    holder.id
                )))
            }
            (several, _) => Err(ConversationError::Ambiguous {
                name: id.to_string(),
                candidates: several.to_vec(),
                is_whole: true,
            }),
        }
    }

    /// Whether an undo of a conversation leads back to this session.
    fn undo_leads_to(&self, holder: &ConversationRecord, id: &UpstreamId) -> Result<bool, ConversationError> {
        let lineage = self.services.store.lineage_all(holder.id)?;
        let next = next_undo(&lineage, holder.chain.links(), |_| false);
        Ok(matches!(next, Some(UndoEffect::Branch(earlier)) if earlier.link.upstream_id == *id))
    }
}

/// Makes a repaired copy of a transcript that belongs to no conversation, in the same folder. Blocks; must run on a thread
/// of the runtime.
fn repair_unowned(
    services: &Services,
    held: &LocatedTranscript,
    request: Option<&CallKey>,
) -> Result<Answer, ConversationError> {
    let transcripts = held.folder.transcripts(services);
    let (path, origin) = held.choose_copy(transcripts.home(), None)?;
    let session = transcripts
        .home()
        .session(origin.cwd.as_deref(), held.id.as_str());
    let (answer, copied) = repairing::make_repaired_copy(transcripts, session, &path, None)?;
    let answer = Answer::Checked(Box::new(answer));
    let Some((copy, _)) = copied else {
        return Ok(answer);
    };
    let failed = |error: TranscriptError| ConversationError::StoreFailed((&error).into());
    if let Some(request) = request {
        let recorded = services.copy_plans.record_request(&copy.upstream_id, &request.id);
        recorded.map_err(failed)?;
        let change = Change {
            requests: vec![request.to_answered_record(&answer, now())],
            ..Change::default()
        };
        let committed = Handle::current().block_on(services.store.commit(change));
        committed?;
    }
    match services.copy_plans.remove_plan(&copy.upstream_id) {
        Ok(()) => copy.uncommitted.commit(),
        Err(error) if request.is_none() => return Err(failed(error)),
        // The answer is committed already; the next start keeps the copy.
        Err(error) => {
            tracing::warn!(
                error = chain_text(&error),
                "the plan of a repaired copy stays until the next start"
            );
            copy.uncommitted.leave_to_next_start();
        }
    }
    Ok(answer)
}
