//! One followed conversation: a turn from what starts it to its end, or everything until the user leaves.
//!
//! It owns the one loop that `chat`, `send`, `edit`, `continue` and `attach` share: events, the answer, keys, Ctrl-C, and a
//! daemon that dies meanwhile. A turn is started under a request id, so that starting it again on the next daemon joins it or
//! returns its result. It must not know what the turn is about.

mod failure;
mod questions;

use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::{ContinueAt, Conversation, EditAnswer, OnBusy};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Resumed};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{FailureKind, Interrupt, TurnResult};
use bridge_protocol::{ConversationId, Cursor, InterruptId, TurnId};
use clap::ValueEnum;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use jsonrpsee::core::client::Error as ClientError;
use serde::Deserialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::keys::Person;
use super::screen::Screen;
use crate::cli::commands::Context;
use crate::cli::connect::{Daemon, Reach};
use crate::cli::exit::Exit;
use crate::cli::follow::{Followed, Follower};
use crate::cli::output::{ATTENTION, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::Watch;
use crate::cli::words;
use questions::AskedAgain;

/// How long the events of a turn may take whose answer has come. They come before the answer; only a subscription that was cut
/// off has to fetch them again.
const LAST_EVENTS_LIMIT: Duration = Duration::from_secs(10);

/// How long a daemon may take to come back: longer than a restart in which it rebuilds a large store.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// How often a daemon is looked for. Nothing reports that another process has begun to listen.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many daemons may die under one turn. With more, the turn itself may be what kills them.
const DEATHS_LIMIT: u32 = 3;

/// How `send` and `edit` handle questions of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum OnQuestion {
    /// Exit with code 8; the question stays open for `sessionctl answer`
    Leave,
    /// Wait until another client answers
    Wait,
    /// Reject the request and let the turn continue
    Deny,
}

/// What is followed.
#[derive(Clone, Debug)]
pub(super) enum Start {
    /// The turn of a new prompt.
    Prompt(method::Prompt),
    /// The turn that replaces an earlier one.
    Edit(method::Edit),
    /// The turn that continues what was interrupted.
    Continue(method::Continue),
    /// The turn that the answer to an open question starts, once that was asked.
    Answer,
    /// The turn that runs already, if one does.
    Running,
    /// Everything, until the user leaves.
    Watch,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The turn ended.
    Turn(TurnResult),
    /// The turn of an edit ended.
    Edited(EditAnswer),
    /// There is nothing to follow any more.
    Left,
}

/// A conversation that is followed.
pub(super) struct Talk<'a> {
    reach: &'a Reach,
    daemon: Rc<Daemon>,
    /// What is shown.
    pub(super) screen: Screen<'a>,
    /// The conversation.
    pub(super) id: ConversationId,
    /// The folder that it runs in.
    folder: String,
    person: Option<Person>,
    /// What to do with questions when there is nobody to ask.
    pub(super) unattended: OnQuestion,
    interrupts: Signal,
    /// The open questions; the first is the one that is asked.
    questions: VecDeque<Interrupt>,
    /// The question that was answered here.
    answered: Option<InterruptId>,
    /// Whether a question was refused whose agent had ended: then its turn is over.
    is_given_up: bool,
    said_resumed: bool,
    /// Whether the user left before the end.
    pub(super) has_left: bool,
    /// The last event that was shown.
    after: Option<Cursor>,
    /// How many queued prompts were reported last.
    queued: usize,
}

/// What is known of the turn that is followed.
#[derive(Debug, Default)]
struct OwnTurn {
    id: Option<TurnId>,
    has_ended: bool,
    result: Option<TurnResult>,
    /// Whether another turn runs that comes first.
    is_behind_another: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallId {
    tool_call_id: String,
}

impl Start {
    /// A new prompt, under an id of its own.
    pub(super) fn prompt(id: ConversationId, prompt: PromptContent) -> method::Prompt {
        method::Prompt {
            conversation_id: id.into(),
            prompt,
            request_id: Some(request_id()),
            ..Default::default()
        }
    }

