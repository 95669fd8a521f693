//! A scripted model that replaces Anthropic's (the Messages API) or OpenAI's (see [`super::responses`] and
//! [`super::chat`]) on a loopback port. The prompt contains the script (see [`super::script`]). The server
//! keeps every request: only the requests prove which history an agent really works with, and
//! [`ModelServer::asked`] returns it.
//!
//! The server is blocking and uses one thread per connection. Dropping the [`ModelServer`] ends everything.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::chat;
use super::http::{self, Request};
use super::responses;
pub(crate) use super::said::{Said, What, model, tool_result, tool_use, user};
use super::script::{self, Answer, AnswerBlock, HttpError, Pace};

/// How long a test waits for a request before it fails.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The beginning of the agent's own prompt that asks the model for suggestions of the next prompt. This
/// prompt contains many words, possibly those that a test looks for.
const SUGGESTION: &str = "[SUGGESTION MODE";

/// A running scripted model.
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    wire: Wire,
    state: Mutex<State>,
    /// Notified of each new request and of the stop.
    changed: Condvar,
}

/// The API that the server speaks.
#[derive(Debug, Clone, Copy)]
enum Wire {
    Messages,
    Responses,
    Chat,
}

#[derive(Default)]
struct State {
    stopped: bool,
    /// Bodies of the requests to the model, in order of arrival.
    requests: Vec<Value>,
    /// A prompt text and a number of tokens: the next answer to a prompt that contains the text reports this
    /// many.
    costly: Option<(String, u64)>,
    /// The answer to a request for a summary.
    summary: Option<String>,
    /// How many requests each step has had, keyed by prompt and step.
    failures: HashMap<String, usize>,
    /// Keyed by number, so that each connection can be closed at the stop and removed when it ends.
    connections: HashMap<usize, TcpStream>,
    next_connection: usize,
    workers: Vec<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts a server with Anthropic's API on a free loopback port.
    pub(crate) fn start() -> ModelServer {
        Self::start_with(Wire::Messages)
    }

    /// Starts a server with OpenAI's Responses API.
    pub(crate) fn start_responses() -> ModelServer {
        Self::start_with(Wire::Responses)
    }

    /// Starts a server with the chat completions API.
    pub(crate) fn start_chat() -> ModelServer {
        Self::start_with(Wire::Chat)
    }

    fn start_with(wire: Wire) -> ModelServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            wire,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let acceptor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        ModelServer {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// The base URL for the agent's environment.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the next answer to a prompt that contains `text` report that the history takes this many tokens.
    pub(crate) fn tell_tokens(&self, text: &str, tokens: u64) {
        self.shared.lock().costly = Some((text.to_owned(), tokens));
    }

    /// Sets the answer to the agent's request for a summary. After the compaction the summary is all that the
    /// model knows of the turn, so directives in it take effect.
    pub(crate) fn tell_summary(&self, words: &str) {
        self.shared.lock().summary = Some(words.to_owned());
    }

    /// The requests of conversations so far, oldest first. Requests without tools, such as those for titles,
    /// are left out.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let state = self.shared.lock();
        state
            .requests
            .iter()
            .filter(|body| script::has_tools(body))
            .cloned()
            .collect()
    }

    /// The conversation in the newest request whose newest prompt contains `text`. Requests that the agent
    /// sends for its own purposes with the whole history (to suggest the next prompt) have a different newest
    /// prompt.
    pub(crate) fn asked(&self, text: &str) -> Vec<Said> {
        let requests = self.requests();
        let found = requests
            .iter()
            .rev()
            .map(|body| self.shared.wire.conversation_of(body))
            .find(|said| asks(said, text));
        found.unwrap_or_else(|| panic!("the model was never asked {text:?}"))
    }

    /// The first request in the turn of a prompt.
    pub(crate) fn first_asked(&self, prompt: &str) -> Value {
        let mut requests = self.requests().into_iter();
        let is_it = |body: &Value| self.shared.wire.conversation_of(body).last() == Some(&user(prompt));
        let found = requests.find(is_it);
        found.unwrap_or_else(|| panic!("the model was never asked {prompt:?}"))
    }

    /// How many requests had a newest prompt that contains `text`. A turn sends one per step, and one more
    /// per retry of the agent.
    pub(crate) fn times_asked(&self, text: &str) -> usize {
        let requests = self.requests();
        let said = requests.iter().map(|body| self.shared.wire.conversation_of(body));
        said.filter(|said| asks(said, text)).count()
    }

