//! Backups of sessions that belong to no conversation: listing and deleting them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::keep::{ForgetAnswer, UnclaimedSession};
use bridge_protocol::{AgentName, UpstreamId};
use jiff::Timestamp;

use super::super::answer::CallKey;
use super::super::backup::is_used_by_conversation;
use super::super::error::ConversationError;
use super::super::services::Services;
use super::Registry;
use crate::agent::catalog::AgentEntry;
use crate::archive::{ArchivedSession, SessionKey};
use crate::store::{ConversationRecord, StoreError, TranscriptRoot};

/// Limit of unclaimed sessions that one answer lists.
const UNCLAIMED_LIMIT: usize = 1_000;

/// The backed-up sessions that belong to no conversation, newest first and at most [`UNCLAIMED_LIMIT`], and their full count.
/// Blocks.
pub(super) fn unclaimed(
    services: &Services,
    mut sessions: Vec<ArchivedSession>,
) -> Result<(Vec<UnclaimedSession>, u64), ConversationError> {
    sessions.sort_by_key(|session| Reverse(session.changed_ms));
    let (mut listed, mut count) = (Vec::new(), 0);
    let mut bases: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for session in sessions.into_iter().filter(|session| !session.is_released) {
        let owners = owners(services, &session.key)?;
        if owners.iter().any(|owner| owner.deleted_at.is_none()) {
            continue;
        }
        // A session that contains the beginning of others is needed as long as their backups exist.
        if session.may_be_base {
            let root = &session.key.root;
            if !bases.contains_key(root) {
                let read = services.backups.archive.bases(root);
                bases.insert(root.clone(), read?);
            }
            if bases[root].contains(&session.key.upstream_id) {
                continue;
            }
        }
        count += 1;
        if listed.len() < UNCLAIMED_LIMIT {
            let titles = owners.into_iter().map(|owner| owner.title);
            listed.push(UnclaimedSession {
                upstream_id: UpstreamId::new(session.key.upstream_id),
                agent: agent_of(services, &session.key.root).map(|entry| entry.name.clone()),
                title: titles.max_by_key(|title| !title.is_empty()).unwrap_or_default(),
                changed_at: Timestamp::from_millisecond(session.changed_ms).unwrap_or_default(),
                bytes: session.bytes,
            });
        }
    }
    Ok((listed, count))
}

/// The conversations that have or had a session.
fn owners(services: &Services, key: &SessionKey) -> Result<Vec<ConversationRecord>, StoreError> {
    let owners = services
        .store
        .owners(&UpstreamId::new(key.upstream_id.as_str()), Some(&root_of(key)))?;
    let records = owners.into_iter().map(|owner| services.store.conversation(owner));
    records.filter_map(Result::transpose).collect()
}

/// The root of an archived session in the form that the store uses.
pub(super) fn root_of(key: &SessionKey) -> TranscriptRoot {
    TranscriptRoot::new(key.root.to_string_lossy())
}

/// The first agent whose transcripts are in this root.
fn agent_of<'a>(services: &'a Services, root: &Path) -> Option<&'a Arc<AgentEntry>> {
    let mut entries = services.catalog.entries();
    entries.find(|entry| entry.listed_transcripts().is_some_and(|(own, _)| own == root))
}

impl Registry {
    /// Deletes the backups of a session that belongs to no conversation.
    ///
    /// # Errors
    /// When there are no backups of it, a conversation has it, or several agents have backups of this id; when a file cannot be
    /// deleted.
    pub async fn delete_backup_named(
        self: &Arc<Self>,
        id: UpstreamId,
        agent: Option<AgentName>,
        request: Option<CallKey>,
    ) -> Result<ForgetAnswer, ConversationError> {
        let entry = agent.map(|name| self.services.agent(&name)).transpose()?;
        let services = Arc::clone(&self.services);
        let work = move || {
            let session = archived_session(&services, &id, entry.as_deref())?;
            delete_backup(&services, &session)
        };
        self.run_idempotent_work(None, request, |registry| async move {
            registry.run_file_change("transcript/forget", work).await
        })
        .await
    }
}

/// The archived session with this id.
fn archived_session(
    services: &Services,
    id: &UpstreamId,
    entry: Option<&AgentEntry>,
) -> Result<ArchivedSession, ConversationError> {
    let sessions = services.backups.archive.sessions();
    let mut found = sessions?;
    let root = entry.map(|entry| entry.listed_transcripts().map(|(root, _)| root));
    found.retain(|session| {
        session.key.upstream_id == id.as_str() && root.is_none_or(|root| root == Some(&session.key.root))
    });
    match found.len() {
        0 => Err(ConversationError::NotFound {
            what: format!("no backups of a session \"{id}\""),
        }),
        1 => Ok(found.swap_remove(0)),
        _ => Err(ConversationError::AmbiguousAgents {
            name: id.to_string(),
            agents: found
                .iter()
                .filter_map(|session| agent_of(services, &session.key.root))
                .map(|entry| entry.name.clone())
                .collect(),
        }),
    }
}

fn delete_backup(services: &Services, session: &ArchivedSession) -> Result<ForgetAnswer, ConversationError> {
    let key = &session.key;
    let owners = owners(services, key)?;
    if let Some(owner) = owners.iter().find(|owner| owner.deleted_at.is_none()) {
        return Err(ConversationError::Conflict(format!(
            "session {} belongs to a conversation; delete its backups together with the conversation: sessionctl rm {} --transcripts",
            key.upstream_id, owner.id
        )));
    }
    let archive = &services.backups.archive;
    if !session.may_be_base {
        archive.remove(key)?;
        return Ok(ForgetAnswer {
            bytes: session.bytes,
            needed: false,
        });
    }
    let ids = BTreeSet::from([key.upstream_id.clone()]);
    let root = root_of(key);
    let removed = archive.remove_unneeded(&key.root, &ids, |id| {
        is_used_by_conversation(services, &root, &id.into())
    });
    removed?;
    let needed = !archive.archived_files(key)?.is_empty();
    Ok(ForgetAnswer {
        bytes: if needed { 0 } else { session.bytes },
        needed,
    })
}
