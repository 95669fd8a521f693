//! The calls, the work and the effects of a conversation, as values. Pure.

mod call;
mod cut_short;

use std::sync::Arc;

use bridge_protocol::AgentName;
use bridge_protocol::check::CheckAnswer;
use bridge_protocol::conversation::{
    BranchedVia, Conversation, DeleteAnswer, MoveAnswer, SessionInfo, TranscriptsOnDelete,
};
use bridge_protocol::event::Event;
use bridge_protocol::id::{CheckpointId, ConversationId, InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::{Fidelity, LineageEntry, LinkReason, Relation, Resumed, Via};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, InterruptKind, TurnResult};
use jiff::Timestamp;

use crate::chain::{NewLink, UndoEffect};
use crate::store::{ConversationRecord, CutShortPrompt, RequestRecord};
use crate::transcript::checkpoint::PlaceRef;

use super::answer::{Answer, Caller};
use super::edit::EditBranch;
use super::error::{ConversationError, StoreFailure};
use super::prompt_request::DroppedPrompt;
use super::reported_settings::SettingChange;
use super::running_work::Progress;
use super::transcript_growth::LoadedHistory;

pub use call::{Call, Fork, IncomingCall, MoveRequest, NewTurn, Response};
pub use cut_short::PromptArrival;

/// The moment of a step; the state machine has no clock of its own.
pub type Now = Timestamp;

/// Work outside the state machine: for the conversation's operation, or to close a session while an operation runs.
#[derive(Debug)]
pub enum Work {
    /// Climb the ladder.
    Open {
        /// The least fidelity that is acceptable.
        min_fidelity: Fidelity,
        /// The sessions that already refused the prompt, how each was opened, and the agent's message.
        refused: Vec<(UpstreamId, Via, String)>,
        /// Whether no caller waits for it: the conversation continues automatically.
        is_automatic: bool,
        /// Whether it continues the interrupted turn, and sends its prompt again to a session that lacks it.
        resends_interrupted_prompt: bool,
    },
    /// Make a branch.
    Branch {
        /// The requested branch.
        fork: Fork,
        /// The session to branch off, unless the call names a place.
        from: UpstreamId,
        /// Whether a turn runs. The branch then omits that turn.
        busy: bool,
    },
    /// Make the branch of an edit, and open it.
    Edit {
        /// A place in the turn to replace.
        at: PlaceRef,
        /// The least fidelity that is acceptable.
        min_fidelity: Fidelity,
    },
    /// Read the lineage to find the target of an undo, and move its files if they are in another folder.
    FindUndoTarget {
        /// The session to return to, if not the one before the last change.
        session: Option<UpstreamId>,
        /// Counts the progress.
        progress: Arc<Progress>,
    },
    /// Close the session at the agent and wait for it.
    Close {
        /// For a deletion of the conversation: whether the transcripts of the whole lineage are deleted at the agent too.
        deletion: Option<TranscriptsOnDelete>,
        /// Whether the agent ignored a cancel, so that its process may have to end.
        by_force: bool,
    },
    /// Move the conversation's files to another folder.
    Move(MoveRequest),
    /// Undo what the last job made, because it could not be recorded. The result is that error.
    UndoWork(StoreFailure),
    /// Make a repaired copy of the head. Counts the progress.
    Repair(Arc<Progress>),
    /// Look for a prompt in the transcript of its session.
    CheckArrival(Box<CutShortPrompt>),
    /// Ask the agent of the open session for these settings, with these further parameters of an editor's request.
    Configure(Vec<SettingChange>, Option<RawJson>),
}

/// The result of [`Work`].
#[derive(Debug)]
pub enum WorkResult {
    /// The ladder brought the session back.
    Opened(Box<OpenedSession>),
    /// A branch was made.
    Branched(NewBranch),
    /// The branch of an edit was made and opened.
    Edited(Box<EditBranch>),
    /// The change to undo, if there is one, the title that comes back with it, and whether files were moved for it.
    UndoTargetFound(Option<UndoEffect>, Option<String>, bool),
    /// The session is closed. For a deletion: what became of the transcripts.
    Closed(DeleteAnswer),
    /// The conversation's files are in the other folder.
    Moved(MoveAnswer),
    /// The result of checking the head's transcript, and the repaired copy, if there was something to repair.
    Repaired(Box<CheckAnswer>, Option<NewBranch>),
    /// Whether the prompt is in the transcript.
    ArrivalChecked(PromptArrival),
    /// The agent has accepted the settings, each of which was noted.
    Configured,
}

/// A session that the ladder opened.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    /// The id of its transcript.
    pub upstream_id: UpstreamId,
    /// The link to append; `None` when it is the head.
    pub link: Option<NewLink>,
    /// How it was brought back.
    pub resumed: Resumed,
    /// The history in words, to be sent before the first prompt.
    pub preamble: Option<String>,
    /// The loaded history, if a transcript was loaded and can be read.
    pub loaded: Option<LoadedHistory>,
    /// Whether the agent can bring it back once it is closed.
    pub can_reopen: bool,
    /// What the agent reported about the session when it opened it.
    pub session_info: SessionInfo,
}