    /// Waits until the model has received a prompt that contains `text`.
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + WAIT_LIMIT;
        let mut state = self.shared.lock();
        loop {
            let asked =
                |body: &Value| script::has_tools(body) && asks(&self.shared.wire.conversation_of(body), text);
            if state.requests.iter().any(asked) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "the model was not asked {text:?} within {WAIT_LIMIT:?}"
            );
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .expect("no test thread panicked")
                .0;
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let workers = {
            let mut state = self.shared.lock();
            state.stopped = true;
            for connection in state.connections.values() {
                // The other side may already have closed the connection.
                connection.shutdown(Shutdown::Both).ok();
            }
            std::mem::take(&mut state.workers)
        };
        self.shared.changed.notify_all();
        // Wakes the acceptor, which then notices the stop.
        drop(TcpStream::connect(self.address));
        let threads = self.acceptor.take().into_iter().chain(workers);
        for thread in threads {
            let outcome = thread.join();
            assert!(
                outcome.is_ok() || std::thread::panicking(),
                "a thread of the model server panicked"
            );
        }
    }
}

/// The conversation in a request, block by block, without the system messages and reminders that the agent
/// adds. Texts are trimmed because agents add line breaks where they join messages.
pub(crate) fn conversation_of(body: &Value) -> Vec<Said> {
    let mut said = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "system" {
            continue;
        }
        let whole = json!([{"type": "text", "text": message["content"]}]);
        let blocks = if message["content"].is_string() {
            &whole
        } else {
            &message["content"]
        };
        for block in blocks.as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
            let what = match block["type"].as_str().unwrap_or_default() {
                "text" if script::is_reminder(&text(&block["text"])) => continue,
                "text" => What::Text(text(&block["text"])),
                "thinking" => What::Thinking(text(&block["thinking"])),
                "tool_use" => What::ToolUse(text(&block["name"])),
                "tool_result" => What::ToolResult(result_text(&block["content"])),
                other => What::Other(other.to_owned()),
            };
            said.push(Said {
                role: role.to_owned(),
                what,
            });
        }
    }
    said
}

fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.trim().to_owned(),
        _ => script::human_texts(content).join("\n").trim().to_owned(),
    }
}

fn asks(said: &[Said], text: &str) -> bool {
    let newest = said.iter().rev().find_map(|said| match &said.what {
        What::Text(words) if said.role == "user" => Some(words),
        _ => None,
    });
    newest.is_some_and(|words| words.contains(text) && !words.starts_with(SUGGESTION))
}

