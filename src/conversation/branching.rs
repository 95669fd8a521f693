//! Forks a session. A fork of the whole session uses the agent's own fork, if it has one. A fork at an earlier place is a
//! copy of the transcript that ends there; if its transcripts cannot be cut, the agent is asked to fork at that place.

mod branch_points;
mod edit_branch;
mod transcript_state;

use std::path::PathBuf;
use std::sync::Arc;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Attempt, Fidelity, Link, Resumed, Via};
use serde_json::Value;

use crate::agent::catalog::AgentEntry;
use crate::agent::client::ClientProfile;
use crate::agent::kinds::ForkPointSupport;
use crate::agent::message::CallError;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::{CheckpointRef, PlaceRef};
use crate::transcript::meter::{Meter, with_meter};
use crate::transcript::turn_counts::TurnCounts;

use super::climbing::{acquire_process, refuse_reused_id};
use super::closed_sessions::ClosedSessions;
use super::effect::NewBranch;
use super::error::{ConversationError, StoreFailure};
use super::folder::check_folder;
use super::history::BranchPoint;
use super::resource::UnrecordedResource;
use super::running_work::Progress;
use super::services::{Services, chain_text};
use super::transcript_facts::AgentTranscripts;
use super::transcript_growth::PromptTally;
use super::upstream::{self, OpenError, OpenMode};
use transcript_state::{TranscriptState, expected_turns};

/// What to branch, and how.
#[derive(Clone)]
pub(super) struct BranchJob {
    /// The services of the daemon.
    pub services: Arc<Services>,
    /// The conversation's agent, as it runs for `client`.
    pub entry: Arc<AgentEntry>,
    /// The current record of the conversation.
    pub record: ConversationRecord,
    /// The client for which the agent runs; `None` for the daemon itself.
    pub client: Option<Arc<ClientProfile>>,
    /// The session to branch off.
    pub source: UpstreamId,
    /// The place that the caller named, if any: where to fork, or a place in the turn to replace. It determines the session.
    pub at: Option<PlaceRef>,
    /// The branch's folder.
    pub cwd: String,
    /// Whether a turn is running, so that the branch must leave out what is not finished.
    pub is_turn_running: bool,
    /// The lowest fidelity that the caller accepts for the branch.
    pub min_fidelity: Fidelity,
    /// Counts the bytes read.
    pub progress: Arc<Progress>,
    /// Closes the sessions that are opened temporarily.
    pub closed_sessions: ClosedSessions,
}

impl BranchJob {
    /// How many turns the source session should contain, and how many of them it carried over from another session.
    fn acknowledged_and_carried(&self) -> (u64, u64) {
        let link = self.record.chain.link(&self.source);
        link.map_or((0, 0), |link| {
            (link.carried_turns + link.turns, link.carried_turns)
        })
    }

    /// Makes the branch.
    ///
    /// # Errors
    /// If the branch could not be made. The source is unchanged.
    pub(super) async fn branch(mut self) -> Result<(NewBranch, UnrecordedResource), ConversationError> {
        self.services.read_at_folder(&self.cwd, check_folder).await?;
        self.services.check_project(&self.entry, &self.record.cwd).await?;
        let source = self.at.as_ref().map(|at| at.upstream_id().into());
        self.restore_missing(vec![source.unwrap_or_else(|| self.source.clone())])
            .await?;
        let Some(point) = self.branch_point().await? else {
            self.check_fidelity().await?;
            // Try the native fork first, also for a compacted session: Claude's fork sends the model the same as its source and
            // our cut, as the test `a_native_fork_of_a_compacted_session_sends_what_its_source_and_a_cut_send` with the real
            // adapter shows.
            let native_error = match self.native_fork(None).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            let copy_error = match self.copy_whole().await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            if let Some(point) = self.source_of_lost_branch().await? {
                self.restore_missing(vec![point.session.clone()]).await?;
                return self.branch_at(&point).await;
            }
            return Err(match native_error {
                ConversationError::Unsupported(_) => copy_error,
                // A full disk makes the agent's fork fail too, and only our own error says so.
                _ if copy_error.is_transient_failure() => copy_error,
                error => error,
            });
        };
        self.branch_at(&point).await
    }

