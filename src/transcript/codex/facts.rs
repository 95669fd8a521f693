//! The facts that the index reads from a line of a rollout.

use super::item::{is_message, is_prompt};
use super::line::{LineKind, Meta, RolloutLine, number};
use crate::transcript::scan::{BEGINNING_BYTES, Filter, Grammar, PruneTable};

/// The longest path or title that is read, in bytes in the file: the longest possible path with each character escaped.
/// A longer one counts as missing.
const TEXT_LIMIT_BYTES: usize = 4096 * 6;

/// How much of a message's text is read, in bytes: more than any model takes. Texts that Codex wrote in the user's name are
/// known by their beginning and end.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The members that the index and a check read. Without an envelope the line's own members are the item's.
pub(in crate::transcript) static MEMBERS: PruneTable = PruneTable {
    grammar: Grammar::Serde,
    record: Filter::object(&[("ordinal", Filter::PRESENCE), ("payload", ITEM)]).extending(&ITEM),
};
static ITEM: Filter = Filter::object(&[
    ("type", Filter::NAME),
    ("turn_id", Filter::ID),
    ("id", Filter::ID),
    ("role", Filter::NAME),
    ("content", PARTS),
    (
        "internal_chat_message_metadata_passthrough",
        Filter::object(&[
            ("turn_id", Filter::ID),
            ("content_item_metadata", Filter::PRESENCE.or_array(&OWNER)),
            ("content_item_kinds", Filter::PRESENCE.or_array(&Filter::NAME)),
        ]),
    ),
    ("call_id", Filter::ID),
    ("name", Filter::NAME),
    ("cwd", Filter::whole(TEXT_LIMIT_BYTES)),
    ("error", Filter::PRESENCE),
    ("num_turns", Filter::PRESENCE),
    ("thread_name", Filter::whole(TEXT_LIMIT_BYTES)),
    ("forked_from_id", Filter::ID),
    (
        "history_base",
        Filter::object(&[
            ("thread_id", Filter::ID),
            ("end_ordinal_exclusive", Filter::PRESENCE),
            ("end_byte_offset", Filter::PRESENCE),
        ]),
    ),
]);
static PARTS: Filter = Filter::PRESENCE.or_array(&PART);
static PART: Filter = Filter::object(&[("text", Filter::beginning(MESSAGE_BYTES))]).or_text(BEGINNING_BYTES);
static OWNER: Filter = Filter::object(&[("provenance", Filter::object(&[("type", Filter::NAME)]))]);

/// The facts about a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LineFacts {
    /// Its ordinal in the history.
    pub(super) ordinal: Option<u64>,
    /// The turn that the line begins or belongs to, if the following lines belong to it too.
    pub(super) turn_id: Option<Box<str>>,
    pub(super) role: LineRole,
}

/// The role of a line in a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LineRole {
    /// Identifies the session.
    Meta(Box<Meta>),
    /// A prompt of the user.
    Prompt,
    /// Another item of the history.
    Item,
    /// The context of a turn: the folder.
    Context(Option<String>),
    /// A compaction: a summary replaces the earlier history.
    Compacted,
    /// This many turns were removed by the user, who went back.
    RolledBack(u64),
    /// The name that the user gave to the session.
    Title(Option<String>),
    /// An error that the history shows.
    Failure,
    /// Not part of the history.
    #[default]
    Irrelevant,
}

impl LineFacts {
    /// Reads a line.
    pub(super) fn of(line: &RolloutLine<'_>) -> Self {
        let payload = &line.payload;
        let event = match line.kind {
            LineKind::Event => payload.str("type"),
            _ => None,
        };
        let role = match (line.kind, event.as_deref()) {
            (LineKind::Meta, _) => LineRole::Meta(Box::new(line.meta())),
            (LineKind::Context, _) => LineRole::Context(payload.text("cwd")),
            (LineKind::Item, _) if is_prompt(payload) => LineRole::Prompt,
            (LineKind::Item, _) if is_message(payload) => LineRole::Item,
            (LineKind::Compacted, _) => LineRole::Compacted,
            (LineKind::Event, Some("thread_rolled_back")) => {
                LineRole::RolledBack(number(payload, "num_turns").unwrap_or(0))
            }
            (LineKind::Event, Some("thread_name_updated")) => LineRole::Title(payload.text("thread_name")),
            (LineKind::Event, Some("error")) => LineRole::Failure,
            (LineKind::Event, Some("task_complete")) if payload.object("error").is_some() => {
                LineRole::Failure
            }
            _ => LineRole::Irrelevant,
        };
        let begins = match line.kind {
            LineKind::Item | LineKind::Context => true,
            LineKind::Event => event.as_deref() == Some("task_started"),
            _ => false,
        };
        let passed = || {
            payload
                .object("internal_chat_message_metadata_passthrough")?
                .str("turn_id")
        };
        let turn_id = || payload.str("turn_id").or_else(passed).filter(|id| !id.is_empty());
        Self {
            ordinal: line.ordinal,
            turn_id: begins.then(turn_id).flatten().map(|id| (*id).into()),
            role,
        }
    }
}

#[cfg(test)]
mod tests;
