//! One followed conversation: a turn from what starts it to its end, or everything until the user leaves.
//!
//! It owns the one loop that `chat`, `send`, `edit`, `continue` and `attach` share: events, the answer, keys, Ctrl-C, and a
//! daemon that dies meanwhile. A turn is started under a request id, so that starting it again on the next daemon joins it or
//! returns its result. It must not know what the turn is about.

mod events;
mod failure;
mod questions;

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bridge_protocol::conversation::{ContinueAt, Conversation, ConversationState, EditAnswer, OnBusy};
use bridge_protocol::method::{self, Method as _};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{FailureKind, Interrupt, TurnResult};
use bridge_protocol::{ConversationId, Cursor, InterruptId, TurnId};
use clap::ValueEnum;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

pub(super) use self::events::change_elsewhere;
use self::questions::Asked;
use super::keys::Person;
use super::screen::Screen;
use crate::cli::advice::{Advice, Call};
use crate::cli::commands::Context;
use crate::cli::connect::{Daemon, Reach};
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
use crate::cli::output::{ATTENTION, StreamLine};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::Figures;
use crate::cli::signals::Interrupts;
use crate::cli::words::{self, Clock};

/// How long to wait for the next event of a turn whose answer has come. They come before the answer; only a subscription that
/// was cut off has to fetch them again.
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
    /// Exit with code 8; the question stays open for sessionctl answer
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
    /// The turn that runs already, or the one that the answers to the open questions start.
    Running,
    /// The turn that another client began after this event.
    Since(Cursor),
    /// Everything, until the user leaves.
    Watch,
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
    interrupts: Interrupts,
    /// The question that is asked before all others. Until it is answered Ctrl-C leaves it open.
    pub(super) asked_first: Option<InterruptId>,
    /// The open questions; the first is the one that is asked.
    questions: VecDeque<Interrupt>,
    /// That one as it was shown to the person who answers it.
    asked: Option<Asked>,
    /// The questions that were reported because nobody is here to answer.
    reported: BTreeSet<InterruptId>,
    /// The question that was answered here.
    answered: Option<InterruptId>,
    /// Whether the last question of a turn that is over was refused: then nothing continues it.
    was_refused: bool,
    /// Whether another prompt was sent before this command could continue the interrupted turn.
    was_passed: bool,
    said_resumed: bool,
    /// Whether the user left before the end.
    pub(super) has_left: bool,
    /// What came of an edit.
    pub(super) edited: Option<EditAnswer>,
    /// The last event that was shown.
    after: Option<Cursor>,
    /// How many queued prompts were reported last.
    queued: usize,
    /// Whether the last turn is still to be shown, because none runs.
    shows_last_turn: Option<bool>,
    /// The conversation before this prompt, if a turn waits for its limit there, or for a time.
    waiting: Option<Conversation>,
}

/// What is known of the turn that is followed.
#[derive(Debug, Default)]
struct OwnTurn {
    id: Option<TurnId>,
    has_ended: bool,
    result: Option<TurnResult>,
}

/// The answer to what starts a turn.
struct Started {
    turn: Option<TurnResult>,
    /// What came of an edit.
    edited: Option<EditAnswer>,
    raw: RawJson,
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

    /// Starts it. Never resolves for what is only followed.
    async fn call(&self, daemon: &Daemon) -> Outcome<Started> {
        let (turn, edited, raw) = match self {
            Self::Prompt(prompt) => {
                let (turn, raw) = daemon.call_raw(prompt.clone()).await?;
                (Some(turn), None, raw)
            }
            Self::Edit(edit) => {
                let (answer, raw) = daemon.call_raw(edit.clone()).await?;
                (Some(answer.turn.clone()), Some(answer), raw)
            }
            Self::Continue(at) => (None, None, daemon.call_raw(at.clone()).await?.1),
            Self::Running | Self::Since(_) | Self::Watch => std::future::pending().await,
        };
        Ok(Started { turn, edited, raw })
    }

