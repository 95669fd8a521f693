//! A daemon in a folder of its own.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::Outcome;
use crate::client::Client;
use crate::floor::connect;
use crate::options::AGENT;

/// A client of the daemon, or of anything that answers like it.
pub(crate) type SocketClient = Client<UnixStream, UnixStream>;

/// The program that is measured: the one that was built with this, or another that the environment names, to
/// compare.
pub(crate) fn program() -> OsString {
    std::env::var_os("SESSIOND_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_sessiond").into())
}

/// The command line that goes with it; likewise.
pub(crate) fn command_line() -> OsString {
    std::env::var_os("SESSIONCTL_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_sessionctl").into())
}

/// The folder of a daemon; a short path, since a socket's is bounded.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    /// A new one, in which the agent `bench` is this program's.
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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the daemon keeps its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Starts a daemon in it, without waiting for anything.
    pub(crate) fn start(&self) -> Outcome<Daemon> {
        let child = Command::new(program())
            .arg("--home")
            .arg(self.path())
            .env("SESSIOND_LOG", "warn")
            // Whoever runs it may have transcripts of their own.
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

/// A running daemon; stopped when dropped.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// A client, as soon as there is somebody to connect to.
    pub(crate) fn connect(&self) -> Outcome<SocketClient> {
        client(&self.socket)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in MB of a million bytes; none where the system does not tell.
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
            // It did not come up, or is gone already.
            let _ended = self.child.kill();
        }
        let _reaped = self.child.wait();
    }
}

/// A client of whoever answers at this socket.
pub(crate) fn client(socket: &Path) -> Outcome<SocketClient> {
    let stream = connect(socket)?;
    Ok(Client::over(stream.try_clone()?, stream))
}

/// The resident memory of a process in MB of a million bytes; none where the system does not tell.
pub(crate) fn resident_mb(pid: u32) -> Option<f64> {
    memory_mb(&pid.to_string(), "VmRSS:")
}

/// The most resident memory that this process ever had, likewise.
pub(crate) fn own_peak_mb() -> Option<f64> {
    memory_mb("self", "VmHWM:")
}

fn memory_mb(pid: &str, figure: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}
