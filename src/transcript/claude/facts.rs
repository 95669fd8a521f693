//! The facts that the index reads from a record: its ids, and its role in a history.

use crate::transcript::claude::record::{CHAIN_KINDS, Record, is_session_wide};
use crate::transcript::fields::Fields;
use crate::transcript::record_id::RecordId;
use crate::transcript::scan::{BEGINNING_BYTES, Filter, Grammar, PruneTable};

/// The members that the index reads.
pub(in crate::transcript) static INDEX: PruneTable = PruneTable {
    grammar: Grammar::JavaScript,
    record: Filter::object(&[
        ("parentUuid", Filter::ID),
        ("isSidechain", Filter::PRESENCE),
        ("type", Filter::NAME),
        ("message", MESSAGE),
        ("uuid", Filter::ID),
        ("cwd", Filter::PRESENCE),
        ("toolUseResult", Filter::PRESENCE),
        ("origin", Filter::object(&[("kind", Filter::NAME)])),
        ("isMeta", Filter::PRESENCE),
        ("isCompactSummary", Filter::PRESENCE),
        ("logicalParentUuid", Filter::ID),
        (
            "compactMetadata",
            Filter::object(&[("preservedSegment", Filter::object(&[("tailUuid", Filter::ID)]))]),
        ),
        (
            "forkedFrom",
            Filter::object(&[("sessionId", Filter::PRESENCE), ("messageUuid", Filter::PRESENCE)]),
        ),
        (
            "attachment",
            Filter::object(&[
                ("type", Filter::NAME),
                ("commandMode", Filter::NAME),
                ("isMeta", Filter::PRESENCE),
                ("origin", Filter::object(&[("kind", Filter::NAME)])),
            ]),
        ),
        ("leafUuid", Filter::ID),
        ("customTitle", Filter::PRESENCE),
    ]),
};

/// The members that the index reads from a message, and from each block of its content.
pub(in crate::transcript) static MESSAGE: Filter =
    Filter::object(&[("id", Filter::ID), ("content", Filter::NAME.or_array(&BLOCK))]);
pub(in crate::transcript) static BLOCK: Filter = Filter::object(&[
    ("type", Filter::NAME),
    ("text", Filter::NAME),
    ("tool_use_id", Filter::PRESENCE),
])
.or_text(BEGINNING_BYTES);

/// The facts about a record that is part of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transcript) struct ChainFacts {
    pub(super) uuid: RecordId,
    pub(super) parent: Option<RecordId>,
    pub(super) logical_parent: Option<LogicalParent>,
    pub(super) message_id: Option<Box<str>>,
    pub(super) role: RecordRole,
    pub(super) is_sidechain: bool,
    /// Whether it names the folder in which it was written.
    pub(super) has_cwd: bool,
    /// Whether it is a message that names its original in another session.
    pub(super) is_forked: bool,
    /// Whether it is of an unknown kind.
    pub(super) is_unknown: bool,
    /// Whether the user typed it during a turn.
    pub(super) is_steering: bool,
}

/// What a compaction names as the end of the history before it: one of the two at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transcript) struct LogicalParent {
    pub(super) named_id: Option<RecordId>,
    /// The last record that it kept. It replaces the named one of a compaction within a turn, which is a record that Claude
    /// Code (2.1.316) never writes.
    pub(super) kept_tail: Option<RecordId>,
}

/// The facts about any record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::transcript) struct RecordFacts {
    /// The facts about a record that is part of a chain.
    pub(in crate::transcript) chain: Option<ChainFacts>,
    /// Whether it is a title that the user gave.
    pub(in crate::transcript) is_title: bool,
    /// Whether it concerns the whole session, wherever it is in the file.
    pub(super) is_session_wide: bool,
    /// The record that it names as the current position of the conversation.
    pub(super) leaf_hint: Option<RecordId>,
}

/// The role of a record in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transcript) enum RecordRole {
    Prompt,
    ToolResult,
    Aside,
    OtherUser,
    Assistant,
    Other,
}

impl RecordFacts {
    /// Reads a record.
    pub(in crate::transcript) fn of(record: &Record<'_>) -> Self {
        let fields = &record.fields;
        let kind = fields.str("type");
        let leaf_id = || fields.str("leafUuid").map(|leaf| RecordId::new(&leaf));
        Self {
            chain: ChainFacts::of(record, kind.as_deref()),
            is_title: kind.as_deref() == Some("custom-title") && fields.str("customTitle").is_some(),
            is_session_wide: kind.as_deref().is_some_and(is_session_wide),
            leaf_hint: (kind.as_deref() == Some("last-prompt")).then(leaf_id).flatten(),
        }
    }
}

impl ChainFacts {
    /// The uuid's text.
    pub(in crate::transcript) fn uuid(&self) -> String {
        self.uuid.text()
    }

    /// Whether it is a message of the conversation, not of a subagent.
    pub(in crate::transcript) fn is_message(&self) -> bool {
        self.role != RecordRole::Other && !self.is_sidechain
    }

    /// Reads a record of this kind. `None` if it is not part of a chain.
    fn of(record: &Record<'_>, kind: Option<&str>) -> Option<Self> {
        let fields = &record.fields;
        let id = |fields: &Fields<'_>, name: &str| fields.str(name).map(|id| RecordId::new(&id));
        let preserved_segment = || fields.object("compactMetadata")?.object("preservedSegment");
        let is_forked = || {
            let source = fields.object("forkedFrom");
            source.is_some_and(|source| source.str("sessionId").and(source.str("messageUuid")).is_some())
        };
        let named_id = id(fields, "logicalParentUuid");
        let kept_tail = preserved_segment().and_then(|segment| id(&segment, "tailUuid"));
        Some(Self {
            uuid: id(fields, "uuid")?,
            parent: id(fields, "parentUuid"),
            logical_parent: (named_id.is_some() || kept_tail.is_some())
                .then_some(LogicalParent { named_id, kept_tail }),
            message_id: fields
                .object("message")
                .and_then(|message| Some((*message.str("id")?).into())),
            role: RecordRole::of(record, kind),
            is_sidechain: fields.flag("isSidechain"),
            has_cwd: fields.str("cwd").is_some(),
            is_forked: matches!(kind, Some("user" | "assistant")) && is_forked(),
            is_unknown: kind.is_some_and(|kind| !CHAIN_KINDS.contains(&kind)),
            is_steering: record.is_steering(),
        })
    }
}

impl RecordRole {
    fn of(record: &Record<'_>, kind: Option<&str>) -> Self {
        match kind {
            Some("assistant") => Self::Assistant,
            Some("user") if record.is_human_prompt() => Self::Prompt,
            Some("user") if record.fields.raw("toolUseResult").is_some() => Self::ToolResult,
            Some("user") if record.is_agent_command() => Self::Aside,
            Some("user") => Self::OtherUser,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests;
