//! What the index takes from a line, read in one pass and without holding the line.
//!
//! Owns the grammar of JSON as far as `JSON.parse` refuses text: what this takes as a record, the agent takes too.
//! It goes over the bytes once, in pieces of any size, notes the few members that matter and keeps nothing else, so that
//! a line of hundreds of megabytes takes no memory. Bytes that are not UTF-8 are well within strings and nowhere else,
//! as where they are replaced before they are read. What the members mean is decided as in `record`: both ways to read a line
//! are held together by a test. Pure; knows neither files nor how records hang together.

use super::nesting::Nesting;
use super::note::{Note, RecordId, Role};
use super::strings::{Held, special, unfinished};
use crate::transcript::record::{is_aside_text, is_prompt_text};

/// The longest id that is taken, in bytes; agents write 36. A record with a longer one is as good as without.
const ID_LIMIT_BYTES: usize = 4096;

/// As much of a text or a name as decides what it is, in bytes: all beginnings that are asked for are shorter than 32
/// characters, of which each may be escaped.
const BEGINNING_BYTES: usize = 32 * 6;

/// What a line turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scanned {
    /// Nothing but white space or NUL bytes.
    Blank,
    /// Not a JSON object.
    Garbage,
    /// A record; with what is noted of it when it is part of a chain.
    Record(Option<Note>),
}

/// Reads a line in pieces.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    state: State,
    nesting: Nesting,
    /// What the innermost containers are; deeper ones are all [`Context::Other`].
    contexts: [Context; CONTEXTS],
    member: Member,
    held: Held,
    noted: Noted,
}

/// How deep what matters stands: record, message, content, block.
const CONTEXTS: usize = 4;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    /// This many bytes of a byte order mark were seen.
    Mark(u8),
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    String,
    Escape,
    /// This many digits of an escape are to come.
    Unicode(u8),
    Number(Digits),
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
    After,
    Garbage,
}

/// How far a number has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Context {
    Record,
    Origin,
    Message,
    Content,
    Block,
    #[default]
    Other,
}

/// The member whose value comes next or is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Member {
    #[default]
    None,
    /// The name of a member, not a value.
    Name,
    Type,
    Uuid,
    ParentUuid,
    LogicalParentUuid,
    IsSidechain,
    IsMeta,
    IsCompactSummary,
    ToolUseResult,
    Origin,
    OriginKind,
    Message,
    MessageId,
    Content,
    BlockType,
    BlockText,
    BlockToolUseId,
}

/// What was noted of a record. Of a name that is given twice the last one counts.
#[derive(Debug, Default)]
struct Noted {
    kind: Kind,
    uuid: Option<RecordId>,
    parent: Option<RecordId>,
    logical_parent: Option<RecordId>,
    is_sidechain: bool,
    is_meta: bool,
    is_compact_summary: bool,
    has_tool_use_result: bool,
    is_from_human: Option<bool>,
    message: MessageNoted,
}

#[derive(Debug, Default)]
struct MessageNoted {
    id: Option<Box<str>>,
    content: ContentNoted,
}

#[derive(Debug, Default)]
struct ContentNoted {
    has_result: bool,
    has_prompt_text: bool,
    /// Whether the first text begins as a command of the agent's own does; none without a text.
    is_aside: Option<bool>,
    block: BlockNoted,
}

#[derive(Debug, Default)]
struct BlockNoted {
    kind: Kind,
    /// Whether its text is a prompt's, and whether it is an aside's.
    text: Option<(bool, bool)>,
    has_tool_use_id: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    User,
    Assistant,
    Text,
    ToolResult,
    #[default]
    Other,
}

