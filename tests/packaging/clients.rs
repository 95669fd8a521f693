//! The clients of `packaging/clients`, each against a real daemon: with a question, with a connection that is
//! lost, and with a daemon that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bridge_protocol::{BridgeError, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{SOURCE, command, has, said};

/// What is asked: words, a question, and words behind it. What stands behind the first is for JSON no end of
/// a line.
const PROMPT: &str = "[[say one\u{2028}]][[ask may I?]][[say two]]";

/// At which line of the daemon the first connection is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Before the answer that tells of the conversation that was made.
    Made,
    /// There too, with a daemon that says that it is stopping.
    Stopping,
    /// Before the agent's first words.
    Words,
    /// In the middle of the line that has them, and of a character.
    WithinWords,
    /// There it is said to be too slow, and not told any words any more.
    Lagged,
    /// Behind the question, so that the answer is lost.
    Question,
    /// Before the result of the turn.
    Result,
}

const LOSSES: [Loss; 7] = [
    Loss::Made,
    Loss::Stopping,
    Loss::Words,
    Loss::WithinWords,
    Loss::Lagged,
    Loss::Question,
    Loss::Result,
];

/// A daemon in a folder of its own, that has one conversation.
struct Daemon {
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let daemon = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        daemon.sessionctl(&["new", "--agent", "loopback", "--title", "earlier"]);
        daemon
    }

    fn sessionctl(&self, arguments: &[&str]) -> String {
        let mut command = command(env!("CARGO_BIN_EXE_sessionctl"), self.folder.path());
        command.stdin(Stdio::null());
        said("sessionctl", &command.args(arguments).output().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sessiond/run/sessiond.sock")
    }

    /// A socket behind which is the daemon's; the first connection to it is lost.
    fn behind(&self, loss: Loss) -> PathBuf {
        let path = self.folder.path().join("lossy.sock");
        let (listener, real) = (UnixListener::bind(&path).unwrap(), self.socket());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (client, daemon) = (client.unwrap(), UnixStream::connect(&real).unwrap());
                let (mut from, mut to) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
                std::thread::spawn(move || {
                    // It ends with either side.
                    let _copied = std::io::copy(&mut from, &mut to);
                    let _shut = to.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || pass_on(&daemon, &client, (number == 0).then_some(loss)));
            }
        });
        path
    }

    /// A client, begun by the program and the arguments before its own, which are the socket and what
    /// follows.
    fn client(client: &[&str], socket: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(client[0]);
        command.args(&client[1..]).arg(socket).args(arguments);
        command.current_dir(SOURCE).stdin(Stdio::null());
        command
    }

    /// How a turn in its folder ended.
    fn chat(&self, client: &[&str], prompt: &str) -> Output {
        let arguments = [self.folder.path().to_str().unwrap(), prompt];
        Self::client(client, &self.socket(), &arguments).output().unwrap()
    }

    /// How many conversations there are.
    fn conversations(&self) -> usize {
        let listed: Value = serde_json::from_str(&self.sessionctl(&["ls", "--json"])).unwrap();
        listed["conversations"].as_array().unwrap().len()
    }

    /// Kills it, which takes a moment.
    fn kill(&self) {
        let status: Value = serde_json::from_str(&self.sessionctl(&["status", "--json"])).unwrap();
        let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.sessionctl(&["stop", "--no-start"]);
    }
}

fn pass_on(daemon: &UnixStream, mut client: &UnixStream, loss: Option<Loss>) {
    let mut cursor = Value::Null;
    for line in BufReader::new(daemon).lines() {
        let Ok(line) = line else { break };
        let (passed, is_last) = match loss {
            Some(loss) => lossy(loss, &line, &mut cursor),
            None => (format!("{line}\n").into_bytes(), false),
        };
        if client.write_all(&passed).is_err() || is_last {
            break;
        }
    }
    let _shut = (client.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
}

/// What comes of a line, and whether it is the last; `cursor` is that of the event before.
fn lossy(loss: Loss, line: &str, cursor: &mut Value) -> (Vec<u8>, bool) {
    let mut message: Value = serde_json::from_str(line).unwrap();
    let envelope = &mut message["params"]["result"];
    let is_question = envelope["event"]["type"] == "interruptRaised";
    let has_words = envelope["event"]["update"]["sessionUpdate"] == "agent_message_chunk";
    match loss {
        Loss::Lagged if has_words => {
            envelope["event"] = json!({"type": "lagged", "cursor": cursor});
            envelope["cursor"] = cursor.clone();
            return (format!("{message}\n").into_bytes(), false);
        }
        _ => *cursor = envelope["cursor"].clone(),
    }
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
        Loss::Words if has_words => (Vec::new(), true),
        Loss::WithinWords if has_words => {
            let within = line.find('\u{2028}').unwrap() + 1;
            (line.as_bytes()[..within].to_owned(), true)
        }
        Loss::Result if message["result"]["stopReason"].is_string() => (Vec::new(), true),
        loss => {
            let is_last = matches!(loss, Loss::Question) && is_question;
            (format!("{line}\n").into_bytes(), is_last)
        }
    }
}