    /// The method that starts it; nothing for what runs without it.
    fn method(&self) -> Option<&'static str> {
        match self {
            Self::Prompt(_) => Some(method::Prompt::NAME),
            Self::Edit(_) => Some(method::Edit::NAME),
            Self::Continue(_) => Some(method::Continue::NAME),
            Self::Running | Self::Since(_) | Self::Watch => None,
        }
    }

    fn watches(&self) -> bool {
        matches!(self, Self::Watch)
    }

    /// The prompt that it sends; nothing for what sends none of this command's.
    fn sends(&self) -> Option<&PromptContent> {
        match self {
            Self::Prompt(prompt) => Some(&prompt.prompt),
            Self::Edit(edit) => Some(&edit.prompt),
            Self::Continue(_) | Self::Running | Self::Since(_) | Self::Watch => None,
        }
    }

    /// The prompt, if other prompts may be accepted before it.
    fn queued_prompt(&self) -> Option<&PromptContent> {
        match self {
            Self::Prompt(prompt) if prompt.on_busy == OnBusy::Queue => Some(&prompt.prompt),
            _ => None,
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
    ) -> Self {
        let is_attended = on_question.is_none() && !context.output.json;
        Self {
            reach: &context.reach,
            daemon,
            screen: Screen::new(context.output),
            id: conversation.id,
            folder: conversation.cwd.clone(),
            person: if is_attended { Person::find() } else { None },
            unattended: on_question.unwrap_or(OnQuestion::Leave),
            interrupts: Interrupts::listen(),
            asked_first: None,
            questions: VecDeque::new(),
            asked: None,
            reported: BTreeSet::new(),
            answered: None,
            was_refused: false,
            was_passed: false,
            said_resumed: false,
            has_left: false,
            edited: None,
            after: None,
            queued: 0,
            shows_last_turn: None,
            waiting: None,
        }
    }

    /// The last event that was shown.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.after.clone()
    }

    /// The connection.
    pub(super) fn daemon(&self) -> Rc<Daemon> {
        Rc::clone(&self.daemon)
    }

    /// Advice about the conversation.
    pub(super) fn advice(&self) -> Advice {
        self.screen.output.advice(self.id)
    }

    /// Whether questions can be asked here.
    pub(super) fn is_attended(&self) -> bool {
        self.person.is_some()
    }

    /// Follows to the end of the turn, over restarts of the daemon. If the turn was interrupted by one, it is continued. Nothing
    /// is returned where there is nothing to follow any more.
    ///
    /// # Errors
    /// What the daemon answers, that the user left, or that a question stays open.
    pub(super) async fn follow(&mut self, start: Start) -> Outcome<Option<TurnResult>> {
        let (mut start, mut own) = (start, OwnTurn::default());
        let (mut deaths, mut cut) = (0, None);
        self.after = match &start {
            Start::Since(event) => Some(event.clone()),
            // Events between two turns answer no prompt.
            _ => None,
        };
        loop {
            let ended = self.attempt(&start, &mut own).await;
            self.pause()?;
            match ended {
                // What a daemon refuses because it stops is its answer, and one that does not answer still holds the turn.
                Err(problem) if problem.is_lost_connection() => {
                    if deaths == DEATHS_LIMIT {
                        return Err(problem);
                    }
                    deaths += 1;
                    if !self.reconnect(&start, problem).await? {
                        return Ok(None);
                    }
                    if start.queued_prompt().is_some() && own.id.is_none() && !self.screen.output.json {
                        self.continue_first().await?;
                    }
                }
                // Another client's prompt was sent meanwhile.
                Err(problem) if problem.exit == Exit::Busy && cut.is_some() => {
                    self.was_passed = true;
                    return Ok(cut);
                }
                // A client that only watches may leave at any time.
                Err(problem) if start.watches() && self.has_left && problem.exit == Exit::Failed => {
                    return Ok(None);
                }
                Err(problem) => return Err(self.with_follow_hint(problem, &start, &own)),
                Ok(ended) => {
                    let next = self.next(&start, ended.as_ref(), deaths > 0).await?;
                    cut = ended.or(cut);
                    (start, own) = match next {
                        Some(next) => (next, OwnTurn::default()),
                        None => return Ok(cut),
                    };
                }
            }
        }
    }

    /// What is followed next because the process of a turn ended before the turn did: what the answer to its open question
    /// starts, else what continues it if its daemon died. Programs decide themselves what is to become of it.
    async fn next(
        &mut self,
        start: &Start,
        ended: Option<&TurnResult>,
        daemon_died: bool,
    ) -> Outcome<Option<Start>> {
        let failure = ended
            .and_then(|turn| turn.failure.as_ref())
            .map(|failure| failure.kind);
        let (may_ask, is_cut_short) = match (ended, failure) {
            // It is not running any more, and no event said how it ended.
            (None, _) => (daemon_died, true),
            (_, Some(FailureKind::DaemonRestarted)) => (true, true),
            (_, Some(FailureKind::AgentDied)) => (true, false),
            _ => (false, false),
        };
        if !may_ask || self.was_refused || self.screen.output.json || start.watches() {
            return Ok(None);
        }
        let get = method::GetConversation::of(self.id);
        let daemon = self.daemon();
        let open = self.waited(daemon.call(get)).await?.conversation.interrupts;
        if open.iter().any(|interrupt| interrupt.orphaned) {
            // The snapshot has them.
            self.after = None;
            return Ok(Some(Start::Running));
        }
        if !(daemon_died && is_cut_short) {
            return Ok(None);
        }
        self.screen.aside("the turn was interrupted; continuing it")?;
        Ok(Some(Start::Continue(continue_now(self.id))))
    }

    /// Waits for the next daemon, and starts one unless this only watches. False if the user left meanwhile.
    async fn reconnect(&mut self, start: &Start, lost: Problem) -> Outcome<bool> {
        let may_start = self.reach.may_start && !start.watches();
        let lost = lost.words();
        let next = match may_start {
            true => "starting it again".to_owned(),
            false => format!("waiting up to {} s for it", RETURN_LIMIT.as_secs()),
        };
        self.screen.styled(ATTENTION, &format!("{lost}; {next}"))?;
        let daemon = tokio::select! {
            biased;
            () = self.interrupts.next() => match start {
                Start::Watch => return Ok(false),
                _ => return Err(self.stopped_waiting()),
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

    /// Has the turn continued that the daemon's end interrupted, and the prompts that were queued behind it, of which this is one.
    async fn continue_first(&mut self) -> Outcome {
        let daemon = self.daemon();
        match self.waited(daemon.call(continue_now(self.id))).await {
            Err(left) if self.has_left => Err(left),
            // What is refused is continued already, or asks a question.
            _ => Ok(()),
        }
    }

    /// Follows over one connection.
    async fn attempt(&mut self, start: &Start, own: &mut OwnTurn) -> Outcome<Option<TurnResult>> {
        let daemon = self.daemon();
        // Subscribed first, so that nothing of the turn is missed.
        let after = self.after.clone();
        let mut follower = self
            .waited(Follower::start(&daemon, self.id.into(), after))
            .await?;
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
    ) -> Outcome<Option<TurnResult>> {
        let json = self.screen.output.json;
        let mut call = pin!(start.call(daemon));
        let figures = start.method().filter(|_| self.screen.output.is_watched());
        let mut figures = figures.map(|method| Figures::of(daemon, method));
        let (mut answer, mut cancelling, mut has_cancelled) = (None, None, false);
        while !own.has_ended || (answer.is_none() && start.method().is_some()) {
            tokio::select! {
                biased;
                // Before the events, of which a slow terminal may have many to show.
                () = self.interrupts.next() => {
                    figures = None;
                    if start.watches() {
                        return Ok(None);
                    }
                    if let Some(open) = self.questions.front()
                        && (self.asked_first.as_ref() == Some(&open.id) || own.id.is_none())
                    {
                        return Err(self.stays_open(Exit::Failed));
                    }
                    if start.queued_prompt().is_some() && own.id.is_none() {
                        return Err(self.stays_queued());
                    }
                    if std::mem::replace(&mut has_cancelled, true) {
                        return Err(self.left());
                    }
                    self.screen.aside("cancelling; Ctrl-C again leaves at once")?;
                    cancelling = Some(Box::pin(daemon.call(method::Cancel {
                        conversation_id: self.id.into(),
                        turn_id: own.id.clone(),
                        ..Default::default()
                    })));
                }
                // The answer comes after the last event; a daemon that stops closes the connection behind it.
                followed = follower.next(), if !own.has_ended => {
                    let followed = followed?;
                    if json {
                        self.screen.output.stream(&StreamLine::Event(&followed.raw))?;
                    }
                    self.event(&followed, start, own)?;
                    if own.id.is_some() || self.asks() {
                        figures = None;
                    }
                    self.leave_unattended().await?;
                    if self.shows_last_turn == Some(true) {
                        self.shows_last_turn = Some(false);
                        self.last_turn().await?;
                    }
                }
                work = maybe(figures.as_mut().map(Figures::next)) => self.screen.working(work.as_ref()),
                answered = &mut call, if answer.is_none() => {
                    figures = None;
                    answer = Some(answered?);
                }
                typed = maybe(self.person.as_mut().zip(self.asked.as_ref()).map(|(person, asked)| person.answer(&asked.keys))) => {
                    self.take_answer(typed).await?;
                    self.leave_unattended().await?;
                }
                cancelled = maybe(cancelling.as_mut()) => {
                    cancelling = None;
                    cancelled?;
                }
                () = tokio::time::sleep(LAST_EVENTS_LIMIT), if matches!(answer, Some(Started { turn: Some(_), .. })) => {
                    own.has_ended = true;
                }
            }
        }
        let mut ended = own.result.take();
        if let Some(Started { turn, edited, raw }) = answer {
            ended = turn.or(ended);
            self.edited = edited.or(self.edited.take());
            if json {
                self.screen.output.stream(&StreamLine::Result(&raw))?;
            }
        }
        if json {
            return Ok(ended);
        }
        self.screen.end_turn()?;
        if let Some(resumed) = ended.as_ref().and_then(|turn| turn.resumed.as_ref()) {
            self.resumed(resumed)?;
        }
        self.screen.usage_line()?;
        if let Some(waiting) = self.waiting.take() {
            self.note_displaced(daemon, &waiting).await?;
        }
        Ok(ended)
    }

    /// The user leaves before the end, also a chat: the next command is typed in a shell.
    fn leave(&mut self) {
        self.has_left = true;
        self.screen.output.in_chat = false;
    }

    /// The problem of a user who does not wait for the end.
    fn left(&mut self) -> Problem {
        self.leave();
        let id = words::short_id(self.id);
        Problem::new(Exit::Failed, "stopped following; the turn is still running")
            .hint(format!("follow it with: sessionctl attach {id}"))
    }

    /// The problem of a user who leaves before the queued prompt is sent.
    fn stays_queued(&mut self) -> Problem {
        let id = words::short_id(self.id);
        self.stopped_waiting().hint(format!(
            "if the prompt is queued, it is still sent; withdraw it: sessionctl cancel {id} --queued"
        ))
    }

    /// The problem of a user who leaves before it is known whether the turn runs.
    fn stopped_waiting(&mut self) -> Problem {
        self.leave();
        let id = words::short_id(self.id);
        Problem::new(Exit::Failed, "stopped waiting for the daemon")
            .hint(format!("check whether the turn runs: sessionctl attach {id}"))
    }

    /// The same problem; if the daemon does not answer any more, with the command that shows what becomes of the turn.
    fn with_follow_hint(&self, problem: Problem, start: &Start, own: &OwnTurn) -> Problem {
        let is_unanswered = problem.exit == Exit::NoDaemon && problem.kind().is_none();
        let Some(hint) = problem.hint.clone().filter(|_| is_unanswered) else {
            return problem;
        };
        let why = match (&own.id, start.method()) {
            (Some(_), _) => "the turn continues when the daemon does; to follow it",
            (None, Some(_)) => "to see whether the turn has begun",
            (None, None) => "to follow it again",
        };
        let id = words::short_id(self.id);
        problem.hint(format!("{hint}; {why}: sessionctl attach {id}"))
    }

    /// Waits for the daemon unless the user leaves meanwhile.
    ///
    /// # Errors
    /// That the user left, or what the work gives.
    async fn waited<T>(&mut self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.interrupts.next() => Err(self.stopped_waiting()),
        }
    }

    /// Shows what has not ended its line, and leaves the terminal as it was found.
    fn pause(&mut self) -> Outcome {
        self.screen.still();
        if let Some(person) = &mut self.person {
            person.release();
        }
        self.screen.end_stream()
    }

    /// The problem of a turn that did not simply end well.
    pub(super) fn problem_of(&self, turn: &TurnResult) -> Option<Problem> {
        let advice = self.advice();
        let failure = turn.failure.as_ref();
        let is_said = failure.is_some_and(|failure| self.screen.has_said(&failure.message));
        let problem = failure::problem_of(turn, &advice, is_said, &Clock::here())?;
        let interrupted = |how: &str| Problem::new(problem.exit, format!("the turn was interrupted, {how}"));
        Some(match (self.was_refused, self.was_passed) {
            (true, _) => interrupted("and its question was refused").hint(format!(
                "send the next prompt: {}",
                advice.command(Call::Send("Continue"))
            )),
            (false, true) => interrupted("and another prompt was sent before it could be continued")
                .hint(format!("see what was said: {}", advice.command(Call::History))),
            (false, false) => problem,
        })
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
            Err(Problem::new(Exit::NoDaemon, message).hint("the next command starts it: sessionctl ls"))
        })
}

/// Waits for a future if there is one, else for ever.
async fn maybe<F: Future>(awaited: Option<F>) -> F::Output {
    match awaited {
        Some(awaited) => awaited.await,
        None => std::future::pending().await,
    }
}

/// Whether a turn runs in a conversation of this state.
pub(in crate::cli) fn is_running(state: ConversationState) -> bool {
    matches!(
        state,
        ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling
    )
}
