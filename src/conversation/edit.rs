//! The state of an edit: the place of the replaced turn, and the branch on which the new prompt is sent. Pure data.
//!
//! The branch becomes the head when the agent accepts the prompt on it. Until then the head stays as it was. A branch
//! that is given up remains in the lineage as abandoned.

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Fidelity;

use crate::chain::NewLink;
use crate::store::PendingEdit;
use crate::transcript::checkpoint::PlaceRef;

use super::effect::OpenedSession;

/// The state of an edit, in its turn.
#[derive(Debug)]
pub struct TurnEdit {
    /// The turn to replace, by a place in it.
    pub at: PlaceRef,
    /// The branch, once there is one.
    pub branch: Option<PendingEdit>,
}

impl TurnEdit {
    /// The branch on which the prompt was accepted.
    #[must_use]
    pub fn accepted(&self) -> Option<&PendingEdit> {
        self.branch.as_ref().filter(|branch| branch.accepted)
    }

    /// The branch on which the prompt has not been accepted yet.
    #[must_use]
    pub fn unaccepted(&self) -> Option<&PendingEdit> {
        self.branch.as_ref().filter(|branch| !branch.accepted)
    }
}

/// A branch that was made and opened for the new prompt.
#[derive(Clone, Debug)]
pub struct EditBranch {
    /// Its session, open in the agent, without a link: that is `link`.
    pub opened: OpenedSession,
    /// The link that is to become the head.
    pub link: NewLink,
    /// How much of the history before the turn it contains.
    pub fidelity: Fidelity,
    /// How many turns the history no longer contains, including the replaced one.
    pub dropped: u64,
    /// How it was made.
    pub via: BranchedVia,
}
