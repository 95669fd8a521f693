//! The clients of `packaging/clients`, each against a real daemon: with a question, and with a connection that is lost.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

    /// A client of `packaging/clients`; what it printed.
    fn chat(&self, interpreter: &str, file: &str, socket: &Path) -> String {
        let mut client = Command::new(interpreter);
        client.arg(Path::new(SOURCE).join("packaging/clients").join(file));
        client
            .arg(socket)
            .arg(self.folder.path())
            .arg(PROMPT)
            .stdin(Stdio::null());
        said(file, &client.output().unwrap())
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

#[test]
fn each_script_answers_a_question_and_outlives_its_connection() {
    for (interpreter, file) in [("node", "chat.mjs"), ("python3", "chat.py")] {
        if !has(interpreter) {
            continue;
        }
        let daemon = Daemon::start();
        check(&daemon.chat(interpreter, file, &daemon.socket()));
        for loss in LOSSES {
            let daemon = Daemon::start();
            check(&daemon.chat(interpreter, file, &daemon.behind(loss)));
        }
    }
}

#[tokio::test]
async fn the_one_in_rust_answers_a_question_and_outlives_its_connection() {
    for loss in LOSSES.map(Some).into_iter().chain([None]) {
        let daemon = Daemon::start();
        let socket = loss.map_or_else(|| daemon.socket(), |loss| daemon.behind(loss));
        let mut out = Vec::new();
        let folder = daemon.folder.path().to_str().unwrap();
        let ended = super::chat::chat(&socket, folder, PROMPT, &mut out)
            .await
            .unwrap();
        assert_eq!(ended, bridge_protocol::turn::StopReason::EndTurn);
        check(&format!("{}\nend_turn\n", String::from_utf8(out).unwrap()));
    }
}
