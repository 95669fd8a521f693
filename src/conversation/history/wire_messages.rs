//! Converts records of a transcript to messages and checkpoints of the wire contract.
//!
//! Decides what an answer contains of a record, and how much: a part that is too large for any answer is cut and marked
//! as cut.

use bridge_protocol::history::{Checkpoint, Message, MessageKind, MessagePart, Role};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{CheckpointId, UpstreamId};
use jiff::Timestamp;

use crate::transcript::checkpoint::MessageRef;
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};
use crate::transcript::preamble::is_preamble;

/// How many characters of prompt and reply a checkpoint contains, as the contract defines it.
const MAX_EXCERPT_CHARS: usize = 200;

/// How many bytes of one message an answer contains. Well below the limit of an answer; images have some megabytes.
pub(super) const MESSAGE_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// The reference to the message of a record.
pub(super) fn message_ref(upstream_id: &UpstreamId, record_uuid: String) -> MessageRef {
    MessageRef {
        upstream_id: upstream_id.as_str().to_owned(),
        record_uuid,
    }
}

/// Converts a message of a transcript to its wire form.
pub(super) fn message(
    upstream_id: &UpstreamId,
    checkpoint_id: Option<CheckpointId>,
    read: TranscriptMessage,
) -> Message {
    let mut room = Room::for_parts(&read.parts, MESSAGE_LIMIT_BYTES);
    Message {
        id: message_ref(upstream_id, read.record_id).to_string(),
        role: match read.speaker {
            Speaker::Model => Role::Assistant,
            Speaker::User => Role::User,
        },
        kind: match read.kind {
            TranscriptMessageKind::Prompt | TranscriptMessageKind::Ordinary => None,
            TranscriptMessageKind::Summary => Some(MessageKind::Summary),
            TranscriptMessageKind::AgentNote => Some(MessageKind::Aside),
            TranscriptMessageKind::Error => Some(MessageKind::Error),
        },
        at: parse_time(read.at.as_deref()),
        content: read
            .parts
            .into_iter()
            .map(|part| wire_part(part, &mut room))
            .collect(),
        checkpoint_id,
        upstream_id: upstream_id.clone(),
    }
}

fn parse_time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

/// How many bytes the parts of a message may still take.
struct Room {
    bytes: usize,
    /// Images get only what everything else leaves: words matter more.
    image_bytes: usize,
}

impl Room {
    fn for_parts(parts: &[ContentPart], limit_bytes: usize) -> Self {
        let size = |part: &ContentPart| match part {
            ContentPart::Image { .. } => 0,
            ContentPart::Text(text) | ContentPart::Thought(text) => text.len(),
            ContentPart::ToolCall { input_json, .. } => input_json.len(),
            ContentPart::ToolResult { text, .. } => text.len(),
            ContentPart::Other { json, .. } => json.len(),
        };
        Self {
            bytes: limit_bytes,
            image_bytes: limit_bytes.saturating_sub(parts.iter().map(size).sum()),
        }
    }
}

fn wire_part(source: ContentPart, room: &mut Room) -> MessagePart {
    let mut cut_bytes = None;
    let mut cut = |text: String| {
        let length = text.len();
        let shortened = cut_to_room(text, room.bytes);
        room.bytes -= shortened.len();
        if shortened.len() < length {
            cut_bytes = Some(length as u64);
        }
        shortened
    };
    let mut part = MessagePart::default();
    let kind = match source {
        ContentPart::Text(text) => {
            let kind = if is_preamble(&text) { "retelling" } else { "text" };
            part.text = Some(cut(text));
            kind
        }
        ContentPart::Thought(text) => {
            part.text = Some(cut(text));
            "thought"
        }
        ContentPart::ToolCall { id, name, input_json } => {
            (part.tool_call_id, part.name) = (Some(id), Some(name));
            // Cut input is no longer valid JSON, so it is omitted.
            part.input = RawJson::from_text(cut(input_json)).ok();
            "toolCall"
        }
        ContentPart::ToolResult {
            call_id,
            text,
            is_error,
        } => {
            (part.tool_call_id, part.text) = (Some(call_id), Some(cut(text)));
            part.is_error = is_error;
            "toolResult"
        }
        ContentPart::Image { mime_type, data } => {
            part.mime_type = Some(mime_type);
            // A part of an image cannot be shown.
            match room.image_bytes.checked_sub(data.len()) {
                None => cut_bytes = Some(data.len() as u64),
                Some(left) => {
                    room.image_bytes = left;
                    part.data = Some(data);
                }
            }
            "image"
        }
        ContentPart::Other { kind, json } => {
            part.raw = RawJson::from_text(cut(json)).ok();
            part.kind = kind;
            part.cut_bytes = cut_bytes;
            return part;
        }
    };
    part.kind = kind.to_owned();
    part.cut_bytes = cut_bytes;
    part
}

