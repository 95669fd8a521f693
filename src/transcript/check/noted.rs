//! What a check notes of a message while its line is read: the calls of tools, their results, the files that they name, and
//! what has no form that is known.
//!
//! What a record is in its chain is noted by the index's own way of reading. What the members mean is decided as in `record`,
//! which decodes a line whole: both ways to read a line are held together by a test.

use super::{Item, SideFile, Strange, hash_of, persisted_path, quoted};
use crate::transcript::record::{CHAIN_KINDS, is_known_block};
use crate::transcript::scan::{BEGINNING_BYTES, Grammar, Held, ID_LIMIT_BYTES, Noted};

/// How much of a result's text is looked at, in bytes: where it is in a file, agents say so in its first two lines, of which
/// all but the path is some hundred bytes, and a path has 4 KiB at most.
pub(super) const RESULT_BYTES: usize = 16 * 1024;

/// How many calls and results of one record are noted; replies of agents have one, and this bounds the memory.
pub(super) const ITEMS_LIMIT: usize = 10_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Context {
    Record,
    Result,
    Message,
    Content,
    Block,
    /// The blocks of a tool's result.
    Answer,
    AnswerBlock,
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Member {
    Kind,
    Version,
    SessionId,
    Result,
    ResultPath,
    ResultAgent,
    Message,
    Content,
    /// An element of a message's content.
    Element,
    BlockType,
    BlockText,
    BlockThinking,
    BlockId,
    BlockName,
    BlockToolUseId,
    BlockContent,
    /// A string among the blocks of a tool's result.
    AnswerText,
    AnswerType,
    AnswerBlockText,
    #[default]
    None,
}

/// What a check wants to know of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// What of it is not known here: its kind, or the form of what it says.
    pub(super) strange: Option<Strange>,
    /// The version of the agent that wrote it.
    pub(super) version: Option<String>,
    pub(super) session_id: Option<String>,
    /// In the order of the line.
    pub(super) items: Vec<Item>,
    pub(super) files: Vec<SideFile>,
    /// There are more of them, which were not noted.
    pub(super) has_more: bool,
}

#[derive(Debug, Default)]
pub(super) struct SaidNoted {
    unknown_kind: Option<String>,
    /// Whether it is of a kind that holds a message.
    holds_message: bool,
    /// Whether its message has a content of a form that is known.
    has_content: bool,
    /// The type of the first block of which the type or the form is not known.
    strange_block: Option<String>,
    version: Option<String>,
    session_id: Option<String>,
    path: Option<String>,
    agent: Option<String>,
    items: Vec<Item>,
    /// The files that the texts of results name.
    files: Vec<SideFile>,
    has_more: bool,
    block: BlockNoted,
    answer: AnswerNoted,
}

#[derive(Debug, Default)]
struct BlockNoted {
    kind: Kind,
    /// Its type.
    name: String,
    /// Whether there is what a text says, and what a thought says.
    says: bool,
    thinks: bool,
    /// The type of the first thing that a tool answered and of which the type or the form is not known.
    strange: Option<String>,
    /// Hashes of ids, as they are kept.
    id: Option<u64>,
    tool: Option<String>,
    tool_use_id: Option<u64>,
    text: String,
    has_text: bool,
}

#[derive(Debug, Default)]
struct AnswerNoted {
    kind: Kind,
    name: String,
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    ToolUse,
    ToolResult,
    Text,
    Thinking,
    /// Any other that is known.
    Known,
    #[default]
    Other,
}

impl Noted for SaidNoted {
    const GRAMMAR: Grammar = Grammar::JavaScript;

