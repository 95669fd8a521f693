//! Backs up transcripts: after each turn, when a conversation leaves a session, once a day for all of them, and when a client
//! requests it.
//!
//! One task backs up one session at a time, and nothing waits for it. A failed backup is logged and tried again after
//! the next turn, when the session is closed, and each day. A start also
//! requests backups of heads that changed since the last pass and have an interrupted turn or no backup.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::keep::{KeepAnswer, KeepTotal, KeptFile, RestoreAnswer};
use bridge_protocol::{AgentName, ConversationId, UpstreamId};
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::super::answer::CallKey;
use super::super::backup::{self, BackupMode};
use super::super::checking::readable_transcripts;
use super::super::error::ConversationError;
use super::super::running_work::StopMeter;
use super::super::services::{Services, SessionRef, chain_text, now};
use super::super::transcript_facts::AgentTranscripts;
use super::super::transcript_growth::TranscriptGrowth;
use super::transcripts::AgentFolder;
use super::unclaimed_backups::{root_of, unclaimed};
use super::{Registry, panic_text};
use crate::agent::catalog::AgentEntry;
use crate::archive::{ArchiveTotal, ArchivedSession, MissingTurns};
use crate::files::durable;
use crate::paths::names::PASSED;
use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use crate::transcript::TranscriptError;
use crate::transcript::meter::with_meter;

/// How long after a pass over all sessions the next one begins, in milliseconds.
const PASS_INTERVAL_MS: i64 = 24 * 60 * 60 * 1_000;

/// How often the daemon checks whether the next pass is due: timers do not count the time while the machine sleeps.
const PASS_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// How far the next pass reaches back before the last one, in milliseconds: changes in that time may have been missed.
const PASS_OVERLAP_MS: i64 = 60 * 60 * 1_000;

/// The sessions that a call names.
#[derive(Clone, Debug)]
pub enum SessionSelector {
    /// All sessions of a conversation.
    Conversation(ConversationId),
    /// A session by its id, and its agent.
    Session(UpstreamId, Option<AgentName>),
}

/// A session that a caller names, and where it is.
struct NamedSession {
    folder: AgentFolder,
    cwd: Option<String>,
    id: UpstreamId,
}

impl SessionSelector {
    fn conversation(&self) -> Option<ConversationId> {
        match self {
            Self::Conversation(id) => Some(*id),
            Self::Session(..) => None,
        }
    }
}

/// Candidates for the sessions that a caller names, found without reading the disk, and the id, if the caller named one. For a
/// conversation: its sessions, head last. For an id: the session of each agent that may have it.
type RequestedSessions = (Vec<NamedSession>, Option<UpstreamId>);

/// Reads which candidates exist. An id must match one session that a conversation or an agent has, or that has a backup.
/// Blocks.
fn existing_sessions(
    services: &Services,
    (mut found, id): RequestedSessions,
) -> Result<Vec<NamedSession>, ConversationError> {
    let Some(id) = id else {
        return Ok(found);
    };
    found.retain(|named| {
        let transcripts = named.folder.transcripts(services);
        named.cwd.is_some() || transcripts.has_backup(&id) || transcripts.find("", &id).is_ok()
    });
    match found.len() {
        0 => Err(ConversationError::NotFound {
            what: format!("there is no transcript \"{id}\" and no backup of it"),
        }),
        1 => Ok(found),
        _ => Err(ConversationError::AmbiguousAgents {
            name: id.to_string(),
            agents: found
                .iter()
                .map(|named| named.folder.entry.name.clone())
                .collect(),
        }),
    }
}

