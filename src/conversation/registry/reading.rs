//! Calls that read the history of conversations, or single places in it, on a blocking thread.

use std::sync::Arc;

use bridge_protocol::history::{CheckpointAnswer, CheckpointPage, HistoryForm, HistoryPage};
use bridge_protocol::{AgentName, CheckpointId, ConversationId, UpstreamId};

use super::super::error::ConversationError;
use super::super::history::{History, Part, Reach};
use super::super::services::Services;
use super::Registry;
use crate::transcript::checkpoint::CheckpointRef;

/// How many callers have transcripts read at once: each takes a core while it runs, and memory for what it notes of a transcript.
pub(super) const READINGS_AT_ONCE: usize = 2;

impl Registry {
    /// A page of a conversation's checkpoints, newest first.
    ///
    /// # Errors
    /// When `before` is not in its history, or its agent's transcripts cannot be read.
    pub async fn checkpoints(
        &self,
        id: ConversationId,
        before: Option<CheckpointId>,
        limit: usize,
    ) -> Result<CheckpointPage, ConversationError> {
        let services = Arc::clone(&self.services);
        self.reading("conversation/checkpoints", Some(id), move || {
            history(&services, id)?.checkpoints(before.as_ref(), limit)
        })
        .await
    }

    /// A page of a conversation's messages, oldest first.
    ///
    /// # Errors
    /// When the cursor leads nowhere, or its agent's transcripts cannot be read.
    pub async fn history(
        &self,
        id: ConversationId,
        part: Part,
        limit: usize,
        form: HistoryForm,
    ) -> Result<HistoryPage, ConversationError> {
        let services = Arc::clone(&self.services);
        self.reading("conversation/history", Some(id), move || {
            history(&services, id)?.page(&part, limit, form)
        })
        .await
    }

    /// A checkpoint with its messages, with a conversation only if that ever held its session or continues it.
    ///
    /// # Errors
    /// When there is none, or its agent's transcripts cannot be read.
    pub async fn checkpoint(
        &self,
        checkpoint: CheckpointId,
        conversation: Option<ConversationId>,
    ) -> Result<CheckpointAnswer, ConversationError> {
        let services = Arc::clone(&self.services);
        self.reading("checkpoint/get", conversation, move || {
            one(&services, &checkpoint, conversation)
        })
        .await
    }

    /// Has transcripts read on a blocking thread, once it is this call's turn. The reading ends soon after its caller has
    /// left, not with it, so the turn is over when the reading is.
    ///
    /// # Errors
    /// As [`Begun::reading`](super::super::work::Begun::reading).
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        method: &'static str,
        conversation: Option<ConversationId>,
        read: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let begun = self.begun(method, conversation);
        let turn = Arc::clone(&self.readings).acquire_owned().await;
        let read = move || {
            let _turn = turn;
            read()
        };
        begun.reading(read).await
    }
}

fn history(services: &Services, id: ConversationId) -> Result<History, ConversationError> {
    let Some(found) = services.store.salvaged(id)? else {
        return Ok(History::default());
    };
    let record = found.usable()?;
    let lineage = services.store.lineage_all(id)?;
    History::to_show(services, &record, &lineage)
}

fn one(
    services: &Services,
    id: &CheckpointId,
    conversation: Option<ConversationId>,
) -> Result<CheckpointAnswer, ConversationError> {
    let not_found = || ConversationError::CheckpointNotFound { id: id.clone() };
    let place: CheckpointRef = id.as_str().parse().map_err(|_| not_found())?;
    let agent = services.catalog.get(&AgentName::new(place.agent.as_str()));
    let root = agent.ok_or_else(not_found)?.transcript_root();
    let upstream_id = UpstreamId::new(place.upstream_id.as_str());
    let owners = services.store.owners(&upstream_id, Some(&root))?;
    let owner = match (conversation, owners.as_slice()) {
        (Some(named), owners) if owners.contains(&named) => Some(named),
        // A session that is continued by reference need not be its own.
        (Some(named), _) => {
            let holds = history(services, named).is_ok_and(|history| history.step_of(&place).is_some());
            Some(named).filter(|_| holds).ok_or_else(not_found)?.into()
        }
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    // A history that cannot be read as a whole has no numbers to give; the place itself may well be there.
    let current = owner.and_then(|owner| history(services, owner).ok());
    let step = current.as_ref().and_then(|history| history.step_of(&place));
    if let (Some(current), Some(step)) = (current, step)
        && current.stands_at(id, step)
    {
        return current.turn(id, Some(step), None);
    }
    History::of_place(services, id, &place, Reach::Kept)?.turn(id, None, step)
}
