//! A daemon of canned answers behind the real socket: what the command line does with them is what is tested.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The stub's one conversation.
pub(crate) const ID: &str = "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d";

/// The result of `conversation/get`, byte for byte: layout and unknown fields that only verbatim printing
/// keeps.
pub(crate) const GET_RESULT: &str = r#"{"conversation": {"id":"5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d","namespace":"","agent":"loopback","cwd":"/home/u/project","title":"Rename","state":"idle","live":false,"head":"up-1","chainLength":1,"settings":{},"interrupts":[],"createdAt":"2026-11-03T09:00:00Z","updatedAt":"2026-11-03T10:00:00Z","revision":3,"later":1.50}}"#;

/// The calls that can take long, and how far each has come as `daemon/work` tells it, in MiB of [`WORK_MIB`].
/// Each is answered when that was asked three times; a list of transcripts only where the query is [`HELD`], and one of
/// checkpoints unless it has only one.
pub(crate) const WORK: [(&str, u64); 16] = [
    ("conversation/export", 1),
    ("conversation/import", 2),
    ("conversation/adopt", 3),
    ("transcript/check", 4),
    ("conversation/history", 5),
    ("conversation/checkpoints", 6),
    ("transcript/list", 7),
    ("conversation/move", 1),
    ("transcript/move", 2),
    ("transcript/undo", 3),
    ("transcript/keep", 4),
    ("transcript/restore", 5),
    ("transcript/forget", 6),
    ("conversation/undo", 6),
    ("conversation/fork", 7),
    ("conversation/edit", 1),
];

/// See [`WORK`].
pub(crate) const WORK_MIB: u64 = 8;

/// See [`WORK`].
pub(crate) const HELD: &str = "held";

/// A conversation that was deleted.
pub(crate) const DELETED: &str = "0e1ed000";

/// A session with a backup whose file differs from it.
pub(crate) const DIFFERS: &str = "up-2";

/// A running stub. It ends when it is dropped.
pub(crate) struct Stub {
    folder: TempDir,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    /// The calls that arrived: method and parameters.
    pub(crate) calls: Arc<Mutex<Vec<(String, Value)>>>,
    /// Tells that one more has arrived.
    called: Arc<Condvar>,
}

#[derive(Clone, Default)]
struct Shared {
    calls: Arc<Mutex<Vec<(String, Value)>>>,
    called: Arc<Condvar>,
    /// What is to be written for each subscription. Their ids are their places, counted over all connections.
    subscribers: Arc<Mutex<Vec<Option<mpsc::UnboundedSender<String>>>>>,
    released: Arc<Notify>,
    /// The question that waits for an answer.
    open: Arc<Mutex<Option<Value>>>,
    /// What the agent has reported of the turn that asks it.
    updates: Arc<Mutex<Vec<Value>>>,
}

impl Stub {
    /// Starts a stub that listens where a daemon of this home would.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        DirBuilder::new().mode(0o700).create(&run).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(run.join("sessiond.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = CancellationToken::new();
        let shared = Shared::default();
        let (calls, called) = (shared.calls.clone(), shared.called.clone());
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = UnixListener::from_std(listener).unwrap();
                until.run_until_cancelled(serve(&listener, shared)).await;
            });
        });
        Self {
            folder,
            stop,
            thread: Some(thread),
            calls,
            called,
        }
    }

    /// The home of this stub.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Waits until a method was called so many times.
    pub(crate) fn wait_for_calls(&self, method: &str, count: usize) {
        let is_short = |calls: &mut Vec<(String, Value)>| {
            calls.iter().filter(|(name, _)| name == method).count() < count
        };
        let calls = self.calls.lock().unwrap();
        drop(self.called.wait_while(calls, is_short).unwrap());
    }

    /// The parameters of the calls of one method.
    pub(crate) fn calls_of(&self, method: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter(|(name, _)| name == method)
            .map(|(_, params)| params.clone())
            .collect()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Serves connections for ever.
async fn serve(listener: &UnixListener, shared: Shared) {
    let methods = Arc::new(methods());
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(connection(stream, methods.clone(), shared.clone()));
    }
}

/// Serves one connection. Answers and events leave in the order in which they are made.
async fn connection(stream: UnixStream, methods: Arc<Methods>, shared: Shared) {
    let (input, mut output) = stream.into_split();
    let mut lines = BufReader::new(input).lines();
    let (to_write, mut written) = mpsc::unbounded_channel::<String>();
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { break };
                calls.spawn(call(line, methods.clone(), shared.clone(), to_write.clone()));
            }
            Some(line) = written.recv() => {
                // A client may leave at any moment.
                if output.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    }
}