impl Registry {
    /// Starts backing up transcripts. Ends when the daemon stops.
    pub fn run_backups(self: &Arc<Self>) {
        let (registry, stop) = (Arc::downgrade(self), self.stop.clone());
        let services = Arc::clone(&self.services);
        self.tasks.spawn(async move {
            let mut next_check = Instant::now();
            let mut is_first = true;
            loop {
                let is_check = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = services.backups.wait_for_request() => false,
                    () = sleep_until(next_check) => true,
                };
                let Some(registry) = registry.upgrade() else {
                    return;
                };
                let meter = Arc::new(StopMeter(stop.clone()));
                let round = tokio::task::spawn_blocking(move || {
                    let round = || {
                        if is_first {
                            registry.request_left_backups(now());
                        }
                        with_meter(meter, || registry.backup_round(is_check, now()));
                    };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(round)) {
                        let why = panic_text(panic.as_ref());
                        tracing::error!(why, "could not back up transcripts");
                    }
                });
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    _ = round => {}
                }
                is_first = false;
                if is_check {
                    next_check = Instant::now() + PASS_CHECK_INTERVAL;
                }
            }
        });
    }

    /// Backs up the requested sessions and, once a day, all that have changed.
    fn backup_round(&self, is_check: bool, at: Timestamp) {
        for (session, mode) in self.services.backups.take_requested() {
            if self.stop.is_cancelled() {
                return;
            }
            self.back_up_session(&session, mode);
        }
        if is_check {
            self.services.backups.archive.forget_unpacked();
        }
        if is_check
            && self
                .last_pass(at)
                .is_none_or(|last| at.as_millisecond() - last >= PASS_INTERVAL_MS)
        {
            self.backup_pass(at);
        }
    }

    fn back_up_session(&self, session: &SessionRef, mode: BackupMode) {
        let Some(entry) = self.services.catalog.get(&session.agent) else {
            return;
        };
        // A session whose conversation was deleted meanwhile is not copied again.
        if !backup::is_used_by_conversation(&self.services, &entry.transcript_root(), &session.upstream_id) {
            return;
        }
        let Some(transcripts) = self.services.transcripts_of(entry) else {
            return;
        };
        let backup = transcripts.back_up(&session.cwd, &session.upstream_id, mode);
        if backup.is_rewritten {
            self.report_rewritten(entry, &session.upstream_id);
        }
        match backup.error {
            None => {}
            Some(TranscriptError::Misplaced(misplaced))
                if !self.services.backups.mark_misplaced_reported(&misplaced) => {}
            Some(error) => {
                let error = chain_text(&error);
                tracing::warn!(upstream_id = %session.upstream_id, error, "could not back up a transcript");
            }
        }
    }

    /// Notifies the conversations whose head a session is that another program has written to its transcript.
    fn report_rewritten(&self, entry: &AgentEntry, id: &UpstreamId) {
        tracing::warn!(upstream_id = %id, "a transcript is shorter than its backup, or its beginning differs; both are kept");
        let holders = self.services.store.holders(id, Some(&entry.transcript_root()));
        let holders = holders.unwrap_or_else(|error| {
            tracing::error!(upstream_id = %id, error = chain_text(&error), "its conversations are not notified");
            Vec::new()
        });
        for holder in holders {
            if holder.chain.is_head(id) {
                let growth = TranscriptGrowth {
                    rewritten: true,
                    ..TranscriptGrowth::of(id)
                };
                Handle::current().block_on(self.report_growth(holder.id, growth));
            }
        }
    }

    /// The time of the last pass, in milliseconds since the epoch. A time after `at` is ignored: it was recorded while the
    /// clock was ahead.
    fn last_pass(&self, at: Timestamp) -> Option<i64> {
        let path = self.services.backups.archive.folder().join(PASSED);
        let passed = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
        Some(passed).filter(|passed| *passed <= at.as_millisecond())
    }

    /// Backs up the sessions that changed since the last pass, and deletes backups above the configured age or total size.
    fn backup_pass(&self, at: Timestamp) {
        let backups = &self.services.backups;
        let since = self.last_pass(at).map(|last| last - PASS_OVERLAP_MS);
        let at = at.as_millisecond();
        let days = |days: u64| {
            i64::try_from(days)
                .unwrap_or(i64::MAX)
                .saturating_mul(PASS_INTERVAL_MS)
        };
        // Limited to the store's time, so that a clock that is ahead does not make backups look old.
        let elapsed = self.services.store.minimum_time().map(Timestamp::as_millisecond);
        let oldest = backups.rules.max_days.zip(elapsed);
        let oldest = oldest.map(|(kept, elapsed)| elapsed.min(at).saturating_sub(days(kept)));
        if backups.rules.is_enabled {
            self.back_up_changed(since.max(oldest));
        }
        let pass = || -> Result<(), TranscriptError> {
            let sessions = backups.archive.sessions()?.into_iter();
            for ArchivedSession { key, .. } in sessions.filter(|session| session.has_links) {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                // The transcripts that agents have were copied above.
                let (root, id) = (root_of(&key), UpstreamId::new(key.upstream_id.as_str()));
                let turns = backup::acknowledged_turns(&self.services, &root, &id);
                if let Err(error) = turns.and_then(|turns| backups.archive.pack_links(&key, turns)) {
                    let error = chain_text(&error);
                    tracing::warn!(
                        upstream_id = key.upstream_id,
                        error,
                        "a linked transcript could not be copied"
                    );
                }
            }
            let pruned = backups.archive.prune(oldest, backups.rules.max_bytes)?;
            if pruned.sessions > 0 {
                let (sessions, bytes) = (pruned.sessions, pruned.bytes);
                tracing::info!(
                    sessions,
                    bytes,
                    "deleted backups of transcripts, as [keep] is configured"
                );
            }
            Ok(())
        };
        if let Err(error) = pass() {
            tracing::warn!(error = chain_text(&error), "could not look at the backups");
        }
        let folder = backups.archive.folder().symlink_metadata();
        if self.stop.is_cancelled() || !folder.is_ok_and(|folder| folder.is_dir()) {
            return;
        }
        // If a kill damages the file, the next pass only runs early.
        let passed = backups.archive.folder().join(PASSED);
        if let Err(error) = durable::write(&passed, at.to_string().as_bytes()) {
            tracing::warn!(%error, "could not record when transcripts were last backed up");
        }
    }

    /// Backs up the sessions of the conversations that changed after `since`, newest first.
    fn back_up_changed(&self, since: Option<i64>) {
        self.for_each_changed(since, |record| {
            for link in record.chain.links().iter().filter(|link| link.written) {
                self.back_up_session(&SessionRef::from(link), BackupMode::Compressed);
            }
        });
    }

    /// Requests a backup of each head that the last daemon may have left without one since its last pass: it stopped or was
    /// killed during a turn, or before the backup of an ended one.
    fn request_left_backups(&self, at: Timestamp) {
        if !self.services.backups.rules.is_enabled {
            return;
        }
        let Some(last) = self.last_pass(at) else {
            // The first pass backs up all.
            return;
        };
        self.for_each_changed(Some(last - PASS_OVERLAP_MS), |record| {
            let Some(head) = record.chain.head().filter(|head| head.written) else {
                return;
            };
            let has_backup = || {
                let transcripts = self.services.transcripts(&head.agent);
                transcripts.is_some_and(|transcripts| transcripts.has_backup(&head.upstream_id))
            };
            if record.cut.is_some() || !has_backup() {
                let session = SessionRef::from(head);
                self.services.backups.request(session, BackupMode::Linked);
            }
        });
    }

    /// Calls this for each conversation that changed after `since`, newest first, until the daemon stops.
    fn for_each_changed(&self, since: Option<i64>, act: impl Fn(&ConversationRecord)) {
        for conversation in self.services.store.recent() {
            let record = match conversation {
                Ok(record) => record,
                Err(StoreError::LostBody(part)) => {
                    tracing::warn!(%part, "a conversation cannot be read; its transcripts are not backed up");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "conversations cannot be read; their transcripts are backed up later");
                    return;
                }
            };
            let is_older = since.is_some_and(|since| record.updated_at.as_millisecond() < since);
            if is_older || self.stop.is_cancelled() {
                return;
            }
            if record.deleted_at.is_some() {
                continue;
            }
            act(&record);
        }
    }

    /// The totals of all backups, and those that belong to no conversation.
    ///
    /// # Errors
    /// When the backups cannot be read.
    pub async fn backup_totals(&self) -> Result<KeepAnswer, ConversationError> {
        let services = Arc::clone(&self.services);
        let work = move || {
            let sessions = services.backups.archive.sessions();
            let sessions = sessions?;
            let total: ArchiveTotal = sessions.iter().collect();
            let (unclaimed, count) = unclaimed(&services, sessions)?;
            Ok(KeepAnswer {
                enabled: services.backups.rules.is_enabled,
                total: Some(KeepTotal {
                    sessions: total.sessions,
                    files: total.files,
                    bytes: total.bytes,
                    unclaimed: count,
                }),
                unclaimed,
                ..KeepAnswer::default()
            })
        };
        self.run_file_change("transcript/keep", work).await
    }

    /// Backs up all sessions of a conversation, or one session.
    ///
    /// # Errors
    /// When there is no such conversation or session, or it could not be copied.
    pub async fn back_up_named(
        self: &Arc<Self>,
        target: SessionSelector,
        request: Option<CallKey>,
    ) -> Result<KeepAnswer, ConversationError> {
        let scope = target.conversation();
        self.run_idempotent_work(scope, request, |registry| async move {
            registry.back_up_now(target).await
        })
        .await
    }

    async fn back_up_now(&self, target: SessionSelector) -> Result<KeepAnswer, ConversationError> {
        let location = |id| {
            self.refuse_while_moving(id)?;
            Ok::<_, ConversationError>((id, self.salvaged_view(id)?.cwd))
        };
        // Read before the sessions are looked up, so that a move that ends in between is noticed.
        let mut moved = target.conversation().map(location).transpose()?;
        let requested = self.requested_sessions("transcript/keep", target).await?;
        if let (_, Some(session)) = &requested {
            // Only a session that a conversation has can be moved with it.
            let holder = self.resolve(&session.as_str().into());
            moved = holder.ok().map(location).transpose()?;
        }
        let services = Arc::clone(&self.services);
        let work = move || {
            let named = existing_sessions(&services, requested)?;
            let mut answer = KeepAnswer {
                enabled: services.backups.rules.is_enabled,
                ..KeepAnswer::default()
            };
            for NamedSession { folder, cwd, id } in &named {
                let (transcripts, cwd) = (folder.transcripts(&services), cwd.as_deref().unwrap_or_default());
                if let Some(error) = transcripts.back_up(cwd, id, BackupMode::Compressed).error {
                    return Err(error.into());
                }
                let files = transcripts.archive().archived_files(&transcripts.key(id))?;
                answer.kept.extend(files.into_iter().map(|file| KeptFile {
                    path: file.path.to_string_lossy().into_owned(),
                    bytes: file.bytes,
                }));
            }
            if answer.kept.is_empty() {
                let what = "there is no transcript to back up, and no backup".to_owned();
                return Err(ConversationError::NotFound { what });
            }
            Ok(answer)
        };
        let result = self.run_file_change("transcript/keep", work).await;
        match moved {
            Some((id, cwd)) => self.busy_if_moved(id, &cwd, result),
            None => result,
        }
    }

    /// Restores the backups of a conversation's sessions, or of one session, to where the agent looks for them.
    ///
    /// # Errors
    /// When there is no such conversation or session, no backup of it, or another file in its place.
    pub async fn restore_named(
        self: &Arc<Self>,
        target: SessionSelector,
        request: Option<CallKey>,
    ) -> Result<RestoreAnswer, ConversationError> {
        let scope = target.conversation();
        self.run_idempotent_work(scope, request, |registry| async move {
            registry.restore_now(target).await
        })
        .await
    }

    async fn restore_now(
        self: &Arc<Self>,
        target: SessionSelector,
    ) -> Result<RestoreAnswer, ConversationError> {
        let requested = self.requested_sessions("transcript/restore", target).await?;
        let (registry, services) = (Arc::clone(self), Arc::clone(&self.services));
        let work = move || {
            let named = existing_sessions(&services, requested)?;
            let mut answer = RestoreAnswer::default();
            let (mut has_backup, count) = (false, named.len());
            // The last session is the head, with which the conversation continues.
            for (index, named) in named.iter().enumerate() {
                let is_head = index + 1 == count;
                registry.refuse_restore_of_open(named)?;
                let transcripts = named.folder.transcripts(&services);
                match transcripts.restore(named.cwd.as_deref(), &named.id) {
                    Ok(paths) => {
                        has_backup = true;
                        if is_head && !paths.is_empty() {
                            answer.missing_turns = missing_turns_of(transcripts, &named.id)?;
                        }
                        let paths = paths.iter().map(|path| path.to_string_lossy().into_owned());
                        answer.restored.extend(paths);
                    }
                    Err(TranscriptError::NotFound { .. }) => {}
                    Err(error) if is_head => return Err(error.into()),
                    Err(error) => {
                        has_backup = true;
                        let error = chain_text(&error);
                        tracing::warn!(upstream_id = %named.id, error, "an older session could not be restored");
                    }
                }
            }
            if !has_backup {
                let what = "the conversation has no backups".to_owned();
                return Err(ConversationError::NotFound { what });
            }
            Ok(answer)
        };
        self.run_file_change("transcript/restore", work).await
    }

    /// Refuses to restore a missing transcript whose session is open: the agent would continue with what it has in memory, and
    /// the conversation would not report what the file lacks. A session that is being opened restores its transcript itself.
    ///
    /// # Errors
    /// [`ConversationError::Busy`], with the command that closes the session.
    fn refuse_restore_of_open(&self, named: &NamedSession) -> Result<(), ConversationError> {
        let cwd = named.cwd.as_deref().unwrap_or_default();
        let transcripts = named.folder.transcripts(&self.services);
        if !transcripts.is_missing(cwd, &named.id) || !transcripts.may_have_backup(&named.id) {
            return Ok(());
        }
        let store = &self.services.store;
        let holders = store.holders(&named.id, Some(&named.folder.entry.transcript_root()));
        for holder in holders? {
            let (id, view) = (holder.id, self.view(holder.id)?);
            if view.live && view.head.as_ref() == Some(&named.id) {
                return Err(ConversationError::Busy(format!(
                    "session {} is open, and its agent may still write to the transcript; close it first: sessionctl close {id}",
                    named.id
                )));
            }
        }
        Ok(())
    }

    /// Finds the candidates for the sessions that a caller names.
    async fn requested_sessions(
        &self,
        method: &'static str,
        target: SessionSelector,
    ) -> Result<RequestedSessions, ConversationError> {
        match target {
            SessionSelector::Conversation(id) => {
                let record = self.record(id)?;
                let named = record.chain.links().iter().filter_map(|link| {
                    Some(NamedSession {
                        folder: AgentFolder::of(self.services.catalog.get(&link.agent)?)?,
                        cwd: Some(link.cwd.clone()),
                        id: link.upstream_id.clone(),
                    })
                });
                let named: Vec<NamedSession> = named.collect();
                if named.is_empty() {
                    let Some(head) = record.chain.head() else {
                        let what =
                            "the conversation has no session yet, so there is no transcript".to_owned();
                        return Err(ConversationError::NotFound { what });
                    };
                    let entry = self.services.agent(&head.agent)?;
                    // Says why there is none.
                    readable_transcripts(&self.services, &entry)?;
                }
                for NamedSession { folder, cwd, .. } in &named {
                    let cwd = cwd.as_deref().unwrap_or_default();
                    self.services.check_project(&folder.entry, cwd).await?;
                }
                Ok((named, None))
            }
            SessionSelector::Session(id, agent) => {
                let id = self.complete_session_id(method, id, agent.as_ref()).await?;
                let folders = self.roots_of_sessions(agent.as_ref())?.into_iter();
                let candidates = folders.map(|folder| {
                    Ok(NamedSession {
                        cwd: self.cwd_of(&id, &folder.entry.transcript_root())?,
                        id: id.clone(),
                        folder,
                    })
                });
                let candidates = candidates.collect::<Result<_, ConversationError>>()?;
                Ok((candidates, Some(id)))
            }
        }
    }

    /// The folder of a session, from a conversation that has it.
    fn cwd_of(&self, id: &UpstreamId, root: &TranscriptRoot) -> Result<Option<String>, ConversationError> {
        let holders = self.services.store.holders(id, Some(root))?;
        let link = holders.iter().find_map(|holder| holder.chain.link(id));
        Ok(link.map(|link| link.cwd.clone()))
    }
}

/// How many acknowledged turns of a session its backup lacks; 0 if that is unknown.
fn missing_turns_of(transcripts: AgentTranscripts<'_>, id: &UpstreamId) -> Result<u64, ConversationError> {
    let acknowledged = transcripts.acknowledged_turns(id)?.unwrap_or(0);
    let later = transcripts
        .archive()
        .missing_turns(&transcripts.key(id), acknowledged);
    Ok(later?.map_or(0, MissingTurns::turns))
}
