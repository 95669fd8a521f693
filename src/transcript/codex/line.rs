//! One line of a rollout: what the bridge reads from it.
//!
//! Decoded leniently: an unknown kind, an unknown member, a member of another type than expected is passed over. The
//! first versions of Codex wrote items without an envelope; they are read alike. Pure.

use std::borrow::Cow;

use crate::transcript::fields::Fields;

/// A line, decoded as far as its envelope.
#[derive(Debug)]
pub(super) struct RolloutLine<'a> {
    pub(super) kind: LineKind,
    /// The kind as it is called there; none where the line does not say.
    pub(super) name: Option<Cow<'a, str>>,
    /// Whether it says of what kind it is, apart from what it holds; the first versions did not.
    pub(super) has_envelope: bool,
    /// Its number in the history; a fork's go on where the source's ended. Older versions wrote none.
    pub(super) ordinal: Option<u64>,
    /// When it was written, RFC 3339, as it stands there.
    pub(super) written_at: Option<String>,
    pub(super) payload: Fields<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// What session it is.
    Meta,
    /// Something in the history that the model is sent.
    Item,
    /// Something that happened.
    Event,
    /// What a turn runs with.
    Context,
    /// A past that was replaced by a summary.
    Compacted,
    /// Any other.
    Other,
}

/// Where the history of a session begins that continues another one: in that one's file, up to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBase {
    /// The session that is continued.
    pub upstream_id: String,
    /// Where the part that counts ends.
    pub end: HistoryEnd,
}

/// Where a part of a history ends, in the file of a session that another one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryEnd {
    /// The ordinal of the first record that does not count.
    pub ordinal: Option<u64>,
    /// The offset of that record, uncompressed; counts where there are no ordinals.
    pub offset: Option<u64>,
}

impl HistoryEnd {
    /// Whether the record that begins at `offset` lies behind it.
    #[must_use]
    pub fn excludes(&self, ordinal: Option<u64>, offset: u64) -> bool {
        match (ordinal, self.ordinal) {
            (Some(ordinal), Some(end)) => ordinal >= end,
            _ => self.offset.is_some_and(|end| offset >= end),
        }
    }
}

/// What the first line of a rollout says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The session's id.
    pub upstream_id: Option<String>,
    /// The folder that it was begun in.
    pub cwd: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// Whose history it continues by reference; older versions copied it.
    pub base: Option<HistoryBase>,
}

impl<'a> RolloutLine<'a> {
    /// The line that `text` is; nothing when it is not a record.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        Fields::parse(text).map(Self::of)
    }

    /// The line with these members.
    pub(super) fn of(fields: Fields<'a>) -> Self {
        let name = fields.str("type");
        let Some(payload) = fields.object("payload") else {
            let kind = match name.as_deref() {
                None if fields.str("id").is_some() => LineKind::Meta,
                Some("message" | "reasoning") => LineKind::Item,
                Some(name) if name.ends_with("_call") || name.ends_with("_call_output") => LineKind::Item,
                _ => LineKind::Other,
            };
            return Self {
                kind,
                name,
                has_envelope: false,
                ordinal: None,
                written_at: fields.text("timestamp"),
                payload: fields,
            };
        };
        Self {
            kind: match name.as_deref() {
                Some("session_meta") => LineKind::Meta,
                Some("response_item") => LineKind::Item,
                Some("event_msg") => LineKind::Event,
                Some("turn_context") => LineKind::Context,
                Some("compacted") => LineKind::Compacted,
                _ => LineKind::Other,
            },
            name,
            has_envelope: true,
            ordinal: number(&fields, "ordinal"),
            written_at: fields.text("timestamp"),
            payload,
        }
    }

    /// What the session's first line says.
    pub(super) fn meta(&self) -> Meta {
        let base = self.payload.object("history_base");
        let base = base.and_then(|base| {
            Some(HistoryBase {
                upstream_id: base.text("thread_id")?,
                end: HistoryEnd {
                    ordinal: number(&base, "end_ordinal_exclusive"),
                    offset: number(&base, "end_byte_offset"),
                },
            })
        });
        let source = || base.as_ref().map(|base| base.upstream_id.clone());
        Meta {
            upstream_id: self.payload.text("id"),
            cwd: self.payload.text("cwd"),
            forked_from: self.payload.text("forked_from_id").or_else(source),
            base,
        }
    }
}

/// A member that is a whole number.
pub(super) fn number(fields: &Fields<'_>, name: &str) -> Option<u64> {
    fields.raw(name)?.get().parse().ok()
}
