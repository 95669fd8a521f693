//! Carries out the effects of the state machine. Decides nothing and awaits nothing: slow work becomes a job or a
//! write.

mod files;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::conversation::{DeleteAnswer, TranscriptsOnDelete};
use bridge_protocol::event::Event;
use bridge_protocol::id::{ConversationId, InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::{Fidelity, Link, LinkReason, Relation, Via};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::time;
use futures_util::{FutureExt, TryFutureExt};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent::members::with_member;
use crate::agent::message::CallError;
use crate::agent::pool::Urgency;
use crate::agent::session::SETTING_DEADLINE;
use crate::conversation::answer::Answer;
use crate::conversation::arrival;
use crate::conversation::backup::BackupMode;
use crate::conversation::branching::{self, BranchJob};
use crate::conversation::climbing::{self, ClimbRequest};
use crate::conversation::deleting;
use crate::conversation::effect::{
    Disposition, Effect, Ledger, Milestone, OpenedSession, PromptArrival, Work, WorkResult,
};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::folder::check_folder;
use crate::conversation::reported_settings::SettingChange;
use crate::conversation::resource::UnrecordedResource;
use crate::conversation::running_work::{Progress, WorkGuard};
use crate::conversation::services::{Services, SessionRef, chain_text, now};
use crate::conversation::undo_target;
use crate::conversation::upstream::{OpenError, SettingRequests, conversation_error};
use crate::conversation::writer::PendingWrite;
use crate::store::CutShortPrompt;

use super::{Actor, Job, Message, Reply, WriteEnd};

/// A transcript to check again, and whether a turn on it has ended. Otherwise its session is no longer the head.
type TranscriptRecheck = (UpstreamId, bool);

impl Actor {
    pub(super) fn execute(&mut self, effect: Effect<Reply>, at: Timestamp) {
        match effect {
            Effect::Emit(event) => {
                self.stream.emit(&event, &time::text(at));
            }
            Effect::Announce(conversation) => self.services.announce_new(*conversation),
            Effect::Answer(reply, result) => {
                let result = match result {
                    // Other changes of the conversation may not be on disk yet.
                    Ok(Answer::Resumed(_, resumed)) => {
                        Ok(Answer::Resumed(Box::new(self.model.view()), resumed))
                    }
                    other => other,
                };
                // A disconnected caller is not an error: its turn continued.
                reply.send(result);
            }
            Effect::Write => self.write(),
            Effect::Work(job, work) => self.begin_work(job, work),
            Effect::Dispose(disposition) => self.dispose(disposition),
            Effect::Anchor(turn_id) => self.anchor(turn_id),
            Effect::AbandonJob => self.abandon_job(),
            // Dropping the job closes what it has opened, and leaves a process that hangs to its other users.
            Effect::GiveUpClimb => self.job = None,
            Effect::Detach => {
                self.forget_requests();
                if let Some(session) = self.session.take() {
                    self.closed_sessions.close(session);
                }
            }
            Effect::Attach => {
                if let Some(session) = self.last_resource.session.take() {
                    self.session = Some(session);
                }
            }
            Effect::KeepCopy => {
                if let Some(copy) = self.session.as_mut().and_then(|session| session.copy.take()) {
                    copy.commit();
                }
            }
            Effect::HandOver(id, opened) => self.hand_over(id, opened),
            Effect::RetireAgent => {
                if let Some(session) = &self.session {
                    session.lease.mark_signed_out();
                }
            }
            Effect::SendPrompt(content, params) => self.send_prompt(&content, params.as_ref()),
            Effect::SendCancel(params) => {
                let params = params.as_ref().map(RawJson::as_raw);
                if let Some(session) = &self.session
                    && let Err(error) = session.lease.calls().cancel(&session.attachment.handle, params)
                {
                    tracing::warn!(%error, "the cancellation could not be sent");
                }
            }
            Effect::AnswerAgent(id, outcome, params) => self.answer_agent(&id, outcome, params.as_ref()),
            Effect::Arm(deadline, after_ms) => {
                self.deadlines.retain(|(armed, _)| *armed != deadline);
                self.deadlines
                    .push((deadline, Instant::now() + Duration::from_millis(after_ms)));
            }
            Effect::Disarm(deadline) => self.deadlines.retain(|(armed, _)| *armed != deadline),
            Effect::End => self.has_ended = true,
        }
    }

    /// Begins work that runs next to the loop.
    fn begin_work(&mut self, job: u64, work: Work) {
        match work {
            Work::Open {
                min_fidelity,
                refused,
                is_automatic: by_itself,
                resends_interrupted_prompt,
            } => {
                let request = ClimbRequest {
                    record: self.model.record.clone(),
                    client: self.client.clone(),
                    min_fidelity,
                    resends_interrupted_prompt,
                    // A client that no longer waits needs no replay.
                    replay: self.replay.take().filter(|reply| !reply.is_closed()),
                    refused,
                    urgency: match by_itself {
                        true => Urgency::Background,
                        false => Urgency::Now,
                    },
                    closing_sessions: self.closed_sessions.being_closed(),
                    closed_sessions: self.closed_sessions.clone(),
                };
                let climb = climbing::climb(Arc::clone(&self.services), request);
                let climb =
                    climb.map_ok(|(opened, session)| (WorkResult::Opened(Box::new(opened)), session.into()));
                self.job = Some(Job::new(job, climb));
            }
            Work::Branch { fork, from, busy } => {
                let guard = self.track_work("conversation/fork");
                let branching = self.new_branch_job(from, fork.min_fidelity, guard.progress());
                let branch = async move {
                    let mut branching = branching?;
                    branching.is_turn_running = busy;
                    branching.at = fork.at;
                    if let Some(params) = fork.params {
                        Arc::make_mut(&mut branching.entry).session_params = Some(params);
                    }
                    branching.cwd = fork.cwd.unwrap_or(branching.cwd);
                    let (branched, made) = branching.branch().await?;
                    drop(guard);
                    Ok((WorkResult::Branched(branched), made))
                };
                self.job = Some(Job::new(job, branch));
            }
            Work::Edit { at, min_fidelity } => {
                let guard = self.track_work("conversation/edit");
                let from = at.upstream_id().into();
                let branching = self.new_branch_job(from, min_fidelity, guard.progress());
                let edit = async move {
                    let mut branching = branching?;
                    branching.at = Some(at.clone());
                    let (edited, session) = branching.edit(at).await?;
                    drop(guard);
                    Ok((WorkResult::Edited(Box::new(edited)), session.into()))
                };
                self.job = Some(Job::new(job, edit));
            }
            Work::FindUndoTarget { session, progress } => self.find_undo_target(job, session, progress),
            Work::Close { deletion, by_force } => self.close_session(job, deletion, by_force),
            Work::Move(request) => self.move_files(job, request),
            Work::UndoWork(failure) => self.undo_last_work(job, failure),
            Work::Repair(progress) => self.repair(job, progress),
            Work::CheckArrival(sent) => self.check_arrival(job, *sent),
            Work::Configure(changes, params) => self.configure(job, changes, params),
        }
    }

    /// The job that makes a branch of a session in the conversation's folder.
    fn new_branch_job(
        &self,
        from: UpstreamId,
        min_fidelity: Fidelity,
        progress: Arc<Progress>,
    ) -> Result<BranchJob, ConversationError> {
        let (services, record) = (&self.services, self.model.record.clone());
        Ok(BranchJob {
            entry: services.agent_for(&record.agent, self.client.as_deref())?,
            services: Arc::clone(services),
            client: self.client.clone(),
            source: from,
            at: None,
            cwd: record.cwd.clone(),
            is_turn_running: false,
            min_fidelity,
            record,
            progress,
            closed_sessions: self.closed_sessions.clone(),
        })
    }

    /// Abandons the job. If it still opens a session, that session is closed, or it would stay open at the agent for ever.
    /// Everything else that the job makes is undone.
    pub(super) fn abandon_job(&mut self) {
        if let Some(job) = self.job.take() {
            self.closed_sessions.close_abandoned(async move {
                let (_, mut resource) = job.work.await.ok()?;
                let session = resource.session.take();
                resource.undo().await;
                session
            });
        }
    }

    fn dispose(&mut self, disposition: Disposition) {
        match disposition {
            Disposition::Keep => {
                if let Some(copy) = self.last_resource.copy.take() {
                    copy.commit();
                }
                self.keep_move();
            }
            Disposition::Drop => {
                let resource = self.take_resource_without_session();
                if resource.copy.is_some() || resource.files.is_some() {
                    // Nothing waits for that.
                    tokio::spawn(resource.undo());
                }
            }
            Disposition::Leave => {
                if let Some(session) = std::mem::take(&mut self.last_resource).leave_to_next_start() {
                    self.closed_sessions.close(session);
                }
            }
        }
    }

    /// What the last job made, with its session closed.
    fn take_resource_without_session(&mut self) -> UnrecordedResource {
        if let Some(session) = self.last_resource.session.take() {
            self.closed_sessions.close(session);
        }
        std::mem::take(&mut self.last_resource)
    }

    /// Undoes what the last job made. The next job begins after that.
    fn undo_last_work(&mut self, job: u64, failure: StoreFailure) {
        let made = self.take_resource_without_session();
        let work = made.undo().map(|()| Err(ConversationError::StoreFailed(failure)));
        self.job = Some(Job::without_resource(job, work).changing_files(None));
    }

    /// The transcripts to check again after these effects.
    pub(super) fn transcripts_to_recheck(&self, effects: &[Effect<Reply>]) -> Vec<TranscriptRecheck> {
        let look_again = |effect: &Effect<Reply>| {
            let Effect::Emit(event) = effect else { return None };
            let mut newest = self.model.record.chain.links().iter().rev();
            match event {
                Event::TurnEnded { .. } => Some((newest.next()?.upstream_id.clone(), true)),
                // A fork into another conversation does not change the head of this one.
                Event::Forked { conversation_id, .. } if *conversation_id != self.model.id() => None,
                Event::Rolled { .. } | Event::Forked { .. } | Event::Edited { .. } | Event::Undone { .. } => {
                    Some((newest.nth(1)?.upstream_id.clone(), false))
                }
                _ => None,
            }
        };
        effects.iter().filter_map(look_again).collect()
    }

    /// Requests the checks. Call it only after the conversation is seen to be at rest: earlier checks would be put off.
    pub(super) fn recheck_transcripts(&self, transcripts: Vec<TranscriptRecheck>) {
        for (id, has_ended_turn) in transcripts {
            let conversation = has_ended_turn.then(|| self.model.id());
            self.services.rechecks.request(&id, conversation);
            if has_ended_turn {
                self.back_up_head();
                self.copy_borrowed_files();
            }
        }
    }

    /// Copies the side files of a fork that the agent made itself, once it has a transcript: the agent leaves them with the
    /// source, and they would be deleted with it.
    fn copy_borrowed_files(&self) {
        let head = self.model.record.chain.head();
        let is_new = |head: &&Link| {
            head.reason == LinkReason::Forked && head.relation == Relation::Carries && head.turns == 1
        };
        let Some(head) = head.filter(is_new).cloned() else {
            return;
        };
        // Nothing waits for this. Failures are logged, and the files stay where they are.
        self.services.blocking(move |services| {
            branching::copy_borrowed_files(services, &head);
            services
                .backups
                .request(SessionRef::from(&head), BackupMode::Linked);
        });
    }

    /// Requests a backup of the head, if the agent has ever written it.
    fn back_up_head(&self) {
        if let Some(head) = self.model.record.chain.head().filter(|head| head.written) {
            self.services
                .backups
                .request(SessionRef::from(head), BackupMode::Linked);
        }
    }

    /// Passes the write that the writer has begun to the store. The result comes back to the loop.
    fn write(&mut self) {
        let Some(PendingWrite { record, parts }) = &self.model.writer.in_progress else {
            return;
        };
        let on_disk = &self.model.writer.on_disk;
        let mut ledger = Ledger::default();
        parts.iter().for_each(|part| ledger.append(part.ledger.clone()));
        let erases = ledger.erases_content;
        let mut change = self.services.change(record.clone(), ledger);
        let ends_turn = record.turn.is_none() && on_disk.turn.is_some();
        let ends_deletion = record.deleted_at.is_some() && on_disk.begun_deletion.is_some();
        change.may_use_reserve = record.id == on_disk.id && (ends_turn || ends_deletion);
        if erases {
            deleting::erase_answers(&self.services.store, &mut change);
        }
        // The session that is left may have had no turn here, and so no backup: it was adopted, or its only turn cleared it.
        let left = on_disk
            .chain
            .head()
            .filter(|head| !record.chain.is_head(&head.upstream_id));
        if let Some(head) = left.filter(|_| record.id == on_disk.id && record.deleted_at.is_none()) {
            let backups = &self.services.backups;
            backups.request(SessionRef::from(head), BackupMode::Linked);
        }
        let restored = parts.iter().find_map(|part| match &part.milestone {
            Milestone::SessionOpened(opened) if opened.resumed.via == Via::Archive => {
                Some(opened.upstream_id.clone())
            }
            _ => None,
        });
        let restored = restored.zip(self.services.catalog.get(&record.agent).cloned());
        let services = Arc::clone(&self.services);
        let id = self.model.id();
        // Passed on at once, so that changes keep their order.
        let commit = self.services.store.commit(change);
        self.writes.push_back(Box::pin(async move {
            let result = commit.await.map(drop).map_err(|error| {
                tracing::error!(conversation = %id, error = chain_text(&error), "a change could not be made durable");
                StoreFailure::from(&error)
            });
            if let (Ok(()), Some((upstream_id, entry))) = (&result, restored) {
                // Before the session is announced: until the loss is marked as reported, forks of it are refused. A kill in
                // between loses no report: the lineage has it, as for every resume whose answer a kill cut off.
                let note = move |services: &Arc<Services>| {
                    if let Some(transcripts) = services.transcripts_of(&entry) {
                        transcripts.mark_loss_reported(&upstream_id);
                    }
                };
                // A failure is logged there.
                let _noted = services.blocking(note).await;
            }
            WriteEnd::Written(result)
        }));
    }

    /// Finds the target of an undo.
    fn find_undo_target(&mut self, job: u64, session: Option<UpstreamId>, progress: Arc<Progress>) {
        let (services, record) = (Arc::clone(&self.services), self.model.record.clone());
        let (closed, finishing) = (self.closed_sessions.clone(), self.move_cleanup.take());
        self.job = Some(Job::new(job, async move {
            if let Some(finishing) = finishing {
                // The files of the session may be in two places until then.
                let _finished = finishing.await;
            }
            let (target, title, made) =
                undo_target::prepare_undo(services, record, session, closed, progress).await?;
            let has_moved_files = made.files.is_some();
            Ok((WorkResult::UndoTargetFound(target, title, has_moved_files), made))
        }));
    }

    /// Finds the end of the open session's transcript. The result keeps its position among the writes.
    fn anchor(&mut self, turn_id: TurnId) {
        let record = &self.model.record;
        let head = record.chain.head().map(|head| &head.upstream_id);
        let open = self.model.open_session().or(head);
        let head = open.map(|id| SessionRef::in_conversation(record, id));
        // Whether the earlier prompt arrived cannot be determined after this prompt is sent.
        let is_undecided = |cut: &&CutShortPrompt| cut.arrived.is_none();
        let cut = self.model.record.cut.as_ref().filter(is_undecided).cloned();
        let cut = cut.map(|cut| (self.model.record.clone(), cut));
        let ends = self.read_transcript_ends(move |services| {
            let earlier = cut.map(|(record, cut)| arrival::find_prompt(services, &record, &cut));
            let anchor = head.and_then(|head| arrival::transcript_end(services, &head));
            (anchor, earlier)
        });
        let (services, cwd) = (Arc::clone(&self.services), record.cwd.clone());
        self.writes.push_back(Box::pin(async move {
            // An agent whose session is open would recreate a folder that was renamed.
            let usable = services.read_at_folder(&cwd, check_folder).await;
            let ends = match usable {
                Ok(()) => ends.await,
                Err(error) => Err(error),
            };
            let (anchor, earlier) = match ends {
                Ok((anchor, earlier)) => (Ok(anchor), earlier),
                // The read panicked.
                Err(ConversationError::Internal) => (Ok(None), None),
                Err(error) => (Err(error), None),
            };
            WriteEnd::AnchorRead {
                turn_id,
                anchor,
                earlier,
            }
        }));
    }

    /// Reads the ends of transcripts, in a folder that may not respond.
    fn read_transcript_ends<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Services) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ConversationError>> + Send + 'static {
        let services = Arc::clone(&self.services);
        let (agent, cwd) = (self.model.record.agent.clone(), self.model.record.cwd.clone());
        async move {
            let entry = services.agent(&agent)?;
            let own_services = Arc::clone(&services);
            let root = entry.transcript_root();
            let look = move || Ok(look(&own_services));
            services
                .look_at_project(Path::new(root.as_str()), &cwd, look)
                .await
        }
    }

    fn check_arrival(&mut self, job: u64, sent: CutShortPrompt) {
        let record = self.model.record.clone();
        let dead = self.dead_agent.take();
        let arrival =
            self.read_transcript_ends(move |services| arrival::find_prompt(services, &record, &sent));
        self.job = Some(Job::without_resource(job, async move {
            if let Some(dead) = dead {
                // A child process that outlived it may still write.
                dead.stopped().await;
            }
            Ok(WorkResult::ArrivalChecked(
                arrival.await.unwrap_or(PromptArrival::Unknown),
            ))
        }));
    }

    fn send_prompt(&mut self, content: &PromptContent, params: Option<&RawJson>) {
        let Some(session) = &mut self.session else { return };
        let blocks = match serde_json::value::to_raw_value(content) {
            Ok(blocks) => blocks,
            Err(error) => {
                self.apply(|model| model.prompt_not_sent(error.to_string(), false));
                return;
            }
        };
        let calls = session.lease.calls();
        let handle = &session.attachment.handle;
        match calls.prompt(handle, &blocks, params.map(RawJson::as_raw), &session.sender) {
            Ok(request) => {
                session.prompt_tally.add_sent_prompt();
                session.prompt = Some(request);
                // Reported again, for clients that have subscribed since.
                let foreign = self.foreign_writer.take();
                let live = self.model.session.as_ref().map(|live| &live.upstream_id);
                if let Some(upstream_id) = foreign.filter(|id| live == Some(id)) {
                    self.stream
                        .emit(&Event::ForeignWriter { upstream_id }, &time::text(now()));
                }
            }
            Err(error) => {
                // A broken pipe is noticed here before the death, which is reported through the inbox.
                let is_ending = matches!(error, CallError::Died(_) | CallError::Closing);
                self.apply(|model| model.prompt_not_sent(chain_text(&error), is_ending));
            }
        }
    }

    fn answer_agent(&mut self, id: &InterruptId, outcome: RawJson, params: Option<&RawJson>) {
        let Some(index) = self.questions.iter().position(|question| question.id == *id) else {
            return;
        };
        let question = self.questions.swap_remove(index);
        let Some(session) = &self.session else { return };
        let answer = match question.is_permission {
            true => with_member(params.map_or("{}", RawJson::get), "outcome", outcome),
            false => Some(outcome),
        };
        let Some(answer) = answer else { return };
        if let Err(error) = session
            .lease
            .connection()
            .respond(&question.raw_id, Ok(answer.as_raw()))
        {
            tracing::warn!(%error, "the answer to a question could not be sent to the agent");
        }
    }

    fn close_session(&mut self, job: u64, deletion: Option<TranscriptsOnDelete>, by_force: bool) {
        self.forget_requests();
        let session = self.session.take();
        let services = Arc::clone(&self.services);
        let record = self.model.record.clone();
        let limit = by_force.then(|| Duration::from_millis(self.model.rules.cancel_grace_ms));
        let closed = session.map(|session| self.closed_sessions.close_within(session, limit));
        let all = self.closed_sessions.clone();
        self.closing = Some(Job::without_resource(job, async move {
            if let Some(closed) = closed {
                closed.wait_until_closed().await;
            }
            let mut transcripts = DeleteAnswer::default();
            if deletion == Some(TranscriptsOnDelete::Delete) {
                transcripts.remaining = match all.wait_for_dying_agents().await {
                    Ok(()) => deleting::delete_transcripts(&services, &record).await,
                    Err(error) => deleting::leave_transcripts(&services, &record, &error.to_string()),
                };
            } else if let Some(head) = record.chain.head().filter(|head| head.written) {
                services
                    .backups
                    .request(SessionRef::from(head), BackupMode::Compressed);
            }
            if deletion == Some(TranscriptsOnDelete::Keep) {
                transcripts = deleting::kept_sessions(&services, &record).await;
            }
            Ok(WorkResult::Closed(transcripts))
        }));
    }

    /// Adds a call of this conversation to the list of slow calls. It also ends when the daemon stops.
    fn track_work(&self, method: &'static str) -> WorkGuard {
        let works = &self.services.running_work;
        works.track(method, Some(self.model.record.id), CancellationToken::new())
    }

    fn configure(&mut self, job: u64, changes: Vec<SettingChange>, params: Option<RawJson>) {
        let Some(session) = &mut self.session else { return };
        let deadline = SETTING_DEADLINE.min(session.deadline);
        let deadline = deadline * u32::try_from(changes.len()).unwrap_or(u32::MAX);
        let wanted: Vec<String> = changes.iter().map(SettingChange::to_string).collect();
        let (reply, end) = oneshot::channel();
        session.setting_requests = Some(SettingRequests {
            current: None,
            next: changes.into(),
            params,
            reply,
        });
        self.ask_for_next_setting();
        let services = Arc::clone(&self.services);
        let (agent, id) = (self.model.record.agent.clone(), self.model.id());
        self.job = Some(Job::without_resource(job, async move {
            let entry = services.agent(&agent)?;
            let Ok(ended) = timeout(deadline, end).await else {
                return Err(ConversationError::Transient {
                    message: format!(
                        "no answer from the agent {agent} to the setting {} within {} ms; if it accepts the setting later, \
                         sessionctl show {id} shows it; if it answers nothing at all, close the session with sessionctl close {id}, \
                         and the next prompt opens it again",
                        wanted.join(", "),
                        deadline.as_millis()
                    ),
                    upstream: None,
                    limit: None,
                });
            };
            let ended = ended.unwrap_or(Err(OpenError::Call(CallError::Closing)));
            ended.map_err(|error| conversation_error(&entry, &error))?;
            Ok(WorkResult::Configured)
        }));
    }

    /// Hands the session that a fork opened to the new conversation.
    fn hand_over(&mut self, id: ConversationId, opened: Box<OpenedSession>) {
        let Some(session) = self.last_resource.session.take() else {
            return;
        };
        let message = Message::TakeOverSession(opened, Box::new(session), self.client.clone());
        if let Err(Message::TakeOverSession(_, session, _)) = (self.deliver)(id, message) {
            self.closed_sessions.close(*session);
        }
    }
}
