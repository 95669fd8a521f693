//! Clients of the daemon: the client of the `bridge-protocol` crate, and one that reads and writes plain lines.

use bridge_protocol::client::Call as _;
use bridge_protocol::method::{
    Chain, Checkpoints, Close, Fork, GetConversation, History, Lineage, Method, Prompt, Subscribe,
};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::os::fd::AsFd;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_protocol::client::{self, Client};
use bridge_protocol::conversation::{Conversation, ForkAnswer};
use bridge_protocol::diagnosis::{Diagnosis, Diagnostic, DiagnosticKind};
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{LineageEntry, LineageReason, Link, Resumed, Via};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{StopReason, TurnResult};
use bridge_protocol::{ConversationId, ConversationRef, Cursor};
use jsonrpsee::core::client::{Error as ClientError, Subscription};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::error_words;
use crate::contract::{check_answer, check_foretold, check_notification};

/// Longer than any step takes on a busy machine; only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the deadline has passed")
}

/// A typed client that is connected to the socket.
pub(crate) struct App {
    pub(crate) client: Client,
}

/// The result of a prompt, and the agent's reply.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) turn: TurnResult,
    /// The text of the agent's reply in this turn.
    pub(crate) words: String,
}

/// One turn that the agent remembers, from its answer to `[[recall]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Recalled {
    pub(crate) user: String,
    pub(crate) assistant: String,
}

impl App {
    pub(crate) async fn connect(socket: &Path) -> Self {
        Self {
            client: client::connect(socket).await.unwrap(),
        }
    }

    /// Makes a conversation in this folder.
    pub(crate) async fn make(&self, cwd: &str) -> ConversationId {
        self.make_with(cwd, json!({})).await.id
    }

    /// Makes a conversation in this folder, and runs a turn for each of these prompts.
    pub(crate) async fn begun(&self, cwd: &str, prompts: &[&str]) -> ConversationId {
        let id = self.make(cwd).await;
        for prompt in prompts {
            self.send(id, prompt).await;
        }
        id
    }

    /// Makes a conversation with these parameters besides the folder.
    pub(crate) async fn make_with(&self, cwd: &str, with: Value) -> Conversation {
        let mut params = with;
        params["cwd"] = json!(cwd);
        let answer = self.call("conversation/new", params).await.unwrap();
        serde_json::from_value(answer["conversation"].clone()).unwrap()
    }

    /// Makes a call that has to succeed, and returns the id of the conversation in its answer.
    pub(crate) async fn made_by(&self, method: &str, params: Value) -> ConversationId {
        id_in(&self.call(method, params).await.unwrap())
    }

    /// Makes a conversation of this agent, with defaults otherwise.
    pub(crate) async fn make_of(&self, cwd: &str, agent: &str) -> ConversationId {
        self.make_with(cwd, json!({"agent": agent})).await.id
    }

