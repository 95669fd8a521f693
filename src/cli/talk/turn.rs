//! Follows a conversation: one turn from its start to its end, or all events until the user leaves.
//!
//! It owns the loop that `chat`, `send`, `edit`, `continue` and `attach` share. The loop handles events, the daemon's answer,
//! keys, Ctrl-C, and a daemon that dies. A turn is started under a request id: if the call is repeated on the next daemon, it
//! joins the running turn or returns its result. The loop must not know what the turn is about.

mod events;
mod questions;

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bridge_protocol::conversation::{
    ContinueAt, Conversation, ConversationState, EditAnswer, OnBusy, Settings,
};
use bridge_protocol::event::Event;
use bridge_protocol::method::{self, Method as _};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{FailureKind, Interrupt, StopReason, TurnResult};
use bridge_protocol::{ConversationId, Cursor, InterruptId, TurnId};
use clap::ValueEnum;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

pub(super) use self::events::{changed_settings, describe_other_clients_change, turns_missing};
use super::answer_reader::AnswerReader;
use super::question::Question;
use super::screen::Screen;
use crate::cli::advice::Advice;
use crate::cli::commands::Context;
use crate::cli::connect::{Daemon, DaemonConnector};
use crate::cli::event_stream::{self, EventStream};
use crate::cli::humanize::{self, Clock};
use crate::cli::keyboard;
use crate::cli::output::{ATTENTION, DIM, one_line, truncate};
use crate::cli::problem::{self, CommandResult, Exit, Problem};
use crate::cli::progress::ProgressPoller;
use crate::cli::signals::{self, CtrlCListener};

/// How long to wait for the state after a cancelled turn, which shows why it was cancelled.
const STATE_AFTER_TURN_LIMIT: Duration = Duration::from_secs(10);

/// How long to wait for a daemon to restart: longer than a start that rebuilds a large store takes.
const DAEMON_RETURN_LIMIT: Duration = Duration::from_secs(60);

/// How often to look for a daemon. The system does not notify a process when another one begins to listen.
pub(super) const DAEMON_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How many daemons may die during one turn. If more die, the turn itself may be the cause.
const DAEMON_DEATHS_LIMIT: u32 = 3;

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

/// What a `ConversationFollower` follows.
#[derive(Clone, Debug)]
pub(super) enum FollowTarget {
    /// The turn of a new prompt.
    Prompt(method::Prompt),
    /// The turn that replaces an earlier one.
    Edit(method::Edit),
    /// The turn that continues an interrupted one.
    Continue(method::Continue),
    /// The running turn, or the one that the answers to the open questions start.
    Running,
    /// The turn that began after this event: another client's, or that of a queued prompt.
    Since(Cursor),
    /// All events, until the user leaves.
    Watch,
}

/// Follows a conversation: shows its events, asks the agent's questions and handles Ctrl-C.
pub(super) struct ConversationFollower<'a> {
    connector: &'a DaemonConnector,
    daemon: Rc<Daemon>,
    /// The view of the conversation on the terminal.
    pub(super) screen: Screen<'a>,
    /// The conversation.
    pub(super) id: ConversationId,
    /// The folder that it runs in.
    folder: String,
    answer_reader: Option<AnswerReader>,
    /// How to handle questions if no user is here to answer them.
    pub(super) on_question: OnQuestion,
    ctrl_c: CtrlCListener,
    /// The question to ask before all others. While it is open, Ctrl-C leaves it open.
    pub(super) priority_question: Option<InterruptId>,
    /// The open questions; the first one is being asked.
    questions: VecDeque<Interrupt>,
    /// The first open question as the user saw it. The answer refers to this text, even if the question changes meanwhile.
    shown_question: Option<Question>,
    /// The questions that were reported because no user is here to answer them.
    reported_questions: BTreeSet<InterruptId>,
    /// Whether the last question of a turn that has ended was rejected: no new turn follows then.
    was_question_refused: bool,
    /// Whether another prompt was sent before this command could continue the interrupted turn.
    was_overtaken: bool,
    /// Whether the daemon was stopped during the last turn.
    was_stopped: bool,
    has_reported_resume: bool,
    /// Whether the user was notified that the daemon is silent.
    has_reported_silence: bool,
    /// Whether the user left before the end.
    pub(super) has_user_left: bool,
    /// The result of an edit.
    pub(super) edit_answer: Option<EditAnswer>,
    /// The last event that was shown.
    pub(super) last_cursor: Option<Cursor>,
    /// The settings as they were last reported.
    pub(super) settings: Settings,
    /// How many queued prompts were reported last.
    reported_queue_length: usize,
    /// Whether the last turn is yet to be shown, because no turn runs.
    last_turn_pending: Option<bool>,
    /// The conversation before this prompt was sent, if a turn in it waits for its limit's reset or a scheduled time.
    waiting_before: Option<Conversation>,
}

