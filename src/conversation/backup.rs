//! Backups of transcripts: selects the files of an agent to back up, and restores them.
//!
//! Owns the queue in which conversations request backups of sessions, and the user's settings. The copies belong to the
//! archive. Blocks, except for the request for a backup.

mod moved_folders;
mod unpacked_backup;
mod unreadable_transcript;

use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bridge_protocol::UpstreamId;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Notify;

use super::error::ConversationError;
use super::lock::lock;
use super::services::{Services, SessionRef, chain_text};
use crate::agent::catalog::AgentEntry;
use crate::archive::{Archive, BackupOutcome, CopyOrigin, MissingTurns, RestoreCallbacks, SessionKey};
use crate::files::misplaced::Misplaced;
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::dialect::Session;
use crate::transcript::relocate::Relocation;
use crate::transcript::transcript_list::Format;

pub(super) use unpacked_backup::unpack_backup_of_missing;
pub(super) use unreadable_transcript::{advice_on_unreadable, command_to_restore};

/// The limit on waiting requests: more than the number of turns that end during one round.
const MAX_REQUESTED: usize = 1_024;

/// The user's settings for backups: `[keep]` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackupRules {
    /// Whether transcripts are backed up automatically.
    #[serde(rename = "enabled")]
    pub is_enabled: bool,
    /// How many days after the last write backups are kept. `None`: forever.
    #[serde(rename = "days")]
    pub max_days: Option<u64>,
    /// How many bytes of disk space all backups may use. `None`: no limit.
    #[serde(rename = "bytes")]
    pub max_bytes: Option<u64>,
}

impl Default for BackupRules {
    fn default() -> Self {
        Self {
            is_enabled: true,
            max_days: None,
            max_bytes: None,
        }
    }
}

/// How a session is backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackupMode {
    /// With hard links to its files, or copies if the file system supports no hard links.
    Linked,
    /// With compressed copies of its files.
    Compressed,
}

/// The backups of transcripts, and the sessions that wait to be backed up.
#[derive(Debug)]
pub struct Backups {
    /// The archive of all backups.
    pub archive: Archive,
    /// The user's settings.
    pub rules: BackupRules,
    requested: Mutex<BTreeMap<SessionRef, BackupMode>>,
    wake: Notify,
    /// Links and files that replace folders of the archive and were already reported. Each backup finds them again.
    reported_misplaced: Mutex<BTreeSet<PathBuf>>,
}

impl Backups {
    /// Backups in this folder.
    #[must_use]
    pub fn new(folder: PathBuf, rules: BackupRules) -> Self {
        Self {
            archive: Archive::new(folder),
            rules,
            requested: Mutex::default(),
            wake: Notify::new(),
            reported_misplaced: Mutex::default(),
        }
    }

    /// Requests a backup of a session soon, if backups are enabled. If too many requests wait, this one is dropped: the session
    /// is backed up when it is requested again, or within a day.
    pub fn request(&self, session: SessionRef, mode: BackupMode) {
        if !self.rules.is_enabled || session.upstream_id.is_empty() {
            return;
        }
        let mut requested = lock(&self.requested);
        if requested.len() < MAX_REQUESTED || requested.contains_key(&session) {
            let wanted = requested.entry(session).or_insert(mode);
            *wanted = mode.max(*wanted);
        }
        drop(requested);
        self.wake.notify_one();
    }

    /// Waits for a request.
    pub async fn wait_for_request(&self) {
        self.wake.notified().await;
    }

    /// The sessions requested since the last call.
    #[must_use]
    pub fn take_requested(&self) -> BTreeMap<SessionRef, BackupMode> {
        std::mem::take(&mut *lock(&self.requested))
    }

    /// Marks this as reported. Returns whether it was not reported before.
    pub(super) fn mark_misplaced_reported(&self, misplaced: &Misplaced) -> bool {
        lock(&self.reported_misplaced).insert(misplaced.path.clone())
    }
}

/// The archive's key for a session.
pub(super) fn session_key(root: &Path, id: &UpstreamId) -> SessionKey {
    SessionKey {
        root: root.to_owned(),
        upstream_id: id.as_str().to_owned(),
    }
}

