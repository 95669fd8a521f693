//! What a subscriber is told.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::conversation::{Conversation, ConversationState, Limit, RunningTurn, SessionInfo};
use crate::history::Checkpoint;
use crate::id::{ConversationId, Cursor, InterruptId, TurnId, UpstreamId};
use crate::link::{Fidelity, Link, Resumed, RollCause};
use crate::raw::{PromptContent, RawJson};
use crate::turn::{Interrupt, TurnResult};

/// One event, with the conversation that it is about and its place in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventEnvelope {
    /// The conversation that it is about.
    pub conversation_id: ConversationId,
    /// Subscribing with `after` this goes on behind it.
    pub cursor: Cursor,
    /// When it happened.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// Declares the events once: the enum, how it is written (`{"type": …}` with the members beside it) and how it is
/// read. Serde's own tagged reading would decode raw members and lose their bytes, so the reading goes by the tag first.
macro_rules! events {
    ($($(#[$meta:meta])* $name:ident = $wire:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? },)*) => {
        /// What happened. A kind that is not known here is kept as it came, so new ones break no client.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[derive(schemars::JsonSchema)]
        #[serde(tag = "type", rename_all_fields = "camelCase")]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$meta])* #[serde(rename = $wire)] $name { $($(#[$field_meta])* $field: $type),* },)*
            /// A kind of event that this version of the crate does not know, as it came.
            #[serde(untagged)]
            #[schemars(skip)]
            Other(RawJson),
        }

        impl Event {
            /// The names of all kinds that this version knows, as they stand in `type`.
            pub const KINDS: &'static [&'static str] = &[$($wire),*];

            /// The event's kind, as it stands in `type`.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$name { .. } => $wire,)*
                    Self::Other(_) => "other",
                }
            }
        }

        impl<'de> Deserialize<'de> for Event {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                struct Tag {
                    r#type: String,
                }
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                let tag: Tag = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
                match tag.r#type.as_str() {
                    $($wire => {
                        #[derive(Deserialize)]
                        #[serde(rename_all = "camelCase")]
                        struct Members {
                            $($(#[$field_meta])* $field: $type),*
                        }
                        let Members { $($field),* } =
                            serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
                        Ok(Self::$name { $($field),* })
                    })*
                    _ => Ok(Self::Other(RawJson::new(raw))),
                }
            }
        }
    };
}

events! {
    /// Where the conversation stands; the first event of a subscription that does not go on behind a cursor.
    Snapshot = "snapshot" {
        /// The conversation.
        conversation: Conversation,
        /// Whether events were missed since the cursor that was asked for.
        gap: bool,
        /// The turn that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        running: Option<RunningTurn>,
        /// What the agent last said of its session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionInfo>,
    },
    /// A prompt was taken; from here on the turn ends with `turnEnded`, always.
    PromptAccepted = "promptAccepted" {
        /// The turn.
        turn_id: TurnId,
        /// What was asked.
        prompt: PromptContent,
    },
    /// Something that the agent said: ACP's `update`, byte for byte.
    Update = "update" {
        /// The turn that it belongs to; absent for what was said outside a turn or after its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// ACP's update.
        update: RawJson,
    },
    /// A turn ended.
    TurnEnded = "turnEnded" {
        /// How.
        turn: TurnResult,
    },
    /// The conversation does something else now.
    StateChanged = "stateChanged" {
        /// What.
        state: ConversationState,
    },
    /// Something else of the conversation changed that is shown: title, folder, settings, the line of waiting prompts.
    Updated = "updated" {
        /// The conversation as it stands now.
        conversation: Conversation,
    },
    /// The agent asks a person.
    InterruptRaised = "interruptRaised" {
        /// The question.
        interrupt: Interrupt,
    },
    /// A question was answered, or is void because its turn ended or the conversation was reset.
    InterruptResolved = "interruptResolved" {
        /// The question.
        interrupt_id: InterruptId,
        /// Who settled it: `client`, `cancel`, `agent`, `reset` or `policy`.
        by: String,
        /// ACP's outcome.
        outcome: RawJson,
    },
    /// The session was brought back.
    Resumed = "resumed" {
        /// How.
        resumed: Resumed,
    },
    /// The upstream id changed under the conversation.
    Rolled = "rolled" {
        /// The id before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<UpstreamId>,
        /// The id now.
        to: UpstreamId,
        /// Why.
        cause: RollCause,
        /// How much of the history came along.
        fidelity: Fidelity,
    },
    /// A branch was made.
    Forked = "forked" {
        /// The branch.
        link: Link,
        /// The conversation that it is the head of.
        conversation_id: ConversationId,
    },
    /// An earlier prompt was replaced: the branch is the head, and what stood behind its place is in the history no longer.
    /// Told behind the `promptAccepted` of the new prompt.
    Edited = "edited" {
        /// The branch.
        link: Link,
        /// How many turns that were, the replaced one included.
        dropped: u64,
        /// How much of what stood before the turn came along.
        fidelity: Fidelity,
    },
    /// An edit, a branch in place or a move was taken back.
    Undone = "undone" {
        /// The session that is the head again.
        link: Link,
        /// How many turns of the branch that is left are in the history no longer.
        dropped: u64,
    },
    /// The conversation runs in another folder now.
    Moved = "moved" {
        /// The folder before.
        from: String,
        /// The folder now.
        to: String,
    },
    /// The last prompt met a usage limit.
    Limited = "limited" {
        /// Which, and until when.
        limit: Limit,
    },
    /// The conversation went on by itself after a limit or at a time: this is the turn. Told before its `promptAccepted`.
    Continued = "continued" {
        /// The turn.
        turn_id: TurnId,
    },
    /// A turn stands in the transcript as a whole, whoever had it: from here on it can be resumed, forked and edited. Told
    /// once, after the `turnEnded` of a turn that was had here; of such a one also when its session is the head no longer by
    /// then, unless the chain was cleared.
    CheckpointSaved = "checkpointSaved" {
        /// The place after it.
        checkpoint: Checkpoint,
    },
    /// An agent has loaded a transcript. Not told where the daemon cannot read it; `resumed` tells in any case.
    CheckpointLoaded = "checkpointLoaded" {
        /// The session.
        upstream_id: UpstreamId,
        /// The number of the turn behind which it goes on, as checkpoints count them; 0 before the first.
        step: u64,
        /// How many messages the agent goes on with: those on the branch that goes on, and of one that was compacted what that
        /// left for the model (a summary, and what it kept of the messages before) and what follows, though
        /// `conversation/history` tells what stands before it too.
        messages: u64,
    },
    /// Another program writes to the transcript of the open session: prompts stand in it that were not sent from here, or
    /// it shrank or was replaced. Prompts are counted in Claude's format alone: Codex lets no second program write to a
    /// session that is open. The two do not see what the other says, and a later resume sees one of them.
    ForeignWriter = "foreignWriter" {
        /// The session.
        upstream_id: UpstreamId,
    },
    /// The session was closed; the next prompt brings it back.
    Closed = "closed" {},
    /// The user cleared the chain.
    Reset = "reset" {},
    /// The conversation was deleted.
    Deleted = "deleted" {},
    /// This subscriber was too slow and gets nothing more; subscribing with `after` this cursor goes on.
    Lagged = "lagged" {
        /// The last place that was delivered.
        cursor: Cursor,
    },
}
