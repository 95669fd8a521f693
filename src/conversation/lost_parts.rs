//! Conversations whose records lack parts, because files of the store cannot be read: what is reported, and what to do.
//!
//! A conversation continues without a part that is missing or damaged, unless that is its chain. Pure.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Conversation;

use super::error::{ConversationError, StoreFailure};
use super::state::view_of_record;
use crate::store::{ConversationRecord, Loss, LostPart, Resting, Salvaged, StoreError};

/// Whether the conversation can continue without these parts. One that may be whole is not given up.
pub(super) fn can_continue(found: &Salvaged) -> bool {
    let is_gone = |part: &LostPart| !matches!(part.loss, Loss::Unreadable(_));
    found.essential().is_none() && found.lost.iter().all(is_gone)
}

/// What is lost, as a sentence.
#[must_use]
pub fn described(id: ConversationId, lost: &[LostPart]) -> String {
    let parts: Vec<String> = lost.iter().map(ToString::to_string).collect();
    format!("conversation {id} lacks {}", parts.join("; "))
}

/// What to do about it.
#[must_use]
pub fn advice(id: ConversationId, lost: &[LostPart]) -> String {
    let is_unreadable = |part: &LostPart| matches!(part.loss, Loss::Unreadable(_));
    if lost.iter().any(is_unreadable) {
        return "check the disk and the permissions of the file, then try again".to_owned();
    }
    match lost.iter().any(|part| part.is_of("chain")) {
        true => format!(
            "restore the file from a backup of the data folder, or delete the conversation: sessionctl rm {id}"
        ),
        false => format!(
            "restore the file from a backup of the data folder, or continue without it: sessionctl send {id} 'Continue'"
        ),
    }
}

/// The refusal of a call that needs all of the record.
pub(super) fn refusal(id: ConversationId, lost: &[LostPart]) -> ConversationError {
    ConversationError::StoreFailed(StoreFailure {
        text: format!("{}; {}", described(id, lost), advice(id, lost)),
        is_passing: is_passing(lost),
    })
}

/// Whether the same read may succeed later.
pub(super) fn is_passing(lost: &[LostPart]) -> bool {
    let is_passing = |part: &LostPart| StoreError::LostBody(part.clone()).is_passing();
    lost.iter().any(is_passing)
}

/// The record with which the conversation continues: it says what is lost until the next turn ends. Its scheduled
/// continuation is not sent: without the system prompt, for one, the agent would do something else.
pub(super) fn record_without(found: Salvaged) -> ConversationRecord {
    let Salvaged { mut record, lost } = found;
    if !lost.is_empty() {
        let continuation = match record.continuation.take() {
            Some(_) => "; it does not continue automatically without that",
            None => "",
        };
        record.failure = Some(format!(
            "{}{continuation}; {}",
            described(record.id, &lost),
            advice(record.id, &lost)
        ));
        record.resting = Resting::Failed;
    }
    record
}

/// The conversation as far as it is known, for lists.
pub(super) fn view_without(found: Salvaged) -> Conversation {
    view_of_record(&record_without(found))
}