/// Cuts a text to at most `room` bytes.
fn cut_to_room(mut text: String, room: usize) -> String {
    if text.len() > room {
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Builds a checkpoint from the messages of one turn, oldest first.
#[derive(Debug, Default)]
pub(super) struct CheckpointBuilder {
    prompt: String,
    reply: String,
    tools: Vec<String>,
    at: Option<Timestamp>,
    bytes: u64,
    /// The session and the record from which the last record was copied.
    pub(super) copied_from: Option<(String, String)>,
}

impl CheckpointBuilder {
    pub(super) fn add_message(&mut self, read: TranscriptMessage) {
        self.bytes += read.bytes;
        self.at = parse_time(read.at.as_deref());
        self.copied_from = read.copied_from;
        let is_reply = read.speaker == Speaker::Model && read.kind == TranscriptMessageKind::Ordinary;
        for typed in read.typed.iter().filter(|typed| !is_preamble(typed)) {
            add_to_excerpt(&mut self.prompt, typed);
        }
        for part in read.parts {
            match part {
                ContentPart::Text(text) if is_reply => add_to_excerpt(&mut self.reply, &text),
                ContentPart::ToolCall { name, .. } if !self.tools.contains(&name) => self.tools.push(name),
                _ => {}
            }
        }
    }

    pub(super) fn build(
        self,
        id: CheckpointId,
        step: u64,
        upstream_id: UpstreamId,
        parent_id: Option<CheckpointId>,
        origin: Option<CheckpointId>,
    ) -> Checkpoint {
        Checkpoint {
            id,
            step,
            upstream_id,
            parent_id,
            at: self.at,
            prompt: self.prompt,
            reply: self.reply,
            tools: self.tools,
            bytes: self.bytes,
            origin,
        }
    }
}

/// Appends a text to an excerpt, up to the excerpt's limit; an empty line separates two texts.
fn add_to_excerpt(excerpt: &mut String, text: &str) {
    let is_second = !excerpt.is_empty() && !text.is_empty();
    let room = MAX_EXCERPT_CHARS.saturating_sub(excerpt.chars().count());
    let separator = if is_second { "\n\n" } else { "" };
    excerpt.extend(separator.chars().chain(text.chars()).take(room));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_within(limit_bytes: usize, parts: Vec<ContentPart>) -> Vec<MessagePart> {
        let mut room = Room::for_parts(&parts, limit_bytes);
        parts.into_iter().map(|part| wire_part(part, &mut room)).collect()
    }

    #[test]
    fn what_no_answer_could_hold_is_cut_and_says_so() {
        let other = ContentPart::Other {
            kind: "later".to_owned(),
            json: r#"{"type":"later"}"#.to_owned(),
        };
        let parts = parts_within(5, vec![ContentPart::Text("ü".repeat(4)), other.clone()]);
        assert_eq!(
            (parts[0].text.as_deref(), parts[0].cut_bytes),
            (Some("üü"), Some(8))
        );
        assert_eq!((parts[1].raw.as_ref(), parts[1].cut_bytes), (None, Some(16)));
        let whole = parts_within(16, vec![other]).remove(0).raw;
        assert_eq!(
            whole.map(|raw| raw.get().to_owned()).as_deref(),
            Some(r#"{"type":"later"}"#)
        );
    }

    #[test]
    fn images_leave_room_for_the_words_after_them() {
        let image = |length: usize| ContentPart::Image {
            mime_type: "image/png".to_owned(),
            data: "A".repeat(length),
        };
        let words = ContentPart::Text("compare these".to_owned());
        let parts = parts_within(30, vec![image(10), image(10), image(7), words]);
        let lengths: Vec<_> = parts
            .iter()
            .map(|part| part.data.as_ref().map(String::len))
            .collect();
        assert_eq!(lengths, [Some(10), None, Some(7), None]);
        assert_eq!(parts[1].cut_bytes, Some(10));
        assert_eq!(
            (parts[3].text.as_deref(), parts[3].cut_bytes),
            (Some("compare these"), None)
        );
    }

    #[test]
    fn an_excerpt_has_so_many_characters() {
        let mut text = String::new();
        for piece in ["ü".repeat(150), String::new(), "x".repeat(150)] {
            add_to_excerpt(&mut text, &piece);
        }
        assert_eq!(text, format!("{}\n\n{}", "ü".repeat(150), "x".repeat(48)));
    }
}
