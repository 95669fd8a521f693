//! Records of a transcript as the wire has them: messages and checkpoints.
//!
//! Owns what of a record is told and how much: a part that no answer could hold is cut, and says so.

use bridge_protocol::history::{Checkpoint, Message, MessageKind, MessagePart, Role};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};
use jiff::Timestamp;
use serde::Deserialize;

use super::super::page::Weighed;
use crate::transcript::checkpoint::{CheckpointRef, MessageRef};
use crate::transcript::claude::book::BookMessage;
use crate::transcript::preamble::is_preamble;
use crate::transcript::record::{Block, RecordKind};

/// How many characters of prompt and reply a checkpoint tells, as the contract has it.
const EXCERPT_CHARS: usize = 200;

/// How many bytes of one message are told. Well below what one answer may hold; pictures have some megabytes.
pub(super) const MESSAGE_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// The checkpoint at a record.
pub(super) fn checkpoint_id(agent: &AgentName, upstream_id: &UpstreamId, record_uuid: &str) -> CheckpointId {
    let place = CheckpointRef {
        agent: agent.as_str().to_owned(),
        upstream_id: upstream_id.as_str().to_owned(),
        record_uuid: record_uuid.to_owned(),
    };
    CheckpointId::new(place.to_string())
}

/// The message at a record.
pub(super) fn message_ref(upstream_id: &UpstreamId, record_uuid: String) -> MessageRef {
    MessageRef {
        upstream_id: upstream_id.as_str().to_owned(),
        record_uuid,
    }
}

/// What a message's record says on the wire.
pub(super) fn message(
    upstream_id: &UpstreamId,
    checkpoint_id: Option<CheckpointId>,
    read: BookMessage,
) -> Message {
    let kind = kind(&read);
    let mut room = MESSAGE_LIMIT_BYTES;
    Message {
        id: message_ref(upstream_id, read.header.uuid.unwrap_or_default()).to_string(),
        role: match read.header.kind {
            RecordKind::Assistant => Role::Assistant,
            _ => Role::User,
        },
        kind,
        at: time(read.header.timestamp.as_deref()),
        content: read
            .blocks
            .into_iter()
            .map(|block| part(block, &mut room))
            .collect(),
        checkpoint_id,
        upstream_id: upstream_id.clone(),
    }
}

