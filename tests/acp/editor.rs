//! An editor that reads and writes JSON lines.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value, json};

use super::{DEADLINE, Home};

/// A running `sessionctl acp` with this test as its editor. Dropping it kills the process.
pub(super) struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    /// The id of the next request.
    pub(super) next_id: u64,
    /// The methods of the requests sent, by id.
    pub(super) methods: HashMap<u64, String>,
    /// Every line received.
    pub(super) received: Vec<String>,
}

/// Polls until the condition holds.
#[track_caller]
pub(super) fn eventually(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(
            Instant::now() < end,
            "the condition does not hold after {DEADLINE:?}"
        );
    }
}

/// The answer to a request, and the messages received before it.
#[derive(Debug)]
pub(super) struct Answered {
    /// The answer itself.
    pub(super) answer: Value,
    /// The messages before the answer, in order.
    pub(super) before: Vec<Value>,
}

impl Answered {
    /// The result of a successful request.
    pub(super) fn result(&self) -> &Value {
        let result = self.answer.get("result");
        result.unwrap_or_else(|| panic!("{:#}", self.answer))
    }

    /// The id of the session that the request created or opened.
    pub(super) fn session_id(&self) -> String {
        self.result()["sessionId"].as_str().unwrap().to_owned()
    }

    /// The error code of a failed request.
    pub(super) fn code(&self) -> i64 {
        let code = self.answer["error"]["code"].as_i64();
        code.unwrap_or_else(|| panic!("{:#}", self.answer))
    }

    /// The updates before the answer.
    pub(super) fn updates(&self) -> Vec<&Value> {
        let updates = self
            .before
            .iter()
            .filter(|message| message["method"] == "session/update");
        updates.map(|message| &message["params"]["update"]).collect()
    }

    /// The kinds of the updates before the answer.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let updates = self.updates().into_iter();
        updates
            .map(|update| update["sessionUpdate"].as_str().unwrap())
            .collect()
    }

    /// The texts of the chunks of this kind before the answer.
    pub(super) fn texts(&self, kind: &str) -> Vec<&str> {
        let updates = self.updates().into_iter();
        let chunks = updates.filter(|update| update["sessionUpdate"] == kind);
        chunks
            .filter_map(|chunk| chunk["content"]["text"].as_str())
            .collect()
    }

    /// The text of the agent's messages before the answer.
    pub(super) fn said(&self) -> String {
        self.texts("agent_message_chunk").concat()
    }
}

impl Editor {
    /// Starts `sessionctl acp` and initializes it without capabilities.
    pub(super) fn start(home: &Home) -> Self {
        Self::with(home, json!({}))
    }

    /// Starts `sessionctl acp` and initializes it with these capabilities.
    pub(super) fn with(home: &Home, capabilities: Value) -> Self {
        let params = json!({"clientCapabilities": capabilities});
        Self::initialized(&mut command(home, &[]), params).0
    }

    /// Starts `sessionctl acp` and creates a session.
    pub(super) fn in_session(home: &Home) -> (Self, String) {
        let mut editor = Self::start(home);
        let session = editor.new_session(home);
        (editor, session)
    }

    /// Starts `sessionctl acp`, creates a session, and sends the prompt `one`.
    pub(super) fn after_one_turn(home: &Home) -> (Self, String) {
        let (mut editor, session) = Self::in_session(home);
        editor.prompt(&session, "one").result();
        (editor, session)
    }

    /// Starts this command and initializes it with these parameters. Also returns the result of `initialize`.
    pub(super) fn initialized(command: &mut Command, mut params: Value) -> (Self, Value) {
        let mut editor = Self::spawn(command);
        params["protocolVersion"] = json!(1);
        let about = editor.call("initialize", params).result().clone();
        (editor, about)
    }

