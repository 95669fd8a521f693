//! One record of Qwen Code's transcripts: its kind, and its position in the chain.

use std::ops::Range;

use crate::transcript::fields::{Fields, Json};
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::record_id::RecordId;
use crate::transcript::scan::ID_LIMIT_BYTES;

/// The kind of a record in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A prompt of the user.
    Prompt,
    /// The agent's text in the user's name: a notification, a scheduled prompt, a message in the middle of a turn.
    Aside,
    /// A text of the model.
    Reply,
    /// The model calls tools.
    Call,
    /// The result of a tool.
    Result,
    /// A compaction, which replaces the history before it.
    Compaction,
    /// The end of a turn: the model has answered, or a command of the agent's own has finished.
    End,
    /// A title that was given.
    Title,
    /// A note of the agent's own, such as telemetry.
    Note,
    /// An unknown kind. This version of the agent drops such records from the chain.
    Unknown,
}

/// A record that is part of the chain.
#[derive(Debug)]
pub(super) struct RecordHeader {
    pub(super) id: RecordId,
    pub(super) parent: Option<RecordId>,
    pub(super) session: String,
    pub(super) kind: RecordKind,
    /// Whether it is a copy of a record of another session.
    pub(super) is_copied: bool,
}

/// System records that are not part of the chain: the agent ignores them when it looks for the last record and for parents.
const OUTSIDE_CHAIN: [&str; 6] = [
    "session_artifact_event",
    "session_artifact_snapshot",
    "session_sources_snapshot",
    "managed_session_header_v1",
    "managed_session_event_v1",
    "managed_session_commit_v1",
];

impl RecordKind {
    pub(super) fn of(fields: &Fields<'_>) -> Self {
        let subtype = fields.text("subtype");
        let kind = fields.text("type").unwrap_or_default();
        match (kind.as_str(), subtype.as_deref()) {
            ("user", None) => {
                let provenance = fields.text("provenance");
                match provenance.is_none_or(|provenance| provenance == "real_user") {
                    true => Self::Prompt,
                    false => Self::Aside,
                }
            }
            ("user", Some(_)) => Self::Aside,
            ("assistant", _) => {
                let parts = fields
                    .object("message")
                    .and_then(|message| message.array("parts"));
                let is_call = |part: &Json<'_>| {
                    Fields::parse(part.get()).is_some_and(|part| part.raw("functionCall").is_some())
                };
                match parts.is_some_and(|parts| parts.iter().any(is_call)) {
                    true => Self::Call,
                    false => Self::Reply,
                }
            }
            ("tool_result", _) => Self::Result,
            ("system", Some("chat_compression")) => Self::Compaction,
            ("system", Some("branch_checkpoint")) => Self::End,
            ("system", Some("slash_command")) => {
                let payload = fields.object("systemPayload");
                match payload.and_then(|payload| payload.text("phase")).as_deref() {
                    Some("result") => Self::End,
                    _ => Self::Note,
                }
            }
            ("system", Some("custom_title")) => Self::Title,
            ("system", _) => Self::Note,
            _ => Self::Unknown,
        }
    }

    /// Whether the history shows it as a message.
    pub(super) fn is_message(self) -> bool {
        matches!(
            self,
            Self::Prompt | Self::Aside | Self::Reply | Self::Call | Self::Result | Self::Compaction
        )
    }
}

impl RecordHeader {
    /// Reads the header of a record. `None` if the agent does not count it as part of the chain, because a member is missing.
    pub(super) fn of(fields: &Fields<'_>) -> Option<Self> {
        let kind = RecordKind::of(fields);
        let subtype = fields.text("subtype");
        let is_outside = || subtype.is_some_and(|subtype| OUTSIDE_CHAIN.contains(&subtype.as_str()));
        let parent = match fields.raw("parentUuid")?.get() {
            "null" | "\"\"" => None,
            _ => Some(RecordId::new(&id(fields, "parentUuid")?)),
        };
        let (uuid, session) = (id(fields, "uuid")?, id(fields, "sessionId")?);
        (kind != RecordKind::Note || !is_outside()).then(|| Self {
            id: RecordId::new(&uuid),
            parent,
            session,
            kind,
            is_copied: fields.raw("forkedFrom").is_some(),
        })
    }
}

/// Reads an id. `None` if it is empty or longer than [`ID_LIMIT_BYTES`].
fn id(fields: &Fields<'_>, name: &str) -> Option<String> {
    let is_short = |json: &Json<'_>| json.get().len() <= ID_LIMIT_BYTES;
    let id = fields.raw(name).filter(is_short)?.text()?;
    (!id.is_empty()).then(|| id.into_owned())
}

/// Calls `take` with each record in a line and its range of bytes. The agent finds all records that were written into one line,
/// as long as each is complete. Returns whether the line also contains something else.
pub(super) fn for_each_record(line: &[u8], mut take: impl FnMut(Range<usize>, &Fields<'_>)) -> bool {
    let bytes = trimmed(line);
    let before = bytes.as_ptr() as usize - line.as_ptr() as usize;
    let text = text_of_same_length(bytes);
    let mut records = serde_json::Deserializer::from_str(&text).into_iter::<Fields<'_>>();
    loop {
        let start = before + records.byte_offset();
        match records.next() {
            Some(Ok(fields)) => take(start..before + records.byte_offset(), &fields),
            garbage => return garbage.is_some(),
        }
    }
}

/// The title that a record gives the session.
pub(super) fn given_title(fields: &Fields<'_>) -> Option<String> {
    let is_title = RecordKind::of(fields) == RecordKind::Title;
    is_title.then(|| fields.object("systemPayload")?.text("customTitle"))?
}
