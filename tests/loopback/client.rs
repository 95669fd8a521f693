//! A small ACP client for tests that runs the loopback agent as a process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// How long anything may take before a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent.
pub(crate) struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    next_id: u64,
}

/// The answer to a request, and all messages before it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Result<Value, Value>,
    pub(crate) before: Vec<Value>,
}

impl Agent {
    /// Starts the agent and initializes it.
    pub(crate) fn start(data: &Path) -> Self {
        let mut agent = Self::start_raw(data);
        let answer = agent.call(
            "initialize",
            json!({ "protocolVersion": 1, "clientCapabilities": {} }),
        );
        assert_eq!(answer.result()["protocolVersion"], 1);
        agent
    }

    pub(crate) fn start_raw(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sessiond"))
            .arg("loopback-agent")
            .arg("--data")
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the agent starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("a pipe");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                let message = serde_json::from_str(&line).expect("every line is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            messages,
            next_id: 0,
        }
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .expect("the agent reads");
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send_line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request and returns its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send_line(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        id
    }

    /// Returns the next message, or `None` if the agent's output has ended.
    pub(crate) fn next_message(&mut self) -> Option<Value> {
        match self.messages.recv_timeout(PATIENCE) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no message from the agent within {PATIENCE:?}"),
        }
    }

    /// Reads up to the first message that fits. Returns it and the messages before it.
    pub(crate) fn read_until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self
                .next_message()
                .unwrap_or_else(|| panic!("no {what} before the end: {before:?}"));
            if fits(&message) {
                return (message, before);
            }
            before.push(message);
        }
    }

    /// Reads up to the answer to a request.
    pub(crate) fn finish(&mut self, id: u64) -> Reply {
        let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == id;
        let (answer, before) = self.read_until("answer", is_answer);
        let outcome = match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        };
        Reply { outcome, before }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Reply {
        let id = self.begin(method, params);
        self.finish(id)
    }

    pub(crate) fn new_session(&mut self, cwd: &Path) -> String {
        let answer = self
            .call("session/new", json!({ "cwd": cwd, "mcpServers": [] }))
            .result();
        answer["sessionId"].as_str().expect("an id").to_owned()
    }

    pub(crate) fn open(&mut self, method: &str, session: &str, cwd: &Path) -> Reply {
        self.call(
            method,
            json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
        )
    }

    pub(crate) fn begin_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.begin(
            "session/prompt",
            json!({ "sessionId": session, "prompt": prompt }),
        )
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> Reply {
        let id = self.begin_prompt(session, text);
        self.finish(id)
    }

    /// The history that the agent has for a prompt, as it recalls it.
    pub(crate) fn recall(&mut self, session: &str) -> Value {
        let reply = self.prompt(session, "[[recall]]");
        serde_json::from_str(&reply.text()).expect("JSON")
    }

    /// The prompts and replies of the history, as the agent recalls them.
    pub(crate) fn recalled(&mut self, session: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let history = self.recall(session);
        let turns = history.as_array().expect("an array");
        turns
            .iter()
            .map(|turn| (text(&turn["user"]), text(&turn["assistant"])))
            .collect()
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({ "sessionId": session }));
    }

    /// Waits for a chunk, which shows that the turn is running.
    pub(crate) fn wait_for_chunk(&mut self) {
        self.read_until("chunk", |message| {
            message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
        });
    }

    /// Closes the agent's input.
    pub(crate) fn end_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits until the agent exits without being killed.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        while self.next_message().is_some() {}
        self.child.wait().expect("a status")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Reply {
    pub(crate) fn result(self) -> Value {
        self.outcome.expect("an answer without error")
    }

    pub(crate) fn error(self) -> Value {
        self.outcome.expect_err("an error")
    }

    pub(crate) fn stop_reason(&self) -> &str {
        let answer = self.outcome.as_ref().expect("an answer without error");
        answer["stopReason"].as_str().expect("a stop reason")
    }

    /// The updates of this kind.
    pub(crate) fn updates(&self, kind: &str) -> Vec<&Value> {
        self.before
            .iter()
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == kind)
            .collect()
    }

    /// The texts of the reply's chunks, joined.
    pub(crate) fn text(&self) -> String {
        self.updates("agent_message_chunk")
            .iter()
            .map(|update| update["content"]["text"].as_str().expect("a text"))
            .collect()
    }
}