/// The commands that the agent has.
const COMMANDS: [&str; 2] = ["clear", "review"];

async fn call(line: String, methods: Arc<Methods>, shared: Shared, to_write: mpsc::UnboundedSender<String>) {
    let request: Value = serde_json::from_str(&line).unwrap();
    let write = |line: String| drop(to_write.send(line));
    if request["method"] == "conversation/subscribe" {
        shared.arrived("conversation/subscribe", request["params"].clone());
        let mut subscribers = shared.subscribers.lock().unwrap();
        let notification = |event: &Value| notification(subscribers.len(), event);
        write(json!({"jsonrpc": "2.0", "id": request["id"], "result": subscribers.len()}).to_string());
        if request["params"]["after"].is_null() {
            let conversation: Value = serde_json::from_str(GET_RESULT).unwrap();
            let updates = shared.updates.lock().unwrap().clone();
            let running = match updates.is_empty() {
                true => Value::Null,
                false => json!({"turnId": "turn-1", "prompt": [], "updates": updates, "truncated": false,
                    "startedAt": "2026-11-03T10:00:00Z"}),
            };
            write(notification(
                &json!({"type": "snapshot", "gap": false, "running": running,
                "conversation": conversation["conversation"], "session": {"commands": COMMANDS.map(|name| json!({"name": name}))}}),
            ));
        } else {
            // What was missed: the rest of the turn.
            write(notification(&update("after the gap")));
            write(notification(&turn_ended("up-1")));
        }
        subscribers.push(Some(to_write.clone()));
        return;
    }
    let answer = match methods.get(request["method"].as_str().unwrap()) {
        Some(method) => method(request["params"].clone(), shared).await,
        None => Err(BridgeError::new(
            ErrorKind::MethodNotFound,
            "there is no such method",
        )),
    };
    let id = &request["id"];
    write(match answer {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string(),
    });
}

/// The result of a call, byte for byte.
type Answer = Result<Box<RawValue>, BridgeError>;

type Methods = HashMap<&'static str, Box<dyn Fn(Value, Shared) -> BoxFuture<'static, Answer> + Send + Sync>>;

fn add<F: Future<Output = Answer> + Send + 'static>(
    methods: &mut Methods,
    name: &'static str,
    act: impl Fn(Value, Shared) -> F + Send + Sync + 'static,
) {
    methods.insert(name, Box::new(move |params, shared| act(params, shared).boxed()));
}

