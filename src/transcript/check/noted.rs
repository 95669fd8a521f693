//! What a check notes of a message while its line is read: the calls of tools, their results, and the files that they name.
//!
//! What a record is in its chain is noted by the index's own way of reading. What the members mean is decided as in `record`,
//! which decodes a line whole: both ways to read a line are held together by a test.

use super::{Item, SideFile, hash_of, persisted_path, quoted};
use crate::transcript::scan::{BEGINNING_BYTES, Grammar, Held, ID_LIMIT_BYTES, Noted};

/// How much of a result's text is looked at, in bytes: where it is in a file, agents say so in its first two lines, of which
/// all but the path is some hundred bytes, and a path has 4 KiB at most.
pub(super) const RESULT_BYTES: usize = 16 * 1024;

/// Kinds of records that are part of a chain. Of others nothing is known but where they stand.
const CHAIN_KINDS: [&str; 6] = [
    "user",
    "assistant",
    "attachment",
    "system",
    "progress",
    "custom-title",
];

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
    BlockType,
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
    /// Its kind, when that is none of a chain that is known.
    pub(super) unknown_kind: Option<String>,
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
    /// Hashes of ids, as they are kept.
    id: Option<u64>,
    tool: Option<String>,
    tool_use_id: Option<u64>,
    text: String,
    has_text: bool,
}

#[derive(Debug, Default)]
struct AnswerNoted {
    is_text: bool,
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    ToolUse,
    ToolResult,
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
            Member::Result | Member::Message | Member::Content | Member::None => 0,
        }
    }

    fn name(&mut self, member: Member) {
        match member {
            Member::Kind => self.unknown_kind = None,
            Member::Version => self.version = None,
            Member::SessionId => self.session_id = None,
            Member::Result => (self.path, self.agent) = (None, None),
            Member::ResultPath => self.path = None,
            Member::ResultAgent => self.agent = None,
            Member::Message | Member::Content => {
                self.items.clear();
                self.files.clear();
                self.has_more = false;
            }
            Member::BlockType => self.block.kind = Kind::Other,
            Member::BlockId => self.block.id = None,
            Member::BlockName => self.block.tool = None,
            Member::BlockToolUseId => self.block.tool_use_id = None,
            Member::BlockContent => {
                self.block.text.clear();
                self.block.has_text = false;
            }
            Member::AnswerType => self.answer.is_text = false,
            Member::AnswerBlockText => self.answer.text = None,
            Member::AnswerText | Member::None => {}
        }
    }

    fn begin(&mut self, _: Member, _: u8) {}

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
                if let Some(text) = answer.text.filter(|_| answer.is_text) {
                    self.block.add(&text);
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
            }
            Member::Version => self.version = Some(quoted(&held.prefix())),
            Member::SessionId => self.session_id = held.text().map(Into::into),
            Member::ResultPath => self.path = held.text().map(Into::into),
            Member::ResultAgent => self.agent = held.text().map(Into::into),
            Member::BlockType => {
                self.block.kind = match held.beginning().as_ref() {
                    b"tool_use" => Kind::ToolUse,
                    b"tool_result" => Kind::ToolResult,
                    _ => Kind::Other,
                };
            }
            Member::BlockId => self.block.id = id(),
            Member::BlockName => self.block.tool = Some(quoted(&held.prefix())),
            Member::BlockToolUseId => self.block.tool_use_id = id(),
            Member::BlockContent | Member::AnswerText => self.block.add(&held.prefix()),
            Member::AnswerType => self.answer.is_text = *held.beginning() == *b"text",
            Member::AnswerBlockText => self.answer.text = Some(held.prefix()),
            Member::Result | Member::Message | Member::Content | Member::None => {}
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(self) -> Said {
        let is_name = |id: &String| !id.is_empty() && !id.contains(['/', '\0']);
        let subagent = self.agent.filter(is_name).map(SideFile::Subagent);
        let of_result = self.path.map(SideFile::ToolResult).into_iter().chain(subagent);
        Said {
            unknown_kind: self.unknown_kind,
            version: self.version,
            session_id: self.session_id,
            items: self.items,
            files: of_result.chain(self.files).collect(),
            has_more: self.has_more,
        }
    }
}

impl SaidNoted {
    fn end_block(&mut self, block: BlockNoted) {
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

impl BlockNoted {
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
