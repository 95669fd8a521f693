//! How the daemon is called.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

use crate::paths::told::{self, Section, Told};

/// What the help and the manual tell beside the options.
pub const TOLD: Told = Told {
    description: &[
        "sessiond gives each conversation with a coding agent an id that never changes, and brings its sessions back after \
         limits, crashes and clean-ups. Apps and sessionctl talk to it over a Unix socket that only its user may use.",
        "It runs in the foreground and logs to standard error. Nobody has to start it: sessionctl does when it is needed, and \
         a service manager may. One runs for each folder of data. A change of the configuration needs a new start: sessionctl \
         stop ends the daemon, and the next command starts it again.",
    ],
    codes: &[("0", "stopped as it was told"), ("1", "failed"), ("2", "usage")],
    sections: &[
        Section {
            heading: "Environment",
            items: &[told::VARIABLES, VARIABLES],
            words: &[],
        },
        told::FILES,
        Section {
            heading: "Signals",
            items: &[&[(
                "SIGTERM, SIGINT",
                "Stop: turns are cancelled and get their grace, agents end, what is in flight is answered. A second one cuts \
                 the graces short. A kill loses nothing that was acknowledged",
            )]],
            words: &[],
        },
        Section {
            heading: "Socket activation",
            items: &[],
            words: &[
                "A service manager may listen in place of the daemon and start it with the first client, as systemd does: the \
                 first descriptor of LISTEN_FDS is taken where LISTEN_PID is this process. It has to be where the daemon would \
                 listen by itself; another is refused.",
                "NOTIFY_SOCKET is told when the daemon serves (READY=1). The units sessiond.socket and sessiond.service do all \
                 that: systemctl --user enable --now sessiond.service starts the daemon with the session, the same of \
                 sessiond.socket with its first client.",
            ],
        },
    ],
    ..Told::NOTHING
};

/// The variables that only the daemon reads.
const VARIABLES: &[told::Item] = &[
    (
        "SESSIOND_LOG",
        "What is logged: info unless it is set, debug, or a filter such as session_bridge::agent=debug",
    ),
    (
        "PATH, HOME, CLAUDE_CONFIG_DIR, CODEX_HOME",
        "Where agents and their transcripts are found, unless the configuration says otherwise. Agents get the whole environment",
    ),
    (
        "LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET",
        "Set by a service manager, see below",
    ),
];

/// Keeps conversations with coding agents alive when their upstream sessions are not.
#[derive(Debug, Parser)]
#[command(name = "sessiond", version, about, max_term_width = 100, after_long_help = TOLD.long_help())]
pub struct Arguments {
    /// One folder that everything is under: config/config.toml, data/, run/, log/ [env: SESSIOND_HOME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub home: Option<PathBuf>,
    /// The configuration file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// The socket to listen on [env: SESSIOND_SOCKET]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Keep everything in memory: nothing outlives this daemon but the agents' own transcripts
    #[arg(long)]
    pub ephemeral: bool,
    /// Standard input is a pipe to whoever started this: write a word there when the sockets listen, and leave the
    /// starter's session
    #[arg(long, hide = true)]
    pub ready_on_stdin: bool,
    /// This process has just rebuilt the store, and then replaced itself
    #[arg(long, hide = true)]
    pub rebuilt: bool,
}
