//! Carries out a climb of the ladder: asks the planner for the next step, does it, and reports the result to the
//! planner.
//!
//! Owns nothing that outlives the climb. Dropping the future ends the climb and releases the session that it was
//! opening.

mod loading;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Fidelity, Link, LinkReason, Relation, Via};
use futures_util::future::{join_all, select_all};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent::catalog::AgentEntry;
use crate::agent::client::ClientProfile;
use crate::agent::failure::FailureKind;
use crate::agent::message::CallError;
use crate::agent::pool::{AcquireError, Agent, Generation, Lease, PoolKey, Urgency};
use crate::agent::process::SpawnError;
use crate::archive::MissingTurns;
use crate::chain::{self, NewLink, Origins};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::turn_counts::TurnCounts;

use super::closed_sessions::{ClosedSession, ClosedSessions};
use super::effect::OpenedSession;
use super::error::ConversationError;
use super::folder::check_folder;
use super::recovery::{Climb, Goal, Source, Step, StepFailure};
use super::replay::ReplaySender;
use super::services::{Services, chain_text};
use super::transcript_growth::PromptTally;
use super::uncommitted_copies::UncommittedCopy;
use super::upstream::{self, OpenError, OpenMode, OpenResponse, UpstreamSession};
use loading::LoadedCounts;

/// How long to wait for a session to close before its id is opened again. Agents take some milliseconds.
const CLOSE_WAIT_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait for a session that may be open in a process that is about to end. A process ends about a second after its
/// last session is closed.
const RELEASE_WAIT_LIMIT: Duration = Duration::from_secs(10);

/// The input of a climb.
pub struct ClimbRequest {
    /// The current record of the conversation.
    pub record: ConversationRecord,
    /// The client for which the agent runs; `None` for the daemon itself.
    pub client: Option<Arc<ClientProfile>>,
    /// The lowest fidelity that the caller accepts.
    pub min_fidelity: Fidelity,
    /// Whether the caller sends the prompt of the interrupted turn again if the session lacks that turn.
    pub resends_interrupted_prompt: bool,
    /// Ids that the agent has already refused, how they were opened, and the error.
    pub refused: Vec<(UpstreamId, Via, String)>,
    /// Receives what the agent replays, if the transcripts cannot be read and the agent can load the session.
    pub replay: Option<ReplaySender>,
    /// How urgently the climb needs a process.
    pub urgency: Urgency,
    /// Sessions that are being closed. The climb waits for them before it opens their ids again: an agent may refuse to open a
    /// session that is closing, or close the new one.
    pub(super) closing_sessions: Vec<ClosedSession>,
    /// Closes the sessions that the climb opens and does not return.
    pub(super) closed_sessions: ClosedSessions,
}

/// Climbs until a session is open.
///
/// # Errors
/// If the folder or the agent's program cannot be used, the agent requires a sign-in, or nothing could be resumed.
pub async fn climb(
    services: Arc<Services>,
    request: ClimbRequest,
) -> Result<(OpenedSession, UpstreamSession), ConversationError> {
    let (record, urgency) = (&request.record, request.urgency);
    let entry = services.agent_for(&record.agent, request.client.as_deref())?;
    services.read_at_folder(&record.cwd, check_folder).await?;
    services.check_project(&entry, &record.cwd).await?;
    let key = entry.pool_key();
    let acquired = services.pool.acquire(&key, &entry.launch, urgency, None).await;
    let lease = acquired.map_err(|error| acquire_error(&entry, &error))?;
    let lineage = services.store.lineage_all(record.id)?;
    let origins = Origins::collect(&lineage, record.chain.links());
    let goal = climb_goal(&services, &entry, &lease, &request, &origins);
    let was_repaired = restore_lost_part(&services, &entry, record).await;
    let unreported = unreported_missing_turns(&services, &entry, record).await?;
    let climb = Climb::new(Goal {
        was_restored: was_repaired || unreported.is_some(),
        ..goal
    });
    let climber = Climber {
        services,
        entry,
        request,
        key,
        failed_process: None,
        last_error: None,
        death_error: None,
        unreported_missing_turns: unreported,
        turns_after_backup: unreported.map_or(0, MissingTurns::turns),
    };
    climber.run(climb, lease).await
}

