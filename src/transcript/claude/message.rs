//! Messages of Claude's records, as every format tells them: from here on checkpoints and pages know no format. Pure.

use serde::Deserialize;

use super::book;
use super::record::{Block, RecordKind};
use crate::transcript::message::{Part, Sort, Speaker, TranscriptMessage};

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
