//! The message at which JetBrains' clients fork a session: a private extension that the agents' adapters also support.

use bridge_protocol::history::{Message, Role};
use bridge_protocol::method::History;
use bridge_protocol::{ConversationId, ErrorKind};
use serde::Deserialize;
use serde_json::Value;

use super::editor::Connection;
use super::message::Failure;
use super::session_requests::HISTORY_PAGE;
use crate::files::digest::sha256;

/// `_meta.jetbrains.air.fork` of `session/fork`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ForkPoint {
    message_id: String,
    /// The hash of the message's text. It identifies a message whose live id differs from its id in the history.
    message_fingerprint: Option<String>,
    /// Which of the messages with this text is meant, counted from 1.
    #[serde(default = "first")]
    message_occurrence: usize,
}

fn first() -> usize {
    1
}

impl ForkPoint {
    /// Reads the fork point from the `_meta` of a fork. `None` if there is no fork point of the supported version.
    pub(super) fn read(meta: &Value) -> Result<Option<Self>, Failure> {
        match meta.pointer("/jetbrains/air/fork") {
            Some(fork) if fork["version"] == 1 => {
                let point = Self::deserialize(fork);
                point
                    .map(Some)
                    .map_err(|error| Failure::of(ErrorKind::InvalidParams, error))
            }
            _ => Ok(None),
        }
    }

    /// Whether the fork point names this message.
    fn matches_message(&self, id: &str) -> bool {
        let wanted = self.message_id.trim();
        // Older clients send the id of the segment that they show, which is a part of the message.
        let whole = wanted.rsplit_once(":segment:").map(|(whole, _)| whole);
        id == wanted || Some(id) == whole
    }

    /// Whether this is a message of the agent whose text has the fingerprint.
    fn has_text_of(&self, message: &Message) -> bool {
        let wanted = self.message_fingerprint.as_deref();
        let texts = message.content.iter().filter(|part| part.kind == "text");
        let text: String = texts.filter_map(|part| part.text.as_deref()).collect();
        message.role == Role::Assistant
            && wanted.and_then(|wanted| wanted.strip_prefix("sha256:")) == Some(&sha256(text.as_bytes()))
    }
}

impl Connection {
    /// The id of the message in the history.
    pub(super) async fn fork_message_id(
        &self,
        id: ConversationId,
        point: &ForkPoint,
    ) -> Result<String, Failure> {
        let (mut matches, mut cursor) = (Vec::new(), None);
        loop {
            let history = History {
                cursor,
                limit: Some(HISTORY_PAGE),
                ..History::of(id)
            };
            let page = self.run_app_call(history).await?;
            for message in page.messages {
                if point.matches_message(&message.id) {
                    return Ok(message.id);
                }
                if point.has_text_of(&message) {
                    matches.push(message.id);
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let found = point
            .message_occurrence
            .checked_sub(1)
            .and_then(|index| matches.into_iter().nth(index));
        found.ok_or_else(|| {
            let why = format!("the session has no message {}", point.message_id);
            Failure::of(ErrorKind::InvalidParams, why)
        })
    }
}
