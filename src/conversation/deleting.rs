//! Deletes the transcripts of a deleted conversation, if the caller requests it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::conversation::{ConversationAnswer, DeleteAnswer, RemainingReason, RemainingTranscript};
use bridge_protocol::id::{ConversationId, UpstreamId};
use bridge_protocol::link::{LineageEntry, Link, Relation};
use bridge_protocol::raw::RawJson;
use tokio::task::JoinError;

use crate::agent::catalog::AgentEntry;
use crate::agent::wire::SessionHandle;
use crate::archive::MissingTurns;
use crate::files::is_absence;
use crate::store::{Change, ConversationRecord, RequestRecord, Store, StoreError};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::locate::file_name;
use crate::transcript::side_file_removal::{ForkLookup, SideFilesRemoval, remove_side_files};

use super::answer::MadeConversation;
use super::backup;
use super::climbing::acquire_process;
use super::error::ConversationError;
use super::services::{Services, SessionRef, chain_text};
use super::transcript_facts::{AgentTranscripts, log_unreadable};

/// Deletes the transcripts of the conversation's sessions, with their side files: first by the agent's own method, then what
/// that leaves. A session that another conversation also has stays, and so do side files that another conversation's fork may
/// need. Backups of deleted transcripts are deleted too. Returns what is still there.
pub(super) async fn delete_transcripts(
    services: &Arc<Services>,
    record: &ConversationRecord,
) -> Vec<RemainingTranscript> {
    match delete_all(services, record).await {
        Ok(remaining) => log_remaining(record, remaining),
        Err(why) => leave_transcripts(services, record, &why),
    }
}

/// Deletes no transcript, for the reason `why`. Returns the same list as [`delete_transcripts`].
pub(super) fn leave_transcripts(
    services: &Services,
    record: &ConversationRecord,
    why: &str,
) -> Vec<RemainingTranscript> {
    log_remaining(record, remaining_of_all(services, record, why))
}

fn log_remaining(
    record: &ConversationRecord,
    remaining: Vec<RemainingTranscript>,
) -> Vec<RemainingTranscript> {
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

async fn delete_all(
    services: &Arc<Services>,
    record: &ConversationRecord,
) -> Result<Vec<RemainingTranscript>, String> {
    let entry = services
        .agent(&record.agent)
        .map_err(|error| chain_text(&error))?;
    let sorted = own_and_shared_sessions(services, record, &entry);
    let (own, shared) = sorted.map_err(|error| {
        format!(
            "cannot determine which conversations share its sessions: {}",
            chain_text(&error)
        )
    })?;
    let deletion = Deletion {
        services: Arc::clone(services),
        entry: Arc::clone(&entry),
        record: record.clone(),
    };
    let broken = |error: JoinError| format!("the deletion was interrupted: {error}");
    let look = move || {
        let own: Vec<_> = own.into_iter().map(|id| deletion.session(id)).collect();
        (deletion, own)
    };
    let (deletion, mut own) = tokio::task::spawn_blocking(look).await.map_err(broken)?;
    delete_by_agent(services, &entry, &mut own).await;
    let work = move || deletion.finish(own, &shared);
    tokio::task::spawn_blocking(work).await.map_err(broken)
}

/// A session to delete.
struct OwnSession {
    id: UpstreamId,
    /// Where its transcript was, or would be: if it is missing, its side files may still be there.
    places: BTreeSet<PathBuf>,
    /// The agent's answer to `session/delete`.
    agent_result: Result<(), String>,
}

/// All sessions that the conversation ever had: those that are only its own, and those that another one has too.
fn own_and_shared_sessions(
    services: &Services,
    record: &ConversationRecord,
    entry: &AgentEntry,
) -> Result<(Vec<UpstreamId>, Vec<UpstreamId>), StoreError> {
    let lineage = services.store.lineage_all(record.id)?;
    let sessions: BTreeSet<UpstreamId> = lineage
        .into_iter()
        .filter(|it| it.agent == record.agent && !it.upstream_id.is_empty())
        .map(|it| it.upstream_id)
        .collect();
    let (mut own, mut shared) = (Vec::new(), Vec::new());
    for id in sessions {
        let holders = services.store.holders(&id, Some(&entry.transcript_root()))?;
        match holders.iter().any(|holder| holder.id != record.id) {
            true => shared.push(id),
            false => own.push(id),
        }
    }
    Ok((own, shared))
}

/// The sessions that can be adopted when a conversation is deleted without its transcripts, at once or after their backup was
/// restored, newest first: those whose history no later one of them carries. Those of other conversations are left out. Empty,
/// and logged, if the store or the transcripts cannot be read now.
pub(super) async fn kept_sessions(services: &Arc<Services>, record: &ConversationRecord) -> DeleteAnswer {
    let (reader, id) = (Arc::clone(services), record.id);
    let found = async {
        let entries = services.store.lineage_all(id)?;
        let Some(last) = entries.last() else {
            return Ok(DeleteAnswer::default());
        };
        let agent = services.agent(&last.agent)?;
        let Some((root, _)) = agent.listed_transcripts() else {
            return Ok(DeleteAnswer::default());
        };
        let (root, cwd) = (root.to_owned(), last.cwd.clone());
        let look = move || kept_sessions_of(&reader, id, entries);
        services.look_at_project(&root, &cwd, look).await
    };
    found.await.unwrap_or_else(|error: ConversationError| {
        tracing::warn!(conversation = %id, error = chain_text(&error), "the sessions that can be adopted are not known");
        DeleteAnswer::default()
    })
}

/// Where most of a session's history is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryPlace {
    Transcript,
    Backup,
}

