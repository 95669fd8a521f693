//! Conversations whose records lack parts because files of the store cannot be read: what is reported, and the advice.
//!
//! A conversation continues without a part that is missing or damaged, unless that is its chain. Pure.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Conversation;

use super::error::{ConversationError, StoreFailure};
use super::state::view_of_record;
use crate::store::{BodyLoss, ConversationRecord, LostPart, RestingState, SalvagedRecord, StoreError};

/// Whether the conversation can continue without the lost parts: not if its chain is lost, or if a later read may succeed.
pub(super) fn can_continue(salvaged: &SalvagedRecord) -> bool {
    let is_permanent = |part: &LostPart| !matches!(part.loss, BodyLoss::Unreadable(_));
    salvaged.lost_chain().is_none() && salvaged.lost.iter().all(is_permanent)
}

/// Describes the loss in a sentence.
#[must_use]
pub fn describe_loss(id: ConversationId, lost: &[LostPart]) -> String {
    let parts: Vec<String> = lost.iter().map(ToString::to_string).collect();
    format!("conversation {id} lacks {}", parts.join("; "))
}

/// The hint for the user.
#[must_use]
pub fn loss_advice(id: ConversationId, lost: &[LostPart]) -> String {
    let is_unreadable = |part: &LostPart| matches!(part.loss, BodyLoss::Unreadable(_));
    if lost.iter().any(is_unreadable) {
        return "check the disk and the permissions of the file, then try again".to_owned();
    }
    match lost.iter().any(|part| part.is_within("chain")) {
        true => format!(
            "restore the file from a backup of the data folder, or delete the conversation: sessionctl rm {id}"
        ),
        false => format!(
            "restore the file from a backup of the data folder, or continue without it: sessionctl send {id} 'Continue'"
        ),
    }
}

/// The error of a call that needs the complete record.
pub(super) fn loss_error(id: ConversationId, lost: &[LostPart]) -> ConversationError {
    ConversationError::StoreFailed(StoreFailure {
        text: format!("{}; {}", describe_loss(id, lost), loss_advice(id, lost)),
        is_transient: is_transient(lost),
        unreadable: None,
    })
}

/// Whether the same read may succeed later.
pub(super) fn is_transient(lost: &[LostPart]) -> bool {
    let is_passing = |part: &LostPart| StoreError::LostBody(part.clone()).is_transient();
    lost.iter().any(is_passing)
}

/// The record with which the conversation continues. It reports the loss until the next turn ends. Its scheduled
/// continuation is not sent, because without the system prompt, for example, the agent would do something else.
pub(super) fn record_without_lost(salvaged: SalvagedRecord) -> ConversationRecord {
    let SalvagedRecord { mut record, lost } = salvaged;
    if !lost.is_empty() {
        let continuation = match record.continuation.take() {
            Some(_) => "; it does not continue automatically without that",
            None => "",
        };
        record.failure = Some(format!(
            "{}{continuation}; {}",
            describe_loss(record.id, &lost),
            loss_advice(record.id, &lost)
        ));
        record.resting = RestingState::Failed;
    }
    record
}

/// The known parts of the conversation, for lists.
pub(super) fn view_without_lost(salvaged: SalvagedRecord) -> Conversation {
    view_of_record(&record_without_lost(salvaged))
}
