//! Messages between an agent and its clients that the conversation only passes on.
//!
//! From the agent: requests for the files and terminals of a client, and requests that the protocol does not name. One
//! subscriber of the conversation gets each request, in order with the updates. The answer goes directly to the agent. Nothing
//! about the request is stored: what the client's machine did is only in the answer. From clients: requests and notifications
//! that the protocol does not name.

use bridge_protocol::raw::RawJson;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::agent::members::with_member;
use crate::agent::message::{
    CallError, INTERNAL_ERROR, METHOD_NOT_FOUND, MethodName, REQUEST_CANCELLED, RawId, RequestKind,
};
use crate::agent::wire::Connection;

use super::upstream::UpstreamSession;

/// How well the client of a subscriber is suited to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientSuitability {
    /// It cannot.
    Unsuited,
    /// It can.
    Suited,
    /// It can, and its own turn runs.
    RunsTurn,
    /// Only this client can: the request is about one of its terminals.
    HasTerminal,
}

/// A request that the agent waits for. If it is dropped, the agent gets an error.
#[derive(Debug)]
pub struct ClientRequest {
    /// Its id, as the agent wrote it.
    pub id: RawId,
    /// Its method.
    pub method: MethodName,
    /// Its parameters.
    pub params: RawJson,
    connection: Connection,
    is_answered: bool,
}

impl ClientRequest {
    pub(super) fn new(id: RawId, method: MethodName, params: RawJson, connection: Connection) -> Self {
        Self {
            id,
            method,
            params,
            connection,
            is_answered: false,
        }
    }

    /// Passes the client's result or error to the agent, byte for byte.
    pub fn answer(mut self, outcome: Result<&RawValue, &RawValue>) {
        self.is_answered = true;
        self.log(self.connection.respond(&self.id, outcome));
    }

    /// Refuses the request, because no client can answer it.
    pub(super) fn refuse(mut self) {
        let why = format!("no client that has this session open offers {}", self.method);
        let code = match RequestKind::of(self.method.as_str()) {
            RequestKind::ClientResource => INTERNAL_ERROR,
            _ => METHOD_NOT_FOUND,
        };
        self.fail(code, &why);
    }

    fn fail(&mut self, code: i64, why: &str) {
        self.is_answered = true;
        self.log(self.connection.refuse(&self.id, code, why));
    }

    fn log(&self, result: Result<(), CallError>) {
        if let Err(error) = result {
            tracing::debug!(%error, method = %self.method, "a client's answer did not reach the agent");
        }
    }
}

/// A client's message for the agent of a conversation.
#[derive(Debug)]
pub struct ClientMessage {
    /// Its method.
    pub method: String,
    /// Its parameters. The session's id is replaced, unless it is that of a subagent's session.
    pub params: RawJson,
    /// Whether the parameters name a subagent's session.
    pub is_of_subagent: bool,
    /// Receives the agent's answer to a request; if it is dropped, the session is not open. `None` for a notification. If the
    /// receiver is dropped, the request is cancelled.
    pub reply: Option<oneshot::Sender<Result<Box<RawValue>, CallError>>>,
}

impl ClientMessage {
    /// Sends the message to the agent.
    pub(super) fn send(self, session: &mut UpstreamSession) {
        let connection = session.lease.connection().clone();
        let handle = RawJson::from(Value::from(session.attachment.handle.as_str()));
        // Parameters that name a session are an object.
        let params = match self.is_of_subagent {
            true => Some(self.params),
            false => with_member(self.params.get(), "sessionId", handle),
        };
        let Some(params) = params else { return };
        let Some(mut reply) = self.reply else {
            if let Err(error) = connection.notify(&self.method, params.as_raw()) {
                tracing::debug!(%error, method = self.method, "a client's notification did not reach the agent");
            }
            return;
        };
        let request = match connection.start(&self.method, params.as_raw(), &session.sender) {
            Ok(request) => request,
            Err(error) => {
                let _gone = reply.send(Err(error));
                return;
            }
        };
        let (sender, answer) = oneshot::channel();
        session.forwarded_requests.retain(|_, reply| !reply.is_closed());
        session.forwarded_requests.insert(request, sender);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                answer = answer => {
                    if let Ok(answer) = answer {
                        let _gone = reply.send(answer);
                    }
                }
                () = reply.closed() => {
                    // An agent that has ended needs no cancellation.
                    let _ended = connection.cancel_request(request);
                }
            }
        });
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.fail(
                REQUEST_CANCELLED,
                "the client disconnected, or closed the session, without answering",
            );
        }
    }
}
