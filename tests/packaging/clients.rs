//! The clients of `packaging/clients`, each against a real daemon: with a question, and with a connection that is lost.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{SOURCE, command, has, said};

/// What is asked: words, a question, and words behind it.
const PROMPT: &str = "[[say one ]][[ask may I?]][[say two]]";

/// At which line of the daemon the first connection is lost.
#[derive(Clone, Copy)]
enum Loss {
    /// Before the agent's first words.
    Words,
    /// In the middle of the line that has them.
    WithinWords,
    /// Behind the question, so that the answer is lost.
    Question,
}

const LOSSES: [Loss; 3] = [Loss::Words, Loss::WithinWords, Loss::Question];

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

    /// A client, begun by the program and the arguments before its own.
    fn client(&self, client: &[&str], socket: &Path, prompt: &str) -> Output {
        let mut command = Command::new(client[0]);
        command.args(&client[1..]).current_dir(SOURCE);
        command
            .arg(socket)
            .arg(self.folder.path())
            .arg(prompt)
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// The same, which has to do well; what it printed.
    fn chat(&self, client: &[&str], socket: &Path) -> String {
        said(client[client.len() - 1], &self.client(client, socket, PROMPT))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.sessionctl(&["stop", "--no-start"]);
    }
}

fn pass_on(daemon: &UnixStream, mut client: &UnixStream, loss: Option<Loss>) {
    for line in BufReader::new(daemon).lines() {
        let Ok(line) = line else { break };
        let has_words = line.contains("agent_message_chunk");
        let (passed, is_last) = match loss {
            Some(Loss::Words) if has_words => (String::new(), true),
            Some(Loss::WithinWords) if has_words => (line[..line.len() / 2].to_owned(), true),
            loss => {
                let is_last = matches!(loss, Some(Loss::Question)) && line.contains("interruptRaised");
                (line + "\n", is_last)
            }
        };
        if client.write_all(passed.as_bytes()).is_err() || is_last {
            break;
        }
    }
    let _shut = (client.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
}

/// The list, each of the agent's words once, and how the turn ended.
fn check(told: &str) {
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].ends_with(" earlier"), "{told}");
    assert_eq!(lines[lines.len() - 1], "end_turn", "{told}");
    let words = lines[1..lines.len() - 1].concat();
    for word in ["one ", "two"] {
        assert_eq!(words.matches(word).count(), 1, "{told}");
    }
}

/// Has it talk to a daemon of its own, and once more for each loss.
fn check_client(client: &[&str]) {
    let daemon = Daemon::start();
    check(&daemon.chat(client, &daemon.socket()));
    // A turn that failed is told as one, and why.
    let failed = daemon.client(client, &daemon.socket(), "[[fail overloaded]]");
    let (told, why) = (
        String::from_utf8_lossy(&failed.stdout),
        String::from_utf8_lossy(&failed.stderr),
    );
    assert!(
        told.ends_with("\nfailed\n") && why.contains("verloaded"),
        "{failed:?}"
    );
    assert!(!failed.status.success(), "{failed:?}");
    for loss in LOSSES {
        let daemon = Daemon::start();
        check(&daemon.chat(client, &daemon.behind(loss)));
    }
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
