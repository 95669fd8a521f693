//! Requests of an agent for the files and terminals of its client.
//!
//! One subscriber of the conversation gets each of them, in its place among the updates. The answer goes straight to the agent.
//! Nothing about them is kept: what the client's machine did is in the answer alone.

use bridge_protocol::raw::RawJson;
use serde_json::value::RawValue;

use crate::agent::message::{AgentError, CallError, INTERNAL_ERROR, MethodName, REQUEST_CANCELLED, RawId};
use crate::agent::wire::Connection;

/// How well the client of a subscriber is suited to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suits {
    /// It cannot.
    No,
    /// It can.
    Yes,
    /// It can, and it runs the turn.
    RunsTurn,
    /// Only it can: the request is about a terminal of its own.
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

    /// Passes the client's result or error on, byte for byte.
    pub fn answer(mut self, outcome: Result<&RawValue, &RawValue>) {
        self.is_answered = true;
        self.log(self.connection.relay(&self.id, outcome));
    }

    /// No client can answer it.
    pub(super) fn refuse(mut self) {
        let why = format!("no client that has this session open offers {}", self.method);
        self.fail(INTERNAL_ERROR, why);
    }

    fn fail(&mut self, code: i64, why: impl Into<String>) {
        self.is_answered = true;
        let error = AgentError::new(code, why);
        self.log(self.connection.respond(&self.id, Err(&error)));
    }

    fn log(&self, sent: Result<(), CallError>) {
        if let Err(error) = sent {
            tracing::debug!(%error, method = %self.method, "a client's answer did not reach the agent");
        }
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.fail(
                REQUEST_CANCELLED,
                "the client has left, or has closed the session, without an answer",
            );
        }
    }
}
