//! The events of a subscription.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::conversation::{Conversation, ConversationState, Limit, RunningTurn, SessionInfo, UnacceptedTurn};
use crate::declare::objects;
use crate::history::Checkpoint;
use crate::id::{ConversationId, Cursor, InterruptId, TurnId, UpstreamId};
use crate::link::{Fidelity, Link, Resumed, RollCause};
use crate::raw::{PromptContent, RawJson};
use crate::turn::{Interrupt, TurnResult};

objects! {
    /// One event, with its conversation and its position in the stream.
    EventEnvelope {
        /// The conversation.
        conversation_id: ConversationId,
        /// The position: subscribing with `after` set to it continues after this event.
        cursor: Cursor,
        /// When it happened.
        at: Timestamp as time,
        /// What happened.
        event: Event,
    }
}

/// Declares the events once: the enum, how it is written (`{"type": …}` with the members beside it) and how it is read. Serde's
/// own tagged reading would decode raw members and lose their bytes, so this reads the tag first.
macro_rules! events {
    ($($(#[$meta:meta])* $name:ident = $wire:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $default:ident)?),* $(,)? },)*) => {
        /// What happened. An unknown kind is kept as it came, so that new ones break no client.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[derive(schemars::JsonSchema)]
        #[serde(tag = "type", rename_all_fields = "camelCase")]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$meta])* #[serde(rename = $wire)] $name { $(
                $(#[$field_meta])*
                $(#[serde($default, skip_serializing_if = "crate::declare::is_default")])?
                $field: $type
            ),* },)*
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
                            $($(#[$field_meta])* $(#[serde($default)])? $field: $type),*
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
    /// The conversation as it is now. The first event of a subscription that does not continue after a cursor.
    Snapshot = "snapshot" {
        /// The conversation.
        conversation: Conversation,
        /// Whether events were missed since the cursor that was asked for.
        gap: bool,
        /// The running turn.
        running: Option<RunningTurn> = default,
        /// The turn whose prompt was not accepted yet. `promptAccepted` follows, unless the prompt fails or is cancelled.
        unaccepted: Option<UnacceptedTurn> = default,
        /// What the agent last reported about its session.
        session: Option<Box<SessionInfo>> = default,
    },
    /// A prompt was accepted. Its turn always ends with `turnEnded`.
    PromptAccepted = "promptAccepted" {
        /// The turn.
        turn_id: TurnId,
        /// The prompt.
        prompt: PromptContent,
    },
    /// An update of the agent: ACP's `update`, byte for byte.
    Update = "update" {
        /// The turn that it belongs to; absent outside a turn and after its end.
        turn_id: Option<TurnId> = default,
        /// ACP's update.
        update: RawJson,
    },
    /// A turn ended.
    TurnEnded = "turnEnded" {
        /// How it ended.
        turn: TurnResult,
    },
    /// The conversation's state changed.
    StateChanged = "stateChanged" {
        /// The new state.
        state: ConversationState,
    },
    /// Something else that clients show changed: title, folder, settings, queued prompts.
    Updated = "updated" {
        /// The conversation as it is now.
        conversation: Conversation,
    },
    /// The agent asks a question.
    InterruptRaised = "interruptRaised" {
        /// The question.
        interrupt: Interrupt,
    },
    /// A question was answered, or withdrawn because its turn ended or the conversation was reset. Comes before any update
    /// that the answer causes.
    InterruptResolved = "interruptResolved" {
        /// The question.
        interrupt_id: InterruptId,
        /// Who answered: a client's name, or `agent`, `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`.
        by: String,
        /// ACP's outcome.
        outcome: RawJson,
    },
    /// The session was reopened.
    Resumed = "resumed" {
        /// How.
        resumed: Resumed,
    },
    /// The conversation continues under another upstream id.
    Rolled = "rolled" {
        /// The previous id.
        from: Option<UpstreamId> = default,
        /// The new id.
        to: UpstreamId,
        /// Why.
        cause: RollCause,
        /// How much of the history the new session has.
        fidelity: Fidelity,
    },
    /// A branch was made.
    Forked = "forked" {
        /// The branch.
        link: Link,
        /// The conversation whose head it is.
        conversation_id: ConversationId,
    },
    /// An earlier prompt was replaced: the branch is the head, and the history no longer has the turns after that place.
    /// Comes before the `promptAccepted` of the new prompt.
    Edited = "edited" {
        /// The branch.
        link: Link,
        /// How many turns the history lost, the replaced one included.
        dropped: u64,
        /// How much of the history before the turn the branch has.
        fidelity: Fidelity,
    },
    /// An edit, a fork in place, a move or a reset was undone.
    Undone = "undone" {
        /// The session that is the head again.
        link: Link,
        /// How many turns of the abandoned branch the history lost.
        dropped: u64,
    },
    /// The conversation moved to another folder.
    Moved = "moved" {
        /// The previous folder.
        from: String,
        /// The new folder.
        to: String,
    },
    /// The last prompt hit a usage limit.
    Limited = "limited" {
        /// The limit, and when it ends.
        limit: Limit,
    },
    /// A scheduled continuation started this turn. Comes before its `promptAccepted`.
    Continued = "continued" {
        /// The turn.
        turn_id: TurnId,
    },
    /// A complete turn is in the transcript, whichever program had it: from now on it can be resumed, forked and edited. Sent
    /// once, after the `turnEnded` of a turn of this daemon. Sent for such a turn even if its session is no longer the head,
    /// unless the chain was cleared: it can follow a later event such as `undone`. Ignore it if its turn was undone.
    CheckpointSaved = "checkpointSaved" {
        /// The checkpoint after the turn.
        checkpoint: Checkpoint,
    },
    /// An agent loaded a transcript. Not sent where the daemon cannot read the transcript; `resumed` is always sent.
    CheckpointLoaded = "checkpointLoaded" {
        /// The session.
        upstream_id: UpstreamId,
        /// The number of the last turn it has, as checkpoints count; 0 before the first.
        step: u64,
        /// How many messages the agent has: those of the current branch, and of a compacted session the summary, the messages
        /// that the compaction kept, and those after it. `conversation/history` also has the messages before the compaction.
        messages: u64,
    },
    /// Another program writes to the transcript of the open session: it contains prompts that were not sent from here, or it
    /// became shorter, or was replaced. Prompts are checked in Claude's format only: Codex does not let a second program write
    /// to an open session. The two programs do not see each other's turns, and a later resume sees only one of them.
    ForeignWriter = "foreignWriter" {
        /// The session.
        upstream_id: UpstreamId,
    },
    /// The session was closed. The next prompt reopens it.
    Closed = "closed" {},
    /// The user reset the conversation: its chain is empty.
    Reset = "reset" {},
    /// The conversation was deleted.
    Deleted = "deleted" {},
    /// This subscriber was too slow, and receives nothing more. Subscribe again with `after` set to this cursor.
    Lagged = "lagged" {
        /// The cursor of the last event that was delivered.
        cursor: Cursor,
    },
}
