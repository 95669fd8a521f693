//! One message of a transcript, whatever the agent's format.
//!
//! This module has what the formats share: the speaker, the kind and the parts of a message. Each format makes messages
//! from its own records. Pure: it does not know files, conversations or the wire.

/// The speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user, a tool, or the agent on behalf of the user.
    User,
    /// The model.
    Model,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptMessageKind {
    /// A prompt of the user. The first one begins a turn.
    Prompt,
    /// A part of a reply, or a tool's result.
    Ordinary,
    /// A summary that replaces the history before a compaction.
    Summary,
    /// Another entry of the agent: a command of its own, a command's output, a marker.
    AgentNote,
    /// An entry in place of a reply: an error of the model's server, or a text that the agent filled in.
    Error,
}

/// One message of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptMessage {
    /// The id of its record within the transcript.
    pub record_id: String,
    /// Who said it.
    pub speaker: Speaker,
    /// Its kind.
    pub kind: TranscriptMessageKind,
    /// When it was written, RFC 3339, as in the record.
    pub at: Option<String>,
    /// Its content.
    pub parts: Vec<ContentPart>,
    /// The texts that the user typed, one for each part of a prompt, without what editors and agents add.
    pub typed: Vec<String>,
    /// The session and record from which this message was copied.
    pub copied_from: Option<(String, String)>,
    /// The length of its record, in bytes.
    pub bytes: u64,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// The model's thinking, as far as the agent records it.
    Thought(String),
    /// A call of a tool.
    ToolCall {
        /// The call's id, which its result names.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments, as JSON, byte for byte.
        input_json: String,
    },
    /// The result of a tool.
    ToolResult {
        /// The id of the call.
        call_id: String,
        /// The text of the result; empty if it has none.
        text: String,
        /// Whether the tool failed or was refused. `None` if the record does not say.
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
        /// Its kind, in the agent's own words.
        kind: String,
        /// The whole value.
        json: String,
    },
}

impl TranscriptMessage {
    /// A tool's result of which only the length is known.
    #[must_use]
    pub(super) fn tool_result_outline(record_id: String, bytes: u64) -> Self {
        Self {
            record_id,
            speaker: Speaker::User,
            kind: TranscriptMessageKind::Ordinary,
            at: None,
            parts: Vec::new(),
            typed: Vec::new(),
            copied_from: None,
            bytes,
        }
    }
}

impl ContentPart {
    /// Creates a part from a record, or a part of one, of an unknown form. Its kind stays empty, because a type that
    /// means a picture or a text in a list may mean something else there.
    pub(super) fn unknown_form(json: &str) -> Self {
        Self::Other {
            kind: String::new(),
            json: json.to_owned(),
        }
    }

    /// Its text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is a tool's result.
    pub(super) fn is_tool_result(&self) -> bool {
        matches!(self, Self::ToolResult { .. })
    }
}
