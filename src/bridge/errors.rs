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
    let with_kind = |kind: ErrorKind| BridgeError::new(kind, error.to_string());
    match error {
        ConversationError::NotFound { .. } => with_kind(ErrorKind::NotFound),
        ConversationError::UnknownAgent {
            name, config_problem, ..
        } => {
            let error = with_kind(ErrorKind::NotFound).with("agent", name.as_str());
            match config_problem {
                Some(_) => error.with("configurationChanged", true),
                None => error,
            }
        }
        ConversationError::CheckpointNotFound { .. } => with_kind(ErrorKind::CheckpointNotFound),
        ConversationError::Deleted { id, at } => with_kind(ErrorKind::NotFound)
            .with("deletedAt", time::text(*at))
            .with("conversationId", id.to_string()),
        ConversationError::Ambiguous { candidates, .. } => {
            with_kind(ErrorKind::Ambiguous).with("candidates", texts(candidates))
        }
        ConversationError::AmbiguousName { candidates, .. } => {
            with_kind(ErrorKind::Ambiguous).with("candidates", objects(candidates))
        }
        ConversationError::AmbiguousTranscript { candidates, .. } => {
            with_kind(ErrorKind::Ambiguous).with("transcripts", objects(candidates))
        }
        ConversationError::NoConversation { transcripts, .. } if transcripts.is_empty() => {
            with_kind(ErrorKind::NotFound)
        }
        ConversationError::NoConversation { transcripts, .. } => {
            with_kind(ErrorKind::NotFound).with("transcripts", objects(transcripts))
        }
        ConversationError::AmbiguousAgents { agents, .. } => {
            with_kind(ErrorKind::Ambiguous).with("agents", texts(agents))
        }
        ConversationError::TranscriptDamaged(_) => with_kind(ErrorKind::TranscriptDamaged),
        ConversationError::Busy(_) => with_kind(ErrorKind::Busy),
        ConversationError::BusyConversations { conversations, .. } => {
            with_kind(ErrorKind::Busy).with("conversations", texts(conversations))
        }
        ConversationError::InvalidCwd(_) => with_kind(ErrorKind::InvalidCwd),
        ConversationError::InvalidParams { parameter, .. } => {
            with_kind(ErrorKind::InvalidParams).with("parameter", *parameter)
        }
        ConversationError::AgentUnavailable(_) => with_kind(ErrorKind::AgentUnavailable),
        ConversationError::AgentError { upstream, .. } => {
            let upstream = upstream.clone().unwrap_or_default();
            with_kind(ErrorKind::AgentError).with_raw("upstream", upstream)
        }
        ConversationError::SettingRefused {
            setting,
            upstream,
            offered,
            ..
        } => {
            let upstream = upstream.clone().unwrap_or_default();
            let refused = with_kind(ErrorKind::AgentError)
                .with_raw("upstream", upstream)
                .with("setting", setting.as_str());
            match RawJson::from_value(offered) {
                Ok(offered) => refused.with_raw("session", offered),
                Err(_) => refused,
            }
        }
        ConversationError::Transient { upstream, limit, .. } => {
            let kind = limit
                .as_ref()
                .map_or(ErrorKind::AgentError, |_| ErrorKind::Limited);
            let upstream = upstream.clone().unwrap_or_default();
            let transient = with_kind(kind).retryable(true).with_raw("upstream", upstream);
            match limit.as_ref().and_then(|limit| limit.resets_at) {
                Some(resets_at) => transient.with("resetsAt", time::text(resets_at)),
                None => transient,
            }
        }
        ConversationError::AuthRequired { upstream, .. } => {
            let required = with_kind(ErrorKind::AuthRequired);
            match upstream {
                Some(upstream) => required.with_raw("upstream", upstream.clone()),
                None => required,
            }
        }
        ConversationError::Unsupported(_) => with_kind(ErrorKind::Unsupported),
        ConversationError::NotResumable { attempts, .. } => {
            let attempts = serde_json::to_value(attempts).unwrap_or(Value::Null);
            with_kind(ErrorKind::NotResumable).with("attempts", attempts)
        }
        ConversationError::Conflict(_) => with_kind(ErrorKind::Conflict),
        ConversationError::NotReplaced { path } => {
            with_kind(ErrorKind::Conflict).with("path", path.to_string_lossy().into_owned())
        }
        ConversationError::PartOfTree { undo_id } => {
            with_kind(ErrorKind::Conflict).with("undoId", Value::from(undo_id.as_str()))
        }
        ConversationError::InterruptResolved { by } => {
            with_kind(ErrorKind::InterruptResolved).with("by", by.clone())
        }
        ConversationError::RevisionMismatch { is, .. } => {
            with_kind(ErrorKind::RevisionMismatch).with("revision", *is)
        }
        ConversationError::StoreFailed(failure) => {
            with_kind(ErrorKind::StoreFailed).retryable(failure.is_transient)
        }
        ConversationError::WithId { member, id, error } => bridge_error(error).with(member, id.as_str()),
        ConversationError::ShuttingDown => with_kind(ErrorKind::ShuttingDown),
        ConversationError::Internal => with_kind(ErrorKind::InternalError).retryable(true),
    }
}

fn objects(candidates: &[Candidate]) -> Vec<Value> {
    let object = |candidate: &Candidate| json!({"id": candidate.id, "title": candidate.title});
    candidates.iter().map(object).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
