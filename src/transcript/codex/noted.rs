//! What the index notes of a line of a rollout while it is read.
//!
//! Owns which members matter. What they mean is decided as in `line` and `item`, which decode a line whole: both ways to
//! read a line are held together by a test.

use super::item::is_prompt_text;
use super::line::{HistoryBase, LineKind, Meta};
use crate::transcript::scan::{BEGINNING_BYTES, Grammar, Held, ID_LIMIT_BYTES, Noted};

/// The longest path or title that is taken, in bytes as it stands in the file: the longest path there is, each character
/// escaped. A longer one is as good as none.
const TEXT_LIMIT_BYTES: usize = 4096 * 6;

/// What is noted of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RolloutNote {
    /// Its number in the history.
    pub(super) ordinal: Option<u64>,
    /// The turn that it begins or belongs to, of lines that say so of what comes too.
    pub(super) turn_id: Option<Box<str>>,
    pub(super) what: What,
}

/// What a line is in a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum What {
    /// What session it is.
    Meta(Box<Meta>),
    /// Something that a person asked.
    Prompt,
    /// Something else in the history that is told.
    Item,
    /// What a turn runs with: the folder.
    Context(Option<String>),
    /// A past that was replaced by a summary.
    Compacted,
    /// So many turns were taken back.
    RolledBack(u64),
    /// What a person called the session.
    Named(Option<String>),
    /// An error that is told.
    Failure,
    /// Nothing that is told.
    #[default]
    Nothing,
}

/// What was noted of a line.
#[derive(Debug, Default)]
pub(super) struct LineNoted {
    ordinal: Option<u64>,
    /// The line's own members; they are the item's too where there is no envelope.
    line: ItemNoted,
    payload: Option<ItemNoted>,
    in_payload: bool,
}

#[derive(Debug, Default)]
struct ItemNoted {
    kind: Kind,
    role: Kind,
    id: Option<String>,
    cwd: Option<String>,
    name: Option<String>,
    turn_id: Option<Box<str>>,
    turns: Option<u64>,
    has_error: bool,
    forked_from: Option<String>,
    base: BaseNoted,
    content: Option<ContentNoted>,
    passed_turn_id: Option<Box<str>>,
    owners: Option<OwnersNoted>,
}

#[derive(Debug, Default)]
struct BaseNoted {
    upstream_id: Option<String>,
    end_ordinal: Option<u64>,
    end_offset: Option<u64>,
}

/// The parts of an item's content.
#[derive(Debug, Default)]
struct ContentNoted {
    parts: usize,
    /// Whether a person wrote one of them, by how they begin.
    has_prompt: bool,
    /// Whether the text of the part that is read is a prompt's; none without a text.
    text: Option<bool>,
}

/// Whose the parts are.
#[derive(Debug, Default)]
struct OwnersNoted {
    parts: usize,
    /// The first part that a person wrote.
    first_person: Option<usize>,
    is_person: bool,
}

/// What an object or array is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Context {
    Line,
    Payload,
    Base,
    Content,
    Part,
    Passed,
    Owners,
    Owner,
    Provenance,
    #[default]
    Other,
}

/// A member whose value matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Member {
    #[default]
    None,
    Ordinal,
    Payload,
    Type,
    Role,
    Id,
    Cwd,
    ThreadName,
    TurnId,
    Turns,
    Error,
    ForkedFrom,
    Base,
    BaseThread,
    BaseOrdinal,
    BaseOffset,
    Content,
    Part,
    PartText,
    Passed,
    PassedTurnId,
    Owners,
    Owner,
    Provenance,
    ProvenanceType,
}

/// A `type` or a `role`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    None,
    SessionMeta,
    ResponseItem,
    EventMsg,
    TurnContext,
    Compacted,
    Message,
    Reasoning,
    /// A tool's call or its result.
    Call,
    /// What the agent needs to go on, and to go back.
    OwnItem,
    TaskStarted,
    TaskComplete,
    RolledBack,
    Named,
    Error,
    User,
    Assistant,
    Other,
}

impl Noted for LineNoted {
    const GRAMMAR: Grammar = Grammar::Serde;

