//! Newline-delimited JSON-RPC with one agent, in both directions, on raw values.
//!
//! One task reads and one writes; all others hold a [`Connection`]. Messages for a session go to its
//! [inbox](super::inbox) in the order in which they were written, including responses. Nothing waits forever: when
//! the agent ends, every caller gets an error and every inbox gets exactly one `Died`.
//!
//! This module owns the routes from session handles to inboxes, and the requests in flight. It does not know what a
//! method means, except where its session id is. All it knows about a process is when it ends.

mod reader;
mod routes;
mod stray_output;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::inbox::InboxSender;
use super::message::{AgentRequestId, CallError, MethodName, REQUEST_CANCELLED, RawId, method};
use super::process::{Death, DeathWatch};
use routes::{Pending, Routes};
pub use stray_output::StrayOutput;

/// The longest line that is read, in bytes, unless configured. The same limit applies to clients.
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// How many lines may be queued for an agent that does not read. Prompts and answers are few, so a full queue means a
/// stuck agent.
pub const MAX_QUEUED_LINES: usize = 1_024;

/// How many bytes of lines may be queued. An empty queue accepts a line of any length.
pub const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;

/// How many requests to one agent may be unanswered: several for each session that it can handle.
pub const MAX_CALLS_IN_FLIGHT: usize = 4_096;

/// Options of a connection.
#[derive(Debug, Clone)]
pub struct WireOptions {
    /// Longer lines are skipped without being buffered.
    pub max_line_bytes: usize,
    /// The agent's requests that are passed to an inbox. All others are refused with -32601.
    pub allowed_requests: Vec<MethodName>,
    /// Whether requests that the protocol does not define are passed on too.
    pub allows_extensions: bool,
}

impl Default for WireOptions {
    /// Allows the questions for the user, but no file system and no terminal.
    fn default() -> Self {
        Self {
            max_line_bytes: DEFAULT_MAX_LINE_BYTES,
            allowed_requests: vec![
                MethodName::known(method::REQUEST_PERMISSION),
                MethodName::known(method::ELICITATION_CREATE),
            ],
            allows_extensions: false,
        }
    }
}

/// The ACP session id of a session in a running agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionHandle(Arc<str>);

impl SessionHandle {
    /// Creates a handle from opaque text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The routing of a handle to an inbox. A later attachment of the same handle has a higher generation. Detaching the
/// earlier one does not affect it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The session.
    pub handle: SessionHandle,
    /// The number of the attachment, unique in the connection.
    pub generation: u64,
}

/// A connection to one agent. Clones share it. Dropping the last one closes the agent's input.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    _close_when_unused: Arc<DropGuard>,
}

/// State shared by the tasks and the connection.
#[derive(Debug)]
struct Shared {
    routes: Mutex<Routes>,
    /// The last line that was sent, if it was a request and the agent has sent nothing since.
    last_sent: Mutex<Option<AgentRequestId>>,
    outgoing: mpsc::Sender<String>,
    queued_bytes: AtomicUsize,
    stray_output: watch::Sender<StrayOutput>,
    auth_status: watch::Sender<Option<Arc<RawValue>>>,
    options: WireOptions,
    death: watch::Sender<Option<Arc<Death>>>,
    close_input: CancellationToken,
    write_failed: CancellationToken,
}