/// Makes the goal of a climb from the conversation's current record.
fn climb_goal(
    services: &Services,
    entry: &AgentEntry,
    lease: &Lease,
    request: &ClimbRequest,
    origins: &Origins,
) -> Goal {
    let record = &request.record;
    let capabilities = &lease.initialized().capabilities;
    let head = record.chain.head().cloned();
    let mut turns_after = head.as_ref().map_or(0, |head| head.turns);
    let mut ancestors = Vec::new();
    let of_head = |head: &Link| chain::ancestors(&head.upstream_id, |id| origins.get(id));
    for ancestor in record.chain.head().into_iter().flat_map(of_head) {
        // This agent cannot open a session of another agent.
        if ancestor.agent == record.agent {
            let owners = services
                .store
                .owners(&ancestor.upstream_id, Some(&entry.transcript_root()));
            let shared = match owners {
                Ok(owners) => owners.iter().any(|owner| *owner != record.id),
                Err(error) => {
                    tracing::warn!(upstream_id = %ancestor.upstream_id, error = chain_text(&error), "the owner of a session is unknown; it is not written to");
                    true
                }
            };
            ancestors.push(Source {
                shared,
                upstream_id: ancestor.upstream_id,
                until: ancestor.cut,
                turns_after,
            });
        }
        turns_after += ancestor.turns;
    }
    let interrupted = record.interrupted_prompt_of_head();
    Goal {
        head,
        ancestors,
        min_fidelity: request.min_fidelity,
        can_resume: capabilities.resume,
        can_load: capabilities.load_session,
        prefers_load: request.replay.is_some(),
        can_read_transcripts: entry.copyable_transcripts().is_some(),
        refused: request.refused.clone(),
        // The resting state would not do: a failed climb sets it to `failed`, while the limit is still the cause.
        limited: record.limit.is_some(),
        was_restored: false,
        has_interrupted_turn: interrupted.is_some_and(|cut| !cut.counted),
        resent_turns: u64::from(interrupted.is_some() && request.resends_interrupted_prompt),
    }
}

/// Restores the head's transcript from its backup if it has lost the history that it continues, because the agent would
/// resume it without that history. Returns whether it was restored; if not, the resume reports what is missing.
async fn restore_lost_part(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    record: &ConversationRecord,
) -> bool {
    let (entry, record) = (Arc::clone(entry), record.clone());
    let restore = services.blocking(move |services| {
        let head = &record.chain.head()?.upstream_id;
        let transcripts = services.transcripts_of(&entry)?;
        let session = transcripts.session(&record.cwd, head);
        let path = transcripts.dialect.find(session).ok()?;
        if !transcripts.has_lost_part(session, &path) {
            return None;
        }
        let restored = transcripts.restore(Some(&record.cwd), head);
        match &restored {
            Ok(_) => tracing::warn!(conversation = %record.id, upstream_id = %head, "restored the lost part of a transcript from its backup"),
            Err(error) => tracing::warn!(conversation = %record.id, upstream_id = %head, error = chain_text(error), "the lost part of a transcript could not be restored from its backup"),
        }
        restored.ok()
    });
    restore.await.is_ok_and(|restored| restored.is_some())
}

/// The turns that the head lacks because it was restored earlier (by a daemon that was then killed, perhaps), if they were
/// not reported yet.
async fn unreported_missing_turns(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    record: &ConversationRecord,
) -> Result<Option<MissingTurns>, ConversationError> {
    let (entry, record) = (Arc::clone(entry), record.clone());
    let look = services.blocking(move |services| match services.transcripts_of(&entry) {
        Some(transcripts) => transcripts.unreported_missing_turns(&record),
        None => Ok(None),
    });
    Ok(look.await??)
}

