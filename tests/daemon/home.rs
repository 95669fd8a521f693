//! A folder of its own for one test, and the daemon's process in it.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use bridge_protocol::ConversationId;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use crate::support::{App, DEADLINE, Raw};

/// The configuration of a test that says nothing else: no agent of this machine is looked for.
const PLAIN: &str = "default_agent = \"loopback\"\n";

/// A folder that everything of one test is under. Its path is short, since a socket's path has to be.
pub(crate) struct Home {
    _folder: Option<TempDir>,
    path: PathBuf,
    /// `PATH` of the daemon.
    programs: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    /// A home whose configuration has this text behind the default agent.
    pub(crate) fn with_config(text: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("sb").tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("config")).unwrap();
        fs::create_dir_all(path.join("project")).unwrap();
        let mut home = Self::at(&path);
        home._folder = Some(folder);
        home.configure(&format!("{PLAIN}{text}"));
        home
    }

    /// A home in a folder that the caller fills and removes.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            _folder: None,
            path: path.to_owned(),
            programs: "/usr/bin:/bin".into(),
        }
    }

    /// A home in which no transcript is kept, so that what is deleted is gone.
    pub(crate) fn keeping_nothing() -> Self {
        Self::with_config("[keep]\nenabled = false\n")
    }

    /// A home without a configuration, on a machine without programs.
    pub(crate) fn bare() -> Self {
        let mut home = Self::new();
        fs::remove_file(home.config_file()).unwrap();
        home.programs = home.path.join("programs");
        fs::create_dir(&home.programs).unwrap();
        home
    }

    /// Replaces the whole configuration.
    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.config_file(), text).unwrap();
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path.join("config/config.toml")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that conversations run in.
    pub(crate) fn project(&self) -> String {
        self.folder_named("project")
    }

    /// Another folder, made where it is missing.
    pub(crate) fn folder_named(&self, name: &str) -> String {
        let folder = self.path.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder.to_str().unwrap().to_owned()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("run/sessiond.sock")
    }

    /// The transcripts that the loopback agent holds, by session id.
    pub(crate) fn transcript(&self, upstream_id: &str) -> Option<PathBuf> {
        let projects = self.data().join("loopback/projects");
        let folders = fs::read_dir(projects).ok()?;
        folders
            .map(|folder| folder.unwrap().path().join(format!("{upstream_id}.jsonl")))
            .find(|path| path.exists())
    }

    /// The daemon's program with an environment that names nothing of this machine.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sessiond"));
        command
            .env_clear()
            .env("PATH", &self.programs)
            .env("HOME", &self.path)
            .env("SESSIOND_HOME", &self.path)
            .env("TZ", "UTC")
            .current_dir(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Starts a daemon that has to become ready.
    pub(crate) fn start(&self) -> Daemon<'_> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Daemon<'_> {
        self.start_command(self.command(), arguments)
    }

    /// Starts a daemon by this command that has to become ready.
    pub(crate) fn start_command(&self, mut command: Command, arguments: &[&str]) -> Daemon<'_> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let child = command
            .arg("--ready-on-stdin")
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let daemon = Daemon {
            home: self,
            child: Some(child),
        };
        let mut word = String::new();
        let mut pipe = ours;
        pipe.set_read_timeout(Some(DEADLINE)).unwrap();
        // Without this side's copy of the far end a daemon that ends is seen.
        drop(command);
        pipe.read_to_string(&mut word).unwrap();
        assert_eq!(word, "ready\n", "the daemon did not start: {}", self.logged());
        daemon
    }

    /// Starts a daemon and connects to it. The connection is dropped first.
    pub(crate) async fn opened(&self) -> (Daemon<'_>, App) {
        let daemon = self.start();
        let app = daemon.app().await;
        (daemon, app)
    }

    /// Runs a daemon that has to end by itself; gives its exit status and what it said on standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let mut command = self.command();
        command.args(arguments);
        Self::run_command(command)
    }

    /// The same of a daemon that is started by this command.
    pub(crate) fn run_command(mut command: Command) -> (ExitStatus, String) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let status = wait_bounded(child);
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        (status, said)
    }

    fn log(&self) -> PathBuf {
        self.path.join("daemon.log")
    }

    /// What all daemons of this home have logged.
    pub(crate) fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Command lines of the processes that belong to this home.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        processes_of(&self.path)
    }

    /// The loopback agents that run.
    pub(crate) fn agents(&self) -> Vec<u32> {
        let all = self.processes();
        let agents = all.iter().filter(|(_, line)| line.contains("loopback-agent"));
        agents.map(|(pid, _)| *pid).collect()
    }

    /// The loopback agent that runs, which has to be the only one.
    pub(crate) fn only_agent(&self) -> u32 {
        let [agent] = self.agents()[..] else {
            panic!("not one agent: {:?}", self.processes())
        };
        agent
    }

    /// The transcript of the session that a conversation goes on in, which has to be there.
    pub(crate) async fn transcript_of(&self, app: &App, id: ConversationId) -> PathBuf {
        let head = app.get(id).await.head.unwrap();
        self.transcript(head.as_str()).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln_log(&self.logged());
            return;
        }
        // Of a daemon that was killed an agent may be on its way out: it has read the end of its input.
        for (pid, line) in self.processes() {
            wait_for_end(pid);
            let is_left = self.processes().iter().any(|(left, _)| *left == pid);
            assert!(!is_left, "left behind: {pid} {line}");
        }
    }
}

