//! What a check notes of a line of a rollout while it is read: calls of tools, their results, and what is not known of it.
//!
//! What a line is in its history is noted by the index's own way of reading. What the members mean is decided as in `line`,
//! which decodes a line whole: both ways to read a line are held together by a test.

use crate::transcript::check::{Item, Strange, hash_of, quoted};
use crate::transcript::scan::{BEGINNING_BYTES, Grammar, Held, ID_LIMIT_BYTES, Noted};

/// Kinds of lines that are known, as Codex up to 0.166.0 writes them.
const KINDS: [&str; 12] = [
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
    "dynamic_tools_updated",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "security_risk_score",
    "realtime_item",
];

/// Kinds of items in a history that are known. Those of which nothing more is known here are told as they stand.
const ITEMS: [&str; 19] = [
    "message",
    "reasoning",
    "local_shell_call",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "mcp_tool_call_output",
    "web_search_call",
    "image_generation_call",
    "tool_search_call",
    "tool_search_output",
    "agent_message",
    "additional_tools",
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "compaction_trigger",
];

/// Who says what is not told: the agent, in its instructions to the model.
const INSTRUCTORS: [&str; 2] = ["developer", "system"];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Context {
    Line,
    Payload,
    /// An object that holds a tool's output.
    Output,
    /// The parts of what an item says.
    Parts,
    Part,
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Member {
    Payload,
    Type,
    CallId,
    Name,
    Version,
    Role,
    Content,
    Summary,
    Output,
    OutputContent,
    /// An element of one of these.
    Part,
    PartType,
    PartText,
    PartImage,
    #[default]
    None,
}

/// What a check wants to know of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether it says of what kind it is, apart from what it holds; the first versions did not.
    pub(super) has_envelope: bool,
    /// What of it is not known here: its kind, that of its item, or the form of what that says.
    pub(super) strange: Option<Strange>,
    /// The version of Codex that it names.
    pub(super) version: Option<String>,
    pub(super) item: Option<Item>,
}

#[derive(Debug, Default)]
pub(super) struct SaidNoted {
    /// The line's own members; they are the item's too where there is no envelope.
    line: ItemNoted,
    payload: Option<ItemNoted>,
    in_payload: bool,
}

#[derive(Debug, Default)]
struct ItemNoted {
    kind: Option<String>,
    /// A hash of it.
    call_id: Option<u64>,
    name: Option<String>,
    version: Option<String>,
    role: Option<String>,
    content: Form,
    summary: Form,
    output: Form,
    /// Which of them is read.
    read: Member,
    part: PartNoted,
}

/// In which form something stands there.
#[derive(Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Absent,
    Text,
    /// Parts, and the type of the first one of which the type or the form is not known.
    Parts(Option<String>),
    Unknown,
}

#[derive(Debug, Default)]
struct PartNoted {
    kind: String,
    has_text: bool,
    has_image: bool,
}

impl Noted for SaidNoted {
    const GRAMMAR: Grammar = Grammar::Serde;