    /// Returns the response to a call whose only parameter is a conversation.
    pub(crate) async fn ask(&self, method: &str, id: impl Serialize) -> Value {
        let answer = self.call(method, json!({"conversationId": id})).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error:?}"))
    }

    /// Makes any call, with parameters as JSON.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, BridgeError> {
        use jsonrpsee::core::client::ClientT;
        use jsonrpsee::core::params::ObjectParams;
        let mut named = ObjectParams::new();
        for (name, value) in params.as_object().unwrap() {
            named.insert(name, value).unwrap();
        }
        let answer = within(self.client.request(method, named)).await.map_err(told);
        answer
            .inspect(|result| check_answer(method, result))
            .inspect_err(|error| check_foretold(method, error.kind.code().into()))
    }

    /// Makes a call that has to succeed.
    pub(crate) async fn answer<M: Method>(&self, method: M) -> M::Answer {
        within(self.client.call(method)).await.unwrap()
    }

    /// Makes a call.
    pub(crate) async fn result<M: Method>(&self, method: M) -> Result<M::Answer, BridgeError> {
        within(self.client.call(method)).await.map_err(told)
    }

    pub(crate) async fn get(&self, id: ConversationId) -> Conversation {
        self.answer(GetConversation {
            conversation_id: id.into(),
        })
        .await
        .conversation
    }

    /// Sends a prompt and returns its result.
    pub(crate) async fn send(&self, id: ConversationId, text: &str) -> TurnResult {
        self.try_send(id, text).await.unwrap()
    }

    pub(crate) async fn try_send(&self, id: ConversationId, text: &str) -> Result<TurnResult, BridgeError> {
        self.result(Prompt {
            conversation_id: id.into(),
            prompt: PromptContent::text(text),
            ..Default::default()
        })
        .await
    }

    /// Sends a prompt. Returns its result and the text of the agent's reply.
    pub(crate) async fn say(&self, id: ConversationId, text: &str) -> Said {
        let mut events = self.events(id).await;
        let (turn, words) = tokio::join!(self.send(id, text), events.words());
        Said { turn, words }
    }

    /// The turns that the agent remembers.
    pub(crate) async fn recall(&self, id: ConversationId) -> Vec<Recalled> {
        let said = self.say(id, "[[recall]]").await;
        assert_eq!(said.turn.stop_reason, StopReason::EndTurn, "{:?}", said.turn);
        serde_json::from_str(said.words.trim()).unwrap_or_else(|error| panic!("{error}: {}", said.words))
    }

    /// The prompts that the agent remembers.
    pub(crate) async fn remembered(&self, id: ConversationId) -> Vec<String> {
        let turns = self.recall(id).await;
        turns.into_iter().map(|turn| turn.user).collect()
    }

    /// The checkpoints of a conversation, oldest first.
    pub(crate) async fn checkpoints(&self, id: ConversationId) -> Vec<Checkpoint> {
        let page = self
            .answer(Checkpoints {
                conversation_id: id.into(),
                ..Default::default()
            })
            .await;
        page.checkpoints.into_iter().rev().collect()
    }

    /// The messages of a conversation, oldest first: the id of each, and the kind of its last part.
    pub(crate) async fn messages(&self, id: ConversationId) -> Vec<(String, String)> {
        let page = self
            .answer(History {
                conversation_id: id.into(),
                ..Default::default()
            })
            .await;
        let told = page.messages.into_iter().map(|message| {
            let kind = message.content.last().map(|part| part.kind.clone());
            (message.id, kind.unwrap_or_default())
        });
        told.collect()
    }

    pub(crate) async fn chain(&self, id: ConversationId) -> Vec<Link> {
        self.answer(Chain {
            conversation_id: id.into(),
        })
        .await
        .links
    }

    /// What a diagnosis without starting agents finds.
    pub(crate) async fn diagnosed(&self) -> Vec<Diagnostic> {
        let answer = self.call("daemon/diagnose", json!({"agents": false})).await;
        serde_json::from_value::<Diagnosis>(answer.unwrap())
            .unwrap()
            .diagnostics
    }

    /// The files and folders that a diagnosis reports as set aside.
    pub(crate) async fn set_aside(&self) -> Vec<PathBuf> {
        let found = self.diagnosed().await.into_iter();
        let found = found.filter(|one| one.kind == DiagnosticKind::SetAside);
        found.filter_map(|one| one.subject).map(PathBuf::from).collect()
    }

    /// The reasons of the lineage's entries, oldest first.
    pub(crate) async fn reasons(&self, id: ConversationId) -> Vec<LineageReason> {
        let lineage = self.lineage(id).await.into_iter();
        lineage.map(|entry| entry.reason).collect()
    }

    pub(crate) async fn lineage(&self, id: ConversationId) -> Vec<LineageEntry> {
        self.answer(Lineage {
            conversation_id: id.into(),
            ..Default::default()
        })
        .await
        .entries
    }

    pub(crate) async fn fork(&self, id: ConversationId, in_place: bool) -> Result<ForkAnswer, BridgeError> {
        self.result(Fork {
            conversation_id: id.into(),
            in_place,
            ..Default::default()
        })
        .await
    }

    /// Resumes a conversation, and returns how that was done.
    pub(crate) async fn resumed(&self, id: ConversationId) -> Resumed {
        serde_json::from_value(self.ask("conversation/resume", id).await["resumed"].clone()).unwrap()
    }

    pub(crate) async fn close(&self, id: ConversationId) {
        self.answer(Close {
            conversation_id: id.into(),
            ..Default::default()
        })
        .await;
    }

    /// Deletes a conversation with its transcripts, and returns the answer.
    pub(crate) async fn erase(&self, id: ConversationId) -> Value {
        let delete = json!({"conversationId": id, "transcripts": "delete"});
        self.call("conversation/delete", delete).await.unwrap()
    }

    /// Subscribes to one conversation; the snapshot comes first.
    pub(crate) async fn events(&self, id: ConversationId) -> Events {
        self.events_of(Some(id), None).await
    }

    pub(crate) async fn events_of(&self, id: Option<ConversationId>, after: Option<Cursor>) -> Events {
        let id = id.map(ConversationRef::from);
        let subscription = within(self.client.events(Subscribe {
            conversation_id: id,
            after,
        }))
        .await
        .unwrap();
        Events { subscription }
    }

    /// Waits until the conversation meets this condition, and returns it.
    pub(crate) async fn once(
        &self,
        id: ConversationId,
        holds: impl Fn(&Conversation) -> bool,
    ) -> Conversation {
        let mut events = self.events(id).await;
        loop {
            events.next().await;
            let conversation = self.get(id).await;
            if holds(&conversation) {
                return conversation;
            }
        }
    }
}