impl Scanner {
    /// Reads on to the end of the line or of `bytes`: how many bytes were read, and whether the last of them was the
    /// newline.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.state == State::String {
                let rest = &bytes[at..];
                let run = match self.held.is_full() {
                    true => {
                        let run = unfinished(rest);
                        self.held.skip(run);
                        run
                    }
                    false => {
                        let run = special(rest);
                        self.held.push(&rest[..run]);
                        run
                    }
                };
                at += run;
                match rest.get(run) {
                    Some(b'"') => self.end_string(),
                    Some(b'\\') => match rest.get(run + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.held.push_escaped(&rest[run..run + 2]);
                            at += 1;
                        }
                        _ => {
                            self.held.push_escaped(b"\\");
                            self.state = State::Escape;
                        }
                    },
                    Some(b'\n') => return (at + 1, true),
                    Some(_) => self.state = State::Garbage,
                    None => return (at, false),
                }
                at += 1;
            } else if byte == b'\n' {
                return (at + 1, true);
            } else if self.state == State::Garbage {
                let newline = memchr::memchr(b'\n', &bytes[at..]);
                return newline.map_or((bytes.len(), false), |newline| (at + newline + 1, true));
            } else if self.step(byte) {
                at += 1;
            }
        }
        (at, false)
    }

    /// What the line was, when it is over; the scanner is ready for the next.
    pub(super) fn finish(&mut self) -> Scanned {
        let state = std::mem::take(&mut self.state);
        self.nesting.clear();
        self.contexts = Default::default();
        self.member = Member::None;
        self.held.clear();
        let noted = std::mem::take(&mut self.noted);
        match state {
            State::Before => Scanned::Blank,
            State::After => Scanned::Record(noted.note()),
            _ => Scanned::Garbage,
        }
    }

    /// Takes one byte outside of the plain text of strings; whether it was used up.
    fn step(&mut self, byte: u8) -> bool {
        match (self.state, byte) {
            (State::Before | State::After, 0 | b' ' | b'\t' | b'\r') => {}
            (State::Before, 0xEF) => self.state = State::Mark(1),
            (State::Mark(1), 0xBB) => self.state = State::Mark(2),
            (State::Mark(2), 0xBF) => self.state = State::Before,
            (State::Before, b'{') => self.open(true),
            (State::Number(digits), _) => match digits.next(byte) {
                Some(next) => self.state = State::Number(next),
                None if digits.can_end() => {
                    self.state = State::CommaOrEnd;
                    return false;
                }
                None => self.state = State::Garbage,
            },
            (State::Escape, b'u') => {
                self.held.push(b"u");
                self.state = State::Unicode(4);
            }
            (State::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.held.push(&[byte]);
                self.state = State::String;
            }
            (State::Unicode(left), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.held.push(&[byte]);
                self.state = if left == 1 {
                    State::String
                } else {
                    State::Unicode(left - 1)
                };
            }
            (State::Word([next, rest @ ..]), _) if byte == *next => {
                self.state = if rest.is_empty() {
                    State::CommaOrEnd
                } else {
                    State::Word(rest)
                };
            }
            (
                State::Value
                | State::ValueOrEnd
                | State::Name
                | State::NameOrEnd
                | State::Colon
                | State::CommaOrEnd,
                b' ' | b'\t' | b'\r',
            ) => {}
            (State::Name | State::NameOrEnd, b'"') => self.begin_name(),
            (State::NameOrEnd, b'}') | (State::ValueOrEnd, b']') => self.close(),
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => {
                let in_object = self.nesting.is_object();
                self.state = if in_object { State::Name } else { State::Value };
            }
            (State::CommaOrEnd, b'}') if self.nesting.is_object() => self.close(),
            (State::CommaOrEnd, b']') if !self.nesting.is_object() => self.close(),
            (State::Value | State::ValueOrEnd, _) => self.begin_value(byte),
            _ => self.state = State::Garbage,
        }
        true
    }

    fn begin_name(&mut self) {
        let matters = self.context() != Context::Other;
        self.held.begin(if matters { BEGINNING_BYTES } else { 0 });
        self.member = Member::Name;
        self.state = State::String;
    }

    fn begin_value(&mut self, byte: u8) {
        self.state = match byte {
            b'"' => {
                self.held.begin(self.member.held_bytes());
                State::String
            }
            b'{' | b'[' => return self.open(byte == b'{'),
            b'-' => State::Number(Digits::Minus),
            b'0' => State::Number(Digits::Zero),
            b'1'..=b'9' => State::Number(Digits::Whole),
            b't' => {
                match self.member {
                    Member::IsSidechain => self.noted.is_sidechain = true,
                    Member::IsMeta => self.noted.is_meta = true,
                    Member::IsCompactSummary => self.noted.is_compact_summary = true,
                    _ => {}
                }
                State::Word(b"rue")
            }
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            _ => State::Garbage,
        };
    }

    fn open(&mut self, is_object: bool) {
        let context = match (self.context(), self.member, is_object) {
            _ if self.nesting.depth() == 0 => Context::Record,
            (Context::Record, Member::Origin, true) => Context::Origin,
            (Context::Record, Member::Message, true) => Context::Message,
            (Context::Message, Member::Content, false) => Context::Content,
            (Context::Content, _, true) => {
                self.noted.message.content.block = BlockNoted::default();
                Context::Block
            }
            _ => Context::Other,
        };
        if let Some(place) = self.contexts.get_mut(self.nesting.depth()) {
            *place = context;
        }
        self.nesting.push(is_object);
        self.member = self.member_of_element();
        self.state = if is_object {
            State::NameOrEnd
        } else {
            State::ValueOrEnd
        };
    }

    fn close(&mut self) {
        if self.context() == Context::Block {
            self.noted.message.content.end_block();
        }
        self.nesting.pop();
        self.member = self.member_of_element();
        self.state = if self.nesting.depth() == 0 {
            State::After
        } else {
            State::CommaOrEnd
        };
    }

    fn context(&self) -> Context {
        let place = self.nesting.depth().wrapping_sub(1);
        self.contexts.get(place).copied().unwrap_or_default()
    }

    /// What a string is that stands in an array: of a message's content it is a text.
    fn member_of_element(&self) -> Member {
        match self.context() {
            Context::Content => Member::Content,
            _ => Member::None,
        }
    }

    fn end_string(&mut self) {
        if self.member == Member::Name {
            self.member = match self.context() {
                Context::Other | Context::Content => Member::None,
                context => Member::of(context, &self.held.beginning()),
            };
            self.noted.forget(self.member);
            self.state = State::Colon;
            return;
        }
        self.state = State::CommaOrEnd;
        let noted = &mut self.noted;
        match self.member {
            Member::Type => noted.kind = Kind::of(&self.held.beginning()),
            Member::Uuid => noted.uuid = self.held.text().map(|text| RecordId::new(&text)),
            Member::ParentUuid => noted.parent = self.held.text().map(|text| RecordId::new(&text)),
            Member::LogicalParentUuid => {
                noted.logical_parent = self.held.text().map(|text| RecordId::new(&text));
            }
            Member::OriginKind => noted.is_from_human = Some(*self.held.beginning() == *b"human"),
            Member::MessageId => noted.message.id = self.held.text().map(|text| text.as_ref().into()),
            Member::Content => {
                let beginning = self.held.beginning();
                let text = (is_prompt_text(&beginning), is_aside_text(&beginning));
                noted.message.content.take_text(text);
            }
            Member::BlockType => noted.message.content.block.kind = Kind::of(&self.held.beginning()),
            Member::BlockText => {
                let beginning = self.held.beginning();
                let text = (is_prompt_text(&beginning), is_aside_text(&beginning));
                noted.message.content.block.text = Some(text);
            }
            Member::BlockToolUseId => noted.message.content.block.has_tool_use_id = true,
            _ => {}
        }
    }
}

