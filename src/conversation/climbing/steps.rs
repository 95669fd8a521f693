//! The steps of a climb that use the disk: inspect transcripts, move or restore them, copy them, and send the history as text.

use std::sync::Arc;

use bridge_protocol::history::GapKind;
use bridge_protocol::id::{CheckpointId, UpstreamId};
use bridge_protocol::link::{Fidelity, LinkReason, Relation, Via};
use tokio::task::JoinHandle;

use super::{Climber, StepOutcome, UnclaimedSession};
use crate::agent::catalog::AgentEntry;
use crate::agent::pool::Lease;
use crate::archive::MissingTurns;
use crate::chain::SessionCut;
use crate::conversation::error::ConversationError;
use crate::conversation::history::{History, TranscriptScope};
use crate::conversation::recovery::{Climb, Goal, Inspection, StepFailure};
use crate::conversation::services::{Services, chain_text};
use crate::conversation::transcript_facts::{AgentTranscripts, log_unreadable, make_checkpoint_id};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::preamble::{MissingTurnCounts, Preamble, TURN_LIMIT, build_preamble};
use crate::transcript::turn_counts::TurnCounts;

impl StepOutcome {
    /// The outcome of a step that could not read or write its files. A temporary error stops the climb: later rungs would fail
    /// too, or replace the head with less. If the caller accepts a new session, only a shortage stops it.
    fn from_file_error(
        error: TranscriptError,
        goal: &Goal,
        failure: impl FnOnce(String) -> StepFailure,
    ) -> Self {
        let is_strict = goal.min_fidelity > Fidelity::None;
        match error.is_shortage() || is_strict && error.is_passing() {
            true => Self::Stop(error.into()),
            false => Self::Failed(failure(chain_text(&error))),
        }
    }
}

