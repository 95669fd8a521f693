//! The task of one live conversation: passes everything that happens to the state machine and carries out the effects.
//!
//! It owns everything about the conversation and is its only writer. It never waits for a subscriber, a client or another
//! conversation: slow work runs as a job or a write next to the loop, and its result comes back to the loop. Calls, writes, the
//! job and the deadlines come before the agent's lines. At most 64 lines are taken per round, so that a flood of lines
//! never delays a cancellation.

mod agent_lines;
mod execution;
mod panic_recovery;

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bridge_protocol::conversation::{Conversation, SessionInfo};
use bridge_protocol::event::Event;
use bridge_protocol::id::{InterruptId, TurnId};
use bridge_protocol::time;
use bridge_protocol::{ConversationId, Cursor, UpstreamId};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::agent::client::ClientProfile;
use crate::agent::inbox::Incoming;
use crate::agent::message::RawId;
use crate::agent::pool::Lease;
use crate::store::Anchor;

use super::answer::Answer;
use super::client_request::ClientMessage;
use super::closed_sessions::ClosedSessions;
use super::effect::{Call, Deadline, Effect, IncomingCall, OpenedSession, PromptArrival, WorkResult};
use super::error::{ConversationError, StoreFailure};
use super::events::{Stream, Subscriber};
use super::folder::usable_folder;
use super::registry::RunningCallGuard;
use super::replay::ReplaySender;
use super::resource::UnrecordedResource;
use super::running_work::Progress;
use super::services::{Services, chain_text, now};
use super::state::Model;
use super::transcript_growth::TranscriptGrowth;
use super::upstream::UpstreamSession;
use super::wakeups::ContinuationSlot;
use panic_recovery::{panic_message, restart_pause};

/// How often the daemon checks whether an agent's background commands have ended, before it closes a session on its own
/// initiative.
const BACKGROUND_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How many lines of the agent are taken before everything else is checked again.
const LINES_PER_ROUND: usize = 64;

/// How many calls may wait for one conversation. A desktop app sends a handful; more come from a faulty loop.
pub const MAILBOX_CAPACITY: usize = 256;

/// How long a conversation at rest without subscribers keeps its task, and with it the events for clients that reconnect.
pub(in crate::conversation) const REST_BEFORE_END: Duration = Duration::from_secs(120);

/// Where an answer goes.
pub struct Reply {
    sender: oneshot::Sender<Result<Answer, ConversationError>>,
    /// Registers the call as running, if it has an idempotency key and does not repeat a running one.
    running: Option<RunningCallGuard>,
}

impl Reply {
    /// A reply, and the receiver of the answer.
    pub(super) fn new(
        running: Option<RunningCallGuard>,
    ) -> (Self, oneshot::Receiver<Result<Answer, ConversationError>>) {
        let (sender, answer) = oneshot::channel();
        (Self { sender, running }, answer)
    }

    /// Sends the answer. A caller that disconnected needs none.
    pub(super) fn send(self, result: Result<Answer, ConversationError>) {
        // Before the answer is sent, so that a call that follows it finds the stored result.
        drop(self.running);
        let _gone = self.sender.send(result);
    }

    /// Whether the caller has disconnected.
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A message in a conversation's mailbox.
pub enum Message {
    /// A call.
    Call(Box<IncomingCall<Reply>>),
    /// A new subscriber.
    Subscribe {
        /// The subscriber.
        subscriber: Box<dyn Subscriber>,
        /// The last event that the subscriber received.
        after: Option<Cursor>,
    },
    /// A request for a snapshot, for subscribers to all conversations.
    Snapshot {
        /// Whether the subscriber missed events.
        gap: bool,
        /// Takes the snapshot.
        reply: oneshot::Sender<super::events::EncodedEvent>,
    },
    /// The transcript of its head has grown.
    TranscriptGrown(Box<TranscriptGrowth>),
    /// The scheduled continuation is due, and has a slot.
    ContinuationDue(ContinuationSlot),
    /// A session that the source conversation opened for this branch, and the client for which it runs.
    TakeOverSession(
        Box<OpenedSession>,
        Box<UpstreamSession>,
        Option<Arc<ClientProfile>>,
    ),
    /// A request for what is known of its session.
    SessionInfo(oneshot::Sender<SessionInfo>),
    /// A client's message for the agent, forwarded unchanged.
    ForwardToAgent(Box<ClientMessage>),
    /// A client loads the session, and needs what the agent replays if the history cannot be read.
    Replay(ReplaySender),
    /// The client for which the agent must run from now on.
    RunFor(Arc<ClientProfile>, ClientSwitchReason),
}

/// Why an agent is to run for another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSwitchReason {
    /// The client opens the session. It is reopened if it is open for another client and no turn runs.
    Opening,
    /// The client uses the session. An open session is not reopened.
    Using,
}