impl Digits {
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus | Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    fn can_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::Power)
    }
}

impl Member {
    fn of(context: Context, name: &[u8]) -> Self {
        match (context, name) {
            (Context::Record, b"type") => Self::Type,
            (Context::Record, b"uuid") => Self::Uuid,
            (Context::Record, b"parentUuid") => Self::ParentUuid,
            (Context::Record, b"logicalParentUuid") => Self::LogicalParentUuid,
            (Context::Record, b"isSidechain") => Self::IsSidechain,
            (Context::Record, b"isMeta") => Self::IsMeta,
            (Context::Record, b"isCompactSummary") => Self::IsCompactSummary,
            (Context::Record, b"toolUseResult") => Self::ToolUseResult,
            (Context::Record, b"origin") => Self::Origin,
            (Context::Record, b"message") => Self::Message,
            (Context::Origin, b"kind") => Self::OriginKind,
            (Context::Message, b"id") => Self::MessageId,
            (Context::Message, b"content") => Self::Content,
            (Context::Block, b"type") => Self::BlockType,
            (Context::Block, b"text") => Self::BlockText,
            (Context::Block, b"tool_use_id") => Self::BlockToolUseId,
            _ => Self::None,
        }
    }

    /// How much of a string is held as the value of this member.
    fn held_bytes(self) -> usize {
        match self {
            Self::Uuid | Self::ParentUuid | Self::LogicalParentUuid | Self::MessageId => ID_LIMIT_BYTES,
            Self::Type | Self::OriginKind | Self::Content | Self::BlockType | Self::BlockText => {
                BEGINNING_BYTES
            }
            _ => 0,
        }
    }
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"user" => Self::User,
            b"assistant" => Self::Assistant,
            b"text" => Self::Text,
            b"tool_result" => Self::ToolResult,
            _ => Self::Other,
        }
    }
}