/// Returns `None` for a session without a history.
fn history_place(
    transcripts: AgentTranscripts<'_>,
    cwd: &str,
    id: &UpstreamId,
    acknowledged: u64,
) -> Option<HistoryPlace> {
    let path = transcripts.find(cwd, id).ok();
    let file = path
        .as_ref()
        .and_then(|_| log_unreadable(transcripts.turn_counts(cwd, id, None)));
    let file = file.filter(|file| file.turns > 0);
    let lost = file.map(|file| file.missing_turns(acknowledged));
    if lost == Some(0) {
        return Some(HistoryPlace::Transcript);
    }
    let (archive, key) = (transcripts.archive(), transcripts.key(id));
    // A backup that is a link to the transcript has lost the same.
    let has_own = match path.filter(|path| !is_blank(path).unwrap_or(false)) {
        Some(path) => archive.is_backed_up_apart(&key, &path),
        None => archive.has_transcript(&key),
    };
    let lost_by_backup = match has_own {
        Ok(true) => archive.missing_turns(&key, acknowledged).ok().flatten(),
        _ => None,
    };
    match (lost, lost_by_backup) {
        (None, None) => None,
        (None, Some(_)) => Some(HistoryPlace::Backup),
        (Some(by_file), Some(by_backup)) if by_backup < MissingTurns::Known(by_file) => {
            Some(HistoryPlace::Backup)
        }
        (Some(_), _) => Some(HistoryPlace::Transcript),
    }
}

fn kept_sessions_of(
    services: &Services,
    conversation: ConversationId,
    entries: Vec<LineageEntry>,
) -> Result<DeleteAnswer, ConversationError> {
    let (mut kept, mut carried) = (DeleteAnswer::default(), HashSet::new());
    let mut places = HashMap::new();
    for entry in entries
        .into_iter()
        .rev()
        .filter(|entry| !entry.upstream_id.is_empty())
    {
        let id = entry.upstream_id;
        let root = services.agent(&entry.agent)?.transcript_root();
        // Undos and moves repeat an id.
        let place = match places.get(&id) {
            Some(place) => *place,
            None => {
                let acknowledged = backup::acknowledged_turns(services, &root, &id)?.unwrap_or_default();
                let transcripts = services.transcripts(&entry.agent);
                transcripts.and_then(|of_agent| history_place(of_agent, &entry.cwd, &id, acknowledged))
            }
        };
        places.insert(id.clone(), place);
        let Some(place) = place else { continue };
        if entry.relation == Relation::Carries {
            carried.extend(entry.from_upstream_id);
        }
        let holders = services.store.holders(&id, Some(&root))?;
        let is_own = holders.iter().all(|holder| holder.id == conversation);
        let sessions = match place {
            HistoryPlace::Transcript => &mut kept.adoptable,
            HistoryPlace::Backup => &mut kept.restorable,
        };
        if is_own && !carried.contains(&id) && !sessions.contains(&id) {
            sessions.push(id);
        }
    }
    Ok(kept)
}

/// Extends the change that deletes a conversation: removes the stored answers to calls about it, and replaces the answers of
/// the calls that created it, so that repeating those calls is refused.
pub(super) fn erase_answers(store: &Store, change: &mut Change) {
    change.erases = true;
    if let Err(error) = add_erased_answers(store, change) {
        tracing::error!(
            error = chain_text(&error),
            "answers to calls about a deleted conversation stay stored"
        );
    }
}

