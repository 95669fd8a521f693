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

use super::client::Client;
use super::forwarding::Forwarded;
use super::session::Session;
use crate::agent::client::ClientProfile;
use crate::agent::message::MethodName;
use crate::server::Outbox;

/// The editor.
pub(super) struct Peer {
    /// Its lines, in order.
    pub(super) outbox: Outbox,
    /// Whether editors are offered commands of ours.
    commands: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Client,
    /// The id of the last request that was sent.
    last_id: u64,
    asked: HashMap<u64, Asked>,
    forwarded: HashMap<u64, Forwarded>,
    /// Whether the editor sends nothing more, and so answers nothing.
    has_left: bool,
    forms: HashMap<u64, Form>,
    /// How many messages are held back, and their bytes.
    held: (usize, usize),
}

/// Takes the result of a form of ours; none if the editor answered with an error.
type Form = oneshot::Sender<Option<String>>;

/// A question that the editor was asked.
pub(super) struct Asked {
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
            commands,
            state: Mutex::default(),
        })
    }

    /// Whether the editor takes updates of this kind.
    pub(super) fn takes(&self, kind: &str) -> bool {
        self.lock().client.takes(kind)
    }

    /// Whether the editor shows questions of this mode.
    pub(super) fn asks(&self, mode: &str) -> bool {
        self.lock().client.asks(mode)
    }

    /// The options that the editor can show.
    pub(super) fn shown_options(&self, options: RawJson) -> RawJson {
        self.lock().client.shown_options(options)
    }

    /// Whether the editor can run a sign-in of the agent in a terminal.
    pub(super) fn has_terminal_sign_in(&self) -> bool {
        self.lock().client.has_terminal_sign_in()
    }

    /// Whether commands of ours are announced to the editor. A client that knows the daemon's extras has its own means.
    pub(super) fn wants_commands(&self) -> bool {
        self.commands && !self.lock().client.knows_extras()
    }

    /// What agents are sent about the editor.
    pub(super) fn profile(&self) -> ClientProfile {
        self.lock().client.profile()
    }

    /// Whether the editor knows the daemon's extras.
    pub(super) fn knows_extras(&self) -> bool {
        self.lock().client.knows_extras()
    }

    /// Whether the editor wants a message when the replay of a load has ended.
    pub(super) fn wants_replay_end(&self) -> bool {
        self.lock().client.wants_replay_end()
    }

    /// Notes what the editor can do.
    pub(super) fn initialized(&self, client: Client) {
        self.lock().client = client;
    }

    /// Registers a question, and gives the id of its request.
    pub(super) fn ask(&self, session: Weak<Session>, conversation: ConversationId, asked: &Interrupt) -> u64 {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        let asked = Asked {
            session,
            conversation,
            id: asked.id.clone(),
            kind: asked.kind,
        };
        state.asked.insert(id, asked);
        id
    }

    /// Whether the editor may answer a request of the agent.
    pub(super) fn offers(&self, method: &MethodName) -> bool {
        let state = self.lock();
        !state.has_left && state.client.offers(method)
    }

    /// Registers a request of the agent that is passed on, and gives the id of its request; none if the editor has left.
    pub(super) fn forward(&self, request: Forwarded) -> Option<u64> {
        let mut state = self.lock();
        if state.has_left {
            return None;
        }
        state.last_id += 1;
        let id = state.last_id;
        state.forwarded.insert(id, request);
        Some(id)
    }

    /// The request of the agent that was passed on under this id, which is settled from now on.
    pub(super) fn take_forwarded(&self, id: u64) -> Option<Forwarded> {
        self.lock().forwarded.remove(&id)
    }

    /// The editor sends nothing more: the agent gets errors for what it wants of it, and no form is answered.
    pub(super) fn leaves(&self) {
        let left = {
            let mut state = self.lock();
            state.has_left = true;
            state.forms.clear();
            std::mem::take(&mut state.forwarded)
        };
        // Outside the lock: their sessions have this peer.
        drop(left);
    }

    /// Holds a message of this length back; false if too much is held back, of all sessions together, for one client.
    pub(super) fn hold(&self, length: usize) -> bool {
        let (messages, bytes) = self.lock().held;
        let has_room = self.outbox.limits().has_room(messages, bytes, length);
        if has_room {
            self.hold_one_more(length);
        }
        has_room
    }

    /// The same, whatever is held back already.
    pub(super) fn hold_one_more(&self, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages + 1, *bytes + length);
    }

    /// So many messages are held back no more.
    pub(super) fn let_go(&self, count: usize, length: usize) {
        let (messages, bytes) = &mut self.lock().held;
        (*messages, *bytes) = (*messages - count, *bytes - length);
    }

    /// Registers a form of ours, and gives the id of its request.
    pub(super) fn ask_form(&self, form: Form) -> u64 {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        if !state.has_left {
            state.forms.insert(id, form);
        }
        id
    }

    /// The form whose request has this id, which is settled from now on.
    pub(super) fn take_form(&self, id: u64) -> Option<Form> {
        self.lock().forms.remove(&id)
    }

    /// The question whose request has this id, which is settled from now on.
    pub(super) fn settle(&self, id: u64) -> Option<Asked> {
        self.lock().asked.remove(&id)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
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
