//! Forwards file, terminal and unnamed requests (those that the protocol does not define) from the agent to the editor, and
//! unnamed requests and notifications from the editor to the agent.
//!
//! Owns the requests that the editor has not answered, and the set of its open terminals. Only the session id is replaced. The
//! sender of a request decides what happens if the editor never answers it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bridge_protocol::ErrorKind;
use bridge_protocol::method::{GetConversation, Resume};
use bridge_protocol::raw::RawJson;
use serde::Deserialize;

use super::editor::Connection;
use super::message::{self, Failure, Reply};
use super::peer::PendingRequest;
use super::prompting::submit_in_order;
use super::session::Session;
use crate::agent::message::{RawId, RequestKind, method};
use crate::bridge::{ClientRequest, ClientSuitability, ClientSwitchReason};

/// The agent's requests to the editor in one session, and the terminals that they opened.
#[derive(Debug, Default)]
pub(super) struct ForwardedRequests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The agent's request ids, with the ids and kinds of the requests to the editor.
    requests: HashMap<RawId, (u64, RequestKind)>,
    /// The terminals that the editor has made and not released.
    terminals: HashSet<String>,
}

/// A request that was forwarded to the editor.
pub(super) struct ForwardedRequest {
    session: Weak<Session>,
    request: ClientRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminalParams {
    terminal_id: String,
}

fn terminal_of(json: &str) -> Option<String> {
    let read = serde_json::from_str(json).ok();
    read.map(|TerminalParams { terminal_id }| terminal_id)
}

impl ForwardedRequests {
    /// Records that a request was answered. The result of `terminal/create` adds a terminal.
    fn note_answer(&self, request: &ClientRequest, result: Option<&str>) {
        let mut state = self.lock();
        state.requests.remove(&request.id);
        match (request.method.as_str(), result) {
            (method::TERMINAL_CREATE, Some(result)) => state.terminals.extend(terminal_of(result)),
            (method::TERMINAL_RELEASE, Some(_)) => {
                let released = terminal_of(request.params.get());
                state
                    .terminals
                    .retain(|terminal| Some(terminal) != released.as_ref());
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave the state half changed, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// How suitable the editor is for answering a request.
    pub(super) fn suits(&self, request: &ClientRequest) -> ClientSuitability {
        let name = request.method.as_str();
        if !self.peer.supports_method(&request.method) {
            return ClientSuitability::Unsuited;
        }
        let is_of_terminal = name.starts_with("terminal/") && name != method::TERMINAL_CREATE;
        match terminal_of(request.params.get()).filter(|_| is_of_terminal) {
            Some(terminal) if self.forwarding.lock().terminals.contains(&terminal) => {
                ClientSuitability::HasTerminal
            }
            None if !is_of_terminal && self.is_own_turn_running() => ClientSuitability::RunsTurn,
            None if !is_of_terminal => ClientSuitability::Suited,
            _ => ClientSuitability::Unsuited,
        }
    }

    /// Forwards a request, in order with the updates.
    pub(super) fn forward(self: &Arc<Self>, request: ClientRequest) {
        let (request_id, method) = (request.id.clone(), request.method.clone());
        let kind = RequestKind::of(method.as_str());
        let params = self.params_for_editor(request.params.get());
        let forwarded = ForwardedRequest {
            session: Arc::downgrade(self),
            request,
        };
        let Some(id) = self.peer.register_request(PendingRequest::Forwarded(forwarded)) else {
            return;
        };
        self.forwarding
            .lock()
            .requests
            .insert(request_id.clone(), (id, kind));
        if !self.send_request(&message::request(id, method.as_str(), &params)) {
            self.forwarding.lock().requests.remove(&request_id);
            self.peer.take_pending(id);
        }
    }

    /// Notifies the editor that the answer to one of the agent's requests is no longer wanted. The editor may still answer it.
    /// `None` withdraws all requests and questions, because the session has ended.
    pub(super) fn withdraw(&self, request_id: Option<&RawId>) {
        let ids = match request_id {
            Some(id) => {
                let open = self.forwarding.lock().requests.get(id).copied();
                open.into_iter().map(|(id, _)| id).collect()
            }
            None => {
                let mut ids = self.fail_forwarded(|_| true);
                ids.extend(self.forget_questions());
                ids
            }
        };
        for id in ids {
            // A failure is ignored: an editor that accepts no messages has disconnected.
            let _sent = self.send_request(&message::withdrawal(id));
        }
    }

    /// Answers all of the agent's open requests with an error, because the editor has closed the session. Returns the requests
    /// that the editor had not answered.
    pub(super) fn fail_all_forwarded(&self) -> Vec<u64> {
        self.forwarding.lock().terminals.clear();
        self.fail_forwarded(|_| true)
    }

    /// Answers the agent's requests of these kinds with an error. Returns those that the editor had not answered.
    pub(super) fn fail_forwarded(&self, is_meant: impl Fn(RequestKind) -> bool) -> Vec<u64> {
        let requests: Vec<_> = {
            let mut state = self.forwarding.lock();
            state
                .requests
                .extract_if(|_, (_, kind)| is_meant(*kind))
                .collect()
        };
        let open = requests.into_iter().map(|(_, (id, _))| id);
        open.filter(|id| self.peer.take_pending(*id).is_some()).collect()
    }
}

impl Connection {
    /// Forwards a request that the protocol does not name to the agent, if the editor has the session open.
    pub(super) async fn forward_unnamed_request(
        &self,
        session: &Arc<Session>,
        method: String,
        params: &str,
    ) -> Reply {
        let parent = self.parent_of(&session.id);
        let is_of_subagent = parent.is_some();
        let session = &parent.unwrap_or_else(|| Arc::clone(session));
        let order = session.order.lock().await;
        let params: RawJson = message::read(params)?;
        let unknown = || Failure::unknown_session(&session.id);
        let id = session.conversation().ok_or_else(unknown)?;
        session.release().await;
        self.run_agent_for(session, id, ClientSwitchReason::Using)?;
        if !self
            .run_app_call(GetConversation::of(id))
            .await?
            .conversation
            .live
        {
            self.run_app_call(Resume::of(id)).await?;
        }
        let answer = submit_in_order(
            self.bridge.forward_request(id, method, params, is_of_subagent),
            order,
        )
        .await?;
        let unreadable = || Failure::of(ErrorKind::InternalError, "the agent's error cannot be read");
        match answer {
            Ok(result) => Ok(result.get().to_owned()),
            Err(error) => Err(Failure::of_agent(&error).unwrap_or_else(unreadable)),
        }
    }

    /// Forwards a notification that the protocol does not name to the agent, if the session is open. It does not wait for a
    /// request that opens the session, because an unlimited number of notifications could then wait.
    pub(super) fn forward_unnamed_notification(&self, name: &str, method: String, params: RawJson) {
        let parent = self.parent_of(name);
        let is_of_subagent = parent.is_some();
        let session = parent.or_else(|| self.known_session(name));
        if let Some(id) = session.and_then(|session| session.conversation())
            && let Err(error) = self
                .bridge
                .forward_notification(id, method, params, is_of_subagent)
        {
            tracing::debug!(%error, "an editor's notification was not passed on");
        }
    }
}

impl ForwardedRequest {
    /// Returns the editor's result or error to the agent.
    pub(super) fn complete(self, result: Option<&str>, error: Option<&str>) {
        let Self { session, request } = self;
        if let Some(session) = session.upgrade() {
            session.forwarding.note_answer(&request, result);
        }
        let raw = |text: &str| RawJson::from_text(text.to_owned()).ok();
        match (result.and_then(raw), error.and_then(raw)) {
            (Some(result), _) => request.answer(Ok(result.as_raw())),
            (None, Some(error)) => request.answer(Err(error.as_raw())),
            // Dropping the request answers it with an error.
            (None, None) => drop(request),
        }
    }
}
