//! Prompt turns: how they end, what they fail of, and the questions that hold them up.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conversation::Continuation;
use crate::id::{InterruptId, TurnId, UpstreamId};
use crate::link::Resumed;
use crate::raw::RawJson;

/// Why a turn stopped: ACP's reasons, and `failed`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The agent finished.
    EndTurn,
    /// The model's output limit.
    MaxTokens,
    /// The agent's limit of model requests in one turn.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// Someone cancelled it.
    Cancelled,
    /// It went wrong: `failure` says how.
    Failed,
    /// A reason that this version does not know, in the agent's own word. The turn ended, and nothing is known to have
    /// gone wrong.
    #[serde(untagged)]
    Other(String),
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FailureKind {
    /// A usage limit.
    RateLimited,
    /// The model's service is overloaded.
    Overloaded,
    /// Signing in is needed.
    AuthRequired,
    /// The history no longer fits the model.
    ContextOverflow,
    /// The model's service could not be reached.
    Network,
    /// The model's service refused the request.
    InvalidRequest,
    /// The agent's process ended.
    AgentDied,
    /// The daemon ended while the turn ran.
    DaemonRestarted,
    /// None of the above, or a word that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// How a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// In words, the agent's where it gave some.
    pub message: String,
    /// When a limit ends.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub resets_at: Option<Timestamp>,
    /// Whether the same prompt may work later without anything being changed.
    pub retryable: bool,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnResult {
    /// The turn.
    pub turn_id: TurnId,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// What went wrong, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The session on which it ran; empty, and not on the wire, for a turn that was cancelled before there was one.
    #[serde(
        default,
        deserialize_with = "UpstreamId::or_none",
        skip_serializing_if = "UpstreamId::is_empty"
    )]
    pub upstream_id: UpstreamId,
    /// How the session was brought back, when this prompt had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumed>,
    /// What the agent reports as used, unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
    /// When it goes on by itself: it met a usage limit, and `onLimit` was `wait`, or it was itself such a continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
}

/// What kind of question an interrupt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum InterruptKind {
    /// ACP's `session/request_permission`.
    Permission,
    /// ACP's `elicitation/create`.
    Elicitation,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// A question of the agent that waits for a person. It is part of the conversation: whoever attaches sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// Its id.
    pub id: InterruptId,
    /// What kind.
    pub kind: InterruptKind,
    /// ACP's tool call, for a permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<RawJson>,
    /// ACP's options, for a permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<RawJson>,
    /// ACP's request parameters as the agent sent them.
    pub request: RawJson,
    /// When it was asked.
    #[serde(serialize_with = "crate::time::write")]
    pub raised_at: Timestamp,
    /// Whether the agent that asked is gone, so that an answer has to be told to its successor.
    pub orphaned: bool,
}