/// Backs up a session, with the rollouts in which its history begins. If its transcript is missing, its linked copies are
/// packed.
pub(super) fn back_up(
    services: &Services,
    entry: &AgentEntry,
    session: &SessionRef,
    mode: BackupMode,
) -> BackupOutcome {
    let mut outcome = BackupOutcome::default();
    let result = back_up_files(services, entry, session, mode, &mut outcome);
    outcome.error = outcome.error.or(result.err());
    outcome
}

fn back_up_files(
    services: &Services,
    entry: &AgentEntry,
    session: &SessionRef,
    mode: BackupMode,
    outcome: &mut BackupOutcome,
) -> Result<(), TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(());
    };
    let id = &session.upstream_id;
    let archive = &services.backups.archive;
    // Read before the files, because a turn that ends meanwhile may not be in them.
    let acknowledged = |id: &UpstreamId| acknowledged_turns(services, &entry.transcript_root(), id);
    let own_turns = acknowledged(id)?;
    let files = match format.dialect().files(services.session(root, &session.cwd, id)) {
        Ok((files, _)) => files,
        Err(error) if error.is_absence() => return archive.pack_links(&session_key(root, id), own_turns),
        Err(error) => return Err(error),
    };
    let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let newest = files.iter().filter_map(|(_, path)| written(path)).max();
    let newest = newest.and_then(|at| Timestamp::try_from(at).ok());
    // If one file fails, the others are still backed up.
    let mut result = Ok(());
    for (name, path) in files {
        let name = UpstreamId::new(name);
        let (is_own, key) = (name == *id, session_key(root, &name));
        // A copy of an empty file is worth nothing, but restoring it would look like a way back.
        if is_blank(&path).unwrap_or(false) && !archive.has_transcript(&key)? {
            continue;
        }
        let turns = match is_own {
            true => own_turns,
            false => match acknowledged(&name) {
                Ok(turns) => turns,
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            },
        };
        let backup = archive.back_up(
            &key,
            format.dialect(),
            &path,
            turns,
            mode == BackupMode::Compressed,
        );
        outcome.is_rewritten |= is_own && backup.is_rewritten;
        let recorded = match (backup.error, newest.filter(|_| !is_own)) {
            (Some(error), _) => Err(error),
            (None, Some(at)) => archive.record_continued(&key, at.as_millisecond()),
            (None, None) => Ok(()),
        };
        result = result.and(recorded);
    }
    result
}

/// How many turns were acknowledged on a session, including carried turns. `None` if no conversation has or had it.
///
/// # Errors
/// If the store cannot be read. A backup must then not be recorded as complete.
pub(super) fn acknowledged_turns(
    services: &Services,
    root: &TranscriptRoot,
    id: &UpstreamId,
) -> Result<Option<u64>, TranscriptError> {
    let unknown = |error: StoreError| {
        TranscriptError::io("look up the turns of", Path::new(id.as_str()))(io::Error::other(error))
    };
    let mut most = None;
    for owner in services.store.owners(id, Some(root)).map_err(unknown)? {
        let Some(record) = services.store.conversation(owner).map_err(unknown)? else {
            continue;
        };
        let mut links = record.chain.links().iter();
        let turns = match links.find(|link| link.upstream_id == *id) {
            Some(link) => Some(link.turns + link.carried_turns),
            // The session left the chain, but an undo may bring it back.
            None => {
                let lineage = services.store.lineage_all(owner).map_err(unknown)?;
                let own = lineage.iter().filter(|entry| entry.upstream_id == *id);
                own.map(|entry| entry.turns + entry.carried_turns).max()
            }
        };
        most = most.max(turns);
    }
    Ok(most)
}

/// How many acknowledged turns would be missing if a session were restored now. `None` if none, or if it has a transcript.
///
/// # Errors
/// If the store or the copies cannot be read.
fn turns_lost_by_restore(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Option<MissingTurns>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(None);
    };
    let paths = format.dialect().locate(root, id.as_str())?;
    if paths.iter().any(|path| !is_blank(path).unwrap_or(false)) {
        return Ok(None);
    }
    let lost = turns_missing_from_backup(services, entry, id)?;
    Ok(Some(lost).filter(|missing| *missing > MissingTurns::Known(0)))
}