    type Context = Context;
    type Member = Member;
    type Note = Said;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Record, b"type") => Member::Kind,
            (Context::Record, b"version") => Member::Version,
            (Context::Record, b"sessionId") => Member::SessionId,
            (Context::Record, b"toolUseResult") => Member::Result,
            (Context::Record, b"message") => Member::Message,
            (Context::Result, b"persistedOutputPath") => Member::ResultPath,
            (Context::Result, b"agentId") => Member::ResultAgent,
            (Context::Message, b"content") => Member::Content,
            (Context::Block, b"type") => Member::BlockType,
            (Context::Block, b"text") => Member::BlockText,
            (Context::Block, b"thinking") => Member::BlockThinking,
            (Context::Block, b"id") => Member::BlockId,
            (Context::Block, b"name") => Member::BlockName,
            (Context::Block, b"tool_use_id") => Member::BlockToolUseId,
            (Context::Block, b"content") => Member::BlockContent,
            (Context::AnswerBlock, b"type") => Member::AnswerType,
            (Context::AnswerBlock, b"text") => Member::AnswerBlockText,
            _ => Member::None,
        }
    }

    fn element(context: Context) -> Member {
        match context {
            Context::Content => Member::Element,
            Context::Answer => Member::AnswerText,
            _ => Member::None,
        }
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::Kind | Member::Version | Member::BlockType | Member::AnswerType => BEGINNING_BYTES,
            Member::SessionId
            | Member::ResultAgent
            | Member::BlockId
            | Member::BlockName
            | Member::BlockToolUseId => ID_LIMIT_BYTES,
            Member::ResultPath | Member::BlockContent | Member::AnswerText | Member::AnswerBlockText => {
                RESULT_BYTES
            }
            Member::Result
            | Member::Message
            | Member::Content
            | Member::Element
            | Member::BlockText
            | Member::BlockThinking
            | Member::None => 0,
        }
    }

    fn name(&mut self, member: Member) {
        match member {
            Member::Kind => (self.unknown_kind, self.holds_message) = (None, false),
            Member::Version => self.version = None,
            Member::SessionId => self.session_id = None,
            Member::Result => (self.path, self.agent) = (None, None),
            Member::ResultPath => self.path = None,
            Member::ResultAgent => self.agent = None,
            Member::Message | Member::Content => {
                self.items.clear();
                self.files.clear();
                self.has_more = false;
                self.has_content = false;
                self.strange_block = None;
            }
            Member::BlockType => (self.block.kind, self.block.name) = <_>::default(),
            Member::BlockText => self.block.says = false,
            Member::BlockThinking => self.block.thinks = false,
            Member::BlockId => self.block.id = None,
            Member::BlockName => self.block.tool = None,
            Member::BlockToolUseId => self.block.tool_use_id = None,
            Member::BlockContent => {
                self.block.text.clear();
                self.block.has_text = false;
                self.block.strange = None;
            }
            Member::AnswerType => (self.answer.kind, self.answer.name) = <_>::default(),
            Member::AnswerBlockText => self.answer.text = None,
            Member::Element | Member::AnswerText | Member::None => {}
        }
    }

    fn begin(&mut self, member: Member, first: u8) {
        let unnamed = || Some(String::new());
        match (member, first) {
            (Member::Content, b'"' | b'[') => self.has_content = true,
            (Member::BlockText, b'"') => self.block.says = true,
            (Member::BlockThinking, b'"') => self.block.thinks = true,
            (Member::Element, b'"' | b'{')
            | (Member::AnswerText, b'"' | b'{')
            | (Member::BlockContent, b'"' | b'[' | b'n') => {}
            (Member::Element, _) => self.strange_block = self.strange_block.take().or_else(unnamed),
            (Member::AnswerText | Member::BlockContent, _) => {
                self.block.strange = self.block.strange.take().or_else(unnamed);
            }
            _ => {}
        }
    }

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        match (around, member, is_object) {
            (None, ..) => Context::Record,
            (Some(Context::Record), Member::Result, true) => Context::Result,
            (Some(Context::Record), Member::Message, true) => Context::Message,
            (Some(Context::Message), Member::Content, false) => Context::Content,
            (Some(Context::Content), _, true) => {
                self.block = BlockNoted::default();
                Context::Block
            }
            (Some(Context::Block), Member::BlockContent, false) => Context::Answer,
            (Some(Context::Answer), _, true) => {
                self.answer = AnswerNoted::default();
                Context::AnswerBlock
            }
            _ => Context::Other,
        }
    }

    fn close(&mut self, context: Context) {
        match context {
            Context::AnswerBlock => {
                let answer = std::mem::take(&mut self.answer);
                match (answer.kind, answer.text) {
                    (Kind::Text, Some(text)) => self.block.add(&text),
                    (Kind::Known, _) => {}
                    _ if self.block.strange.is_none() => self.block.strange = Some(answer.name),
                    _ => {}
                }
            }
            Context::Block => {
                let block = std::mem::take(&mut self.block);
                self.end_block(block);
            }
            _ => {}
        }
    }

    fn string(&mut self, member: Member, held: &Held) {
        let id = || held.text().map(|text| hash_of(&text));
        match member {
            Member::Kind => {
                let kind = held.prefix();
                self.unknown_kind = (!CHAIN_KINDS.contains(&kind.as_str())).then(|| quoted(&kind));
                self.holds_message = matches!(kind.as_str(), "user" | "assistant");
            }
            Member::Version => self.version = Some(quoted(&held.prefix())),
            Member::SessionId => self.session_id = held.text().map(Into::into),
            Member::ResultPath => self.path = held.text().map(Into::into),
            Member::ResultAgent => self.agent = held.text().map(Into::into),
            Member::BlockType => {
                let name = held.prefix();
                (self.block.kind, self.block.name) = (Kind::of(name.as_bytes()), quoted(&name));
            }
            Member::BlockId => self.block.id = id(),
            Member::BlockName => self.block.tool = Some(quoted(&held.prefix())),
            Member::BlockToolUseId => self.block.tool_use_id = id(),
            Member::BlockContent | Member::AnswerText => self.block.add(&held.prefix()),
            Member::AnswerType => {
                let name = held.prefix();
                (self.answer.kind, self.answer.name) = (Kind::of(name.as_bytes()), quoted(&name));
            }
            Member::AnswerBlockText => self.answer.text = Some(held.prefix()),
            Member::Result
            | Member::Message
            | Member::Content
            | Member::Element
            | Member::BlockText
            | Member::BlockThinking
            | Member::None => {}
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(self) -> Said {
        let is_name = |id: &String| !id.is_empty() && !id.contains(['/', '\0']);
        let subagent = self.agent.filter(is_name).map(SideFile::Subagent);
        let strange = match self.unknown_kind {
            Some(kind) => Some(Strange::Kind(kind)),
            None if !self.holds_message => None,
            None if !self.has_content => Some(Strange::Content),
            None => self.strange_block.map(Strange::Part),
        };
        let of_result = self.path.map(SideFile::ToolResult).into_iter().chain(subagent);
        Said {
            strange,
            version: self.version,
            session_id: self.session_id,
            items: self.items,
            files: of_result.chain(self.files).collect(),
            has_more: self.has_more,
        }
    }
}

impl SaidNoted {
    fn end_block(&mut self, mut block: BlockNoted) {
        if self.strange_block.is_none() {
            self.strange_block = block.take_strange();
        }
        let is_full = self.items.len() >= ITEMS_LIMIT;
        match (block.kind, block.id, block.tool, block.tool_use_id) {
            (Kind::ToolUse, Some(_), Some(_), _) | (Kind::ToolResult, _, _, Some(_)) if is_full => {
                self.has_more = true;
            }
            (Kind::ToolUse, Some(id), Some(tool), _) => self.items.push(Item::Call { id, tool }),
            (Kind::ToolResult, _, _, Some(id)) => {
                self.items.push(Item::Result { id });
                self.files.extend(persisted_path(&block.text));
            }
            _ => {}
        }
    }
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"tool_use" => Self::ToolUse,
            b"tool_result" => Self::ToolResult,
            b"text" => Self::Text,
            b"thinking" => Self::Thinking,
            name if is_known_block(name) => Self::Known,
            _ => Self::Other,
        }
    }
}

impl BlockNoted {
    /// Its type where that or its form is not known, or that of the first thing of which it is so in what a tool answered.
    fn take_strange(&mut self) -> Option<String> {
        let is_known = match self.kind {
            Kind::ToolUse => self.id.is_some() && self.tool.is_some(),
            Kind::ToolResult if self.tool_use_id.is_some() => return self.strange.take(),
            Kind::ToolResult | Kind::Other => false,
            Kind::Text => self.says,
            Kind::Thinking => self.thinks,
            Kind::Known => true,
        };
        (!is_known).then(|| std::mem::take(&mut self.name))
    }

    /// Adds a text of a tool's result, as far as there is room.
    fn add(&mut self, text: &str) {
        if self.text.len() >= RESULT_BYTES {
            return;
        }
        if std::mem::replace(&mut self.has_text, true) {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

#[cfg(test)]
mod tests;
