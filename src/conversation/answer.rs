//! Answers to calls about a conversation, and the idempotency key that a call may carry. Pure.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::conversation::{
    CancelAnswer, ContinueAnswer, Conversation, ConversationAnswer, DeleteAnswer, EditAnswer, Empty,
    ForkAnswer, MoveAnswer, RespondAnswer, UndoAnswer,
};
use bridge_protocol::link::Resumed;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::TurnResult;
use bridge_protocol::{ConversationId, TurnId};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::ConversationError;
pub use crate::store::CallKey;
use crate::store::{RECORD_VERSION, RequestRecord};

/// The prefix of a fingerprint. Fingerprints of earlier versions have other prefixes and cannot be compared.
pub const FINGERPRINT_VERSION: &str = "2:";

impl CallKey {
    /// Whether the call that was recorded with this fingerprint has the same content. A call recorded by an earlier version
    /// counts as the same, because carrying out a call twice would be worse.
    #[must_use]
    pub fn has_same_content(&self, remembered: &str) -> bool {
        self.fingerprint == remembered || !remembered.starts_with(FINGERPRINT_VERSION)
    }

    /// The record of this call, without a result.
    #[must_use]
    pub fn to_record(&self, of: Option<ConversationId>, at: Timestamp) -> RequestRecord {
        RequestRecord {
            version: RECORD_VERSION,
            conversation_id: of,
            request_id: self.id.clone(),
            fingerprint: self.fingerprint.clone(),
            turn_id: None,
            result: None,
            short_result: None,
            error: None,
            at,
        }
    }

    /// The record of this call, which was about no conversation, with its result. Commit it together with the changes of the
    /// call: after a kill in between, the call would be carried out again.
    #[must_use]
    pub fn to_answered_record(&self, answer: &Answer, at: Timestamp) -> RequestRecord {
        RequestRecord {
            result: answer.to_json().ok(),
            ..self.to_record(None, at)
        }
    }

    /// The error for a call whose key was used for another call.
    #[must_use]
    pub fn content_conflict(&self) -> ConversationError {
        ConversationError::Conflict(format!(
            "request id \"{}\" was used before for a call with another content; use a new id",
            self.id.as_str()
        ))
    }
}

/// The conversation that a call made. The call's record has it instead of a result while the conversation is not open yet,
/// and after it was deleted.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MadeConversation {
    conversation_id: ConversationId,
}

impl MadeConversation {
    /// The JSON for the record of a call.
    #[must_use]
    pub fn to_json(conversation_id: ConversationId) -> Option<RawJson> {
        RawJson::from_value(&Self { conversation_id }).ok()
    }

    /// The conversation in the record of a call without a result.
    #[must_use]
    pub fn from_request(request: &RequestRecord) -> Option<ConversationId> {
        let made = request.error.as_ref()?.read::<Self>().ok()?;
        request.result.is_none().then_some(made.conversation_id)
    }
}

/// The caller of a call.
#[derive(Debug)]
pub struct Caller<R> {
    /// Where the answer goes. `None` if no client waits for it.
    pub reply: Option<R>,
    /// The idempotency key.
    pub key: Option<CallKey>,
}

impl<R> Caller<R> {
    /// A caller without an idempotency key.
    #[must_use]
    pub fn without_key(reply: R) -> Self {
        Self {
            reply: Some(reply),
            key: None,
        }
    }

    /// No caller: the daemon itself starts the work.
    #[must_use]
    pub fn none() -> Self {
        None.into()
    }

    /// Whether its call has this key.
    #[must_use]
    pub fn has_key(&self, key: &CallKey) -> bool {
        self.key.as_ref().is_some_and(|own| own.id == key.id)
    }
}

/// A caller without a reply, because no client waits for the answer.
impl<R> From<Option<CallKey>> for Caller<R> {
    fn from(key: Option<CallKey>) -> Self {
        Self { reply: None, key }
    }
}

/// The answer to a call. Each method has one shape. A stored answer from an earlier run has the same JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The conversation.
    Conversation(Box<Conversation>),
    /// How a turn ended.
    Turn(Box<TurnResult>),
    /// Whether there was anything to cancel.
    Cancelled(bool),
    /// How a session was brought back.
    Resumed(Box<Conversation>, Box<Resumed>),
    /// A branch.
    Forked(Box<ForkAnswer>),
    /// How the turn of an edit ended, and its branch.
    Edited(Box<EditAnswer>),
    /// What was undone.
    Undone(Box<UndoAnswer>),
    /// The result of checking a transcript, and the repaired copy.
    Checked(Box<CheckAnswer>),
    /// What was moved.
    Moved(Box<MoveAnswer>),
    /// The turn that an answer started.
    Responded(Option<TurnId>),
    /// The scheduled continuation.
    Continued(ContinueAnswer),
    /// What remains of a deleted conversation.
    Deleted(DeleteAnswer),
    /// An empty answer.
    Done,
    /// Any other answer, as JSON.
    Json(RawJson),
}

impl Answer {
    /// An answer of any shape.
    ///
    /// # Errors
    /// If serde cannot write it, which its types rule out.
    pub fn from_value<T: Serialize>(answer: &T) -> Result<Self, ConversationError> {
        RawJson::from_value(answer).map(Self::Json).map_err(|error| {
            tracing::error!(%error, "an answer cannot be written as JSON");
            ConversationError::Internal
        })
    }

    /// The answer in the shape of its method.
    ///
    /// # Errors
    /// If it has another shape, which the methods rule out.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ConversationError> {
        let typed = self.to_json().and_then(|json| json.read());
        typed.map_err(|error| {
            tracing::error!(%error, "an answer does not have the shape of its method");
            ConversationError::Internal
        })
    }

    /// The answer as JSON for the wire.
    ///
    /// # Errors
    /// If serde cannot write it, which its types rule out.
    pub fn to_json(&self) -> Result<RawJson, serde_json::Error> {
        match self {
            Self::Conversation(conversation) => RawJson::from_value(&ConversationAnswer {
                conversation: (**conversation).clone(),
            }),
            Self::Turn(turn) => RawJson::from_value(turn),
            Self::Cancelled(cancelled) => RawJson::from_value(&CancelAnswer {
                cancelled: *cancelled,
            }),
            Self::Resumed(conversation, resumed) => {
                RawJson::from_value(&bridge_protocol::conversation::ResumeAnswer {
                    conversation: (**conversation).clone(),
                    resumed: (**resumed).clone(),
                })
            }
            Self::Forked(answer) => RawJson::from_value(answer),
            Self::Edited(answer) => RawJson::from_value(answer),
            Self::Undone(answer) => RawJson::from_value(answer),
            Self::Checked(answer) => RawJson::from_value(answer),
            Self::Moved(answer) => RawJson::from_value(answer),
            Self::Responded(turn_id) => RawJson::from_value(&RespondAnswer {
                turn_id: turn_id.clone(),
            }),
            Self::Continued(answer) => RawJson::from_value(answer),
            Self::Deleted(answer) => RawJson::from_value(answer),
            Self::Done => RawJson::from_value(&Empty {}),
            Self::Json(json) => Ok(json.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RequestId;

    #[test]
    fn a_call_that_an_earlier_version_remembered_counts_as_the_same() {
        let request = CallKey {
            id: RequestId::new("r1"),
            fingerprint: format!("{FINGERPRINT_VERSION}aa"),
        };
        for (remembered, is_same) in [("2:aa", true), ("2:ab", false), ("00112233", true)] {
            assert_eq!(request.has_same_content(remembered), is_same, "{remembered}");
        }
    }
}