/// Waits until one of these processes has ended, and removes it; returns whether one has ended.
async fn wait_for_one_end(leaving: &mut Vec<Arc<Agent>>, deadline: Instant) -> bool {
    if leaving.is_empty() {
        return false;
    }
    let ends = leaving.iter().map(|agent| Box::pin(agent.stopped()));
    let ended = timeout_at(deadline, select_all(ends))
        .await
        .map(|((), index, _)| index);
    match ended {
        Ok(index) => drop(leaving.swap_remove(index)),
        Err(_) => return false,
    }
    true
}

/// Acquires a process of an agent.
///
/// # Errors
/// If no process could be started. The error contains the end of its standard error.
pub async fn acquire_process(services: &Services, entry: &AgentEntry) -> Result<Lease, ConversationError> {
    let result = services
        .pool
        .acquire(&entry.pool_key(), &entry.launch, Urgency::Now, None)
        .await;
    result.map_err(|error| acquire_error(entry, &error))
}

/// Refuses a new session whose id already belongs to a conversation: resuming one would resume the other. An agent that
/// cannot resume sessions may number them from one again in each process, so its ids are not checked.
///
/// # Errors
/// [`ConversationError::AgentError`] for such an id, or if the store could not be read.
pub fn refuse_reused_id(
    services: &Services,
    entry: &AgentEntry,
    session: &UpstreamSession,
    id: &UpstreamId,
) -> Result<(), ConversationError> {
    let capabilities = &session.lease.initialized().capabilities;
    if !capabilities.resume && !capabilities.load_session {
        return Ok(());
    }
    let owners = services.store.owners(id, Some(&entry.transcript_root()))?;
    let Some(owner) = owners.first() else {
        return Ok(());
    };
    Err(ConversationError::AgentError {
        message: format!(
            "the agent {} opened a new session with the id {id}, which the conversation {owner} has had already",
            entry.name
        ),
        upstream: None,
    })
}

fn acquire_error(entry: &AgentEntry, error: &AcquireError) -> ConversationError {
    if let AcquireError::ShuttingDown = error {
        return ConversationError::ShuttingDown;
    }
    if let AcquireError::Initialize { source, .. } = error
        && let CallError::Agent(agent) = source.as_ref()
        && upstream::classify(entry, agent).kind == FailureKind::AuthRequired
    {
        return ConversationError::AuthRequired {
            message: chain_text(error),
            upstream: Some(upstream::upstream_json(agent)),
        };
    }
    let why = chain_text(error);
    let is_missing =
        matches!(error, AcquireError::Spawn { source, .. } if matches!(**source, SpawnError::Missing { .. }));
    ConversationError::AgentUnavailable(match entry.kind.install_command().filter(|_| is_missing) {
        Some(install) => format!("{why}; to install it: {install}"),
        None => why,
    })
}

/// A session that was opened and not returned yet, or the copy that one is being opened from. Dropping it, as when the climb is
/// cancelled, closes the session and removes the copy: the process may continue to serve other sessions.
struct UnclaimedSession {
    session: Option<UpstreamSession>,
    copy: Option<(UpstreamId, UncommittedCopy)>,
    closed_sessions: ClosedSessions,
}

impl UnclaimedSession {
    async fn close(mut self) {
        if let Some(session) = self.session.take() {
            self.closed_sessions.close(session).wait_until_closed().await;
        }
        if let Some((id, copy)) = self.copy.take() {
            self.closed_sessions.remove_copy(&id, copy).await;
        }
    }
}

impl Drop for UnclaimedSession {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if let Some(session) = self.session.take() {
            self.closed_sessions.close(session);
        }
        if let Some((id, copy)) = self.copy.take() {
            let closed = self.closed_sessions.clone();
            runtime.spawn(async move { closed.remove_copy(&id, copy).await });
        }
    }
}

