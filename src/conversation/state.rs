//! The state of a live conversation: its durable record, its session, its turn and its queue of prompts. Pure data and
//! questions about it; `transition` changes it.
//!
//! `R` is the caller's handle for an answer. It is only passed on: the actor uses reply channels, tests use numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use bridge_protocol::conversation::{
    Continuation, Conversation, ConversationState, RunningTurn, SessionInfo, Settings, UnacceptedTurn,
};
use bridge_protocol::id::{ConversationId, InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::{Fidelity, Resumed, Via};
use bridge_protocol::method::Update;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::Interrupt;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::agent::failure::{Failure, FailureSigns};
use crate::agent::kinds::AgentKind;
use crate::agent::policy::InterruptPolicy;
use crate::store::{ConversationRecord, RestingState};

use super::answer::{CallKey, Caller};
use super::edit::TurnEdit;
use super::effect::{Effect, Fork, MoveRequest, Now, OpenedSession, Response, Work};
use super::prompt_request::{PromptRequest, held_prompt_view};
use super::reported_settings::shown_settings;
use super::running_work::Progress;
use super::writer::RecordWriter;

/// Limits and deadlines of one conversation, from the configuration.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many prompts may be queued. A user queues a handful; more come from a faulty loop.
    pub prompt_queue: usize,
    /// How long a cancelled turn may take to end before its session is closed, in milliseconds.
    pub cancel_grace_ms: u64,
    /// After how long without a refusal a sent prompt counts as accepted, in milliseconds. An agent that does not
    /// know the session reports that at once; a working agent may be silent for long.
    pub accept_grace_ms: u64,
    /// After how long without a turn the session is closed, in milliseconds; 0: never.
    pub idle_ms: u64,
    /// How the agent's questions are handled.
    pub interrupts: InterruptPolicy,
    /// The time zone of an agent's reset time, if the agent names none.
    ///
    /// Looked up only when needed: finding the system's own zone requires a walk through its time zone database.
    pub zone: fn() -> TimeZone,
}

/// How far a turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnPhase {
    /// Waits until the session is open.
    Waiting,
    /// Is being recorded.
    Recording,
    /// Sent; the agent may still report that it does not know the session.
    Sent,
    /// The agent works on it.
    Accepted,
    /// Over; its end is being recorded.
    Ending,
}

/// The running turn.
#[derive(Debug)]
pub struct Turn<R> {
    /// The prompt and its caller.
    pub request: PromptRequest<R>,
    /// How far it has come.
    pub phase: TurnPhase,
    /// Whether its acceptance was reported. If so, its end must be reported too.
    pub announced: bool,
    /// Whether the agent showed that it has the prompt. The lack of a refusal is no evidence.
    pub is_prompt_confirmed: bool,
    /// Whether the agent cleared its session in this turn and has sent nothing since. The new session may then contain
    /// nothing of the turn.
    pub was_session_cleared: bool,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// The callers that wait for the cancellation.
    pub cancel_callers: Vec<Caller<R>>,
    /// How the session was brought back for it.
    pub resumed: Option<Resumed>,
    /// Signs of a failure in its updates.
    pub signs: FailureSigns,
    /// Ids that refused this prompt, and how they were opened: the next climb continues after those steps.
    pub refused: Vec<(UpstreamId, Via, String)>,
    /// The orphaned question whose answer this turn sends.
    pub orphan_answer: Option<OrphanAnswer<R>>,
    /// Whether the prompt was sent a second time, because the agent died before the prompt was in its transcript.
    pub sent_again: bool,
    /// How those agents ended that had the session open but died before the prompt was sent to them.
    pub deaths: Vec<String>,
    /// Whether it was cut short because the daemon stopped.
    pub was_cut_by_daemon_stop: bool,
    /// The questions that were open when the prompt was sent. They are not part of this turn.
    pub earlier_questions: Vec<InterruptId>,
    /// Questions that the agent withdrew, until its next update.
    pub withdrawn_questions: Vec<Interrupt>,
    /// Whether the daemon ended its agent because of another conversation.
    pub is_bystander: bool,
    /// What it replaces, if it is the turn of an edit.
    pub edit: Option<TurnEdit>,
}

/// The answer to a question whose agent has ended, for the next agent.
#[derive(Debug)]
pub struct OrphanAnswer<R> {
    /// The answer.
    pub response: Response,
    /// The question itself, after it was removed from the record, for as long as it may have to be restored.
    pub question: Option<Interrupt>,
    /// Who made the call.
    pub caller: Caller<R>,
}

