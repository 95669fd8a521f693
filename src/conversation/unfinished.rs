//! Decides whether unfinished work of an earlier daemon may be undone.
//!
//! Owns the rule for copies and imports. Both record what they are about to create. A daemon that finds such a record deletes
//! the files unless a conversation owns them, which is right only if the store knows every conversation.

use bridge_protocol::UpstreamId;

use super::services::chain_text;
use crate::files::set_aside::Unreadable;
use crate::store::Store;

/// What to do with unfinished work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndoPolicy {
    /// The store knows every conversation: undo what none of them owns.
    Undo,
    /// The store is in memory and empty: leave everything to a daemon that has the store.
    Leave,
    /// The store lost changes, perhaps those about the owner. Set the record aside with this reason, because a later start,
    /// which does not know of the loss, must not undo it either.
    SetAside(Unreadable),
}

impl UndoPolicy {
    /// The policy for this store.
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

/// Whether any conversation, even a deleted one, owns a session. `None` if the store cannot answer.
pub(super) fn has_owner(store: &Store, session: &UpstreamId) -> Option<bool> {
    match store.owners(session, None) {
        Ok(owners) => Some(!owners.is_empty()),
        Err(error) => {
            tracing::warn!(upstream_id = %session, error = chain_text(&error), "the owner of a session cannot be looked up");
            None
        }
    }
}
