//! Whether a prompt reached its agent. It did if the transcript contains it after the position where the transcript
//! ended before the prompt was sent. If the transcript is missing, its backup counts, since a resume restores that. Blocks.

use bridge_protocol::raw::PromptContent;
use bridge_protocol::{AgentName, UpstreamId};

use super::effect::PromptArrival;
use super::services::{Services, SessionRef, chain_text};
use super::transcript_facts::AgentTranscripts;
use crate::store::{Anchor, ConversationRecord, CutShortPrompt};
use crate::transcript::TranscriptError;
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessageKind};
use crate::transcript::open_transcript::BoxedTranscript;

/// Returns where the transcript of a session ends now; `None` if it cannot be read.
pub(super) fn transcript_end(services: &Services, session: &SessionRef) -> Option<Anchor> {
    match open_transcript(services.transcripts(&session.agent)?, session) {
        Ok(opened) => {
            let last = opened.messages().checked_sub(1);
            Some(Anchor {
                owner: last.and_then(|last| opened.owner(last).map(UpstreamId::new)),
                record_uuid: last.map(|last| opened.record_id(last)),
            })
        }
        // An agent creates the transcript with the first prompt.
        Err(error) if error.is_absence() => Some(Anchor::default()),
        Err(error) => {
            tracing::warn!(
                error = chain_text(&error),
                "the end of a transcript cannot be read"
            );
            None
        }
    }
}

/// Looks for a prompt after the former end of its session's transcript, and for the answer to it.
pub(super) fn find_prompt(
    services: &Services,
    record: &ConversationRecord,
    sent: &CutShortPrompt,
) -> PromptArrival {
    let Some(id) = &sent.upstream_id else {
        return PromptArrival::Absent;
    };
    let Some(anchor) = &sent.anchor else {
        return PromptArrival::Unknown;
    };
    let session = SessionRef::in_conversation(record, id);
    let Some(transcripts) = services.transcripts(&session.agent) else {
        return PromptArrival::Unknown;
    };
    let Ok(backup) = transcripts.unpack_backup_of_missing(id) else {
        return PromptArrival::Unknown;
    };
    let restored = backup.as_ref().map(|backup| transcripts.in_folder(backup.root()));
    let mut opened = match open_transcript(restored.unwrap_or(transcripts), &session) {
        Ok(opened) => opened,
        Err(error) if error.is_absence() && anchor.record_uuid.is_none() => {
            return PromptArrival::Absent;
        }
        // The transcript existed and is now missing or unreadable, so its content is unknown.
        Err(_) => return PromptArrival::Unknown,
    };
    let start = match &anchor.record_uuid {
        None => 0,
        Some(uuid) => match opened.find(anchor.owner.as_ref().unwrap_or(id).as_str(), uuid) {
            Some(message) => message + 1,
            // The backup is older than the anchor.
            None if backup
                .as_ref()
                .is_some_and(|backup| backup.has_session(id.as_str())) =>
            {
                return PromptArrival::Absent;
            }
            None => return PromptArrival::Unknown,
        },
    };
    let prompts: Vec<usize> = (0..opened.turns())
        .rev()
        .map(|turn| opened.turn(turn).start)
        .take_while(|prompt| *prompt >= start)
        .collect();
    // Prompts of another program may be there too, or instead.
    let matches = prompts.into_iter().map(|message| match opened.message(message) {
        Ok(Some(message)) => match_words(&sent.prompt, &message.parts),
        // A message that cannot be read may be this prompt.
        Ok(None) | Err(_) => Match::Possible,
    });
    match matches.max() {
        None | Some(Match::Another) => PromptArrival::Absent,
        Some(Match::Same) if is_answered(services, &session.agent, &mut opened) => PromptArrival::Answered,
        Some(Match::Same | Match::Possible) => PromptArrival::Present,
    }
}

/// A prompt with fewer characters than this, not counting whitespace, may occur in another prompt by chance.
const SHORT_CHARACTERS: usize = 12;

/// How well a message matches a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    /// It has other words, so it is another prompt.
    Another,
    /// Its words do not decide.
    Possible,
    /// It has the prompt's words.
    Same,
}

