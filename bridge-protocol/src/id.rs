//! Identifiers. Each is its own type, so that one cannot be passed as another.

use derive_more::{Debug, Display, From, FromStr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The minimum length of an id prefix that is looked up, in characters.
///
/// A shorter prefix of hexadecimal digits would match by chance too easily.
pub const MIN_PREFIX_CHARS: usize = 6;

/// The id of a conversation: a UUIDv4 that the daemon generates. It never changes and is never used again.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Debug,
    Display,
    FromStr,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
#[debug("{_0}")]
pub struct ConversationId(Uuid);

impl ConversationId {
    /// Generates a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4())
    }

    /// The sixteen bytes of the id. They are its key on disk.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these sixteen bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

/// Declares ids that are opaque texts.
macro_rules! text_ids {
    ($( $(#[$meta:meta])+ $name:ident, )+) => { $(
        $(#[$meta])+
        #[derive(
            Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Display, From, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        #[debug("{_0:?}")]
        pub struct $name(String);

        impl $name {
            /// Creates an id from its text, unchecked.
            #[must_use]
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text of the id.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    )+ };
}

text_ids! {
    /// A reference to a conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or
    /// more.
    ConversationRef,
    /// The id of an upstream session: the agent's own, opaque, unique within one transcript root, and the name of its
    /// transcript.
    UpstreamId,
    /// The name of an agent: as configured, or a built-in one (`claude`, `codex`, `loopback`).
    AgentName,
    /// The id of a checkpoint, from which a session can be resumed, forked or edited. Opaque and stable.
    CheckpointId,
    /// The id of a turn: one prompt of a conversation, from its acceptance into the queue to its end.
    TurnId,
    /// The id of an interrupt: a question of the agent that waits for an answer.
    InterruptId,
    /// A position in a stream of events or in a paged list. Opaque.
    Cursor,
}

impl From<ConversationId> for ConversationRef {
    fn from(id: ConversationId) -> Self {
        Self(id.to_string())
    }
}

impl UpstreamId {
    /// Reads an id that may be null; null is the empty id.
    pub(crate) fn or_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Self>::deserialize(deserializer).map(Option::unwrap_or_default)
    }

    /// Whether the id is empty, which means none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TurnId {
    /// Generates a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4().to_string())
    }
}

impl InterruptId {
    /// Generates a new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::new_v4().to_string())
    }
}
