//! The second pass: the records of one branch, gathered into turns.

use crate::transcript::claude::record::{Block, Message, Record, RecordHeader, RecordKind, SYNTHETIC_MODEL};
use crate::transcript::dialect::TurnEnd;
use crate::transcript::lines::line_text;

/// One prompt and all that followed it up to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// The uuid of the prompt's record.
    pub prompt_uuid: String,
    /// The uuid of the turn's last user or assistant record; what agents write behind it for themselves may
    /// come later and does not count.
    pub last_uuid: String,
    /// The `message.id` of the last reply that has text; where the agent can fork.
    pub last_message_id: Option<String>,
    /// The prompt's text; several blocks are parted by an empty line.
    pub prompt: String,
    /// The reply's text, likewise, without errors and without what the agent filled in itself.
    pub reply: String,
    /// The calls of tools, in order.
    pub tools: Vec<ToolCall>,
    /// Whether the turn ended in an error of the model's server (a limit is one).
    pub api_error: bool,
    /// Whether the reply came to its end: its last record is text, not a call, a result, an error or a mark
    /// of interruption.
    pub complete: bool,
    /// Whether any tool was called. The transcript cannot say whether a call that has no result had begun to
    /// run, so each counts as begun.
    pub tool_started: bool,
    /// When the prompt was written, RFC 3339, as the record has it.
    pub at: Option<String>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as JSON, byte for byte.
    pub input_json: String,
}

/// Takes the lines of a branch, oldest first.
#[derive(Debug, Default)]
pub(super) struct TurnBuilder {
    turns: Vec<Turn>,
}

impl TurnBuilder {
    pub(super) fn push(&mut self, line: &[u8]) {
        let text = line_text(line);
        let Some(record) = Record::parse(&text) else {
            return;
        };
        let header = record.header();
        let Some(uuid) = header.uuid.clone() else { return };
        if record.is_human_prompt() {
            self.turns.push(Turn {
                prompt_uuid: uuid.clone(),
                last_uuid: uuid,
                prompt: record.message().map(|message| message.text()).unwrap_or_default(),
                at: header.timestamp,
                ..Turn::default()
            });
            return;
        }
        // What stands before the first prompt, as a compaction's summary, belongs to no turn.
        let Some(turn) = self.turns.last_mut() else { return };
        match header.kind {
            RecordKind::User => {
                turn.last_uuid = uuid;
                turn.complete = false;
            }
            RecordKind::Assistant => {
                turn.last_uuid = uuid;
                turn.add_reply(&header, record.message().unwrap_or(EMPTY_MESSAGE));
            }
            RecordKind::Other => {}
        }
    }

    pub(super) fn finish(self) -> Vec<Turn> {
        self.turns
    }
}

const EMPTY_MESSAGE: Message = Message {
    id: None,
    model: None,
    stop_reason: None,
    blocks: Vec::new(),
};

impl Turn {
    fn add_reply(&mut self, header: &RecordHeader, message: Message) {
        self.api_error = header.is_api_error_message;
        if header.is_api_error_message || message.model.as_deref() == Some(SYNTHETIC_MODEL) {
            self.complete = false;
            return;
        }
        // A thought alone is no reply: the text is still to come.
        self.complete = TurnEnd::of(header, &message) != TurnEnd::Open;
        let text = message.text();
        if !text.is_empty() {
            if !self.reply.is_empty() {
                self.reply.push_str("\n\n");
            }
            self.reply.push_str(&text);
            self.last_message_id = message.id;
        }
        for block in message.blocks {
            if let Block::ToolUse(call) = block {
                self.tool_started = true;
                self.tools.push(ToolCall {
                    id: call.id,
                    name: call.name,
                    input_json: call.input_json,
                });
            }
        }
    }
}