/// How many acknowledged turns are missing from the backup of a session.
///
/// # Errors
/// If the store or the copies cannot be read.
fn turns_missing_from_backup(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<MissingTurns, TranscriptError> {
    let none = MissingTurns::Known(0);
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(none);
    };
    let acknowledged = acknowledged_turns(services, &entry.transcript_root(), id)?.unwrap_or_default();
    let later = services
        .backups
        .archive
        .missing_turns(&session_key(root, id), acknowledged)?;
    let dialect = format.dialect();
    // Only histories with references are counted here; others are counted when their transcript is opened.
    if later != Some(MissingTurns::Unknown) || !dialect.abilities().continues_by_reference {
        return Ok(later.unwrap_or(none));
    }
    let Some(unpacked) = unpack_backup_of_missing(services, entry, id)? else {
        return Ok(MissingTurns::Unknown);
    };
    // The folder does not matter: files that continue others are found by their ids.
    let session = services.home(unpacked.root()).session(Some(""), id.as_str());
    let open = dialect.open(session, None).ok();
    // A missing beginning is no reason to count here: every reader reports it.
    let recorded = open
        .filter(|open| !open.lacks_beginning())
        .and_then(|open| open.max_recorded_turns());
    let missing = recorded.map_or(0, |recorded| acknowledged.saturating_sub(recorded));
    Ok(match missing {
        0 => MissingTurns::Unknown,
        missing => MissingTurns::Known(missing),
    })
}

/// Refuses a change that starts from the head of a conversation if the head was restored without its last turns and the
/// conversation has not reported that: the change would treat the remaining turns as complete.
///
/// # Errors
/// [`ConversationError::TranscriptDamaged`], or the error of reading the restore mark.
pub(super) fn refuse_unreported_loss(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
) -> Result<(), ConversationError> {
    let missing = unreported_missing_turns(services, entry, record)?;
    let Some(missing) = missing else {
        return Ok(());
    };
    Err(ConversationError::TranscriptDamaged(format!(
        "session {id} was restored from a copy without its last turns ({missing}), which the conversation has not reported yet; close it and \
         resume it first: sessionctl close {id}, then sessionctl resume {id}",
        id = record.id
    )))
}

/// The turns missing from the restored head of a conversation, if the conversation has not reported them. Includes the head of
/// an edit or a fork that was never prompted, because it can be restored too.
///
/// # Errors
/// As [`Archive::unreported_missing_turns`](crate::archive::Archive::unreported_missing_turns).
pub(super) fn unreported_missing_turns(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
) -> Result<Option<MissingTurns>, TranscriptError> {
    let Some(((root, _), head)) = entry.listed_transcripts().zip(record.chain.head()) else {
        return Ok(None);
    };
    services
        .backups
        .archive
        .unreported_missing_turns(&session_key(root, &head.upstream_id))
}

/// Records that a conversation has reported the missing turns of a restored session. If that fails, they are reported again.
/// Blocks.
pub(super) fn mark_loss_reported(services: &Services, entry: &AgentEntry, id: &UpstreamId) {
    let Some((root, _)) = entry.listed_transcripts() else {
        return;
    };
    if let Err(error) = services
        .backups
        .archive
        .clear_restore_mark(&session_key(root, id))
    {
        tracing::warn!(upstream_id = %id, error = chain_text(&error), "could not record that missing turns were reported; the next resume reports them again");
    }
}