    /// Finds where the branch leaves its source; `None` if it contains the whole source. A fork while a turn runs would
    /// include the unanswered prompt, so it is made at the place before the prompt.
    async fn branch_point(&self) -> Result<Option<BranchPoint>, ConversationError> {
        // Only a turn that was sent and has not ended must be left out.
        let running_since = self.record.turn.as_ref().map(|turn| turn.accepted_at);
        if self.at.is_none() && !self.is_turn_running {
            return Ok(None);
        }
        self.blocking(move |job| {
            let point = match (&job.at, running_since) {
                (Some(at), _) => job.named_point(at).map(Some),
                (None, Some(since)) => job.point_before_time(since),
                (None, None) => job.point_at_end(),
            };
            point?.map(Some).ok_or_else(no_finished_turn_error)
        })
        .await
    }

    /// Where the head left its source, if it is a branch that was never prompted and whose transcript is missing. The branch is
    /// made again from there, as a resume does.
    async fn source_of_lost_branch(&mut self) -> Result<Option<BranchPoint>, ConversationError> {
        let head = self.record.chain.head();
        let unprompted = head.filter(|head| head.upstream_id == self.source && !head.written);
        let origin = unprompted.and_then(|head| {
            let checkpoint = head.from_checkpoint_id.clone()?;
            let at: CheckpointRef = checkpoint.as_str().parse().ok()?;
            let point = BranchPoint {
                session: head.from_upstream_id.clone()?,
                checkpoint,
                turns: Some(head.carried_turns),
            };
            Some((PlaceRef::Checkpoint(at), point))
        });
        let Some((at, point)) = origin else {
            return Ok(None);
        };
        let is_lost = self.blocking(|job| {
            let is_missing = |of: AgentTranscripts<'_>| of.is_missing(&job.record.cwd, &job.source);
            Ok(job.transcripts().is_some_and(is_missing))
        });
        if !is_lost.await? {
            return Ok(None);
        }
        self.at = Some(at);
        Ok(Some(point))
    }

    /// Makes a branch that ends at a place. A cut transcript is preferred to the agent's own fork: its file shows what it
    /// contains, and it needs no process.
    async fn branch_at(
        &mut self,
        point: &BranchPoint,
    ) -> Result<(NewBranch, UnrecordedResource), ConversationError> {
        // Check this before anything is created that would have to be removed again.
        self.source = point.session.clone();
        self.check_fidelity().await?;
        if self.entry.copyable_transcripts().is_some() {
            return self.cut_copy(point).await;
        }
        let of_place = point.clone();
        let message = self.blocking(move |job| branch_points::fork_message_id(&job.entry, &of_place));
        let Some(message) = message.await? else {
            let why = match self.entry.kind.fork_point {
                ForkPointSupport::None => {
                    "cannot fork at a chosen message, and its transcripts cannot be truncated"
                }
                _ => "can branch only at recorded items, and recorded none for that turn",
            };
            return Err(ConversationError::Unsupported(format!(
                "the agent {} {why}",
                self.entry.name
            )));
        };
        let point = Some((point, message.as_str()));
        let mut made = self.native_fork(point).await;
        if matches!(&made, Err(error) if is_unknown_point(error)) && self.open_once().await {
            made = self.native_fork(point).await;
        }
        made
    }