    /// Starts it. Of what starts nothing the answer never comes.
    async fn call(&self, daemon: &Daemon) -> Result<Option<Ended>, ClientError> {
        match self {
            Self::Prompt(prompt) => daemon.call(prompt.clone()).await.map(Ended::Turn).map(Some),
            Self::Edit(edit) => daemon.call(edit.clone()).await.map(Ended::Edited).map(Some),
            Self::Continue(at) => daemon.call(at.clone()).await.map(|_| None),
            Self::Answer | Self::Running | Self::Watch => std::future::pending().await,
        }
    }

    /// The method that runs it.
    fn method(&self) -> &'static str {
        match self {
            Self::Edit(_) => "conversation/edit",
            Self::Continue(_) => "conversation/continue",
            _ => "conversation/prompt",
        }
    }

    /// The prompt, if other prompts may be accepted before it.
    fn waits_as(&self) -> Option<&PromptContent> {
        match self {
            Self::Prompt(prompt) if prompt.on_busy == OnBusy::Queue => Some(&prompt.prompt),
            _ => None,
        }
    }
}

impl Ended {
    /// The turn.
    pub(super) fn turn(&self) -> Option<&TurnResult> {
        match self {
            Self::Turn(turn) => Some(turn),
            Self::Edited(answer) => Some(&answer.turn),
            Self::Left => None,
        }
    }

    /// Whether the turn ended because its daemon did.
    fn was_cut_short(&self) -> bool {
        match self.turn() {
            Some(turn) => {
                let failure = turn.failure.as_ref();
                failure.is_some_and(|failure| failure.kind == FailureKind::DaemonRestarted)
            }
            // The turn that was followed is not running any more, and no event said how it ended.
            None => true,
        }
    }

    /// Whether the process of the turn ended before the turn did, so that a question of it may still be open.
    fn may_be_continued(&self, daemon_died: bool) -> bool {
        match self.turn() {
            Some(turn) => turn.failure.as_ref().is_some_and(|failure| {
                matches!(
                    failure.kind,
                    FailureKind::DaemonRestarted | FailureKind::AgentDied
                )
            }),
            None => daemon_died,
        }
    }

    /// The end of the turn that continued this one.
    fn of(self, cut: Option<Self>) -> Self {
        match (self, cut) {
            (Self::Turn(turn), Some(Self::Edited(answer))) => Self::Edited(EditAnswer { turn, ..answer }),
            (ended, _) => ended,
        }
    }
}

/// What continues a conversation at once.
pub(super) fn continue_now(id: ConversationId) -> method::Continue {
    method::Continue {
        conversation_id: id.into(),
        at: Some(ContinueAt::Now),
        request_id: Some(request_id()),
        ..Default::default()
    }
}

/// A new id of a call.
pub(super) fn request_id() -> String {
    format!("sessionctl-{}", Uuid::new_v4())
}

impl<'a> Talk<'a> {
    /// Follows nothing yet. With `on_question` or `--json` no person is asked.
    pub(super) fn new(
        context: &'a mut Context<'_>,
        daemon: Rc<Daemon>,
        conversation: &Conversation,
        on_question: Option<OnQuestion>,
    ) -> Outcome<Self> {
        let is_attended = on_question.is_none() && !context.output.json;
        Ok(Self {
            reach: &context.reach,
            daemon,
            screen: Screen::new(context.output),
            id: conversation.id,
            folder: conversation.cwd.clone(),
            person: if is_attended { Person::find() } else { None },
            unattended: on_question.unwrap_or(OnQuestion::Leave),
            interrupts: signal(SignalKind::interrupt()).map_err(|error| {
                Problem::new(Exit::Failed, format!("could not listen for Ctrl-C: {error}"))
            })?,
            questions: VecDeque::new(),
            answered: None,
            is_given_up: false,
            said_resumed: false,
            has_left: false,
            after: None,
            queued: 0,
        })
    }

    /// The connection.
    pub(super) fn daemon(&self) -> Rc<Daemon> {
        Rc::clone(&self.daemon)
    }

