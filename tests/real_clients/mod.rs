//! Published clients of the Agent Client Protocol, unmodified, connected to `sessionctl acp`: they use the
//! daemon as an editor uses an agent.

#![allow(clippy::print_stderr, reason = "a test says why it is skipped")]

#[path = "../acp/editor.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "shared with the tests in `acp`, which need all of it"
)]
mod editor;
mod sdks;
mod slow;
mod smoke;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use self::ClientLab as Home;
use crate::bridge_of::Bridge;
use crate::support::lab::Agent;
use crate::support::npm::{self, Clients, Skip};

/// How long a client may run. A client that waits forever is killed after this time.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// How long an editor waits for a message.
const DEADLINE: Duration = CLIENT_LIMIT;

const SESSIONCTL: &str = env!("CARGO_BIN_EXE_sessionctl");

/// The surroundings of the clients: a user's home, a project, and the agent behind the daemon.
struct ClientLab {
    clients: Clients,
    home: PathBuf,
    project: PathBuf,
    agent: &'static str,
    /// The home, if this lab owns it. The first client starts the daemon in it, and dropping this stops it.
    own: Option<TempDir>,
}

impl ClientLab {
    /// Uses the built-in agent. Returns `None` and prints the reason if the clients cannot be installed.
    fn new() -> Option<Self> {
        let clients = clients()?;
        // Not below a test's folder, because the path of a socket is limited in length.
        let own = tempfile::Builder::new().prefix("sc").tempdir().expect("a home");
        let home = own.path().canonicalize().expect("the home");
        let project = home.join("project");
        fs::create_dir(&project).expect("a project");
        Some(Self {
            clients,
            home,
            project,
            agent: "loopback",
            own: Some(own),
        })
    }

    /// Uses the daemon and the adapter of a bridge.
    fn of<A: Agent>(bridge: &Bridge<A>) -> Option<Self> {
        Some(Self {
            clients: clients()?,
            home: bridge.home().to_owned(),
            project: bridge.lab.project(),
            agent: A::NAME,
            own: None,
        })
    }

    fn path(&self) -> &Path {
        &self.home
    }

    fn project(&self) -> String {
        text(&self.project)
    }

    /// The command in the configuration of an editor, in place of an agent's command.
    fn command(&self) -> Vec<String> {
        let home = text(&self.home);
        let words = [SESSIONCTL, "--home", &home, "acp", "--agent", self.agent];
        words.map(str::to_owned).into()
    }

    /// The output of `sessionctl --json` with these arguments.
    fn sessionctl(&self, arguments: &[&str]) -> Value {
        let home = text(&self.home);
        let mut all = vec!["--home", &home, "--json"];
        all.extend(arguments);
        let printed = said(&self.run(Path::new(SESSIONCTL), &all));
        serde_json::from_str(&printed).expect("JSON")
    }

    /// The command of a program that this user runs in the project.
    fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let node = self.clients.node.parent().expect("the folder of node").display();
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", format!("{node}:/usr/local/bin:/usr/bin:/bin"))
            .env("HOME", &self.home)
            .env("NODE_NO_WARNINGS", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(&self.project);
        command
    }

    /// Runs a program as this user in the project until it ends.
    fn run(&self, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Output {
        let child = self
            .program(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let (_running, end) = mpsc::sync_channel::<()>(1);
        let pid = Pid::from_child(&child);
        std::thread::spawn(move || {
            if end.recv_timeout(CLIENT_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                kill_process(pid, Signal::KILL).expect("the program killed");
            }
        });
        child.wait_with_output().expect("the program's end")
    }
}

impl Drop for ClientLab {
    fn drop(&mut self) {
        if self.own.is_some() {
            // A failed client may have left the daemon running.
            self.run(Path::new(SESSIONCTL), &["--home", &text(&self.home), "stop"]);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The output of a program, which must succeed and print nothing to stderr, because some editors show that as
/// an error.
fn said(output: &Output) -> String {
    let [printed, complaints] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(
        output.status.success() && complaints.is_empty(),
        "{}: {printed}\n{complaints}",
        output.status
    );
    printed.trim_end().to_owned()
}

fn clients() -> Option<Clients> {
    match npm::acp_clients() {
        Ok(clients) => Some(clients),
        Err(Skip(reason)) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}
