//! Forks of sessions that the agent has never opened, so that it does not know the turns in their transcripts.

use serde_json::Value;

use super::BranchJob;
use crate::conversation::climbing::acquire_process;
use crate::conversation::error::ConversationError;
use crate::conversation::services::chain_text;
use crate::conversation::upstream::{self, OpenMode};

/// Whether the agent did not find the message to fork after. Codex (0.166) finds none in a session that it has not opened
/// yet, such as a repaired copy or an imported session.
pub(super) fn is_unknown_point(refused: &ConversationError) -> bool {
    let ConversationError::AgentError {
        upstream: Some(upstream),
        ..
    } = refused
    else {
        return false;
    };
    let error: Option<Value> = upstream.read().ok();
    error.is_some_and(|error| error["data"]["messageId"].is_string())
}

impl BranchJob {
    /// Opens the source session and closes it again, so that the agent reads it. Returns whether that worked; false if the
    /// session is open already, because the agent has then read it.
    pub(super) async fn open_once(&self) -> bool {
        let (services, entry, closed) = (&self.services, &self.entry, &self.closed_sessions);
        let Ok(lease) = acquire_process(services, entry).await else {
            return false;
        };
        if lease.connection().is_attached(self.source.as_str()) {
            return false;
        }
        let (opening, record) = (OpenMode::Resume(self.source.clone()), &self.record);
        let cwd = &record.cwd;
        match upstream::open_session(services, entry, lease, &opening, cwd, record, closed).await {
            Ok((session, _)) => closed.close(session).has_ended().await,
            Err(error) => {
                let error = chain_text(&error);
                tracing::warn!(upstream_id = %self.source, error, "could not open a session to fork it");
                false
            }
        }
    }
}