    /// Follows to the end, over restarts of the daemon. If the turn was cut short by one, it is continued.
    ///
    /// # Errors
    /// What the daemon answers, that the user left, or that a question stays open.
    pub(super) async fn follow(&mut self, start: Start) -> Outcome<Ended> {
        let (mut start, mut deaths) = (start, 0);
        let (mut own, mut cut) = (OwnTurn::default(), None);
        // What happened between two turns is nobody's answer.
        self.after = None;
        if matches!(start, Start::Answer) {
            // Taken before the answer, which may bring a turn that has ended when it is followed.
            self.after = self.latest().await?;
            let AskedAgain::Continues(turn) = self.ask_again().await? else {
                return Ok(Ended::Left);
            };
            (start, own) = (Start::Running, OwnTurn::of(turn));
        }
        loop {
            let ended = self.attempt(&start, &mut own).await;
            self.quiet();
            match ended {
                // What a daemon refuses because it stops is its answer; only a lost connection is no answer.
                Err(problem)
                    if problem.exit == Exit::NoDaemon
                        && problem.kind().is_none()
                        && deaths < DEATHS_LIMIT =>
                {
                    deaths += 1;
                    if !self.reconnect(&start, problem).await? {
                        return Ok(Ended::Left);
                    }
                }
                Ok(ended) if ended.may_be_continued(deaths > 0) && self.follows_a_turn(&start) => {
                    start = match self.ask_again().await? {
                        AskedAgain::Continues(turn) => {
                            own = OwnTurn::of(turn);
                            Start::Running
                        }
                        AskedAgain::NoQuestion if deaths > 0 && ended.was_cut_short() => {
                            self.screen.aside("the turn was cut short; continuing it")?;
                            own = OwnTurn::default();
                            Start::Continue(continue_now(self.id))
                        }
                        AskedAgain::NoQuestion | AskedAgain::Refused => return Ok(ended.of(cut)),
                    };
                    cut = cut.or(Some(ended));
                }
                // It was continued by another client, or ended otherwise meanwhile.
                Err(problem) if problem.exit == Exit::Busy && cut.is_some() => {
                    return Ok(cut.unwrap_or(Ended::Left));
                }
                ended => return ended.map(|ended| ended.of(cut)),
            }
        }
    }

    /// The place of the conversation's last event.
    async fn latest(&self) -> Outcome<Option<Cursor>> {
        let daemon = self.daemon();
        let mut follower = Follower::start(&daemon, self.id.into()).await?;
        follower.next().await?;
        Ok(follower.cursor())
    }

    /// Whether somebody waits for the end of one turn. Programs decide themselves what is to become of it.
    fn follows_a_turn(&self, start: &Start) -> bool {
        !self.screen.output.json && !matches!(start, Start::Watch)
    }

    /// Waits for the next daemon, and starts one unless this only watches. False if the user left meanwhile.
    async fn reconnect(&mut self, start: &Start, lost: Problem) -> Outcome<bool> {
        let may_start = self.reach.may_start && !matches!(start, Start::Watch);
        let lost = lost.message.unwrap_or_default();
        let limit = RETURN_LIMIT.as_secs();
        let next = match may_start {
            true => "starting it again".to_owned(),
            false => format!("waiting up to {limit} s for it"),
        };
        self.screen.styled(ATTENTION, &format!("{lost}; {next}"))?;
        let daemon = tokio::select! {
            biased;
            _ = self.interrupts.recv() => match start {
                Start::Watch => return Ok(false),
                _ => return Err(self.left()),
            },
            daemon = async {
                match may_start {
                    true => self.reach.connect().await,
                    false => returned(self.reach).await,
                }
            } => daemon?,
        };
        self.daemon = Rc::new(daemon);
        self.screen.aside("the daemon answers again")?;
        Ok(true)
    }