    type Context = Context;
    type Member = Member;
    type Note = RolloutNote;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Line, b"ordinal") => Member::Ordinal,
            (Context::Line, b"payload") => Member::Payload,
            (Context::Line | Context::Payload, name) => match name {
                b"type" => Member::Type,
                b"role" => Member::Role,
                b"id" => Member::Id,
                b"cwd" => Member::Cwd,
                b"thread_name" => Member::ThreadName,
                b"turn_id" => Member::TurnId,
                b"num_turns" => Member::Turns,
                b"error" => Member::Error,
                b"forked_from_id" => Member::ForkedFrom,
                b"history_base" => Member::Base,
                b"content" => Member::Content,
                b"internal_chat_message_metadata_passthrough" => Member::Passed,
                _ => Member::None,
            },
            (Context::Base, b"thread_id") => Member::BaseThread,
            (Context::Base, b"end_ordinal_exclusive") => Member::BaseOrdinal,
            (Context::Base, b"end_byte_offset") => Member::BaseOffset,
            (Context::Part, b"text") => Member::PartText,
            (Context::Passed, b"turn_id") => Member::PassedTurnId,
            (Context::Passed, b"content_item_metadata") => Member::Owners,
            (Context::Owner, b"provenance") => Member::Provenance,
            (Context::Provenance, b"type") => Member::ProvenanceType,
            _ => Member::None,
        }
    }

    fn element(context: Context) -> Member {
        match context {
            Context::Content => Member::Part,
            Context::Owners => Member::Owner,
            _ => Member::None,
        }
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::Type
            | Member::Id
            | Member::TurnId
            | Member::ForkedFrom
            | Member::BaseThread
            | Member::PassedTurnId => ID_LIMIT_BYTES,
            Member::Cwd | Member::ThreadName => TEXT_LIMIT_BYTES,
            Member::Role | Member::PartText | Member::ProvenanceType => BEGINNING_BYTES,
            _ => 0,
        }
    }

    fn name(&mut self, member: Member) {
        match member {
            Member::Ordinal => self.ordinal = None,
            Member::Payload => self.payload = None,
            _ => self.item().forget(member),
        }
    }

    fn begin(&mut self, member: Member, first: u8) {
        match member {
            Member::Part => {
                let content = self.item().content.get_or_insert_default();
                content.parts += 1;
                content.text = None;
                // An object says more until it is over.
                if first != b'{' {
                    content.end_part();
                }
            }
            Member::Owner => {
                let owners = self.item().owners.get_or_insert_default();
                owners.parts += 1;
                owners.is_person = false;
            }
            _ => {}
        }
    }

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        let Some(around) = around else {
            return Context::Line;
        };
        match (around, member, is_object) {
            (Context::Line, Member::Payload, true) => {
                self.payload = Some(ItemNoted::default());
                self.in_payload = true;
                Context::Payload
            }
            (Context::Line | Context::Payload, Member::Base, true) => Context::Base,
            (Context::Line | Context::Payload, Member::Passed, true) => Context::Passed,
            (Context::Line | Context::Payload, Member::Error, true) => {
                self.item().has_error = true;
                Context::Other
            }
            (Context::Line | Context::Payload, Member::Content, false) => {
                self.item().content = Some(ContentNoted::default());
                Context::Content
            }
            (Context::Content, _, true) => Context::Part,
            (Context::Passed, Member::Owners, false) => {
                self.item().owners = Some(OwnersNoted::default());
                Context::Owners
            }
            (Context::Owners, _, true) => Context::Owner,
            (Context::Owner, Member::Provenance, true) => Context::Provenance,
            _ => Context::Other,
        }
    }

    fn close(&mut self, context: Context) {
        match context {
            Context::Payload => self.in_payload = false,
            Context::Part => {
                if let Some(content) = &mut self.item().content {
                    content.end_part();
                }
            }
            Context::Owner => {
                if let Some(owners) = &mut self.item().owners
                    && owners.is_person
                {
                    owners.first_person.get_or_insert(owners.parts - 1);
                }
            }
            _ => {}
        }
    }

    fn string(&mut self, member: Member, held: &Held) {
        let item = self.item();
        let text = || held.text().map(String::from);
        match member {
            Member::Type => item.kind = held.text().map_or(Kind::Other, |text| Kind::of(text.as_bytes())),
            Member::Role => item.role = Kind::of(&held.beginning()),
            Member::Id => item.id = text(),
            Member::Cwd => item.cwd = text(),
            Member::ThreadName => item.name = text(),
            Member::TurnId => item.turn_id = held.text().map(|text| text.as_ref().into()),
            Member::ForkedFrom => item.forked_from = text(),
            Member::BaseThread => item.base.upstream_id = text(),
            Member::PassedTurnId => item.passed_turn_id = held.text().map(|text| text.as_ref().into()),
            Member::PartText => {
                if let Some(content) = &mut item.content {
                    content.text = Some(is_prompt_text(&held.beginning()));
                }
            }
            Member::ProvenanceType => {
                if let Some(owners) = &mut item.owners {
                    owners.is_person = *held.beginning() == *b"user";
                }
            }
            _ => {}
        }
    }

    fn number(&mut self, member: Member, value: u64) {
        match member {
            Member::Ordinal => self.ordinal = Some(value),
            Member::Turns => self.item().turns = Some(value),
            Member::BaseOrdinal => self.item().base.end_ordinal = Some(value),
            Member::BaseOffset => self.item().base.end_offset = Some(value),
            _ => {}
        }
    }

    fn note(self) -> RolloutNote {
        let Some(payload) = self.payload else {
            let kind = match self.line.kind {
                Kind::None if self.line.id.is_some() => LineKind::Meta,
                Kind::Message | Kind::Reasoning | Kind::Call => LineKind::Item,
                _ => LineKind::Other,
            };
            return self.line.note(kind, None);
        };
        let kind = match self.line.kind {
            Kind::SessionMeta => LineKind::Meta,
            Kind::ResponseItem => LineKind::Item,
            Kind::EventMsg => LineKind::Event,
            Kind::TurnContext => LineKind::Context,
            Kind::Compacted => LineKind::Compacted,
            _ => LineKind::Other,
        };
        payload.note(kind, self.ordinal)
    }
}