/// The id of the conversation in an answer.
pub(crate) fn id_in(answer: &Value) -> ConversationId {
    serde_json::from_value(answer["conversation"]["id"].clone()).unwrap()
}

/// Converts a daemon's error to the contract's type. Any other failure of the call fails the test.
pub(crate) fn told(error: ClientError) -> BridgeError {
    match error {
        ClientError::Call(error) => error.into(),
        other => panic!("the call failed: {other}"),
    }
}

/// Asserts that a call was refused with this kind. The messages are in one file, see `error_words`.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, BridgeError>, kind: ErrorKind) -> BridgeError {
    let file = Path::new(Location::caller().file()).file_stem().unwrap();
    refused_call(file.to_str().unwrap(), result, kind)
}

/// Does the same as [`refused`] for a call with a name of its own.
#[track_caller]
pub(crate) fn refused_call<T: std::fmt::Debug>(
    call: &str,
    result: Result<T, BridgeError>,
    kind: ErrorKind,
) -> BridgeError {
    let error = result.expect_err(call);
    assert_eq!(error.kind, kind, "{call}: {error:?}");
    assert_eq!(error.retryable, kind.usually_retryable(), "{call}: {error:?}");
    error_words::check(call, json!(kind).as_str().unwrap(), &error.message);
    error
}

/// A subscription.
pub(crate) struct Events {
    pub(crate) subscription: Subscription<EventEnvelope>,
}

impl Events {
    pub(crate) async fn next(&mut self) -> EventEnvelope {
        within(self.subscription.next())
            .await
            .expect("the subscription ended")
            .expect("the event is invalid")
    }

    /// Waits for the first event for which `take` returns a value, and returns that.
    pub(crate) async fn find<T>(&mut self, mut take: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = take(&self.next().await.event) {
                return found;
            }
        }
    }

    /// Waits for the first event of this kind. An update without a turn is only about the session, and can come before
    /// the agent has read a prompt, so it is skipped.
    pub(crate) async fn until(&mut self, kind: &str) -> Event {
        let is_wanted =
            |event: &Event| event.kind() == kind && !matches!(event, Event::Update { turn_id: None, .. });
        self.find(|event| is_wanted(event).then(|| event.clone())).await
    }

    /// Waits for the end of the next turn, and returns all events up to it.
    pub(crate) async fn turn(&mut self) -> Vec<EventEnvelope> {
        let mut events = Vec::new();
        loop {
            let envelope = self.next().await;
            let is_end = matches!(envelope.event, Event::TurnEnded { .. });
            events.push(envelope);
            if is_end {
                return events;
            }
        }
    }

    /// Waits for the end of the next turn, and returns the text of the agent's reply.
    pub(crate) async fn words(&mut self) -> String {
        let events = self.turn().await;
        let updates = events.iter().filter_map(|envelope| match &envelope.event {
            Event::Update { update, .. } => words_of(update),
            _ => None,
        });
        updates.collect()
    }
}

/// The text of a chunk of the agent's reply.
pub(crate) fn words_of(update: &RawJson) -> Option<String> {
    let update: Value = update.read().unwrap();
    if update["sessionUpdate"] != "agent_message_chunk" {
        return None;
    }
    update["content"]["text"].as_str().map(str::to_owned)
}

/// A client that reads and writes plain lines.
pub(crate) struct Raw {
    lines: BufReader<OwnedReadHalf>,
    write_half: OwnedWriteHalf,
    last_id: u64,
    /// The method of each pending request, by the request's id.
    asked: HashMap<u64, String>,
    /// Lines that arrived before the response that was waited for.
    pub(crate) passed: VecDeque<Value>,
}

impl Raw {
    pub(crate) async fn connect(socket: &Path) -> Self {
        let (read_half, write_half) = UnixStream::connect(socket).await.unwrap().into_split();
        Self {
            lines: BufReader::new(read_half),
            write_half,
            last_id: 0,
            asked: HashMap::new(),
            passed: VecDeque::new(),
        }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.write_half.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.asked.insert(id, method.to_owned());
        self.write(format!("{request}\n")).await;
        id
    }

