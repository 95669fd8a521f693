//! Runs the clients of `packaging/clients` against a real daemon: with a question, a lost connection, a
//! daemon that is killed, and one that is stopped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::lchown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bridge_protocol::{BridgeError, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{SOURCE, command, has, said};
use crate::home::{kill_now, wait_for_end};

/// The prompt of the turns: words, a question, and words after it. The character after the first word is a
/// Unicode line separator, at which a JSON line must not be split.
const PROMPT: &str = "[[say one\u{2028}]][[ask may I?]][[say two]]";

/// How long a client may run. A client that waits forever is killed after this time. The Rust program may
/// also have to wait for another build.
const CLIENT_LIMIT: Duration = Duration::from_secs(600);

/// The line from the daemon at which the first connection is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// Before the response that contains the new conversation.
    Made,
    /// At the same line, and the client gets an error instead that says the daemon is stopping.
    Stopping,
    /// Before the agent's first words.
    Words,
    /// Within the line of the first words, and within a character.
    WithinWords,
    /// At the first words the subscriber is reported as too slow and gets nothing more.
    Lagged,
    /// Before the first words, and the daemon no longer has the events after the client's cursor.
    Gap,
    /// After the question, so that the answer to it is lost.
    Question,
    /// Before the result of the turn.
    Result,
}

const LOSSES: [Loss; 8] = [
    Loss::Made,
    Loss::Stopping,
    Loss::Words,
    Loss::WithinWords,
    Loss::Lagged,
    Loss::Gap,
    Loss::Question,
    Loss::Result,
];

/// The programs that use the client modules, each with its interpreter.
const SCRIPTS: [(&str, &str); 2] = [
    ("node", "packaging/clients/chat.mjs"),
    ("python3", "packaging/clients/chat.py"),
];

/// How many lines a program may have that shows how to use a client.
const LINES: usize = 60;

/// The id of another user.
const STRANGER: u32 = 65534;

/// A client under test.
struct Program {
    /// The program and its first arguments.
    command: Vec<&'static str>,
    /// Whether the program uses one of the client modules, which find the socket and reconnect. Such a
    /// program gets the socket from its environment, asks questions on its standard streams, and reports a
    /// gap.
    has_client: bool,
}

impl Program {
    fn script(interpreter: &'static str, file: &'static str) -> Self {
        Self {
            command: vec![interpreter, file],
            has_client: true,
        }
    }

    /// The Rust program, started as its first line says.
    fn rust() -> Self {
        let command = vec![
            env!("CARGO"),
            "run",
            "--quiet",
            "--locked",
            "--example",
            "chat",
            "--",
        ];
        Self {
            command,
            has_client: false,
        }
    }

    /// Starts the program on this socket with these arguments.
    fn start(&self, socket: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(self.command[0]);
        command.args(&self.command[1..]);
        match self.has_client {
            true => command
                .env("SESSIOND_SOCKET", socket)
                .env("PYTHONDONTWRITEBYTECODE", "1"),
            false => command.arg(socket),
        };
        command.args(arguments).current_dir(SOURCE);
        Running::start(command)
    }

    /// Runs the program until it ends. If it asks the question of [`PROMPT`], the first option is typed.
    fn run(&self, socket: &Path, arguments: &[&str]) -> Output {
        let mut running = self.start(socket, arguments);
        // Searched with the options after it, because the list of conversations may contain the prompt as a
        // title.
        if running.read_until("may I? (") {
            // If the question is answered elsewhere, the program may already have ended.
            let _ended = running.child.stdin.as_mut().unwrap().write_all(b"1\n");
        }
        running.end()
    }
}

/// A running client; it is killed after [`CLIENT_LIMIT`].
pub(super) struct Running {
    child: Child,
    printed: Vec<u8>,
    /// Dropped when the client has ended, which cancels the kill.
    _ended: mpsc::SyncSender<()>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let (ended, end) = mpsc::sync_channel(1);
        let pid = Pid::from_child(&child);
        std::thread::spawn(move || {
            if end.recv_timeout(CLIENT_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                kill_process(pid, Signal::KILL).unwrap();
            }
        });
        Self {
            child,
            printed: Vec::new(),
            _ended: ended,
        }
    }

    /// Reads the output up to this text. Returns false if the output ends first.
    pub(super) fn read_until(&mut self, text: &str) -> bool {
        let (stdout, mut next) = (self.child.stdout.as_mut().unwrap(), [0]);
        while !self.printed.ends_with(text.as_bytes()) {
            if stdout.read(&mut next).unwrap() == 0 {
                return false;
            }
            self.printed.push(next[0]);
        }
        true
    }

    /// Waits until the client ends, and returns its whole output.
    pub(super) fn end(mut self) -> Output {
        let mut output = self.child.wait_with_output().unwrap();
        self.printed.append(&mut output.stdout);
        Output {
            stdout: self.printed,
            ..output
        }
    }
}

