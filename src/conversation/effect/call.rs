//! The calls of clients to a conversation. Pure.

use std::sync::Arc;

use bridge_protocol::conversation::{ContinueAt, OnBusy, OnLimit, Settings, TranscriptsOnDelete};
use bridge_protocol::id::{InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};

use crate::conversation::answer::CallKey;
use crate::conversation::destination::Destination;
use crate::conversation::running_work::Progress;
use crate::transcript::checkpoint::PlaceRef;
use crate::transcript::moving::SharedRemainingForks;

/// The branch that a caller asks for.
#[derive(Clone, Debug)]
pub struct Fork {
    /// Whether the branch becomes the head of this conversation.
    pub in_place: bool,
    /// The place where the branch begins. `None`: the end of the head.
    pub at: Option<PlaceRef>,
    /// The branch's folder, already checked. `None`: the conversation's folder.
    pub cwd: Option<String>,
    /// The title of the branch.
    pub title: Option<String>,
    /// The least fidelity that is acceptable.
    pub min_fidelity: Fidelity,
}

/// The turn to begin for a prompt.
#[derive(Clone, Debug)]
pub struct NewTurn {
    /// Its id, chosen by the caller of the state machine.
    pub id: TurnId,
    /// Further parameters of ACP's `session/prompt`, as an editor sent them. The daemon's own protocol has none. They do not
    /// survive a restart of the daemon.
    pub params: Option<RawJson>,
}

impl From<TurnId> for NewTurn {
    fn from(id: TurnId) -> Self {
        Self { id, params: None }
    }
}

/// What a client can request from a conversation.
#[derive(Debug)]
pub enum Call {
    /// Run a turn.
    Prompt {
        /// The turn.
        turn: NewTurn,
        /// What is asked.
        prompt: PromptContent,
        /// What to do while another turn runs.
        on_busy: OnBusy,
        /// What to do if the turn hits a usage limit.
        on_limit: OnLimit,
        /// The least fidelity that is acceptable.
        min_fidelity: Fidelity,
    },
    /// Schedule a continuation of the interrupted turn.
    Continue {
        /// When. `None` is an error, except for a cancellation.
        at: Option<ContinueAt>,
        /// The text to send then.
        text: Option<PromptContent>,
        /// Whether to cancel the scheduled continuation.
        cancel: bool,
    },
    /// End a turn.
    Cancel {
        /// Which turn. `None`: the running one.
        turn_id: Option<TurnId>,
        /// Whether queued prompts are cancelled too.
        queued: bool,
        /// Further parameters for the agent, as an editor sent them.
        params: Option<RawJson>,
    },
    /// Open the session.
    Resume {
        /// The least fidelity that is acceptable.
        min_fidelity: Fidelity,
    },
    /// Change title or settings.
    Update {
        /// The new title.
        title: Option<String>,
        /// The settings to merge into the current ones.
        settings: Option<Settings>,
        /// The revision on which the caller bases the change.
        expected_revision: Option<u64>,
        /// Further parameters for the agent, as an editor sent them.
        params: Option<RawJson>,
    },
    /// Make a branch.
    Fork(Fork),
    /// Replace an earlier prompt.
    Edit {
        /// The turn.
        turn: NewTurn,
        /// The turn to replace, by a place in it.
        at: PlaceRef,
        /// The new prompt.
        prompt: PromptContent,
        /// The least fidelity of the branch that is acceptable.
        min_fidelity: Fidelity,
    },
    /// Undo the last change made in place.
    Undo {
        /// Restore the history that contains this session instead, with everything after it. Only without a head.
        session: Option<UpstreamId>,
        /// Counts the progress, if files have to move back.
        progress: Arc<Progress>,
    },
    /// Move to another folder.
    Move {
        /// Where to.
        destination: Destination,
        /// Whether this undoes an earlier move.
        undoes: bool,
        /// What is known about the old folders, shared by all conversations that move together.
        neighbours: SharedRemainingForks,
        /// Counts the progress.
        progress: Arc<Progress>,
    },
    /// Start nothing new: the conversation is about to move together with others.
    PauseForMove,
    /// End the pause: the move is over.
    ResumeAfterMove,
    /// Continue with a repaired copy of the head.
    Repair {
        /// Counts the progress.
        progress: Arc<Progress>,
    },
    /// Answer a question.
    Respond {
        /// Which question.
        interrupt_id: InterruptId,
        /// ACP's outcome.
        outcome: RawJson,
        /// Who answers, as reported to other clients.
        by: String,
        /// The id of the turn that an orphan's answer starts.
        turn_id: TurnId,
        /// Further members of the answer, for the agent: an object.
        params: Option<RawJson>,
    },
    /// Close the session.
    Close,
    /// Clear the chain.
    Reset,
    /// Delete the conversation.
    Delete {
        /// Whether the transcripts are deleted too.
        transcripts: TranscriptsOnDelete,
    },
}

/// A client's call, with its idempotency key and where its answer goes.
#[derive(Debug)]
pub struct IncomingCall<R> {
    /// What is asked.
    pub call: Call,
    /// The idempotency key.
    pub request: Option<CallKey>,
    /// Where the answer goes.
    pub reply: R,
}

impl Call {
    /// The folder that the call names, if it has not been checked yet.
    pub fn named_folder(&mut self) -> Option<&mut String> {
        match self {
            Self::Fork(fork) => fork.cwd.as_mut(),
            Self::Move {
                destination: Destination::Folder(folder),
                ..
            } => Some(folder),
            _ => None,
        }
    }
}
