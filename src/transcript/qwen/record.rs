//! One record of Qwen Code's transcripts: what it is, and its place in the chain.

use crate::transcript::fields::{Fields, Json};
use crate::transcript::lines::{text_of_same_length, trimmed};

/// What a record is in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A person's words.
    Prompt,
    /// The agent's words in the person's name: a notification, a scheduled prompt, a message in the middle of a turn.
    Aside,
    /// The model's words.
    Reply,
    /// The model calls tools.
    Call,
    /// What a tool answered.
    Result,
    /// What replaces the history before it.
    Compaction,
    /// A turn has ended: the model has answered, or a command of the agent's own is over.
    End,
    /// A title that was given.
    Title,
    /// A note of the agent's own, such as telemetry.
    Note,
    /// A kind that is not known. This version of the agent drops such records from the chain.
    Unknown,
}

/// A record that is part of the chain.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) uuid: String,
    pub(super) parent: Option<String>,
    pub(super) session: String,
    pub(super) kind: Kind,
    /// Whether it is a copy of a record of another session.
    pub(super) is_copied: bool,
}

/// A line's records.
#[derive(Debug, Default)]
pub(super) struct Records<'a> {
    /// Each with its place in the line, in bytes.
    pub(super) found: Vec<(usize, Fields<'a>)>,
    /// Whether the line holds something else.
    pub(super) has_garbage: bool,
}

/// System records that stand beside the chain: the agent passes over them when it looks for the last record and for parents.
const BESIDE: [&str; 6] = [
    "session_artifact_event",
    "session_artifact_snapshot",
    "session_sources_snapshot",
    "managed_session_header_v1",
    "managed_session_event_v1",
    "managed_session_commit_v1",
];

impl Kind {
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

    /// Whether it is told as a message.
    pub(super) fn is_message(self) -> bool {
        matches!(
            self,
            Self::Prompt | Self::Aside | Self::Reply | Self::Call | Self::Result | Self::Compaction
        )
    }
}

impl Header {
    /// What a record says of its place; none if the agent does not take it for a part of the chain, because a member is missing.
    pub(super) fn of(fields: &Fields<'_>) -> Option<Self> {
        let kind = Kind::of(fields);
        let subtype = fields.text("subtype");
        let is_beside = || subtype.is_some_and(|subtype| BESIDE.contains(&subtype.as_str()));
        let parent = fields.raw("parentUuid")?;
        let parent = match parent.get() {
            "null" => None,
            _ => Some(fields.text("parentUuid")?).filter(|parent| !parent.is_empty()),
        };
        let named = |name| fields.text(name).filter(|text| !text.is_empty());
        let (uuid, session) = (named("uuid")?, named("sessionId")?);
        (kind != Kind::Note || !is_beside()).then(|| Self {
            uuid,
            parent,
            session,
            kind,
            is_copied: fields.raw("forkedFrom").is_some(),
        })
    }
}

/// The records of a line. The agent finds those that were written into one line, as long as each is whole.
pub(super) fn with_records<T>(line: &[u8], take: impl FnOnce(Records<'_>) -> T) -> T {
    let bytes = trimmed(line);
    let before = bytes.as_ptr() as usize - line.as_ptr() as usize;
    let text = text_of_same_length(bytes);
    if let Some(fields) = Fields::parse(&text) {
        let found = vec![(before, fields)];
        return take(Records {
            found,
            has_garbage: false,
        });
    }
    let mut records = Records {
        has_garbage: !text.is_empty(),
        ..Records::default()
    };
    let mut objects = serde_json::Deserializer::from_str(&text).into_iter::<Fields<'_>>();
    loop {
        let place = objects.byte_offset();
        match objects.next() {
            Some(Ok(fields)) => records.found.push((before + place, fields)),
            Some(Err(_)) => break,
            None => {
                records.has_garbage = false;
                break;
            }
        }
    }
    take(records)
}

/// The title that a record gives the session.
pub(super) fn given_title(fields: &Fields<'_>) -> Option<String> {
    let is_title = Kind::of(fields) == Kind::Title;
    is_title.then(|| fields.object("systemPayload")?.text("customTitle"))?
}
