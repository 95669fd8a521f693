//! Deleting the transcripts of a conversation that is deleted, when that was asked for.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bridge_protocol::id::UpstreamId;

use crate::agent::message::CallError;
use crate::agent::wire::Handle;
use crate::chain::adopted_past;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::library::Library;

use super::climbing::acquire;
use super::disk;
use super::keeping;
use super::services::{Services, chain_text};

/// Deletes every transcript that this conversation alone ever held: by the agent's own method where it has one, else
/// the transcript, without what lies beside that: a fork of it, which is another conversation's, names files there. What
/// cannot be deleted, or may be another's, is logged and stays, and so does what came along when another was adopted: those
/// sessions were made elsewhere, and nobody named them. Our own copies go with what is deleted.
pub(super) async fn delete_transcripts(services: &Arc<Services>, record: &ConversationRecord) {
    let Ok(entry) = services.agent(&record.agent) else {
        return;
    };
    let lineage = match services.store.lineage_all(record.id) {
        Ok(lineage) => lineage,
        Err(error) => {
            tracing::warn!(conversation = %record.id, error = chain_text(&error), "what the conversation held cannot be read; its transcripts stay");
            return;
        }
    };
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
    let mut own = Vec::new();
    for id in held {
        match services.store.owners(&id, Some(&entry.transcript_root())) {
            Ok(owners) if owners.iter().all(|owner| *owner == record.id) => {}
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(upstream = %id, error = chain_text(&error), "whose a transcript is cannot be known; it stays");
                continue;
            }
        }
        own.push(id.clone());
        let by_agent = match &lease {
            Some(lease) => lease.calls().delete(&Handle::new(id.as_str())).await.map(|_| ()),
            None => Err(CallError::Closing),
        };
        let Err(error) = by_agent else { continue };
        let Some(root) = entry.readable_transcripts() else {
            tracing::warn!(upstream = %id, error = chain_text(&error), "a transcript could not be deleted");
            continue;
        };
        let (services, root, cwd) = (Arc::clone(services), root.to_path_buf(), record.cwd.clone());
        let work = move || remove(&services.library, &root, &cwd, &id);
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            tracing::warn!(%error, "a transcript could not be deleted");
        }
    }
    // Behind the agent's own: what was asked to be kept meanwhile finds nothing any more.
    let services = Arc::clone(services);
    let work = move || keeping::forget(&services, &entry, &own);
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::warn!(%error, "kept copies of transcripts could not be deleted");
    }
}

/// Removes a transcript where there is one. Blocks.
fn remove(library: &Library, root: &Path, cwd: &str, id: &UpstreamId) {
    let removed = match disk::find(library, root, cwd, id) {
        Ok(path) => std::fs::remove_file(&path).map_err(TranscriptError::io("remove", &path)),
        Err(error) => Err(error),
    };
    if let Err(error) = removed
        && !disk::is_absence(&error)
    {
        tracing::warn!(upstream = %id, error = chain_text(&error), "a transcript could not be deleted");
    }
}