/// Puts a message into the mailbox of another conversation, or returns it.
pub type Deliver = Box<dyn Fn(ConversationId, Message) -> Result<(), Message> + Send + Sync>;

/// Work that runs next to the loop.
struct Job {
    number: u64,
    work: BoxFuture<'static, JobResult>,
    /// Whether it changes the conversation's files. Such a job is never abandoned.
    changes_files: bool,
    /// Ends such a job early, if it can be ended.
    progress: Option<Arc<Progress>>,
}

impl Job {
    /// A job whose result may have to be undone.
    fn new(number: u64, work: impl Future<Output = JobResult> + Send + 'static) -> Self {
        Self {
            number,
            work: work.boxed(),
            changes_files: false,
            progress: None,
        }
    }

    /// A job with nothing to undo.
    fn without_resource(
        number: u64,
        work: impl Future<Output = Result<WorkResult, ConversationError>> + Send + 'static,
    ) -> Self {
        Self::new(
            number,
            work.map_ok(|found| (found, UnrecordedResource::default())),
        )
    }

    /// Marks the job as one that changes the conversation's files.
    fn changing_files(self, progress: Option<Arc<Progress>>) -> Self {
        Self {
            changes_files: true,
            progress,
            ..self
        }
    }
}

/// A call that waits for a check of the folder that it names. The folder may not respond. Later calls wait too.
struct FolderCheck {
    call: Box<IncomingCall<Reply>>,
    result: BoxFuture<'static, Result<String, ConversationError>>,
}

/// The result of a job, with what it made.
type JobResult = Result<(WorkResult, UnrecordedResource), ConversationError>;

type Write = BoxFuture<'static, WriteEnd>;

/// The end of a write, or of what has to keep its position among the writes.
enum WriteEnd {
    /// The running write has ended, with the store's result.
    Written(Result<(), StoreFailure>),
    /// The end of the head's transcript was read.
    AnchorRead {
        turn_id: TurnId,
        anchor: Result<Option<Anchor>, ConversationError>,
        earlier: Option<PromptArrival>,
    },
}

/// A question that is open at the agent.
struct OpenQuestion {
    id: InterruptId,
    raw_id: RawId,
    is_permission: bool,
}

/// The task of one live conversation.
pub struct Actor {
    services: Arc<Services>,
    model: Model<Reply>,
    stream: Stream,
    mailbox: mpsc::Receiver<Message>,
    /// The next call, while the folder that it names is checked.
    folder_check: Option<FolderCheck>,
    published: watch::Sender<Arc<Conversation>>,
    stop: CancellationToken,
    stop_grace_ms: Arc<AtomicU64>,
    deliver: Deliver,
    /// The client for which the agent runs. `None`: the daemon itself.
    client: Option<Arc<ClientProfile>>,
    /// Receives what the agent replays when it next loads the session.
    replay: Option<ReplaySender>,
    /// The open session.
    session: Option<UpstreamSession>,
    /// What the last job made, until it is used, kept or undone.
    last_resource: UnrecordedResource,
    questions: Vec<OpenQuestion>,
    job: Option<Job>,
    /// The agent that died last, until its transcript was searched for the prompt.
    dead_agent: Option<Lease>,
    /// The slot of the running scheduled continuation: only a few may run at a time.
    continuation_slot: Option<ContinuationSlot>,
    /// The deletion of the originals of the last move.
    move_cleanup: Option<JoinHandle<()>>,
    /// Closed sessions, until no agent writes to them. The next task shares this list.
    closed_sessions: ClosedSessions,
    /// A session that is being closed.
    closing: Option<Job>,
    /// The session to which another program has written since the last prompt, while it was open here and no turn ran.
    foreign_writer: Option<UpstreamId>,
    writes: FuturesOrdered<Write>,
    deadlines: Vec<(Deadline, Instant)>,
    /// When to check again whether background commands still run in a process that the session has to leave.
    next_leave_check: Option<Instant>,
    has_ended: bool,
}

