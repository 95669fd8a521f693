//! How the daemon is called.

use std::path::PathBuf;

use clap::Parser;

/// Keeps conversations with coding agents alive when their upstream sessions are not.
#[derive(Debug, Parser)]
#[command(name = "sessiond", version, about)]
pub struct Arguments {
    /// One folder that everything is under: config/config.toml, data/, run/, log/ [env: SESSIOND_HOME]
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The socket to listen on [env: SESSIOND_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Keep everything in memory: nothing outlives this daemon but the agents' own transcripts
    #[arg(long)]
    pub ephemeral: bool,
    /// Standard input is a pipe to whoever started this: write a word there when the sockets listen, and leave the
    /// starter's session
    #[arg(long, hide = true)]
    pub ready_on_stdin: bool,
    /// This process has just built the store anew, and then started itself again: what it set aside, where it did
    #[arg(long, hide = true, value_name = "FOLDER", require_equals = true, num_args = 0..=1)]
    pub rebuilt: Option<Option<PathBuf>>,
}