struct Climber {
    services: Arc<Services>,
    entry: Arc<AgentEntry>,
    request: ClimbRequest,
    /// The pool key of the process; it determines which conversations share the process.
    key: PoolKey,
    /// The process that failed; the next step uses another one.
    failed_process: Option<Generation>,
    /// The agent's last error, returned if no step worked.
    last_error: Option<ConversationError>,
    /// The error if the process ended during a copy or text step.
    death_error: Option<ConversationError>,
    /// The turns that the head lacks because an earlier climb or call restored it, if that was not reported yet.
    unreported_missing_turns: Option<MissingTurns>,
    /// How many turns are later than the restored backup.
    turns_after_backup: u64,
}

/// The outcome of one step.
enum StepOutcome {
    /// It opened a session.
    Open(
        Box<(UpstreamSession, OpenResponse)>,
        Option<NewLink>,
        Option<String>,
    ),
    /// It failed; the next step is tried.
    Failed(StepFailure),
    /// It failed, and no other step would help.
    Stop(ConversationError),
}

/// What is read of a session's transcript while the agent opens the session, which takes longer.
struct ReadsWhileOpening {
    /// Whether the transcript may have fewer turns than were acknowledged on the head.
    can_be_short: bool,
    /// Whether the transcript was restored from a backup, now or earlier, and that was not reported yet.
    is_restored: bool,
    /// The turns in the head's transcript.
    head_counts: Option<JoinHandle<Result<Option<TurnCounts>, TranscriptError>>>,
    /// The part that the agent loads.
    loaded_counts: Option<JoinHandle<Result<LoadedCounts, ConversationError>>>,
}

impl Climber {
    async fn run(
        mut self,
        mut climb: Climb,
        lease: Lease,
    ) -> Result<(OpenedSession, UpstreamSession), ConversationError> {
        let mut lease = Some(lease);
        loop {
            let step = climb.next_step();
            let reads = self.start_reads(&climb, &step);
            let outcome = match &step {
                Step::Inspect => {
                    let inspection = self.inspect(&climb).await?;
                    climb.set_turns_after_backup(self.turns_after_backup);
                    climb.inspected(inspection);
                    continue;
                }
                Step::GiveUp => {
                    let attempts = climb.attempts();
                    tracing::warn!(conversation = %self.request.record.id, ?attempts, "no session could be brought back");
                    return Err(self.final_error(&climb));
                }
                _ => self.take_step(&climb, &step, &mut lease).await,
            };
            climb.set_turns_after_backup(self.turns_after_backup);
            match outcome {
                StepOutcome::Failed(failure) => self.note_failure(&mut climb, step, failure),
                StepOutcome::Stop(error) => return Err(error),
                StepOutcome::Open(open, link, preamble) => {
                    if let Some((opened, session)) = self.accept(&mut climb, &step, *open, reads).await? {
                        let opened = OpenedSession {
                            link,
                            preamble,
                            ..opened
                        };
                        return Ok((opened, session));
                    }
                }
            }
        }
    }

    /// Starts to read the transcript of a session that a step opens. A backup that the step restores is not there yet.
    fn start_reads(&self, climb: &Climb, step: &Step) -> ReadsWhileOpening {
        let can_be_short = climb.can_be_short(step);
        let is_there = !matches!(
            step,
            Step::Open {
                via: Via::Archive,
                ..
            }
        );
        let is_restored = Climb::keeps_head(step) && (self.unreported_missing_turns.is_some() || !is_there);
        ReadsWhileOpening {
            can_be_short,
            is_restored,
            head_counts: (can_be_short && is_there).then(|| self.read_head_counts(climb.goal())),
            loaded_counts: match step {
                Step::Open { upstream_id, .. } if is_there => {
                    Some(self.start_counting(upstream_id, is_restored))
                }
                _ => None,
            },
        }
    }

    fn note_failure(&mut self, climb: &mut Climb, step: Step, failure: StepFailure) {
        tracing::info!(conversation = %self.request.record.id, ?step, ?failure, "a way to resume did not work");
        self.death_error = match (&step, &failure) {
            (Step::Copy { .. } | Step::Text, StepFailure::Process(_)) => self.last_error.clone(),
            // A fresh process has now shown the real outcome.
            _ if climb.needs_fresh_process(&step) => None,
            _ => self.death_error.take(),
        };
        climb.failed(step, failure);
    }