/// The log of a test that fails, for whoever reads its output.
#[allow(clippy::print_stderr, reason = "the harness shows it when a test fails")]
fn eprintln_log(log: &str) {
    let tail: Vec<&str> = log.lines().rev().take(60).collect();
    for line in tail.iter().rev() {
        eprintln!("daemon: {line}");
    }
}

/// A running daemon. Dropping it stops it in order, and nothing of it may be left then.
pub(crate) struct Daemon<'a> {
    pub(crate) home: &'a Home,
    child: Option<Child>,
}

impl<'a> Daemon<'a> {
    /// Starts one by this command, and does not wait for it.
    pub(crate) fn spawn(home: &'a Home, mut command: Command) -> Self {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(home.log())
            .unwrap();
        let child = command.stderr(Stdio::from(log)).spawn().unwrap();
        Self {
            home,
            child: Some(child),
        }
    }
}

impl Daemon<'_> {
    pub(crate) async fn app(&self) -> App {
        App::connect(&self.home.socket()).await
    }

    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(&self.home.socket()).await
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The most memory that it ever took, in bytes; none where the system does not tell.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    /// The memory that it takes now, in bytes; none where the system does not tell.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.memory("VmRSS:")
    }

    fn memory(&self, figure: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(figure))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid_of(self.pid()), signal).unwrap();
    }

    /// Stops it where it stands, and waits until it does.
    pub(crate) fn freeze(&self) -> Frozen {
        let frozen = Frozen::new(self.pid());
        waitpid(Some(frozen.0), WaitOptions::UNTRACED).unwrap().unwrap();
        frozen
    }

    /// Waits for the end, which somebody has asked for already.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let child = self.child.take().unwrap();
        let status = tokio::task::spawn_blocking(move || wait_bounded(child))
            .await
            .unwrap();
        assert_eq!(self.home.processes(), [], "left behind by the daemon");
        status
    }

    /// Kills it at once, as `kill -9` does; its agents are left to themselves.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        let signal = if std::thread::panicking() {
            Signal::KILL
        } else {
            Signal::TERM
        };
        // One that has ended already cannot be told to.
        let _ended = kill_process(pid_of(child.id()), signal);
        let status = wait_bounded(child);
        if !std::thread::panicking() {
            assert!(status.success(), "{status}: {}", self.home.logged());
            assert_eq!(self.home.processes(), [], "left behind by the daemon");
        }
    }
}

/// Waits for a process, and kills it when it takes longer than any test may.
fn wait_bounded(mut child: Child) -> ExitStatus {
    let pid = pid_of(child.id());
    let (sender, ended) = mpsc::sync_channel(1);
    let waiter = std::thread::spawn(move || sender.send(child.wait().unwrap()));
    let status = ended.recv_timeout(DEADLINE);
    if status.is_err() {
        kill_process(pid, Signal::KILL).unwrap();
    }
    waiter.join().unwrap().unwrap();
    status.expect("the daemon ends before the deadline")
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// A process that is stopped. It continues when this is dropped.
pub(crate) struct Frozen(Pid);

impl Frozen {
    /// Stops a process.
    pub(crate) fn new(pid: u32) -> Self {
        let pid = pid_of(pid);
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        let _ended = kill_process(self.0, Signal::CONT);
    }
}

/// Kills one process.
pub(crate) fn kill_now(pid: u32) {
    kill_process(pid_of(pid), Signal::KILL).unwrap();
}

/// Waits until a process that is on its way out has ended.
#[cfg(target_os = "linux")]
pub(crate) fn wait_for_end(pid: u32) {
    use crate::signs::{descriptor_of, ends_within};
    if let Some(process) = descriptor_of(pid) {
        assert!(ends_within(process, DEADLINE), "{pid} does not end");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn wait_for_end(_: u32) {}

/// The processes whose command line or environment names the folder, where the system shows both.
#[cfg(target_os = "linux")]
fn processes_of(folder: &Path) -> Vec<(u32, String)> {
    crate::signs::processes_naming(&[folder.to_str().unwrap().as_bytes()])
}

#[cfg(not(target_os = "linux"))]
fn processes_of(_: &Path) -> Vec<(u32, String)> {
    Vec::new()
}