impl Climber {
    /// Runs work on the conversation's transcripts on a blocking thread.
    pub(super) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Services, &AgentEntry, &ConversationRecord) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let (entry, record) = (Arc::clone(&self.entry), self.request.record.clone());
        self.services
            .blocking(move |services| work(services, &entry, &record))
    }

    /// Counts the turns in the head's transcript on a blocking thread.
    pub(super) fn read_head_counts(
        &self,
        goal: &Goal,
    ) -> JoinHandle<Result<Option<TurnCounts>, TranscriptError>> {
        let head = goal.head.clone();
        self.blocking(
            move |services, entry, record| match (services.transcripts_of(entry), head) {
                (Some(transcripts), Some(head)) => transcripts.link_turn_counts(&record.cwd, &head),
                _ => Ok(None),
            },
        )
    }

    /// Inspects the transcripts of the head, its ancestors and the history.
    ///
    /// # Errors
    /// As [`inspect_transcripts`].
    pub(super) async fn inspect(&self, climb: &Climb) -> Result<Inspection, ConversationError> {
        // If transcripts cannot be copied, only text is left. That is no reason to leave a head that the agent still has but
        // does not open for another reason.
        if !climb.goal().can_read_transcripts && !climb.is_head_forgotten() {
            return Ok(Inspection::default());
        }
        let goal = climb.goal().clone();
        let inspect = self.blocking(move |services, entry, record| {
            let Some(transcripts) = services.transcripts_of(entry) else {
                return Ok(Inspection::default());
            };
            if goal.head.as_ref().is_some_and(|head| !head.written) {
                // A branch that was never prompted is made again from its source.
                let sources = goal.ancestors.iter().map(|source| &source.upstream_id);
                transcripts.restore_complete_backups(record, sources);
            }
            let inspection = inspect_transcripts(transcripts, record, &goal)?;
            let head = goal.head.as_ref().map(|head| &head.upstream_id);
            let lost = head.filter(|id| transcripts.is_missing(&record.cwd, id));
            let backup_found = lost.map(|id| transcripts.archive().has_transcript(&transcripts.key(id)));
            // The backup may be complete, so do not replace the head with less.
            if let Some(Err(error)) = &backup_found
                && error.is_passing()
                && goal.min_fidelity > Fidelity::None
            {
                return Err(ConversationError::StoreFailed(error.into()));
            }
            Ok::<_, ConversationError>(Inspection {
                has_backup: backup_found.and_then(Result::ok),
                ..inspection
            })
        });
        let unread = |error: String| Inspection {
            unreadable_reason: Some(error),
            ..Inspection::default()
        };
        match inspect.await {
            Ok(Err(error)) if !error.is_transient_failure() => Ok(unread(chain_text(&error))),
            Ok(inspected) => inspected,
            Err(error) => Ok(unread(error.to_string())),
        }
    }

    /// Fails the step if several transcripts have the session's id, so that it is unknown which one the agent opens.
    pub(super) async fn check_unambiguous(&self, id: &UpstreamId) -> Result<(), StepOutcome> {
        let id = id.clone();
        let ambiguity = self.blocking(move |services, entry, record| {
            services.transcripts_of(entry).is_some_and(|transcripts| {
                let session = transcripts.session(&record.cwd, &id);
                transcripts.dialect.is_ambiguous(session)
            })
        });
        match ambiguity.await {
            Ok(true) => Err(StepOutcome::Failed(StepFailure::SessionUnknown(format!(
                "several transcripts have its id, and none is in the folder of {}",
                self.request.record.cwd
            )))),
            // The agent reports other problems itself.
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Moves the transcript of a session to where the agent looks for it.
    pub(super) async fn move_to_expected_place(
        &self,
        goal: &Goal,
        id: &UpstreamId,
    ) -> Result<(), StepOutcome> {
        let misplaced = |why| StepOutcome::Failed(StepFailure::Misplaced(why));
        let Some((root, format)) = self.entry.listed_transcripts() else {
            return Err(misplaced("the folder for its transcript is unknown".to_owned()));
        };
        let (root, session) = (root.to_path_buf(), id.clone());
        let moving = tokio::task::spawn_blocking(move || {
            format.dialect().move_to_expected_path(&root, session.as_str())
        });
        match moving.await {
            Ok(Ok(place)) => {
                tracing::info!(conversation = %self.request.record.id, upstream_id = %id, place = %place.display(), "moved a transcript back to where its agent looks for it");
                Ok(())
            }
            Ok(Err(error)) => Err(StepOutcome::from_file_error(error, goal, StepFailure::Misplaced)),
            Err(error) => Err(misplaced(error.to_string())),
        }
    }

    /// Restores our backup of the head's transcript to the place where the agent looks, and the backups of the sessions
    /// before it, which its history may continue. If those fail, the resume continues without them.
    pub(super) async fn restore_backup(&mut self, goal: &Goal, id: &UpstreamId) -> Result<(), StepOutcome> {
        let failed = |why| StepOutcome::Failed(StepFailure::Other(why));
        let (climb_goal, head) = (goal.clone(), id.clone());
        let work = self.blocking(move |services, entry, record| {
            // The step follows only if a backup was found.
            let Some(transcripts) = services.transcripts_of(entry) else {
                return Ok((Vec::new(), None));
            };
            let restore = |id: &UpstreamId| transcripts.restore_session(record, id);
            for older in climb_goal.ancestors.iter().map(|ancestor| &ancestor.upstream_id) {
                if let Err(error) = restore(older)
                    && !error.is_absence()
                {
                    tracing::warn!(upstream_id = %older, error = chain_text(&error), "an older session could not be restored");
                }
            }
            let restored = restore(&head)?;
            let turns = climb_goal.head.map_or(0, |head| head.turns + head.carried_turns);
            let missing = transcripts
                .archive()
                .missing_turns(&transcripts.key(&head), turns)?;
            Ok::<_, TranscriptError>((restored, missing))
        });
        match work.await {
            Ok(Ok((restored, missing))) => {
                self.turns_after_backup = missing.map_or(0, MissingTurns::turns);
                if missing == Some(MissingTurns::Unknown) {
                    self.unreported_missing_turns = missing;
                }
                tracing::info!(conversation = %self.request.record.id, upstream_id = %id, ?restored, "restored a transcript from its backup");
                Ok(())
            }
            Ok(Err(error)) => Err(StepOutcome::from_file_error(error, goal, StepFailure::Other)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    pub(super) async fn open_copy(
        &mut self,
        climb: &Climb,
        lease: Lease,
        source: &UpstreamId,
        until: &SessionCut,
        via: Via,
    ) -> StepOutcome {
        if self.entry.copyable_transcripts().is_none() {
            return StepOutcome::Failed(StepFailure::Other(
                "this agent's transcripts cannot be copied".to_owned(),
            ));
        }
        let (id, cut) = (source.clone(), until.clone());
        let copied = self.blocking(move |services, entry, record| {
            let cwd = record.cwd.as_str();
            let Some(transcripts) = services.transcripts_of(entry) else {
                return Ok((None, None, 0));
            };
            let (copy, checkpoint) = match via {
                Via::Rebuilt => {
                    let session = transcripts.session(cwd, &id);
                    let source = transcripts.dialect.find(session)?;
                    let repair = |new: &_| transcripts.dialect.repair(session, &source, new);
                    let (copy, repaired) = transcripts.copy_transcript(Some(cwd), &source, &id, repair)?;
                    let last = repaired.last_uuid;
                    let last = last.map(|uuid| make_checkpoint_id(&entry.name, &id, &uuid));
                    (copy, last)
                }
                _ => {
                    let cut = transcripts.cut_point(cwd, &id, &cut)?;
                    let copy = transcripts.copy_session((cwd, cwd), &id, cut.as_ref())?;
                    let end = || transcripts.last_checkpoint(cwd, &id).ok().flatten();
                    (copy, cut.or_else(end))
                }
            };
            let file = log_unreadable(transcripts.turn_counts(cwd, &copy.upstream_id, None));
            let is_whole = file.as_ref().is_some_and(|file| file.missing_records == 0);
            // The report states what the repaired copy should hold, so an incomplete copy is not used.
            let copy = Some(copy).filter(|_| via != Via::Rebuilt || is_whole);
            Ok::<_, TranscriptError>((copy, checkpoint, file.map_or(0, |file| file.turns)))
        });
        let (copy, checkpoint, turns) = match copied.await {
            Ok(Ok((Some(copy), checkpoint, turns))) => (copy, checkpoint, turns),
            Ok(Ok((None, ..))) => {
                let why = "its repaired copy would be incomplete too".to_owned();
                return StepOutcome::Failed(StepFailure::Other(why));
            }
            Ok(Err(error)) => return StepOutcome::from_file_error(error, climb.goal(), StepFailure::Other),
            Err(error) => return StepOutcome::Failed(StepFailure::Other(error.to_string())),
        };
        let new_id = copy.upstream_id;
        let mut link = self.link_to_older(climb, &new_id, source);
        link.from_checkpoint_id = checkpoint;
        link.carried_turns = turns;
        link.written = true;
        link.reason = match via {
            Via::Copied => LinkReason::Copied,
            Via::Rebuilt => LinkReason::Rebuilt,
            _ => link.reason,
        };
        let opening = self.reopening(climb, via, new_id.clone());
        let mut unclaimed = UnclaimedSession {
            session: None,
            copy: Some((new_id, copy.uncommitted)),
            closed_sessions: self.request.closed_sessions.clone(),
        };
        let mut outcome = self.open(lease, &opening, Some(link), None).await;
        if let StepOutcome::Open(open, ..) = &mut outcome {
            open.0.copy = unclaimed.copy.take().map(|(_, copy)| copy);
        }
        unclaimed.close().await;
        outcome
    }

    pub(super) async fn open_with_text(&mut self, climb: &Climb, lease: Lease) -> StepOutcome {
        let goal = climb.goal().clone();
        let history = self.blocking(move |services, _, record| {
            let (preamble, checkpoint) = history_as_text(services, record, &goal);
            Some((preamble?, checkpoint))
        });
        let Ok(Some((preamble, checkpoint))) = history.await else {
            return StepOutcome::Failed(StepFailure::Other(
                "there is no readable history to send as text".to_owned(),
            ));
        };
        let mut link = self.fresh_link(climb);
        let head = self.request.record.chain.head();
        link.reason = LinkReason::Rolled;
        link.relation = Relation::Follows;
        link.from_upstream_id = head.map(|head| head.upstream_id.clone());
        link.from_checkpoint_id = checkpoint;
        link.cause = Some(climb.cause());
        self.open(lease, &self.new_session(), Some(link), Some(preamble.text))
            .await
    }
}

/// Inspects the transcripts of the head and its ancestors. An ancestor's transcript that cannot be read counts as missing; if
/// the head's cannot be read, the result says why.
///
/// # Errors
/// If one of them may be readable later, unless the caller accepts a new session: the way that looks best now may lose turns.
fn inspect_transcripts(
    transcripts: AgentTranscripts<'_>,
    record: &ConversationRecord,
    goal: &Goal,
) -> Result<Inspection, ConversationError> {
    let Some(head) = &goal.head else {
        return Ok(Inspection::default());
    };
    let unread = |why: String| {
        Ok(Inspection {
            unreadable_reason: Some(why),
            ..Inspection::default()
        })
    };
    let is_strict = goal.min_fidelity > Fidelity::None;
    let (dialect, root, id) = (transcripts.dialect, transcripts.root, &head.upstream_id);
    let path = transcripts.find(&record.cwd, id).ok();
    if let Some(command) = path.and_then(|path| dialect.unarchive_command(root, &path)) {
        // The transcript is complete, but the user must run a command to unarchive it.
        return unread(format!(
            "it is archived; unarchive it to continue: `{command} {id}`"
        ));
    }
    let scope = TranscriptScope::AgentFilesWithTurns;
    let history = match History::current(transcripts.services, record, scope) {
        Ok(history) => history,
        Err(error) if is_strict && error.is_transient_failure() => return Err(error),
        Err(error) => return unread(chain_text(&error)),
    };
    if is_strict {
        history.refuse_unread()?;
    }
    let (file, unread) = match transcripts.link_turn_counts(&record.cwd, head) {
        Ok(Some(file)) => (Some(file), None),
        Ok(None) => (
            None,
            history
                .missing_reason(id, &[GapKind::Unreadable])
                .map(str::to_owned),
        ),
        Err(error) if is_strict && error.is_passing() => return Err(error.into()),
        Err(error) => (
            None,
            Some(format!("its transcript cannot be read: {}", chain_text(&error))),
        ),
    };
    let ancestors = goal.ancestors.iter().map(|source| {
        let id = &source.upstream_id;
        let cut = transcripts.cut_point(&record.cwd, id, &source.until);
        let counts = |until: Option<CheckpointId>| transcripts.turn_counts(&record.cwd, id, until.as_ref());
        match cut.and_then(counts) {
            Err(error) if error.is_absence() => Ok(None),
            Err(error) if is_strict && error.is_passing() => Err(error.into()),
            counts => Ok(log_unreadable(counts)),
        }
    });
    let ancestors = ancestors.collect::<Result<_, ConversationError>>()?;
    Ok(Inspection {
        head: file,
        unreadable_reason: unread,
        ancestors,
        readable_turns: history.turns() as u64,
        turns_after_readable: turns_after(&history, goal),
        is_misplaced: dialect
            .expected_location(root, id.as_str())
            .is_ok_and(|place| place.is_some()),
        has_backup: None,
    })
}

/// Returns the history as text, and the checkpoint at its end if it ends in the head.
fn history_as_text(
    services: &Services,
    record: &ConversationRecord,
    goal: &Goal,
) -> (Option<Preamble>, Option<CheckpointId>) {
    let Ok(mut history) = History::current(services, record, TranscriptScope::AgentFilesWithTurns) else {
        return (None, None);
    };
    let turns = history.past_turns(TURN_LIMIT);
    let missing = MissingTurnCounts {
        before: history.turns().saturating_sub(turns.len()),
        after: usize::try_from(turns_after(&history, goal)).unwrap_or(usize::MAX),
    };
    let head = goal.head.as_ref().map(|head| &head.upstream_id);
    let checkpoint = history
        .last_checkpoint()
        .filter(|_| history.last_session() == head);
    (build_preamble(&turns, missing), checkpoint)
}

/// Returns how many turns were acknowledged on the links after the session in which the history ends.
fn turns_after(history: &History, goal: &Goal) -> u64 {
    let last = history.last_session();
    let source = goal
        .ancestors
        .iter()
        .find(|source| Some(&source.upstream_id) == last);
    source.map_or(0, |source| source.turns_after)
}