    type Context = Context;
    type Member = Member;
    type Note = Said;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Other | Context::Parts, _) => Member::None,
            (Context::Part, b"type") => Member::PartType,
            (Context::Part, b"text") => Member::PartText,
            (Context::Part, b"image_url") => Member::PartImage,
            (Context::Part, _) => Member::None,
            (Context::Output, b"content") => Member::OutputContent,
            (Context::Output, _) => Member::None,
            (Context::Line, b"payload") => Member::Payload,
            (_, b"type") => Member::Type,
            (_, b"call_id") => Member::CallId,
            (_, b"name") => Member::Name,
            (_, b"cli_version") => Member::Version,
            (_, b"role") => Member::Role,
            (_, b"content") => Member::Content,
            (_, b"summary") => Member::Summary,
            (_, b"output") => Member::Output,
            _ => Member::None,
        }
    }

    fn element(context: Context) -> Member {
        match context {
            Context::Parts => Member::Part,
            _ => Member::None,
        }
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::Type | Member::Version | Member::Role | Member::PartType => BEGINNING_BYTES,
            Member::CallId | Member::Name => ID_LIMIT_BYTES,
            Member::Payload
            | Member::Content
            | Member::Summary
            | Member::Output
            | Member::OutputContent
            | Member::Part
            | Member::PartText
            | Member::PartImage
            | Member::None => 0,
        }
    }

    fn name(&mut self, member: Member) {
        match member {
            Member::Payload => self.payload = None,
            Member::Type => self.item().kind = None,
            Member::CallId => self.item().call_id = None,
            Member::Name => self.item().name = None,
            Member::Version => self.item().version = None,
            Member::Role => self.item().role = None,
            Member::Content | Member::Summary | Member::Output => {
                let item = self.item();
                item.read = member;
                *item.form() = Form::Absent;
            }
            // What stands around it is an object, which has no other form.
            Member::OutputContent => self.item().output = Form::Unknown,
            Member::PartType => self.item().part.kind.clear(),
            Member::PartText => self.item().part.has_text = false,
            Member::PartImage => self.item().part.has_image = false,
            Member::Part | Member::None => {}
        }
    }

    fn begin(&mut self, member: Member, first: u8) {
        let item = self.item();
        match (member, first) {
            (Member::Content | Member::Summary | Member::Output, _) => {
                *item.form() = match first {
                    b'"' => Form::Text,
                    b'[' => Form::Parts(None),
                    b'n' => Form::Absent,
                    _ => Form::Unknown,
                };
            }
            (Member::OutputContent, b'"') => item.output = Form::Text,
            (Member::OutputContent, b'[') => item.output = Form::Parts(None),
            (Member::PartText, b'"') => item.part.has_text = true,
            (Member::PartImage, b'"') => item.part.has_image = true,
            (Member::Part, first) if first != b'{' => item.find_strange(String::new()),
            _ => {}
        }
    }

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        match (around, member, is_object) {
            (None, ..) => Context::Line,
            (Some(Context::Line), Member::Payload, true) => {
                self.payload = Some(ItemNoted::default());
                self.in_payload = true;
                Context::Payload
            }
            (Some(Context::Line | Context::Payload), Member::Output, true) => Context::Output,
            (
                Some(Context::Line | Context::Payload | Context::Output),
                Member::Content | Member::Summary | Member::Output | Member::OutputContent,
                false,
            ) => Context::Parts,
            (Some(Context::Parts), _, true) => {
                self.item().part = PartNoted::default();
                Context::Part
            }
            _ => Context::Other,
        }
    }

    fn close(&mut self, context: Context) {
        match context {
            Context::Payload => self.in_payload = false,
            Context::Part => self.item().end_part(),
            _ => {}
        }
    }

    fn string(&mut self, member: Member, held: &Held) {
        let item = self.item();
        match member {
            Member::Type => item.kind = Some(held.prefix()),
            Member::CallId => item.call_id = held.text().map(|text| hash_of(&text)),
            Member::Name => item.name = Some(quoted(&held.prefix())),
            Member::Version => item.version = Some(quoted(&held.prefix())),
            Member::Role => item.role = Some(quoted(&held.prefix())),
            Member::PartType => item.part.kind = quoted(&held.prefix()),
            _ => {}
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(self) -> Said {
        let kind = self.line.kind.as_deref();
        let is_known = kind.is_none_or(|kind| KINDS.contains(&kind));
        let unknown = || kind.filter(|_| !is_known).map(|kind| Strange::Kind(quoted(kind)));
        match self.payload {
            Some(payload) => {
                let is_item = kind == Some("response_item");
                Said {
                    has_envelope: true,
                    strange: if is_item { payload.strange() } else { unknown() },
                    version: payload.version.clone(),
                    item: payload.item().filter(|_| is_item),
                }
            }
            None => {
                let is_item = self.line.is_item_by_itself();
                Said {
                    has_envelope: false,
                    strange: match kind {
                        _ if is_item => self.line.strange(),
                        Some("response_item") => Some(Strange::Content),
                        _ => unknown(),
                    },
                    version: self.line.version.clone(),
                    item: self.line.item().filter(|_| is_item),
                }
            }
        }
    }
}

impl SaidNoted {
    /// What is being read: the payload, or the line.
    fn item(&mut self) -> &mut ItemNoted {
        match &mut self.payload {
            Some(payload) if self.in_payload => payload,
            _ => &mut self.line,
        }
    }
}

impl ItemNoted {
    /// Whether a line of this kind is an item where there is no envelope.
    fn is_item_by_itself(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| {
            matches!(kind, "message" | "reasoning")
                || kind.ends_with("_call")
                || kind.ends_with("_call_output")
        })
    }

    /// The form of what is read.
    fn form(&mut self) -> &mut Form {
        match self.read {
            Member::Summary => &mut self.summary,
            Member::Output => &mut self.output,
            _ => &mut self.content,
        }
    }

    fn find_strange(&mut self, kind: String) {
        if let Form::Parts(strange @ None) = self.form() {
            *strange = Some(kind);
        }
    }

    /// As `item` decides whether a part has a form of its own.
    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        let is_known = match part.kind.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => part.has_text,
            "input_image" => part.has_image,
            kind => matches!(kind, "input_audio" | "input_file" | "encrypted_content"),
        };
        if !is_known {
            self.find_strange(part.kind);
        }
    }

    /// What is not known of it, or of what it says.
    fn strange(&self) -> Option<Strange> {
        let Some(kind) = self.kind.as_deref() else {
            return Some(Strange::Kind(String::new()));
        };
        let part_of = |form: &Form| match form {
            Form::Parts(strange) => strange.clone().map(Strange::Part),
            Form::Absent => None,
            Form::Text | Form::Unknown => Some(Strange::Content),
        };
        match kind {
            "message" => match self.role.as_deref() {
                Some("user" | "assistant") if self.content == Form::Absent => Some(Strange::Content),
                Some("user" | "assistant") => part_of(&self.content),
                Some(role) if INSTRUCTORS.contains(&role) => None,
                role => Some(Strange::Kind(format!("message of {}", role.unwrap_or_default()))),
            },
            "reasoning" => part_of(&self.content).or_else(|| part_of(&self.summary)),
            "function_call_output" | "custom_tool_call_output" | "mcp_tool_call_output" => match &self.output
            {
                Form::Text => None,
                form => part_of(form),
            },
            kind if ITEMS.contains(&kind) => None,
            kind => Some(Strange::Part(quoted(kind))),
        }
    }

    fn item(&self) -> Option<Item> {
        let id = self.call_id?;
        let kind = self.kind.as_deref()?;
        if kind.ends_with("_output") {
            return Some(Item::Result { id });
        }
        let tool = || self.name.clone().unwrap_or_else(|| quoted(kind));
        kind.ends_with("_call").then(|| Item::Call { id, tool: tool() })
    }
}

#[cfg(test)]
mod tests;
