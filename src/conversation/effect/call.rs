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
    /// The place where the branch begins; the end of the head if none is given.
    pub at: Option<PlaceRef>,
    /// The branch's folder, already checked; that of the conversation if none is given.
    pub cwd: Option<String>,
    /// The title of the branch.
    pub title: Option<String>,
    /// The least fidelity that is acceptable.
    pub min_fidelity: Fidelity,
}

/// The turn that a prompt is to have.
#[derive(Clone, Debug)]
pub struct NewTurn {
    /// Its id, minted by the caller of the state machine.
    pub id: TurnId,
    /// Further parameters of ACP's `session/prompt`, as an editor sent them; nothing on the daemon's own protocol. They are not
    /// kept over a restart of the daemon.
    pub params: Option<RawJson>,
}

impl From<TurnId> for NewTurn {
    fn from(id: TurnId) -> Self {
        Self { id, params: None }
    }
}

/// Settings that an editor asked for, with the further parameters of its request. They go to the agent with these settings only.
#[derive(Debug)]
pub struct EditorSettings {
    /// The settings.
    pub settings: Settings,
    /// The parameters.
    pub params: RawJson,
}

/// What a caller can ask for.
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
        /// What to do when it meets a usage limit.
        on_limit: OnLimit,
        /// The least fidelity that will do.
        min_fidelity: Fidelity,
    },
    /// Schedule a continuation of what was cut short.
    Continue {
        /// When. None is an error, except for a cancellation.
        at: Option<ContinueAt>,
        /// What is said then.
        text: Option<PromptContent>,
        /// Whether to cancel the scheduled continuation.
        cancel: bool,
    },
    /// End a turn.
    Cancel {
        /// Which; the running one when none is named.
        turn_id: Option<TurnId>,
        /// Whether the waiting ones go too.
        queued: bool,
        /// Further parameters for the agent, as an editor sent them.
        params: Option<RawJson>,
    },
    /// Open the session.
    Resume {
        /// The least fidelity that will do.
        min_fidelity: Fidelity,
    },
    /// Change title or settings.
    Update {
        /// The new title.
        title: Option<String>,
        /// The settings to lay over the present ones.
        settings: Option<Settings>,
        /// The revision that the caller has seen.
        expected_revision: Option<u64>,
        /// Further parameters for the agent, as an editor sent them.
        params: Option<RawJson>,
    },
    /// Branch off.
    Fork(Fork),
    /// Replace an earlier prompt.
    Edit {
        /// The turn.
        turn: NewTurn,
        /// The turn to replace, by a place in it.
        at: PlaceRef,
        /// What is asked instead.
        prompt: PromptContent,
        /// The least that the branch has to keep.
        min_fidelity: Fidelity,
    },
    /// Take back what was done last in place.
    Undo {
        /// Bring back the history that has this session instead, with all that came after it; nothing while there is a head.
        session: Option<UpstreamId>,
        /// Where is noted how far it has come, where files have to go back.
        progress: Arc<Progress>,
    },
    /// Run in another folder.
    Move {
        /// Where to.
        destination: Destination,
        /// Whether it takes an earlier move back.
        undoes: bool,
        /// What is known of the folders that it leaves, by all that go together.
        neighbours: SharedRemainingForks,
        /// Where is noted how far it has come.
        progress: Arc<Progress>,
    },
    /// Start nothing new: the conversation is about to move together with others.
    PauseForMove,
    /// End the pause: the move is over.
    ResumeAfterMove,
    /// Go on with a repaired copy of the head.
    Repair {
        /// Where is noted how far it has come.
        progress: Arc<Progress>,
    },
    /// Answer a question.
    Respond {
        /// Which.
        interrupt_id: InterruptId,
        /// ACP's outcome.
        outcome: RawJson,
        /// Who answers, as reported to other clients.
        by: String,
        /// The id of the turn that an orphan's answer starts.
        turn_id: TurnId,
    },
    /// Close the session.
    Close,
    /// Clear the chain.
    Reset,
    /// Delete the conversation.
    Delete {
        /// Whether the transcripts go too.
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
    /// The folder that it names and that was not looked at yet.
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
