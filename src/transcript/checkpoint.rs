//! Ids of positions in transcripts: checkpoint ids and message ids.
//!
//! A checkpoint id contains the agent, the upstream session and the record, and nothing else: no offset, no
//! step, no folder. So it stays valid if the transcript is moved, restored or appended to, and it suffices to
//! find the position. Pure; knows nothing of the content at a position.

use std::fmt;
use std::str::FromStr;

use crate::files::digest::from_hex;

/// The position after a turn: the turn's last record in an upstream session of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointRef {
    /// The agent's configured name.
    pub agent: String,
    /// The upstream session that contains the record.
    pub upstream_id: String,
    /// The uuid of the turn's last record, or the agent's own id of the turn, as Codex has it.
    pub record_uuid: String,
}

/// One message: a record in an upstream session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageRef {
    /// The upstream session that contains the record.
    pub upstream_id: String,
    /// The record's uuid, or its id in formats without uuids (`codex::history`).
    pub record_uuid: String,
}

/// A position in a history, as a caller specifies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PlaceRef {
    /// The position after a turn.
    Checkpoint(CheckpointRef),
    /// The position after a message.
    Message(MessageRef),
}

/// A string that is not an id of this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {expected} id")]
pub struct MalformedRef {
    expected: &'static str,
}

const CHECKPOINT_MARK: &str = "cp";
const MESSAGE_MARK: &str = "msg";

impl fmt::Display for CheckpointRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(
            formatter,
            CHECKPOINT_MARK,
            [&self.agent, &self.upstream_id, &self.record_uuid],
        )
    }
}

impl FromStr for CheckpointRef {
    type Err = MalformedRef;

    fn from_str(text: &str) -> Result<Self, MalformedRef> {
        let read = read_parts(text, CHECKPOINT_MARK).map(|[agent, upstream_id, record_uuid]| Self {
            agent,
            upstream_id,
            record_uuid,
        });
        // Each position has one id.
        let read = read.filter(|read| read.to_string() == text);
        read.ok_or(MalformedRef {
            expected: "checkpoint",
        })
    }
}

impl fmt::Display for MessageRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(formatter, MESSAGE_MARK, [&self.upstream_id, &self.record_uuid])
    }
}

impl FromStr for MessageRef {
    type Err = MalformedRef;

    fn from_str(text: &str) -> Result<Self, MalformedRef> {
        let read = read_parts(text, MESSAGE_MARK).map(|[upstream_id, record_uuid]| Self {
            upstream_id,
            record_uuid,
        });
        let read = read.filter(|read| read.to_string() == text);
        read.ok_or(MalformedRef { expected: "message" })
    }
}

impl PlaceRef {
    /// The upstream session that contains the record.
    #[must_use]
    pub fn upstream_id(&self) -> &str {
        match self {
            Self::Checkpoint(place) => &place.upstream_id,
            Self::Message(place) => &place.upstream_id,
        }
    }

    /// The id of the record in that session.
    #[must_use]
    pub fn record_uuid(&self) -> &str {
        match self {
            Self::Checkpoint(place) => &place.record_uuid,
            Self::Message(place) => &place.record_uuid,
        }
    }
}

impl fmt::Display for PlaceRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(place) => place.fmt(formatter),
            Self::Message(place) => place.fmt(formatter),
        }
    }
}

impl FromStr for PlaceRef {
    type Err = MalformedRef;

    fn from_str(text: &str) -> Result<Self, MalformedRef> {
        let of_checkpoint = text.parse().map(Self::Checkpoint);
        of_checkpoint
            .or_else(|_| text.parse().map(Self::Message))
            .map_err(|_: MalformedRef| MalformedRef {
                expected: "checkpoint or message",
            })
    }
}

/// Writes the mark and the parts, each after a dot. Letters, digits and `-` are written as they are, any
/// other byte as `_` and two hexadecimal digits, so that no shell and no URL needs quotes.
fn write_parts<const N: usize>(
    formatter: &mut fmt::Formatter<'_>,
    prefix: &str,
    parts: [&String; N],
) -> fmt::Result {
    formatter.write_str(prefix)?;
    for part in parts {
        formatter.write_str(".")?;
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                write!(formatter, "{}", char::from(byte))?;
            } else {
                write!(formatter, "_{byte:02x}")?;
            }
        }
    }
    Ok(())
}

/// Parses the output of [`write_parts`]. Accepts other spellings too, so the caller compares the parsed id with the
/// text.
fn read_parts<const N: usize>(text: &str, prefix: &str) -> Option<[String; N]> {
    let mut pieces = text.split('.');
    if pieces.next() != Some(prefix) {
        return None;
    }
    let parts: Vec<String> = pieces.map(read_part).collect::<Option<_>>()?;
    parts.try_into().ok()
}

fn read_part(piece: &str) -> Option<String> {
    let mut plain = piece.split('_');
    let mut bytes = plain.next()?.as_bytes().to_vec();
    for rest in plain {
        let (code, plain) = rest.split_at_checked(2)?;
        bytes.extend(from_hex(code)?);
        bytes.extend(plain.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "cp",
            "cp.a.b",
            "cp.a.b.c.d",
            "cp.a..c",
            "cp.a.b.c_",
            "cp.a.b._5F",
            "cp.a.b._41",
            "cp.a.b._ff",
            "cp.a.b.c d",
            "msg.a.b.c",
            "CP.a.b.c",
        ] {
            assert!(text.parse::<CheckpointRef>().is_err(), "{text}");
        }
        assert!("cp.a.b.c".parse::<MessageRef>().is_err());
    }

    proptest! {
        #[test]
        fn every_message_survives_its_text(upstream_id in "(?s).+", record_uuid in "(?s).+") {
            let message = MessageRef { upstream_id, record_uuid };
            let text = message.to_string();
            prop_assert_eq!(text.parse::<MessageRef>(), Ok(message.clone()));
            prop_assert_eq!(text.parse::<PlaceRef>(), Ok(PlaceRef::Message(message)));
        }

        #[test]
        fn one_place_has_one_name(text in "cp(\\.[a-z0-9_-]{1,12}){3}") {
            if let Ok(checkpoint) = text.parse::<CheckpointRef>() {
                prop_assert_eq!(checkpoint.to_string(), text);
            }
        }
    }
}
