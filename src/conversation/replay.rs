//! What an agent replays while it loads a session: the session's history.
//!
//! It is passed on only to a client that asked for it. Every client can read the history itself, unless the transcripts of the
//! agent cannot be read.

use std::collections::VecDeque;

use bridge_protocol::ConversationId;
use bridge_protocol::turn::CONTINUE_PROMPT;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::agent::envelope::Line;
use crate::agent::inbox::Incoming;
use crate::agent::message::method;

use super::events::EncodedEvent;

/// How many bytes of a replay are kept until its client takes it: as many as are held back for an editor.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Where a replay goes. It is dropped if the agent replays nothing for it.
pub type ReplaySender = oneshot::Sender<Replay>;

/// The updates of a replay, in order.
#[derive(Debug)]
pub struct Replay {
    conversation: ConversationId,
    /// The agent's own id of the session.
    handle: String,
    updates: VecDeque<EncodedEvent>,
    bytes: usize,
    is_wanted: bool,
    is_whole: bool,
}

impl Replay {
    /// An empty replay of a session. One that no client waits for stays empty.
    pub(super) fn new(conversation: ConversationId, handle: &str, is_wanted: bool) -> Self {
        Self {
            conversation,
            handle: handle.to_owned(),
            updates: VecDeque::new(),
            bytes: 0,
            is_wanted,
            is_whole: true,
        }
    }

    /// Adds a line of the agent, or returns it if it is not part of a replay. The oldest updates beyond the limit are dropped.
    pub(super) fn add(&mut self, incoming: Incoming) -> Option<Incoming> {
        match incoming {
            Incoming::Notification { method: name, line }
                if name.as_str() == method::SESSION_UPDATE && is_history(&line) =>
            {
                if !self.is_wanted {
                    return None;
                }
                let update = EncodedEvent::replayed(self.conversation, &self.handle, &line);
                if let Some(update) = update.filter(|_| !is_continuation(&line)) {
                    self.bytes += update.len_bytes();
                    self.updates.push_back(update);
                }
                while self.bytes > MAX_BYTES
                    && let Some(oldest) = self.updates.pop_front()
                {
                    self.bytes -= oldest.len_bytes();
                    self.is_whole = false;
                }
                None
            }
            Incoming::Overflow { .. } => {
                self.is_whole = false;
                None
            }
            other => Some(other),
        }
    }

    /// Whether nothing of it was dropped.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Removes the first update.
    pub fn next_update(&mut self) -> Option<EncodedEvent> {
        self.updates.pop_front()
    }
}

/// Whether an update is part of the history, not a report of the session's present state.
fn is_history(line: &Line) -> bool {
    !line.update_kind().is_some_and(|kind| {
        matches!(
            kind.as_ref(),
            "available_commands_update"
                | "current_mode_update"
                | "config_option_update"
                | "usage_update"
                | "plan"
                | "session_info_update"
        )
    })
}

/// Whether an update shows the prompt with which the daemon continues a turn. The user did not write it.
fn is_continuation(line: &Line) -> bool {
    let update = line.update().filter(|update| update.contains(CONTINUE_PROMPT));
    let update: Option<Value> = update.and_then(|update| serde_json::from_str(update).ok());
    update.is_some_and(|update| {
        update["sessionUpdate"] == "user_message_chunk" && update["content"]["text"] == CONTINUE_PROMPT
    })
}