    /// Compares a session that a step opened with what was acknowledged. Returns it, or closes it if another way may keep more.
    async fn accept(
        &mut self,
        climb: &mut Climb,
        step: &Step,
        (session, mut answer): (UpstreamSession, OpenResponse),
        mut reads: ReadsWhileOpening,
    ) -> Result<Option<(OpenedSession, UpstreamSession)>, ConversationError> {
        let mut unclaimed = UnclaimedSession {
            session: Some(session),
            copy: None,
            closed_sessions: self.request.closed_sessions.clone(),
        };
        if !self.accept_turns(climb, step, &mut reads).await? {
            unclaimed.close().await;
            return Ok(None);
        }
        let LoadedCounts {
            loaded,
            prompts,
            mut missing,
        } = match step {
            Step::Open { .. } | Step::Copy { .. } => {
                let (id, is_restored) = (&answer.upstream_id, reads.is_restored);
                self.finish_counting(climb.goal(), reads.loaded_counts, id, is_restored)
                    .await?
            }
            _ => LoadedCounts::default(),
        };
        if missing.description.is_none() && reads.is_restored {
            missing.description = self.restore_loss();
        }
        if !climb.accept_damaged(step, &missing) {
            unclaimed.close().await;
            return Ok(None);
        }
        let Some(mut session) = unclaimed.session.take() else {
            return Ok(None);
        };
        if loaded.is_some() {
            session.prompt_tally = PromptTally::new(prompts);
        }
        let resumed = climb.resume_report(step, answer.upstream_id.clone(), &missing);
        if let attempts @ [_, _, ..] = &resumed.attempts[..] {
            tracing::info!(conversation = %self.request.record.id, ?attempts, "resumed, but not by the first way tried");
        }
        if let (Some(reply), Some(replay)) = (self.request.replay.take(), answer.replay.take()) {
            // The client may have disconnected.
            let _gone = reply.send(replay);
        }
        let opened = OpenedSession {
            loaded,
            ..answer.into_opened(&session, resumed)
        };
        Ok(Some((opened, session)))
    }

    /// Whether the opened transcript has all acknowledged turns of the head, or no other way keeps more of them.
    async fn accept_turns(
        &mut self,
        climb: &mut Climb,
        step: &Step,
        reads: &mut ReadsWhileOpening,
    ) -> Result<bool, ConversationError> {
        let read = reads.head_counts.take();
        let Some(read) = read.or_else(|| reads.can_be_short.then(|| self.read_head_counts(climb.goal())))
        else {
            return Ok(true);
        };
        // A transcript that cannot be read is handled when the count of what the agent loads finishes.
        let Ok(Ok(Some(file))) = read.await else {
            return Ok(true);
        };
        if !climb.falls_short(step, &file) {
            return Ok(true);
        }
        let inspection = self.inspect(climb).await?;
        let is_accepted = climb.accept_short(step, inspection);
        match is_accepted {
            true => {
                tracing::warn!(conversation = %self.request.record.id, ?file, "the resumed transcript holds fewer turns than were acknowledged");
            }
            false => {
                tracing::warn!(conversation = %self.request.record.id, ?file, "the agent resumed a damaged transcript; another way keeps more");
            }
        }
        Ok(is_accepted)
    }

    /// Describes what the head lacks because it was restored from a backup.
    fn restore_loss(&self) -> Option<String> {
        match (self.turns_after_backup, self.unreported_missing_turns) {
            (0, Some(MissingTurns::Unknown)) => {
                Some("it was restored from a copy that lacks an unknown number of turns".to_owned())
            }
            (0, _) => None,
            (turns, _) => Some(format!("the last turns are missing from the backup ({turns})")),
        }
    }

