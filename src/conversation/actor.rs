//! The task of one live conversation: passes every input to the state machine and carries out the effects.
//!
//! It owns everything about the conversation and is its only writer. It never waits for a subscriber, a client or another
//! conversation: slow work runs as a job or a write beside the loop and returns as an input. Callers, writes, the job and the
//! deadlines come before the agent's lines, of which at most 64 are taken a round, so that a flood never delays a
//! cancellation.

mod carry;
mod failing;
mod listen;

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::id::{InterruptId, TurnId};
use bridge_protocol::time;
use bridge_protocol::{ConversationId, Cursor};
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

use super::answer::Answer;
use super::client_request::ClientMessage;
use super::closed_sessions::ClosedSessions;
use super::effect::{Asked, Call, Deadline, Effect, Found, Input, Opened};
use super::error::ConversationError;
use super::events::{Stream, Subscriber};
use super::folder::usable_folder;
use super::growth::Growth;
use super::resource::Resource;
use super::services::{Services, chain_text, now};
use super::state::{Model, Session};
use super::upstream::UpstreamSession;
use super::wakings::Place;
use super::work::Progress;
use failing::{fault_of, pause_after};

/// How often the daemon checks whether an agent's background commands have ended, before it closes the session on its own
/// account.
const BACKGROUND_LOOK: Duration = Duration::from_secs(5);

/// How many lines of the agent are taken before everything else is looked at again.
const LINES_A_ROUND: usize = 64;

/// How many calls may wait for one conversation. A desktop app has a handful; more come from a loop.
pub const MAILBOX: usize = 256;

/// How long a conversation at rest without subscribers keeps its task, and with it the events for clients that reconnect.
pub(in crate::conversation) const REST: Duration = Duration::from_secs(120);

/// Where an answer goes.
pub type Reply = oneshot::Sender<Result<Answer, ConversationError>>;

/// What comes into a conversation's mailbox.
pub enum Message {
    /// A call.
    Call(Box<Asked<Reply>>),
    /// A new subscriber.
    Subscribe {
        /// The subscriber.
        subscriber: Box<dyn Subscriber>,
        /// The last event that it has seen.
        after: Option<Cursor>,
    },
    /// Asks for a snapshot, for subscribers of all conversations.
    Snapshot {
        /// Whether the subscriber missed events.
        gap: bool,
        /// Takes the snapshot.
        reply: oneshot::Sender<super::events::Encoded>,
    },
    /// The transcript of its head has grown.
    Grown(Box<Growth>),
    /// The time of a scheduled continuation has come, and there is a place for it.
    Due(Place),
    /// A session that was opened for this conversation by the one that it branched off, and the client for which it runs.
    TakeOver(Box<Opened>, Box<UpstreamSession>, Option<Arc<ClientProfile>>),
    /// A client's message for the agent, which is passed on as it is.
    Pass(Box<ClientMessage>),
    /// The client for which the agent is to run.
    RunFor(Arc<ClientProfile>, Occasion),
}

/// When an agent begins to run for another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The client opens the session. If it is open for another client, and no turn runs, it is reopened.
    Opening,
    /// The client opens the session, whose settings have changed. If it is open, and no turn runs, it is reopened.
    Reopening,
    /// The client uses the session, which stays as it is if it is open.
    Use,
}

/// Puts a message into the mailbox of another conversation, or gives it back.
pub type Deliver = Box<dyn Fn(ConversationId, Message) -> Result<(), Message> + Send + Sync>;

/// Work beside the loop.
struct Job {
    number: u64,
    work: BoxFuture<'static, Done>,
    /// Whether it changes the conversation's files: such a job is never abandoned.
    is_on_files: bool,
    /// What ends such a job early, if anything does.
    progress: Option<Arc<Progress>>,
}

impl Job {
    /// A job whose result may have to be undone.
    fn new(number: u64, work: impl Future<Output = Done> + Send + 'static) -> Self {
        Self {
            number,
            work: work.boxed(),
            is_on_files: false,
            progress: None,
        }
    }

    /// A job with nothing to undo.
    fn finding(
        number: u64,
        work: impl Future<Output = Result<Found, ConversationError>> + Send + 'static,
    ) -> Self {
        Self::new(number, work.map_ok(|found| (found, Resource::default())))
    }

    /// Marks the job as one that changes the conversation's files.
    fn on_files(self, progress: Option<Arc<Progress>>) -> Self {
        Self {
            is_on_files: true,
            progress,
            ..self
        }
    }
}