impl Actor {
    /// Creates an actor, which does not run yet, with its mailbox and the published view of the conversation. `stop` is cancelled
    /// when the daemon stops; a running turn may then take `stop_grace_ms` to end. `deliver` sends messages to other
    /// conversations. `closed_sessions`: the sessions that earlier tasks closed.
    #[must_use]
    pub(super) fn new(
        services: Arc<Services>,
        model: Model<Reply>,
        stop: CancellationToken,
        stop_grace_ms: Arc<AtomicU64>,
        deliver: Deliver,
        closed_sessions: ClosedSessions,
    ) -> (Self, mpsc::Sender<Message>, watch::Receiver<Arc<Conversation>>) {
        let (sender, mailbox) = mpsc::channel(MAILBOX_CAPACITY);
        let (published, watched) = watch::channel(Arc::new(model.view()));
        let actor = Self {
            stream: Stream::new(Arc::clone(&services.hub), model.id()),
            services,
            model,
            mailbox,
            folder_check: None,
            published,
            stop,
            stop_grace_ms,
            deliver,
            client: None,
            replay: None,
            session: None,
            last_resource: UnrecordedResource::default(),
            questions: Vec::new(),
            job: None,
            dead_agent: None,
            continuation_slot: None,
            move_cleanup: None,
            closed_sessions,
            closing: None,
            foreign_writer: None,
            writes: FuturesOrdered::new(),
            deadlines: Vec::new(),
            next_leave_check: None,
            has_ended: false,
        };
        (actor, sender, watched)
    }

