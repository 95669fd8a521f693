//! Turns: how they end, why they fail, and the questions that interrupt them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conversation::Continuation;
use crate::declare::{objects, words};
use crate::id::{InterruptId, TurnId, UpstreamId};
use crate::link::Resumed;
use crate::raw::RawJson;

/// The prompt that the daemon sends to continue a turn if the agent already has the user's prompt.
pub const CONTINUE_PROMPT: &str = "Your last turn was cut short. Continue it from where it stopped.";

/// The beginning of the prompt in which the daemon passes on the answer to a question of an agent process that has ended.
pub const ANSWER_PROMPT: &str = "Before the session was interrupted you asked";

/// Why a turn stopped: ACP's stop reasons, and `failed`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The agent finished.
    EndTurn,
    /// The model's output limit was reached.
    MaxTokens,
    /// The agent's limit of model requests in one turn was reached.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// The turn was cancelled.
    Cancelled,
    /// The turn failed: `failure` says why.
    Failed,
    /// A reason that this version does not know, in the agent's own word. The turn ended without a known failure.
    #[serde(untagged)]
    Other(String),
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FailureKind {
    /// A usage limit was hit.
    RateLimited,
    /// The model's service is overloaded.
    Overloaded,
    /// A sign-in is required.
    AuthRequired,
    /// The history no longer fits the model's context.
    ContextOverflow,
    /// The model's service could not be reached.
    Network,
    /// The model's service refused the request.
    InvalidRequest,
    /// The agent's process ended.
    AgentDied,
    /// The daemon ended during the turn.
    DaemonRestarted,
    /// Any other failure, or a value that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

objects! {
    /// The failure of a turn.
    Failure {
        /// The kind of failure.
        kind: FailureKind,
        /// The reason as a sentence; the agent's own, if it gave one.
        message: String,
        /// When the limit ends; absent if unknown, or if there is no limit.
        resets_at: Option<Timestamp> as time = default,
        /// Whether the same prompt may succeed later with nothing changed; false if a continuation is scheduled.
        retryable: bool,
        /// The agent's JSON-RPC error, as the agent sent it; absent if the agent did not answer with one.
        upstream: Option<RawJson> = default,
    }

    /// The result of a turn.
    TurnResult {
        /// The turn.
        turn_id: TurnId,
        /// Why it stopped.
        stop_reason: StopReason,
        /// Why it failed; absent unless `stopReason` is `failed`.
        failure: Option<Failure> = default,
        /// The session that it ran on; absent (in Rust empty) if the turn was cancelled before it had one.
        #[serde(deserialize_with = "UpstreamId::or_none")]
        upstream_id: UpstreamId = default,
        /// How the session was reopened; absent if this prompt did not have to reopen it.
        resumed: Option<Resumed> = default,
        /// The usage that the agent reports, in ACP's shape; absent if it reports none.
        usage: Option<RawJson> = default,
        /// The other members of the agent's answer to the prompt, such as `_meta`; absent if there are none.
        other: Option<RawJson> = default,
        /// The scheduled continuation; absent if none. A turn schedules one if it hit a usage limit and `onLimit` was
        /// `wait`, if it was itself a continuation and can be tried again, or if it was interrupted because another
        /// conversation may have ended the agent's process.
        continuation: Option<Continuation> = default,
    }
}

impl TurnResult {
    /// The result of a turn that stopped for this reason on this session, with nothing else.
    #[must_use]
    pub fn new(turn_id: TurnId, stop_reason: StopReason, upstream_id: UpstreamId) -> Self {
        Self {
            turn_id,
            stop_reason,
            failure: None,
            upstream_id,
            resumed: None,
            usage: None,
            other: None,
            continuation: None,
        }
    }
}

words! {
    /// The kind of a question.
    InterruptKind {
        /// ACP's `session/request_permission`.
        Permission,
        /// ACP's `elicitation/create`.
        Elicitation,
    }
}

objects! {
    /// An interrupt: a question of the agent that waits for an answer. It belongs to the conversation, so that every
    /// client sees it.
    Interrupt {
        /// The interrupt's id.
        id: InterruptId,
        /// The kind of question.
        kind: InterruptKind,
        /// ACP's tool call; absent unless this is a permission.
        tool_call: Option<RawJson> = default,
        /// ACP's options; absent unless this is a permission.
        options: Option<RawJson> = default,
        /// ACP's request parameters, as the agent sent them.
        request: RawJson,
        /// When the agent asked.
        raised_at: Timestamp as time,
        /// Whether the agent process that asked has ended, so that the answer has to be sent to its successor.
        orphaned: bool,
    }
}
