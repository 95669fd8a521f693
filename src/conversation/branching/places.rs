//! Finding the place where a branch leaves its source in the transcripts. Blocks.

use std::io::ErrorKind;
use std::path::Path;

use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::{CheckpointId, UpstreamId};
use jiff::Timestamp;

use crate::agent::catalog::AgentEntry;
use crate::conversation::disk;
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::history::{History, Kept, KeptEnd, Reach, Spot};
use crate::conversation::services::{Services, chain_text};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::{CheckpointRef, PlaceRef};
use crate::transcript::shelf::Format;

/// Where a branch leaves its source.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The session and the last place in it that is kept.
    pub end: KeptEnd,
    /// The agent's own id of a message of the last turn, for a fork at that message.
    pub point: Option<String>,
    /// How many turns are kept, where they were counted.
    pub turns: Option<u64>,
}

/// What is left of a history by one who replaces a turn of it.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// Where it is left; none where the turn is the first one.
    pub place: Option<Place>,
    /// How many turns of the current history are in it no longer.
    pub dropped: u64,
}

/// The place that was named, at which a branch begins.
///
/// # Errors
/// [`ConversationError::NotFound`] when there is none of that name in the conversation, and as [`History::up_to`].
pub(super) fn named(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    at: &PlaceRef,
) -> Result<Place, ConversationError> {
    let (root, format) = readable(entry, " at a place")?;
    if let PlaceRef::Checkpoint(place) = at
        && format.dialect().can().copy
    {
        // The one who cuts finds it by itself.
        let session = UpstreamId::new(place.upstream_id.as_str());
        return match is_held(services, record, &session)? {
            true => Ok(Place {
                end: KeptEnd {
                    session,
                    until: CheckpointId::new(at.to_string()),
                },
                point: None,
                turns: None,
            }),
            false => Err(no_such_place(at)),
        };
    }
    let (mut history, spot) = find(services, record, at)?;
    let kept = history.up_to(spot)?;
    place(root, format, kept)?.ok_or_else(|| no_such_place(at))
}

/// Whether a conversation has a session, or had it.
///
/// # Errors
/// When the lineage cannot be read.
pub(super) fn is_held(
    services: &Services,
    record: &ConversationRecord,
    session: &UpstreamId,
) -> Result<bool, ConversationError> {
    if record.chain.contains(session) {
        return Ok(true);
    }
    let lineage = lineage(services, record)?;
    Ok(lineage.iter().any(|entry| entry.upstream_id == *session))
}

/// The place after the last turn that began before a moment; none where there is none.
///
/// # Errors
/// When the transcripts cannot be read.
pub(super) fn before_time(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    at: Timestamp,
) -> Result<Option<Place>, ConversationError> {
    let (root, format) = readable(entry, " while a turn runs")?;
    let mut history = History::of(services, record, &lineage(services, record)?, Reach::Agent)?;
    let end = history.before_time(at);
    let Some(end) = end else { return Ok(None) };
    Ok(Some(Place {
        point: point(root, format, &end)?,
        end,
        turns: None,
    }))
}

/// The place at the end of a session; none where it has no turn yet.
///
/// # Errors
/// When the transcripts cannot be read.
pub(super) fn at_end(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    from: &UpstreamId,
) -> Result<Option<Place>, ConversationError> {
    let (root, format) = readable(entry, " while a turn runs")?;
    let until = last_of(services, entry, &record.cwd, from)?;
    let Some(until) = until else { return Ok(None) };
    let end = KeptEnd {
        session: from.clone(),
        until,
    };
    Ok(Some(Place {
        point: point(root, format, &end)?,
        end,
        turns: None,
    }))
}

/// The place after the last turn of a session, if its transcript can be read.
///
/// # Errors
/// If it may be readable later.
pub(super) fn last_of(
    services: &Services,
    entry: &AgentEntry,
    cwd: &str,
    id: &UpstreamId,
) -> Result<Option<CheckpointId>, ConversationError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(None);
    };
    match disk::last_checkpoint((format.dialect(), services.home(root)), cwd, &entry.name, id) {
        Err(error) if error.is_passing() => Err(error.into()),
        found => Ok(found.ok().flatten()),
    }
}

/// What is left when the turn at a place is replaced.
///
/// # Errors
/// As [`named`].
pub(super) fn before_turn(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    at: &PlaceRef,
) -> Result<Left, ConversationError> {
    let (root, format) = readable(entry, " before a turn")?;
    let mut current = History::of(services, record, &lineage(services, record)?, Reach::Agent)?;
    // First: of what cannot be read nobody knows which places it has.
    let head = record.chain.head().filter(|head| head.written);
    if let Some(head) = head
        && current.last_session() != Some(&head.upstream_id)
    {
        current.refuse_unread()?;
        return Err(ConversationError::TranscriptDamaged(format!(
            "the transcript of the head, session {}, cannot be read, so it is unknown what an edit would keep; \
             to restore it, if that is possible: sessionctl resume {}",
            head.upstream_id, record.id
        )));
    }
    let (history, spot) = find(services, record, at)?;
    let kept = history.before_turn_of(spot)?;
    let turns = current.turns() as u64;
    let dropped = match current.spot(at) {
        Some(_) => turns.saturating_sub(kept.turns),
        // Of a place that was left the beginning may be that of the current history too.
        None => turns.saturating_sub(current.turns_shared_with(&history).min(kept.turns)),
    };
    Ok(Left {
        place: place(root, format, kept)?,
        dropped,
    })
}