    /// Runs until the conversation is deleted or has been at rest for long, or the daemon stops. Returns the messages that came
    /// too late. After a panic it restarts from what is on disk, with the same subscribers.
    pub async fn run(mut self) -> Vec<Message> {
        let (mut began, mut pause) = (Instant::now(), Duration::ZERO);
        let mut panic = panic_message(self.serve()).await;
        while let Some(why) = panic {
            let stops = self.stop.is_cancelled();
            let again = panic_message(self.restart_after_panic(&why)).await;
            if stops {
                break;
            }
            pause = restart_pause(began.elapsed(), pause);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(pause) => {}
            }
            began = Instant::now();
            panic = match again {
                Some(again) => Some(again),
                None => panic_message(self.serve()).await,
            };
        }
        self.mailbox.close();
        let mut unread: Vec<Message> = self
            .folder_check
            .take()
            .map(|check| Message::Call(check.call))
            .into_iter()
            .collect();
        while let Ok(message) = self.mailbox.try_recv() {
            unread.push(message);
        }
        unread
    }

    /// Handles events of the loop, one after the other.
    async fn serve(&mut self) {
        let mut lines: Vec<Incoming> = Vec::with_capacity(LINES_PER_ROUND);
        let mut rest = Instant::now() + REST_BEFORE_END;
        while !self.has_ended {
            let slot_end = self.continuation_slot.as_ref().map(ContinuationSlot::expires_at);
            let deadline = self.deadlines.iter().map(|(_, at)| *at).chain(slot_end).min();
            let may_rest =
                self.session.is_none() && !self.has_work_in_progress() && self.folder_check.is_none();
            let stopping = self.model.stopping;
            let leaving = self.wait_to_leave_process();
            tokio::select! {
                biased;
                () = self.stop.cancelled(), if !stopping => self.stop(),
                folder = run_folder_check(&mut self.folder_check), if self.folder_check.is_some() => self.folder_checked(folder),
                message = self.mailbox.recv(), if self.folder_check.is_none() => match message {
                    Some(message) => self.handle_message(message),
                    // The registry was dropped, so that no call can arrive any more.
                    None if self.model.is_at_rest() => break,
                    None => self.stop(),
                },
                Some(written) = self.writes.next(), if !self.writes.is_empty() => self.write_ended(written),
                (number, done) = run_job(&mut self.job), if self.job.is_some() => self.job_done(number, done),
                (number, done) = run_job(&mut self.closing), if self.closing.is_some() => self.job_done(number, done),
                () = sleep_until(deadline.unwrap_or(rest)), if deadline.is_some() => self.deadlines_elapsed(),
                () = take_lines(&mut self.session, &mut lines), if self.session.is_some() && !self.model.must_delay_agent_lines() => {
                    if let Some(slot) = &mut self.continuation_slot
                        && self.model.is_automatic_turn()
                    {
                        slot.note_activity();
                    }
                    self.handle_lines(&mut lines);
                }
                () = leaving, if !stopping => self.leave_process(),
                () = sleep_until(rest), if may_rest => {
                    if self.model.is_at_rest() && !self.stream.has_subscribers() {
                        break;
                    }
                }
            }
            rest = Instant::now() + REST_BEFORE_END;
            if self.model.stopping && self.model.turn.is_none() && !self.has_work_in_progress() {
                break;
            }
        }
    }

    fn job_done(&mut self, job: u64, done: JobResult) {
        let found = done.map(|(found, made)| {
            self.last_resource.add(made);
            found
        });
        self.apply(|model| model.work_done(job, found));
    }

    /// Resolves when the session is idle in a process that reported a missing sign-in.
    fn wait_to_leave_process(&self) -> impl Future<Output = ()> + use<> {
        let session = self.session.as_ref().filter(|_| self.model.can_leave_agent());
        let signed_out = session.map(|session| session.lease.signed_out());
        let not_before = self.next_leave_check;
        async move {
            let Some(signed_out) = signed_out else {
                return std::future::pending().await;
            };
            signed_out.await;
            if let Some(not_before) = not_before {
                sleep_until(not_before).await;
            }
        }
    }

    /// Closes the session so that its process can end. Codex holds a closed session until then, and no other process can open
    /// it. Waits for background commands first, because they would end with the session.
    fn leave_process(&mut self) {
        self.next_leave_check = None;
        if self.has_background_work() {
            self.next_leave_check = Some(Instant::now() + BACKGROUND_CHECK_INTERVAL);
            return;
        }
        self.note(now(), Model::leave_retired_agent);
    }

    /// Whether a job, a closing or a write runs next to the loop.
    fn has_work_in_progress(&self) -> bool {
        self.job.is_some() || self.closing.is_some() || !self.writes.is_empty()
    }

    fn write_ended(&mut self, end: WriteEnd) {
        match end {
            WriteEnd::Written(result) => self.apply(|model| model.write_done(&result)),
            WriteEnd::AnchorRead {
                turn_id,
                anchor,
                earlier,
            } => self.apply(|model| model.anchor_read(&turn_id, anchor, earlier)),
        }
    }

    /// Makes one step. In this order: the state machine decides, the effects are carried out, clients see the result,
    /// callers get their answers.
    fn apply(&mut self, change: impl FnOnce(&mut Model<Reply>)) {
        self.apply_at(now(), change);
    }

    /// Like [`Actor::apply`], for a change whose time is known.
    fn apply_at(&mut self, at: Timestamp, change: impl FnOnce(&mut Model<Reply>)) {
        let effects = self.model.apply(at, change);
        self.carry_out(effects, at);
    }

    /// Makes a step that starts nothing. Returns whether it changed anything that others see.
    fn note(&mut self, at: Timestamp, change: impl FnOnce(&mut Model<Reply>)) -> bool {
        let effects = self.model.note(at, change);
        let has_effects = !effects.is_empty();
        if has_effects {
            self.carry_out(effects, at);
        }
        has_effects
    }

    /// Carries out the effects of one step. All have the time of the step, so that no event is dated later than the next one.
    fn carry_out(&mut self, mut effects: Vec<Effect<Reply>>, at: Timestamp) {
        let answers = effects.split_off(effects.partition_point(|effect| effect.rank() == 0));
        let transcripts = self.transcripts_to_recheck(&effects);
        for effect in effects {
            self.execute(effect, at);
        }
        if !self.model.is_continuing_automatically() {
            self.continuation_slot = None;
        }
        self.publish();
        self.recheck_transcripts(transcripts);
        answers.into_iter().for_each(|answer| self.execute(answer, at));
    }

    fn publish(&mut self) {
        let view = self.model.view();
        let mut unreported = None;
        self.published.send_if_modified(|published| {
            let differs = **published != view;
            let time_of =
                |view: &Conversation| view.continuation.as_ref().map(|continuation| continuation.at);
            if time_of(published) != time_of(&view) {
                self.services.wakeups.set(view.id, time_of(&view));
            }
            if differs {
                // Nothing follows `deleted`.
                let is_shown = self.model.record.deleted_at.is_none();
                unreported = (is_shown && has_unreported_change(published, &view)).then(|| view.clone());
                *published = Arc::new(view);
            }
            differs
        });
        if let Some(conversation) = unreported {
            self.stream
                .emit(&Event::Updated { conversation }, &time::text(now()));
        }
    }

    fn stop(&mut self) {
        let grace_ms = self.stop_grace_ms.load(Ordering::Relaxed);
        self.apply(|model| {
            model.hold_for_disconnected(Reply::is_closed);
            model.stop(grace_ms);
        });
    }

    fn handle_message(&mut self, message: Message) {
        self.note_outdated_session();
        match message {
            Message::Call(mut incoming) => {
                if matches!(
                    incoming.call,
                    Call::Prompt(..) | Call::Edit(..) | Call::Continue(_)
                ) {
                    self.drop_disconnected_client();
                }
                let request = incoming.request.as_ref();
                let stored =
                    request.map(|request| self.services.store.request(Some(self.model.id()), &request.id));
                let stored = match stored.transpose() {
                    Ok(stored) => stored.flatten(),
                    Err(error) => {
                        // The call may have been carried out before, and must not be carried out twice.
                        tracing::error!(conversation = %self.model.id(), error = chain_text(&error), "a requestId cannot be looked up");
                        incoming.reply.send(Err(error.into()));
                        return;
                    }
                };
                if stored.is_none()
                    && let Some(folder) = incoming.call.named_folder().cloned()
                {
                    let services = Arc::clone(&self.services);
                    let check = async move {
                        let usable = |folder: &str| usable_folder("cwd", folder);
                        services.read_at_folder(&folder, usable).await
                    };
                    let check = check.boxed();
                    self.folder_check = Some(FolderCheck {
                        call: incoming,
                        result: check,
                    });
                    return;
                }
                self.apply(|model| model.admit(*incoming, stored));
                // A prompt that is queued follows without a message.
                self.note_outdated_session();
            }
            Message::Subscribe { subscriber, after } => self.subscribe(subscriber, after.as_ref()),
            Message::Snapshot { gap, reply } => {
                // A caller that disconnected needs no snapshot.
                let _gone = reply.send(self.snapshot(gap, false));
            }
            Message::ContinuationDue(slot) => {
                self.continuation_slot = Some(slot);
                self.drop_disconnected_client();
                self.apply(|model| model.continuation_due(TurnId::mint()));
                // If the clock was set back meanwhile, the conversation is woken again.
                let continuation = self.model.record.continuation.as_ref();
                if let Some(at) = continuation
                    .map(|continuation| continuation.at)
                    .filter(|at| *at > now())
                {
                    self.services.wakeups.set(self.model.id(), Some(at));
                }
            }
            Message::TranscriptGrown(growth) => self.transcript_grown(*growth),
            Message::SessionInfo(reply) => {
                // The caller may have been cancelled.
                let _unwanted = reply.send(self.model.session_info.clone());
            }
            Message::ForwardToAgent(message) => {
                if let Some(session) = &mut self.session {
                    message.send(session);
                }
            }
            Message::Replay(reply) => self.prepare_replay(reply),
            Message::RunFor(client, occasion) => self.switch_client(client, occasion),
            Message::TakeOverSession(opened, session, client) => {
                self.client = client;
                // The session is used or closed at once. What the last job made may still wait for its write.
                let earlier = std::mem::replace(&mut self.last_resource, UnrecordedResource::from(*session));
                self.apply(|model| model.session_handed_over(*opened));
                self.last_resource = earlier;
            }
        }
    }

    /// Has the agent load the session at the next call that needs it, and replay it to this client, if there is no other way to
    /// show its history. An open session is reopened for that, unless that would end something.
    fn prepare_replay(&mut self, reply: ReplaySender) {
        let record = &self.model.record;
        let entry = self.services.agent(&record.agent);
        let is_readable = entry.is_ok_and(|entry| entry.listed_transcripts().is_some());
        if is_readable || self.model.turn.is_some() {
            return;
        }
        if let Some(session) = &self.session {
            let is_written = record.chain.head().is_some_and(|head| head.written);
            let can_load = session.lease.initialized().capabilities.load_session;
            if !is_written || !can_load || !self.model.can_leave_agent() || self.has_background_work() {
                return;
            }
            self.apply(Model::reopen_later);
        }
        self.replay = Some(reply);
    }

    /// Notes that the session must be opened again: its settings are old, another conversation found that the user is not signed
    /// in there, or another program wrote to it. Background commands would end with it, so it stays open while some run.
    fn note_outdated_session(&mut self) {
        if let (Some(live), Some(session)) = (&self.model.session, &self.session)
            && (live.has_old_settings && !self.is_held_by_process()
                || session.lease.is_signed_out()
                || session.prompt_tally.is_foreign())
            && !live.needs_reopening
            && !self.has_background_work()
        {
            self.apply(Model::reopen_later);
        }
    }

    fn switch_client(&mut self, client: Arc<ClientProfile>, occasion: ClientSwitchReason) {
        let is_open = self.session.is_some() || self.model.operation.is_some();
        if self.model.turn.is_some() || (is_open && occasion == ClientSwitchReason::Using) {
            return;
        }
        self.set_client(Some(client));
    }

    /// Runs the agent for the daemon itself once all editors have disconnected: only they provide their files and terminals.
    fn drop_disconnected_client(&mut self) {
        let is_busy = self.model.turn.is_some() || self.model.operation.is_some();
        if self.client.is_some() && !is_busy && !self.stream.has_editors() {
            self.set_client(None);
        }
    }

    /// Whether the agent would keep the session open after it is closed: Codex releases a session only when its process ends, and
    /// other conversations still use that process.
    fn is_held_by_process(&self) -> bool {
        let is_shared = |session: &UpstreamSession| session.lease.connection().attached_count() > 1;
        let entry = self.services.agent(&self.model.record.agent);
        entry.is_ok_and(|entry| entry.kind.shares_process) && self.session.as_ref().is_some_and(is_shared)
    }

    /// Makes the agent run for a client.
    fn set_client(&mut self, client: Option<Arc<ClientProfile>>) {
        self.client = client;
        let entry = self
            .services
            .agent_for(&self.model.record.agent, self.client.as_deref());
        let (Some(session), Ok(entry)) = (&self.session, entry) else {
            return;
        };
        let is_same_launch = *session.lease.key() == entry.pool_key();
        if !is_same_launch && !self.is_held_by_process() && !self.has_background_work() {
            self.apply(Model::reopen_later);
        }
    }

    /// Handles the result of checking the folder that the next call names.
    fn folder_checked(&mut self, found: Result<String, ConversationError>) {
        let Some(FolderCheck { call: mut asked, .. }) = self.folder_check.take() else {
            return;
        };
        match found {
            Ok(folder) => {
                if let Some(named) = asked.call.named_folder() {
                    *named = folder;
                }
                self.apply(|model| model.admit(*asked, None));
            }
            Err(error) => asked.reply.send(Err(error)),
        }
    }

    fn deadlines_elapsed(&mut self) {
        let at = Instant::now();
        self.continuation_slot.take_if(|slot| slot.expires_at() <= at);
        let due: Vec<Deadline> = self
            .deadlines
            .iter()
            .filter(|(_, deadline)| *deadline <= at)
            .map(|(which, _)| *which)
            .collect();
        self.deadlines.retain(|(_, deadline)| *deadline > at);
        for deadline in due {
            if deadline == Deadline::Idle && self.has_background_work() {
                let idle = Duration::from_millis(self.model.rules.idle_ms);
                self.deadlines.push((Deadline::Idle, Instant::now() + idle));
                continue;
            }
            self.apply(|model| model.elapsed(deadline));
        }
    }
}

