//! One message of a transcript, whatever the agent's format.
//!
//! Owns what is common to the formats: who said it, what it is, and its parts. Each format makes these of its own
//! records. Pure; knows no file, no conversation and nothing of the wire.

use serde::Deserialize;

use super::claude::book;
use super::record::{Block, RecordKind};

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The person, a tool, or the agent in the person's name.
    User,
    /// The model.
    Model,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// What a person asked; a turn begins with the first of it.
    Prompt,
    /// A part of a reply, or what tools answered.
    Ordinary,
    /// What stands in for a past that was compacted.
    Summary,
    /// Something else that the agent wrote: a command of its own, its output, a mark.
    Aside,
    /// What stands in place of a reply: an error of the model's server, or what the agent filled in.
    Error,
}

/// One message as its record has it.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptMessage {
    /// The name of its record within its transcript.
    pub record_id: String,
    /// Who said it.
    pub speaker: Speaker,
    /// What it is.
    pub sort: Sort,
    /// When it was written, RFC 3339, as the record has it.
    pub at: Option<String>,
    /// What it says.
    pub parts: Vec<Part>,
    /// The session and the record of it that this one is a copy of.
    pub copied_from: Option<(String, String)>,
    /// How long its record is, in bytes.
    pub bytes: u64,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words.
    Text(String),
    /// What the model thought, as far as it is told.
    Thought(String),
    /// The model calls a tool.
    ToolCall {
        /// The call's id, which its result names.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments, as JSON, byte for byte.
        input_json: String,
    },
    /// What a tool answered.
    ToolResult {
        /// The id of the call.
        call_id: String,
        /// The text of the answer; empty when it has none.
        text: String,
        /// Whether the tool failed or was refused; none where the record does not say.
        is_error: Option<bool>,
    },
    /// A picture, in base64.
    Image {
        /// Its media type.
        mime_type: String,
        /// Its bytes, in base64.
        data: String,
    },
    /// Anything else, as JSON.
    Other {
        /// Its kind in the agent's own words.
        kind: String,
        /// The whole of it.
        json: String,
    },
}

impl TranscriptMessage {
    /// What a tool answered, of which only the length is known.
    #[must_use]
    pub(super) fn answer(record_id: String, bytes: u64) -> Self {
        Self {
            record_id,
            speaker: Speaker::User,
            sort: Sort::Ordinary,
            at: None,
            parts: Vec::new(),
            copied_from: None,
            bytes,
        }
    }
}

impl From<book::BookMessage> for TranscriptMessage {
    fn from(read: book::BookMessage) -> Self {
        let sort = sort_of(&read);
        let book::BookMessage {
            header,
            blocks,
            bytes,
            ..
        } = read;
        Self {
            record_id: header.uuid.unwrap_or_default(),
            speaker: match header.kind {
                RecordKind::Assistant => Speaker::Model,
                _ => Speaker::User,
            },
            sort,
            at: header.timestamp,
            parts: blocks.into_iter().flat_map(parts).collect(),
            copied_from: header.forked_from,
            bytes,
        }
    }
}

fn sort_of(read: &book::BookMessage) -> Sort {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    if read.is_prompt {
        Sort::Prompt
    } else if read.is_filler {
        Sort::Error
    } else if read.header.is_compact_summary {
        Sort::Summary
    } else if read.header.kind == RecordKind::User
        && !read.header.has_tool_use_result
        && !read.blocks.iter().any(is_result)
    {
        Sort::Aside
    } else {
        Sort::Ordinary
    }
}

/// What a block says; more than one part only where a tool answered something whose form is not known.
fn parts(block: Block) -> Vec<Part> {
    match block {
        Block::Text(text) => vec![Part::Text(text)],
        Block::ToolUse(call) => vec![Part::ToolCall {
            id: call.id,
            name: call.name,
            input_json: call.input_json,
        }],
        Block::ToolResult {
            tool_use_id,
            text,
            is_error,
            strange,
        } => {
            let result = Part::ToolResult {
                call_id: tool_use_id,
                text,
                is_error: Some(is_error),
            };
            let strange = strange.into_iter().flat_map(parts);
            std::iter::once(result).chain(strange).collect()
        }
        Block::Other { kind, json } => vec![other(kind, json)],
    }
}

/// A block of Claude's that has no form of its own in a record.
fn other(kind: String, json: String) -> Part {
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
        return Part::Thought(thought.thinking);
    }
    if kind == "image"
        && let Ok(image) = serde_json::from_str::<Image>(&json)
    {
        return Part::Image {
            mime_type: image.source.media_type,
            data: image.source.data,
        };
    }
    Part::Other { kind, json }
}
