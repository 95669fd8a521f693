//! What the index notes of a record in Claude's transcripts while its line is read.
//!
//! Owns which members matter. What they mean is decided as in `record`, which decodes a line whole: both ways to read a
//! line are held together by a test.

use super::note::{Note, RecordId, Role, Seen};
use crate::transcript::record::{is_aside_text, is_attached, is_prompt_text, is_session_wide};
use crate::transcript::scan::{BEGINNING_BYTES, Grammar, Held, ID_LIMIT_BYTES, Noted};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::transcript) enum Context {
    Record,
    ForkedFrom,
    Compaction,
    Kept,
    Origin,
    Message,
    Content,
    Block,
    #[default]
    Other,
}

/// The member whose value comes next or is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::transcript) enum Member {
    #[default]
    None,
    Type,
    Uuid,
    ParentUuid,
    LogicalParentUuid,
    IsSidechain,
    IsMeta,
    IsCompactSummary,
    ToolUseResult,
    Cwd,
    CustomTitle,
    LeafUuid,
    ForkedFrom,
    ForkedSession,
    ForkedMessage,
    CompactMetadata,
    PreservedSegment,
    TailUuid,
    Origin,
    OriginKind,
    Message,
    MessageId,
    Content,
    BlockType,
    BlockText,
    BlockToolUseId,
}

/// What was noted of a record.
#[derive(Debug, Default)]
pub(in crate::transcript) struct ChainNoted {
    kind: Kind,
    uuid: Option<RecordId>,
    parent: Option<RecordId>,
    logical_parent: Option<RecordId>,
    kept_tail: Option<RecordId>,
    is_sidechain: bool,
    is_meta: bool,
    is_compact_summary: bool,
    has_tool_use_result: bool,
    has_cwd: bool,
    has_custom_title: bool,
    leaf: Option<RecordId>,
    /// Whether the session and the message are there that it is a copy of.
    forked_from: (bool, bool),
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
    /// Whether there is a text that may be a prompt, or an image or a document.
    has_prompt: bool,
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
    /// An image, or a document.
    Attached,
    CustomTitle,
    LastPrompt,
    SessionWide,
    /// Any other that a record of a chain is known to be.
    Chain,
    Other,
    /// None is told.
    #[default]
    Untold,
}

impl Noted for ChainNoted {
    const GRAMMAR: Grammar = Grammar::JavaScript;

