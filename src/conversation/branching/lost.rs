//! Forks of sessions whose transcripts are missing: the backups are restored first, as a resume does.

use std::sync::Arc;

use bridge_protocol::UpstreamId;

use super::{BranchRequest, EditRequest, blocking, places};
use crate::agent::catalog::AgentEntry;
use crate::conversation::error::ConversationError;
use crate::conversation::keeping;
use crate::conversation::services::Services;
use crate::conversation::work::Progress;
use crate::store::ConversationRecord;

/// Restores the session that is to be forked.
///
/// # Errors
/// When it is gone and what is kept of it cannot be put back, or it was restored with fewer turns and nobody was told.
pub(super) async fn before_branch(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &BranchRequest,
) -> Result<(), ConversationError> {
    let session = match &request.at {
        Some(at) => at.upstream_id().into(),
        None => request.from.clone(),
    };
    bring_back(services, entry, &request.record, vec![session], &request.progress).await
}

/// The same of the head, which says what the edit drops, and of the session that holds the turn to be replaced.
///
/// # Errors
/// As [`before_branch`].
pub(super) async fn before_edit(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &EditRequest,
) -> Result<(), ConversationError> {
    let head = request.record.chain.head().map(|head| head.upstream_id.clone());
    let sessions = head.into_iter().chain([request.at.upstream_id().into()]);
    bring_back(
        services,
        entry,
        &request.record,
        sessions.collect(),
        &request.progress,
    )
    .await
}

async fn bring_back(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    record: &ConversationRecord,
    sessions: Vec<UpstreamId>,
    progress: &Arc<Progress>,
) -> Result<(), ConversationError> {
    let record = record.clone();
    blocking(services, entry, progress, move |services, entry| {
        for id in sessions {
            if record.chain.head().is_some_and(|head| head.upstream_id == id) {
                keeping::refuse_unreported(services, entry, &record)?;
            }
            // Whoever names a session of another conversation is told so later.
            if keeping::is_lost(services, entry, &record, &id) && places::is_held(services, &record, &id)? {
                keeping::bring_back(services, entry, &record, &id)?;
            }
        }
        Ok(())
    })
    .await
}