/// A branch that was made at the agent or on disk. A repaired copy is one too.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// The branch's own id.
    pub upstream_id: UpstreamId,
    /// The session that it branches off.
    pub source: UpstreamId,
    /// The checkpoint at which it branches off.
    pub checkpoint: Option<CheckpointId>,
    /// How much of the history it contains.
    pub fidelity: Fidelity,
    /// How many turns its transcript contains; 0 if they cannot be counted.
    pub turns: u64,
    /// How it was made.
    pub via: BranchedVia,
    /// Whether it is open in the agent now.
    pub opened_session: Option<Box<OpenedSession>>,
}

impl NewBranch {
    /// The link of the branch, which carries the history of its source.
    #[must_use]
    pub fn to_link(&self, agent: AgentName, cwd: String, reason: LinkReason) -> NewLink {
        NewLink {
            relation: Relation::Carries,
            from_upstream_id: Some(self.source.clone()),
            from_checkpoint_id: self.checkpoint.clone(),
            carried_turns: self.turns,
            ..NewLink::new(self.upstream_id.clone(), agent, cwd, reason)
        }
    }
}

/// What a change writes in addition to the record: in the same write or, if that fails, in the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// New entries of the lineage.
    pub lineage: Vec<LineageEntry>,
    /// Upstream ids that resolve to the conversation from now on.
    pub upstream: Vec<UpstreamId>,
    /// The states of calls with an idempotency key.
    pub requests: Vec<RequestRecord>,
    /// Events to send once the change is on disk. (Events that must be sent even if it is not are with the milestone.)
    pub events: Vec<Event>,
    /// Whether the conversation's content must be erased from the files of the store.
    pub erases_content: bool,
}

impl Ledger {
    /// A ledger that records the state of a call, if the call has a key.
    #[must_use]
    pub fn with_request(request: Option<RequestRecord>) -> Self {
        Self {
            requests: request.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A ledger that adds these sessions to the conversation.
    #[must_use]
    pub fn with_links(lineage: Vec<LineageEntry>, events: Vec<Event>) -> Self {
        Self {
            upstream: lineage.iter().map(|entry| entry.upstream_id.clone()).collect(),
            lineage,
            events,
            ..Self::default()
        }
    }

    /// Whether it contains nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lineage.is_empty()
            && self.upstream.is_empty()
            && self.requests.is_empty()
            && self.events.is_empty()
            && !self.erases_content
    }

    /// Appends the contents of another ledger.
    pub fn append(&mut self, mut other: Self) {
        self.lineage.append(&mut other.lineage);
        self.upstream.append(&mut other.upstream);
        // One state per call: while the disk fails, a caller that retries adds nothing.
        self.requests.retain(|request| {
            other
                .requests
                .iter()
                .all(|later| later.request_id != request.request_id)
        });
        self.requests.append(&mut other.requests);
        self.events.append(&mut other.events);
        self.erases_content |= other.erases_content;
    }
}

/// A part of a write: what is written with the record, and what waits for it.
#[derive(Debug)]
pub struct WritePart<R> {
    /// What is written with the record. If the write fails, the next one has it, unless the change is undone.
    pub ledger: Ledger,
    /// What waits for the write.
    pub milestone: Milestone<R>,
}

/// What waits for a change to be on disk.
#[derive(Debug)]
pub enum Milestone<R> {
    /// Nothing except the events of the ledger.
    Saved,
    /// The open session may be announced and used.
    SessionOpened(Box<OpenedSession>),
    /// The prompt of this turn may be sent.
    PromptRecorded(TurnId),
    /// The end of the turn may be reported.
    TurnEnded(Box<TurnResult>),
    /// The prompt of this turn is queued.
    PromptQueued(TurnId),
    /// Prompts that will not be sent are removed from the record.
    PromptsDropped {
        /// The dropped prompts.
        prompts: Vec<DroppedPrompt<R>>,
        /// The callers that cancelled them.
        cancels: Vec<Caller<R>>,
    },
    /// The question may be shown.
    QuestionRaised(Box<Interrupt>),
    /// The question is settled. This is reported first, then the agent gets its answer, then the caller. The agent gets it even
    /// if the write failed, because it waits.
    QuestionSettled(Box<SettledQuestion<R>>),
    /// The transcripts of the conversation may be deleted.
    DeletionBegun,
    /// A call may be answered.
    Changed(Box<CallChange<R>>),
}

/// A change made by a call, with the answer to the caller.
#[derive(Debug)]
pub struct CallChange<R> {
    /// Who made the call.
    pub caller: Caller<R>,
    /// The answer.
    pub answer: Answer,
    /// The events to send before the answer, if the change could be written.
    pub events: Vec<Event>,
    /// The record before the change, until it is restored because the change could not be written. `None` if the change is a
    /// new conversation.
    pub before: Option<Box<ConversationRecord>>,
    /// Whether it is the result of the operation, which ends when this is written.
    pub ends_operation: bool,
    /// The session that the operation opened for the conversation in the answer.
    pub opened_session: Option<Box<OpenedSession>>,
}

impl<R> CallChange<R> {
    /// A change of the record alone. `before` is the record before the change.
    pub fn new(caller: Caller<R>, answer: Answer, before: ConversationRecord) -> Self {
        Self {
            before: Some(Box::new(before)),
            ..Self::of(caller, answer)
        }
    }