    /// Follows over one connection.
    async fn attempt(&mut self, start: &Start, own: &mut OwnTurn) -> Outcome<Ended> {
        let daemon = self.daemon();
        // Subscribed first, so that nothing of the turn is missed.
        let after = self.after.clone();
        let mut follower = Follower::behind(&daemon, self.id.into(), after).await?;
        let ended = self.run(&daemon, &mut follower, start, own).await;
        self.after = follower.cursor();
        ended
    }

    async fn run(
        &mut self,
        daemon: &Daemon,
        follower: &mut Follower<'_>,
        start: &Start,
        own: &mut OwnTurn,
    ) -> Outcome<Ended> {
        let json = self.screen.output.json;
        let mut call = pin!(start.call(daemon));
        let mut watch = match start {
            Start::Running | Start::Watch => None,
            _ => Watch::of(self.screen.output, daemon, start.method()),
        };
        let mut answer: Option<Option<Ended>> = None;
        let mut cancelling = None;
        let ended = loop {
            if own.has_ended {
                match (start, &mut answer) {
                    (Start::Prompt(_) | Start::Edit(_), Some(ended)) if ended.is_some() => {
                        break ended.take().unwrap_or(Ended::Left);
                    }
                    (Start::Continue(_), Some(_)) | (Start::Running, _) => {
                        break own.result.take().map_or(Ended::Left, Ended::Turn);
                    }
                    (Start::Watch, _) => break Ended::Left,
                    _ => {}
                }
            }
            tokio::select! {
                biased;
                // The answer comes after the last event; a daemon that stops closes the connection behind it.
                followed = follower.next(), if !own.has_ended => {
                    if let Some(watch) = &mut watch {
                        watch.hide();
                    }
                    let followed = followed?;
                    if json {
                        self.screen.raw(&followed.raw)?;
                    }
                    self.event(&followed, start, own)?;
                    if own.id.is_some() || self.asks() {
                        watch = None;
                    }
                    self.leave_unattended().await?;
                }
                () = shown(&mut watch), if watch.is_some() => {}
                ended = &mut call, if answer.is_none() => {
                    watch = None;
                    answer = Some(ended.map_err(Problem::from)?);
                }
                key = typed(&mut self.person), if self.asks() => self.take_key(key).await?,
                _ = self.interrupts.recv() => {
                    watch = None;
                    if matches!(start, Start::Watch) {
                        break Ended::Left;
                    }
                    if cancelling.is_some() || (start.waits_as().is_some() && own.id.is_none()) {
                        return Err(self.left());
                    }
                    self.screen.aside("cancelling; Ctrl-C again leaves at once")?;
                    cancelling = Some(Box::pin(daemon.call(method::Cancel {
                        conversation_id: self.id.into(),
                        turn_id: own.id.clone(),
                        ..Default::default()
                    })));
                }
                cancelled = finished(&mut cancelling), if cancelling.is_some() => {
                    cancelling = None;
                    cancelled.map_err(Problem::from)?;
                }
                () = tokio::time::sleep(LAST_EVENTS_LIMIT), if matches!(answer, Some(Some(_))) => {
                    own.has_ended = true;
                }
            }
        };
        if json {
            if let Some(answer) = daemon.answer(start.method()) {
                self.screen.raw(&answer)?;
            }
            return Ok(ended);
        }
        self.screen.end_turn()?;
        if let Some(resumed) = ended.turn().and_then(|turn| turn.resumed.as_ref()) {
            self.resumed(resumed)?;
        }
        self.screen.usage_line()?;
        Ok(ended)
    }

    /// The problem of a user who does not wait for the end.
    fn left(&mut self) -> Problem {
        self.has_left = true;
        let id = words::short_id(self.id);
        Problem::new(Exit::Failed, "left before the turn ended").hint(format!(
            "the daemon continues it; follow it with: sessionctl attach {id}"
        ))
    }

    /// Leaves the terminal as it was found.
    fn quiet(&mut self) {
        self.screen.still();
        if let Some(person) = &mut self.person {
            person.rest();
        }
    }

