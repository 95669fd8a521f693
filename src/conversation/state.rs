//! The state of a live conversation: its durable record, its session, its turn and its queue of prompts. Pure data and
//! questions about it; `transition` changes it.
//!
//! `R` is the caller's handle for an answer. It is only passed on: the actor uses reply channels, tests use numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use bridge_protocol::conversation::{
    Continuation, Conversation, ConversationState, RunningTurn, SessionInfo, Settings,
};
use bridge_protocol::id::{ConversationId, InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::{Fidelity, Resumed, Via};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::Interrupt;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::agent::failure::{Failure, FailureSigns};
use crate::agent::kinds::AgentKind;
use crate::agent::policy::InterruptPolicy;
use crate::store::{ConversationRecord, RestingState};

use super::answer::{CallKey, Caller};
use super::destination::Destination;
use super::edit::TurnEdit;
use super::effect::{DeathInvolvement, Effect, Fork, Now, Work};
use super::error::ConversationError;
use super::prompt_queue::{DroppedPrompt, PromptRequest, held_prompt_view};
use super::reported_settings::shown_settings;
use super::running_work::Progress;
use super::writer::RecordWriter;

/// Limits and deadlines of one conversation, from the configuration.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many prompts may wait behind a running turn. A person queues a handful; more is a loop gone wrong.
    pub prompt_queue: usize,
    /// How long a cancelled turn has to answer before its session is closed under it, in milliseconds.
    pub cancel_grace_ms: u64,
    /// How long a prompt that was sent may be refused before it counts as accepted, in milliseconds. An agent that
    /// does not know the session says so at once; one that works may be silent for long.
    pub accept_grace_ms: u64,
    /// After how long without a turn the session is closed, in milliseconds; 0: never.
    pub idle_ms: u64,
    /// What is done with the questions of its agent.
    pub interrupts: InterruptPolicy,
    /// The time zone of an agent's reset time, if the agent names none.
    ///
    /// Asked for when it is needed: to find the system's own means to walk its database of zones.
    pub zone: fn() -> TimeZone,
}

/// How far a turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnPhase {
    /// Waits until the session is open.
    Waiting,
    /// Is being written down.
    Recording,
    /// Sent; the agent may still say that it does not know the session.
    Sent,
    /// The agent works on it.
    Accepted,
    /// Over; its end is being written down.
    Ending,
}

/// The running turn.
#[derive(Debug)]
pub struct Turn<R> {
    /// Who asked and what.
    pub request: PromptRequest<R>,
    /// How far it has come.
    pub phase: TurnPhase,
    /// Whether its acceptance was reported: from then on its end is reported too.
    pub announced: bool,
    /// Whether the agent showed that it has the prompt; the lack of a refusal in time is no evidence.
    pub is_prompt_confirmed: bool,
    /// Whether the agent cleared its session in this turn and has said nothing since: of the turn the new one may hold
    /// nothing.
    pub was_session_cleared: bool,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// Whether someone cancelled it.
    pub cancelled: bool,
    /// Who waits for the cancellation.
    pub cancel_callers: Vec<Caller<R>>,
    /// How the session was brought back for it.
    pub resumed: Option<Resumed>,
    /// What its updates said about a failure.
    pub signs: FailureSigns,
    /// Ids that refused this prompt, and how they were opened: the next climb continues after those steps.
    pub refused: Vec<(UpstreamId, Via, String)>,
    /// The orphaned question whose answer this turn sends.
    pub orphan_answer: Option<OrphanAnswer<R>>,
    /// Whether it went out a second time, since the agent died before the prompt was in its transcript.
    pub sent_again: bool,
    /// How its agents ended that took an open session along before they were sent the prompt.
    pub deaths: Vec<String>,
    /// Whether the daemon's stop cut it short.
    pub was_cut_by_daemon_stop: bool,
    /// Questions that the agent withdrew, until its next update.
    pub withdrawn_questions: Vec<Interrupt>,
    /// What it had to do with the end of its agent, once that has ended.
    pub death_involvement: DeathInvolvement,
    /// Whether its session is to be opened in a process of its own.
    pub needs_exclusive_process: bool,
    /// What it replaces, when it is the turn of an edit.
    pub edit: Option<TurnEdit>,
}

