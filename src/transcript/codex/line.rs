//! The content of one line of a rollout.
//!
//! Decoded leniently: an unknown kind, an unknown member, or a member of an unexpected type is ignored. The first
//! versions of Codex wrote items without an envelope; they are read the same way. Pure.

use crate::transcript::fields::Fields;

/// A line whose envelope is decoded.
#[derive(Debug)]
pub(super) struct RolloutLine<'a> {
    pub(super) kind: LineKind,
    /// Whether the line has an envelope with its kind. Lines of the first versions had none.
    pub(super) has_envelope: bool,
    /// Its ordinal in the history; a fork continues the source's ordinals. Older versions wrote none.
    pub(super) ordinal: Option<u64>,
    /// When it was written, RFC 3339, as in the line.
    pub(super) written_at: Option<String>,
    pub(super) payload: Fields<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// Identifies the session.
    Meta,
    /// An item of the history that the model is sent.
    Item,
    /// An event.
    Event,
    /// The context of a turn.
    Context,
    /// A summary that replaces the earlier history.
    Compacted,
    /// Any other.
    Other,
}

/// The position where a session's history continues another one: a session's file and a record in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBase {
    /// The session that is continued.
    pub upstream_id: String,
    /// The end of the part of that file that is continued.
    pub end: HistoryEnd,
}

/// The end of a part of a history, in the file of a session that another one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryEnd {
    /// The ordinal of the first record that is excluded.
    pub ordinal: Option<u64>,
    /// The offset of that record, uncompressed. Used if there are no ordinals.
    pub offset: Option<u64>,
}

impl HistoryEnd {
    /// Whether the record that begins at `offset` is after the end.
    #[must_use]
    pub fn excludes(&self, ordinal: Option<u64>, offset: u64) -> bool {
        match (ordinal, self.ordinal) {
            (Some(ordinal), Some(end)) => ordinal >= end,
            _ => self.offset.is_some_and(|end| offset >= end),
        }
    }
}

/// The content of a rollout's first line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The session's id.
    pub upstream_id: Option<String>,
    /// The folder in which it was created.
    pub cwd: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// The history that it continues by reference. Older versions copied it.
    pub base: Option<HistoryBase>,
}

impl<'a> RolloutLine<'a> {
    /// Parses a line. `None` if it is not a record.
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
            has_envelope: true,
            ordinal: number(&fields, "ordinal"),
            written_at: fields.text("timestamp"),
            payload,
        }
    }

    /// The content of the session's first line.
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
