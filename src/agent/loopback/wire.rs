//! The agent's output: newline-delimited JSON-RPC on standard output.
//!
//! This module writes whole lines, one writer at a time. It does not know what they mean. After the output was closed,
//! it drops all messages, and the loop in `serve` ends the process.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Value, json};

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RpcError {
    code: i32,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(super) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(super) fn parse_error() -> Self {
        Self::new(-32700, "Parse error")
    }

    pub(super) fn invalid_request() -> Self {
        Self::new(-32600, "Invalid request")
    }

    pub(super) fn method_not_found(method: &str) -> Self {
        Self::new(-32601, format!("\"Method not found\": {method}")).with_data(json!({ "method": method }))
    }

    pub(super) fn invalid_params(why: impl Into<String>) -> Self {
        Self::new(-32602, why)
    }

    pub(super) fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(-32603, format!("Internal error: {why}"))
    }

    pub(super) fn session_not_found(session_id: &str) -> Self {
        Self::new(-32002, "Resource not found").with_data(json!({ "sessionId": session_id }))
    }

    pub(super) fn sign_in_needed() -> Self {
        Self::new(-32000, "Authentication required")
    }
}

/// Standard output, shared by all threads.
#[derive(Debug, Default)]
pub(super) struct Output {
    closed: AtomicBool,
    next_request: AtomicU64,
}

impl Output {
    /// Writes whole lines in one call, without buffering: standard output flushes at a newline.
    pub(super) fn send_lines(&self, lines: &[u8]) {
        if self.is_closed() {
            return;
        }
        let mut stdout = std::io::stdout().lock();
        if stdout.write_all(lines).and_then(|()| stdout.flush()).is_err() {
            self.closed.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn send(&self, message: &impl Serialize) {
        match serde_json::to_vec(message) {
            Ok(mut line) => {
                line.push(b'\n');
                self.send_lines(&line);
            }
            Err(error) => super::log_error(&format!("cannot encode a message: {error}")),
        }
    }

    pub(super) fn respond(&self, id: &Value, outcome: Result<Value, RpcError>) {
        self.send(&match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        });
    }

    pub(super) fn notify(&self, method: &str, params: &impl Serialize) {
        self.call(None, method, params);
    }

    /// Sends a request with an id from [`Output::next_request_id`]. The caller must expect the answer before it sends
    /// the request.
    pub(super) fn request(&self, id: u64, method: &str, params: &impl Serialize) {
        self.call(Some(id), method, params);
    }

    fn call(&self, id: Option<u64>, method: &str, params: &impl Serialize) {
        self.send(&Call {
            jsonrpc: "2.0",
            id,
            method,
            params,
        });
    }

    pub(super) fn next_request_id(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn update(&self, session_id: &str, update: &impl Serialize) {
        self.notify("session/update", &UpdateParams { session_id, update });
    }
}

/// A request, or a notification, which has no id.
#[derive(Serialize)]
struct Call<'a, P: Serialize> {
    jsonrpc: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a, U: Serialize> {
    session_id: &'a str,
    update: &'a U,
}
