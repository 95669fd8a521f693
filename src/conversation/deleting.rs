//! Deleting the transcripts of a conversation that is deleted, when that was asked for.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::conversation::{RemainingReason, RemainingTranscript};
use bridge_protocol::id::UpstreamId;

use crate::agent::catalog::AgentEntry;
use crate::agent::wire::Handle;
use crate::chain::adopted_past;
use crate::store::{ConversationRecord, StoreError};
use crate::transcript::{TranscriptError, rollouts};

use super::climbing::acquire;
use super::disk;
use super::keeping;
use super::services::{Services, chain_text};

/// Deletes every transcript that this conversation alone ever held: by the agent's own method where it has one, else
/// the transcript, without what lies beside that: a fork of it, which is another conversation's, names files there. What
/// may be another's stays, and so does what came along when another was adopted: those sessions were made elsewhere, and
/// nobody named them. Our own copies go with what is deleted. Returned is what is still there.
pub(super) async fn delete_transcripts(
    services: &Arc<Services>,
    record: &ConversationRecord,
) -> Vec<RemainingTranscript> {
    let remaining = delete_all(services, record).await;
    for left in &remaining {
        tracing::warn!(
            conversation = %record.id,
            upstream = %left.upstream_id,
            reason = ?left.reason,
            "a transcript of a deleted conversation is still there: {}",
            left.message
        );
    }
    remaining
}

async fn delete_all(services: &Arc<Services>, record: &ConversationRecord) -> Vec<RemainingTranscript> {
    let entry = match services.agent(&record.agent) {
        Ok(entry) => entry,
        Err(error) => return untouched(services, record, &chain_text(&error)),
    };
    let (own, others) = match sort(services, record, &entry) {
        Ok(sorted) => sorted,
        Err(error) => {
            let error = chain_text(&error);
            return untouched(
                services,
                record,
                &format!("whose its sessions are cannot be read: {error}"),
            );
        }
    };
    let own = delete_by_agent(services, &entry, own).await;
    let head = record.chain.head();
    let deletion = Deletion {
        services: Arc::clone(services),
        entry,
        cwd: record.cwd.clone(),
        unwritten: head
            .filter(|head| !head.written)
            .map(|head| head.upstream_id.clone()),
    };
    let work = move || deletion.finish(own, others);
    match tokio::task::spawn_blocking(work).await {
        Ok(remaining) => remaining,
        Err(error) => untouched(services, record, &format!("deleting it broke off: {error}")),
    }
}

/// A session with what its agent said to deleting it.
type Asked = (UpstreamId, Result<(), String>);