impl<R> Turn<R> {
    /// Whether it waits until the session is open.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.phase == TurnPhase::Waiting
    }

    /// Whether its prompt was sent, and its end is not known yet.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        matches!(self.phase, TurnPhase::Sent | TurnPhase::Accepted)
    }

    /// Whether it is the turn with this id, and is being recorded.
    #[must_use]
    pub fn is_recorded_as(&self, turn_id: &TurnId) -> bool {
        self.phase == TurnPhase::Recording && self.request.turn_id == *turn_id
    }

    /// Whether it replaces an earlier turn and its prompt has not been accepted. Until then it is unknown which session will be
    /// the head.
    #[must_use]
    pub fn is_unaccepted_edit(&self) -> bool {
        let is_accepted = |edit: &TurnEdit| edit.accepted().is_some();
        self.phase != TurnPhase::Ending && self.edit.as_ref().is_some_and(|edit| !is_accepted(edit))
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
    /// Whether settings have changed that the agent takes only when it opens a session.
    pub has_old_settings: bool,
    /// Whether the session must be opened again before the next turn.
    pub needs_reopening: bool,
}

impl LiveSession {
    /// A session that was just opened.
    #[must_use]
    pub fn new(opened: &OpenedSession) -> Self {
        Self {
            upstream_id: opened.upstream_id.clone(),
            via: opened.resumed.via,
            preamble: opened.preamble.clone(),
            can_reopen: opened.can_reopen,
            has_old_settings: false,
            needs_reopening: false,
        }
    }
}

/// An operation of the conversation that needs work outside the state machine. Only one runs at a time: the next begins
/// when the changes of this one are on disk.
#[derive(Debug)]
pub struct Operation<R> {
    /// What it does.
    pub kind: OperationKind,
    /// Who made the call, if one began it.
    pub caller: Caller<R>,
    /// Its current stage.
    pub stage: Stage,
    /// Whether the turn for which it was begun was cancelled, and no other caller waited for it.
    pub is_unwanted: bool,
}

/// What an operation does.
#[derive(Debug)]
pub enum OperationKind {
    /// Climbs the ladder.
    Open {
        /// The least fidelity that was requested.
        min_fidelity: Fidelity,
    },
    /// Checks whether the transcript contains a prompt: that of the turn whose agent died with this failure, or the
    /// one with which the conversation continues.
    CheckArrival(Option<Failure>),
    /// Makes a branch.
    Branch(Fork),
    /// Makes and opens the branch on which the prompt of this turn replaces an earlier one.
    Edit(TurnId),
    /// Reads the lineage to find the target of an undo. The progress counts the files, if they have to move back.
    Undo(Arc<Progress>),
    /// Moves the conversation's files to another folder.
    Move(MoveRequest),
    /// Makes a repaired copy of the head.
    Repair,
    /// Clears the chain.
    Reset,
    /// Deletes the conversation.
    Delete {
        /// Whether its transcripts are deleted too, and the content of the record.
        transcripts: bool,
    },
    /// Asks the agent of the open session for settings.
    Configure {
        /// The title that the same call sets.
        title: Option<String>,
        /// The settings of the same call for which the agent is not asked.
        others: Box<Settings>,
    },
}