    /// Runs work that reads transcripts on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let job = self.clone();
        let meter: Arc<dyn Meter> = Arc::clone(&self.progress) as _;
        tokio::task::spawn_blocking(move || with_meter(meter, || work(&job))).await?
    }

    /// The agent's transcripts. `None` if this version cannot read them.
    fn transcripts(&self) -> Option<AgentTranscripts<'_>> {
        self.services.transcripts_of(&self.entry)
    }

    /// Refuses a branch whose fidelity would be too low.
    async fn check_fidelity(&self) -> Result<(), ConversationError> {
        // A branch is always at least partial.
        if self.min_fidelity <= Fidelity::Partial {
            return Ok(());
        }
        let (acknowledged, _) = self.acknowledged_and_carried();
        let state = self.read_source(move |job, transcripts| {
            TranscriptState::from_counts(job.source_counts(transcripts, &job.source), acknowledged)
        });
        let state = state.await?;
        if state.fidelity() >= self.min_fidelity {
            return Ok(());
        }
        if let Some(failure) = state
            .read_error
            .as_ref()
            .and_then(StoreFailure::from_transient_read)
        {
            return Err(ConversationError::StoreFailed(failure));
        }
        let missing_turns = state.missing_turns;
        Err(ConversationError::NotResumable {
            wanted: self.min_fidelity,
            attempts: vec![Attempt {
                upstream_id: Some(self.source.clone()),
                via: Via::Live,
                error: Some(match state.read_error {
                    Some(_) => {
                        "its transcript cannot be read, so it is unknown what a branch would lack".to_owned()
                    }
                    None => format!(
                        "its transcript has lost turns (at least {missing_turns}), and a branch would lack them too"
                    ),
                }),
            }],
        })
    }

    /// Makes the branch with the agent's own fork, of the whole session or up to a place.
    async fn native_fork(
        &self,
        place: Option<(&BranchPoint, &str)>,
    ) -> Result<(NewBranch, UnrecordedResource), ConversationError> {
        let (services, entry, closed) = (&self.services, &self.entry, &self.closed_sessions);
        let lease = acquire_process(services, entry).await?;
        let capabilities = lease.initialized().capabilities;
        if !capabilities.fork {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} cannot fork a session",
                entry.name
            )));
        }
        let point = place.map(|(_, message)| message.to_owned());
        let place = place.map(|(place, _)| place);
        let opening = OpenMode::Fork(self.source.clone(), point);
        let (cwd, record) = (&self.cwd, &self.record);
        let opened = upstream::open_session(services, entry, lease, &opening, cwd, record, closed).await;
        let (mut session, answer) = opened.map_err(|error| fork_error(entry, &error))?;
        if let Err(error) = refuse_reused_id(services, entry, &session, &answer.upstream_id) {
            closed.close(session).wait_until_closed().await;
            return Err(error);
        }
        let (acknowledged, _) = self.acknowledged_and_carried();
        let branch = answer.upstream_id.clone();
        let state = self
            .read_source(move |job, transcripts| {
                let (cwd, id) = (&job.record.cwd, &job.source);
                let source = job.source_counts(transcripts, id);
                let expected = match &source {
                    Ok(source) => expected_turns(source.as_ref(), source.as_ref(), acknowledged),
                    Err(_) => acknowledged,
                };
                // The agent may write the branch's transcript later; until then, use the source's.
                let file = match transcripts.turn_counts(cwd, &branch, None) {
                    Ok(None) => source,
                    branch => branch,
                };
                TranscriptState {
                    last_checkpoint: transcripts.last_checkpoint(cwd, id).ok().flatten(),
                    prompts: count_prompts(transcripts, cwd, &branch),
                    ..TranscriptState::from_counts(file, expected)
                }
            })
            .await?;
        session.prompt_tally = PromptTally::new(state.prompts);
        if let Some(place) = place
            && let Err(error) = self.check_fork_end(&answer.upstream_id, place).await
        {
            closed.close(session).wait_until_closed().await;
            return Err(error);
        }
        let fidelity = state.fidelity();
        let resumed = Resumed {
            upstream_id: answer.upstream_id.clone(),
            via: Via::Live,
            fidelity,
            missing_turns: state.missing_turns,
            attempts: vec![Attempt {
                upstream_id: Some(answer.upstream_id.clone()),
                via: Via::Live,
                error: None,
            }],
        };
        let branched = NewBranch {
            upstream_id: answer.upstream_id.clone(),
            source: self.source.clone(),
            checkpoint: place
                .map(|place| place.checkpoint.clone())
                .or(state.last_checkpoint),
            fidelity,
            turns: place.and_then(|place| place.turns).unwrap_or(state.turns),
            via: BranchedVia::Native,
            opened_session: Some(Box::new(answer.into_opened(&session, resumed))),
        };
        Ok((branched, UnrecordedResource::from(session)))
    }

    /// Opens the source session and closes it again, so that the agent reads it. Returns whether that worked; false if the
    /// session is open already, because the agent has then read it.
    async fn open_once(&self) -> bool {
        let (services, entry, closed) = (&self.services, &self.entry, &self.closed_sessions);
        let Ok(lease) = acquire_process(services, entry).await else {
            return false;
        };
        if lease.connection().is_attached(self.source.as_str()) {
            return false;
        }
        let (opening, record) = (OpenMode::Resume(self.source.clone()), &self.record);
        let cwd = &record.cwd;
        match upstream::open_session(services, entry, lease, &opening, cwd, record, closed).await {
            Ok((session, _)) => closed.close(session).has_ended().await,
            Err(error) => {
                let error = chain_text(&error);
                tracing::warn!(upstream_id = %self.source, error, "could not open a session to fork it");
                false
            }
        }
    }

    /// Fails if the fork's transcript, where it exists, does not end at the requested place: an agent that does not support
    /// the place forks the whole session.
    async fn check_fork_end(
        &self,
        branch: &UpstreamId,
        point: &BranchPoint,
    ) -> Result<(), ConversationError> {
        let (branch, until) = (branch.clone(), point.checkpoint.clone());
        self.blocking(move |job| {
            let last = job.last_checkpoint_of(&job.cwd, &branch)?;
            match last.is_none_or(|last| last == until) {
                true => Ok(()),
                false => Err(ConversationError::Unsupported(format!(
                    "the agent {} did not cut its fork at the requested message, so the branch would contain later turns",
                    job.entry.name
                ))),
            }
        })
        .await
    }

    /// Makes the branch by copying the transcript up to its last turn under a new id.
    async fn copy_whole(&self) -> Result<(NewBranch, UnrecordedResource), ConversationError> {
        if self.entry.copyable_transcripts().is_none() {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} cannot fork, and its transcripts cannot be truncated",
                self.entry.name
            )));
        }
        let point = self.blocking(Self::point_at_end).await?;
        let point = point.ok_or_else(no_finished_turn_error)?;
        self.cut_copy(&point).await
    }

    /// Makes the branch by copying the transcript up to a place under a new id.
    async fn cut_copy(
        &self,
        point: &BranchPoint,
    ) -> Result<(NewBranch, UnrecordedResource), ConversationError> {
        let (from, until) = (point.session.clone(), point.checkpoint.clone());
        let copied = self.blocking(move |job| {
            let (cwd, (acknowledged, _)) = (&job.record.cwd, job.acknowledged_and_carried());
            let transcripts = job.transcripts();
            let transcripts = transcripts.filter(|of_agent| of_agent.dialect.abilities().can_copy);
            let Some(transcripts) = transcripts else {
                return Err(ConversationError::Unsupported(format!(
                    "the transcripts of the agent {} cannot be cut",
                    job.entry.name
                )));
            };
            let copy = || {
                // Count before the copy is made: an error afterwards would leave the copy behind.
                let whole = job.source_counts(transcripts, &from)?;
                let up_to_cut = transcripts.turn_counts(cwd, &from, Some(&until))?;
                // If the caller named the place, later turns are not expected; lost turns may be from before it.
                let expected = match (job.at.is_some(), &whole, &up_to_cut) {
                    (true, Some(whole), Some(kept)) => {
                        // A turn that the place itself cuts off does not count as missing.
                        let begun = kept.turns.saturating_sub(u64::from(kept.is_last_cut_off));
                        begun + whole.missing_turns(acknowledged)
                    }
                    _ => expected_turns(whole.as_ref(), up_to_cut.as_ref(), acknowledged),
                };
                let copy = transcripts.copy_session((cwd, &job.cwd), &from, Some(&until))?;
                let file = transcripts.turn_counts(cwd, &copy.upstream_id, None);
                Ok((copy, TranscriptState::from_counts(file, expected)))
            };
            copy().map_err(|error: TranscriptError| match error {
                TranscriptError::RecordNotFound { .. } => {
                    ConversationError::CheckpointNotFound { id: until.clone() }
                }
                error => branch_points::cut_error(&error),
            })
        });
        let (copy, look) = copied.await?;
        let branched = NewBranch {
            upstream_id: copy.upstream_id,
            source: point.session.clone(),
            checkpoint: Some(point.checkpoint.clone()),
            fidelity: look.fidelity(),
            turns: look.turns,
            via: BranchedVia::Cut,
            opened_session: None,
        };
        Ok((branched, UnrecordedResource::from(copy.uncommitted)))
    }

    /// Runs `pick` on the source session's transcripts; returns the default if this version cannot read the agent's.
    async fn read_source<T: Default + Send + 'static>(
        &self,
        pick: impl FnOnce(&Self, AgentTranscripts<'_>) -> T + Send + 'static,
    ) -> Result<T, ConversationError> {
        self.blocking(|job| {
            let transcripts = job.transcripts();
            Ok(transcripts.map_or_else(T::default, |transcripts| pick(job, transcripts)))
        })
        .await
    }

    /// Counts the turns in the transcript of a source session.
    fn source_counts(
        &self,
        transcripts: AgentTranscripts<'_>,
        id: &UpstreamId,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        let found = transcripts.turn_counts(&self.record.cwd, id, None)?;
        let (_, carried) = self.acknowledged_and_carried();
        Ok(found.map(|source| source.with_copied_turns(carried)))
    }

    /// Restores missing transcripts from their backups, as a resume does: of the sessions to branch, and of those that show
    /// what a branch drops.
    ///
    /// # Errors
    /// If a missing transcript cannot be restored, or the head was restored with fewer turns and that was not reported yet.
    async fn restore_missing(&self, sessions: Vec<UpstreamId>) -> Result<(), ConversationError> {
        self.blocking(move |job| {
            let Some(transcripts) = job.transcripts() else {
                return Ok(());
            };
            for id in sessions {
                if job.record.chain.is_head(&id) {
                    transcripts.refuse_unreported_loss(&job.record)?;
                }
                // A session of another conversation is refused later.
                if transcripts.is_missing_with_backup(&job.record, &id) && job.has_session(&id)? {
                    transcripts.restore_for_change(&job.record, &id)?;
                }
            }
            Ok(())
        })
        .await
    }
}