    /// Takes an event in, and shows it where it belongs to what is followed.
    fn event(&mut self, followed: &Followed, start: &Start, own: &mut OwnTurn) -> Outcome {
        let event = &followed.envelope.event;
        let watches = matches!(start, Start::Watch);
        let json = self.screen.output.json;
        match event {
            Event::PromptAccepted { turn_id, prompt } => {
                let is_own = match start {
                    Start::Watch => true,
                    Start::Running => own.id.as_ref() == Some(turn_id),
                    // Only one prompt can be accepted, unless this one waits: then another's may have the same words, and
                    // its turn ends before this one's answer comes.
                    _ => {
                        (own.id.is_none() || own.has_ended)
                            && start
                                .waits_as()
                                .is_none_or(|own| own.to_text() == prompt.to_text())
                    }
                };
                if !is_own {
                    own.is_behind_another |= own.id.is_none();
                    return Ok(());
                }
                own.id = Some(turn_id.clone());
                own.has_ended = false;
                if watches && !json {
                    self.prompt(prompt)?;
                }
                if !json {
                    self.screen.spin();
                }
                Ok(())
            }
            Event::Update { turn_id, update } => match watches || (turn_id.is_some() && *turn_id == own.id) {
                true if !json => self.screen.update(update),
                _ => Ok(()),
            },
            Event::TurnEnded { turn } => {
                if own.id.as_ref() != Some(&turn.turn_id) && !watches {
                    own.is_behind_another = false;
                    return Ok(());
                }
                if watches {
                    return if json { Ok(()) } else { self.turn_ended(turn) };
                }
                own.has_ended = true;
                own.result = Some(turn.clone());
                Ok(())
            }
            Event::Snapshot {
                conversation,
                gap,
                running,
                ..
            } => {
                self.folder.clone_from(&conversation.cwd);
                let is_own = own.seen(running.as_ref().map(|running| &running.turn_id), start);
                if *gap && is_own {
                    self.screen.aside("some of the output was missed")?;
                }
                if watches {
                    let title = one_line(&conversation.title);
                    let (id, state) = (words::short_id(conversation.id), words::state(conversation.state));
                    self.screen.aside(&format!("{id} {title} ({state})"))?;
                    self.queued = 0;
                    self.queue(conversation)?;
                }
                match running {
                    _ if json => {}
                    Some(running) if is_own && matches!(start, Start::Watch | Start::Running) => {
                        self.prompt(&running.prompt)?;
                        self.screen.spin();
                        for update in &running.updates {
                            self.screen.update(update)?;
                        }
                    }
                    Some(_) if !is_own && start.waits_as().is_some() => {
                        self.screen
                            .aside("another turn is running; this prompt is queued")?;
                    }
                    _ => {}
                }
                self.questions.clear();
                match is_own || watches {
                    true => self.questions.extend(conversation.interrupts.iter().cloned()),
                    // Those of the own turn are asked again once it is known how that ended.
                    false if own.id.is_some() && !json => {}
                    false => self.questions_of_others(&conversation.interrupts)?,
                }
                self.ask()
            }
            Event::Updated { conversation } if watches => self.queue(conversation),
            Event::InterruptRaised { interrupt } if own.id.is_none() && !watches => {
                self.questions_of_others([interrupt])
            }
            Event::InterruptRaised { interrupt } => {
                self.questions.push_back(interrupt.clone());
                match self.questions.len() {
                    1 => self.ask(),
                    _ => Ok(()),
                }
            }
            Event::InterruptResolved { interrupt_id, by, .. } => self.resolved(interrupt_id, by),
            Event::Resumed { resumed } if !own.is_behind_another => self.resumed(resumed),
            Event::ForeignWriter { upstream_id } => {
                let session = one_line(upstream_id.as_str());
                let what = format!(
                    "another program writes to session {session}: end one of the two, or answers are lost"
                );
                self.screen.styled(ATTENTION, &what)
            }
            Event::Closed {} if watches => self
                .screen
                .aside("the session was closed; the next prompt reopens it"),
            Event::Reset {} if watches => self.screen.aside("a new chat was started"),
            Event::Deleted {} => {
                own.has_ended = true;
                self.screen.aside("the conversation was deleted")
            }
            _ => Ok(()),
        }
    }