    /// Stops reading, and waits until the daemon has closed the connection, as it does when it cannot send a response.
    pub(crate) async fn hang_up(mut self) {
        let stream = self
            .lines
            .get_ref()
            .as_ref()
            .as_fd()
            .try_clone_to_owned()
            .unwrap();
        rustix::net::shutdown(&stream, Shutdown::Read).unwrap();
        self.send("daemon/status", json!({})).await;
        let closed = tokio::task::spawn_blocking(move || {
            // Without a flag only the peer's close is reported.
            let mut watched = [PollFd::new(&stream, PollFlags::empty())];
            let limit = Timespec::try_from(DEADLINE).unwrap();
            poll(&mut watched, Some(&limit)).unwrap() > 0
        });
        assert!(
            closed.await.unwrap(),
            "the daemon did not close the connection of a client that has left"
        );
    }

    /// The next line, without its end.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        within(self.lines.read_line(&mut line)).await.unwrap();
        assert_eq!(line.pop(), Some('\n'), "the connection ended");
        line
    }

    pub(crate) async fn next(&mut self) -> Value {
        let message: Value = serde_json::from_str(&self.line().await).unwrap();
        if message.get("method").is_some() {
            check_notification(&message);
        }
        message
    }

    /// Waits for the response to a request; lines before it are kept in `passed`.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.next().await;
            if line["id"] == id {
                match (self.asked.remove(&id), line["error"]["code"].as_i64()) {
                    (Some(method), Some(code)) => check_foretold(&method, code),
                    (Some(method), None) => check_answer(&method, &line["result"]),
                    (None, _) => {}
                }
                return line;
            }
            self.passed.push_back(line);
        }
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Subscribes on this connection, and discards the snapshot.
    pub(crate) async fn subscribe(&mut self, id: ConversationId) {
        let answer = self
            .ask("conversation/subscribe", json!({"conversationId": id}))
            .await;
        assert!(
            answer["result"].is_string() || answer["result"].is_u64(),
            "{answer}"
        );
        self.event("snapshot").await;
    }

    /// Waits for the next event of this kind, and discards those before it.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        loop {
            let line = match self.passed.pop_front() {
                Some(line) => line,
                None => self.next().await,
            };
            let event = &line["params"]["result"]["event"];
            if event["type"] == kind {
                return event.clone();
            }
        }
    }

    /// Starts a turn that ends only if it is cancelled. Returns the ids of the request and of the turn.
    pub(crate) async fn hang(&mut self, id: ConversationId) -> (u64, String) {
        self.run(id, "[[say hanging]][[hang]]").await
    }

    /// Subscribes on this connection, sends a prompt, and waits until it is accepted. Returns the ids of the request
    /// and of the turn.
    pub(crate) async fn run(&mut self, id: ConversationId, text: &str) -> (u64, String) {
        self.subscribe(id).await;
        let params = json!({"conversationId": id, "prompt": text});
        let request = self.send("conversation/prompt", params).await;
        let accepted = self.event("promptAccepted").await;
        (request, accepted["turnId"].as_str().unwrap().to_owned())
    }

    /// Sends a request that must be refused in this way, and returns `error.data`.
    pub(crate) async fn refused(&mut self, method: &str, params: Value, expected: Refusal<'_>) -> Value {
        let shown = params.to_string();
        let answer = self.ask(method, params).await;
        expected.check(&answer, &format!("{method} {}", &shown[..shown.len().min(200)]));
        answer["error"]["data"].clone()
    }
}

/// How a request is refused: code, kind, and whether it is retryable. The messages are in one file, see `error_words`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a>(pub(crate) i64, pub(crate) &'a str, pub(crate) bool);

impl Refusal<'_> {
    pub(crate) fn check(self, answer: &Value, what: &str) {
        let Self(code, kind, retryable) = self;
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{what}: {answer}");
        assert_eq!(error["data"]["kind"], kind, "{what}: {answer}");
        assert_eq!(error["data"]["retryable"], retryable, "{what}: {answer}");
        error_words::check(what, kind, error["message"].as_str().unwrap());
    }
}

/// The attempts of a resume: the way of each, and whether it succeeded.
pub(crate) fn tried(resumed: &Resumed) -> Vec<(Via, bool)> {
    resumed
        .attempts
        .iter()
        .map(|attempt| (attempt.via, attempt.error.is_none()))
        .collect()
}