/// A session whose transcript stays: why, in two ways.
type Other = (UpstreamId, RemainingReason, &'static str);

/// The sessions that the conversation ever had: those whose transcripts are its own, and the others.
fn sort(
    services: &Services,
    record: &ConversationRecord,
    entry: &AgentEntry,
) -> Result<(Vec<UpstreamId>, Vec<Other>), StoreError> {
    let lineage = services.store.lineage_all(record.id)?;
    let past = adopted_past(&lineage);
    let held: BTreeSet<UpstreamId> = lineage
        .into_iter()
        .filter(|it| it.agent == record.agent && !it.upstream_id.is_empty())
        .map(|it| it.upstream_id)
        .collect();
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for id in held {
        if past.contains(&id) {
            let why = "the session came along when another one was adopted";
            others.push((id, RemainingReason::Adopted, why));
        } else if is_used_elsewhere(services, record, entry, &id)? {
            let why = "another conversation has the session too";
            others.push((id, RemainingReason::Failed, why));
        } else {
            own.push(id);
        }
    }
    Ok((own, others))
}

/// Whether another conversation has the session that is not deleted.
fn is_used_elsewhere(
    services: &Services,
    record: &ConversationRecord,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<bool, StoreError> {
    for owner in services.store.owners(id, Some(&entry.transcript_root()))? {
        if owner == record.id {
            continue;
        }
        let other = services.store.conversation(owner)?;
        if other.is_some_and(|other| other.deleted_at.is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is to be told when nothing could be done about any transcript: all sessions that it ever had, be they out of the chain.
fn untouched(services: &Services, record: &ConversationRecord, message: &str) -> Vec<RemainingTranscript> {
    let ids: BTreeSet<UpstreamId> = match services.store.lineage_all(record.id) {
        Ok(lineage) => lineage.into_iter().map(|entry| entry.upstream_id).collect(),
        // What is in hand then.
        Err(_) => record
            .chain
            .links()
            .iter()
            .map(|link| link.upstream_id.clone())
            .collect(),
    };
    ids.into_iter()
        .filter(|id| !id.is_empty())
        .map(|upstream_id| RemainingTranscript {
            upstream_id,
            path: None,
            reason: RemainingReason::Failed,
            message: message.to_owned(),
        })
        .collect()
}

async fn delete_by_agent(services: &Services, entry: &AgentEntry, ids: Vec<UpstreamId>) -> Vec<Asked> {
    if ids.is_empty() {
        return Vec::new();
    }
    let lease = acquire(services, entry).await.map_err(|error| chain_text(&error));
    let mut asked = Vec::new();
    for id in ids {
        let deleted = match &lease {
            Ok(lease) => {
                let deleted = lease.calls().delete(&Handle::new(id.as_str())).await;
                deleted.map(|_| ()).map_err(|error| chain_text(&error))
            }
            Err(error) => Err(error.clone()),
        };
        asked.push((id, deleted));
    }
    asked
}

/// What is left to do once the agent was asked. Blocks.
struct Deletion {
    services: Arc<Services>,
    entry: Arc<AgentEntry>,
    /// The folder of the conversation.
    cwd: String,
    /// A session of which nothing was ever written.
    unwritten: Option<UpstreamId>,
}

impl Deletion {
    fn finish(&self, own: Vec<Asked>, others: Vec<Other>) -> Vec<RemainingTranscript> {
        let ids: Vec<UpstreamId> = own.iter().map(|(id, _)| id.clone()).collect();
        let mut remaining: Vec<_> = own
            .into_iter()
            .filter_map(|(id, by_agent)| self.remove(&id, by_agent))
            .collect();
        remaining.extend(others.into_iter().filter_map(|other| self.left(other)));
        // Behind the agent's own: what was asked to be kept meanwhile finds nothing any more.
        for (upstream_id, error) in keeping::forget(&self.services, &self.entry, &ids) {
            remaining.push(RemainingTranscript {
                upstream_id,
                path: None,
                reason: RemainingReason::Failed,
                message: format!("the daemon's own copy is still there: {}", chain_text(&error)),
            });
        }
        remaining
    }

    /// Where the transcript is. None: nowhere, or nobody here knows where this agent has them.
    fn find(&self, id: &UpstreamId) -> Result<Option<PathBuf>, TranscriptError> {
        let Some((root, format)) = self.entry.listed_transcripts() else {
            return Ok(None);
        };
        let library = &self.services.library;
        match disk::transcript(library, root, format, &self.cwd, id) {
            Ok(path) => Ok(Some(path)),
            Err(error) if disk::is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a transcript that its agent did not, where that is in our power.
    fn remove(&self, upstream_id: &UpstreamId, by_agent: Result<(), String>) -> Option<RemainingTranscript> {
        let failed = |path: Option<&Path>, message: String| RemainingTranscript {
            upstream_id: upstream_id.clone(),
            path: path.map(|path| path.to_string_lossy().into_owned()),
            reason: RemainingReason::Failed,
            message,
        };
        let path = match self.find(upstream_id) {
            Ok(Some(path)) => path,
            Ok(None) => {
                let is_unknown = self.entry.listed_transcripts().is_none();
                let was_written = self.unwritten.as_ref() != Some(upstream_id);
                let error = by_agent.err().filter(|_| is_unknown && was_written)?;
                return Some(failed(None, error));
            }
            Err(error) => return Some(failed(None, chain_text(&error))),
        };
        if self.entry.readable_transcripts().is_some() {
            let error = std::fs::remove_file(&path).err()?;
            let is_gone = error.kind() == io::ErrorKind::NotFound;
            return (!is_gone).then(|| failed(Some(&path), format!("it cannot be removed: {error}")));
        }
        let (root, _) = self.entry.listed_transcripts()?;
        Some(match by_agent {
            Err(error) => failed(Some(&path), error),
            Ok(()) if rollouts::is_archived(root, &path) => RemainingTranscript {
                reason: RemainingReason::Archived,
                ..failed(
                    Some(&path),
                    "the agent archived it when it was to delete it".to_owned(),
                )
            },
            Ok(()) => failed(
                Some(&path),
                "the agent said that it deleted the session".to_owned(),
            ),
        })
    }

    /// Tells of a transcript that stays, where there is one.
    fn left(&self, (upstream_id, reason, message): Other) -> Option<RemainingTranscript> {
        // One that cannot be looked at may be there all the same.
        let path = self
            .find(&upstream_id)
            .map_or(Some(None), |path| path.map(Some))?;
        Some(RemainingTranscript {
            upstream_id,
            path: path.map(|path| path.to_string_lossy().into_owned()),
            reason,
            message: message.to_owned(),
        })
    }
}
