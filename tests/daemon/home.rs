//! A temporary folder for one test, and the daemon that runs in it.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use bridge_protocol::ConversationId;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use crate::support::{App, DEADLINE, Raw};

/// The default configuration of a test. It avoids a search for agents that are installed on this machine.
const PLAIN: &str = "default_agent = \"loopback\"\n";

/// A folder whose name contains no word that a test searches for. The names of folders are searched too, so with random letters
/// a search for "poem" may find a conversation that runs in `.tmpoem`.
pub(crate) fn unsearched_folder() -> TempDir {
    const LETTERS: [char; 10] = ['g', 'h', 'j', 'k', 'm', 'q', 'v', 'w', 'x', 'z'];
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let number = format!("{:07}{count:04}", std::process::id());
        let name: String = number
            .bytes()
            .map(|digit| LETTERS[usize::from(digit - b'0')])
            .collect();
        match tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir() {
            // An earlier process with this number left it behind.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            folder => return folder.unwrap(),
        }
    }
}

/// The folder that contains all files of one test. Its path is short, because a socket's path has a length limit.
pub(crate) struct Home {
    _folder: Option<TempDir>,
    path: PathBuf,
    /// The daemon's `PATH`.
    programs: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    /// Makes a home with this text after the default agent in its configuration.
    pub(crate) fn with_config(text: &str) -> Self {
        let folder = unsearched_folder();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("config")).unwrap();
        fs::create_dir_all(path.join("project")).unwrap();
        let mut home = Self::at(&path);
        home._folder = Some(folder);
        home.configure(&format!("{PLAIN}{text}"));
        home
    }

    /// Makes a home in a folder that the caller fills and removes.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            _folder: None,
            path: path.to_owned(),
            programs: "/usr/bin:/bin".into(),
        }
    }

    /// Makes a home without backups, so that deleted transcripts are lost.
    pub(crate) fn keeping_nothing() -> Self {
        Self::with_config("[keep]\nenabled = false\n")
    }

    /// Makes a home without a configuration, and with an empty folder as the daemon's `PATH`.
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

    /// Returns the folder that conversations run in.
    pub(crate) fn project(&self) -> String {
        self.folder_named("project")
    }

    /// Returns another folder of the home, and creates it if it is missing.
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

    /// Returns the path of a session's transcript, if the loopback agent has one.
    pub(crate) fn transcript(&self, upstream_id: &str) -> Option<PathBuf> {
        let projects = self.data().join("loopback/projects");
        let folders = fs::read_dir(projects).ok()?;
        folders
            .map(|folder| folder.unwrap().path().join(format!("{upstream_id}.jsonl")))
            .find(|path| path.exists())
    }

    /// Returns the command of the daemon, with an environment that does not depend on this machine.
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

    /// Starts a daemon and waits until it is ready.
    pub(crate) fn start(&self) -> Daemon<'_> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Daemon<'_> {
        self.start_command(self.command(), arguments)
    }

    /// Starts a daemon with this command and waits until it is ready.
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
        // Closes this process's copy of the other end, so that the read ends if the daemon ends.
        drop(command);
        pipe.read_to_string(&mut word).unwrap();
        assert_eq!(word, "ready\n", "the daemon did not start: {}", self.logged());
        daemon
    }

    /// Starts a daemon and connects to it. With `let (daemon, app)`, the connection is dropped before the daemon.
    pub(crate) async fn opened(&self) -> (Daemon<'_>, App) {
        let daemon = self.start();
        let app = daemon.app().await;
        (daemon, app)
    }

    /// Does the same, and makes a conversation in the project's folder with a turn for each of these prompts.
    pub(crate) async fn begun(&self, prompts: &[&str]) -> (Daemon<'_>, App, ConversationId) {
        let (daemon, app) = self.opened().await;
        let id = app.begun(&self.project(), prompts).await;
        (daemon, app, id)
    }

    /// Runs a daemon that has to end on its own. Returns its exit status and its stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let mut command = self.command();
        command.args(arguments);
        Self::run_command(command)
    }

    /// Does the same as [`Home::run`] with this command.
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

    /// Returns the log of all daemons of this home.
    pub(crate) fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Returns the pids and command lines of the processes that belong to this home.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        processes_of(&self.path)
    }

    /// Returns the pids of the running loopback agents.
    pub(crate) fn agents(&self) -> Vec<u32> {
        let all = self.processes();
        let agents = all.iter().filter(|(_, line)| line.contains("loopback-agent"));
        agents.map(|(pid, _)| *pid).collect()
    }

    /// Returns the pid of the running loopback agent, and panics unless there is exactly one.
    pub(crate) fn only_agent(&self) -> u32 {
        let [agent] = self.agents()[..] else {
            panic!("not exactly one agent: {:?}", self.processes())
        };
        agent
    }

    /// Returns the path of the transcript of a conversation's head.
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
        // An agent of a killed daemon may still be ending, because it has read the end of its input.
        for (pid, line) in self.processes() {
            wait_for_end(pid);
            let is_left = self.processes().iter().any(|(left, _)| *left == pid);
            assert!(!is_left, "left-over: {pid} {line}");
        }
    }
}