/// The answer to a question whose agent has ended, for the next agent.
#[derive(Debug)]
pub struct OrphanAnswer<R> {
    /// The question.
    pub interrupt_id: InterruptId,
    /// ACP's outcome.
    pub outcome: RawJson,
    /// Who answered, as reported to other clients.
    pub by: String,
    /// The question itself, once it is off the record and as long as that may have to be taken back.
    pub question: Option<Interrupt>,
    /// Who made the call.
    pub caller: Caller<R>,
}

impl<R> OrphanAnswer<R> {
    /// Refuses it: the question stays open.
    pub fn refused(self, error: ConversationError) -> DroppedPrompt<R> {
        DroppedPrompt {
            caller: self.caller,
            result: Err(error),
        }
    }
}

impl<R> Turn<R> {
    /// Whether it is the turn of this id, and on its way to the disk.
    #[must_use]
    pub fn is_recorded_as(&self, turn_id: &TurnId) -> bool {
        self.phase == TurnPhase::Recording && self.request.turn_id == *turn_id
    }

    /// Whether it replaces an earlier turn and its prompt has not been accepted, so that nobody knows which session is the head
    /// when it is.
    #[must_use]
    pub fn is_unaccepted_edit(&self) -> bool {
        let accepted = |edit: &TurnEdit| edit.branch.as_ref().is_some_and(|branch| branch.accepted);
        let is_over = self.phase == TurnPhase::Ending;
        !is_over && self.edit.as_ref().is_some_and(|edit| !accepted(edit))
    }

    /// Whether clients see that it runs.
    fn is_visible(&self) -> bool {
        self.announced && self.phase != TurnPhase::Ending
    }
}

/// A session that is open in a running agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSession {
    /// The id of its transcript: the head of the chain, or the branch of an edit whose prompt has not been accepted yet.
    pub upstream_id: UpstreamId,
    /// How it was opened.
    pub via: Via,
    /// The history in words, to be sent before the first prompt.
    pub preamble: Option<String>,
    /// Whether the agent can bring it back once it is closed.
    pub can_reopen: bool,
    /// Whether the next turn has to open the session in another process.
    pub needs_new_process: bool,
    /// Whether its process is shared with no other conversation, and given up when nothing runs in it.
    pub has_exclusive_process: bool,
}

/// The session of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// Not open.
    Closed,
    /// Open.
    Live(LiveSession),
}

/// What the conversation does with the help of work outside the state machine. One at a time: the next begins when what
/// this one has changed is on disk.
#[derive(Debug)]
pub struct Operation<R> {
    /// What it does.
    pub kind: OperationKind,
    /// Who made the call, if one began it.
    pub caller: Caller<R>,
    /// How far it has come.
    pub stage: Stage,
    /// Whether the turn that it was begun for was cancelled, and nobody else waited for it.
    pub is_unwanted: bool,
}

/// What an operation does.
#[derive(Debug)]
pub enum OperationKind {
    /// Climbs the ladder.
    Open {
        /// The least fidelity that it was asked for.
        min_fidelity: Fidelity,
    },
    /// Asks the transcript whether it has a prompt: that of the turn whose agent died of this, or the one that the
    /// conversation is to continue with.
    CheckArrival(Option<Failure>),
    /// Makes a branch.
    Branch(Fork),
    /// Makes and opens the branch on which the prompt of this turn replaces an earlier one.
    Edit(TurnId),
    /// Reads the lineage for what to undo. The progress is that of the files, if they have to move back.
    Undo(Arc<Progress>),
    /// Moves the conversation's files to another folder.
    Move {
        /// Where they go.
        destination: Destination,
        /// Whether it undoes an earlier move.
        undoes: bool,
    },
    /// Makes a repaired copy of the head.
    Repair,
    /// Clears the chain.
    Reset,
    /// Deletes the conversation.
    Delete {
        /// Whether its transcripts are deleted too, and with them what the record says.
        transcripts: bool,
    },
    /// Applies settings to the open session.
    Configure {
        /// The title that the same call gives.
        title: Option<String>,
        /// The settings as they are when the agent has taken them.
        settings: Box<Settings>,
    },
}

impl OperationKind {
    /// Whether it makes something beside the record, which is undone when the record cannot be written: a session, a copy or
    /// moved files.
    #[must_use]
    pub fn creates_resource(&self) -> bool {
        !matches!(self, Self::Reset | Self::Undo(_))
    }
}