impl Connection {
    /// Takes over both pipes. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(
        output_of_agent: impl AsyncRead + Send + Unpin + 'static,
        input_of_agent: impl AsyncWrite + Send + Unpin + 'static,
        process: DeathWatch,
        options: WireOptions,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(MAX_QUEUED_LINES);
        let shared = Arc::new(Shared {
            routes: Mutex::default(),
            last_sent: Mutex::default(),
            outgoing,
            queued_bytes: AtomicUsize::new(0),
            stray_output: watch::Sender::default(),
            auth_status: watch::Sender::default(),
            options,
            death: watch::Sender::new(None),
            close_input: CancellationToken::new(),
            write_failed: CancellationToken::new(),
        });
        tokio::spawn(reader::run(Arc::clone(&shared), output_of_agent, process));
        tokio::spawn(writer::run(Arc::clone(&shared), input_of_agent, queue));
        let close_when_unused = Arc::new(shared.close_input.clone().drop_guard());
        Self {
            shared,
            _close_when_unused: close_when_unused,
        }
    }

    /// Returns the last raw `authStatus` of the agent. `None` if it has sent none.
    #[must_use]
    pub fn auth_status(&self) -> Option<Arc<RawValue>> {
        self.shared.auth_status.borrow().clone()
    }

    /// Waits until the agent has sent its first `authStatus`, or has ended. Cancel safe.
    pub async fn auth_status_reported(&self) {
        let mut status = self.shared.auth_status.subscribe();
        tokio::select! {
            _ = status.wait_for(Option::is_some) => {}
            _ = self.died() => {}
        }
    }

    /// Sends a request and returns its answer. For requests without a session, or whose order among updates does not
    /// matter. Dropping the future forgets the request without notifying the agent.
    ///
    /// # Errors
    ///
    /// [`CallError`]. A stalled or refused request was not sent.
    pub async fn call(&self, method: &str, params: &RawValue) -> Result<Box<RawValue>, CallError> {
        let (answer, answered) = oneshot::channel();
        let request = self.request(method, params, Pending::Call(answer))?;
        let _forget = ForgetOnDrop {
            shared: &self.shared,
            request,
        };
        answered
            .await
            .unwrap_or_else(|_| Err(self.shared.death_or_closing()))
    }

    /// Like [`Connection::call`], with a deadline.
    ///
    /// # Errors
    ///
    /// [`CallError`], including [`CallError::TimedOut`].
    pub async fn call_within(
        &self,
        method: &str,
        params: &RawValue,
        deadline: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let answered = tokio::time::timeout(deadline, self.call(method, params)).await;
        answered.unwrap_or(Err(CallError::TimedOut { after: deadline }))
    }

    /// Sends a request whose answer arrives in the inbox, after everything that the agent wrote before it.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then, and no answer will arrive.
    pub fn start(
        &self,
        method: &str,
        params: &RawValue,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        self.request(
            method,
            params,
            Pending::Inbox {
                inbox: inbox.clone(),
                opens: false,
            },
        )
    }

    /// Sends a request that creates a session. The handle in its result is routed to the inbox before the next line
    /// is read.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then, and no answer will arrive.
    pub fn open(
        &self,
        method: &str,
        params: &RawValue,
        inbox: &InboxSender,
    ) -> Result<AgentRequestId, CallError> {
        self.request(
            method,
            params,
            Pending::Inbox {
                inbox: inbox.clone(),
                opens: true,
            },
        )
    }

    /// Routes a handle to an inbox, and delivers what arrived for it earlier. Call this before sending `session/load`
    /// or `session/resume`. Replaces an earlier attachment of the handle.
    ///
    /// # Errors
    ///
    /// [`CallError::Died`]; the inbox gets nothing then.
    pub fn attach(&self, handle: &SessionHandle, inbox: &InboxSender) -> Result<Attachment, CallError> {
        self.shared.with_routes(|routes| routes.attach(handle, inbox))
    }

    /// Ends an attachment, unless a newer one has replaced it. The agent's open requests are answered as cancelled;
    /// its later messages are dropped.
    pub fn detach(&self, attachment: &Attachment) {
        self.shared.with_routes(|routes| routes.detach(attachment));
    }

    /// Returns how many handles are routed to an inbox.
    #[must_use]
    pub fn attached_count(&self) -> usize {
        self.shared.routes().attached_count()
    }

    /// Whether a session is open under this handle.
    #[must_use]
    pub fn is_attached(&self, handle: &str) -> bool {
        self.shared.routes().is_attached(handle)
    }

    /// Sends a notification.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn notify(&self, method: &str, params: &RawValue) -> Result<(), CallError> {
        self.shared.check_alive()?;
        self.shared.enqueue(encode(None, method, params.get()))
    }

    /// Answers a request of the agent, once, with a result or an error object.
    ///
    /// # Errors
    ///
    /// [`CallError::NotWaiting`] if it already has an answer. After other errors nothing was sent, and the request is
    /// still open.
    pub fn respond(&self, id: &RawId, outcome: Result<&RawValue, &RawValue>) -> Result<(), CallError> {
        let (member, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        self.answer(id, encode_answer(id.as_str(), member, value.get()))
    }

    /// Answers a request of the agent with an error of this program. Otherwise like [`Connection::respond`].
    ///
    /// # Errors
    ///
    /// As [`Connection::respond`].
    pub fn refuse(&self, id: &RawId, code: i64, message: &str) -> Result<(), CallError> {
        self.answer(id, encode_error(id.as_str(), code, message))
    }

    fn answer(&self, id: &RawId, line: String) -> Result<(), CallError> {
        self.shared.check_alive()?;
        let mut routes = self.shared.routes();
        if !routes.is_waiting(id) {
            return Err(CallError::NotWaiting(id.clone()));
        }
        // Under the lock, so that only the first of two answers is sent.
        self.shared.enqueue(line)?;
        routes.record_answer(id);
        Ok(())
    }

    /// Notifies the agent that the answer to a request is no longer needed. If it still answers, the answer is
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`CallError`]; nothing was sent then.
    pub fn cancel_request(&self, request: AgentRequestId) -> Result<(), CallError> {
        // Remove it from the requests in flight even if the agent never answers.
        self.shared.routes().forget(request);
        self.shared.check_alive()?;
        self.shared.enqueue(encode(
            None,
            method::CANCEL_REQUEST,
            &format!("{{\"requestId\":{request}}}"),
        ))
    }

    /// Closes the agent's input after the queue is written, or sooner if the agent does not read it.
    pub fn close_input(&self) {
        self.shared.close_input.cancel();
    }

    /// Waits until the agent has ended. Cancel safe.
    pub async fn died(&self) -> Arc<Death> {
        let mut died = self.shared.death.subscribe();
        match died.wait_for(Option::is_some).await.map(|death| death.clone()) {
            Ok(Some(death)) => death,
            // The sender lives as long as `self`.
            _ => Arc::default(),
        }
    }

    /// Returns how the agent ended, if it has.
    #[must_use]
    pub fn death(&self) -> Option<Arc<Death>> {
        self.shared.death.borrow().clone()
    }

    /// Whether the agent still has to answer this request.
    #[must_use]
    pub fn awaits(&self, request: AgentRequestId) -> bool {
        self.shared.routes().awaits(request)
    }

    /// Whether the agent has ended or is about to: its input was closed by either side.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        let shared = &self.shared;
        shared.outgoing.is_closed() || shared.close_input.is_cancelled() || shared.death.borrow().is_some()
    }

    /// Returns the lines received so far that are not messages.
    #[must_use]
    pub fn stray_output(&self) -> StrayOutput {
        self.shared.stray_output.borrow().clone()
    }

    /// Waits until the agent has printed this many lines that are not messages. Cancel safe.
    pub async fn stray_lines_reached(&self, lines: u64) {
        let mut chatter = self.shared.stray_output.subscribe();
        // The sender lives as long as `self`.
        let _ended = chatter.wait_for(|chatter| chatter.line_count >= lines).await;
    }

    fn request(
        &self,
        method: &str,
        params: &RawValue,
        pending: Pending,
    ) -> Result<AgentRequestId, CallError> {
        let request = AgentRequestId::next();
        let line = encode(Some(request), method, params.get());
        // Reserve a slot in the queue first: a waiter must not be registered for a line that is not sent.
        let place = self.shared.reserve(line.len())?;
        self.shared.routes().register(request, method, pending)?;
        self.shared.record_sent(Some(request));
        self.shared.queued_bytes.fetch_add(line.len(), Ordering::Relaxed);
        place.send(line);
        Ok(request)
    }
}