/// A call while the folder that it names is looked at, which may not respond. Calls behind it wait.
struct Looking {
    asked: Box<Asked<Reply>>,
    found: BoxFuture<'static, Result<String, ConversationError>>,
}

/// The result of a job, with what it made.
type Done = Result<(Found, Resource), ConversationError>;

type Write = BoxFuture<'static, Box<Input<Reply>>>;

/// A question that is open at the agent.
struct OpenQuestion {
    id: InterruptId,
    raw_id: RawId,
    is_permission: bool,
}

/// The task's own things.
pub struct Actor {
    services: Arc<Services>,
    model: Model<Reply>,
    stream: Stream,
    mailbox: mpsc::Receiver<Message>,
    /// The call that is next, while the folder that it names is looked at.
    looking: Option<Looking>,
    published: watch::Sender<Arc<Conversation>>,
    stop: CancellationToken,
    stop_grace_ms: Arc<AtomicU64>,
    deliver: Deliver,
    /// The client for which the agent runs; none for the daemon itself.
    client: Option<Arc<ClientProfile>>,
    /// The open session.
    session: Option<UpstreamSession>,
    /// What the last job made, until it is used, kept or undone.
    made: Resource,
    questions: Vec<OpenQuestion>,
    job: Option<Job>,
    /// The agent that died last, until its transcript was read for the prompt.
    dead: Option<Lease>,
    /// Held while a scheduled continuation runs: few may run at a time.
    place: Option<Place>,
    /// The deletion of the originals of the last move.
    finishing: Option<JoinHandle<()>>,
    /// Closed sessions, until no agent writes to them. The next task shares this list.
    closed: ClosedSessions,
    /// A session that is being closed.
    closing: Option<Job>,
    writes: FuturesOrdered<Write>,
    deadlines: Vec<(Deadline, Instant)>,
    /// When to check again whether a process that is to be left still runs something in the background.
    leaves_at: Option<Instant>,
    is_over: bool,
}

/// What a new actor is given.
pub struct ActorParts {
    /// The rest of the daemon.
    pub services: Arc<Services>,
    /// The conversation as it stands.
    pub model: Model<Reply>,
    /// Calls.
    pub mailbox: mpsc::Receiver<Message>,
    /// Where clients see the conversation.
    pub published: watch::Sender<Arc<Conversation>>,
    /// The daemon stops.
    pub stop: CancellationToken,
    /// How long a running turn gets then, in milliseconds.
    pub stop_grace_ms: Arc<AtomicU64>,
    /// The way to other conversations.
    pub deliver: Deliver,
    /// The sessions that earlier tasks have closed.
    pub(super) closed: ClosedSessions,
}

/// What woke the loop.
#[expect(clippy::large_enum_variant, reason = "it is matched where it is made")]
enum Woken {
    Stop,
    Message(Option<Message>),
    Looked(Result<String, ConversationError>),
    Written(Box<Input<Reply>>),
    Job(u64, Done),
    Elapsed,
    Lines,
    SignedOut,
    Rested,
}

impl Actor {
    /// An actor that has not begun.
    #[must_use]
    pub fn new(parts: ActorParts) -> Self {
        let ActorParts {
            services,
            model,
            mailbox,
            published,
            stop,
            stop_grace_ms,
            deliver,
            closed,
        } = parts;
        let stream = Stream::new(Arc::clone(&services.hub), model.id());
        Self {
            services,
            model,
            stream,
            mailbox,
            looking: None,
            published,
            stop,
            stop_grace_ms,
            deliver,
            client: None,
            session: None,
            made: Resource::default(),
            questions: Vec::new(),
            job: None,
            dead: None,
            place: None,
            finishing: None,
            closed,
            closing: None,
            writes: FuturesOrdered::new(),
            deadlines: Vec::new(),
            leaves_at: None,
            is_over: false,
        }
    }

    /// The conversation's id.
    #[must_use]
    pub fn id(&self) -> ConversationId {
        self.model.id()
    }