    fn final_error(&self, climb: &Climb) -> ConversationError {
        // If the agent cannot even open a new session, its own error explains it best.
        if climb.has_nothing_to_lose()
            && let Some(error) = &self.last_error
        {
            return error.clone();
        }
        // It is unknown whether that step would have worked. A caller who demands more than text gets the attempts instead.
        if let Some(error) = &self.death_error
            && climb.goal().min_fidelity <= Fidelity::Text
        {
            return error.clone();
        }
        ConversationError::NotResumable {
            wanted: climb.goal().min_fidelity,
            attempts: climb.attempts(),
        }
    }

    async fn take_step(&mut self, climb: &Climb, step: &Step, lease: &mut Option<Lease>) -> StepOutcome {
        let fresh = climb.needs_fresh_process(step);
        let process = match self.process_for_step(fresh, lease).await {
            Ok(process) => process,
            Err(error) => return StepOutcome::Stop(error),
        };
        if let Step::Open { .. } | Step::Copy { .. } = step
            && let Err(busy) = self.request.closed_sessions.wait_for_writers().await
        {
            return StepOutcome::Stop(busy);
        }
        match step {
            Step::Open { upstream_id, via, .. } => {
                let closing = std::mem::take(&mut self.request.closing_sessions);
                // A failure is logged there.
                let _closed = timeout(
                    CLOSE_WAIT_LIMIT,
                    join_all(closing.into_iter().map(ClosedSession::wait_until_closed)),
                )
                .await;
                let prepared = match via {
                    Via::Located => self.move_to_expected_place(climb.goal(), upstream_id).await,
                    Via::Archive => self.restore_backup(climb.goal(), upstream_id).await,
                    _ => self.check_unambiguous(upstream_id).await,
                };
                if let Err(outcome) = prepared {
                    return outcome;
                }
                let opening = self.reopening(climb, *via, upstream_id.clone());
                let link =
                    (*via == Via::OlderLink).then(|| self.link_to_older(climb, upstream_id, upstream_id));
                self.open(process, &opening, link, None).await
            }
            Step::Copy { source, until, via } => self.open_copy(climb, process, source, until, *via).await,
            Step::Text => self.open_with_text(climb, process).await,
            Step::Fresh => {
                let link = self.fresh_link(climb);
                self.open(process, &self.new_session(), Some(link), None).await
            }
            Step::Inspect | Step::GiveUp => {
                StepOutcome::Failed(StepFailure::Other("nothing to do".to_owned()))
            }
        }
    }

    /// Returns the process for a step: the current one, or a new one if that failed or `fresh` is set.
    async fn process_for_step(
        &mut self,
        fresh: bool,
        lease: &mut Option<Lease>,
    ) -> Result<Lease, ConversationError> {
        let died = lease
            .as_ref()
            .is_some_and(|lease| lease.connection().death().is_some());
        if let Some(current) = lease.as_ref().filter(|_| !fresh && !died) {
            return Ok(current.clone());
        }
        let failed = lease
            .take()
            .map(|lease| lease.generation())
            .or(self.failed_process);
        self.failed_process = failed;
        let (pool, key, launch) = (&self.services.pool, &self.key, &self.entry.launch);
        let acquired = pool.acquire(key, launch, self.request.urgency, failed).await;
        let acquired = acquired.map_err(|error| acquire_error(&self.entry, &error))?;
        *lease = Some(acquired.clone());
        Ok(acquired)
    }

    fn reopening(&self, climb: &Climb, via: Via, id: UpstreamId) -> OpenMode {
        match climb.loads(via) {
            true => OpenMode::Load {
                id,
                wants_replay: self.request.replay.is_some(),
            },
            false => OpenMode::Resume(id),
        }
    }

    /// Opens a new session in the mode of the previous one.
    fn new_session(&self) -> OpenMode {
        OpenMode::New {
            last_mode: self.request.record.reported.mode.clone(),
        }
    }

