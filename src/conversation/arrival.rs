//! Whether a prompt reached its agent, by the transcript: it stands behind the place where that ended before. Blocks.

use bridge_protocol::raw::PromptContent;
use bridge_protocol::{AgentName, UpstreamId};

use super::disk;
use super::effect::{Arrival, Sent};
use super::services::{Services, chain_text};
use crate::store::{Anchor, ConversationRecord};
use crate::transcript::TranscriptError;
use crate::transcript::codex::LastTurn;
use crate::transcript::message::{Part, Sort, Speaker};
use crate::transcript::opened::Opened;
use crate::transcript::record::TurnEnd;
use crate::transcript::rollouts;
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

/// Whether a prompt stands behind the former end of its session's transcript, and what became of it there.
pub(super) fn arrival(services: &Services, record: &ConversationRecord, sent: &Sent) -> Arrival {
    let Some(id) = &sent.upstream_id else {
        return Arrival::Absent;
    };
    let Some(anchor) = &sent.anchor else {
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
    let mut opened = match open(services, agent, cwd, id) {
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
    let prompts: Vec<usize> = (0..opened.turns())
        .rev()
        .map(|turn| opened.turn(turn).start)
        .take_while(|prompt| *prompt >= behind)
        .collect();
    // Another program may have asked something there as well, or instead.
    if !prompts
        .into_iter()
        .any(|prompt| holds(&mut opened, prompt, &sent.prompt))
    {
        return Arrival::Absent;
    }
    match is_answered(services, agent, &mut opened) {
        true => Arrival::Answered,
        false => Arrival::Present,
    }
}

/// Whether a message may be this prompt, by its words: they may stand between others, and be broken otherwise. What has no
/// words that an agent leaves as they are may be any.
fn holds(opened: &mut Opened, message: usize, prompt: &PromptContent) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let words = squeezed(&prompt.to_text());
    // A command is written down in the agent's own form.
    if words.is_empty() || words.starts_with('/') {
        return true;
    }
    let Ok(Some(message)) = opened.message(message) else {
        return true;
    };
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(squeezed(text)),
        _ => None,
    });
    let texts: String = texts.collect();
    texts.is_empty() || texts.contains(&words)
}

/// Whether the last turn came to its end there, with the model's own words. Where the file does not say it, it did not.
fn is_answered(services: &Services, agent: &AgentName, opened: &mut Opened) -> bool {
    let entry = services.catalog.get(agent);
    let format = entry.and_then(|entry| entry.listed_transcripts());
    let is_over = match format {
        Some((_, Format::Claude)) => services
            .library
            .standing(opened.path())
            .is_ok_and(|standing| standing.turn_end == TurnEnd::Over),
        Some((_, Format::Codex)) => {
            rollouts::last_turn(opened.path()).is_ok_and(|(last, _)| last == LastTurn::Answered)
        }
        None => false,
    };
    let last = opened.messages().checked_sub(1);
    let last = last.and_then(|last| opened.message(last).ok().flatten());
    is_over && last.is_some_and(|last| last.speaker == Speaker::Model && last.sort == Sort::Ordinary)
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
