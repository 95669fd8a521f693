//! What the index notes of a record: its ids, and what it is in a history.

use uuid::Uuid;

#[cfg(test)]
use crate::transcript::record::{CHAIN_KINDS, Record, RecordHeader, RecordKind, is_session_wide};

/// What is noted of a record that is part of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transcript) struct Note {
    pub(super) uuid: RecordId,
    pub(super) parent: Option<RecordId>,
    pub(super) logical_parent: Option<RecordId>,
    /// The last record that a compaction has kept. It stands just before one that came within a turn, whose logical parent is a
    /// record that Claude Code (2.1.316) never writes.
    pub(super) kept_tail: Option<RecordId>,
    pub(super) message_id: Option<Box<str>>,
    pub(super) role: Role,
    pub(super) is_sidechain: bool,
    /// Whether it names the folder that it ran in.
    pub(super) has_cwd: bool,
    /// Whether it is a message that says of which one in another session it is a copy.
    pub(super) is_forked: bool,
    /// Whether it is of a kind that is not known.
    pub(super) is_unknown: bool,
}

/// What is noted of any record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::transcript) struct Seen {
    /// What is noted of one that is part of a chain.
    pub(in crate::transcript) chain: Option<Note>,
    /// Whether it is a title that a person gave.
    pub(in crate::transcript) is_title: bool,
    /// Whether it is about the session as a whole, wherever it stands.
    pub(super) is_session_wide: bool,
    /// The record that it names as the one that the conversation stood at.
    pub(super) mark: Option<RecordId>,
}

/// What a record is in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transcript) enum Role {
    Prompt,
    ToolResult,
    Aside,
    OtherUser,
    Assistant,
    Other,
}

/// A record's uuid: 16 bytes where it is one, its text where an agent writes something else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::transcript) enum RecordId {
    Uuid(u128),
    Text(Box<str>),
}

/// A record's uuid, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IdRef<'a> {
    Uuid(u128),
    Text(&'a str),
}

impl Seen {
    /// What is noted of a record that was decoded whole.
    #[cfg(test)]
    pub(in crate::transcript) fn of(record: &Record<'_>) -> Self {
        let header = record.header();
        Self {
            chain: Note::of(record, &header),
            is_title: header.kind == RecordKind::Other("custom-title".to_owned())
                && record.fields.text("customTitle").is_some(),
            is_session_wide: matches!(&header.kind, RecordKind::Other(kind) if is_session_wide(kind.as_bytes())),
            mark: match header.kind == RecordKind::Other("last-prompt".to_owned()) {
                true => header.leaf_uuid.as_deref().map(RecordId::new),
                false => None,
            },
        }
    }
}

impl Note {
    /// The uuid's text.
    pub(in crate::transcript) fn uuid(&self) -> String {
        self.uuid.as_ref().text()
    }

    /// Whether it is a message of the conversation, not of a subagent.
    pub(in crate::transcript) fn is_message(&self) -> bool {
        self.role != Role::Other && !self.is_sidechain
    }

    /// What is noted of a record; none when it is not part of a chain.
    #[cfg(test)]
    pub(super) fn of(record: &Record<'_>, header: &RecordHeader) -> Option<Self> {
        Some(Self {
            uuid: RecordId::new(header.uuid.as_ref()?),
            parent: header.parent_uuid.as_deref().map(RecordId::new),
            logical_parent: header.logical_parent_uuid.as_deref().map(RecordId::new),
            kept_tail: record
                .fields
                .object("compactMetadata")
                .and_then(|metadata| metadata.object("preservedSegment"))
                .and_then(|kept| kept.text("tailUuid"))
                .map(|tail| RecordId::new(&tail)),
            message_id: header.message_id.as_deref().map(Into::into),
            role: Role::of(record, header),
            is_sidechain: header.is_sidechain,
            has_cwd: header.cwd.is_some(),
            is_forked: matches!(header.kind, RecordKind::User | RecordKind::Assistant)
                && header.forked_from.is_some(),
            is_unknown: record
                .fields
                .text("type")
                .is_some_and(|kind| !CHAIN_KINDS.contains(&kind.as_str())),
        })
    }
}

#[cfg(test)]
impl Role {
    fn of(record: &Record<'_>, header: &RecordHeader) -> Self {
        match header.kind {
            RecordKind::Assistant => Self::Assistant,
            RecordKind::User if record.is_human_prompt(header) => Self::Prompt,
            RecordKind::User if header.has_tool_use_result => Self::ToolResult,
            RecordKind::User if record.is_aside(header) => Self::Aside,
            RecordKind::User => Self::OtherUser,
            _ => Self::Other,
        }
    }
}

impl RecordId {
    pub(super) fn new(text: &str) -> Self {
        IdRef::new(text).to_owned()
    }

    pub(super) fn as_ref(&self) -> IdRef<'_> {
        match self {
            Self::Uuid(value) => IdRef::Uuid(*value),
            Self::Text(text) => IdRef::Text(text),
        }
    }
}

impl<'a> IdRef<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        // Only the form that is written back the same way may be folded, or two ids could become one.
        folded(text.as_bytes()).map_or(Self::Text(text), Self::Uuid)
    }

    pub(super) fn to_owned(self) -> RecordId {
        match self {
            Self::Uuid(value) => RecordId::Uuid(value),
            Self::Text(text) => RecordId::Text(text.into()),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Uuid(value) => Uuid::from_u128(value).hyphenated().to_string(),
            Self::Text(text) => text.into(),
        }
    }
}

/// A uuid in small letters with hyphens.
fn folded(text: &[u8]) -> Option<u128> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let text: &[u8; 36] = text.try_into().ok()?;
    if HYPHENS.iter().any(|place| text[*place] != b'-') {
        return None;
    }
    let (mut value, mut seen) = (0u128, 0);
    for part in [
        &text[..8],
        &text[9..13],
        &text[14..18],
        &text[19..23],
        &text[24..],
    ] {
        let mut digits = 0u64;
        for byte in part {
            let digit = DIGITS[usize::from(*byte)];
            seen |= digit;
            digits = digits << 4 | u64::from(digit);
        }
        value = value << (4 * part.len()) | u128::from(digits);
    }
    (seen != NO_DIGIT).then_some(value)
}

/// No digits make this together, and it stays what it is beside any.
const NO_DIGIT: u8 = u8::MAX;

/// What each byte is worth as a hexadecimal digit in small letters.
static DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let digits = b"0123456789abcdef";
    let mut value = 0;
    while value < digits.len() {
        table[digits[value] as usize] = value as u8;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_told_as_it_was_written() {
        let uuid = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";
        assert!(matches!(IdRef::new(uuid), IdRef::Uuid(_)));
        for text in [
            uuid,
            "",
            "u1",
            "0B7E5B0E-1F7C-4D3A-9A51-8D6F2C3E4A5B",
            "0b7e5b0e1f7c4d3a9a518d6f2c3e4a5b",
            "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5g",
            "0b7e5b0e-1f7c-4d3a-9a5108d6f2c3e4a5b",
        ] {
            assert_eq!(RecordId::new(text).as_ref().text(), text);
        }
    }
}