    async fn open(
        &mut self,
        lease: Lease,
        opening: &OpenMode,
        link: Option<NewLink>,
        preamble: Option<String>,
    ) -> StepOutcome {
        let generation = lease.generation();
        let (cwd, record) = (&self.request.record.cwd, &self.request.record);
        let (services, entry, closed) = (&self.services, &self.entry, &self.request.closed_sessions);
        let mut leaving = services.pool.retiring_agents(&lease);
        let mut opened =
            upstream::open_session(services, entry, lease.clone(), opening, cwd, record, closed).await;
        let deadline = Instant::now() + RELEASE_WAIT_LIMIT;
        if let Err(error) = &opened
            && upstream::is_session_in_use(error)
        {
            // The session may have been open there for another client.
            services.pool.retire_unused(&lease);
            leaving.extend(services.pool.retiring_agents(&lease));
        }
        while let Err(error) = &opened
            && upstream::is_session_in_use(error)
            && wait_for_one_end(&mut leaving, deadline).await
        {
            // That process may have had the session open: Codex releases sessions only when it ends.
            opened =
                upstream::open_session(services, entry, lease.clone(), opening, cwd, record, closed).await;
        }
        match opened {
            Ok((session, answer)) => {
                if matches!(opening, OpenMode::New { .. })
                    && let Err(error) =
                        refuse_reused_id(&self.services, &self.entry, &session, &answer.upstream_id)
                {
                    self.request
                        .closed_sessions
                        .close(session)
                        .wait_until_closed()
                        .await;
                    return StepOutcome::Stop(error);
                }
                let link = link.map(|link| NewLink {
                    upstream_id: answer.upstream_id.clone(),
                    ..link
                });
                StepOutcome::Open(Box::new((session, answer)), link, preamble)
            }
            Err(error) => self.open_failed(&error, generation),
        }
    }

    /// Decides whether the planner tries another way after a failed opening, or stops because no other way would help.
    fn open_failed(&mut self, error: &OpenError, generation: Generation) -> StepOutcome {
        let reported = upstream::conversation_error(&self.entry, error);
        let text = chain_text(error);
        let failure = match error {
            OpenError::Setting { .. } => return StepOutcome::Stop(reported),
            OpenError::Call(CallError::Agent(agent)) => {
                let failure = upstream::classify(&self.entry, agent);
                // A temporary error, or one that a sign-in fixes, is no reason to replace the head with less.
                if matches!(
                    reported,
                    ConversationError::AuthRequired { .. } | ConversationError::Transient { .. }
                ) {
                    return StepOutcome::Stop(reported);
                }
                if failure.session_unknown {
                    StepFailure::SessionUnknown(failure.message)
                } else {
                    StepFailure::Other(text)
                }
            }
            // The second timeout, in a second process: opening takes that long, or hangs on something that only time fixes.
            OpenError::Call(CallError::TimedOut { .. }) if self.failed_process.is_some() => {
                return StepOutcome::Stop(reported);
            }
            OpenError::Call(_) => StepFailure::Process(text),
        };
        if matches!(failure, StepFailure::Process(_) | StepFailure::Other(_)) {
            self.failed_process = Some(generation);
        }
        self.last_error = Some(reported);
        StepOutcome::Failed(failure)
    }

    /// Makes a link that carries the history of an older session.
    fn link_to_older(&self, climb: &Climb, id: &UpstreamId, from: &UpstreamId) -> NewLink {
        NewLink {
            relation: Relation::Carries,
            from_upstream_id: Some(from.clone()).filter(|from| from != id),
            cause: Some(climb.cause()),
            written: id == from,
            ..self.new_link(id.clone(), LinkReason::Rolled)
        }
    }

    /// Makes a link for a new session without a history.
    fn fresh_link(&self, climb: &Climb) -> NewLink {
        let head = self.request.record.chain.head().filter(|head| head.written);
        let reason = match head {
            Some(_) => LinkReason::Rolled,
            None => LinkReason::Created,
        };
        NewLink {
            cause: head.is_some().then(|| climb.cause()),
            ..self.new_link("".into(), reason)
        }
    }

    fn new_link(&self, id: UpstreamId, reason: LinkReason) -> NewLink {
        NewLink::new(
            id,
            self.entry.name.clone(),
            self.request.record.cwd.clone(),
            reason,
        )
    }
}
