//! The way to the editor, and its answers to the agent's questions.
//!
//! Owns the ids of the requests that are sent to the editor, and who waits for their answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use bridge_protocol::{ConversationId, InterruptId};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::editor_capabilities::EditorCapabilities;
use super::forwarding::ForwardedRequest;
use super::session::Session;
use crate::agent::message::MethodName;
use crate::server::Outbox;

/// The editor.
pub(super) struct Peer {
    /// Its lines, in order.
    pub(super) outbox: Outbox,
    /// Whether editors are offered commands of ours.
    offers_commands: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    capabilities: Arc<EditorCapabilities>,
    /// The id of the last request that was sent.
    last_id: u64,
    /// The requests that the editor has not answered.
    pending: HashMap<u64, PendingRequest>,
    /// Whether the editor sends nothing more, and so answers nothing.
    is_disconnected: bool,
    /// How many messages are held back, and their bytes.
    held: (usize, usize),
}

/// A request to the editor that is not answered: who waits for its answer.
pub(super) enum PendingRequest {
    /// The conversation, for the answer to a question of the agent.
    Question(ForwardedQuestion),
    /// The agent.
    Forwarded(ForwardedRequest),
    /// A command of ours.
    Form(FormReply),
}

/// Takes the result of a form of ours; none if the editor answered with an error.
pub(super) type FormReply = oneshot::Sender<Option<String>>;

/// A question of the agent that was forwarded to the editor.
pub(super) struct ForwardedQuestion {
    /// The session that it is about.
    pub(super) session: Weak<Session>,
    /// Its conversation.
    pub(super) conversation: ConversationId,
    /// The question.
    pub(super) id: InterruptId,
    kind: InterruptKind,
}

impl Peer {
    pub(super) fn new(outbox: Outbox, commands: bool) -> Arc<Self> {
        Arc::new(Self {
            outbox,
            offers_commands: commands,
            state: Mutex::default(),
        })
    }

    /// What the editor can do.
    pub(super) fn capabilities(&self) -> Arc<EditorCapabilities> {
        Arc::clone(&self.lock().capabilities)
    }

    /// Whether commands of ours are announced to the editor. A client that knows the daemon's extras has its own means.
    pub(super) fn wants_commands(&self) -> bool {
        self.offers_commands && !self.capabilities().supports_sessiond_extensions()
    }

    /// Notes what the editor can do.
    pub(super) fn set_capabilities(&self, client: EditorCapabilities) {
        self.lock().capabilities = Arc::new(client);
    }

    /// Whether the editor may answer a request of the agent.
    pub(super) fn supports_method(&self, method: &MethodName) -> bool {
        let state = self.lock();
        !state.is_disconnected && state.capabilities.supports_method(method)
    }

    /// Registers a request, and gives its id; none if the editor has left.
    pub(super) fn register_request(&self, request: PendingRequest) -> Option<u64> {
        let mut state = self.lock();
        if state.is_disconnected {
            return None;
        }
        state.last_id += 1;
        let id = state.last_id;
        state.pending.insert(id, request);
        Some(id)
    }

    /// The request with this id, if it is open. It is settled from now on.
    pub(super) fn take_pending(&self, id: u64) -> Option<PendingRequest> {
        self.lock().pending.remove(&id)
    }

    /// The editor sends nothing more: the agent gets errors for what it wants of it, and no form is answered.
    pub(super) fn mark_disconnected(&self) {
        let left = {
            let mut state = self.lock();
            state.is_disconnected = true;
            std::mem::take(&mut state.pending)
        };
        // Outside the lock: their sessions have this peer.
        drop(left);
    }

    /// Holds a message of this length back; false if too much is held back, of all sessions together, for one client.
    pub(super) fn hold(&self, length: usize) -> bool {
        let (messages, bytes) = self.lock().held;
        let has_room = self.outbox.limits().has_room(messages, bytes, length);
        if has_room {
            self.hold_regardless(length);
        }
        has_room
    }

    /// The same, whatever is held back already.
    pub(super) fn hold_regardless(&self, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages + 1, *bytes + length);
    }

    /// Releases `count` held messages of `length` bytes in total.
    pub(super) fn release_held(&self, count: usize, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages - count, *bytes - length);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForwardedQuestion {
    pub(super) fn new(session: Weak<Session>, conversation: ConversationId, asked: &Interrupt) -> Self {
        Self {
            session,
            conversation,
            id: asked.id.clone(),
            kind: asked.kind,
        }
    }

    /// The outcome that a result means: cancelled if it cannot be read.
    pub(super) fn outcome(&self, result: &str) -> RawJson {
        #[derive(Deserialize)]
        struct Permission {
            outcome: RawJson,
        }
        let given = match self.kind {
            InterruptKind::Permission => {
                let read = serde_json::from_str(result).ok();
                read.map(|Permission { outcome }| outcome)
            }
            _ => RawJson::from_text(result.to_owned()).ok(),
        };
        given.unwrap_or_else(|| self.cancelled())
    }

    /// The outcome if nobody chooses.
    pub(super) fn cancelled(&self) -> RawJson {
        RawJson::from(match self.kind {
            InterruptKind::Permission => json!({"outcome": "cancelled"}),
            _ => json!({"action": "cancel"}),
        })
    }
}