/// The list once, each of the agent's words once, and how the turn ended.
fn check(told: &str) {
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].ends_with(" earlier"), "{told}");
    assert_eq!(lines[lines.len() - 1], "end_turn", "{told}");
    let words = lines[1..lines.len() - 1].concat();
    for (word, times) in [("earlier", 0), ("one", 1), ("two", 1)] {
        assert_eq!(words.matches(word).count(), times, "{told}");
    }
}

/// Has it talk to a daemon of its own, once more for each loss, and where things go wrong.
fn check_client(client: &[&str]) {
    let daemon = Daemon::start();
    check(&said("a turn", &daemon.chat(client, PROMPT)));
    for loss in LOSSES {
        let daemon = Daemon::start();
        let arguments = [daemon.folder.path().to_str().unwrap(), PROMPT];
        let output = Daemon::client(client, &daemon.behind(loss), &arguments).output();
        check(&said(&format!("{client:?} {loss:?}"), &output.unwrap()));
        assert_eq!(daemon.conversations(), 2, "{loss:?}");
    }
    check_failures(client, &daemon);
    check_answered_by_another(client);
    check_killed(client);
}

/// What is no loss of the connection is told, and ends it.
fn check_failures(client: &[&str], daemon: &Daemon) {
    let failed = daemon.chat(client, "[[fail overloaded]]");
    let told = String::from_utf8_lossy(&failed.stdout);
    assert!(told.ends_with("\nfailed\n"), "{failed:?}");
    assert_ends(&failed, "verloaded");
    let nowhere = ["/nowhere", PROMPT];
    let refused = Daemon::client(client, &daemon.socket(), &nowhere).output();
    assert_ends(&refused.unwrap(), "1004");
    let called = Daemon::client(client, &daemon.socket(), &nowhere[..1]).output();
    assert_ends(&called.unwrap(), "SOCKET FOLDER PROMPT");
}

fn assert_ends(output: &Output, why: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(why) && !told.contains("Traceback"), "{output:?}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// The configuration answers before the client does.
fn check_answered_by_another(client: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sessiond/config");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("config.toml"),
        "[agents.loopback]\ninterrupts = \"deny\"\n",
    )
    .unwrap();
    let daemon = Daemon { folder };
    daemon.sessionctl(&["new", "--agent", "loopback"]);
    let told = said("an answered question", &daemon.chat(client, PROMPT));
    assert!(told.contains("one") && told.ends_with("\nend_turn\n"), "{told}");
}

/// The turn ends with the daemon, and is not had again by the next one.
fn check_killed(client: &[&str]) {
    let daemon = Daemon::start();
    let arguments = [
        daemon.folder.path().to_str().unwrap(),
        "[[say begun]][[stream 500 20]]",
    ];
    let mut command = Daemon::client(client, &daemon.socket(), &arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let (mut told, mut next) = (String::new(), [0]);
    while !told.contains("begun") {
        running.stdout.as_mut().unwrap().read_exact(&mut next).unwrap();
        told.push(char::from(next[0]));
    }
    daemon.kill();
    assert_eq!(daemon.conversations(), 2);
    let ended = running.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(
        told.ends_with("\nfailed\n") && !told.contains("begun"),
        "{ended:?}"
    );
    assert_ends(&ended, "daemon");
}

#[test]
fn each_script_answers_a_question_and_outlives_its_connection() {
    for (interpreter, file) in [
        ("node", "packaging/clients/chat.mjs"),
        ("python3", "packaging/clients/chat.py"),
    ] {
        if has(interpreter) {
            check_client(&[interpreter, file]);
        }
    }
}

/// As its own first line has it run.
#[test]
fn the_one_in_rust_answers_a_question_and_outlives_its_connection() {
    check_client(&[
        env!("CARGO"),
        "run",
        "--quiet",
        "--locked",
        "--example",
        "chat",
        "--",
    ]);
}