    type Context = Context;
    type Member = Member;
    type Note = Seen;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Record, b"type") => Member::Type,
            (Context::Record, b"uuid") => Member::Uuid,
            (Context::Record, b"parentUuid") => Member::ParentUuid,
            (Context::Record, b"logicalParentUuid") => Member::LogicalParentUuid,
            (Context::Record, b"isSidechain") => Member::IsSidechain,
            (Context::Record, b"isMeta") => Member::IsMeta,
            (Context::Record, b"isCompactSummary") => Member::IsCompactSummary,
            (Context::Record, b"toolUseResult") => Member::ToolUseResult,
            (Context::Record, b"cwd") => Member::Cwd,
            (Context::Record, b"customTitle") => Member::CustomTitle,
            (Context::Record, b"leafUuid") => Member::LeafUuid,
            (Context::Record, b"forkedFrom") => Member::ForkedFrom,
            (Context::ForkedFrom, b"sessionId") => Member::ForkedSession,
            (Context::ForkedFrom, b"messageUuid") => Member::ForkedMessage,
            (Context::Record, b"compactMetadata") => Member::CompactMetadata,
            (Context::Compaction, b"preservedSegment") => Member::PreservedSegment,
            (Context::Kept, b"tailUuid") => Member::TailUuid,
            (Context::Record, b"origin") => Member::Origin,
            (Context::Record, b"message") => Member::Message,
            (Context::Origin, b"kind") => Member::OriginKind,
            (Context::Message, b"id") => Member::MessageId,
            (Context::Message, b"content") => Member::Content,
            (Context::Block, b"type") => Member::BlockType,
            (Context::Block, b"text") => Member::BlockText,
            (Context::Block, b"tool_use_id") => Member::BlockToolUseId,
            _ => Member::None,
        }
    }

    /// A string in a message's content is a text.
    fn element(context: Context) -> Member {
        match context {
            Context::Content => Member::Content,
            _ => Member::None,
        }
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::Uuid
            | Member::ParentUuid
            | Member::LogicalParentUuid
            | Member::TailUuid
            | Member::LeafUuid
            | Member::MessageId => ID_LIMIT_BYTES,
            Member::Type | Member::OriginKind | Member::Content | Member::BlockType | Member::BlockText => {
                BEGINNING_BYTES
            }
            _ => 0,
        }
    }

    fn name(&mut self, member: Member) {
        let content = &mut self.message.content;
        match member {
            Member::None => {}
            Member::Type => self.kind = Kind::Untold,
            Member::Uuid => self.uuid = None,
            Member::ParentUuid => self.parent = None,
            Member::LogicalParentUuid => self.logical_parent = None,
            Member::IsSidechain => self.is_sidechain = false,
            Member::IsMeta => self.is_meta = false,
            Member::IsCompactSummary => self.is_compact_summary = false,
            Member::ToolUseResult => self.has_tool_use_result = true,
            Member::Cwd => self.has_cwd = false,
            Member::CustomTitle => self.has_custom_title = false,
            Member::LeafUuid => self.leaf = None,
            Member::CompactMetadata | Member::PreservedSegment | Member::TailUuid => self.kept_tail = None,
            Member::ForkedFrom => self.forked_from = (false, false),
            Member::ForkedSession => self.forked_from.0 = false,
            Member::ForkedMessage => self.forked_from.1 = false,
            Member::Origin | Member::OriginKind => self.is_from_human = None,
            Member::Message => self.message = MessageNoted::default(),
            Member::MessageId => self.message.id = None,
            Member::Content => *content = ContentNoted::default(),
            Member::BlockType => content.block.kind = Kind::Untold,
            Member::BlockText => content.block.text = None,
            Member::BlockToolUseId => content.block.has_tool_use_id = false,
        }
    }

    fn begin(&mut self, member: Member, first: u8) {
        if first != b't' {
            return;
        }
        match member {
            Member::IsSidechain => self.is_sidechain = true,
            Member::IsMeta => self.is_meta = true,
            Member::IsCompactSummary => self.is_compact_summary = true,
            _ => {}
        }
    }

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        match (around, member, is_object) {
            (None, ..) => Context::Record,
            (Some(Context::Record), Member::Origin, true) => Context::Origin,
            (Some(Context::Record), Member::ForkedFrom, true) => Context::ForkedFrom,
            (Some(Context::Record), Member::CompactMetadata, true) => Context::Compaction,
            (Some(Context::Compaction), Member::PreservedSegment, true) => Context::Kept,
            (Some(Context::Record), Member::Message, true) => Context::Message,
            (Some(Context::Message), Member::Content, false) => Context::Content,
            (Some(Context::Content), _, true) => {
                self.message.content.block = BlockNoted::default();
                Context::Block
            }
            _ => Context::Other,
        }
    }

    fn close(&mut self, context: Context) {
        if context == Context::Block {
            self.message.content.end_block();
        }
    }

    fn string(&mut self, member: Member, held: &Held) {
        match member {
            Member::Type => self.kind = Kind::of(&held.beginning()),
            Member::Uuid => self.uuid = held.text().map(|text| RecordId::new(&text)),
            Member::ParentUuid => self.parent = held.text().map(|text| RecordId::new(&text)),
            Member::LogicalParentUuid => {
                self.logical_parent = held.text().map(|text| RecordId::new(&text));
            }
            Member::TailUuid => self.kept_tail = held.text().map(|text| RecordId::new(&text)),
            Member::Cwd => self.has_cwd = true,
            Member::CustomTitle => self.has_custom_title = true,
            Member::LeafUuid => self.leaf = held.text().map(|text| RecordId::new(&text)),
            Member::ForkedSession => self.forked_from.0 = true,
            Member::ForkedMessage => self.forked_from.1 = true,
            Member::OriginKind => self.is_from_human = Some(*held.beginning() == *b"human"),
            Member::MessageId => self.message.id = held.text().map(|text| text.as_ref().into()),
            Member::Content => self.message.content.take_text(sort_of(held)),
            Member::BlockType => self.message.content.block.kind = Kind::of(&held.beginning()),
            Member::BlockText => self.message.content.block.text = Some(sort_of(held)),
            Member::BlockToolUseId => self.message.content.block.has_tool_use_id = true,
            _ => {}
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(mut self) -> Seen {
        Seen {
            is_title: self.kind == Kind::CustomTitle && self.has_custom_title,
            is_session_wide: self.kind == Kind::SessionWide,
            mark: self.leaf.take().filter(|_| self.kind == Kind::LastPrompt),
            chain: self.chain(),
        }
    }
}

impl ChainNoted {
    fn chain(self) -> Option<Note> {
        let role = self.role();
        Some(Note {
            uuid: self.uuid?,
            parent: self.parent,
            logical_parent: self.logical_parent,
            kept_tail: self.kept_tail,
            message_id: self.message.id,
            role,
            is_sidechain: self.is_sidechain,
            has_cwd: self.has_cwd,
            is_forked: matches!(self.kind, Kind::User | Kind::Assistant) && self.forked_from == (true, true),
            is_unknown: !matches!(
                self.kind,
                Kind::User | Kind::Assistant | Kind::Chain | Kind::CustomTitle | Kind::Untold
            ),
        })
    }
}

/// Whether a text is a prompt's, and whether it is an aside's.
fn sort_of(held: &Held) -> (bool, bool) {
    let beginning = held.beginning();
    (is_prompt_text(&beginning), is_aside_text(&beginning))
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"user" => Self::User,
            b"assistant" => Self::Assistant,
            b"text" => Self::Text,
            b"tool_result" => Self::ToolResult,
            b"custom-title" => Self::CustomTitle,
            b"last-prompt" => Self::LastPrompt,
            name if is_session_wide(name) => Self::SessionWide,
            b"attachment" | b"system" | b"progress" => Self::Chain,
            name if is_attached(name) => Self::Attached,
            _ => Self::Other,
        }
    }
}

impl ChainNoted {
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
            !is_others && !content.has_result && content.has_prompt
        })
    }
}

impl ContentNoted {
    fn take_text(&mut self, (is_prompt, is_aside): (bool, bool)) {
        self.has_prompt |= is_prompt;
        self.is_aside.get_or_insert(is_aside);
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        match (block.kind, block.text) {
            (Kind::Text, Some(text)) => self.take_text(text),
            (Kind::ToolResult, _) if block.has_tool_use_id => self.has_result = true,
            (Kind::Attached, _) => self.has_prompt = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