/// The history in which a place is: the current one, else the one that a session of the conversation had.
fn find(
    services: &Services,
    record: &ConversationRecord,
    at: &PlaceRef,
) -> Result<(History, Spot), ConversationError> {
    let lineage = lineage(services, record)?;
    let current = History::of(services, record, &lineage, Reach::Agent)?;
    if let Some(spot) = current.spot(at) {
        return Ok((current, spot));
    }
    let mut links = record.chain.links().iter();
    let of_chain = links.find(|link| link.upstream_id.as_str() == at.upstream_id());
    let mut entries = lineage.iter().rev();
    let link = of_chain.cloned().or_else(|| {
        let entry = entries.find(|entry| entry.upstream_id.as_str() == at.upstream_id())?;
        Some(link_of(entry))
    });
    let history = link.map(|link| History::of_link(services, record, &lineage, &link, Reach::Agent));
    let mut why_untold = current.why_untold(at.upstream_id()).map(str::to_owned);
    if let Some(history) = history.transpose()? {
        if let Some(spot) = history.spot(at) {
            return Ok((history, spot));
        }
        history.refuse_unread()?;
        why_untold = why_untold.or_else(|| history.why_untold(at.upstream_id()).map(str::to_owned));
    }
    current.refuse_unread()?;
    Err(match why_untold {
        // It may well be there, so that nobody is told that it is not.
        Some(why) => ConversationError::TranscriptDamaged(format!(
            "\"{at}\" is in a session that cannot be read, and no copy of it is kept: {why}"
        )),
        None => no_such_place(at),
    })
}

/// A session that has left the chain, as its link was.
fn link_of(entry: &LineageEntry) -> Link {
    Link {
        upstream_id: entry.upstream_id.clone(),
        agent: entry.agent.clone(),
        cwd: entry.cwd.clone(),
        reason: bridge_protocol::link::LinkReason::Unknown,
        relation: entry.relation,
        from_upstream_id: entry.from_upstream_id.clone(),
        from_checkpoint_id: entry.from_checkpoint_id.clone(),
        turns: entry.turns,
        carried_turns: entry.carried_turns,
        written: entry.written,
        at: entry.at,
        cause: entry.cause,
    }
}

fn place(root: &Path, format: Format, kept: Kept) -> Result<Option<Place>, ConversationError> {
    let Some(end) = kept.end else { return Ok(None) };
    Ok(Some(Place {
        point: point(root, format, &end)?,
        end,
        turns: Some(kept.turns),
    }))
}

/// The agent's own id of a message of the turn at a place, for agents that fork at a message because their transcripts
/// cannot be cut.
fn point(root: &Path, format: Format, end: &KeptEnd) -> Result<Option<String>, ConversationError> {
    let until: Option<CheckpointRef> = end.until.as_str().parse().ok();
    let Some(until) = until else { return Ok(None) };
    let item = format.dialect().fork_point(root, end.session.as_str(), &until);
    item.map_err(|error| ConversationError::of_damage(&error, |why| why))
}

/// Why there is no branch. An error of the disk may be temporary, so it is no reason to retell less of the history.
pub(super) fn not_cut(error: &TranscriptError) -> ConversationError {
    let why = format!("the branch could not be cut: {}", chain_text(error));
    match error {
        TranscriptError::Io { source, .. } if source.kind() == ErrorKind::Unsupported => {
            ConversationError::Unsupported(why)
        }
        TranscriptError::Io { .. } => ConversationError::StoreFailed(StoreFailure {
            is_passing: error.is_passing(),
            ..why.into()
        }),
        _ => ConversationError::AgentError {
            message: why,
            upstream: None,
        },
    }
}

fn readable<'a>(entry: &'a AgentEntry, when: &str) -> Result<(&'a Path, Format), ConversationError> {
    entry.listed_transcripts().ok_or_else(|| {
        ConversationError::Unsupported(format!(
            "the agent {} offers no fork{when} and its transcripts cannot be cut",
            entry.name
        ))
    })
}

fn lineage(services: &Services, record: &ConversationRecord) -> Result<Vec<LineageEntry>, ConversationError> {
    Ok(services.store.lineage_all(record.id)?)
}

fn no_such_place(at: &PlaceRef) -> ConversationError {
    match at {
        PlaceRef::Checkpoint(_) => ConversationError::CheckpointNotFound {
            id: CheckpointId::new(at.to_string()),
        },
        PlaceRef::Message(_) => ConversationError::NotFound {
            what: format!(
                "there is no message \"{at}\" in a session of this conversation; sessionctl history --json lists them"
            ),
        },
    }
}
