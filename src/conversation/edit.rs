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

/// What an edit's turn has of its branch.
#[derive(Debug)]
pub struct TurnEdit {
    /// The turn to replace, by a place in it.
    pub at: PlaceRef,
    /// The branch, once there is one.
    pub branch: Option<PendingEdit>,
}

impl TurnEdit {
    /// The branch on which the prompt has not been accepted yet.
    #[must_use]
    pub fn unaccepted(&self) -> Option<&PendingEdit> {
        self.branch.as_ref().filter(|branch| !branch.accepted)
    }
}

/// A branch that was made and opened for the new prompt.
#[derive(Clone, Debug)]
pub struct EditBranch {
    /// Its session, open in the agent; its own link is below.
    pub opened: OpenedSession,
    /// What is to become the head.
    pub link: NewLink,
    /// How much of what stood before the turn came along.
    pub fidelity: Fidelity,
    /// How many turns are in the history no longer, the replaced one included.
    pub dropped: u64,
    /// How it was made.
    pub via: BranchedVia,
}
