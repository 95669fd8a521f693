//! One line of a Claude transcript: what the bridge reads from it.
//!
//! A line is one JSON record. Everything is decoded leniently: an unknown record, an unknown member, a member
//! of another type than expected is kept or passed over, and a garbage line is a value, not an error. Pure;
//! knows nothing of how records make a history (see `claude`).

use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::{Fields, Json};

/// The kinds of records that hold messages, and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A prompt, a tool's result, or something that the agent says in the user's name.
    User,
    /// One content block of a reply.
    Assistant,
    /// Any other `type`, or none.
    Other,
}

/// What stands around a record's message. An absent member, null, and one of another type are all `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordHeader {
    /// `type`.
    pub kind: RecordKind,
    /// `uuid`; only records that are part of the chain have one.
    pub uuid: Option<String>,
    /// `isSidechain`: said to or by a subagent.
    pub is_sidechain: bool,
    /// `isMeta`: written in the user's name by the agent.
    pub is_meta: bool,
    /// `isApiErrorMessage`: in place of a reply, the error that the model's server gave.
    pub is_api_error_message: bool,
    /// `isCompactSummary`: what replaces the history before a compaction.
    pub is_compact_summary: bool,
    /// Whether `toolUseResult` is there: a user record that holds a tool's result.
    pub has_tool_use_result: bool,
    /// `sessionId`.
    pub session_id: Option<String>,
    /// `cwd`.
    pub cwd: Option<String>,
    /// `timestamp`, RFC 3339, as written.
    pub timestamp: Option<String>,
    /// `forkedFrom`: the session and the record of it that this one is a copy of.
    pub forked_from: Option<(String, String)>,
}

/// The message of a user or assistant record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// `id`, as the model's server gave it; user messages have none.
    pub id: Option<String>,
    /// `model`; `<synthetic>` for what the agent filled in itself.
    pub model: Option<String>,
    /// `stop_reason`: why the model ended; none where that was not known when the record was written.
    pub stop_reason: Option<String>,
    /// Its content; a string counts as one text block, and what has no form that is known here as one [other](Block::Other).
    pub blocks: Vec<Block>,
}

/// One content block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Text.
    Text(String),
    /// The model calls a tool.
    ToolUse(ToolUse),
    /// What a tool answered.
    ToolResult {
        /// The `id` of the call.
        tool_use_id: String,
        /// The text of the answer; empty when it has none.
        text: String,
        /// Whether the tool failed or was refused.
        is_error: bool,
        /// What else it answered, where the form of that is not known here; pictures and the like are left out.
        strange: Vec<Block>,
    },
    /// Any other block (an image, a thought), as JSON.
    Other {
        /// Its `type`, empty when it has none.
        kind: String,
        /// The whole block.
        json: String,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The call's id, which its result names.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as JSON, byte for byte.
    pub input_json: String,
}

/// A record whose members can still be asked for.
#[derive(Debug)]
pub struct Record<'a> {
    /// The record's members.
    pub fields: Fields<'a>,
}

/// The `model` of messages that the agent made up itself.
pub const SYNTHETIC_MODEL: &str = "<synthetic>";

/// What the agent writes in the user's name when a reply is broken off, as a whole or up to a closing part.
pub const INTERRUPTED_TEXT: &str = "[Request interrupted by user";

/// Beginnings of texts that stand in user records without being prompts, where no `origin` says so: the files are too old
/// for it, or it is one that the agent leaves without. What a person has the model asked with is none of them: a command that
/// is a prompt begins with `<command-message>`, and to `<bash-input>` the model replies (2.1.316, unless set otherwise).
const NOT_PROMPTS: [&str; 10] = [
    INTERRUPTED_TEXT,
    "<command-name>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "<system-reminder>",
    // What an editor tells beside a prompt: the file that is open, the lines that are selected.
    "<ide_",
];

/// Kinds of records that are part of a chain. Of others nothing is known but where they stand.
pub(super) const CHAIN_KINDS: [&str; 6] = [
    "user",
    "assistant",
    "attachment",
    "system",
    "progress",
    "custom-title",
];

/// Beginnings of commands of the agent's own, and of what they put out.
const ASIDES: [&str; 2] = ["<command-", "<local-command-"];