/// Whether the agent did not find the message to fork after. Codex (0.166) finds none in a session that it has not opened
/// yet, such as a repaired copy or an imported session.
fn is_unknown_point(refused: &ConversationError) -> bool {
    let ConversationError::AgentError {
        upstream: Some(upstream),
        ..
    } = refused
    else {
        return false;
    };
    let error: Option<Value> = upstream.read().ok();
    error.is_some_and(|error| error["data"]["messageId"].is_string())
}

fn no_finished_turn_error() -> ConversationError {
    let why = "the conversation has no finished turn to branch from yet; wait for the first one to end";
    ConversationError::Busy(why.to_owned())
}

fn fork_error(entry: &AgentEntry, error: &OpenError) -> ConversationError {
    match error {
        OpenError::Call(CallError::Unsupported(_)) => {
            ConversationError::Unsupported(format!("the agent {} cannot fork a session", entry.name))
        }
        _ => upstream::conversation_error(entry, error),
    }
}

/// Copies the files that a fork refers to from its source's folder to the fork's, if the agent stores such files next to its
/// transcripts. Blocks.
pub(super) fn copy_borrowed_files(services: &Services, link: &Link) {
    let transcripts = services.transcripts(&link.agent);
    let Some(transcripts) = transcripts.filter(|of_agent| of_agent.dialect.abilities().forks_borrow_files)
    else {
        return;
    };
    let id = &link.upstream_id;
    let copy = |transcript: PathBuf| services.copy_plans.copy_borrowed_files(id, &transcript);
    if let Err(error) = transcripts.find(&link.cwd, id).and_then(copy) {
        tracing::warn!(upstream = %link.upstream_id, error = chain_text(&error), "could not copy the files that a fork names; they stay with its source");
    }
}

/// Counts the prompts in the transcript of a session, including abandoned branches; `None` if they cannot be counted.
fn count_prompts(transcripts: AgentTranscripts<'_>, cwd: &str, id: &UpstreamId) -> Option<u64> {
    let session = transcripts.home().session(Some(cwd), id.as_str());
    transcripts.dialect.open(session, None).ok()?.prompts()
}
