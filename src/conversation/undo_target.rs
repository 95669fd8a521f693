//! Finds the target of an undo, from the lineage and the disk, and moves its files if they are in another folder.

use std::sync::Arc;

use bridge_protocol::link::{Attempt, Fidelity, LineageEntry, Via};
use bridge_protocol::{AgentName, UpstreamId};
use uuid::Uuid;

use super::closed_sessions::ClosedSessions;
use super::error::ConversationError;
use super::naming::shortened_title;
use super::resource::UnrecordedResource;
use super::running_work::Progress;
use super::services::Services;
use super::{folder, moving, tree_moves};
use crate::chain::{EarlierHead, NewLink, Origins, UndoEffect, next_undo, undo_to};
use crate::store::ConversationRecord;
use crate::transcript::transcript_list::listed_title;

/// Finds the change that the next undo reverts, or the session that it restores to an empty chain. `None` if there is
/// nothing to undo. If the session was left behind in another folder, its files are moved to the conversation's folder and
/// returned. The title is that of the session to go back to, if the conversation now has the title of the present one.
///
/// # Errors
/// If the store cannot be read, the folder to go back to cannot be used, a tree move moved the folder, the session to go
/// back to has neither a transcript nor a backup, or its files cannot be moved.
pub(super) async fn prepare_undo(
    services: Arc<Services>,
    record: ConversationRecord,
    session: Option<UpstreamId>,
    closed: ClosedSessions,
    progress: Arc<Progress>,
) -> Result<(Option<UndoEffect>, Option<String>, UnrecordedResource), ConversationError> {
    let record = Arc::new(record);
    let of_blocking = Arc::clone(&record);
    let find = services.blocking(move |services| {
        let target = find_undo_target(services, &of_blocking, session.as_ref())?;
        let (is_left_behind, title) = match &target {
            Some(UndoEffect::Branch(earlier)) => (
                is_left_behind(services, &of_blocking, earlier)?,
                earlier_title(services, &of_blocking, &earlier.link),
            ),
            _ => (false, None),
        };
        Ok::<_, ConversationError>((target, title, is_left_behind))
    });
    let (mut target, title, is_left_behind) = find.await??;
    let Some(UndoEffect::Branch(earlier)) = target.as_mut().filter(|_| is_left_behind) else {
        return Ok((target, title, UnrecordedResource::default()));
    };
    closed.wait_until_ended().await?;
    let (link, to) = (earlier.link.clone(), record.cwd.clone());
    let work = services.blocking(move |services| {
        let moved = moving::move_session_files(services, &record, &link, &record.cwd, &progress)?;
        // A session whose files have to stay is resumed in its own folder, unless that is missing.
        let comes_along = moved.is_some() || folder::check_folder(&link.cwd).is_err();
        Ok::<_, ConversationError>((comes_along, moved.unwrap_or_default()))
    });
    let (comes_along, files) = work.await??;
    if comes_along {
        earlier.link.cwd = to;
    }
    Ok((target, title, files))
}

/// The title of the session of an earlier head, if the conversation now has that of its present head: agents name a session
/// after its first prompt, and report the name with a later turn. A session without a transcript has none.
fn earlier_title(services: &Services, record: &ConversationRecord, earlier: &NewLink) -> Option<String> {
    let title_of = |agent: &AgentName, cwd: &str, id: &UpstreamId| {
        let (_, format) = services.catalog.get(agent)?.listed_transcripts()?;
        let path = services.transcripts(agent)?.find(cwd, id).ok()?;
        let title = listed_title(&path, format).map(|title| shortened_title(&title));
        title.filter(|title| !title.is_empty())
    };
    let head = record.chain.head()?;
    let present = title_of(&head.agent, &head.cwd, &head.upstream_id)?;
    match present == record.title {
        true => title_of(&earlier.agent, &earlier.cwd, &earlier.upstream_id),
        false => None,
    }
}