fn add_erased_answers(store: &Store, change: &mut Change) -> Result<(), StoreError> {
    let Some(record) = &change.conversation else {
        return Ok(());
    };
    let own = record.id;
    let is_new = |old: &RequestRecord| change.requests.iter().all(|new| new.request_id != old.request_id);
    let removed = store.requests(Some(own))?.into_iter().filter(is_new);
    change.requests_removed = removed.map(|old| (Some(own), old.request_id)).collect();
    let mut elsewhere = store.requests(None)?;
    if let Some(parent) = &record.parent {
        elsewhere.extend(store.requests(Some(parent.conversation_id))?);
    }
    let is_creation = |result: &RawJson| {
        let made = result.read::<ConversationAnswer>();
        made.is_ok_and(|made| made.conversation.id == own)
    };
    elsewhere.retain(|request| request.result.as_ref().is_some_and(is_creation));
    change
        .requests
        .extend(elsewhere.into_iter().map(|request| RequestRecord {
            result: None,
            error: MadeConversation::to_json(own),
            ..request
        }));
    Ok(())
}

/// The answer if no transcript could be deleted: all sessions of the conversation, including those that left the chain.
fn remaining_of_all(
    services: &Services,
    record: &ConversationRecord,
    message: &str,
) -> Vec<RemainingTranscript> {
    let ids: BTreeSet<UpstreamId> = match services.store.lineage_all(record.id) {
        Ok(lineage) => lineage.into_iter().map(|entry| entry.upstream_id).collect(),
        // The lineage cannot be read; use the chain in memory.
        Err(_) => record
            .chain
            .links()
            .iter()
            .map(|link| link.upstream_id.clone())
            .collect(),
    };
    // Their owners are unknown here, so the backups stay too.
    let kept = services.backups.archive.sessions().unwrap_or_default();
    let has_backup = |id: &UpstreamId| kept.iter().any(|session| session.key.upstream_id == id.as_str());
    let message_for = |id: &UpstreamId| match has_backup(id) {
        true => {
            format!("{message}; the daemon's own copies of it stay too; sessionctl archive ls lists them")
        }
        false => message.to_owned(),
    };
    ids.into_iter()
        .filter(|id| !id.is_empty())
        .map(|id| failed_deletion(&id, None, message_for(&id)))
        .collect()
}

async fn delete_by_agent(services: &Services, entry: &AgentEntry, own: &mut [OwnSession]) {
    if own.is_empty() {
        return;
    }
    let lease = acquire_process(services, entry)
        .await
        .map_err(|error| chain_text(&error));
    for session in own {
        session.agent_result = match &lease {
            Ok(lease) => {
                let deleted = lease
                    .calls()
                    .delete(&SessionHandle::new(session.id.as_str()))
                    .await;
                deleted.map(drop).map_err(|error| chain_text(&error))
            }
            Err(error) => Err(error.clone()),
        };
    }
}

/// The parts of a deletion before and after the agent's answers. Blocks.
struct Deletion {
    services: Arc<Services>,
    entry: Arc<AgentEntry>,
    record: ConversationRecord,
}

impl Deletion {
    fn finish(&self, own: Vec<OwnSession>, shared: &[UpstreamId]) -> Vec<RemainingTranscript> {
        let ids: Vec<UpstreamId> = own.iter().map(|session| session.id.clone()).collect();
        let mut remaining = match self.deletable() {
            Some(transcripts) => remove_files(transcripts, own),
            None => own
                .into_iter()
                .filter_map(|session| self.remaining_at_agent(session))
                .collect(),
        };
        remaining.extend(shared.iter().filter_map(|id| self.remaining_shared(id)));
        // After the transcripts: a backup that was requested meanwhile finds nothing to copy.
        let failed = self.transcripts().map(|of_agent| of_agent.delete_backups(&ids));
        for (id, error) in failed.unwrap_or_default() {
            let why = format!("the daemon's own copy is still there: {}", chain_text(&error));
            remaining.push(failed_deletion(&id, None, why));
        }
        remaining
    }