/// Whether clients see a change that no event of its own reports. Checked where the change is published, so that no code path
/// is missed.
fn has_unreported_change(before: &Conversation, now: &Conversation) -> bool {
    before.title != now.title
        || before.cwd != now.cwd
        || before.settings != now.settings
        || before.queue != now.queue
        || before.continuation != now.continuation
        || before.cut_short != now.cut_short
}

/// Checks the folder that a call names.
async fn run_folder_check(check: &mut Option<FolderCheck>) -> Result<String, ConversationError> {
    match check {
        Some(check) => (&mut check.result).await,
        None => std::future::pending().await,
    }
}

/// Runs the job, and removes it when it is done or panics.
async fn run_job(job: &mut Option<Job>) -> (u64, JobResult) {
    let Some(running) = job else {
        return std::future::pending().await;
    };
    let number = running.number;
    let done = AssertUnwindSafe(&mut running.work).catch_unwind().await;
    *job = None;
    match done {
        Ok(done) => (number, done),
        Err(panic) => resume_unwind(panic),
    }
}

/// Receives lines of the agent, at most as many as one round allows.
async fn take_lines(session: &mut Option<UpstreamSession>, lines: &mut Vec<Incoming>) {
    match session {
        Some(session) if !session.early_lines.is_empty() => lines.append(&mut session.early_lines),
        Some(session) => {
            session.inbox.recv_up_to(lines, LINES_PER_ROUND).await;
        }
        None => std::future::pending().await,
    }
}
