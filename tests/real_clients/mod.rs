//! Published clients of the Agent Client Protocol, unmodified, in front of `sessionctl acp`: what an editor does with an agent,
//! they do with the daemon.

#![allow(clippy::print_stderr, reason = "a test says why it is skipped")]

mod claude;
#[path = "../acp/editor.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "shared with the tests in `acp`, which need all of it"
)]
mod editor;
mod smoke;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use self::ClientLab as Home;
use crate::real_claude::bridge::Bridge;
use crate::support::npm::{self, Clients, Skip};

/// How long a client may run. One that waits for something that never comes is killed.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// How long an editor waits for a message.
const DEADLINE: Duration = CLIENT_LIMIT;

/// The Python SDK, as pip names it.
const PYTHON_SDK: &str = "agent-client-protocol==0.12.1";

const SESSIONCTL: &str = env!("CARGO_BIN_EXE_sessionctl");

/// Where clients run: the home of a user, a project, and the agent behind the daemon.
struct ClientLab {
    clients: Clients,
    home: PathBuf,
    project: PathBuf,
    agent: &'static str,
    /// The home, if it is this lab's own. The daemon in it is started by the first client, and ends with this.
    own: Option<TempDir>,
}

impl ClientLab {
    /// With the agent that is built in. None, with the reason printed, when the clients cannot be had.
    fn new() -> Option<Self> {
        let clients = clients()?;
        // A socket's path is short: not below a test's own, possibly long, folder.
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

    /// With the daemon and the adapter of a bridge.
    fn of(bridge: &Bridge) -> Option<Self> {
        Some(Self {
            clients: clients()?,
            home: bridge.home().to_owned(),
            project: bridge.lab.project(),
            agent: "claude",
            own: None,
        })
    }

    fn path(&self) -> &Path {
        &self.home
    }

    fn project(&self) -> String {
        text(&self.project)
    }

    /// The command that stands in an editor's configuration in place of an agent's.
    fn command(&self) -> Vec<String> {
        let home = text(&self.home);
        let words = [SESSIONCTL, "--home", &home, "acp", "--agent", self.agent];
        words.map(str::to_owned).into()
    }

    /// What `sessionctl` prints with `--json`.
    fn sessionctl(&self, arguments: &[&str]) -> Value {
        let home = text(&self.home);
        let mut all = vec!["--home", &home, "--json"];
        all.extend(arguments);
        let printed = said(&self.run(Path::new(SESSIONCTL), &all));
        serde_json::from_str(&printed).expect("JSON")
    }

    /// Runs a program of this user in the project, to its end.
    fn run(&self, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Output {
        let node = self.clients.node.parent().expect("the folder of node").display();
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", format!("{node}:/usr/local/bin:/usr/bin:/bin"))
            .env("HOME", &self.home)
            .env("NODE_NO_WARNINGS", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", python_packages())
            .current_dir(&self.project)
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
            // No client that failed leaves a daemon behind.
            self.run(Path::new(SESSIONCTL), &["--home", &text(&self.home), "stop"]);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// What a program printed that succeeded, and that had nothing to complain about: some editors show that as an error.
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

/// Where the Python SDK is installed.
fn python_packages() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(PYTHON_SDK)
}

/// Python with its SDK, which is installed if it is not there yet. None, with the reason printed, if it cannot be had.
fn python() -> Option<PathBuf> {
    let pip = |arguments: &[&str]| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip.args(arguments).stdin(Stdio::null()).output()
    };
    let python = PathBuf::from("python3");
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PYTHON_SDK}.lock"));
    let lock = fs::File::create(lock).expect("a lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock");
    if python_packages().is_dir() {
        return Some(python);
    }
    if !pip(&["--version"]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no pip");
        return None;
    }
    let staging = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a staging folder");
    let [packages, any] = ["packages", "any"].map(|name| staging.path().join(name));
    let installed = pip(&["install", "--target", &text(&packages), PYTHON_SDK]).expect("pip");
    if !installed.status.success() {
        let complaint = String::from_utf8_lossy(&installed.stderr);
        let other = pip(&["download", "--no-deps", "--dest", &text(&any), "pip"]).expect("pip");
        assert!(
            !other.status.success(),
            "pip install {PYTHON_SDK}, though the index answers: {complaint}"
        );
        eprintln!("skipped: pip cannot reach its index");
        return None;
    }
    fs::rename(packages, python_packages()).expect("the installation moved into place");
    Some(python)
}
