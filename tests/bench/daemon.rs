//! A daemon in its own folder.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::Outcome;
use crate::client::Client;
use crate::floor::connect;
use crate::options::AGENT;

/// A client of the daemon, or of a floor that answers in the same way.
pub(crate) type SocketClient = Client<UnixStream, UnixStream>;

/// The measured daemon: the program built with this benchmark, or for a comparison the one that the
/// environment names.
pub(crate) fn program() -> OsString {
    std::env::var_os("SESSIOND_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_sessiond").into())
}

/// The measured command line, chosen in the same way.
pub(crate) fn command_line() -> OsString {
    std::env::var_os("SESSIONCTL_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_sessionctl").into())
}

/// The folder of a daemon. Its path is short because the path of a socket is limited in length.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    /// Creates a folder whose agent `bench` is the streaming agent of this program.
    pub(crate) fn new() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("sb").tempdir()?;
        let config = folder.path().join("config");
        std::fs::create_dir_all(&config)?;
        let agent = std::env::current_exe()?;
        let agent = serde_json::to_string(&agent)?;
        let text = format!("[agents.bench]\ncommand = {agent}\nargs = [\"{AGENT}\"]\nkind = \"generic\"\n");
        std::fs::write(config.join("config.toml"), text)?;
        Ok(Self { folder })
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Starts a daemon in the folder without waiting until it is ready.
    pub(crate) fn start(&self) -> Outcome<Daemon> {
        let child = Command::new(program())
            .arg("--home")
            .arg(self.path())
            .env("SESSIOND_LOG", "warn")
            // The user's own transcripts must not be read.
            .env("HOME", self.path())
            .env_remove("CLAUDE_CONFIG_DIR")
            .env_remove("CODEX_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Daemon {
            child,
            socket: self.path().join("run/sessiond.sock"),
        })
    }
}

/// A running daemon; dropping it stops it.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Connects a client as soon as the daemon listens.
    pub(crate) fn connect(&self) -> Outcome<SocketClient> {
        client(&self.socket)
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The resident memory in MB (a million bytes), or `None` if the system does not report it.
    pub(crate) fn resident_mb(&self) -> Option<f64> {
        resident_mb(self.child.id())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let stopped = self.connect().and_then(|mut client| {
            client.call("daemon/shutdown", &serde_json::json!({"graceMs": 0}))?;
            Ok(())
        });
        if stopped.is_err() {
            // The daemon did not start, or has already ended.
            let _ended = self.child.kill();
        }
        let _reaped = self.child.wait();
    }
}

/// Connects a client to whatever listens on this socket.
pub(crate) fn client(socket: &Path) -> Outcome<SocketClient> {
    let stream = connect(socket)?;
    Ok(Client::over(stream.try_clone()?, stream))
}

/// The resident memory of a process in MB (a million bytes), or `None` if the system does not report it.
pub(crate) fn resident_mb(pid: u32) -> Option<f64> {
    memory_mb(&pid.to_string(), "VmRSS:")
}

/// The peak resident memory of this process in MB, or `None` if the system does not report it.
pub(crate) fn own_peak_mb() -> Option<f64> {
    memory_mb("self", "VmHWM:")
}

fn memory_mb(pid: &str, figure: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}