impl Wire {
    fn conversation_of(self, body: &Value) -> Vec<Said> {
        match self {
            Wire::Messages => conversation_of(body),
            Wire::Responses => responses::conversation_of(body),
            Wire::Chat => chat::conversation_of(body),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that has already failed elsewhere must not fail here again during its cleanup.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a request; `step` identifies its prompt and step. Returns how many requests this step had
    /// before.
    pub(super) fn record(&self, body: &Value, step: String) -> usize {
        let mut state = self.lock();
        state.requests.push(body.clone());
        let asked = state.failures.entry(step).or_default();
        *asked += 1;
        let before = *asked - 1;
        drop(state);
        self.changed.notify_all();
        before
    }

    /// The number of tokens that the answer to a prompt reports: the number set for it, or a small default.
    pub(super) fn tokens(&self, prompt: &str) -> u64 {
        let mut state = self.lock();
        let costly = state.costly.take_if(|(text, _)| prompt.contains(&**text));
        costly.map_or(1_000, |(_, tokens)| tokens)
    }

    /// The answer to a request for a summary, if one was set.
    pub(super) fn summary(&self) -> Option<Answer> {
        self.lock().summary.clone().map(Answer::text)
    }

    /// Applies the pace after this many pieces of a message: waits, or resets the connection. Returns whether the server
    /// still runs.
    pub(super) fn keep_pace(&self, writer: &TcpStream, pace: Pace, sent_pieces: usize) -> io::Result<bool> {
        match pace {
            Pace::Every(length) => Ok(self.pause(length)),
            Pace::ResetAfter(pieces) if sent_pieces >= pieces => {
                // Closing with a linger of zero sends a reset instead of ending the connection in order.
                rustix::net::sockopt::set_socket_linger(writer, Some(Duration::ZERO))?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Pace::AtOnce | Pace::ResetAfter(_) => Ok(true),
        }
    }

    /// Waits for this long, or until the stop. Returns whether the server still runs.
    pub(super) fn pause(&self, length: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, length, |state| !state.stopped);
        !waited.expect("no thread of the model server panicked").0.stopped
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in listener.incoming() {
        let mut state = shared.lock();
        if state.stopped {
            return;
        }
        let Ok(connection) = connection else { continue };
        let number = state.next_connection;
        state.next_connection += 1;
        state
            .connections
            .insert(number, connection.try_clone().expect("a second handle"));
        let shared = Arc::clone(shared);
        state.workers.push(std::thread::spawn(move || {
            // If the agent closes the connection or is killed, the connection may end with any error.
            serve(connection, &shared).ok();
            shared.lock().connections.remove(&number);
        }));
    }
}

fn serve(connection: TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut writer = connection;
    while let Some(request) = http::read_request(&mut reader)? {
        let keep = match shared.wire {
            Wire::Messages => answer(&mut writer, &request, shared)?,
            Wire::Responses => responses::answer(&mut writer, &request, shared)?,
            Wire::Chat => chat::answer(&mut writer, &request, shared)?,
        };
        if !keep {
            writer.shutdown(Shutdown::Both)?;
            return Ok(());
        }
    }
    Ok(())
}

/// Answers one request. Returns whether the connection stays open.
fn answer(writer: &mut TcpStream, request: &Request, shared: &Shared) -> io::Result<bool> {
    let head_only = request.method == "HEAD";
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let plain = |writer: &mut TcpStream, status: u16, body: &Value| {
        http::write_json(writer, status, &[], body, head_only).map(|()| true)
    };
    match request.path.as_str() {
        "/v1/messages" if request.method == "POST" => {}
        "/v1/messages/count_tokens" => {
            return plain(writer, 200, &json!({"input_tokens": request.body.len() / 4}));
        }
        "/v1/models" => {
            let model = json!({"type": "model", "id": "claude-sonnet-4-5", "display_name": "Scripted", "created_at": "2025-01-01T00:00:00Z"});
            return plain(writer, 200, &json!({"data": [model], "has_more": false}));
        }
        _ if head_only => return plain(writer, 200, &json!({})),
        _ => {
            let error =
                json!({"type": "error", "error": {"type": "not_found_error", "message": "not served"}});
            return plain(writer, 404, &error);
        }
    }

    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| passed.as_secs());
    let (step, answer) = script::answer_to(&body, i64::try_from(now).unwrap_or(i64::MAX));
    let failed_before = shared.record(&body, step);

    let summary = shared.summary().filter(|_| script::asks_for_summary(&body));
    match summary.unwrap_or(answer) {
        Answer::Error(error) if error.times.is_none_or(|times| failed_before < times) => {
            write_error(writer, &error)
        }
        Answer::Error(error) => write_message(writer, &body, &error.then, shared),
        Answer::Silence(length) => {
            if !shared.pause(length) {
                return Ok(false);
            }
            write_message(writer, &body, &Answer::text("after the silence"), shared)
        }
        answer => write_message(writer, &body, &answer, shared),
    }
}

fn write_error(writer: &mut TcpStream, error: &HttpError) -> io::Result<bool> {
    let (kind, message) = match error.status {
        400 => (
            "invalid_request_error",
            "prompt is too long: 250000 tokens > 200000 maximum",
        ),
        401 => ("authentication_error", "invalid x-api-key"),
        403 => ("permission_error", "not allowed"),
        413 => ("request_too_large", "too large"),
        429 => (
            "rate_limit_error",
            "This request would exceed your account's rate limit.",
        ),
        529 => ("overloaded_error", "Overloaded"),
        _ => ("api_error", "scripted error"),
    };
    let mut headers = vec![("retry-after", error.retry_after_seconds.to_string())];
    if let Some(resets_at) = error.limit_resets_at {
        headers.extend([
            ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
            ("anthropic-ratelimit-unified-reset", resets_at.to_string()),
            (
                "anthropic-ratelimit-unified-representative-claim",
                "five_hour".to_owned(),
            ),
            (
                "anthropic-ratelimit-unified-overage-status",
                "rejected".to_owned(),
            ),
        ]);
    }
    let body =
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"});
    http::write_json(writer, error.status, &headers, &body, false)?;
    Ok(true)
}

fn write_message(
    writer: &mut TcpStream,
    request: &Value,
    answer: &Answer,
    shared: &Shared,
) -> io::Result<bool> {
    // Requests outside the conversation, for example for a title, contain the prompt too.
    let is_conversation = script::has_tools(request);
    let prompt = is_conversation.then(|| script::newest_prompt(request).0);
    let tokens = shared.tokens(&prompt.unwrap_or_default());
    // The cache entry lives for an hour, as with a subscription.
    let kept = json!({"ephemeral_1h_input_tokens": 100, "ephemeral_5m_input_tokens": 0});
    let usage = json!({
        "input_tokens": tokens, "cache_creation_input_tokens": 100, "cache_creation": kept, "cache_read_input_tokens": 2000,
        "output_tokens": 40,
    });
    let mut message = json!({
        "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "type": "message", "role": "assistant",
        "model": request["model"], "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let none = Vec::new();
    let (blocks, pace) = match answer {
        Answer::Message { blocks, pace } => (blocks, *pace),
        _ => (&none, Pace::AtOnce),
    };
    let calls_tools = blocks
        .iter()
        .any(|block| matches!(block, AnswerBlock::Tool { .. }));
    let stop_reason = if calls_tools { "tool_use" } else { "end_turn" };

    if request["stream"] != true {
        message["content"] = blocks.iter().map(whole_block).collect();
        message["stop_reason"] = stop_reason.into();
        http::write_json(writer, 200, &[], &message, false)?;
        return Ok(true);
    }

    http::write_head(
        writer,
        200,
        &[("content-type", "text/event-stream".to_owned())],
        None,
    )?;
    event(writer, &json!({"type": "message_start", "message": message}))?;
    if let Answer::StreamError(kind) = answer {
        event(
            writer,
            &json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}}),
        )?;
        return Ok(false);
    }
    let mut sent_pieces = 0;
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = streamed_block(block);
        event(
            writer,
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
        )?;
        for delta in deltas {
            event(
                writer,
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
            )?;
            sent_pieces += 1;
            if !shared.keep_pace(writer, pace, sent_pieces)? {
                return Ok(false);
            }
        }
        event(writer, &json!({"type": "content_block_stop", "index": index}))?;
    }
    let ending = json!({"stop_reason": stop_reason, "stop_sequence": null});
    event(
        writer,
        &json!({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 40}}),
    )?;
    event(writer, &json!({"type": "message_stop"}))?;
    Ok(false)
}

