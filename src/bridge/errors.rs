//! Converts a conversation's errors to the contract's codes and `data`.

use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::raw::RawJson;
use bridge_protocol::time;
use serde_json::{Value, json};

use crate::conversation::error::{Candidate, ConversationError};

impl From<ConversationError> for BridgeError {
    fn from(error: ConversationError) -> Self {
        bridge_error(&error)
    }
}

fn bridge_error(error: &ConversationError) -> BridgeError {
    let made = |kind: ErrorKind| BridgeError::new(kind, error.to_string());
    match error {
        ConversationError::NotFound { .. } => made(ErrorKind::NotFound),
        ConversationError::UnknownAgent { name, .. } => {
            made(ErrorKind::NotFound).with("agent", name.as_str())
        }
        ConversationError::CheckpointNotFound { .. } => made(ErrorKind::CheckpointNotFound),
        ConversationError::Deleted { id, at } => made(ErrorKind::NotFound)
            .with("deletedAt", time::text(*at))
            .with("conversationId", id.to_string()),
        ConversationError::Ambiguous { candidates, .. } => {
            made(ErrorKind::Ambiguous).with("candidates", texts(candidates))
        }
        ConversationError::AmbiguousName { candidates, .. } => {
            made(ErrorKind::Ambiguous).with("candidates", objects(candidates))
        }
        ConversationError::AmbiguousTranscript { candidates, .. } => {
            made(ErrorKind::Ambiguous).with("transcripts", objects(candidates))
        }
        ConversationError::NoConversation { transcripts, .. } if transcripts.is_empty() => {
            made(ErrorKind::NotFound)
        }
        ConversationError::NoConversation { transcripts, .. } => {
            made(ErrorKind::NotFound).with("transcripts", objects(transcripts))
        }
        ConversationError::AmbiguousAgents { agents, .. } => {
            made(ErrorKind::Ambiguous).with("agents", texts(agents))
        }
        ConversationError::TranscriptDamaged(_) => made(ErrorKind::TranscriptDamaged),
        ConversationError::Busy(_) => made(ErrorKind::Busy),
        ConversationError::BusyConversations { conversations, .. } => {
            made(ErrorKind::Busy).with("conversations", texts(conversations))
        }
        ConversationError::InvalidCwd(_) => made(ErrorKind::InvalidCwd),
        ConversationError::InvalidParams { parameter, .. } => {
            made(ErrorKind::InvalidParams).with("parameter", *parameter)
        }
        ConversationError::AgentUnavailable(_) => made(ErrorKind::AgentUnavailable),
        ConversationError::AgentError { upstream, .. } => {
            let upstream = upstream.clone().unwrap_or_default();
            made(ErrorKind::AgentError).with_raw("upstream", upstream)
        }
        ConversationError::SettingRefused {
            setting,
            upstream,
            offered,
            ..
        } => {
            let upstream = upstream.clone().unwrap_or_default();
            let refused = made(ErrorKind::AgentError)
                .with_raw("upstream", upstream)
                .with("setting", setting.as_str());
            match RawJson::from_value(offered) {
                Ok(offered) => refused.with_raw("session", offered),
                Err(_) => refused,
            }
        }
        ConversationError::Passing { upstream, limit, .. } => {
            let kind = limit
                .as_ref()
                .map_or(ErrorKind::AgentError, |_| ErrorKind::Limited);
            let upstream = upstream.clone().unwrap_or_default();
            let told = made(kind).retryable(true).with_raw("upstream", upstream);
            match limit.as_ref().and_then(|limit| limit.resets_at) {
                Some(resets_at) => told.with("resetsAt", time::text(resets_at)),
                None => told,
            }
        }
        ConversationError::AuthRequired(_) => made(ErrorKind::AuthRequired),
        ConversationError::Unsupported(_) => made(ErrorKind::Unsupported),
        ConversationError::NotResumable { attempts, .. } => {
            let attempts = serde_json::to_value(attempts).unwrap_or(Value::Null);
            made(ErrorKind::NotResumable).with("attempts", attempts)
        }
        ConversationError::Conflict(_) => made(ErrorKind::Conflict),
        ConversationError::NotReplaced { path } => {
            made(ErrorKind::Conflict).with("path", path.to_string_lossy().into_owned())
        }
        ConversationError::PartOfTree { undo_id } => {
            made(ErrorKind::Conflict).with("undoId", Value::from(undo_id.as_str()))
        }
        ConversationError::InterruptResolved { by } => {
            made(ErrorKind::InterruptResolved).with("by", by.clone())
        }
        ConversationError::RevisionMismatch { is, .. } => {
            made(ErrorKind::RevisionMismatch).with("revision", *is)
        }
        ConversationError::StoreFailed(failure) => {
            made(ErrorKind::StoreFailed).retryable(failure.is_transient)
        }
        ConversationError::Of { member, id, error } => bridge_error(error).with(member, id.as_str()),
        ConversationError::ShuttingDown => made(ErrorKind::ShuttingDown),
        ConversationError::Lost => made(ErrorKind::InternalError).retryable(true),
    }
}

fn objects(candidates: &[Candidate]) -> Vec<Value> {
    let object = |candidate: &Candidate| json!({"id": candidate.id, "title": candidate.title});
    candidates.iter().map(object).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
