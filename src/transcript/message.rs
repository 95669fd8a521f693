//! One message of a transcript, whatever the agent's format.
//!
//! Owns what is common to the formats: who said it, what it is, and its parts. Each format makes these of its own
//! records. Pure; knows no file, no conversation and nothing of the wire.

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
pub enum TranscriptMessageKind {
    /// What a person asked; a turn begins with the first of it.
    Prompt,
    /// A part of a reply, or what tools answered.
    Ordinary,
    /// What stands in for a past that was compacted.
    Summary,
    /// Something else that the agent wrote: a command of its own, its output, a mark.
    AgentNote,
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
    pub kind: TranscriptMessageKind,
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
    pub(super) fn tool_result_outline(record_id: String, bytes: u64) -> Self {
        Self {
            record_id,
            speaker: Speaker::User,
            kind: TranscriptMessageKind::Ordinary,
            at: None,
            parts: Vec::new(),
            copied_from: None,
            bytes,
        }
    }
}

impl Part {
    /// A record, or a part of it, whose form is not known. It has no kind of its own: what is a picture or a text in a list may be
    /// another thing elsewhere.
    pub(super) fn unknown_form(json: &str) -> Self {
        Self::Other {
            kind: String::new(),
            json: json.to_owned(),
        }
    }

    /// Whether it is what a tool answered.
    pub(super) fn is_tool_result(&self) -> bool {
        matches!(self, Self::ToolResult { .. })
    }
}