impl OperationKind {
    /// Whether it creates a session, a copy or moved files, which are undone if the record cannot be written.
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

/// The stage of an operation.
#[derive(Debug)]
pub enum Stage {
    /// The session is being closed. After that, this work begins, if there is any.
    Closing(Option<Work>),
    /// The work with this number is running. A result with an earlier number comes too late.
    Working(u64),
    /// Its result is being written.
    Writing,
    /// Its result could not be written. The work with this number undoes what the operation made.
    UndoingWork(u64),
}

impl Stage {
    /// Whether the work with this number is running.
    #[must_use]
    pub fn is_running(&self, number: u64) -> bool {
        matches!(self, Self::Working(job) | Self::UndoingWork(job) if *job == number)
    }
}

/// A session that is being closed.
#[derive(Debug)]
pub struct Closing<R> {
    /// Distinguishes it from earlier closings.
    pub number: u64,
    /// The callers that wait for it.
    pub callers: Vec<Caller<R>>,
}

/// An unanswered call with an idempotency key, and the repeated calls that wait for the same answer.
#[derive(Debug)]
pub struct OpenRequest<R> {
    /// The key.
    pub key: CallKey,
    /// Where the answers to the repeated calls go.
    pub followers: Vec<R>,
}

/// A live conversation.
#[derive(Debug)]
pub struct Model<R> {
    /// The durable record.
    pub record: ConversationRecord,
    /// The kind of its agent.
    pub kind: &'static AgentKind,
    /// Limits and deadlines.
    pub rules: Rules,
    /// The session, while it is open.
    pub session: Option<LiveSession>,
    /// The running turn.
    pub turn: Option<Turn<R>>,
    /// Prompts that wait for the running turn. The record lists each of them too; a prompt that only the record lists is held.
    pub queue: VecDeque<PromptRequest<R>>,
    /// The running operation.
    pub operation: Option<Operation<R>>,
    /// A session that is being closed, possibly while an operation runs. No session is opened until it is closed.
    pub closing: Option<Closing<R>>,
    /// The callers that wait for the session to be open, with the fidelity that each requested.
    pub resume_waiters: Vec<(Caller<R>, Fidelity)>,
    /// Changes of settings that wait for the running operation or closing, in order of arrival.
    pub waiting_updates: VecDeque<(Update, Option<RawJson>, Caller<R>)>,
    /// Running calls with an idempotency key.
    pub open_requests: Vec<OpenRequest<R>>,
    /// The turn of a scheduled continuation that is due, until it begins.
    pub due_turn: Option<TurnId>,
    /// What the agent last reported about its session.
    pub session_info: SessionInfo,
    /// The texts of the last two prompts that the session has, except the first prompt of the history. An agent without a title
    /// may report one as a title, also after the next prompt was sent; it is ignored.
    pub later_prompts: Vec<String>,
    /// How the record gets to disk.
    pub writer: RecordWriter<R>,
    /// Whether it starts nothing new, because it is about to move together with others.
    pub is_paused: bool,
    /// The number of the last job.
    pub last_job: u64,
    /// Whether the daemon is stopping.
    pub stopping: bool,
    /// The time of the input that is being applied.
    pub now: Now,
    /// The effects of that input so far.
    pub effects: Vec<Effect<R>>,
}

impl<R> Model<R> {
    /// A conversation from its record: nothing is open, nothing runs.
    #[must_use]
    pub fn new(record: ConversationRecord, kind: &'static AgentKind, rules: Rules) -> Self {
        let now = record.updated_at;
        Self {
            writer: RecordWriter::new(record.clone()),
            record,
            kind,
            rules,
            session: None,
            turn: None,
            queue: VecDeque::new(),
            operation: None,
            resume_waiters: Vec::new(),
            waiting_updates: VecDeque::new(),
            open_requests: Vec::new(),
            due_turn: None,
            session_info: SessionInfo::default(),
            later_prompts: Vec::new(),
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

    /// The state to report.
    #[must_use]
    pub fn state(&self) -> ConversationState {
        match &self.turn {
            Some(turn) if turn.cancelled => ConversationState::Cancelling,
            Some(_) if self.has_open_question() => ConversationState::Awaiting,
            Some(_) => ConversationState::Prompting,
            None if self.is_moving() => ConversationState::Moving,
            None => {
                let is_unfinished = !self.record.interrupts.is_empty() || self.has_held_prompts();
                resting_state(self.record.resting, is_unfinished)
            }
        }
    }

    /// What the running operation does.
    #[must_use]
    pub fn operation_kind(&self) -> Option<&OperationKind> {
        self.operation.as_ref().map(|op| &op.kind)
    }

    /// Whether it is moving to another folder, or is held because it is about to move.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.is_paused || matches!(self.operation_kind(), Some(OperationKind::Move(_)))
    }

    /// Whether a question waits in the open session.
    #[must_use]
    pub fn has_open_question(&self) -> bool {
        self.record.interrupts.iter().any(|interrupt| !interrupt.orphaned)
    }

    /// The conversation as clients may see it now.
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

    /// The conversation as clients may see it once the current record is on disk.
    #[must_use]
    pub fn view_when_on_disk(&self) -> Conversation {
        let mut view = view_of_record(&self.record);
        view.state = self.state();
        self.show_queue(&mut view);
        if let Some(usage) = &self.session_info.usage {
            view.usage = usage.read().ok();
        }
        view.live = self.session.is_some();
        view
    }

    /// The turn to which the agent's updates belong now. A turn that has ended or was not reported yet gets none.
    #[must_use]
    pub fn turn_of_updates(&self) -> Option<&TurnId> {
        self.turn
            .as_ref()
            .filter(|turn| turn.is_visible())
            .map(|turn| &turn.request.turn_id)
    }

    /// The running turn for a new subscriber. Its updates come from the ring of events.
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

    /// The present turn, if its prompt has not been accepted yet.
    #[must_use]
    pub fn unaccepted_turn(&self) -> Option<UnacceptedTurn> {
        let turn = self.turn.as_ref().filter(|turn| !turn.announced)?;
        Some(UnacceptedTurn {
            turn_id: turn.request.turn_id.clone(),
            prompt: turn.request.prompt.clone(),
            started_at: turn.started_at,
        })
    }

    /// Whether the actor may end: nothing is open, runs or waits.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.session.is_none()
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

/// What clients see of a conversation that is not live. Its queued prompts have no callers: those ended with its task.
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