impl<R> Operation<R> {
    /// Whether its session is being opened.
    #[must_use]
    pub fn is_climbing(&self) -> bool {
        let opens = matches!(self.kind, OperationKind::Open { .. } | OperationKind::Edit(_));
        opens && matches!(self.stage, Stage::Working(_))
    }
}

/// How far an operation has come.
#[derive(Debug)]
pub enum Stage {
    /// The session is being closed. Then this work begins, if there is any.
    Closing(Option<Work>),
    /// The work with this number is under way. The result of an earlier number comes too late.
    Working(u64),
    /// Its result is being written.
    Writing,
    /// Its result could not be written. The work with this number undoes what it has made.
    UndoingWork(u64),
}

impl Stage {
    /// Whether the work with this number is under way.
    #[must_use]
    pub fn is_running(&self, number: u64) -> bool {
        matches!(self, Self::Working(job) | Self::UndoingWork(job) if *job == number)
    }
}

/// A session that is being closed.
#[derive(Debug)]
pub struct Closing<R> {
    /// Distinguishes it from earlier ones.
    pub number: u64,
    /// Who waits for it.
    pub callers: Vec<Caller<R>>,
}

/// A call with an idempotency key that has not been answered yet, and who else waits for its answer.
#[derive(Debug)]
pub struct OpenRequest<R> {
    /// The key.
    pub key: CallKey,
    /// Those who asked the same again.
    pub followers: Vec<R>,
}

/// A live conversation.
#[derive(Debug)]
pub struct Model<R> {
    /// What is durable.
    pub record: ConversationRecord,
    /// The kind of its agent.
    pub kind: &'static AgentKind,
    /// Limits and deadlines.
    pub rules: Rules,
    /// The session.
    pub session: Session,
    /// The running turn.
    pub turn: Option<Turn<R>>,
    /// Prompts that wait behind it. Each has its place on the record too; what has a place there and is not here is held.
    pub queue: VecDeque<PromptRequest<R>>,
    /// What it does with the help of work outside the state machine.
    pub operation: Option<Operation<R>>,
    /// A session that is being closed, also beside an operation. No session is opened until it is closed.
    pub closing: Option<Closing<R>>,
    /// Who waits for the session to be open, with the fidelity asked for.
    pub resume_waiters: Vec<(Caller<R>, Fidelity)>,
    /// Calls with an idempotency key that run now.
    pub open_requests: Vec<OpenRequest<R>>,
    /// The turn of a scheduled continuation that is due, until it begins.
    pub due_turn: Option<TurnId>,
    /// What the agent last said of its session.
    pub session_info: SessionInfo,
    /// How the record gets to disk.
    pub writer: RecordWriter<R>,
    /// Whether it starts nothing new, because it is about to move together with others.
    pub is_paused: bool,
    /// Numbers the work outside the state machine.
    pub last_job: u64,
    /// Whether the daemon is stopping.
    pub stopping: bool,
    /// The time at which the input came that is being applied.
    pub now: Now,
    /// What that input has caused so far.
    pub effects: Vec<Effect<R>>,
}

impl<R> Model<R> {
    /// A conversation as its record has it: nothing open, nothing running.
    #[must_use]
    pub fn new(record: ConversationRecord, kind: &'static AgentKind, rules: Rules) -> Self {
        let now = record.updated_at;
        Self {
            writer: RecordWriter::new(record.clone()),
            record,
            kind,
            rules,
            session: Session::Closed,
            turn: None,
            queue: VecDeque::new(),
            operation: None,
            resume_waiters: Vec::new(),
            open_requests: Vec::new(),
            due_turn: None,
            session_info: SessionInfo::default(),
            is_paused: false,
            closing: None,
            last_job: 0,
            stopping: false,
            now,
            effects: Vec::new(),
        }
    }

    /// The conversation's id.
    #[must_use]
    pub fn id(&self) -> ConversationId {
        self.record.id
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> ConversationState {
        match &self.turn {
            Some(turn) if turn.cancelled => ConversationState::Cancelling,
            Some(_) if self.record.interrupts.iter().any(|interrupt| !interrupt.orphaned) => {
                ConversationState::Awaiting
            }
            Some(_) => ConversationState::Prompting,
            None if self.is_moving() => ConversationState::Moving,
            None => {
                let is_unfinished = !self.record.interrupts.is_empty() || self.has_held_prompts();
                resting_state(self.record.resting, is_unfinished)
            }
        }
    }

    /// Whether it is moving to another folder, or is held because it is to move.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        let kind = self.operation.as_ref().map(|op| &op.kind);
        self.is_paused || matches!(kind, Some(OperationKind::Move { .. }))
    }

