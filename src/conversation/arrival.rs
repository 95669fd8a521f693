//! Whether a prompt reached its agent. It did if the transcript contains it after the position where the transcript
//! ended before the prompt was sent. Blocks.

use bridge_protocol::raw::PromptContent;
use bridge_protocol::{AgentName, UpstreamId};

use super::effect::Arrival;
use super::services::{Services, SessionRef, chain_text};
use crate::store::{Anchor, ConversationRecord, CutPrompt};
use crate::transcript::TranscriptError;
use crate::transcript::message::{Part, Sort, Speaker};
use crate::transcript::opened::Opened;

/// Where the transcript of a session ends now; none where it cannot be read.
pub(super) fn anchor(services: &Services, session: &SessionRef) -> Option<Anchor> {
    match open(services, session)? {
        Ok(opened) => {
            let last = opened.messages().checked_sub(1);
            Some(Anchor {
                owner: last.and_then(|last| opened.owner(last).map(UpstreamId::new)),
                record_uuid: last.map(|last| opened.record_id(last)),
            })
        }
        // An agent writes it with the first prompt.
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

/// Whether a prompt stands behind the former end of its session's transcript, and what became of it there.
pub(super) fn arrival(services: &Services, record: &ConversationRecord, sent: &CutPrompt) -> Arrival {
    let Some(id) = &sent.upstream_id else {
        return Arrival::Absent;
    };
    let Some(anchor) = &sent.anchor else {
        return Arrival::Unknown;
    };
    let session = SessionRef::of(record, id);
    let mut opened = match open(services, &session) {
        Some(Ok(opened)) => opened,
        Some(Err(error)) if error.is_absence() && anchor.record_uuid.is_none() => {
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
    let asked = Asked::of(&sent.prompt);
    let likeness = prompts.into_iter().map(|message| match opened.message(message) {
        Ok(Some(message)) => asked.likeness(&message.parts),
        // Whose it is nobody can tell.
        Ok(None) | Err(_) => Likeness::Possible,
    });
    match likeness.max() {
        None | Some(Likeness::Another) => Arrival::Absent,
        Some(Likeness::Same) if is_answered(services, &session.agent, &mut opened) => Arrival::Answered,
        Some(Likeness::Same | Likeness::Possible) => Arrival::Present,
    }
}

/// Of so few characters, blanks aside, a prompt may stand in another by chance.
const SHORT_CHARACTERS: usize = 12;

/// How much a message is like a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// It has other words.
    Another,
    /// Its words do not tell.
    Possible,
    /// It has these words.
    Same,
}

/// The words of a prompt, to be looked for. Agents break them otherwise, put others around them, and what a file or a picture
/// is called between them.
#[derive(Debug)]
struct Asked {
    texts: Vec<String>,
    is_command: bool,
}

impl Asked {
    fn of(prompt: &PromptContent) -> Self {
        let mut texts = prompt.texts();
        texts.retain(|text| !text.trim().is_empty());
        Self {
            is_command: texts.first().is_some_and(|text| is_command(text)),
            texts: texts.iter().map(|text| squeezed(text)).collect(),
        }
    }

    fn likeness(&self, parts: &[Part]) -> Likeness {
        let parts: Vec<String> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(squeezed(text)),
                _ => None,
            })
            .collect();
        let whole = parts.concat();
        // A command is written down in the agent's own form.
        if self.texts.is_empty() || self.is_command || whole.is_empty() {
            return Likeness::Possible;
        }
        let mut rest = whole.as_str();
        for text in &self.texts {
            let Some(place) = rest.find(text.as_str()) else {
                return Likeness::Another;
            };
            rest = &rest[place + text.len()..];
        }
        let is_long = self.texts.iter().map(|text| text.chars().count()).sum::<usize>() >= SHORT_CHARACTERS;
        let stands_alone = self.texts.iter().all(|text| parts.contains(text));
        match is_long || stands_alone {
            true => Likeness::Same,
            false => Likeness::Possible,
        }
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Whether a text is a command of the agent's: a path is none.
fn is_command(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    let name = word.strip_prefix('/').unwrap_or_default();
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.'))
}

/// Whether the last turn came to its end there, with the model's own words. Where the file does not say it, it did not.
fn is_answered(services: &Services, agent: &AgentName, opened: &mut Opened) -> bool {
    let entry = services.catalog.get(agent);
    let format = entry.and_then(|entry| entry.listed_transcripts());
    let is_over = format.is_some_and(|(_, format)| {
        let standing = format.dialect().state(&services.library, opened.path());
        standing.is_ok_and(|standing| standing.is_answered)
    });
    let last = opened.messages().checked_sub(1);
    let last = last.and_then(|last| opened.message(last).ok().flatten());
    is_over && last.is_some_and(|last| last.speaker == Speaker::Model && last.sort == Sort::Ordinary)
}

/// The transcript of a session; none where that of its agent cannot be read by this version.
fn open(services: &Services, session: &SessionRef) -> Option<Result<Opened, TranscriptError>> {
    let (root, format) = services.catalog.get(&session.agent)?.listed_transcripts()?;
    let session = services.session(root, &session.cwd, &session.upstream_id);
    Some(format.dialect().open(session, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn likeness(prompt: serde_json::Value, parts: &[&str]) -> Likeness {
        let prompt: PromptContent = serde_json::from_value(prompt).unwrap();
        let parts: Vec<Part> = parts.iter().map(|text| Part::Text((*text).to_owned())).collect();
        Asked::of(&prompt).likeness(&parts)
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
            (text(long), &["mend the\nfile of  hosts"][..], Likeness::Same),
            (
                text(long),
                &["Before:\n\nmend the file of hosts\n"],
                Likeness::Same,
            ),
            (text(long), &["Before", "mend the file of hosts"], Likeness::Same),
            (text(long), &["mend the file"], Likeness::Another),
            (
                with_file.clone(),
                &["Look at", "[@a.rs](file:///p/a.rs)", "and mend it"],
                Likeness::Same,
            ),
            (
                with_file.clone(),
                &["Look at[@a.rs](file:///p/a.rs)and mend it"],
                Likeness::Same,
            ),
            (with_file, &["and mend it", "Look at"], Likeness::Another),
            // Few words may stand in others by chance.
            (text("ok"), &["look at the book"], Likeness::Possible),
            (text("ok"), &["ok"], Likeness::Same),
            (text("ok"), &["no"], Likeness::Another),
            // A command is written down otherwise, a path is none.
            (
                text("/compact now"),
                &["<command-name>/compact</command-name>"],
                Likeness::Possible,
            ),
            (
                text("/etc/hosts has a wrong line"),
                &["elsewhere"],
                Likeness::Another,
            ),
            (picture, &["elsewhere"], Likeness::Possible),
            (text(long), &[], Likeness::Possible),
        ];
        for (prompt, parts, expected) in table {
            assert_eq!(likeness(prompt.clone(), parts), expected, "{prompt} in {parts:?}");
        }
    }
}