    /// A change with no record to restore.
    pub fn of(caller: Caller<R>, answer: Answer) -> Self {
        Self {
            caller,
            answer,
            events: Vec::new(),
            before: None,
            ends_operation: false,
            opened_session: None,
        }
    }

    /// The change with events to send before the answer.
    #[must_use]
    pub fn with_events(self, events: Vec<Event>) -> Self {
        Self { events, ..self }
    }
}

/// What to do with what the last job made: a session, a copy or moved files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// A record on disk names it, so copy and files stay.
    Keep,
    /// Nothing names it: the session is closed and the copy is deleted.
    Drop,
    /// A later write may name it: the session is closed, and the next start decides about copy and files.
    Leave,
}

/// A question of the agent that is settled.
#[derive(Debug)]
pub struct SettledQuestion<R> {
    /// The events to send.
    pub events: Vec<Event>,
    /// The answer to the agent, unless it already has one.
    pub answer: Option<AgentAnswer>,
    /// The caller that settled it, if one did.
    pub caller: Option<Caller<R>>,
}

/// An answer to a question of the agent.
#[derive(Debug)]
pub struct AgentAnswer {
    /// The question.
    pub id: InterruptId,
    /// Its kind.
    pub kind: InterruptKind,
    /// ACP's outcome.
    pub outcome: RawJson,
    /// What the client's answer contains beside it.
    pub params: Option<RawJson>,
}

/// A deadline that the state machine set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// A prompt that was sent and has not been refused by now counts as accepted.
    Accept,
    /// A cancelled turn that has not ended by now loses its session.
    Cancel,
    /// A climb for which only a cancelled turn waited, and which has not ended by now, is given up.
    Climb,
    /// A conversation that has had no turn by now hibernates.
    Idle,
    /// A failed write is repeated.
    Rewrite,
}

/// An action for the actor to carry out.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an effect is carried out where it is made"
)]
pub enum Effect<R> {
    /// Commit the write that the writer has begun.
    Write,
    /// Send an event to the subscribers.
    Emit(Event),
    /// Notify the subscribers to all conversations of a new conversation, which is on disk.
    Announce(Box<Conversation>),
    /// Answer a caller.
    Answer(R, Result<Answer, ConversationError>),
    /// Begin work outside the state machine, as the job with this number.
    Work(u64, Work),
    /// Keep, drop or leave what the last job made.
    Dispose(Disposition),
    /// Find the end of the head's transcript, before the prompt of this turn is sent.
    Anchor(TurnId),
    /// Drop a job whose result is no longer needed.
    AbandonJob,
    /// Give up a climb because the agent hangs. The next climb uses another process; this one ends with its other users.
    GiveUpClimb,
    /// Drop the open session: its updates are ignored, and it is closed at the agent, without waiting.
    Detach,
    /// Use the open session of the last job as the conversation's own, with the copy from which it was opened.
    Attach,
    /// Keep the copy from which the open session was opened: a record names the session now.
    KeepCopy,
    /// Give the open session of the last job to another conversation.
    HandOver(ConversationId, Box<OpenedSession>),
    /// Start nothing new in the process of the open session; the process ends when it is no longer used.
    RetireAgent,
    /// Send the prompt, with these further parameters.
    SendPrompt(PromptContent, Option<RawJson>),
    /// Send the cancellation, with these further parameters.
    SendCancel(Option<RawJson>),
    /// Answer the agent's question with this outcome. The last value holds further members for the answer to a permission request.
    AnswerAgent(InterruptId, RawJson, Option<RawJson>),
    /// Set a deadline this many milliseconds from now.
    Arm(Deadline, u64),
    /// Cancel a deadline.
    Disarm(Deadline),
    /// The conversation is deleted: the actor ends. Always the last effect.
    End,
}

impl<R> Effect<R> {
    /// The position among the effects of one input. Answers come last: a turn's events precede the answer to its prompt.
    #[must_use]
    pub fn rank(&self) -> u8 {
        match self {
            Self::Answer(..) => 1,
            Self::End => 2,
            _ => 0,
        }
    }
}