impl Noted {
    /// Forgets the value of a member whose name comes again.
    fn forget(&mut self, member: Member) {
        let content = &mut self.message.content;
        match member {
            Member::None | Member::Name => {}
            Member::Type => self.kind = Kind::Other,
            Member::Uuid => self.uuid = None,
            Member::ParentUuid => self.parent = None,
            Member::LogicalParentUuid => self.logical_parent = None,
            Member::IsSidechain => self.is_sidechain = false,
            Member::IsMeta => self.is_meta = false,
            Member::IsCompactSummary => self.is_compact_summary = false,
            Member::ToolUseResult => self.has_tool_use_result = true,
            Member::Origin | Member::OriginKind => self.is_from_human = None,
            Member::Message => self.message = MessageNoted::default(),
            Member::MessageId => self.message.id = None,
            Member::Content => *content = ContentNoted::default(),
            Member::BlockType => content.block.kind = Kind::Other,
            Member::BlockText => content.block.text = None,
            Member::BlockToolUseId => content.block.has_tool_use_id = false,
        }
    }

    fn note(self) -> Option<Note> {
        let role = self.role();
        Some(Note {
            uuid: self.uuid?,
            parent: self.parent,
            logical_parent: self.logical_parent,
            message_id: self.message.id,
            role,
            is_sidechain: self.is_sidechain,
        })
    }

    /// As [`Role::of`] decides it.
    fn role(&self) -> Role {
        let content = &self.message.content;
        match self.kind {
            Kind::Assistant => Role::Assistant,
            Kind::User if self.is_human_prompt() => Role::Prompt,
            Kind::User if self.has_tool_use_result => Role::ToolResult,
            Kind::User if !self.is_compact_summary && content.is_aside == Some(true) => Role::Aside,
            Kind::User => Role::OtherUser,
            _ => Role::Other,
        }
    }

    fn is_human_prompt(&self) -> bool {
        if self.is_sidechain {
            return false;
        }
        self.is_from_human.unwrap_or_else(|| {
            let content = &self.message.content;
            let is_others = self.is_meta || self.is_compact_summary || self.has_tool_use_result;
            !is_others && !content.has_result && content.has_prompt_text
        })
    }
}

impl ContentNoted {
    fn take_text(&mut self, (is_prompt, is_aside): (bool, bool)) {
        self.has_prompt_text |= is_prompt;
        self.is_aside.get_or_insert(is_aside);
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        match (block.kind, block.text) {
            (Kind::Text, Some(text)) => self.take_text(text),
            (Kind::ToolResult, _) if block.has_tool_use_id => self.has_result = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