    fn transcripts(&self) -> Option<AgentTranscripts<'_>> {
        self.services.transcripts_of(&self.entry)
    }

    /// The agent's transcripts, if they can be deleted without the agent.
    fn deletable(&self) -> Option<AgentTranscripts<'_>> {
        self.transcripts()
            .filter(|of_agent| of_agent.dialect.abilities().can_delete)
    }

    /// A session, with the paths of all copies of its transcript and the path where the transcript would be.
    fn session(&self, id: UpstreamId) -> OwnSession {
        let mut places = BTreeSet::new();
        if let Some(AgentTranscripts { root, dialect, .. }) = self.deletable() {
            // An unreadable folder is reported later, when the file is removed.
            places.extend(dialect.locate(root, id.as_str()).into_iter().flatten());
            let cwd = SessionRef::in_conversation(&self.record, &id).cwd;
            let own = file_name(id.as_str()).map(|name| {
                dialect.expected_path(root, Some(Path::new(&cwd)), Path::new(""), Path::new(&name))
            });
            places.extend(own);
        }
        OwnSession {
            id,
            places,
            agent_result: Ok(()),
        }
    }

    /// The path of the transcript. None if there is no file, or if the agent's folder of transcripts is unknown.
    fn find(&self, id: &UpstreamId) -> Result<Option<PathBuf>, TranscriptError> {
        let Some(transcripts) = self.transcripts() else {
            return Ok(None);
        };
        match transcripts.find(&self.record.cwd, id) {
            Ok(path) => Ok(Some(path)),
            Err(error) if error.is_absence() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reports a transcript that only its agent can delete, if the agent did not.
    fn remaining_at_agent(&self, session: OwnSession) -> Option<RemainingTranscript> {
        let OwnSession { id, agent_result, .. } = session;
        let path = match self.find(&id) {
            Ok(Some(path)) => path,
            Ok(None) => {
                let is_unknown = self.entry.listed_transcripts().is_none();
                let is_unwritten = |head: &Link| !head.written && head.upstream_id == id;
                let was_written = !self.record.chain.head().is_some_and(is_unwritten);
                let error = agent_result.err().filter(|_| is_unknown && was_written)?;
                return Some(failed_deletion(&id, None, error));
            }
            Err(error) => return Some(failed_deletion(&id, None, chain_text(&error))),
        };
        let AgentTranscripts { root, dialect, .. } = self.transcripts()?;
        let remaining = |why: &str| failed_deletion(&id, Some(&path), why.to_owned());
        Some(match agent_result {
            Err(error) => remaining(&error),
            Ok(()) if dialect.unarchive_command(root, &path).is_some() => RemainingTranscript {
                reason: RemainingReason::Archived,
                ..remaining("the agent archived it instead of deleting it")
            },
            Ok(()) => remaining("the agent reported the session as deleted, but its transcript still exists"),
        })
    }

    /// Reports the transcript of a session that another conversation has too, if it exists.
    fn remaining_shared(&self, id: &UpstreamId) -> Option<RemainingTranscript> {
        // If the lookup fails, the transcript may still exist: report it.
        let path = self.find(id).map_or(Some(None), |path| path.map(Some))?;
        let message = "another conversation has the session too".to_owned();
        Some(RemainingTranscript {
            reason: RemainingReason::Shared,
            ..failed_deletion(id, path.as_deref(), message)
        })
    }
}

/// Deletes the transcripts that the agent did not delete, and then the other files of their sessions.
fn remove_files(transcripts: AgentTranscripts<'_>, own: Vec<OwnSession>) -> Vec<RemainingTranscript> {
    let (mut remaining, mut deleted) = (Vec::new(), Vec::new());
    for OwnSession { id, mut places, .. } in own {
        match transcripts.dialect.locate(transcripts.root, id.as_str()) {
            Ok(found) => places.extend(found),
            Err(error) => {
                remaining.push(failed_deletion(&id, None, chain_text(&error)));
                continue;
            }
        }
        for path in places {
            match std::fs::remove_file(&path) {
                Err(error) if !is_absence(&error) => {
                    let why = format!("it cannot be removed: {error}");
                    remaining.push(failed_deletion(&id, Some(&path), why));
                }
                _ => deleted.push((id.clone(), path)),
            }
        }
    }
    // All transcripts are deleted first, because a fork that is deleted too no longer needs borrowed files.
    let mut forks = ForkLookup::default();
    for (id, transcript) in deleted {
        let side_folder = transcript.with_extension("");
        match remove_side_files(&transcript, &mut forks) {
            Ok(SideFilesRemoval::Removed) => {}
            Ok(SideFilesRemoval::KeptForFork) => remaining.push(RemainingTranscript {
                reason: RemainingReason::Shared,
                ..failed_deletion(
                    &id,
                    Some(&side_folder),
                    "its files were not deleted: a fork in the same folder may need them".to_owned(),
                )
            }),
            Err(error) => {
                let why = format!("its files were not deleted: {}", chain_text(&error));
                remaining.push(failed_deletion(&id, Some(&side_folder), why));
            }
        }
    }
    remaining
}

fn failed_deletion(id: &UpstreamId, path: Option<&Path>, message: String) -> RemainingTranscript {
    RemainingTranscript {
        upstream_id: id.clone(),
        path: path.map(|path| path.to_string_lossy().into_owned()),
        reason: RemainingReason::Failed,
        message,
    }
}