/// Whether the session of an earlier head is in another folder than the one in which it becomes the head: it was not in the
/// chain when the conversation moved, or the folder was moved while the chain was empty.
fn is_left_behind(
    services: &Services,
    record: &ConversationRecord,
    earlier: &EarlierHead,
) -> Result<bool, ConversationError> {
    let link = &earlier.link;
    let is_elsewhere = link.cwd != record.cwd && link.agent == record.agent;
    if !is_elsewhere || folder::check_folder(&record.cwd).is_err() {
        return Ok(false);
    }
    Ok(earlier.keeps_folder
        || folder::check_folder(&link.cwd).is_err()
        || moved_with_tree(services, record, &link.cwd)?.is_some())
}

/// The tree move that moved the conversation from this folder to its current one.
fn moved_with_tree(
    services: &Services,
    record: &ConversationRecord,
    from: &str,
) -> Result<Option<Uuid>, ConversationError> {
    tree_moves::tree_move_that_moved(&services.data_folder, record, from)
        .map_err(|error| ConversationError::StoreFailed(error.to_string().into()))
}

/// Finds the target, without changing anything. Blocks.
fn find_undo_target(
    services: &Services,
    record: &ConversationRecord,
    session: Option<&UpstreamId>,
) -> Result<Option<UndoEffect>, ConversationError> {
    let lineage = services.store.lineage_all(record.id)?;
    let links = record.chain.links();
    let mut tree_moves = Vec::new();
    let mut effect = match session {
        None => next_undo(&lineage, links, |next| match next {
            // Undoing it would take the conversation out of its folder, and the others would stay.
            UndoEffect::Move { cwd } => {
                let tree_move = moved_with_tree(services, record, cwd).transpose();
                let is_tree_move = tree_move.is_some();
                tree_moves.extend(tree_move);
                is_tree_move
            }
            UndoEffect::Branch(earlier) => {
                earlier.left_by.is_none() && check_session_exists(services, earlier).is_err()
            }
        }),
        // The chain is no longer empty: another client has restored a history, or started one.
        Some(_) if !links.is_empty() => None,
        Some(session) => undo_to(session, &lineage, links),
    };
    let tree_moves = tree_moves.into_iter().collect::<Result<Vec<Uuid>, _>>()?;
    match &mut effect {
        Some(UndoEffect::Move { cwd }) => folder::check_folder(cwd)?,
        Some(UndoEffect::Branch(earlier)) => {
            check_session_exists(services, earlier)?;
            let source_folder = folder_of_source(services, record, &lineage, &earlier.link)?;
            // The agent may write a fork next to its source, also if the fork is for another folder.
            if source_folder.is_none_or(|folder| folder == earlier.link.cwd)
                && let Some(folder) = moving::folder_of_moved_session(services, &earlier.link)
            {
                earlier.link.cwd = folder;
            }
        }
        None => {
            if let Some(id) = tree_moves.first() {
                return Err(ConversationError::PartOfTree {
                    undo_id: id.to_string(),
                });
            }
        }
    }
    Ok(effect)
}

/// The folder of the session that a branch came from, as recorded in this conversation or the one that it was forked off.
fn folder_of_source(
    services: &Services,
    record: &ConversationRecord,
    lineage: &[LineageEntry],
    link: &NewLink,
) -> Result<Option<String>, ConversationError> {
    let Some(source) = &link.from_upstream_id else {
        return Ok(None);
    };
    if let Some(known) = Origins::collect(lineage, record.chain.links()).get(source) {
        return Ok(Some(known.cwd));
    }
    let Some(parent) = &record.parent else {
        return Ok(None);
    };
    let lineage = services.store.lineage_all(parent.conversation_id)?;
    Ok(Origins::collect(&lineage, &[]).get(source).map(|known| known.cwd))
}

/// Refuses to go back to a session without a transcript or backup. Otherwise the next prompt would find out, and by then the
/// present head would no longer be the head. An agent whose transcripts cannot be read here is trusted to have the session.
fn check_session_exists(services: &Services, earlier: &EarlierHead) -> Result<(), ConversationError> {
    let link = &earlier.link;
    services.agent(&link.agent)?;
    let is_missing = |id: &UpstreamId| {
        services.transcripts(&link.agent).is_some_and(|transcripts| {
            // If the transcript cannot be checked, it may exist.
            let found = transcripts.find(&link.cwd, id);
            found.is_err_and(|error| error.is_absence()) && !transcripts.may_have_backup(id)
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