/// How well a message matches a prompt, by its words. Agents break lines differently, add text around the words, and put the
/// names of files and pictures between them.
fn match_words(prompt: &PromptContent, parts: &[ContentPart]) -> Match {
    let texts: Vec<String> = prompt.texts().filter(|text| !text.trim().is_empty()).collect();
    let is_command = texts.first().is_some_and(|text| is_command(text));
    let texts: Vec<String> = texts.iter().map(|text| normalized(text)).collect();
    let parts = parts.iter().filter_map(|part| match part {
        ContentPart::Text(text) => Some(normalized(text)),
        _ => None,
    });
    let parts: Vec<String> = parts.collect();
    let whole = parts.concat();
    // The agent records a command in its own form.
    if texts.is_empty() || is_command || whole.is_empty() {
        return Match::Possible;
    }
    let mut rest = whole.as_str();
    for text in &texts {
        let Some(start) = rest.find(text.as_str()) else {
            return Match::Another;
        };
        rest = &rest[start + text.len()..];
    }
    let is_long = texts.iter().map(|text| text.chars().count()).sum::<usize>() >= SHORT_CHARACTERS;
    let stands_alone = texts.iter().all(|text| parts.contains(text));
    match is_long || stands_alone {
        true => Match::Same,
        false => Match::Possible,
    }
}

fn normalized(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Whether a text is a command of the agent. A path is not a command.
fn is_command(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    let name = word.strip_prefix('/').unwrap_or_default();
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.'))
}

/// Whether the last turn has ended with a message of the model. If the file does not say so, it has not.
fn is_answered(services: &Services, agent: &AgentName, opened: &mut BoxedTranscript) -> bool {
    let entry = services.catalog.get(agent);
    let is_over = entry
        .and_then(|entry| entry.listed_transcripts())
        .is_some_and(|(_, format)| {
            let state = format.dialect().state(&services.index_cache, opened.path());
            state.is_ok_and(|state| state.is_answered)
        });
    let last = opened.messages().checked_sub(1);
    let last = last.and_then(|last| opened.message(last).ok().flatten());
    is_over
        && last.is_some_and(|last| {
            last.speaker == Speaker::Model && last.kind == TranscriptMessageKind::Ordinary
        })
}

/// Opens the transcript of a session.
fn open_transcript(
    transcripts: AgentTranscripts<'_>,
    session: &SessionRef,
) -> Result<BoxedTranscript, TranscriptError> {
    let session = transcripts.session(&session.cwd, &session.upstream_id);
    transcripts.dialect.open(session, None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn likeness(prompt: serde_json::Value, parts: &[&str]) -> Match {
        let prompt: PromptContent = serde_json::from_value(prompt).unwrap();
        let parts: Vec<ContentPart> = parts
            .iter()
            .map(|text| ContentPart::Text((*text).to_owned()))
            .collect();
        match_words(&prompt, &parts)
    }

    #[test]
    fn a_prompt_is_known_by_its_words() {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let with_file = json!([
            {"type": "text", "text": "Look at"},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///p/a.rs"},
            {"type": "text", "text": "and mend it"},
        ]);
        let picture = json!([{"type": "image", "mimeType": "image/png", "data": "AA=="}]);
        let long = "mend the file of hosts";
        let table = [
            (text(long), &["mend the\nfile of  hosts"][..], Match::Same),
            (text(long), &["Before:\n\nmend the file of hosts\n"], Match::Same),
            (text(long), &["Before", "mend the file of hosts"], Match::Same),
            (text(long), &["mend the file"], Match::Another),
            (
                with_file.clone(),
                &["Look at", "[@a.rs](file:///p/a.rs)", "and mend it"],
                Match::Same,
            ),
            (
                with_file.clone(),
                &["Look at[@a.rs](file:///p/a.rs)and mend it"],
                Match::Same,
            ),
            (with_file, &["and mend it", "Look at"], Match::Another),
            // Few words may stand in others by chance.
            (text("ok"), &["look at the book"], Match::Possible),
            (text("ok"), &["ok"], Match::Same),
            (text("ok"), &["no"], Match::Another),
            // A command is written down otherwise, a path is none.
            (
                text("/compact now"),
                &["<command-name>/compact</command-name>"],
                Match::Possible,
            ),
            (
                text("/etc/hosts has a wrong line"),
                &["elsewhere"],
                Match::Another,
            ),
            (picture, &["elsewhere"], Match::Possible),
            (text(long), &[], Match::Possible),
        ];
        for (prompt, parts, expected) in table {
            assert_eq!(likeness(prompt.clone(), parts), expected, "{prompt} in {parts:?}");
        }
    }
}