fn kind(read: &BookMessage) -> Option<MessageKind> {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    if read.is_filler {
        Some(MessageKind::Error)
    } else if read.header.is_compact_summary {
        Some(MessageKind::Summary)
    } else if read.header.kind == RecordKind::User
        && !read.is_prompt
        && !read.header.has_tool_use_result
        && !read.blocks.iter().any(is_result)
    {
        Some(MessageKind::Aside)
    } else {
        None
    }
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

fn part(block: Block, room: &mut usize) -> MessagePart {
    let mut cut_bytes = None;
    let mut fitting = |text: String| {
        let length = text.len();
        let kept = fitting(text, *room);
        *room -= kept.len();
        if kept.len() < length {
            cut_bytes = Some(length as u64);
        }
        kept
    };
    let mut part = match block {
        Block::Text(text) => MessagePart {
            kind: if is_preamble(&text) { "retelling" } else { "text" }.to_owned(),
            text: Some(fitting(text)),
            ..MessagePart::default()
        },
        Block::ToolUse(call) => MessagePart {
            kind: "toolCall".to_owned(),
            tool_call_id: Some(call.id),
            name: Some(call.name),
            // What is cut is no JSON any more, and left out.
            input: RawJson::from_text(fitting(call.input_json)).ok(),
            ..MessagePart::default()
        },
        Block::ToolResult {
            tool_use_id,
            text,
            is_error,
        } => MessagePart {
            kind: "toolResult".to_owned(),
            tool_call_id: Some(tool_use_id),
            text: Some(fitting(text)),
            is_error: Some(is_error),
            ..MessagePart::default()
        },
        Block::Other { kind, json } => other(kind, json, fitting),
    };
    part.cut_bytes = cut_bytes;
    part
}

fn other(kind: String, json: String, mut fitting: impl FnMut(String) -> String) -> MessagePart {
    #[derive(Deserialize)]
    struct Thought {
        thinking: String,
    }
    #[derive(Deserialize)]
    struct Image {
        source: Source,
    }
    #[derive(Deserialize)]
    struct Source {
        media_type: String,
        data: String,
    }
    if kind == "thinking"
        && let Ok(thought) = serde_json::from_str::<Thought>(&json)
    {
        return MessagePart {
            kind: "thought".to_owned(),
            text: Some(fitting(thought.thinking)),
            ..MessagePart::default()
        };
    }
    if kind == "image"
        && let Ok(image) = serde_json::from_str::<Image>(&json)
    {
        return MessagePart {
            kind,
            mime_type: Some(image.source.media_type),
            data: Some(fitting(image.source.data)),
            ..MessagePart::default()
        };
    }
    MessagePart {
        kind,
        raw: RawJson::from_text(fitting(json)).ok(),
        ..MessagePart::default()
    }
}

/// As much of the text as there is room for.
fn fitting(mut text: String, room: usize) -> String {
    if text.len() > room {
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Takes the messages of one turn, oldest first, and keeps what a checkpoint tells of them.
#[derive(Debug, Default)]
pub(super) struct Digest {
    prompt: String,
    reply: String,
    tools: Vec<String>,
    at: Option<Timestamp>,
    bytes: u64,
    /// What the last record was copied from: a session and a record of it.
    pub(super) forked_from: Option<(String, String)>,
}

impl Digest {
    pub(super) fn take(&mut self, read: BookMessage) {
        self.bytes += read.bytes;
        self.at = time(read.header.timestamp.as_deref());
        self.forked_from.clone_from(&read.header.forked_from);
        let is_reply = read.header.kind == RecordKind::Assistant;
        for block in read.blocks {
            match block {
                Block::Text(text) if read.is_prompt && !is_preamble(&text) => {
                    excerpt(&mut self.prompt, &text);
                }
                Block::Text(text) if is_reply && !read.is_filler => {
                    excerpt(&mut self.reply, &text);
                }
                Block::ToolUse(call) if !self.tools.contains(&call.name) => self.tools.push(call.name),
                _ => {}
            }
        }
    }

    pub(super) fn checkpoint(
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

/// Adds a text to an excerpt, as far as that still has room; an empty line parts two texts.
fn excerpt(excerpt: &mut String, text: &str) {
    let parted = !excerpt.is_empty() && !text.is_empty();
    let room = EXCERPT_CHARS.saturating_sub(excerpt.chars().count());
    let lead = if parted { "\n\n" } else { "" };
    excerpt.extend(lead.chars().chain(text.chars()).take(room));
}

impl Weighed for Message {
    fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let raw = |raw: &Option<RawJson>| raw.as_ref().map_or(0, |raw| raw.get().len());
        let parts = self.content.iter().map(|part| {
            let words = text(&part.text) + text(&part.data) + text(&part.name) + text(&part.tool_call_id);
            64 + words + raw(&part.input) + raw(&part.raw)
        });
        FRAME_BYTES + parts.sum::<usize>()
    }
}

impl Weighed for Checkpoint {
    fn weight(&self) -> usize {
        let tools: usize = self.tools.iter().map(String::len).sum();
        FRAME_BYTES + self.prompt.len() + self.reply.len() + tools
    }
}

/// About what ids, times and names of members take.
const FRAME_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_answer_could_hold_is_cut_and_says_so() {
        let mut room = 5;
        let cut = part(Block::Text("ü".repeat(4)), &mut room);
        assert_eq!((cut.text.as_deref(), cut.cut_bytes), (Some("üü"), Some(8)));
        let other = Block::Other {
            kind: "later".to_owned(),
            json: r#"{"type":"later"}"#.to_owned(),
        };
        let dropped = part(other.clone(), &mut room);
        assert_eq!((dropped.raw, dropped.cut_bytes), (None, Some(16)));
        let whole = part(other, &mut MESSAGE_LIMIT_BYTES.clone());
        assert_eq!(
            whole.raw.map(|raw| raw.get().to_owned()).as_deref(),
            Some(r#"{"type":"later"}"#)
        );
    }

    #[test]
    fn an_excerpt_has_so_many_characters() {
        let mut text = String::new();
        for piece in ["ü".repeat(150), String::new(), "x".repeat(150)] {
            excerpt(&mut text, &piece);
        }
        assert_eq!(text, format!("{}\n\n{}", "ü".repeat(150), "x".repeat(48)));
    }
}