/// Forgets a request when its caller is dropped.
struct ForgetOnDrop<'connection> {
    shared: &'connection Shared,
    request: AgentRequestId,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.routes().forget(self.request);
    }
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        // Every change is complete before the lock is released, so a panic elsewhere leaves a consistent state.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the routes, then refuses the agent's requests that lost their owner.
    fn with_routes<T>(&self, change: impl FnOnce(&mut Routes) -> T) -> T {
        let (changed, orphaned) = {
            let mut routes = self.routes();
            (change(&mut routes), routes.take_orphaned())
        };
        for id in &orphaned {
            self.refuse(id.as_str(), REQUEST_CANCELLED, "the session is no longer open");
        }
        changed
    }

    fn check_alive(&self) -> Result<(), CallError> {
        self.death
            .borrow()
            .as_ref()
            .map_or(Ok(()), |death| Err(CallError::Died(Arc::clone(death))))
    }

    fn death_or_closing(&self) -> CallError {
        self.check_alive().err().unwrap_or(CallError::Closing)
    }

    /// Reserves a slot in the queue to the agent, without waiting.
    fn reserve(&self, line_bytes: usize) -> Result<mpsc::Permit<'_, String>, CallError> {
        let queued = self.queued_bytes.load(Ordering::Relaxed);
        if queued > 0 && queued.saturating_add(line_bytes) > MAX_QUEUED_BYTES {
            return Err(CallError::Stalled);
        }
        if self.close_input.is_cancelled() {
            return Err(self.death_or_closing());
        }
        self.outgoing.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => CallError::Stalled,
            mpsc::error::TrySendError::Closed(()) => self.death_or_closing(),
        })
    }

    /// Records what the last line sent was: a request, or another message.
    fn record_sent(&self, request: Option<AgentRequestId>) {
        *self.last_sent.lock().unwrap_or_else(PoisonError::into_inner) = request;
    }

    /// Records that the agent has sent a line. Returns the last line that was sent to it, if that was a request and the agent
    /// had sent nothing since.
    fn record_received(&self) -> Option<AgentRequestId> {
        self.last_sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Queues a line that is not a request.
    fn enqueue(&self, line: String) -> Result<(), CallError> {
        let place = self.reserve(line.len())?;
        self.record_sent(None);
        self.queued_bytes.fetch_add(line.len(), Ordering::Relaxed);
        place.send(line);
        Ok(())
    }

    /// Refuses a request of the agent. If the queue is full, the agent does not read and would not see the refusal.
    fn refuse(&self, raw_id: &str, code: i64, message: &str) {
        if let Err(error) = self.enqueue(encode_error(raw_id, code, message)) {
            tracing::debug!(%error, raw_id, "cannot send a refusal to the agent");
        }
    }
}

/// Encodes a request, or a notification without an id, including the line end.
fn encode(request: Option<AgentRequestId>, method: &str, params: &str) -> String {
    let id = request.map_or_else(String::new, |request| format!("\"id\":{request},"));
    let (method, params) = (serde_json::Value::from(method), on_one_line(params));
    format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":{method},\"params\":{params}}}\n")
}

/// Encodes an answer whose `member`, `result` or `error`, has this value.
fn encode_answer(raw_id: &str, member: &str, value: &str) -> String {
    let value = on_one_line(value);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{raw_id},\"{member}\":{value}}}\n")
}

fn encode_error(raw_id: &str, code: i64, message: &str) -> String {
    let message = serde_json::Value::from(message);
    encode_answer(
        raw_id,
        "error",
        &format!("{{\"code\":{code},\"message\":{message}}}"),
    )
}

/// Returns raw JSON on one line. In valid JSON, line ends are only between tokens, where a space is equivalent.
fn on_one_line(json: &str) -> Cow<'_, str> {
    match memchr::memchr2(b'\n', b'\r', json.as_bytes()) {
        None => Cow::Borrowed(json),
        Some(_) => Cow::Owned(json.replace(['\n', '\r'], " ")),
    }
}
