//! The calls of clients to a conversation. Pure.

use std::sync::Arc;

use bridge_protocol::conversation::TranscriptsOnDelete;
use bridge_protocol::id::{InterruptId, TurnId, UpstreamId};
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::{Cancel, Continue, Edit, Prompt, Update};
use bridge_protocol::raw::RawJson;

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
    /// Further parameters of ACP's `session/fork`, an object, as an editor sent them. `None`: those with which the client of the
    /// conversation opened its session.
    pub params: Option<RawJson>,
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

/// A move of the conversation's files to another folder.
#[derive(Clone, Debug)]
pub struct MoveRequest {
    /// Where to.
    pub destination: Destination,
    /// Whether this undoes an earlier move.
    pub undoes: bool,
    /// What is known about the old folders, shared by all conversations that move together.
    pub neighbours: SharedRemainingForks,
    /// Counts the progress.
    pub progress: Arc<Progress>,
}

/// A client's answer to a question.
#[derive(Debug)]
pub struct Response {
    /// Which question.
    pub interrupt_id: InterruptId,
    /// ACP's outcome.
    pub outcome: RawJson,
    /// Who answers, as reported to other clients.
    pub by: String,
    /// The id of the turn that an orphan's answer starts.
    pub turn_id: TurnId,
    /// Further members of the answer, for the agent: an object.
    pub params: Option<RawJson>,
}

/// What a client can request from a conversation. Some calls have further parameters for the agent, as an editor sent them.
#[derive(Debug)]
pub enum Call {
    /// Run a turn.
    Prompt(Prompt, NewTurn),
    /// Schedule a continuation of the interrupted turn.
    Continue(Continue),
    /// End a turn.
    Cancel(Cancel, Option<RawJson>),
    /// Open the session, with at least this fidelity.
    Resume(Fidelity),
    /// Change title or settings.
    Update(Update, Option<RawJson>),
    /// Make a branch.
    Fork(Fork),
    /// Replace the prompt of the turn at a place.
    Edit(Edit, PlaceRef, NewTurn),
    /// Undo the last change made in place.
    Undo {
        /// Restore the history that contains this session instead, with everything after it. Only without a head.
        session: Option<UpstreamId>,
        /// Counts the progress, if files have to move back.
        progress: Arc<Progress>,
    },
    /// Move to another folder.
    Move(MoveRequest),
    /// Start nothing new: the conversation is about to move together with others.
    PauseForMove,
    /// End the pause: the move is over.
    ResumeAfterMove,
    /// Continue with a repaired copy of the head. Counts the progress.
    Repair(Arc<Progress>),
    /// Answer a question.
    Respond(Response),
    /// Close the session.
    Close,
    /// Clear the chain.
    Reset,
    /// Delete the conversation, and its transcripts if requested.
    Delete(TranscriptsOnDelete),
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
            Self::Move(MoveRequest {
                destination: Destination::Folder(folder),
                ..
            }) => Some(folder),
            _ => None,
        }
    }
}