/// Restores those of the sessions that are missing and whose backups lack no acknowledged turn.
pub(super) fn restore_complete_backups<'a>(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    sessions: impl Iterator<Item = &'a UpstreamId>,
) {
    for id in sessions.filter(|id| is_missing_with_backup(services, entry, record, id)) {
        let restored = match turns_lost_by_restore(services, entry, id) {
            Ok(None) => restore_session(services, entry, record, id).map(drop),
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = restored {
            tracing::warn!(upstream_id = %id, error = chain_text(&error), "an older session could not be restored");
        }
    }
}

/// Restores a missing session for a change that starts from it. If possible, also restores the sessions before it in the chain,
/// in which its history may begin.
///
/// # Errors
/// If its backup lacks turns or cannot be restored.
pub(super) fn restore_for_change(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    id: &UpstreamId,
) -> Result<(), ConversationError> {
    let damaged = |what: String| {
        ConversationError::TranscriptDamaged(format!("the transcript of session {id} is missing, and {what}"))
    };
    let unread = |error: TranscriptError| {
        let words = |why| {
            format!("the transcript of session {id} is missing, and its backup could not be restored: {why}")
        };
        ConversationError::from_damage(&error, words)
    };
    let is_head = record.chain.head().is_some_and(|head| head.upstream_id == *id);
    if let Some(lost) = turns_lost_by_restore(services, entry, id).map_err(unread)? {
        return Err(damaged(match is_head {
            true => format!(
                "its backup lacks the last turns ({lost}); sessionctl resume {} continues with it and reports what is missing; \
                 after that it can be branched, edited and repaired",
                record.id
            ),
            // A resume restores an older session only together with the head.
            false => format!(
                "its backup lacks the last turns ({lost}); restore it to use the turns before them: \
                 sessionctl archive restore {id}"
            ),
        }));
    }
    let links = record.chain.links();
    let index = links.iter().position(|link| link.upstream_id == *id);
    let older = links[..index.unwrap_or_default()].iter();
    restore_complete_backups(services, entry, record, older.map(|link| &link.upstream_id));
    let restored = restore_session(services, entry, record, id).map_err(unread)?;
    tracing::info!(conversation = %record.id, upstream_id = %id, ?restored, "restored a transcript from its backup for a change that needs it");
    Ok(())
}

/// Whether a session's transcript is [missing](is_missing) and has a backup.
pub(super) fn is_missing_with_backup(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    id: &UpstreamId,
) -> bool {
    let Some((root, format)) = entry.listed_transcripts() else {
        return false;
    };
    is_missing(
        services,
        root,
        format,
        &SessionRef::in_conversation(record, id).cwd,
        id,
    ) && has_backup(services, root, id)
}

/// Whether a session's transcript is missing, blank (as after a power loss), or has [lost a part](has_lost_part).
pub(super) fn is_missing(
    services: &Services,
    root: &Path,
    format: Format,
    cwd: &str,
    id: &UpstreamId,
) -> bool {
    match format.dialect().find(services.session(root, cwd, id)) {
        Ok(path) => {
            is_blank(&path).unwrap_or(false)
                || has_lost_part(services, format, services.session(root, cwd, id), &path)
        }
        Err(error) => error.is_absence(),
    }
}

/// Whether the transcript of a session has [lost a part](backup_time_of_lost_part).
pub(super) fn has_lost_part(services: &Services, format: Format, session: Session<'_>, path: &Path) -> bool {
    backup_time_of_lost_part(services, format, session, path).is_some()
}

/// The time of the backup with the records that a transcript continues but no longer contains, if there is such a backup. The
/// file was deleted or truncated while the agent was writing.
pub(super) fn backup_time_of_lost_part(
    services: &Services,
    format: Format,
    session: Session<'_>,
    path: &Path,
) -> Option<Timestamp> {
    let dialect = format.dialect();
    // The transcript's index has this count; the backup is read only if records are missing.
    let counts = dialect.turn_counts(session, None).ok()??;
    if counts.missing_records == 0 {
        return None;
    }
    let key = session_key(session.home.root, &session.id.into());
    let counts = services.backups.archive.lost_part(dialect, &key, path);
    let counts = counts.unwrap_or_else(|error| {
        tracing::warn!(
            upstream_id = session.id,
            error = chain_text(&error),
            "a transcript cannot be compared with its backup"
        );
        None
    });
    Timestamp::from_millisecond(counts?).ok()
}

/// Whether a session's transcript has a backup.
pub(super) fn has_backup(services: &Services, root: &Path, id: &UpstreamId) -> bool {
    let found = services.backups.archive.has_transcript(&session_key(root, id));
    found.unwrap_or_else(|error| {
        tracing::warn!(upstream_id = %id, %error, "the backups of a session cannot be read");
        false
    })
}

/// Whether a session's transcript has a backup, or may have one because the archive cannot be read.
pub(super) fn may_have_backup(services: &Services, root: &Path, id: &UpstreamId) -> bool {
    let found = services.backups.archive.has_transcript(&session_key(root, id));
    found.unwrap_or(true)
}

/// Restores the backup of a session to the path where its agent looks in the folder `cwd`, and changes the records to name
/// `cwd`. If `cwd` is unknown, uses the folder in which the session ran last. First records which turns will be missing, so
/// that the conversation reports them at the next resume even after a crash. Returns the restored files.
///
/// # Errors
/// If there is no backup, if another file is there, or if reading or writing fails.
pub(super) fn restore(
    services: &Services,
    entry: &AgentEntry,
    cwd: Option<&str>,
    id: &UpstreamId,
) -> Result<Vec<PathBuf>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(Vec::new());
    };
    // None of its turns is new. Noted before anything can read the file.
    let mut placing = |id: &str, bytes| {
        services.old_bytes.note_length(&id.into(), bytes);
        Ok(())
    };
    let advice = RestoreCallbacks {
        find_relocation: &|from| relocation(services, entry, id, cwd, from),
        count_missing_turns: &|id| turns_missing_from_backup(services, entry, &id.into()),
    };
    let (archive, place) = (&services.backups.archive, cwd.map(Path::new));
    archive.restore(
        format.dialect(),
        &session_key(root, id),
        place,
        advice,
        &mut placing,
    )
}