impl<'a> Record<'a> {
    /// The record that `text` is, or nothing when it is not a JSON object.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        Fields::parse(text).map(|fields| Self { fields })
    }

    /// What stands around the message.
    #[must_use]
    pub fn header(&self) -> RecordHeader {
        let fields = &self.fields;
        RecordHeader {
            kind: match fields.str("type").as_deref() {
                Some("user") => RecordKind::User,
                Some("assistant") => RecordKind::Assistant,
                _ => RecordKind::Other,
            },
            uuid: fields.text("uuid"),
            is_sidechain: fields.flag("isSidechain"),
            is_meta: fields.flag("isMeta"),
            is_api_error_message: fields.flag("isApiErrorMessage"),
            is_compact_summary: fields.flag("isCompactSummary"),
            has_tool_use_result: fields.raw("toolUseResult").is_some(),
            session_id: fields.text("sessionId"),
            cwd: fields.text("cwd"),
            timestamp: fields.text("timestamp"),
            forked_from: fields
                .object("forkedFrom")
                .and_then(|from| from.text("sessionId").zip(from.text("messageUuid"))),
        }
    }

    /// The message, of records that hold one.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        let whole = said(&self.fields, "message")?;
        let Some(message) = Fields::of(whole) else {
            return Some(Message {
                blocks: vec![Block::whole(whole.get())],
                ..Message::default()
            });
        };
        let blocks = match (message.array("content"), message.text("content")) {
            (Some(items), _) => items.into_iter().map(Block::parse).collect(),
            (None, Some(text)) => vec![Block::Text(text)],
            (None, None) => vec![Block::whole(said(&message, "content").unwrap_or(whole).get())],
        };
        Some(Message {
            id: message.text("id"),
            model: message.text("model"),
            stop_reason: message.text("stop_reason"),
            blocks,
        })
    }

    /// Whether a person wrote this record's message.
    ///
    /// Newer files say so (`origin.kind`). In older ones it is a user record with a text, an image or a document and
    /// without a tool's result that the agent did not write itself.
    #[must_use]
    pub fn is_human_prompt(&self) -> bool {
        let fields = &self.fields;
        if !self.is_users() || fields.flag("isSidechain") {
            return false;
        }
        if let Some(kind) = fields.object("origin").and_then(|origin| origin.str("kind")) {
            return kind == "human";
        }
        if fields.flag("isMeta") || fields.flag("isCompactSummary") || fields.raw("toolUseResult").is_some() {
            return false;
        }
        let Some(message) = self.message() else {
            return false;
        };
        let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
        let is_prompt = |block: &Block| match block {
            Block::Text(text) => is_prompt_text(text.as_bytes()),
            Block::Other { kind, .. } => matches!(kind.as_str(), "image" | "document"),
            Block::ToolUse(_) | Block::ToolResult { .. } => false,
        };
        !message.blocks.iter().any(is_result) && message.blocks.iter().any(is_prompt)
    }

    fn is_users(&self) -> bool {
        self.fields.str("type").as_deref() == Some("user")
    }
}

impl TurnEnd {
    /// Whether a turn is over with this message: it is a reply's text with which the model ended, an error in place of
    /// one, or the mark of an interruption.
    #[must_use]
    pub fn of(header: &RecordHeader, message: &Message) -> Self {
        let calls = |block: &Block| matches!(block, Block::ToolUse(_));
        let says = |block: &Block| matches!(block, Block::Text(text) if !text.is_empty());
        match header.kind {
            RecordKind::Assistant if header.is_api_error_message => Self::Over,
            RecordKind::Assistant if message.blocks.iter().any(calls) || !message.blocks.iter().any(says) => {
                Self::Open
            }
            RecordKind::Assistant => match message.stop_reason.as_deref() {
                Some("tool_use") => Self::Open,
                // Claude Code asks the model to go on behind these, some times (2.1.316). A `pause_turn` it takes as an end.
                None | Some("max_tokens" | "model_context_window_exceeded" | "refusal") => Self::Ambiguous,
                Some(_) => Self::Over,
            },
            RecordKind::User if message.text().starts_with(INTERRUPTED_TEXT) => Self::Over,
            _ => Self::Open,
        }
    }
}