    /// The conversation as clients may know it now.
    #[must_use]
    pub fn view(&self) -> Conversation {
        let on_disk = &self.writer.on_disk;
        let mut view = self.view_when_on_disk();
        if self.writer.is_at_rest() {
            return view;
        }
        view.head = on_disk.chain.head().map(|link| link.upstream_id.clone());
        view.chain_length = on_disk.chain.len();
        view.settings = shown_settings(on_disk);
        view.title.clone_from(&on_disk.title);
        view.cwd.clone_from(&on_disk.cwd);
        view.updated_at = on_disk.updated_at;
        view.revision = on_disk.revision;
        // Until its removal is on disk, the next start may still send it.
        view.continuation = view
            .continuation
            .or_else(|| on_disk.continuation.as_ref().map(Continuation::from));
        view.cut_short |= on_disk.cut.is_some();
        view
    }

    /// The conversation as clients may know it when the record is on disk as it stands.
    #[must_use]
    pub fn view_when_on_disk(&self) -> Conversation {
        let mut view = view_of_record(&self.record);
        view.state = self.state();
        self.show_queue(&mut view);
        if let Some(usage) = &self.session_info.usage {
            view.usage = usage.read().ok();
        }
        view.live = matches!(self.session, Session::Live(_));
        view
    }

    /// The turn that the agent's updates belong to at present. None belong to a turn that has ended or was not reported yet.
    #[must_use]
    pub fn turn_of_updates(&self) -> Option<&TurnId> {
        self.turn
            .as_ref()
            .filter(|turn| turn.is_visible())
            .map(|turn| &turn.request.turn_id)
    }

    /// The running turn as a new subscriber sees it; its updates come from the ring of events.
    #[must_use]
    pub fn running_turn(&self, updates: Vec<RawJson>, truncated: bool) -> Option<RunningTurn> {
        self.turn
            .as_ref()
            .filter(|turn| turn.is_visible())
            .map(|turn| RunningTurn {
                turn_id: turn.request.turn_id.clone(),
                prompt: turn.request.prompt.clone(),
                started_at: turn.started_at,
                updates,
                truncated,
            })
    }

    /// Whether the actor may go: nothing is open, runs or waits.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.session == Session::Closed
            && self.turn.is_none()
            && self.queue.is_empty()
            && self.due_turn.is_none()
            && self.operation.is_none()
            && self.resume_waiters.is_empty()
            && self.closing.is_none()
            && self.writer.is_at_rest()
            && !self.is_paused
    }
}

/// The reported state of an idle conversation; `is_unfinished` if a question is open or a prompt is held.
#[must_use]
pub fn resting_state(resting: RestingState, is_unfinished: bool) -> ConversationState {
    match resting {
        RestingState::Limited => ConversationState::Limited,
        RestingState::Failed => ConversationState::Failed,
        RestingState::Interrupted => ConversationState::Interrupted,
        RestingState::Idle if is_unfinished => ConversationState::Interrupted,
        RestingState::Idle => ConversationState::Idle,
    }
}

/// The wire's view of a conversation that is not live: the callers of its queued prompts ended with its task.
#[must_use]
pub fn view_of_record(record: &ConversationRecord) -> Conversation {
    Conversation {
        id: record.id,
        namespace: record.namespace.clone(),
        agent: record.agent.clone(),
        cwd: record.cwd.clone(),
        title: record.title.clone(),
        state: resting_state(
            record.resting,
            !record.interrupts.is_empty() || !record.waiting.is_empty(),
        ),
        live: false,
        head: record.chain.head().map(|link| link.upstream_id.clone()),
        chain_length: record.chain.len(),
        parent: record.parent.clone(),
        settings: shown_settings(record),
        limit: record.limit.clone(),
        failure: record
            .failure
            .clone()
            .filter(|_| record.resting == RestingState::Failed),
        interrupts: record.interrupts.clone(),
        queue: record.waiting.values().map(held_prompt_view).collect(),
        cut_short: record.cut.is_some() || !record.waiting.is_empty(),
        continuation: record.continuation.as_ref().map(Continuation::from),
        usage: record.usage.as_ref().and_then(|usage| usage.read().ok()),
        created_at: record.created_at,
        updated_at: record.updated_at,
        revision: record.revision,
    }
}