fn event(writer: &mut TcpStream, data: &Value) -> io::Result<()> {
    let name = data["type"].as_str().unwrap_or_default();
    writer.write_all(format!("event: {name}\ndata: {data}\n\n").as_bytes())
}

fn tool_id() -> String {
    format!("toolu_{}", &uuid::Uuid::new_v4().simple().to_string()[..22])
}

fn whole_block(block: &AnswerBlock) -> Value {
    match block {
        AnswerBlock::Text(text) => json!({"type": "text", "text": text}),
        AnswerBlock::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": "c2ln"}),
        AnswerBlock::Tool { name, input } => {
            json!({"type": "tool_use", "id": tool_id(), "name": name, "input": input})
        }
    }
}

/// The start of a block in a stream, and the pieces that follow it.
fn streamed_block(block: &AnswerBlock) -> (Value, Vec<Value>) {
    match block {
        AnswerBlock::Text(text) => {
            let pieces = text
                .split_inclusive(' ')
                .map(|piece| json!({"type": "text_delta", "text": piece}));
            (json!({"type": "text", "text": ""}), pieces.collect())
        }
        AnswerBlock::Thinking(text) => {
            let pieces = vec![
                json!({"type": "thinking_delta", "thinking": text}),
                json!({"type": "signature_delta", "signature": "c2ln"}),
            ];
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                pieces,
            )
        }
        AnswerBlock::Tool { name, input } => {
            let piece = json!({"type": "input_json_delta", "partial_json": input.to_string()});
            (
                json!({"type": "tool_use", "id": tool_id(), "name": name, "input": {}}),
                vec![piece],
            )
        }
    }
}