    /// Starts this command without sending anything.
    pub(super) fn spawn(command: &mut Command) -> Self {
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test may already have ended.
                let _unread = sender.send(line);
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            errors: Some(errors),
            next_id: 101,
            methods: HashMap::new(),
            received: Vec::new(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line unchanged.
    pub(super) fn line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a notification.
    pub(super) fn notify(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.line(&message.to_string());
    }

    /// Sends a request and returns its id.
    pub(super) fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.methods.insert(id, method.to_owned());
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.line(&message.to_string());
        id
    }

    /// Waits for the next message.
    pub(super) fn next(&mut self) -> Value {
        serde_json::from_str(&self.next_line()).unwrap()
    }

    /// Waits for the next message and returns its bytes unchanged.
    pub(super) fn next_line(&mut self) -> String {
        let line = self.lines.recv_timeout(DEADLINE);
        let line = line.unwrap_or_else(|error| panic!("no message: {error}"));
        self.received.push(line.clone());
        line
    }

    /// Returns the messages up to and including the first one that is wanted.
    pub(super) fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.next();
            let is_last = wanted(&message);
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// Waits for the chunk with this text.
    pub(super) fn until_said(&mut self, text: &str) {
        self.until(|message| message["params"]["update"]["content"]["text"] == text);
    }

    /// Waits for a request of the agent with this method, and returns it.
    pub(super) fn until_asked(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method).pop().unwrap()
    }

    /// Waits until the agent asks for permission, and returns the request.
    pub(super) fn until_permission_asked(&mut self) -> Value {
        self.until_asked("session/request_permission")
    }

    /// Waits for the answer to a request.
    pub(super) fn finish(&mut self, id: u64) -> Answered {
        let mut before = self.until(|message| message["id"] == id && message.get("method").is_none());
        let answer = before.pop().unwrap();
        Answered { answer, before }
    }

    /// Sends a request and waits for its answer.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Answered {
        let id = self.begin(method, params);
        self.finish(id)
    }

    /// Answers a request of the agent.
    pub(super) fn answer(&mut self, request: &Value, result: Value) {
        let message = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.line(&message.to_string());
    }

    /// Answers a permission request with "allow once".
    pub(super) fn allow(&mut self, question: &Value) {
        self.answer(
            question,
            json!({"outcome": {"outcome": "selected", "optionId": "allow_once"}}),
        );
    }

    /// Answers a request of the agent with the error that the method is unknown.
    pub(super) fn refuse(&mut self, request: &Value) {
        let error = json!({"code": -32601, "message": "unknown method"});
        let message = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
        self.line(&message.to_string());
    }

    /// Creates a session in the home's project and returns its id.
    pub(super) fn new_session(&mut self, home: &Home) -> String {
        let params = json!({"cwd": home.project(), "mcpServers": []});
        self.call("session/new", params).session_id()
    }

    /// Creates a session with this agent and returns its id.
    pub(super) fn new_session_of(&mut self, agent: &str, home: &Home) -> String {
        let meta = json!({"sessiond": {"agent": agent}});
        let params = json!({"cwd": home.project(), "mcpServers": [], "_meta": meta});
        self.call("session/new", params).session_id()
    }

    pub(super) fn begin_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.begin("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    pub(super) fn prompt(&mut self, session: &str, text: &str) -> Answered {
        let id = self.begin_prompt(session, text);
        self.finish(id)
    }

    /// Starts a turn that runs until it is cancelled.
    pub(super) fn begin_endless(&mut self, session: &str) -> u64 {
        let id = self.begin_prompt(session, "[[say begun]] [[hang]]");
        self.until_said("begun");
        id
    }

    /// Sends a request that opens a session or refers to one.
    pub(super) fn begin_on(&mut self, method: &str, session: &str, home: &Home) -> u64 {
        let params = json!({"sessionId": session, "cwd": home.project(), "mcpServers": []});
        self.begin(method, params)
    }

    /// Sends such a request and waits for its answer.
    pub(super) fn on(&mut self, method: &str, session: &str, home: &Home) -> Answered {
        let id = self.begin_on(method, session, home);
        self.finish(id)
    }

    /// Sets the mode `plan` and the model `loop-2` without waiting for the answers.
    pub(super) fn begin_settings(&mut self, session: &str) -> [u64; 2] {
        let mode = json!({"sessionId": session, "modeId": "plan"});
        let option = json!({"sessionId": session, "configId": "model", "value": "loop-2"});
        [
            self.begin("session/set_mode", mode),
            self.begin("session/set_config_option", option),
        ]
    }

    /// The prompts of the history that the agent really has.
    pub(super) fn recalled(&mut self, session: &str) -> Vec<String> {
        let told = self.prompt(session, "[[recall]]").said();
        let turns: Vec<Value> = serde_json::from_str(&told).unwrap();
        let prompts = turns.iter().map(|turn| turn["user"].as_str().unwrap().to_owned());
        prompts.collect()
    }

    pub(super) fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session}));
    }

    pub(super) fn close(&mut self, session: &str) -> Answered {
        self.call("session/close", json!({"sessionId": session}))
    }

    pub(super) fn delete(&mut self, session: &str) -> Answered {
        self.call("session/delete", json!({"sessionId": session}))
    }

    /// Closes the input. Returns the exit status and the stderr of the process.
    pub(super) fn end(mut self) -> (ExitStatus, String) {
        self.input = None;
        self.ended()
    }

    /// Kills the process at once.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the process ends. Returns its exit status and stderr.
    pub(super) fn ended(&mut self) -> (ExitStatus, String) {
        // The output ends with the process.
        let end = loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => self.received.push(line),
                Err(end) => break end,
            }
        };
        assert_eq!(end, RecvTimeoutError::Disconnected, "the process does not end");
        let said = self.errors.take().unwrap().join().unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// An editor connected directly to the socket, so that no process in between reads for it.