/// Restores the backup of a session of a conversation to the folder that the session runs in.
///
/// # Errors
/// As [`restore`].
pub(super) fn restore_session(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    id: &UpstreamId,
) -> Result<Vec<PathBuf>, TranscriptError> {
    restore(
        services,
        entry,
        Some(&SessionRef::in_conversation(record, id).cwd),
        id,
    )
}

/// Deletes the backups of deleted sessions. A copy in which the history of another session begins stays as long as that
/// session's backup. Returns the sessions whose backups may still be there, each with the error.
pub(super) fn delete_backups(
    services: &Services,
    entry: &AgentEntry,
    ids: &[UpstreamId],
) -> Vec<(UpstreamId, TranscriptError)> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Vec::new();
    };
    let archive = &services.backups.archive;
    if format.dialect().abilities().continues_by_reference {
        let all = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let known = entry.transcript_root();
        let removed = archive.remove_unneeded(root, &all, |id| {
            is_used_by_conversation(services, &known, &id.into())
        });
        // The error names the session.
        let failed = removed.err().zip(ids.first());
        return failed
            .map(|(error, id)| (id.clone(), error))
            .into_iter()
            .collect();
    }
    let removed = ids.iter().map(|id| (id, archive.remove(&session_key(root, id))));
    removed
        .filter_map(|(id, removed)| Some((id.clone(), removed.err()?)))
        .collect()
}

/// Whether a conversation, not a deleted one, has this session, or may have it because the store cannot be read.
pub(super) fn is_used_by_conversation(services: &Services, root: &TranscriptRoot, id: &UpstreamId) -> bool {
    let holders = services.store.holders(id, Some(root));
    holders.map_or(true, |holders| !holders.is_empty())
}

/// The changes to the folders in a session's records when its backup is restored to the folder `cwd`, or if that is unknown, to
/// the one in which the session ran last.
fn relocation(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
    cwd: Option<&str>,
    from: &CopyOrigin,
) -> Result<Relocation, TranscriptError> {
    let is_by_folder = entry
        .listed_transcripts()
        .is_some_and(|(_, format)| format.dialect().abilities().finds_by_folder);
    // If the agent does not find sessions by folder, moves do not change the records.
    if !is_by_folder {
        return Ok(Relocation::default());
    }
    let unknown = |error| {
        TranscriptError::io("look for the folders of", Path::new(id.as_str()))(io::Error::other(error))
    };
    let owners = services.store.owners(id, Some(&entry.transcript_root()));
    let mut known: Vec<String> = Vec::new();
    // A session of several conversations does not move when one of them moves.
    if let [owner] = owners.map_err(unknown)?[..] {
        let lineage = services.store.lineage_all(owner).map_err(unknown)?;
        let own = lineage.into_iter().filter(|entry| entry.upstream_id == *id);
        known.extend(own.map(|entry| entry.cwd));
    }
    let Some(now) = cwd.map(str::to_owned).or_else(|| known.last().cloned()) else {
        return Ok(Relocation::default());
    };
    let real = |folder: &str| fs::canonicalize(folder).ok()?.into_os_string().into_string().ok();
    Ok(Relocation {
        folders: moved_folders::map_folders(&known, &now, from, real),
        ..Relocation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionRef {
        SessionRef {
            agent: "claude".into(),
            cwd: "/p".to_owned(),
            upstream_id: id.into(),
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let keeper = Backups::new("/nowhere".into(), BackupRules::default());
        for number in 0..2 * MAX_REQUESTED {
            keeper.request(session(&number.to_string()), BackupMode::Linked);
        }
        assert_eq!(keeper.take_requested().len(), MAX_REQUESTED);
    }
}