    /// Runs until the conversation is deleted, at rest for long, or the daemon stops. Returns what came in too late. After a
    /// panic it begins anew from what is on disk, with the same subscribers.
    pub async fn run(mut self) -> Vec<Message> {
        let (mut began, mut pause) = (Instant::now(), Duration::ZERO);
        let mut fault = fault_of(self.serve()).await;
        while let Some(why) = fault {
            let stops = self.stop.is_cancelled();
            let again = fault_of(self.begin_anew(&why)).await;
            if stops {
                break;
            }
            pause = pause_after(began.elapsed(), pause);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(pause) => {}
            }
            began = Instant::now();
            fault = match again {
                Some(again) => Some(again),
                None => fault_of(self.serve()).await,
            };
        }
        self.mailbox.close();
        let mut unread: Vec<Message> = self
            .looking
            .take()
            .map(|looking| Message::Call(looking.asked))
            .into_iter()
            .collect();
        while let Ok(message) = self.mailbox.try_recv() {
            unread.push(message);
        }
        unread
    }

    /// Takes what comes, one after the other.
    async fn serve(&mut self) {
        let mut lines: Vec<Incoming> = Vec::with_capacity(LINES_A_ROUND);
        let mut rest = Instant::now() + REST;
        while !self.is_over {
            let lapse = self.place.as_ref().map(Place::lapses_at);
            let deadline = self.deadlines.iter().map(|(_, at)| *at).chain(lapse).min();
            let may_rest = self.session.is_none() && !self.works() && self.looking.is_none();
            let stopping = self.model.stopping;
            let leaving = self.leaving();
            let woken = tokio::select! {
                biased;
                () = self.stop.cancelled(), if !stopping => Woken::Stop,
                found = look(&mut self.looking), if self.looking.is_some() => Woken::Looked(found),
                message = self.mailbox.recv(), if self.looking.is_none() => Woken::Message(message),
                Some(written) = self.writes.next(), if !self.writes.is_empty() => Woken::Written(written),
                (number, done) = run_job(&mut self.job), if self.job.is_some() => Woken::Job(number, done),
                (number, done) = run_job(&mut self.closing), if self.closing.is_some() => Woken::Job(number, done),
                () = sleep_until(deadline.unwrap_or(rest)), if deadline.is_some() => Woken::Elapsed,
                () = take_lines(&mut self.session, &mut lines), if self.session.is_some() && !self.model.is_deaf() => Woken::Lines,
                () = leaving, if !stopping => Woken::SignedOut,
                () = sleep_until(rest), if may_rest => Woken::Rested,
            };
            rest = Instant::now() + REST;
            match woken {
                Woken::Stop => self.stop(),
                Woken::Message(Some(message)) => self.message(message),
                Woken::Looked(found) => self.looked(found),
                // The registry was dropped, so that no call can arrive any more.
                Woken::Message(None) if self.model.is_at_rest() => break,
                Woken::Message(None) => self.stop(),
                Woken::Written(input) => self.input(*input),
                Woken::Job(job, done) => {
                    let found = done.map(|(found, made)| {
                        self.made.add(made);
                        found
                    });
                    self.input(Input::Worked { job, found });
                }
                Woken::Elapsed => self.deadlines_elapsed(),
                Woken::Lines => {
                    if let Some(place) = &mut self.place
                        && self.model.continues()
                    {
                        place.heard();
                    }
                    self.hear(&mut lines);
                }
                Woken::SignedOut => self.leave(),
                Woken::Rested => {
                    if self.model.is_at_rest() && !self.stream.has_subscribers() {
                        break;
                    }
                }
            }
            if self.model.stopping && self.model.turn.is_none() && !self.works() {
                break;
            }
        }
    }

    /// Resolves when the session is idle in a process that reported a missing sign-in.
    fn leaving(&self) -> impl Future<Output = ()> + use<> {
        let session = self.session.as_ref().filter(|_| self.model.can_leave_agent());
        let signed_out = session.map(|session| session.lease.signed_out());
        let not_before = self.leaves_at;
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

    /// Closes the session, so that its process can end: Codex holds a closed session until then, and no other process can open
    /// it. Background commands would end with the session, and are waited for.
    fn leave(&mut self) {
        self.leaves_at = None;
        if self.agent_works_on() {
            self.leaves_at = Some(Instant::now() + BACKGROUND_LOOK);
            return;
        }
        let now = now();
        let effects = self.model.leave_retired_agent(now);
        self.carry_out(effects, now);
    }

    /// Whether something is under way beside the loop.
    fn works(&self) -> bool {
        self.job.is_some() || self.closing.is_some() || !self.writes.is_empty()
    }

    /// One input: the state machine decides, the effects are carried out, clients see the result, callers are
    /// answered, in this order.
    fn input(&mut self, input: Input<Reply>) {
        self.input_at(input, now());
    }

    /// The same for what is known to have happened at this moment.
    fn input_at(&mut self, input: Input<Reply>, at: Timestamp) {
        let effects = self.model.apply(input, at);
        self.carry_out(effects, at);
    }

    /// Everything that one input causes has its time, so that no event is dated later than the next one.
    fn carry_out(&mut self, mut effects: Vec<Effect<Reply>>, at: Timestamp) {
        let answers = effects.split_off(effects.partition_point(|effect| effect.rank() == 0));
        let transcripts = self.to_look_at(&effects);
        for effect in effects {
            self.carry(effect, at);
        }
        if !self.model.goes_on_by_itself() {
            self.place = None;
        }
        self.publish();
        self.look_again(transcripts);
        answers.into_iter().for_each(|answer| self.carry(answer, at));
    }

    fn publish(&mut self) {
        let view = self.model.view();
        let mut untold = None;
        self.published.send_if_modified(|published| {
            let differs = **published != view;
            let time_of =
                |view: &Conversation| view.continuation.as_ref().map(|continuation| continuation.at);
            if time_of(published) != time_of(&view) {
                self.services.wakings.set(view.id, time_of(&view));
            }
            if differs {
                untold = has_untold(published, &view).then(|| view.clone());
                *published = Arc::new(view);
            }
            differs
        });
        if let Some(conversation) = untold {
            self.stream
                .emit(&Event::Updated { conversation }, &time::text(now()));
        }
    }

    fn stop(&mut self) {
        self.model.hold_for_those_gone(Reply::is_closed);
        self.input(Input::Stop {
            grace_ms: self.stop_grace_ms.load(Ordering::Relaxed),
        });
    }

    fn message(&mut self, message: Message) {
        if let (Session::Live(live), Some(session)) = (&self.model.session, &self.session)
            && session.lease.is_signed_out()
            && !live.is_to_move
            && !self.agent_works_on()
        {
            // Another conversation found that nobody is signed in there. Background commands would end with the session.
            self.input(Input::AgentRetired);
        }
        match message {
            Message::Call(mut asked) => {
                if matches!(
                    asked.call,
                    Call::Prompt { .. } | Call::Edit { .. } | Call::Continue { .. }
                ) {
                    self.run_for_whom_is_left();
                }
                let request = asked.request.as_ref();
                let kept =
                    request.map(|request| self.services.store.request(Some(self.model.id()), &request.id));
                let kept = match kept.transpose() {
                    Ok(kept) => kept.flatten(),
                    Err(error) => {
                        // It may have been carried out before, and must not be carried out twice.
                        tracing::error!(conversation = %self.model.id(), error = chain_text(&error), "a requestId cannot be looked up");
                        let _gone = asked.reply.send(Err(error.into()));
                        return;
                    }
                };
                if kept.is_none()
                    && let Some(folder) = asked.call.folder().cloned()
                {
                    let services = Arc::clone(&self.services);
                    let found = async move {
                        let usable = |folder: &str| usable_folder("cwd", folder);
                        services.look_at(&folder, usable).await
                    };
                    let found = found.boxed();
                    self.looking = Some(Looking { asked, found });
                    return;
                }
                self.input(Input::Call { asked: *asked, kept });
            }
            Message::Subscribe { subscriber, after } => self.subscribe(subscriber, after.as_ref()),
            Message::Snapshot { gap, reply } => {
                if let Some(snapshot) = self.snapshot(gap, false) {
                    // A caller that is gone needs no snapshot.
                    let _gone = reply.send(snapshot);
                }
            }
            Message::Due(place) => {
                self.place = Some(place);
                self.run_for_whom_is_left();
                self.input(Input::Due(TurnId::mint()));
                // The clock may have been set back meanwhile: then it is woken again.
                let continuation = self.model.record.continuation.as_ref();
                if let Some(at) = continuation
                    .map(|continuation| continuation.at)
                    .filter(|at| *at > now())
                {
                    self.services.wakings.set(self.model.id(), Some(at));
                }
            }
            Message::Grown(growth) => self.grown(*growth),
            Message::Pass(message) => {
                if let Some(session) = &mut self.session {
                    message.send(session);
                }
            }
            Message::RunFor(client, occasion) => self.run_for(client, occasion),
            Message::TakeOver(opened, session, client) => {
                self.client = client;
                // It is used or closed at once; what waits for its write keeps its place.
                let earlier = std::mem::replace(&mut self.made, Resource::from(*session));
                self.input(Input::HandedOver(opened));
                self.made = earlier;
            }
        }
    }

    fn run_for(&mut self, client: Arc<ClientProfile>, occasion: Occasion) {
        let is_open = self.session.is_some() || self.model.op.is_some();
        if self.model.turn.is_some() || (is_open && occasion == Occasion::Use) {
            return;
        }
        self.run_as(Some(client), occasion == Occasion::Reopening);
    }

    /// Once the editors have left, the agent runs for the daemon itself: nobody else has their files and terminals.
    fn run_for_whom_is_left(&mut self) {
        let is_busy = self.model.turn.is_some() || self.model.op.is_some();
        if self.client.is_some() && !is_busy && !self.stream.has_editors() {
            self.run_as(None, false);
        }
    }

    /// Has the agent run for a client. `anew`: whether a session that is open for it already is reopened.
    fn run_as(&mut self, client: Option<Arc<ClientProfile>>, anew: bool) {
        self.client = client;
        let entry = self
            .services
            .agent_for(&self.model.record.agent, self.client.as_deref());
        let (Some(session), Ok(entry)) = (&self.session, entry) else {
            return;
        };
        // Codex gives a session back only when the process ends, which others still use.
        let is_held = entry.kind.shares_process && session.lease.connection().attached() > 1;
        let is_its_own = !anew && session.lease.key().is_like(&entry.pool_key());
        if !is_its_own && !is_held && !self.agent_works_on() {
            self.input(Input::AgentRetired);
        }
    }

    /// The folder that the next call names was looked at.
    fn looked(&mut self, found: Result<String, ConversationError>) {
        let Some(Looking { mut asked, .. }) = self.looking.take() else {
            return;
        };
        match found {
            Ok(folder) => {
                if let Some(named) = asked.call.folder() {
                    *named = folder;
                }
                let kept = None;
                self.input(Input::Call { asked: *asked, kept });
            }
            // A caller that is gone needs no answer.
            Err(error) => drop(asked.reply.send(Err(error))),
        }
    }

    fn deadlines_elapsed(&mut self) {
        let at = Instant::now();
        self.place.take_if(|place| place.lapses_at() <= at);
        let due: Vec<Deadline> = self
            .deadlines
            .iter()
            .filter(|(_, deadline)| *deadline <= at)
            .map(|(which, _)| *which)
            .collect();
        self.deadlines.retain(|(_, deadline)| *deadline > at);
        for deadline in due {
            if deadline == Deadline::Idle && self.agent_works_on() {
                let is_apart = matches!(&self.model.session, Session::Live(live) if live.is_apart);
                let idle = match self.model.rules.idle_ms {
                    milliseconds if milliseconds > 0 && !is_apart => Duration::from_millis(milliseconds),
                    // A process of its own is stopped as soon as nothing runs in it.
                    _ => BACKGROUND_LOOK,
                };
                self.deadlines.push((Deadline::Idle, Instant::now() + idle));
                continue;
            }
            self.input(Input::Elapsed(deadline));
        }
    }
}

/// Whether something changed that clients see and that no event of its own reports. Checked where the change is published, so
/// that no path is forgotten.
fn has_untold(before: &Conversation, now: &Conversation) -> bool {
    before.title != now.title
        || before.cwd != now.cwd
        || before.settings != now.settings
        || before.queue != now.queue
        || before.continuation != now.continuation
        || before.cut_short != now.cut_short
}

/// Looks at the folder that a call names.
async fn look(looking: &mut Option<Looking>) -> Result<String, ConversationError> {
    match looking {
        Some(looking) => (&mut looking.found).await,
        None => std::future::pending().await,
    }
}

/// Runs the job in its place, from which it is removed when it is done or panics.
async fn run_job(job: &mut Option<Job>) -> (u64, Done) {
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

/// Takes lines of the agent, at most as many as belong to a round.
async fn take_lines(session: &mut Option<UpstreamSession>, lines: &mut Vec<Incoming>) {
    match session {
        Some(session) if !session.early.is_empty() => lines.append(&mut session.early),
        Some(session) => {
            session.inbox.recv_up_to(lines, LINES_A_ROUND).await;
        }
        None => std::future::pending().await,
    }
}
