//! Backups of transcripts: selects the files of an agent to back up, and restores them.
//!
//! Owns the queue in which conversations request backups of sessions, and the user's settings. The copies belong to the
//! archive. Blocks, except for the request for a backup.

mod moved_folders;
mod unreadable_transcript;

use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bridge_protocol::UpstreamId;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Notify;

use super::error::ConversationError;
use super::folder::real_folder;
use super::lock::lock;
use super::services::{Services, SessionRef, chain_text};
use super::transcript_facts::AgentTranscripts;
use crate::archive::{Archive, BackupOutcome, CopyOrigin, MissingTurns, RestoreCallbacks, Unpacked};
use crate::files::misplaced::Misplaced;
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::dialect::Session;
use crate::transcript::relocate::Relocation;

pub(super) use unreadable_transcript::advice_on_unreadable;

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

impl AgentTranscripts<'_> {
    /// Backs up a session, with the rollouts in which its history begins. If its transcript is missing, its linked copies are
    /// packed.
    pub(super) fn back_up(self, cwd: &str, id: &UpstreamId, mode: BackupMode) -> BackupOutcome {
        let mut outcome = BackupOutcome::default();
        let result = self.back_up_files(cwd, id, mode, &mut outcome);
        outcome.error = outcome.error.or(result.err());
        outcome
    }

    fn back_up_files(
        self,
        cwd: &str,
        id: &UpstreamId,
        mode: BackupMode,
        outcome: &mut BackupOutcome,
    ) -> Result<(), TranscriptError> {
        let archive = self.archive();
        // Read before the files, because a turn that ends meanwhile may not be in them.
        let own_turns = self.acknowledged_turns(id)?;
        let files = match self.dialect.files(self.session(cwd, id)) {
            Ok((files, _)) => files,
            Err(error) if error.is_absence() => return archive.pack_links(&self.key(id), own_turns),
            Err(error) => return Err(error),
        };
        let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let newest = files.iter().filter_map(|(_, path)| written(path)).max();
        let newest = newest.and_then(|at| Timestamp::try_from(at).ok());
        // If one file fails, the others are still backed up.
        let mut result = Ok(());
        for (name, path) in files {
            let name = UpstreamId::new(name);
            let (is_own, key) = (name == *id, self.key(&name));
            // A copy of an empty file is worth nothing, but restoring it would look like a way back.
            if is_blank(&path).unwrap_or(false) && !archive.has_transcript(&key)? {
                continue;
            }
            let turns = match is_own {
                true => own_turns,
                false => match self.acknowledged_turns(&name) {
                    Ok(turns) => turns,
                    Err(error) => {
                        result = result.and(Err(error));
                        continue;
                    }
                },
            };
            let is_compressed = mode == BackupMode::Compressed;
            let backup = archive.back_up(&key, self.dialect, &path, turns, is_compressed);
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

    /// The archive of all backups.
    pub(super) fn archive(&self) -> &Archive {
        &self.services.backups.archive
    }

    /// As [`acknowledged_turns`], for a session of this agent.
    ///
    /// # Errors
    /// As there.
    pub(super) fn acknowledged_turns(self, id: &UpstreamId) -> Result<Option<u64>, TranscriptError> {
        acknowledged_turns(self.services, &self.entry.transcript_root(), id)
    }

    /// How many acknowledged turns would be missing if a session were restored now. `None` if none, or if it has a transcript.
    ///
    /// # Errors
    /// If the store or the copies cannot be read.
    fn turns_lost_by_restore(self, id: &UpstreamId) -> Result<Option<MissingTurns>, TranscriptError> {
        let paths = self.dialect.locate(self.root, id.as_str())?;
        if paths.iter().any(|path| !is_blank(path).unwrap_or(false)) {
            return Ok(None);
        }
        let lost = self.turns_missing_from_backup(id)?;
        Ok(Some(lost).filter(|missing| *missing > MissingTurns::Known(0)))
    }

    /// How many acknowledged turns are missing from the backup of a session.
    ///
    /// # Errors
    /// If the store or the copies cannot be read.
    fn turns_missing_from_backup(self, id: &UpstreamId) -> Result<MissingTurns, TranscriptError> {
        let acknowledged = self.acknowledged_turns(id)?.unwrap_or_default();
        let later = self.archive().missing_turns(&self.key(id), acknowledged)?;
        // Only histories with references are counted here; others are counted when their transcript is opened.
        if later != Some(MissingTurns::Unknown) || !self.dialect.abilities().continues_by_reference {
            return Ok(later.unwrap_or(MissingTurns::Known(0)));
        }
        let Some(unpacked) = self.unpack_backup_of_missing(id)? else {
            return Ok(MissingTurns::Unknown);
        };
        // The folder does not matter: files that continue others are found by their ids.
        let session = self.in_folder(unpacked.root());
        let open = self.dialect.open(session.session("", id), None).ok();
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
    pub(super) fn refuse_unreported_loss(self, record: &ConversationRecord) -> Result<(), ConversationError> {
        let Some(missing) = self.unreported_missing_turns(record)? else {
            return Ok(());
        };
        Err(ConversationError::TranscriptDamaged(format!(
            "session {id} was restored from a copy without its last turns ({missing}), which the conversation has not reported yet; close it and \
             resume it first: sessionctl close {id}, then sessionctl resume {id}",
            id = record.id
        )))
    }

    /// The turns missing from the restored head of a conversation, if the conversation has not reported them. Includes the head
    /// of an edit or a fork that was never prompted, because it can be restored too.
    ///
    /// # Errors
    /// As [`Archive::unreported_missing_turns`](crate::archive::Archive::unreported_missing_turns).
    pub(super) fn unreported_missing_turns(
        self,
        record: &ConversationRecord,
    ) -> Result<Option<MissingTurns>, TranscriptError> {
        match record.chain.head() {
            Some(head) => self
                .archive()
                .unreported_missing_turns(&self.key(&head.upstream_id)),
            None => Ok(None),
        }
    }

    /// Records that a conversation has reported the missing turns of a restored session. If that fails, they are reported
    /// again. Blocks.
    pub(super) fn mark_loss_reported(self, id: &UpstreamId) {
        if let Err(error) = self.archive().clear_restore_mark(&self.key(id)) {
            tracing::warn!(upstream_id = %id, error = chain_text(&error), "could not record that missing turns were reported; the next resume reports them again");
        }
    }

    /// Restores those of the sessions that are missing and whose backups lack no acknowledged turn.
    pub(super) fn restore_complete_backups<'b>(
        self,
        record: &ConversationRecord,
        sessions: impl Iterator<Item = &'b UpstreamId>,
    ) {
        for id in sessions.filter(|id| self.is_missing_with_backup(record, id)) {
            let restored = match self.turns_lost_by_restore(id) {
                Ok(None) => self.restore_session(record, id).map(drop),
                Ok(Some(_)) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = restored {
                tracing::warn!(upstream_id = %id, error = chain_text(&error), "an older session could not be restored");
            }
        }
    }

    /// Restores a missing session for a change that starts from it. If possible, also restores the sessions before it in the
    /// chain, in which its history may begin.
    ///
    /// # Errors
    /// If its backup lacks turns or cannot be restored.
    pub(super) fn restore_for_change(
        self,
        record: &ConversationRecord,
        id: &UpstreamId,
    ) -> Result<(), ConversationError> {
        let damaged = |what: String| {
            ConversationError::TranscriptDamaged(format!(
                "the transcript of session {id} is missing, and {what}"
            ))
        };
        let unread = |error: TranscriptError| {
            let words = |why| {
                format!(
                    "the transcript of session {id} is missing, and its backup could not be restored: {why}"
                )
            };
            ConversationError::from_damage(&error, words)
        };
        if let Some(lost) = self.turns_lost_by_restore(id).map_err(unread)? {
            return Err(damaged(match record.chain.is_head(id) {
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
        self.restore_complete_backups(record, older.map(|link| &link.upstream_id));
        let restored = self.restore_session(record, id).map_err(unread)?;
        tracing::info!(conversation = %record.id, upstream_id = %id, ?restored, "restored a transcript from its backup for a change that needs it");
        Ok(())
    }

    /// Whether a session's transcript is [missing](Self::is_missing) and has a backup.
    pub(super) fn is_missing_with_backup(self, record: &ConversationRecord, id: &UpstreamId) -> bool {
        self.is_missing(&SessionRef::in_conversation(record, id).cwd, id) && self.has_backup(id)
    }

    /// Whether a session's transcript is missing, blank (as after a power loss), or has [lost a part](Self::has_lost_part).
    pub(super) fn is_missing(self, cwd: &str, id: &UpstreamId) -> bool {
        let session = self.home().session(Some(cwd), id.as_str());
        match self.dialect.find(session) {
            Ok(path) => is_blank(&path).unwrap_or(false) || self.has_lost_part(session, &path),
            Err(error) => error.is_absence(),
        }
    }

    /// Whether the transcript of a session has [lost a part](Self::backup_time_of_lost_part).
    pub(super) fn has_lost_part(self, session: Session<'_>, path: &Path) -> bool {
        self.backup_time_of_lost_part(session, path).is_some()
    }

    /// The time of the backup with the records that a transcript continues but no longer contains, if there is such a backup.
    /// The file was deleted or truncated while the agent was writing.
    pub(super) fn backup_time_of_lost_part(self, session: Session<'_>, path: &Path) -> Option<Timestamp> {
        // The transcript's index has this count; the backup is read only if records are missing.
        let counts = self.dialect.turn_counts(session, None).ok()??;
        if counts.missing_records == 0 {
            return None;
        }
        let key = self.key(&session.id.into());
        let time = self.archive().lost_part(self.dialect, &key, path);
        let time = time.unwrap_or_else(|error| {
            tracing::warn!(
                upstream_id = session.id,
                error = chain_text(&error),
                "a transcript cannot be compared with its backup"
            );
            None
        });
        Timestamp::from_millisecond(time?).ok()
    }

    /// The backup of a session whose transcript, or one in which its history begins, is missing, blank, or has lost a part.
    /// `None` if the agent has all of them or may have them (a folder cannot be read), or if there is no backup.
    ///
    /// # Errors
    /// If the backup cannot be read.
    pub(super) fn unpack_backup_of_missing(
        self,
        id: &UpstreamId,
    ) -> Result<Option<Unpacked>, TranscriptError> {
        let session = self.home().session(None, id.as_str());
        let has_lost_part = || {
            let path = self.dialect.find(session);
            path.is_ok_and(|path| self.has_lost_part(session, &path))
        };
        if !self.dialect.is_missing(self.root, id.as_str()) && !has_lost_part() {
            return Ok(None);
        }
        let relocation = |from: &CopyOrigin| self.relocation(id, None, from);
        match self.archive().unpack(self.dialect, &self.key(id), &relocation) {
            Ok(unpacked) => Ok(Some(unpacked)),
            Err(TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a session's transcript has a backup.
    pub(super) fn has_backup(self, id: &UpstreamId) -> bool {
        let found = self.archive().has_transcript(&self.key(id));
        found.unwrap_or_else(|error| {
            tracing::warn!(upstream_id = %id, %error, "the backups of a session cannot be read");
            false
        })
    }

    /// Whether a session's transcript has a backup, or may have one because the archive cannot be read.
    pub(super) fn may_have_backup(self, id: &UpstreamId) -> bool {
        self.archive().has_transcript(&self.key(id)).unwrap_or(true)
    }

    /// Restores the backup of a session to the path where its agent looks in the folder `cwd`, and changes the records to name
    /// `cwd`. If `cwd` is unknown, uses the folder in which the session ran last. First records which turns will be missing, so
    /// that the conversation reports them at the next resume even after a crash. Returns the restored files.
    ///
    /// # Errors
    /// If there is no backup, if another file is there, or if reading or writing fails.
    pub(super) fn restore(self, cwd: Option<&str>, id: &UpstreamId) -> Result<Vec<PathBuf>, TranscriptError> {
        // None of its turns is new. Noted before anything can read the file.
        let mut placing = |id: &str, bytes| {
            self.services.old_bytes.note_length(&id.into(), bytes);
            Ok(())
        };
        let advice = RestoreCallbacks {
            find_relocation: &|from| self.relocation(id, cwd, from),
            count_missing_turns: &|id| self.turns_missing_from_backup(&id.into()),
        };
        let place = cwd.map(Path::new);
        self.archive()
            .restore(self.dialect, &self.key(id), place, advice, &mut placing)
    }

    /// Restores the backup of a session of a conversation to the folder that the session runs in.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub(super) fn restore_session(
        self,
        record: &ConversationRecord,
        id: &UpstreamId,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        self.restore(Some(&SessionRef::in_conversation(record, id).cwd), id)
    }

    /// Deletes the backups of deleted sessions. A copy in which the history of another session begins stays as long as that
    /// session's backup. Returns the sessions whose backups may still be there, each with the error.
    pub(super) fn delete_backups(self, ids: &[UpstreamId]) -> Vec<(UpstreamId, TranscriptError)> {
        let archive = self.archive();
        if self.dialect.abilities().continues_by_reference {
            let all = ids.iter().map(|id| id.as_str().to_owned()).collect();
            let known = self.entry.transcript_root();
            let removed = archive.remove_unneeded(self.root, &all, |id| {
                is_used_by_conversation(self.services, &known, &id.into())
            });
            // The error names the session.
            let failed = removed.err().zip(ids.first());
            return failed
                .map(|(error, id)| (id.clone(), error))
                .into_iter()
                .collect();
        }
        let removed = ids.iter().map(|id| (id, archive.remove(&self.key(id))));
        removed
            .filter_map(|(id, removed)| Some((id.clone(), removed.err()?)))
            .collect()
    }

    /// The changes to the folders in a session's records when its backup is restored to the folder `cwd`, or if that is unknown,
    /// to the one in which the session ran last.
    fn relocation(
        self,
        id: &UpstreamId,
        cwd: Option<&str>,
        from: &CopyOrigin,
    ) -> Result<Relocation, TranscriptError> {
        // If the agent does not find sessions by folder, moves do not change the records.
        if !self.dialect.abilities().finds_by_folder {
            return Ok(Relocation::default());
        }
        let unknown = |error| {
            TranscriptError::io("look for the folders of", Path::new(id.as_str()))(io::Error::other(error))
        };
        let store = &self.services.store;
        let owners = store.owners(id, Some(&self.entry.transcript_root()));
        let mut known: Vec<String> = Vec::new();
        // A session of several conversations does not move when one of them moves.
        if let [owner] = owners.map_err(unknown)?[..] {
            let lineage = store.lineage_all(owner).map_err(unknown)?;
            let own = lineage.into_iter().filter(|entry| entry.upstream_id == *id);
            known.extend(own.map(|entry| entry.cwd));
        }
        let Some(now) = cwd.map(str::to_owned).or_else(|| known.last().cloned()) else {
            return Ok(Relocation::default());
        };
        Ok(Relocation {
            folders: moved_folders::map_folders(&known, &now, from, real_folder),
            ..Relocation::default()
        })
    }
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
        let turns = match record.chain.link(id) {
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

/// Whether a conversation, not a deleted one, has this session, or may have it because the store cannot be read.
pub(super) fn is_used_by_conversation(services: &Services, root: &TranscriptRoot, id: &UpstreamId) -> bool {
    let holders = services.store.holders(id, Some(root));
    holders.map_or(true, |holders| !holders.is_empty())
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
