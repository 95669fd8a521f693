//! Identifiers, each a type of its own so that one cannot stand where another is meant.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The shortest prefix of a conversation id that is looked up.
///
/// Six hexadecimal digits: below that a prefix says more about luck than about intent.
pub const MIN_PREFIX_CHARS: usize = 6;

/// The id of a conversation: a UUIDv4 minted by the daemon, the same for life and never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ConversationId(Uuid);

impl ConversationId {
    /// Mints a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4())
    }

    /// The id as its sixteen bytes, which is how it is keyed on disk.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id that has these sixteen bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), formatter)
    }
}

impl fmt::Debug for ConversationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for ConversationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is.
            #[must_use]
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, formatter)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id! {
    /// How a caller names a conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or
    /// more.
    ConversationRef
}
text_id! {
    /// The agent's own id of a session: opaque, unique within one transcript root, and the name of its transcript.
    UpstreamId
}
text_id! {
    /// The name of a configured agent (`claude`, `codex`, `loopback`, or what the configuration calls it).
    AgentName
}
text_id! {
    /// A place after a turn from which one can resume, fork or edit. Opaque and stable.
    CheckpointId
}
text_id! {
    /// One prompt of a conversation, from its admission to its end.
    TurnId
}
text_id! {
    /// A question of the agent that waits for a person.
    InterruptId
}
text_id! {
    /// A position in a stream of events or in a paged list. Opaque.
    Cursor
}

impl From<ConversationId> for ConversationRef {
    fn from(id: ConversationId) -> Self {
        Self(id.to_string())
    }
}

impl UpstreamId {
    /// Reads an id that may be null, which is none.
    pub(crate) fn or_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Self>::deserialize(deserializer).map(Option::unwrap_or_default)
    }

    /// Whether the id is empty, which no agent means as an id.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TurnId {
    /// Mints a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4().to_string())
    }
}

impl InterruptId {
    /// Mints a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4().to_string())
    }
}