    /// A turn that is only watched has ended.
    fn turn_ended(&mut self, turn: &TurnResult) -> Outcome {
        self.screen.end_turn()?;
        self.screen.usage_line()?;
        match self.problem_of(turn) {
            Some(problem) => {
                let message = one_line(&problem.message.unwrap_or_default());
                self.screen.styled(ATTENTION, &message)
            }
            None => Ok(()),
        }
    }

    fn prompt(&mut self, prompt: &PromptContent) -> Outcome {
        self.screen
            .styled(STRONG, &format!("> {}", one_line(&prompt.to_text())))
    }

    /// Says how many prompts are queued, when that has changed.
    fn queue(&mut self, conversation: &Conversation) -> Outcome {
        let queued = conversation.queue.len();
        if std::mem::replace(&mut self.queued, queued) == queued || queued == 0 {
            return Ok(());
        }
        let prompts = words::count(queued as u64, "prompt is", "prompts are");
        self.screen.aside(&format!("{prompts} queued"))
    }

    /// Says how the session was reopened, when something is missing and was not said yet.
    fn resumed(&mut self, resumed: &Resumed) -> Outcome {
        if resumed.fidelity == Fidelity::Full || std::mem::replace(&mut self.said_resumed, true) {
            return Ok(());
        }
        self.screen.styled(ATTENTION, &words::resumed(resumed))
    }

    /// The problem of a turn that did not simply end well.
    pub(super) fn problem_of(&self, turn: &TurnResult) -> Option<Problem> {
        let id = words::short_id(self.id);
        let failure = turn.failure.as_ref();
        let is_said = failure.is_some_and(|failure| self.screen.has_said(&failure.message));
        let problem = failure::problem_of(turn, &id, is_said, Timestamp::now(), &TimeZone::system())?;
        Some(match self.is_given_up {
            true => Problem::new(
                problem.exit,
                "the turn was cut short, and its question was refused",
            )
            .hint(format!("send the next prompt: sessionctl send {id} 'Continue'")),
            false => problem,
        })
    }
}

impl OwnTurn {
    /// A turn of this id.
    fn of(id: TurnId) -> Self {
        Self {
            id: Some(id),
            ..Self::default()
        }
    }

    /// Compares with the turn that runs now; whether that is the own one.
    fn seen(&mut self, running: Option<&TurnId>, start: &Start) -> bool {
        match (start, &self.id) {
            (Start::Watch, _) => true,
            (Start::Running, None) => {
                self.id = running.cloned();
                self.has_ended = running.is_none();
                running.is_some()
            }
            (_, None) => {
                self.is_behind_another = running.is_some();
                false
            }
            // Cut off and too late for the missed events: what is not running any more has ended.
            (_, Some(own)) => {
                let is_own = running == Some(own);
                self.has_ended = !is_own;
                is_own
            }
        }
    }
}

/// The daemon, once one answers again.
async fn returned(reach: &Reach) -> Outcome<Daemon> {
    let looking = async {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Some(daemon) = reach.find().await? {
                return Ok(daemon);
            }
        }
    };
    tokio::time::timeout(RETURN_LIMIT, looking)
        .await
        .unwrap_or_else(|_| {
            let message = format!("no daemon has answered for {} s", RETURN_LIMIT.as_secs());
            Err(Problem::new(Exit::NoDaemon, message)
                .hint("nothing is lost; the next command starts it: sessionctl ls"))
        })
}

/// Waits for a call that may not have been made.
async fn finished<F: Future + Unpin>(call: &mut Option<F>) -> F::Output {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

/// Shows how far a call has come, where that is watched.
async fn shown(watch: &mut Option<Watch<'_>>) {
    match watch {
        Some(watch) => watch.show().await,
        None => std::future::pending().await,
    }
}

/// The next key of a person, if there is one.
async fn typed(person: &mut Option<Person>) -> Option<char> {
    match person {
        Some(person) => person.key().await,
        None => std::future::pending().await,
    }
}