pub(super) struct Stalled {
    pub(super) stream: UnixStream,
}

impl Stalled {
    pub(super) fn start(home: &Home) -> Self {
        let stream = UnixStream::connect(home.path().join("run/acp.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream }
    }

    /// Opens a session, and reads only up to the answer.
    pub(super) fn open(&mut self, session: &str, home: &Home) {
        let params = json!({"sessionId": session, "cwd": home.project(), "mcpServers": []});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "session/resume", "params": params});
        self.line(&request.to_string());
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            self.stream.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        let answer: Value = serde_json::from_slice(&line).unwrap();
        assert!(answer["result"].is_object(), "{answer}");
    }

    pub(super) fn line(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Begins to load a session whose history is larger than what the socket buffers, and reads only its beginning.
    pub(super) fn begin_load(&mut self, session: &str, home: &Home) {
        let params = json!({"sessionId": session, "cwd": home.project(), "mcpServers": []});
        self.line(
            &json!({"jsonrpc": "2.0", "id": "load", "method": "session/load", "params": params}).to_string(),
        );
        self.stream.read_exact(&mut [0; 256]).unwrap();
    }

    /// Reads to the end of the connection. Returns the number of bytes.
    pub(super) fn rest(mut self) -> usize {
        self.stream.read_to_end(&mut Vec::new()).unwrap()
    }
}

/// `sessionctl acp` with an environment that refers only to this home.
pub(super) fn command(home: &Home, arguments: &[&str]) -> Command {
    let mut command = sessionctl(home, &["acp"]);
    command.args(arguments);
    command
}

/// `sessionctl` with an environment that refers only to this home.
pub(super) fn sessionctl(home: &Home, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("SESSIOND_HOME", home.path())
        .current_dir("/");
    command
}

/// Runs `sessionctl`, which must succeed.
pub(super) fn run(home: &Home, arguments: &[&str]) -> Output {
    let output = sessionctl(home, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

/// Reads the conversation of a session.
pub(super) fn show(home: &Home, session: &str) -> Value {
    let output = run(home, &["show", "--json", session]);
    let mut shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["conversation"].take()
}