/// A daemon in its own folder, with one conversation.
pub(super) struct Daemon {
    folder: tempfile::TempDir,
}

impl Daemon {
    pub(super) fn start() -> Self {
        Self::configured("")
    }

    fn configured(config: &str) -> Self {
        // The path of a socket is limited in length.
        let daemon = Self {
            folder: tempfile::tempdir_in("/tmp").unwrap(),
        };
        let folder = daemon.folder.path().join("sessiond/config");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), config).unwrap();
        daemon.sessionctl(&["new", "--agent", "loopback", "--title", "earlier"]);
        daemon
    }

    fn sessionctl(&self, arguments: &[&str]) -> String {
        let mut command = command(env!("CARGO_BIN_EXE_sessionctl"), self.folder.path());
        command.stdin(Stdio::null());
        said("sessionctl", &command.args(arguments).output().unwrap())
    }

    fn answer(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.sessionctl(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sessiond/run/sessiond.sock")
    }

    fn project(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    /// Creates a socket that forwards to the daemon's and loses the first connection as `loss` says.
    fn behind(&self, loss: Loss) -> PathBuf {
        let path = self.folder.path().join("lossy.sock");
        let (listener, real) = (UnixListener::bind(&path).unwrap(), self.socket());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (client, daemon) = (client.unwrap(), UnixStream::connect(&real).unwrap());
                let (from, to) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
                std::thread::spawn(move || pass_requests(&from, &to, loss));
                std::thread::spawn(move || pass_on(&daemon, &client, (number == 0).then_some(loss)));
            }
        });
        path
    }

    /// Starts a program that uses a client module of `packaging/clients`.
    pub(super) fn run_script(&self, interpreter: &str, script: &str) -> Running {
        let mut command = Command::new(interpreter);
        match interpreter {
            "node" => command.args(["--input-type=module", "-e"]),
            _ => command.arg("-c"),
        };
        command.arg(script).current_dir(SOURCE);
        command
            .env("SESSIOND_HOME", self.folder.path().join("sessiond"))
            .env_remove("SESSIOND_SOCKET");
        command
            .env("PYTHONPATH", "packaging/clients")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Running::start(command)
    }

    /// Runs a turn in the daemon's folder and returns the output of the program.
    fn chat(&self, program: &Program, prompt: &str) -> Output {
        program.run(&self.socket(), &[self.project(), prompt])
    }

    /// The ids of all conversations, newest first.
    pub(super) fn conversations(&self) -> Vec<String> {
        let listed = self.answer(&["ls"]);
        let ids = listed["conversations"].as_array().unwrap().iter();
        ids.map(|conversation| conversation["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The texts of the newest conversation whose author has this role.
    pub(super) fn texts(&self, role: &str) -> Vec<String> {
        let history = self.answer(&["history", &self.conversations()[0]]);
        let messages = history["messages"].as_array().unwrap().iter();
        // Some messages with a `kind` have the user's role, such as the note that a turn was interrupted.
        let of_role = messages.filter(|message| message["role"] == role && message["kind"].is_null());
        let parts = of_role.flat_map(|message| message["content"].as_array().unwrap());
        let texts = parts.filter(|part| part["type"] == "text");
        texts
            .map(|part| part["text"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Kills the daemon with SIGKILL and waits until it has ended.
    pub(super) fn kill(&self) {
        let pid = u32::try_from(self.answer(&["status"])["pid"].as_u64().unwrap()).unwrap();
        kill_now(pid);
        wait_for_end(pid);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.sessionctl(&["stop", "--no-start"]);
    }
}

/// Forwards the client's requests. For [`Loss::Gap`], replaces each cursor by one that the daemon does not
/// know.
fn pass_requests(client: &UnixStream, mut daemon: &UnixStream, loss: Loss) {
    for line in BufReader::new(client).lines() {
        let Ok(mut line) = line else { break };
        if loss == Loss::Gap {
            let mut request: Value = serde_json::from_str(&line).unwrap();
            if let Some(after @ Value::String(_)) = request["params"].get_mut("after") {
                *after = "not-held".into();
            }
            line = request.to_string();
        }
        if daemon.write_all(format!("{line}\n").as_bytes()).is_err() {
            break;
        }
    }
    // The connection ends when either side ends.
    let _shut = daemon.shutdown(Shutdown::Both);
}

fn pass_on(daemon: &UnixStream, mut client: &UnixStream, loss: Option<Loss>) {
    let mut state = LossState::default();
    for line in BufReader::new(daemon).lines() {
        let Ok(line) = line else { break };
        let (passed, is_last) = match loss {
            Some(loss) => lossy(loss, &line, &mut state),
            None => (format!("{line}\n").into_bytes(), false),
        };
        if client.write_all(&passed).is_err() || is_last {
            break;
        }
    }
    let _shut = (client.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
}

#[derive(Default)]
struct LossState {
    /// The cursor of the previous event.
    cursor: Value,
    /// The subscription that received `lagged`.
    lagging: Option<Value>,
}

/// Returns the bytes of a line that the client receives, and whether the connection ends after them.
fn lossy(loss: Loss, line: &str, state: &mut LossState) -> (Vec<u8>, bool) {
    let mut message: Value = serde_json::from_str(line).unwrap();
    let subscription = message["params"]["subscription"].clone();
    let envelope = &mut message["params"]["result"];
    let is_question = envelope["event"]["type"] == "interruptRaised";
    let has_words = envelope["event"]["update"]["sessionUpdate"] == "agent_message_chunk";
    if loss == Loss::Lagged && state.lagging.as_ref() == Some(&subscription) {
        return (Vec::new(), false);
    }
    if loss == Loss::Lagged && has_words && state.lagging.is_none() {
        state.lagging = Some(subscription);
        envelope["event"] = json!({"type": "lagged", "cursor": state.cursor});
        envelope["cursor"] = state.cursor.clone();
        return (format!("{message}\n").into_bytes(), false);
    }
    state.cursor = envelope["cursor"].clone();
    let (id, is_conversation) = (&message["id"], message["result"]["conversation"].is_object());
    match loss {
        Loss::Made if is_conversation => (Vec::new(), true),
        Loss::Stopping if is_conversation => {
            let error = BridgeError::new(ErrorKind::ShuttingDown, "the daemon is stopping");
            let (code, text, data) = (error.kind.code(), &error.message, error.data());
            let error = json!({"code": code, "message": text, "data": data});
            let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
            (format!("{answer}\n").into_bytes(), true)
        }
        Loss::Words | Loss::Gap if has_words => (Vec::new(), true),
        Loss::WithinWords if has_words => {
            let within = line.find('\u{2028}').unwrap() + 1;
            (line.as_bytes()[..within].to_owned(), true)
        }
        Loss::Result if message["result"]["stopReason"].is_string() => (Vec::new(), true),
        loss => (
            format!("{line}\n").into_bytes(),
            loss == Loss::Question && is_question,
        ),
    }
}

/// Checks that the program printed the list once, each of the agent's words once, and how the turn ended.
fn check(printed: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].ends_with(" earlier"), "{printed}");
    assert_eq!(lines[lines.len() - 1], "end_turn", "{printed}");
    let words = lines[1..lines.len() - 1].concat();
    for (word, times) in [("earlier", 0), ("one", 1), ("two", 1)] {
        assert_eq!(words.matches(word).count(), times, "{printed}");
    }
}

/// The message of the programs when the daemon no longer has all events.
const MISSED: &str = "(events were missed)";

/// Runs a turn without a loss, a turn on a new daemon for each loss, and then every other failure.
fn check_program(program: &Program) {
    let daemon = Daemon::start();
    check(&said("a turn", &daemon.chat(program, PROMPT)));
    // A program without a client module does not notice a gap and does not look for what it missed.
    for loss in LOSSES
        .into_iter()
        .filter(|loss| program.has_client || *loss != Loss::Gap)
    {
        let daemon = Daemon::start();
        let output = program.run(&daemon.behind(loss), &[daemon.project(), PROMPT]);
        check(&said(&format!("{:?} {loss:?}", program.command), &output));
        assert_eq!(daemon.conversations().len(), 2, "{loss:?}");
        assert_eq!(daemon.texts("user"), [PROMPT], "{loss:?}");
        let reports_gap = String::from_utf8_lossy(&output.stderr).contains(MISSED);
        assert_eq!(reports_gap, loss == Loss::Gap, "{loss:?}");
    }
    check_failures(program, &daemon);
    check_answered_by_another(program);
    check_killed(program);
    check_stopped(program);
}

/// Checks that an error other than a lost connection is reported and ends the program.
fn check_failures(program: &Program, daemon: &Daemon) {
    let failed = daemon.chat(program, "[[fail overloaded]]");
    let printed = String::from_utf8_lossy(&failed.stdout);
    assert!(printed.ends_with("\nfailed\n"), "{failed:?}");
    assert_ends(&failed, "verloaded");
    assert_ends(&program.run(&daemon.socket(), &["/nowhere", PROMPT]), "1004");
    assert_ends(&program.run(&daemon.socket(), &["/nowhere"]), "FOLDER PROMPT");
}

fn assert_ends(output: &Output, why: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains(why) && !printed.contains("Traceback"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Checks a turn whose question the configuration answers before the client does.
fn check_answered_by_another(program: &Program) {
    let daemon = Daemon::configured("[agents.loopback]\ninterrupts = \"deny\"\n");
    let printed = said("an answered question", &daemon.chat(program, PROMPT));
    assert!(
        printed.contains("one") && printed.ends_with("\nend_turn\n"),
        "{printed}"
    );
}

/// Checks that a turn fails when the daemon is killed, and that the next daemon does not run it again.
fn check_killed(program: &Program) {
    let daemon = Daemon::start();
    let prompt = "[[say begun]][[stream 500 20]]";
    let mut running = program.start(&daemon.socket(), &[daemon.project(), prompt]);
    assert!(running.read_until("begun"));
    daemon.kill();
    // The command starts the next daemon.
    assert_eq!(daemon.conversations().len(), 2);
    let ended = running.end();
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(printed.ends_with("\nfailed\n"), "{printed}");
    assert_ends(&ended, "daemon");
    assert_eq!(daemon.texts("user"), [prompt]);
    assert_eq!(printed.matches("begun").count(), 1, "{printed}");
    if program.has_client {
        // The program also prints what the agent wrote while the daemon was killed; it gets that from the
        // history.
        let answer = daemon.texts("assistant").concat();
        assert!(printed.contains(&answer), "{printed}\n{answer}");
    }
}

/// Checks that a daemon that stops cancels the turn and still sends the response.
fn check_stopped(program: &Program) {
    let daemon = Daemon::start();
    let mut running = program.start(&daemon.socket(), &[daemon.project(), "[[say begun]][[hang]]"]);
    assert!(running.read_until("begun"));
    daemon.sessionctl(&["stop"]);
    let printed = said("a stopped daemon", &running.end());
    assert!(printed.ends_with("begun\ncancelled\n"), "{printed}");
    assert_eq!(daemon.conversations().len(), 2);
}

#[test]
fn each_script_shows_everything_once_whatever_happens_to_its_connection() {
    for (interpreter, file) in SCRIPTS {
        if has(interpreter) {
            check_program(&Program::script(interpreter, file));
        }
    }
}

#[test]
fn the_program_in_rust_shows_everything_once_whatever_happens_to_its_connection() {
    check_program(&Program::rust());
}

#[test]
fn each_script_is_short() {
    for (_, file) in SCRIPTS {
        let lines = fs::read_to_string(Path::new(SOURCE).join(file))
            .unwrap()
            .lines()
            .count();
        assert!(lines <= LINES, "{file} has {lines} lines");
    }
}

/// Prints the names that the module exports, and the methods and own fields of each class.
const EXPORTS: &str = r#"
import * as exported from "./packaging/clients/session-bridge.mjs";
const examples = { BridgeError: { code: 1, message: "", data: {} }, ConnectionError: "", CutShortError: "" };
const ofEach = new Set([...Object.getOwnPropertyNames(Error("")), ...Object.getOwnPropertyNames(class {}), "name", "constructor"]);
for (const [name, value] of Object.entries(exported)) {
  console.log(name);
  if (!Object.hasOwn(value, "prototype")) continue;
  const fields = examples[name] === undefined ? {} : new value(examples[name]);
  const members = [value, value.prototype, fields].flatMap(Object.getOwnPropertyNames);
  for (const member of members) if (!ofEach.has(member)) console.log(`${name}.${member}`);
}
"#;

/// Returns what a file of types declares, in the form of [`EXPORTS`]: each class and function, and the
/// members of each class.
fn declared(types: &str) -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    let mut class = None;
    for line in types.lines() {
        let words: Vec<&str> = line
            .split(|end: char| !end.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        if line == "}" {
            class = None;
        } else if line.starts_with("export class ") || line.starts_with("export function ") {
            class = line.starts_with("export class ").then_some(words[2]);
            declared.insert(words[2].to_owned());
        } else if let Some(class) = class
            && line.starts_with("  ")
            && line.ends_with(';')
        {
            let name = words
                .iter()
                .find(|word| !["static", "readonly", "private"].contains(word));
            let name = name.filter(|name| **name != "constructor");
            declared.extend(name.map(|name| format!("{class}.{name}")));
        }
    }
    declared
}

#[test]
fn the_types_declare_what_the_module_exports() {
    if !has("node") {
        return;
    }
    let mut command = Command::new("node");
    command
        .args(["--input-type=module", "-e", EXPORTS])
        .current_dir(SOURCE);
    let printed = said("node", &command.output().unwrap());
    let exported: BTreeSet<String> = printed.lines().map(str::to_owned).collect();
    let types = Path::new(SOURCE).join("packaging/clients/session-bridge.d.mts");
    assert_eq!(declared(&fs::read_to_string(types).unwrap()), exported);
    assert!(exported.contains("Client.subscribe") && exported.contains("BridgeError.kind"));
}

/// Follows a conversation until events are missing, repeats a call, reads late more events than the client
/// buffers, and closes the client during a call.
const NODE: &str = r#"
import { BridgeError, Client, ConnectionError } from "./packaging/clients/session-bridge.mjs";
const client = await Client.connect({ onConnection: (isUp) => console.log("connected", isUp) });
const create = () => client.conversation.new({ cwd: "/tmp", requestId: "once" });
const conversationId = (await create()).conversation.id;
for await (const { event } of client.subscribe({ conversationId })) {
  console.log(event.type, event.gap);
  if (event.gap) break;
}
console.log("once", (await create()).conversation.id === conversationId);
const slow = client.subscribe({ conversationId });
await client.conversation.prompt({ conversationId, prompt: "[[stream 17000 0]]" });
let read = 0;
for await (const { event } of slow) {
  if (event.gap || event.type === "turnEnded") break;
  if (event.update?.sessionUpdate === "agent_message_chunk") read += 1;
}
console.log("read", read);
await client.conversation.get({ conversationId: "missing" }).catch((error) => {
  console.log(error instanceof BridgeError, error.code, error.kind, error.retryable);
});
const open = client.subscribe({ conversationId });
await open.next();
const ended = client.conversation.prompt({ conversationId, prompt: "[[hang]]" }).catch((error) => error);
while ((await open.next()).value.event.type !== "promptAccepted");
client.close();
console.log("closed", (await ended) instanceof ConnectionError);
while (!(await open.next()).done);
"#;

/// The same as [`NODE`], in Python.
const PYTHON: &str = r#"
import asyncio
from session_bridge import BridgeError, Client

def show(*values):
    print(*(str(value).lower() if isinstance(value, bool) else value for value in values), flush=True)

async def main():
    client = await Client.connect(on_connection=lambda is_up: show("connected", is_up))
    create = lambda: client.conversation.new(cwd="/tmp", requestId="once")
    id = (await create())["conversation"]["id"]
    following = client.subscribe(id)
    async for envelope in following:
        show(envelope["event"]["type"], envelope["event"].get("gap"))
        if envelope["event"].get("gap"):
            break
    following.close()
    show("once", (await create())["conversation"]["id"] == id)
    slow, read = client.subscribe(id), 0
    await client.conversation.prompt(conversationId=id, prompt="[[stream 17000 0]]")
    async for envelope in slow:
        if envelope["event"].get("gap") or envelope["event"]["type"] == "turnEnded":
            break
        read += envelope["event"].get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    show("read", read)
    try:
        await client.conversation.get(conversationId="missing")
    except BridgeError as error:
        show(True, error.code, error.kind, error.retryable)
    opened = client.subscribe(id)
    ended = asyncio.create_task(client.conversation.prompt(conversationId=id, prompt="[[hang]]"))
    async for envelope in opened:
        if envelope["event"]["type"] == "promptAccepted":
            break
    await client.close()
    await asyncio.wait([ended])
    show("closed", isinstance(ended.exception(), ConnectionError))
    async for envelope in opened:
        pass

asyncio.run(main())
"#;

#[test]
fn each_client_reports_a_gap_repeats_no_change_and_closes() {
    for (interpreter, script) in [("node", NODE), ("python3", PYTHON)] {
        if !has(interpreter) {
            continue;
        }
        let daemon = Daemon::start();
        let mut running = daemon.run_script(interpreter, script);
        assert!(running.read_until("snapshot false\n"));
        daemon.kill();
        // The command starts the next daemon.
        daemon.conversations();
        let printed = said(interpreter, &running.end());
        // A killed process may close its connections before its listening socket, which then still accepts
        // one.
        let printed = printed.replace("connected true\nconnected false\n", "");
        let expected = "snapshot false\nconnected false\nconnected true\nsnapshot true\nonce true\nread 17000\n\
            true 1001 notFound false\nclosed true\n";
        assert_eq!(printed, expected, "{interpreter}");
        assert_eq!(daemon.conversations().len(), 2, "{interpreter}");
    }
}

/// As `sessionctl` does: by the environment variables, or by the lock file if no variable names the socket.
#[test]
fn each_client_finds_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path).to_str().unwrap().to_owned();
    let (socket, home, data, run) = (at("named.sock"), at("home"), at("data"), at("run"));
    let data_folder = match cfg!(target_os = "macos") {
        true => at("Library/Application Support/sessiond"),
        false => at("data/sessiond"),
    };
    let run_folder = match cfg!(target_os = "macos") {
        true => format!("{data_folder}/run"),
        false => format!("{run}/sessiond"),
    };
    let xdg = [("XDG_DATA_HOME", &*data), ("XDG_RUNTIME_DIR", &*run)];
    let named = [
        ("SESSIOND_SOCKET", &*socket),
        ("SESSIOND_HOME", &*home),
        xdg[0],
        xdg[1],
    ];
    let relative = [("XDG_DATA_HOME", "data"), ("XDG_RUNTIME_DIR", &*run)];
    for (interpreter, arguments, script) in [
        (
            "node",
            &["--input-type=module", "-e"][..],
            "import { socketPaths } from './packaging/clients/session-bridge.mjs'; console.log(socketPaths().join('\\n'));",
        ),
        (
            "python3",
            &["-c"],
            "import session_bridge; print(*session_bridge.socket_paths(), sep='\\n')",
        ),
    ] {
        if !has(interpreter) {
            continue;
        }
        let check = |variables: &[(&str, &str)], paths: &[&str]| {
            let mut command = command(interpreter, folder.path());
            command
                .args(arguments)
                .arg(script)
                .current_dir(SOURCE)
                .env_remove("SESSIOND_HOME");
            command
                .env("PYTHONPATH", "packaging/clients")
                .env("PYTHONDONTWRITEBYTECODE", "1");
            let printed = said(
                interpreter,
                &command.envs(variables.iter().copied()).output().unwrap(),
            );
            assert_eq!(
                printed.lines().collect::<Vec<_>>(),
                paths,
                "{interpreter} {variables:?}"
            );
        };
        check(&named, &[&socket]);
        check(&named[1..], &[&format!("{home}/run/sessiond.sock")]);
        let default = format!("{run_folder}/sessiond.sock");
        check(&xdg, &[&default]);
        check(&relative, &[&default]);
        fs::create_dir_all(&data_folder).unwrap();
        fs::write(
            format!("{data_folder}/sessiond.lock"),
            json!({"pid": 1, "socket": socket}).to_string(),
        )
        .unwrap();
        check(&xdg, &[&socket, &default]);
        fs::remove_dir_all(&data_folder).unwrap();
    }
}

#[test]
fn each_client_refuses_the_socket_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a file to another user");
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let socket = folder.path().join("foreign.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    lchown(&socket, Some(STRANGER), Some(STRANGER)).unwrap();
    for (interpreter, file) in SCRIPTS {
        if has(interpreter) {
            let output = Program::script(interpreter, file).run(&socket, &["/", PROMPT]);
            assert_ends(&output, "65534");
        }
    }
    // No program has connected.
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