impl LineNoted {
    /// What is being read: the payload, or the line.
    fn item(&mut self) -> &mut ItemNoted {
        match &mut self.payload {
            Some(payload) if self.in_payload => payload,
            _ => &mut self.line,
        }
    }
}

impl ItemNoted {
    /// Forgets the value of a member whose name comes again.
    fn forget(&mut self, member: Member) {
        match member {
            Member::Type => self.kind = Kind::None,
            Member::Role => self.role = Kind::None,
            Member::Id => self.id = None,
            Member::Cwd => self.cwd = None,
            Member::ThreadName => self.name = None,
            Member::TurnId => self.turn_id = None,
            Member::Turns => self.turns = None,
            Member::Error => self.has_error = false,
            Member::ForkedFrom => self.forked_from = None,
            Member::Base => self.base = BaseNoted::default(),
            Member::BaseThread => self.base.upstream_id = None,
            Member::BaseOrdinal => self.base.end_ordinal = None,
            Member::BaseOffset => self.base.end_offset = None,
            Member::Content => self.content = None,
            Member::Passed => (self.passed_turn_id, self.owners) = (None, None),
            Member::PassedTurnId => self.passed_turn_id = None,
            Member::Owners => self.owners = None,
            Member::PartText => {
                if let Some(content) = &mut self.content {
                    content.text = None;
                }
            }
            Member::Provenance | Member::ProvenanceType => {
                if let Some(owners) = &mut self.owners {
                    owners.is_person = false;
                }
            }
            Member::None | Member::Ordinal | Member::Payload | Member::Part | Member::Owner => {}
        }
    }

    fn note(self, kind: LineKind, ordinal: Option<u64>) -> RolloutNote {
        let begins = match kind {
            LineKind::Item | LineKind::Context => true,
            LineKind::Event => self.kind == Kind::TaskStarted,
            _ => false,
        };
        let what = match (kind, self.kind) {
            (LineKind::Item, _) if self.is_prompt() => What::Prompt,
            (LineKind::Item, _) if self.is_message() => What::Item,
            (LineKind::Compacted, _) => What::Compacted,
            (LineKind::Event, Kind::RolledBack) => What::RolledBack(self.turns.unwrap_or(0)),
            (LineKind::Event, Kind::Error) => What::Failure,
            (LineKind::Event, Kind::TaskComplete) if self.has_error => What::Failure,
            (LineKind::Event, Kind::Named) => What::Named(self.name),
            (LineKind::Context, _) => What::Context(self.cwd),
            (LineKind::Meta, _) => What::Meta(Box::new(Meta {
                upstream_id: self.id,
                cwd: self.cwd,
                forked_from: self.forked_from.or_else(|| self.base.upstream_id.clone()),
                base: self.base.upstream_id.map(|upstream_id| HistoryBase {
                    upstream_id,
                    end_ordinal: self.base.end_ordinal,
                    end_offset: self.base.end_offset,
                }),
            })),
            _ => What::Nothing,
        };
        let turn_id = self.turn_id.or(self.passed_turn_id);
        RolloutNote {
            ordinal,
            turn_id: turn_id.filter(|id| begins && !id.is_empty()),
            what,
        }
    }

    /// Whether it is told at all.
    fn is_message(&self) -> bool {
        match self.kind {
            Kind::Message => matches!(self.role, Kind::User | Kind::Assistant),
            Kind::OwnItem | Kind::None => false,
            _ => true,
        }
    }

    /// As `item::is_prompt` decides it.
    fn is_prompt(&self) -> bool {
        let Some(content) = self.content.as_ref() else {
            return false;
        };
        if (self.kind, self.role) != (Kind::Message, Kind::User) {
            return false;
        }
        match &self.owners {
            Some(owners) => owners.first_person.is_some_and(|first| first < content.parts),
            None => content.has_prompt,
        }
    }
}

impl ContentNoted {
    /// A part without a text, as a picture, is of the person when it is the first.
    fn end_part(&mut self) {
        let text = self.text.take();
        self.has_prompt |= text.unwrap_or(self.parts == 1);
    }
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"session_meta" => Self::SessionMeta,
            b"response_item" => Self::ResponseItem,
            b"event_msg" => Self::EventMsg,
            b"turn_context" => Self::TurnContext,
            b"compacted" => Self::Compacted,
            b"message" => Self::Message,
            b"reasoning" => Self::Reasoning,
            b"ghost_snapshot" | b"compaction_trigger" => Self::OwnItem,
            b"task_started" => Self::TaskStarted,
            b"task_complete" => Self::TaskComplete,
            b"thread_rolled_back" => Self::RolledBack,
            b"thread_name_updated" => Self::Named,
            b"error" => Self::Error,
            b"user" => Self::User,
            b"assistant" => Self::Assistant,
            name if name.ends_with(b"_call") || name.ends_with(b"_call_output") => Self::Call,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests;
