//! A small blocking ACP client over a child's pipes, for contract tests. It sends requests, collects the
//! agent's messages and waits for them; nothing in it is specific to one agent. It answers permission
//! requests with "allow once".

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// How long a response may take. The slowest ones wait for a process to start on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// How long the agent may take to exit after its input is closed.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Number of stderr lines that are kept to explain a failure.
const STDERR_LINES: usize = 40;

/// A running agent and the client connected to it. Dropping it ends the agent and all its descendants.
pub(crate) struct AcpClient {
    child: Mutex<Child>,
    process: Pid,
    input: Arc<Mutex<Option<ChildStdin>>>,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next_id: u64,
    answers: HashMap<u64, Result<Value, Value>>,
    notifications: Vec<Notification>,
    ended: bool,
    stderr: Vec<String>,
}

/// A notification from the agent.
#[derive(Debug, Clone)]
pub(crate) struct Notification {
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl AcpClient {
    /// Starts an agent with these arguments and only this environment, and initializes it.
    pub(crate) fn initialized(
        (program, arguments): (PathBuf, Vec<PathBuf>),
        environment: Vec<(String, String)>,
        folder: &Path,
    ) -> AcpClient {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(environment)
            .current_dir(folder);
        let client = AcpClient::start(&mut command);
        let params = json!({
            "protocolVersion": 1,
            "clientInfo": {"name": "contract-tests", "version": "1.0.0"},
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
        });
        client.call("initialize", params).expect("initialize");
        client
    }

    /// Starts the agent in a process group of its own.
    pub(crate) fn start(command: &mut Command) -> AcpClient {
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let process = Pid::from_child(&child);
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let shared = Arc::<Shared>::default();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let reader = std::thread::spawn({
            let (shared, input) = (Arc::clone(&shared), Arc::clone(&input));
            move || {
                for line in output.lines().map_while(Result::ok) {
                    receive(&line, &shared, &input);
                }
                shared.lock().ended = true;
                shared.changed.notify_all();
            }
        });
        let error_reader = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for line in errors.lines().map_while(Result::ok) {
                    let kept = &mut shared.lock().stderr;
                    if kept.len() == STDERR_LINES {
                        kept.remove(0);
                    }
                    kept.push(line);
                }
            }
        });
        AcpClient {
            child: Mutex::new(child),
            process,
            input,
            shared,
            readers: vec![reader, error_reader],
        }
    }

    /// Sends a request and waits for its response: the result or the error object.
    pub(crate) fn call(&self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.begin(method, params);
        self.finish(id)
    }

    /// Sends a request and returns its id.
    pub(crate) fn begin(&self, method: &str, params: Value) -> u64 {
        let id = {
            let mut state = self.shared.lock();
            state.next_id += 1;
            state.next_id
        };
        send(
            &self.input,
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
        );
        id
    }

    /// Waits for the response to a request that [`AcpClient::begin`] sent.
    pub(crate) fn finish(&self, id: u64) -> Result<Value, Value> {
        let mut answer = None;
        self.wait(&format!("the answer to request {id}"), |state| {
            answer = state.answers.remove(&id);
            answer.is_some()
        });
        answer.expect("the answer")
    }

    /// Sends a text prompt to a session and waits until the turn ends.
    pub(crate) fn prompt(&self, session_id: &str, text: &str) -> Result<Value, Value> {
        let id = self.begin_prompt(session_id, text);
        self.finish(id)
    }

    /// Sends a text prompt without waiting for the turn.
    pub(crate) fn begin_prompt(&self, session_id: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.begin(
            "session/prompt",
            json!({"sessionId": session_id, "prompt": prompt}),
        )
    }

    /// The notifications received so far.
    pub(crate) fn notifications(&self) -> Vec<Notification> {
        self.shared.lock().notifications.clone()
    }

    /// Waits until a notification satisfies `wanted` and returns it.
    pub(crate) fn wait_notification(
        &self,
        what: &str,
        wanted: impl Fn(&Notification) -> bool,
    ) -> Notification {
        let mut found = None;
        self.wait(what, |state| {
            found = state
                .notifications
                .iter()
                .find(|notification| wanted(notification))
                .cloned();
            found.is_some()
        });
        found.expect("the notification")
    }

    /// Closes the agent's input and waits until the agent exits.
    pub(crate) fn stop(self) {
        drop(self);
    }

    /// Sends SIGKILL to the agent and all its descendants at once, so that none of them can clean up.
    pub(crate) fn kill(self) {
        self.kill_all();
    }

    fn kill_all(&self) {
        // The descendants must be found while the agent lives: afterwards their parent is no longer visible.
        // All are stopped before any is killed, so that none notices another's death and cleans up.
        let mut processes = descendants(self.process);
        processes.push(self.process);
        signal_all(&processes, Signal::STOP);
        signal_all(&processes, Signal::KILL);
    }

    fn wait(&self, what: &str, mut done: impl FnMut(&mut State) -> bool) {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut state = self.shared.lock();
        while !done(&mut state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!state.ended, "the agent ended before {what}: {:#?}", state.stderr);
            assert!(
                !left.is_zero(),
                "no {what} within {ANSWER_LIMIT:?}: {:#?}",
                state.stderr
            );
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        let family = descendants(self.process);
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = {
            let state = self.shared.lock();
            let waited = self
                .shared
                .changed
                .wait_timeout_while(state, END_LIMIT, |state| !state.ended);
            waited.unwrap_or_else(PoisonError::into_inner).0.ended
        };
        if !ended {
            self.kill_all();
        }
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wait()
            .ok();
        // The adapter waits for the processes of its sessions, but not for the short-lived ones that query
        // the account. Those would still write into folders that are about to be deleted.
        signal_all(&family, Signal::KILL);
        for reader in self.readers.drain(..) {
            reader.join().ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(input: &Mutex<Option<ChildStdin>>, message: &Value) {
    if let Some(input) = input.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        // If the agent is dead, its output ends too, and `wait` reports that.
        input.write_all(format!("{message}\n").as_bytes()).ok();
    }
}

fn receive(line: &str, shared: &Shared, input: &Mutex<Option<ChildStdin>>) {
    let Ok(mut message) = serde_json::from_str::<Value>(line) else {
        return;
    };
    let method = message["method"].as_str().map(str::to_owned);
    match (method, message["id"].clone()) {
        (Some(method), Value::Null) => {
            let params = message["params"].take();
            shared.lock().notifications.push(Notification { method, params });
            shared.changed.notify_all();
        }
        (Some(method), id) => {
            let answer = match allow(&method, &message["params"]) {
                Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                None => {
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
                }
            };
            send(input, &answer);
        }
        (None, id) => {
            let Some(id) = id.as_u64() else { return };
            let answer = match message.get("error") {
                Some(error) => Err(error.clone()),
                None => Ok(message["result"].take()),
            };
            shared.lock().answers.insert(id, answer);
            shared.changed.notify_all();
        }
    }
}

fn allow(method: &str, params: &Value) -> Option<Value> {
    if method != "session/request_permission" {
        return None;
    }
    let options = params["options"].as_array()?;
    let option = options.iter().find(|option| option["kind"] == "allow_once")?;
    Some(json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}}))
}

fn signal_all(processes: &[Pid], signal: Signal) {
    for process in processes {
        // A process that has already ended needs no signal.
        rustix::process::kill_process(*process, signal).ok();
    }
}

/// All descendants of a process, as far as `/proc` lists them.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The process name in parentheses may contain anything, so fields are counted after it: the parent is
        // the second.
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        if let Some(parent) = parent {
            parents.insert(process, parent);
        }
    }
    let mut found = vec![root.as_raw_nonzero().get()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| **of == parent)
                .map(|(process, _)| *process),
        );
        at += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}
