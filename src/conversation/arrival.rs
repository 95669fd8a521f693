//! Whether a prompt reached its agent, by the transcript: it stands behind the place where that ended before. Blocks.

use bridge_protocol::{AgentName, UpstreamId};

use super::disk;
use super::effect::Arrival;
use super::services::{Services, chain_text};
use crate::store::{Anchor, ConversationRecord};
use crate::transcript::TranscriptError;
use crate::transcript::opened::Opened;
use crate::transcript::shelf::Format;

/// Where the transcript of a session ends now; none where it cannot be read.
pub(super) fn anchor(services: &Services, agent: &AgentName, cwd: &str, id: &UpstreamId) -> Option<Anchor> {
    match open(services, agent, cwd, id)? {
        Ok(opened) => {
            let last = opened.messages().checked_sub(1);
            Some(Anchor {
                owner: last.and_then(|last| opened.owner(last).map(UpstreamId::new)),
                record_uuid: last.map(|last| opened.record_id(last)),
            })
        }
        // An agent writes it with the first prompt.
        Err(error) if disk::is_absence(&error) => Some(Anchor::default()),
        Err(error) => {
            tracing::warn!(
                error = chain_text(&error),
                "the end of a transcript cannot be read"
            );
            None
        }
    }
}

/// Whether a prompt stands behind the former end of a session's transcript. No session means that nothing was sent.
pub(super) fn arrival(
    services: &Services,
    record: &ConversationRecord,
    id: Option<&UpstreamId>,
    anchor: Option<&Anchor>,
) -> Arrival {
    let Some(id) = id else { return Arrival::Absent };
    let Some(anchor) = anchor else {
        return Arrival::Unknown;
    };
    let link = record
        .chain
        .links()
        .iter()
        .rev()
        .find(|link| link.upstream_id == *id);
    let agent = link.map_or(&record.agent, |link| &link.agent);
    let cwd = link.map_or(&record.cwd, |link| &link.cwd);
    let opened = match open(services, agent, cwd, id) {
        Some(Ok(opened)) => opened,
        Some(Err(error)) if disk::is_absence(&error) && anchor.record_uuid.is_none() => {
            return Arrival::Absent;
        }
        // One that was there and is gone says nothing of what it held.
        Some(Err(_)) | None => return Arrival::Unknown,
    };
    let behind = match &anchor.record_uuid {
        None => 0,
        Some(uuid) => match opened.find(anchor.owner.as_ref().unwrap_or(id).as_str(), uuid) {
            Some(message) => message + 1,
            None => return Arrival::Unknown,
        },
    };
    let last_prompt = opened.turns().checked_sub(1).map(|last| opened.turn(last).start);
    match last_prompt.is_some_and(|prompt| prompt >= behind) {
        true => Arrival::Present,
        false => Arrival::Absent,
    }
}

/// The transcript of a session; none where that of its agent cannot be read by this version.
fn open(
    services: &Services,
    agent: &AgentName,
    cwd: &str,
    id: &UpstreamId,
) -> Option<Result<Opened, TranscriptError>> {
    let library = &services.library;
    let (root, format) = services.catalog.get(agent)?.listed_transcripts()?;
    Some(match format {
        Format::Claude => {
            disk::find(library, root, cwd, id).and_then(|path| Opened::claude(library, &path, None))
        }
        Format::Codex => Opened::codex(library, root, id.as_str(), None),
    })
}