/// State of the turn that is followed.
#[derive(Debug, Default)]
struct FollowedTurn {
    id: Option<TurnId>,
    has_ended: bool,
    result: Option<TurnResult>,
}

/// The daemon's answer to the call that starts a turn: the turn, the result of an edit, and the bytes of the answer.
type StartAnswer = (Option<TurnResult>, Option<EditAnswer>, RawJson);

impl FollowTarget {
    /// A new prompt, under an id of its own.
    pub(super) fn prompt(id: ConversationId, prompt: PromptContent) -> method::Prompt {
        method::Prompt {
            conversation_id: id.into(),
            prompt,
            request_id: Some(request_id()),
            ..Default::default()
        }
    }

    /// Starts the turn. Never resolves if the target is only followed.
    async fn call(&self, daemon: &Daemon) -> CommandResult<StartAnswer> {
        Ok(match self {
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
        })
    }

    /// Name of the method that starts the turn, or `None` if the target is only followed.
    fn method(&self) -> Option<&'static str> {
        match self {
            Self::Prompt(_) => Some(method::Prompt::NAME),
            Self::Edit(_) => Some(method::Edit::NAME),
            Self::Continue(_) => Some(method::Continue::NAME),
            Self::Running | Self::Since(_) | Self::Watch => None,
        }
    }

    fn is_watch_only(&self) -> bool {
        matches!(self, Self::Watch)
    }

    /// The prompt that this command sends, if it sends one.
    fn sent_prompt(&self) -> Option<&PromptContent> {
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

/// The call that continues a conversation now.
pub(super) fn continue_now(id: ConversationId) -> method::Continue {
    method::Continue {
        conversation_id: id.into(),
        at: Some(ContinueAt::Now),
        request_id: Some(request_id()),
        ..Default::default()
    }
}

/// Creates a request id.
pub(super) fn request_id() -> String {
    format!("sessionctl-{}", Uuid::new_v4())
}

impl<'a> ConversationFollower<'a> {
    /// Creates a follower that does not follow anything yet. With `on_question` or `--json` the user is not asked.
    pub(super) fn new(
        context: &'a mut Context<'_>,
        daemon: Rc<Daemon>,
        conversation: &Conversation,
        on_question: Option<OnQuestion>,
    ) -> Self {
        let is_attended = on_question.is_none() && !context.output.json;
        Self {
            connector: &context.connector,
            daemon,
            screen: Screen::new(context.output),
            id: conversation.id,
            folder: conversation.cwd.clone(),
            answer_reader: if is_attended { AnswerReader::open() } else { None },
            on_question: on_question.unwrap_or(OnQuestion::Leave),
            ctrl_c: CtrlCListener::listen(),
            priority_question: None,
            questions: VecDeque::new(),
            shown_question: None,
            reported_questions: BTreeSet::new(),
            was_question_refused: false,
            was_overtaken: false,
            was_stopped: false,
            has_reported_resume: false,
            has_reported_silence: false,
            has_user_left: false,
            edit_answer: None,
            last_cursor: None,
            settings: conversation.settings.clone(),
            reported_queue_length: 0,
            last_turn_pending: None,
            waiting_before: None,
        }
    }

    /// The connection.
    pub(super) fn daemon(&self) -> Rc<Daemon> {
        Rc::clone(&self.daemon)
    }

    /// Advice about the conversation.
    pub(super) fn advice(&self) -> Advice {
        self.screen.output.advice(self.id)
    }

    /// Whether a user is here to answer questions.
    pub(super) fn is_attended(&self) -> bool {
        self.answer_reader.is_some()
    }

    /// Follows to the end of the turn, across restarts of the daemon. A turn that a restart interrupted is continued. Returns
    /// `None` if nothing is left to follow.
    ///
    /// # Errors
    /// The daemon returns an error, the user left, or a question stays open.
    pub(super) async fn follow(&mut self, start: FollowTarget) -> CommandResult<Option<TurnResult>> {
        let (mut start, mut own) = (start, FollowedTurn::default());
        let (mut deaths, mut cut) = (0, None);
        self.last_cursor = match &start {
            FollowTarget::Since(event) => Some(event.clone()),
            // Events between two turns answer no prompt.
            _ => None,
        };
        loop {
            let ended = self.follow_on_connection(&start, &mut own).await;
            self.release_terminal()?;
            match ended {
                // Only a lost connection is retried: a stopping daemon's refusal is an answer; a silent daemon still has the
                // turn.
                Err(problem) if problem.is_lost_connection() => {
                    if deaths == DAEMON_DEATHS_LIMIT {
                        return Err(problem);
                    }
                    deaths += 1;
                    if !self.reconnect(&start, problem).await? {
                        return Ok(None);
                    }
                    if start.queued_prompt().is_some() && own.id.is_none() && !self.screen.output.json {
                        self.continue_interrupted_turn().await?;
                    }
                }
                // Another client's prompt was sent meanwhile.
                Err(problem) if problem.exit == Exit::Busy && cut.is_some() => {
                    self.was_overtaken = true;
                    return Ok(cut);
                }
                // A client that only watches may leave at any time.
                Err(problem)
                    if start.is_watch_only() && self.has_user_left && problem.exit == Exit::Failed =>
                {
                    return Ok(None);
                }
                Err(problem) => return Err(self.with_follow_hint(problem, &start, &own)),
                Ok(ended) => {
                    let next = self.next_target(&start, ended.as_ref(), deaths > 0).await?;
                    cut = ended.or(cut);
                    (start, own) = match next {
                        Some(next) => (next, FollowedTurn::default()),
                        None => return Ok(cut),
                    };
                }
            }
        }
    }

    /// What to follow next after the process of a turn ended before the turn did: the turn that the answer to its open question
    /// starts, otherwise the turn that continues it if its daemon died. With `--json` the caller decides how to proceed.
    async fn next_target(
        &mut self,
        start: &FollowTarget,
        ended: Option<&TurnResult>,
        daemon_died: bool,
    ) -> CommandResult<Option<FollowTarget>> {
        let failure = ended
            .and_then(|turn| turn.failure.as_ref())
            .map(|failure| failure.kind);
        let (may_ask, is_cut_short) = match (ended, failure) {
            // The turn is not running any more, and no event reported how it ended.
            (None, _) => (daemon_died, true),
            (_, Some(FailureKind::DaemonRestarted)) => (true, true),
            (_, Some(FailureKind::AgentDied)) => (true, false),
            _ => (false, false),
        };
        if !may_ask || self.was_question_refused || self.screen.output.json || start.is_watch_only() {
            return Ok(None);
        }
        let get = method::GetConversation::of(self.id);
        let daemon = self.daemon();
        let open = self
            .wait_unless_left(daemon.call(get))
            .await?
            .conversation
            .interrupts;
        if open.iter().any(|interrupt| interrupt.orphaned) {
            // The snapshot contains the open questions.
            self.last_cursor = None;
            return Ok(Some(FollowTarget::Running));
        }
        if !(daemon_died && is_cut_short) {
            return Ok(None);
        }
        self.screen.note_dim("the turn was cut short; continuing it")?;
        Ok(Some(FollowTarget::Continue(continue_now(self.id))))
    }

    /// Waits for the next daemon, and starts one unless the target is only watched. Returns false if the user left meanwhile.
    async fn reconnect(&mut self, start: &FollowTarget, lost: Problem) -> CommandResult<bool> {
        let may_start = self.connector.may_start && !start.is_watch_only();
        let lost = lost.text();
        let next = match may_start {
            true => "starting it again".to_owned(),
            false => format!("waiting up to {} s for it", DAEMON_RETURN_LIMIT.as_secs()),
        };
        self.screen.note_styled(ATTENTION, &format!("{lost}; {next}"))?;
        let daemon = tokio::select! {
            biased;
            () = self.ctrl_c.next_signal() => match start {
                FollowTarget::Watch => return Ok(false),
                _ => return Err(self.stopped_waiting_problem()),
            },
            daemon = async {
                match may_start {
                    true => self.connector.connect().await,
                    false => tokio::time::timeout(DAEMON_RETURN_LIMIT, wait_for_daemon(self.connector))
                        .await
                        .unwrap_or_else(|_| Err(no_daemon_returned())),
                }
            } => daemon?,
        };
        self.daemon = Rc::new(daemon);
        self.screen.note_dim("the daemon answers again")?;
        Ok(true)
    }

    /// Continues the turn that the end of the daemon interrupted, and thereby the prompts queued after it, including this one.
    async fn continue_interrupted_turn(&mut self) -> CommandResult {
        let daemon = self.daemon();
        match self.wait_unless_left(daemon.call(continue_now(self.id))).await {
            Err(left) if self.has_user_left => Err(left),
            // A refused turn is being continued already, or has an open question.
            _ => Ok(()),
        }
    }

    /// Follows on one connection, until the turn or the connection ends.
    async fn follow_on_connection(
        &mut self,
        start: &FollowTarget,
        own: &mut FollowedTurn,
    ) -> CommandResult<Option<TurnResult>> {
        let daemon = self.daemon();
        // Subscribe first, so that no event of the turn is missed.
        let after = self.last_cursor.clone();
        let mut events = self
            .wait_unless_left(EventStream::start(&daemon, self.id.into(), after))
            .await?;
        let ended = self.event_loop(&daemon, &mut events, start, own).await;
        self.last_cursor = events.cursor();
        // A prompt that was cancelled before it was accepted has no events.
        let seen = own.result.as_ref().map(|turn| &turn.turn_id);
        let is_cancelled =
            |turn: &TurnResult| turn.stop_reason == StopReason::Cancelled && seen == Some(&turn.turn_id);
        // The state after the turn shows whether a client cancelled it or the stop of the daemon.
        self.was_stopped = matches!(&ended, Ok(Some(turn)) if is_cancelled(turn))
            && tokio::select! {
                biased;
                () = self.ctrl_c.next_signal() => false,
                next = tokio::time::timeout(STATE_AFTER_TURN_LIMIT, events.next()) => matches!(
                    next,
                    Ok(Ok(next)) if matches!(next.envelope.event, Event::StateChanged { state: ConversationState::Interrupted })
                ),
            };
        ended
    }

    async fn event_loop(
        &mut self,
        daemon: &Daemon,
        events: &mut EventStream<'_>,
        start: &FollowTarget,
        own: &mut FollowedTurn,
    ) -> CommandResult<Option<TurnResult>> {
        let json = self.screen.output.json;
        let mut call = pin!(start.call(daemon));
        let figures = start.method();
        let mut figures = figures.and_then(|method| ProgressPoller::new(self.screen.output, daemon, method));
        let (mut answer, mut cancelling, mut has_cancelled) = (None::<StartAnswer>, None, false);
        let mut later_snapshot = None;
        let mut typing = signals::is_echo_off().then(|| Box::pin(keyboard::wait_until_typed()));
        while !own.has_ended || (answer.is_none() && start.method().is_some()) {
            tokio::select! {
                biased;
                // Checked before the events, because a slow terminal may have many of them to show.
                () = self.ctrl_c.next_signal() => {
                    figures = None;
                    if start.is_watch_only() {
                        return Ok(None);
                    }
                    if let Some(open) = self.questions.front()
                        && (self.priority_question.as_ref() == Some(&open.id) || own.id.is_none())
                    {
                        return Err(self.left_open_problem(Exit::Failed));
                    }
                    if start.queued_prompt().is_some() && own.id.is_none() {
                        return Err(self.left_queued_problem());
                    }
                    if std::mem::replace(&mut has_cancelled, true) {
                        return Err(self.left_problem());
                    }
                    self.screen.note_dim("cancelling; Ctrl-C again leaves at once")?;
                    cancelling = Some(Box::pin(daemon.call(method::Cancel {
                        conversation_id: self.id.into(),
                        turn_id: own.id.clone(),
                        ..Default::default()
                    })));
                }
                () = signals::continued() => {
                    if self.is_asking() {
                        self.release_keys();
                        self.show_question()?;
                    }
                }
                // The answer arrives after the last event, and a stopping daemon then closes the connection. The turn that has ended
                // may be another client's with the same prompt, if this one is queued.
                followed = events.next(), if !own.has_ended || (answer.is_none() && start.queued_prompt().is_some()) => {
                    let followed = followed?;
                    if json {
                        self.screen.output.stream("event", &followed.raw)?;
                    }
                    self.handle_event(&followed, start, own)?;
                    if own.id.is_some() || self.is_asking() {
                        figures = None;
                    }
                    self.handle_unattended_questions().await?;
                    if self.last_turn_pending == Some(true) {
                        self.last_turn_pending = Some(false);
                        self.show_last_turn().await?;
                    }
                }
                work = some_or_pending(figures.as_mut().map(ProgressPoller::next)) => self.screen.show_progress(work.as_ref()),
                answered = &mut call, if answer.is_none() => {
                    figures = None;
                    let answered = answered?;
                    // A turn's events arrive before its answer, unless the subscription still has to fetch them again: then
                    // they arrive before a snapshot that is requested later. If none did, they were sent before this connection
                    // subscribed, or the prompt was cancelled in the queue.
                    let is_unseen =
                        answered.0.as_ref().is_some_and(|turn| own.id.as_ref() != Some(&turn.turn_id));
                    own.has_ended |= is_unseen && events.is_subscribed();
                    if is_unseen && !events.is_subscribed() {
                        events.subscribe().await?;
                        later_snapshot = Some(Box::pin(event_stream::snapshot(daemon, self.id)));
                    }
                    answer = Some(answered);
                }
                typed = some_or_pending(self.answer_reader.as_mut().zip(self.shown_question.as_ref()).map(|(person, asked)| person.read_answer(asked.keys()))) => {
                    self.take_answer(typed).await?;
                    self.handle_unattended_questions().await?;
                }
                typed = some_or_pending(typing.as_mut()), if !self.is_asking() => {
                    let lines = typed.and_then(|()| keyboard::buffer_typed_text());
                    typing = lines.is_ok().then(|| Box::pin(keyboard::wait_until_typed()));
                    self.report_typed_lines(&lines.unwrap_or_default())?;
                }
                () = daemon.silent(), if !self.has_reported_silence => self.report_silence()?,
                cancelled = some_or_pending(cancelling.as_mut()) => {
                    cancelling = None;
                    cancelled?;
                }
                requested = some_or_pending(later_snapshot.as_mut()) => {
                    later_snapshot = None;
                    requested?;
                    own.has_ended = true;
                }
            }
        }
        let mut ended = own.result.clone();
        if let Some((turn, edited, raw)) = answer {
            ended = turn.or(ended);
            self.edit_answer = edited.or(self.edit_answer.take());
            if json {
                self.screen.output.stream("result", &raw)?;
            }
        }
        if json {
            return Ok(ended);
        }
        // The turn ended before this connection subscribed, as after a restart of the daemon: its events are gone. A turn that
        // was cancelled or failed may not have begun.
        if let Some(turn) = &ended
            && own.id.as_ref() != Some(&turn.turn_id)
            && turn.failure.is_none()
            && turn.stop_reason != StopReason::Cancelled
            && let Some(prompt) = start.sent_prompt()
        {
            self.show_turn_of(prompt).await?;
        }
        self.screen.end_turn()?;
        if let Some(resumed) = ended.as_ref().and_then(|turn| turn.resumed.as_ref()) {
            self.report_resume(resumed)?;
        }
        self.screen.usage_line()?;
        if let Some(waiting) = self.waiting_before.take() {
            self.report_displaced_turn(daemon, &waiting).await?;
        }
        Ok(ended)
    }

    /// Records that the user leaves before the end. This also leaves the chat: hints name commands for a shell from here on.
    fn mark_user_left(&mut self) {
        self.has_user_left = true;
        self.screen.output.in_chat = false;
    }

    /// The problem of a user who does not wait for the end.
    fn left_problem(&mut self) -> Problem {
        self.mark_user_left();
        let id = humanize::short_id(self.id);
        Problem::failed("stopped following; the turn is still running")
            .hint(format!("follow it with: sessionctl attach {id}"))
    }

    /// The problem of a user who leaves before the queued prompt is sent.
    fn left_queued_problem(&mut self) -> Problem {
        let id = humanize::short_id(self.id);
        self.stopped_waiting_problem().hint(format!(
            "if the prompt is queued, it is still sent; withdraw it: sessionctl cancel {id} --queued"
        ))
    }

    /// The problem of a user who leaves before it is known whether the turn runs.
    fn stopped_waiting_problem(&mut self) -> Problem {
        self.mark_user_left();
        let id = humanize::short_id(self.id);
        Problem::failed("stopped waiting for the daemon")
            .hint(format!("check whether the turn runs: sessionctl attach {id}"))
    }

    /// Adds to a problem the command that shows how the turn proceeds, if the daemon does not answer any more.
    fn with_follow_hint(&self, problem: Problem, start: &FollowTarget, own: &FollowedTurn) -> Problem {
        let is_unanswered = problem.exit == Exit::NoDaemon && problem.kind().is_none();
        let Some(hint) = problem.hint.clone().filter(|_| is_unanswered) else {
            return problem;
        };
        let why = match (&own.id, start.method()) {
            (Some(_), _) => "the turn continues once the daemon answers; to follow it",
            (None, Some(_)) => "to see whether the turn has begun",
            (None, None) => "to follow it again",
        };
        let id = humanize::short_id(self.id);
        problem.hint(format!("{hint}; {why}: sessionctl attach {id}"))
    }

    /// Waits for `work` unless the user leaves meanwhile.
    ///
    /// # Errors
    /// The user left, or `work` failed.
    async fn wait_unless_left<T>(
        &mut self,
        work: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<T> {
        let (daemon, mut work) = (self.daemon(), pin!(work));
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.ctrl_c.next_signal() => return Err(self.stopped_waiting_problem()),
                () = daemon.silent(), if !self.has_reported_silence => self.report_silence()?,
            }
        }
    }

    /// Reports that the daemon does not answer, long before the command fails.
    fn report_silence(&mut self) -> CommandResult {
        self.has_reported_silence = true;
        let recall = match self.screen.output.in_chat {
            true => "; if the prompt fails, press Up to edit it again",
            false => "",
        };
        self.screen.note_dim(&format!("waiting for the daemon{recall}"))
    }

    /// Confirms lines that the user typed during the turn: the terminal does not echo them. They are sent after the turn.
    fn report_typed_lines(&mut self, lines: &[String]) -> CommandResult {
        let look = self.screen.output.note_look;
        for line in lines.iter().filter(|line| !line.trim().is_empty()) {
            let first = line.trim_start().lines().next().unwrap_or_default();
            let shown = format!("queued: {}", one_line(first));
            let shown = truncate(&shown, look.columns.unwrap_or(usize::MAX), look);
            // The line of the answer that is not complete yet stays beside the spinner.
            self.screen.note_verbatim(&look.paint(DIM, &shown))?;
        }
        Ok(())
    }

    /// Prints text whose line is not complete yet, and restores the terminal.
    fn release_terminal(&mut self) -> CommandResult {
        self.screen.stop_spinner();
        self.release_keys();
        self.screen.end_stream()
    }

    /// The problem to report for a turn, unless it ended well.
    pub(super) fn problem_of(&self, turn: &TurnResult) -> Option<Problem> {
        let advice = self.advice();
        let failure = turn.failure.as_ref();
        let is_said = failure.is_some_and(|failure| self.screen.answer_ends_with(&failure.message));
        let problem = problem::of_turn(turn, &advice, is_said, &Clock::here())?;
        let cut_short = |how: &str| Problem::new(problem.exit, format!("the turn was cut short, {how}"));
        Some(match (self.was_question_refused, self.was_overtaken) {
            _ if self.was_stopped => Problem::new(problem.exit, "the daemon was stopped during the turn")
                .hint(format!("continue with: {}", advice.continue_turn(""))),
            (true, _) => cut_short("and its question was refused")
                .hint(format!("send the next prompt: {}", advice.send("Continue"))),
            (false, true) => cut_short("and another prompt was sent before it could be continued")
                .hint(format!("read the messages: {}", advice.history())),
            (false, false) => problem,
        })
    }
}

/// Waits until a daemon answers again, and never starts one.
///
/// # Errors
/// As [`DaemonConnector::find`].
pub(super) async fn wait_for_daemon(reach: &DaemonConnector) -> CommandResult<Daemon> {
    let mut looks = tokio::time::interval(DAEMON_POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Some(daemon) = reach.find().await? {
            return Ok(daemon);
        }
    }
}

/// The problem if no daemon answers within [`DAEMON_RETURN_LIMIT`].
fn no_daemon_returned() -> Problem {
    let message = format!("no daemon has answered for {} s", DAEMON_RETURN_LIMIT.as_secs());
    Problem::no_daemon(message).hint("the next command starts it: sessionctl ls")
}

/// Awaits a future, or never resolves if there is none.
async fn some_or_pending<F: Future>(awaited: Option<F>) -> F::Output {
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
