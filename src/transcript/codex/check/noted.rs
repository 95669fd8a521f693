//! What a check notes of a line of a rollout while it is read: calls of tools, their results, and kinds that are not known.
//!
//! What a line is in its history is noted by the index's own way of reading. What the members mean is decided as in `line`,
//! which decodes a line whole: both ways to read a line are held together by a test.

use crate::transcript::check::{Item, hash_of, quoted};
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Context {
    Line,
    Payload,
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
    #[default]
    None,
}

/// What a check wants to know of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether it says of what kind it is, apart from what it holds; the first versions did not.
    pub(super) has_envelope: bool,
    /// Its kind, when that is none that is known.
    pub(super) unknown_kind: Option<String>,
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
}

impl Noted for SaidNoted {
    const GRAMMAR: Grammar = Grammar::Serde;

    type Context = Context;
    type Member = Member;
    type Note = Said;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Other, _) => Member::None,
            (Context::Line, b"payload") => Member::Payload,
            (_, b"type") => Member::Type,
            (_, b"call_id") => Member::CallId,
            (_, b"name") => Member::Name,
            (_, b"cli_version") => Member::Version,
            _ => Member::None,
        }
    }

    fn element(_: Context) -> Member {
        Member::None
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::Type | Member::Version => BEGINNING_BYTES,
            Member::CallId | Member::Name => ID_LIMIT_BYTES,
            Member::Payload | Member::None => 0,
        }
    }

    fn name(&mut self, member: Member) {
        match member {
            Member::Payload => self.payload = None,
            Member::Type => self.item().kind = None,
            Member::CallId => self.item().call_id = None,
            Member::Name => self.item().name = None,
            Member::Version => self.item().version = None,
            Member::None => {}
        }
    }

    fn begin(&mut self, _: Member, _: u8) {}

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        match (around, member, is_object) {
            (None, ..) => Context::Line,
            (Some(Context::Line), Member::Payload, true) => {
                self.payload = Some(ItemNoted::default());
                self.in_payload = true;
                Context::Payload
            }
            _ => Context::Other,
        }
    }

    fn close(&mut self, context: Context) {
        if context == Context::Payload {
            self.in_payload = false;
        }
    }

    fn string(&mut self, member: Member, held: &Held) {
        let item = self.item();
        match member {
            Member::Type => item.kind = Some(held.prefix()),
            Member::CallId => item.call_id = held.text().map(|text| hash_of(&text)),
            Member::Name => item.name = Some(quoted(&held.prefix())),
            Member::Version => item.version = Some(quoted(&held.prefix())),
            Member::Payload | Member::None => {}
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(self) -> Said {
        let kind = self.line.kind.as_deref();
        let is_known = kind.is_none_or(|kind| KINDS.contains(&kind));
        let unknown_kind = |is_item: bool| match is_known || is_item {
            true => None,
            false => kind.map(quoted),
        };
        match self.payload {
            Some(payload) => Said {
                has_envelope: true,
                unknown_kind: unknown_kind(false),
                version: payload.version.clone(),
                item: payload.item().filter(|_| kind == Some("response_item")),
            },
            None => {
                let is_item = self.line.is_item_by_itself();
                Said {
                    has_envelope: false,
                    unknown_kind: unknown_kind(is_item),
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