impl Record<'_> {
    /// Whether a turn is over with this record, see [`TurnEnd::of`].
    #[must_use]
    pub fn turn_end(&self) -> TurnEnd {
        let message = self.message();
        message.map_or(TurnEnd::Open, |message| TurnEnd::of(&self.header(), &message))
    }

    /// Whether this is a command of the agent's own that a person typed, or its output.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        if !self.is_users() || self.fields.flag("isCompactSummary") || self.is_human_prompt() {
            return false;
        }
        self.message()
            .is_some_and(|message| is_aside_text(message.text().as_bytes()))
    }
}

/// Whether a text in a user record that says no more may be a prompt, by how it begins.
pub(super) fn is_prompt_text(text: &[u8]) -> bool {
    !NOT_PROMPTS
        .iter()
        .any(|beginning| text.starts_with(beginning.as_bytes()))
}

/// Whether records of this kind are about the session as a whole, wherever in the file they stand: a fork by the agent itself
/// takes all of them along (Claude Code 2.1.316).
pub(super) fn is_session_wide(kind: &str) -> bool {
    matches!(
        kind,
        "content-replacement" | "atis-latch" | "tools-used" | "history-suppression" | "relocated"
    )
}

/// Whether a text is a command of the agent's own that a person typed, or its output, by how it begins.
pub(super) fn is_aside_text(text: &[u8]) -> bool {
    ASIDES
        .iter()
        .any(|beginning| text.starts_with(beginning.as_bytes()))
}

impl Message {
    /// All text blocks, one empty line between two.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n\n")
    }
}

impl Block {
    /// A record, or a part of it, whose form is not known. It has no type of its own: what is a picture or a text in a list may
    /// be another thing elsewhere.
    pub(super) fn whole(json: &str) -> Self {
        Self::Other {
            kind: String::new(),
            json: json.to_owned(),
        }
    }

    fn parse(json: Json<'_>) -> Self {
        let other = |kind: String| Self::Other {
            kind,
            json: json.get().to_owned(),
        };
        let Some(fields) = Fields::of(json) else {
            return json
                .text()
                .map_or_else(|| other(String::new()), |text| Self::Text(text.into_owned()));
        };
        let kind = fields.text("type").unwrap_or_default();
        match kind.as_str() {
            "text" => fields.text("text").map_or_else(|| other(kind), Self::Text),
            "tool_use" => match (fields.text("id"), fields.text("name")) {
                (Some(id), Some(name)) => Self::ToolUse(ToolUse {
                    id,
                    name,
                    input_json: fields.raw("input").map_or("{}", |raw| raw.get()).to_owned(),
                }),
                _ => other(kind),
            },
            "tool_result" => match fields.text("tool_use_id") {
                Some(tool_use_id) => {
                    let (text, strange) = answer(&fields);
                    Self::ToolResult {
                        tool_use_id,
                        text,
                        is_error: fields.flag("is_error"),
                        strange,
                    }
                }
                None => other(kind),
            },
            _ => other(kind),
        }
    }
}

/// A tool's result is a string, or blocks of which the text ones count; and what of it has no form that is known here.
fn answer(fields: &Fields<'_>) -> (String, Vec<Block>) {
    if let Some(text) = fields.text("content") {
        return (text, Vec::new());
    }
    let Some(items) = fields.array("content") else {
        let whole = said(fields, "content").map(|whole| Block::whole(whole.get()));
        return (String::new(), whole.into_iter().collect());
    };
    let (mut texts, mut strange) = (Vec::new(), Vec::new());
    for item in items {
        match Block::parse(item) {
            Block::Text(text) => texts.push(text),
            Block::Other { kind, .. } if is_known_block(&kind) => {}
            block => strange.push(block),
        }
    }
    (texts.join("\n"), strange)
}

/// A member's value as it stands; one that is null is none.
fn said<'a>(fields: &Fields<'a>, name: &str) -> Option<Json<'a>> {
    fields.raw(name).filter(|value| value.get() != "null")
}

/// Whether blocks of this type are known, though they have no form of their own here: they are told as they stand, or left
/// out of what a tool answered. Thoughts, and texts and tools with what belongs to them, are known by their members.
pub(super) fn is_known_block(kind: &str) -> bool {
    const KNOWN: [&str; 7] = [
        "image",
        "document",
        "redacted_thinking",
        "search_result",
        "container_upload",
        "tool_reference",
        "compaction",
    ];
    KNOWN.contains(&kind) || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}

#[cfg(test)]
mod tests;
