//! Deleting the transcripts of a conversation that is deleted, when that was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use bridge_protocol::id::UpstreamId;

use crate::agent::message::CallError;
use crate::agent::wire::Handle;
use crate::chain::adopted_past;
use crate::store::ConversationRecord;

use super::climbing::acquire;
use super::disk;
use super::services::{Services, chain_text};

/// Deletes every transcript that this conversation alone ever held: by the agent's own method where it has one, else
/// the file. What cannot be deleted is logged and stays, and so does what came along when another was adopted.
pub(super) async fn delete_transcripts(services: &Arc<Services>, record: &ConversationRecord) {
    let Ok(entry) = services.agent(&record.agent) else {
        return;
    };
    let lineage = services.store.lineage_all(record.id).unwrap_or_default();
    // These were made elsewhere, and nobody has named them.
    let past = adopted_past(&lineage);
    let held: BTreeSet<UpstreamId> = lineage
        .iter()
        .filter(|entry| entry.agent == record.agent && !entry.upstream_id.is_empty())
        .map(|entry| entry.upstream_id.clone())
        .filter(|id| !past.contains(id))
        .collect();
    let lease = match acquire(services, &entry).await {
        Ok(lease) => Some(lease),
        Err(error) => {
            tracing::warn!(%error, "the agent could not be started to delete its transcripts");
            None
        }
    };
    for id in held {
        let owners = services
            .store
            .owners(&id, Some(&entry.transcript_root()))
            .unwrap_or_default();
        if owners.iter().any(|owner| *owner != record.id) {
            continue;
        }
        let by_agent = match &lease {
            Some(lease) => lease.calls().delete(&Handle::new(id.as_str())).await.map(|_| ()),
            None => Err(CallError::Closing),
        };
        let Err(error) = by_agent else { continue };
        let Some(root) = entry.readable_transcripts() else {
            tracing::warn!(upstream = %id, error = chain_text(&error), "a transcript could not be deleted");
            continue;
        };
        if let Ok(path) = disk::find(&services.library, root, &record.cwd, &id)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "a transcript could not be deleted");
        }
    }
}