/// Prints the end of the log of a failed test.
#[allow(clippy::print_stderr, reason = "the harness shows it when a test fails")]
fn eprintln_log(log: &str) {
    let tail: Vec<&str> = log.lines().rev().take(60).collect();
    for line in tail.iter().rev() {
        eprintln!("daemon: {line}");
    }
}

/// A running daemon. Dropping it stops the daemon and asserts that no process is left.
pub(crate) struct Daemon<'a> {
    pub(crate) home: &'a Home,
    child: Option<Child>,
}

impl<'a> Daemon<'a> {
    /// Starts a daemon with this command, without waiting for it.
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

    /// Returns the most memory that the daemon ever used, in bytes, if the system reports it.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    /// Returns the memory that the daemon uses now, in bytes, if the system reports it.
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

    /// Stops the process with SIGSTOP, and waits until it has stopped.
    pub(crate) fn freeze(&self) -> Frozen {
        let frozen = Frozen::new(self.pid());
        waitpid(Some(frozen.0), WaitOptions::UNTRACED).unwrap().unwrap();
        frozen
    }

    /// Waits until a daemon that was already asked to stop has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let child = self.child.take().unwrap();
        let status = tokio::task::spawn_blocking(move || wait_bounded(child))
            .await
            .unwrap();
        assert_eq!(self.home.processes(), [], "left-over processes");
        status
    }

    /// Kills the daemon with SIGKILL. Its agents keep running.
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
        // A daemon that has already ended cannot be signalled.
        let _ended = kill_process(pid_of(child.id()), signal);
        let status = wait_bounded(child);
        if !std::thread::panicking() {
            assert!(status.success(), "{status}: {}", self.home.logged());
            assert_eq!(self.home.processes(), [], "left-over processes");
        }
    }
}

/// Waits for a process, and kills it if it takes longer than any test may.
fn wait_bounded(mut child: Child) -> ExitStatus {
    let pid = pid_of(child.id());
    let (sender, ended) = mpsc::sync_channel(1);
    let waiter = std::thread::spawn(move || sender.send(child.wait().unwrap()));
    let status = ended.recv_timeout(DEADLINE);
    if status.is_err() {
        kill_process(pid, Signal::KILL).unwrap();
    }
    waiter.join().unwrap().unwrap();
    status.expect("the daemon did not end in time")
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// A stopped process. Dropping this lets it continue.
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
        // The process may have ended meanwhile.
        let _ended = kill_process(self.0, Signal::CONT);
    }
}

/// Kills one process.
pub(crate) fn kill_now(pid: u32) {
    kill_process(pid_of(pid), Signal::KILL).unwrap();
}

/// Waits until a process that is ending has ended.
#[cfg(target_os = "linux")]
pub(crate) fn wait_for_end(pid: u32) {
    use crate::signs::{descriptor_of, ends_within};
    if let Some(process) = descriptor_of(pid) {
        assert!(ends_within(process, DEADLINE), "{pid} does not end");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn wait_for_end(_: u32) {}

/// Returns the processes whose command line or environment names the folder, if the system shows both.
#[cfg(target_os = "linux")]
fn processes_of(folder: &Path) -> Vec<(u32, String)> {
    crate::signs::processes_naming(&[folder.to_str().unwrap().as_bytes()])
}

#[cfg(not(target_os = "linux"))]
fn processes_of(_: &Path) -> Vec<(u32, String)> {
    Vec::new()
}