fn methods() -> Methods {
    let mut methods = Methods::new();
    answer(&mut methods, "conversation/get", GET_RESULT);
    add(
        &mut methods,
        "conversation/resolve",
        |params, shared| async move {
            if params["name"] == DELETED {
                let error = BridgeError::new(ErrorKind::NotFound, "no longer known");
                return Err(error
                    .with("conversationId", ID)
                    .with("deletedAt", "2026-11-03T10:00:00.000Z"));
            }
            shared.arrived("conversation/resolve", params);
            let open = shared.open.lock().unwrap().clone();
            raw(&resolve_result(open))
        },
    );
    answer(&mut methods, "conversation/chain", r#"{"links":[]}"#);
    answer(&mut methods, "conversation/list", &list_result());
    answer(&mut methods, "conversation/close", "{}");
    answer(&mut methods, "conversation/unsubscribe", "true");
    answer(&mut methods, "daemon/status", "{}");
    answer(&mut methods, "agent/list", r#"{"agents":[],"install":{}}"#);
    add(&mut methods, "transcript/list", |params, shared| async move {
        if params["query"] == HELD {
            return held(&shared, "transcript/list", params, r#"{"transcripts":[]}"#).await;
        }
        let page = match params["cursor"].is_null() {
            true => transcripts_page(
                "first",
                r#""nextCursor":"1:/t","unreadable":["/t/a"],"unwatched":[{"path":"/t","problem":"too many folders"}]"#,
            ),
            false => transcripts_page("second", r#""unreadable":["/t/a","/t/b"]"#),
        };
        shared.arrived("transcript/list", params);
        raw(&page)
    });
    add(&mut methods, "conversation/delete", |params, shared| async move {
        shared.arrived("conversation/delete", params);
        let archived = json!({"upstreamId": "up-1", "path": "/t/put\naway", "reason": "archived", "message": "archived by it"});
        let failed = json!({"upstreamId": "up-2", "reason": "failed", "message": "no\nagent"});
        let calls = shared.calls.lock().unwrap();
        let deletions = calls.iter().filter(|(method, _)| method == "conversation/delete");
        let remaining = match deletions.count() {
            1 => vec![archived],
            _ => vec![archived, failed],
        };
        raw(&json!({ "remaining": remaining }).to_string())
    });
    for (method, result) in [
        ("conversation/export", r#"{"path":"/t/x","bytes":1}"#),
        ("conversation/import", GET_RESULT),
        ("conversation/adopt", GET_RESULT),
        ("transcript/check", r#"{"findings":[]}"#),
        ("conversation/history", r#"{"messages":[]}"#),
        ("conversation/move", r#"{"plan":[],"moved":0}"#),
        (
            "transcript/move",
            r#"{"plan":[{"from":"/a","to":"/b","kind":"metadata","bytes":0}],"moved":0}"#,
        ),
        ("transcript/undo", r#"{"plan":[],"moved":0}"#),
        ("transcript/keep", r#"{"kept":[],"enabled":true}"#),
        ("transcript/restore", r#"{"restored":[]}"#),
        ("transcript/forget", r#"{"bytes":1}"#),
        ("conversation/undo", &undo_result()),
        ("conversation/fork", &fork_result()),
    ] {
        let result = result.to_owned();
        add(&mut methods, method, move |params, shared| {
            let result = result.clone();
            async move {
                if params["upstreamId"] == DIFFERS {
                    let error = BridgeError::new(ErrorKind::Conflict, "not restored");
                    return Err(error.with("path", "/t/up 2.jsonl"));
                }
                held(&shared, method, params, &result).await
            }
        });
    }
    add(
        &mut methods,
        "conversation/checkpoints",
        |params, shared| async move {
            let none = r#"{"checkpoints":[]}"#;
            // The last one alone is what another command looks up.
            if params["limit"] == 1 {
                return raw(none);
            }
            held(&shared, "conversation/checkpoints", params, none).await
        },
    );
    add(&mut methods, "conversation/edit", |params, shared| async move {
        edited(&shared, params).await
    });
    add(&mut methods, "daemon/work", |params, shared| async move {
        shared.arrived("daemon/work", params);
        let asked = shared.calls.lock().unwrap();
        if asked.iter().filter(|(method, _)| method == "daemon/work").count() == 3 {
            shared.released.notify_waiters();
        }
        let entry = |method: &str, done: u64, total: u64| json!({"method": method, "doneBytes": done, "totalBytes": total});
        // An older call of the same method is not meant.
        let older = WORK.map(|(method, _)| entry(method, 9, 9));
        let meant = WORK.map(|(method, done)| entry(method, done << 20, WORK_MIB << 20));
        let work = [older, meant].concat();
        raw(&json!({"work": work}).to_string())
    });
    add(&mut methods, "conversation/cancel", |params, shared| async move {
        shared.arrived("conversation/cancel", params);
        shared.released.notify_one();
        raw(r#"{"cancelled":true}"#)
    });
    add(
        &mut methods,
        "conversation/respond",
        |params, shared| async move {
            shared.arrived("conversation/respond", params.clone());
            if params["outcome"]["optionId"] == "slow" {
                std::future::pending::<()>().await;
            }
            let by = params["by"].as_str().unwrap_or("client");
            let resolved = json!({"type": "interruptResolved", "interruptId": "int-1", "by": by,
                "outcome": params["outcome"]});
            // The agent may go on before the others hear who answered.
            let splits = params["outcome"]["optionId"] == "split";
            if splits {
                shared.emit(&update("one wo"));
            }
            shared.emit(&resolved);
            if splits {
                shared.emit(&update("rd\nmore"));
            }
            shared.released.notify_one();
            raw("{}")
        },
    );
    add(&mut methods, "conversation/prompt", |params, shared| async move {
        shared.arrived("conversation/prompt", params.clone());
        prompt(&shared, &params).await
    });
    methods
}

/// Answers an edit once `daemon/work` was asked often enough, with its turn.
async fn edited(shared: &Shared, params: Value) -> Answer {
    let prompt = params["prompt"].clone();
    let turn = turn("end_turn", &Value::Null);
    let answer = json!({"turn": turn, "fidelity": "full", "dropped": 0});
    let answer = held(shared, "conversation/edit", params, &answer.to_string()).await?;
    let accepted = json!({"type": "promptAccepted", "turnId": "turn-1", "prompt": prompt});
    shared.emit(&accepted);
    shared.emit(&json!({"type": "turnEnded", "turn": turn}));
    Ok(answer)
}

/// Answers once `daemon/work` was asked often enough.
async fn held(shared: &Shared, method: &str, params: Value, result: &str) -> Answer {
    let over = shared.released.notified();
    shared.arrived(method, params);
    over.await;
    raw(result)
}

fn transcripts_page(title: &str, rest: &str) -> String {
    format!(
        r#"{{"transcripts":[{{"agent":"claude","upstreamId":"{ID}","cwd":"/home/u","title":"{title}","bytes":1,"updatedAt":"2026-11-03T10:00:00Z","path":"/t/{title}.jsonl"}}],{rest}}}"#
    )
}

fn answer(methods: &mut Methods, method: &'static str, result: &str) {
    let result = result.to_owned();
    add(methods, method, move |params, shared| {
        shared.arrived(method, params);
        ready(raw(&result))
    });
}

async fn prompt(shared: &Shared, params: &Value) -> Answer {
    let text = params["prompt"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if text == "busy" {
        return Err(BridgeError::new(ErrorKind::Busy, "a turn is running"));
    }
    if text == "too late" {
        let prompt = [json!({"type": "text", "text": "another client's"})];
        shared.emit(&json!({"type": "promptAccepted", "turnId": "turn-1", "prompt": prompt}));
        shared.emit(&update("for another client\n"));
        return Err(BridgeError::new(ErrorKind::Busy, "a turn is running"));
    }
    shared.emit(&json!({"type": "promptAccepted", "turnId": "turn-1", "prompt": params["prompt"]}));
    let mut failure = Value::Null;
    let mut stop_reason = "end_turn";
    match text.as_str() {
        "limit" => {
            stop_reason = "failed";
            failure = json!({"kind": "rateLimited", "message": "You've hit your limit",
                "resetsAt": "2030-01-01T00:00:00Z", "retryable": true});
        }
        "ask" | "ask for long" | "split" | "slow" | "known" => {
            let option = match text.as_str() {
                "split" | "slow" => text.as_str(),
                _ => "allow_once",
            };
            if text == "known" {
                // The question names this call, and does not repeat what it would run.
                let input = json!({"command": ["rm", "-r", "a b"]});
                let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "rawInput": input});
                shared.emit(&json!({"type": "update", "turnId": "turn-1", "update": call}));
                shared.updates.lock().unwrap().push(call);
            }
            let mut options = vec![json!({"optionId": option, "name": "Allow", "kind": "allow_once"})];
            if text == "ask for long" {
                options
                    .push(json!({"optionId": "for-long", "name": "Allow this tool", "kind": "allow_always"}));
            }
            let call = json!({"toolCallId": "1", "title": "rm a.rs"});
            let interrupt = json!({"id": "int-1", "kind": "permission", "toolCall": call, "options": options,
                "request": {}, "raisedAt": "2026-11-03T10:00:00Z", "orphaned": false});
            shared.emit(&json!({"type": "interruptRaised", "interrupt": interrupt}));
            *shared.open.lock().unwrap() = Some(interrupt);
            shared.released.notified().await;
            *shared.open.lock().unwrap() = None;
        }
        "hang" => {
            shared.emit(&update("hanging"));
            shared.released.notified().await;
            stop_reason = "cancelled";
        }
        // Its cancelling is answered before it ends.
        "deaf" => {
            shared.emit(&update("hanging"));
            shared.released.notified().await;
            shared.emit(&update(" on\n"));
            shared.released.notified().await;
            stop_reason = "cancelled";
        }
        // The second is the agent's own, and the third comes after a tool.
        "messages" => {
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a.rs",
                "status": "completed"});
            shared.emit(&update_of(&json!("msg-1"), "h"));
            shared.emit(&update_of(&json!("msg-1"), "i"));
            shared.emit(&update("**Warning:** slow"));
            shared.emit(&json!({"type": "update", "turnId": "turn-1", "update": call}));
            shared.emit(&update_of(&json!("msg-2"), "done\n\n"));
            shared.emit(&update_of(&json!("msg-3"), "bye"));
        }
        "work" => {
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Run the tests",
                "status": "in_progress"});
            shared.emit(&json!({"type": "update", "turnId": "turn-1", "update": call}));
            shared.released.notified().await;
            stop_reason = "cancelled";
        }
        "think" => {
            let content = json!({"type": "text", "text": "deep\u{1b}[2J\u{9b}31m thought\n"});
            let thought = json!({"sessionUpdate": "agent_thought_chunk", "content": content});
            let entry = |content, status| json!({"content": content, "priority": "low", "status": status});
            let entries = [entry("Look", "completed"), entry("Fix it", "in_progress")];
            let plan = json!({"sessionUpdate": "plan", "entries": entries});
            let cost = json!({"amount": 0.42, "currency": "USD"});
            let usage =
                json!({"sessionUpdate": "usage_update", "used": 24_600, "size": 200_000, "cost": cost});
            for update in [thought, plan, usage] {
                shared.emit(&json!({"type": "update", "turnId": "turn-1", "update": update}));
            }
            shared.emit(&update("thought through"));
        }
        "lag" => {
            shared.emit(&update("before the gap"));
            shared.emit(&json!({"type": "lagged", "cursor": "e1:1"}));
            return raw(&turn("end_turn", &Value::Null).to_string());
        }
        _ => {
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a.rs",
                "status": "completed"});
            shared.emit(&json!({"type": "update", "turnId": "turn-1", "update": call}));
            shared.emit(&update(&format!("echo: {text}")));
        }
    }
    let turn = turn(stop_reason, &failure);
    shared.emit(&json!({"type": "turnEnded", "turn": turn}));
    raw(&turn.to_string())
}

/// The result of a turn.
pub(crate) fn turn(stop_reason: &str, failure: &Value) -> Value {
    json!({"turnId": "turn-1", "stopReason": stop_reason, "failure": failure, "upstreamId": "up-1"})
}

fn turn_ended(upstream: &str) -> Value {
    json!({"type": "turnEnded", "turn": {"turnId": "turn-1", "stopReason": "end_turn", "upstreamId": upstream}})
}

fn update(text: &str) -> Value {
    update_of(&Value::Null, text)
}

/// A part of a message.
fn update_of(message: &Value, text: &str) -> Value {
    json!({"type": "update", "turnId": "turn-1", "update": {"sessionUpdate": "agent_message_chunk",
        "messageId": message, "content": {"type": "text", "text": text}}})
}

fn notification(subscription: usize, event: &Value) -> String {
    let envelope =
        json!({"conversationId": ID, "cursor": "e1:1", "at": "2026-11-03T10:00:00Z", "event": event});
    let params = json!({"subscription": subscription, "result": envelope});
    json!({"jsonrpc": "2.0", "method": "conversation/event", "params": params}).to_string()
}

fn undo_result() -> String {
    let conversation: Value = serde_json::from_str(GET_RESULT).unwrap();
    let link = json!({"upstreamId": "up-1", "agent": "loopback", "cwd": "/home/u/project", "reason": "undone",
        "relation": "carries", "turns": 1, "written": true, "at": "2026-11-03T10:00:00Z"});
    json!({"conversation": conversation["conversation"], "link": link, "dropped": 1}).to_string()
}

fn fork_result() -> String {
    let conversation: Value = serde_json::from_str(GET_RESULT).unwrap();
    json!({"conversation": conversation["conversation"], "fidelity": "full"}).to_string()
}

/// The same conversation as [`GET_RESULT`], laid out otherwise, with the question that is open.
fn resolve_result(open: Option<Value>) -> String {
    let mut conversation: Value = serde_json::from_str(GET_RESULT).unwrap();
    conversation["conversation"]["interrupts"] = open.into_iter().collect();
    conversation.to_string()
}

fn list_result() -> String {
    let conversation: Value = serde_json::from_str(GET_RESULT).unwrap();
    json!({"conversations": [conversation["conversation"]]}).to_string()
}

fn raw(json: &str) -> Answer {
    Ok(RawValue::from_string(json.to_owned()).unwrap())
}

impl Shared {
    fn arrived(&self, method: &str, params: Value) {
        self.calls.lock().unwrap().push((method.to_owned(), params));
        self.called.notify_all();
    }

    fn emit(&self, event: &Value) {
        for (subscription, subscriber) in self.subscribers.lock().unwrap().iter_mut().enumerate() {
            if let Some(to_write) = subscriber {
                let is_there = to_write.send(notification(subscription, event)).is_ok();
                // A subscriber that has left, or was too slow, hears nothing more.
                if !is_there || event["type"] == "lagged" {
                    *subscriber = None;
                }
            }
        }
    }
}
