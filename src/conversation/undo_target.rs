//! Finds the target of an undo, from the lineage and the disk. Blocks; call it from a blocking thread.

use bridge_protocol::UpstreamId;
use bridge_protocol::link::{Attempt, Fidelity, Via};

use super::error::ConversationError;
use super::services::Services;
use super::{backup, folder, tree_moves};
use crate::chain::{EarlierHead, UndoEffect, next_undo, undo_to};
use crate::store::ConversationRecord;

/// Finds the change that the next undo reverts, or the session that it restores to an empty chain. `None` if there is
/// nothing to undo.
///
/// # Errors
/// If the store cannot be read, the folder to go back to cannot be used, a tree move moved the folder, or the session to go
/// back to has neither a transcript nor a backup.
pub(super) fn find_undo_target(
    services: &Services,
    record: &ConversationRecord,
    session: Option<&UpstreamId>,
) -> Result<Option<UndoEffect>, ConversationError> {
    let lineage = services.store.lineage_all(record.id)?;
    let links = record.chain.links();
    let mut effect = match session {
        None => next_undo(&lineage, links),
        // The chain is no longer empty: another client has restored a history, or started one.
        Some(_) if !links.is_empty() => None,
        Some(session) => undo_to(session, &lineage, links),
    };
    match &mut effect {
        Some(UndoEffect::Move { cwd }) => {
            let took = tree_moves::tree_move_that_moved(&services.data_folder, record, cwd);
            let took = took.map_err(|error| ConversationError::StoreFailed(error.to_string().into()))?;
            if let Some(id) = took {
                return Err(ConversationError::PartOfTree {
                    undo_id: id.to_string(),
                });
            }
            folder::check_folder(cwd)?;
        }
        Some(UndoEffect::Branch(earlier)) => {
            check_session_exists(services, earlier)?;
            // A move of the folder while the chain was empty is recorded only in the conversation, not in the link.
            let cwd = &mut earlier.link.cwd;
            if folder::check_folder(cwd).is_err() && folder::check_folder(&record.cwd).is_ok() {
                cwd.clone_from(&record.cwd);
            }
        }
        None => {}
    }
    Ok(effect)
}

/// Refuses to go back to a session without a transcript or backup. Otherwise the next prompt would find out, and by then the
/// present head would no longer be the head. An agent whose transcripts cannot be read here is trusted to have the session.
fn check_session_exists(services: &Services, earlier: &EarlierHead) -> Result<(), ConversationError> {
    let link = &earlier.link;
    services.agent(&link.agent)?;
    let is_missing = |id: &UpstreamId| {
        let transcript = services.transcript(&link.agent, &link.cwd, id);
        transcript.is_some_and(|(dialect, session)| {
            // If the transcript cannot be checked, it may exist.
            dialect.find(session).is_err_and(|error| error.is_absence())
                && !backup::may_have_backup(services, session.home.root, id)
        })
    };
    // Agents create a transcript with the first turn. A branch without turns is made again from its source, and a session
    // that was never written is replaced by a new one.
    let is_lost = match &link.from_upstream_id {
        Some(from) if link.turns == 0 => is_missing(&link.upstream_id) && is_missing(from),
        None if !link.written => false,
        _ => is_missing(&link.upstream_id),
    };
    if !is_lost {
        return Ok(());
    }
    let error = format!(
        "cannot go back to session {}: its transcript is missing and has no backup; nothing was changed",
        link.upstream_id
    );
    Err(ConversationError::NotResumable {
        wanted: Fidelity::Partial,
        attempts: vec![Attempt {
            upstream_id: Some(link.upstream_id.clone()),
            via: Via::Archive,
            error: Some(error),
        }],
    })
}
