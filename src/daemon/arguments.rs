//! The command line of the daemon.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

use crate::paths;

/// The help after the options. The variables that both programs read follow.
const AFTER_HELP: &str = "\
Exit codes: 0 stopped on request, 1 failed, 2 usage.

Signals:
  SIGTERM, SIGINT
    Stop the daemon: cancel the running turns, wait cancel_grace_ms for them to end, stop the agents and answer \
open requests. A second signal skips the wait. SIGKILL loses nothing that was acknowledged

Socket activation:
  A service manager such as systemd can own the socket and start the daemon on the first connection. The daemon takes the \
first descriptor of LISTEN_FDS if LISTEN_PID is its process id. The socket must have the path that the daemon would use; \
any other path is refused. The daemon reports to NOTIFY_SOCKET when it is ready (READY=1). systemctl --user enable \
sessiond.service starts the daemon at login; enabling sessiond.socket starts it on the first connection.

Environment:
  SESSIOND_LOG
    Log level or filter, such as debug or session_bridge::agent=debug (default: info)
  PATH, HOME, CLAUDE_CONFIG_DIR, CODEX_HOME, QWEN_HOME
    Used to find agents and their transcripts, unless set in the configuration. Agents inherit the whole environment
  LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET
    Set by a service manager; see Socket activation";

/// Run the daemon that keeps conversations with coding agents
///
/// sessiond gives each conversation with a coding agent an id that never changes, and restores its sessions after usage
/// limits, crashes and deleted transcripts. Apps and sessionctl connect over a Unix socket that only its user can open.
///
/// The daemon runs in the foreground and logs to standard error. sessionctl starts it when needed; a service manager can
/// start it too. Each data folder has at most one daemon. To apply a changed configuration, restart the daemon: run
/// sessionctl stop, and the next command starts it again.
#[derive(Debug, Parser)]
#[command(name = "sessiond", version, max_term_width = 100, after_long_help = format!("{AFTER_HELP}\n{}", paths::HELP))]
pub struct Arguments {
    /// Folder for configuration, data, log and socket [env: SESSIOND_HOME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub home: Option<PathBuf>,
    /// Configuration file (default: config.toml in the configuration folder)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Socket to listen on [env: SESSIOND_SOCKET]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Keep all data in memory; only the agents' transcripts remain after the daemon stops
    #[arg(long)]
    pub ephemeral: bool,
    /// Report readiness on standard input, a pipe to the parent process, and leave the parent's session
    #[arg(long, hide = true)]
    pub ready_on_stdin: bool,
}
