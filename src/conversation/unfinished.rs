//! Work that an earlier daemon left unfinished: whether the store can say what to undo.
//!
//! Owns the one rule for copies and imports. Both record what they are about to create, and a daemon that finds such a record
//! deletes the files unless a conversation owns them. That is only right if the store knows every conversation.

use bridge_protocol::UpstreamId;

use super::services::chain_text;
use crate::files::set_aside::Unreadable;
use crate::store::Store;

/// What to do with unfinished work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndoPolicy {
    /// The store knows every conversation: undo what none of them owns.
    Undo,
    /// The store is empty because it is not kept: leave everything for a daemon that has the store.
    Leave,
    /// The store lost changes, perhaps those of the owner: set the record aside with this reason, so that a later start, which
    /// does not know of the loss, undoes nothing either.
    SetAside(Unreadable),
}

impl UndoPolicy {
    /// The verdict for this store.
    pub(super) fn of(store: &Store) -> Self {
        if store.status().is_ephemeral {
            Self::Leave
        } else if store.open_report().may_have_lost() {
            Self::SetAside(Unreadable::OwnerUnknown)
        } else {
            Self::Undo
        }
    }
}

/// Whether any conversation owns a session, be it a deleted one; `None` if the store cannot answer.
pub(super) fn has_owner(store: &Store, session: &UpstreamId) -> Option<bool> {
    match store.owners(session, None) {
        Ok(owners) => Some(!owners.is_empty()),
        Err(error) => {
            tracing::warn!(upstream_id = %session, error = chain_text(&error), "the owner of a session cannot be looked up");
            None
        }
    }
}
