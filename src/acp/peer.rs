//! Requests to the editor, and its answers to the agent's questions.
//!
//! Owns the ids of the requests to the editor, and the recipients of their answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use bridge_protocol::{AgentName, ConversationId, InterruptId};
use serde_json::json;
use tokio::sync::oneshot;

use super::editor_capabilities::EditorCapabilities;
use super::forwarding::ForwardedRequest;
use super::message;
use super::session::Session;
use crate::agent::message::MethodName;
use crate::server::Outbox;

/// The editor at the other end of the connection.
pub(super) struct Peer {
    /// The lines to the editor, in order.
    pub(super) outbox: Outbox,
    /// Whether editors are offered sessiond's commands.
    offers_commands: bool,
    pub(super) agents_with_commands: AgentsWithCommands,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    capabilities: Arc<EditorCapabilities>,
    /// The id of the last request that was sent.
    last_id: u64,
    /// The requests that the editor has not answered.
    pending: HashMap<u64, PendingRequest>,
    /// Whether the editor has stopped sending, so that it answers no more requests.
    is_disconnected: bool,
    /// The number of messages that are held back, and their total bytes.
    held: (usize, usize),
}

/// The agents that are expected to report their commands when they open a session. Shared by all editors.
#[derive(Clone)]
pub(super) struct AgentsWithCommands(Arc<Mutex<HashSet<AgentName>>>);

impl AgentsWithCommands {
    pub(super) fn new(agents: HashSet<AgentName>) -> Self {
        Self(Arc::new(Mutex::new(agents)))
    }

    pub(super) fn contains(&self, agent: &AgentName) -> bool {
        self.lock().contains(agent)
    }

    /// Records whether an agent has reported its commands.
    pub(super) fn note(&self, agent: &AgentName, has_reported: bool) {
        let mut agents = self.lock();
        match has_reported {
            true => agents.insert(agent.clone()),
            false => agents.remove(agent),
        };
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<AgentName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An unanswered request to the editor, by the recipient of the answer.
pub(super) enum PendingRequest {
    /// The conversation, for the answer to a question of the agent.
    Question(ForwardedQuestion),
    /// The agent.
    Forwarded(ForwardedRequest),
    /// A sessiond command.
    Form(FormReply),
}

/// Receives the result of a sessiond form. `None` if the editor answered with an error.
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
    pub(super) fn new(outbox: Outbox, commands: bool, of_agents: AgentsWithCommands) -> Arc<Self> {
        Arc::new(Self {
            outbox,
            offers_commands: commands,
            agents_with_commands: of_agents,
            state: Mutex::default(),
        })
    }

    /// The editor's capabilities.
    pub(super) fn capabilities(&self) -> Arc<EditorCapabilities> {
        Arc::clone(&self.lock().capabilities)
    }

    /// Whether sessiond's commands are announced to the editor. A client that knows the daemon's extensions does not need them.
    pub(super) fn wants_commands(&self) -> bool {
        self.offers_commands && !self.capabilities().supports_sessiond_extensions()
    }

    /// Stores the editor's capabilities.
    pub(super) fn set_capabilities(&self, client: EditorCapabilities) {
        self.lock().capabilities = Arc::new(client);
    }

    /// Whether the editor may answer a request of the agent.
    pub(super) fn supports_method(&self, method: &MethodName) -> bool {
        let state = self.lock();
        !state.is_disconnected && state.capabilities.supports_method(method)
    }

    /// Registers a request and returns its id. `None` if the editor has disconnected.
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

    /// Removes and returns the open request with this id, if there is one.
    pub(super) fn take_pending(&self, id: u64) -> Option<PendingRequest> {
        self.lock().pending.remove(&id)
    }

    /// Marks the editor as disconnected. The agent receives errors for its open requests, and forms stay unanswered.
    pub(super) fn mark_disconnected(&self) {
        let pending = {
            let mut state = self.lock();
            state.is_disconnected = true;
            std::mem::take(&mut state.pending)
        };
        // Dropped outside the lock, because the requests' sessions use this peer too.
        drop(pending);
    }

    /// Counts a held message of this length. Returns false if the sessions of this editor together hold too much.
    pub(super) fn hold(&self, length: usize) -> bool {
        let (messages, bytes) = self.lock().held;
        let has_room = self.outbox.limits().has_room(messages, bytes, length);
        if has_room {
            self.hold_over_limit(length);
        }
        has_room
    }

    /// Like [`Self::hold`], but without the limit.
    pub(super) fn hold_over_limit(&self, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages + 1, *bytes + length);
    }

    /// Releases `count` held messages of `length` bytes in total.
    pub(super) fn release_held(&self, count: usize, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages - count, *bytes - length);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave the state half changed, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForwardedQuestion {
    pub(super) fn new(session: Weak<Session>, conversation: ConversationId, interrupt: &Interrupt) -> Self {
        Self {
            session,
            conversation,
            id: interrupt.id.clone(),
            kind: interrupt.kind,
        }
    }

    /// The outcome in the editor's result, and what a permission contains beside it. An unreadable result counts as cancelled.
    pub(super) fn outcome(&self, result: &str) -> (RawJson, Option<RawJson>) {
        let (outcome, beside) = match self.kind {
            InterruptKind::Permission => (
                message::member(result, "outcome"),
                message::other_params(result, &["outcome"]),
            ),
            _ => (RawJson::from_text(result.to_owned()).ok(), None),
        };
        (outcome.unwrap_or_else(|| self.cancelled()), beside)
    }

    /// The outcome of a question that is cancelled.
    pub(super) fn cancelled(&self) -> RawJson {
        RawJson::from(match self.kind {
            InterruptKind::Permission => json!({"outcome": "cancelled"}),
            _ => json!({"action": "cancel"}),
        })
    }
}
