//! Effects as text, for the log.

use bridge_protocol::event::Event;
use bridge_protocol::id::{TurnId, UpstreamId};
use bridge_protocol::link::LineageEntry;
use serde_json::Value;

use crate::conversation::answer::Answer;
use crate::conversation::effect::{Milestone, WritePart};
use crate::conversation::error::ConversationError;

/// A value as the wire writes it.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value).unwrap() {
        Value::String(word) => word,
        other => other.to_string(),
    }
}

pub(super) fn entry(entry: &LineageEntry) -> String {
    format!("{}:{}", word(&entry.reason), entry.upstream_id)
}

pub(super) fn write_line(parts: &[WritePart<u32>]) -> String {
    let parts: Vec<String> = parts.iter().map(part_words).collect();
    format!("write {}", parts.join(" and "))
}

fn part_words(part: &WritePart<u32>) -> String {
    let name = match &part.milestone {
        Milestone::Saved => "record",
        Milestone::SessionOpened(_) => "session",
        Milestone::PromptRecorded(_) => "prompt",
        Milestone::DeletionBegun => "deletion",
        Milestone::TurnEnded(_) => "turn end",
        Milestone::PromptQueued(_) => "place",
        Milestone::PromptsDropped { .. } => "dropped",
        Milestone::QuestionRaised(_) => "question",
        Milestone::QuestionSettled(..) => "settled",
        Milestone::Changed(_) => "call",
    };
    let mut line = name.to_owned();
    for added in &part.ledger.lineage {
        line.push_str(&format!(" +{}", entry(added)));
    }
    line
}

pub(super) fn event_line(event: &Event) -> String {
    match event {
        Event::PromptAccepted { turn_id, prompt } => {
            format!("event promptAccepted {turn_id} {}", prompt.to_text())
        }
        Event::TurnEnded { turn } => {
            let failure = turn
                .failure
                .as_ref()
                .map_or(String::new(), |failure| format!(" {}", word(&failure.kind)));
            format!(
                "event turnEnded {} {}{failure}",
                turn.turn_id,
                word(&turn.stop_reason)
            )
        }
        Event::StateChanged { state } => format!("event state {}", word(state)),
        Event::InterruptRaised { interrupt } => format!("event raised {}", interrupt.id),
        Event::InterruptResolved { interrupt_id, by, .. } => format!("event resolved {interrupt_id} by {by}"),
        Event::Resumed { resumed } => {
            format!(
                "event resumed {} {} {}",
                resumed.upstream_id,
                word(&resumed.via),
                word(&resumed.fidelity)
            )
        }
        Event::Rolled {
            from,
            to,
            cause,
            fidelity,
        } => {
            let from = from.as_ref().map_or("nothing", UpstreamId::as_str);
            format!("event rolled {from} to {to} {} {}", word(cause), word(fidelity))
        }
        Event::Moved { from, to } => format!("event moved {from} to {to}"),
        Event::Forked { link, .. } => format!("event forked {}", link.upstream_id),
        Event::Edited { link, dropped, .. } => format!("event edited {} {dropped}", link.upstream_id),
        Event::Undone { link, dropped } => format!("event undone {} {dropped}", link.upstream_id),
        other => format!("event {}", other.kind()),
    }
}

pub(super) fn answer_line(reply: u32, result: &Result<Answer, ConversationError>) -> String {
    let what = match result {
        Ok(Answer::Conversation(conversation)) => {
            format!("conversation {}", word(&conversation.state))
        }
        Ok(Answer::Turn(turn)) => format!("turn {} {}", turn.turn_id, word(&turn.stop_reason)),
        Ok(Answer::Cancelled(cancelled)) => format!("cancelled {cancelled}"),
        Ok(Answer::Resumed(_, resumed)) => format!("resumed {} {}", resumed.upstream_id, word(&resumed.via)),
        Ok(Answer::Forked(forked)) => {
            format!(
                "forked {}",
                forked
                    .link
                    .as_ref()
                    .map_or("nothing", |link| link.upstream_id.as_str())
            )
        }
        Ok(Answer::Edited(edited)) => {
            let link = edited.link.as_ref();
            let id = link.map_or("nothing", |link| link.upstream_id.as_str());
            format!(
                "edited {id} {} {}",
                edited.turn.turn_id,
                word(&edited.turn.stop_reason)
            )
        }
        Ok(Answer::Undone(undone)) => {
            format!("undone {} {}", undone.link.upstream_id, undone.dropped)
        }
        Ok(Answer::Moved(moved)) => format!("moved {}", moved.moved),
        Ok(Answer::Checked(checked)) => {
            let repaired = checked.repaired.as_ref();
            format!("checked {}", repaired.map_or("nothing", UpstreamId::as_str))
        }
        // As a call that is answered with nothing, where nothing is left.
        Ok(Answer::Deleted(deleted)) if deleted.remaining.is_empty() => "done".to_owned(),
        Ok(Answer::Deleted(deleted)) => format!("left {}", deleted.remaining.len()),
        Ok(Answer::Responded(turn)) => {
            format!("responded {}", turn.as_ref().map_or("nothing", TurnId::as_str))
        }
        Ok(Answer::Continued(answer)) => match &answer.continuation {
            Some(continuation) => format!("continues at {}", continuation.at),
            None => "continues no more".to_owned(),
        },
        Ok(Answer::Done) => "done".to_owned(),
        Ok(Answer::Json(_)) => "kept".to_owned(),
        Err(error) => format!("error {}", error_name(error)),
    };
    format!("answer {reply} {what}")
}

pub(super) fn error_name(error: &ConversationError) -> &'static str {
    match error {
        ConversationError::NotFound { .. } => "notFound",
        ConversationError::Deleted { .. } => "deleted",
        ConversationError::Busy(_) => "busy",
        ConversationError::InvalidParams { .. } => "invalidParams",
        ConversationError::AuthRequired { .. } => "authRequired",
        ConversationError::AgentUnavailable(_) => "agentUnavailable",
        ConversationError::AgentError { .. } => "agentError",
        ConversationError::NotResumable { .. } => "notResumable",
        ConversationError::Conflict(_) => "conflict",
        ConversationError::InterruptResolved { .. } => "interruptResolved",
        ConversationError::RevisionMismatch { .. } => "revisionMismatch",
        ConversationError::StoreFailed(_) => "storeFailed",
        ConversationError::ShuttingDown => "shuttingDown",
        _ => "other",
    }
}
