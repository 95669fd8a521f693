//! The command line: one definition for parsing, help, completions and manual pages.
//!
//! It owns the commands, their options and the help texts. It must not know how a command works.

mod branching;
mod groups;
mod setup;
mod told;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use super::commands::adopt::{Adopt, Check};
use super::commands::list::List;
use super::commands::past::Past;
use super::commands::transcripts::Transcripts;
use super::select::Target;
use super::talk::answer::{Answer, Cancel, Resume};
use super::talk::attach::Attach;
use super::talk::chat::Chat;
use super::talk::continuing::Continue;
use super::talk::edit::{Edit, Undo};
use super::talk::send::Send;

pub(super) use branching::{Fork, MinFidelity, Mv};
pub(super) use setup::{Completions, DEFINITION, Generate, Man, Program, command, completions, parse};

/// Continue conversations with coding agents across limits and crashes
#[derive(Debug, Parser)]
#[command(
    name = "sessionctl",
    version,
    max_term_width = 100,
    help_template = groups::TEMPLATE,
    after_help = told::PROGRAM.help(),
    after_long_help = told::PROGRAM.long_help()
)]
pub(super) struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub(super) global: Global,
    /// The command; without one, the user picks a conversation.
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// Options accepted before or after the command.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Global {
    /// Socket of the daemon [env: SESSIOND_SOCKET]
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "Global options")]
    pub(super) socket: Option<PathBuf>,
    /// Folder for configuration, data, log and socket [env: SESSIOND_HOME]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Global options")]
    pub(super) home: Option<PathBuf>,
    /// Configuration file, if this command starts the daemon
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Global options")]
    pub(super) config: Option<PathBuf>,
    /// Print the daemon's result as JSON; streams print one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(super) json: bool,
    /// Do not start the daemon; fail if it is not running
    #[arg(long, global = true, help_heading = "Global options")]
    pub(super) no_start: bool,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a conversation and print its id
    New(New),
    /// List conversations, those of this folder first
    Ls(List),
    /// List agent transcripts on this machine, newest first
    Transcripts(Transcripts),
    /// Show the details of a conversation
    Show(Target),
    /// Talk to an agent
    Chat(Chat),
    /// Send a prompt and print the answer
    Send(Send),
    /// Follow a conversation as it happens
    Attach(Attach),
    /// Continue interrupted turns, now or at a time
    #[command(alias = "recover")]
    Continue(Continue),
    /// Stop the running turn
    Cancel(Cancel),
    /// Open the agent session without sending a prompt
    Resume(Resume),
    /// Fork a conversation and print the id of the branch
    Fork(Fork),
    /// Replace an earlier prompt and print the new answer
    Edit(Edit),
    /// Undo the last edit, in-place fork, move or reset
    Undo(Undo),
    /// Move a conversation or a project to another folder
    Mv(Mv),
    /// List the agent sessions that make up a conversation
    Chain(Target),
    /// Show the log of all changes to the chain
    Lineage(Target),
    /// List the turns to fork from or to edit, newest first
    Checkpoints(Past),
    /// Show the messages of a conversation
    History(Past),
    /// Draw a conversation with its sessions and forks
    Tree(Target),
    /// Create a conversation from an existing transcript
    Adopt(Adopt),
    /// Check a transcript for damage
    Check(Check),
    /// Back up transcripts, or show the usage of all copies
    Keep(Keep),
    /// Restore deleted transcripts from their copies
    Restore(Restore),
    /// Export a conversation to a bundle or as JSON
    Export(Export),
    /// Import a bundle and print the id of the conversation
    Import(Import),
    /// Answer a question from the agent
    Answer(Answer),
    /// Set the title of a conversation
    Rename(Rename),
    /// Close the agent session until the next prompt
    Close(One),
    /// Start a new chat under the same id
    Reset(One),
    /// Delete a conversation permanently
    Rm(Remove),
    /// List the configured agents
    Agents,
    /// Show daemon status
    Status,
    /// Diagnose problems and suggest fixes
    Doctor(Doctor),
    /// Stop the daemon
    Stop(Stop),
    /// Run a self-checking demo in a temporary folder
    Demo(Demo),
    /// Print shell completions
    Completions(Completions),
    /// Show a manual page
    Man(Man),
    /// Write completions and manual pages to a folder, for packages
    #[command(hide = true)]
    Generate(Generate),
}

/// Arguments of a command that takes only a conversation.
#[derive(Debug, Args)]
pub(super) struct One {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
}

/// `new`.
#[derive(Debug, Args)]
pub(super) struct New {
    /// Agent, by its name in the configuration (default: default_agent)
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Folder that the agent works in (default: current folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// Title of the conversation
    #[arg(long, value_name = "TEXT")]
    pub(super) title: Option<String>,
    /// Model, by the agent's name for it (default: the agent's)
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Session mode, by the agent's id for it (default: the agent's)
    #[arg(long, value_name = "ID")]
    pub(super) mode: Option<String>,
    /// Open the agent session now instead of at the first prompt
    #[arg(long)]
    pub(super) open: bool,
}

/// `keep`.
#[derive(Debug, Args)]
pub(super) struct Keep {
    /// Conversation or session id to back up; omit to show usage and orphaned copies
    #[arg(value_name = "CONV|ID")]
    pub(super) target: Option<String>,
    /// Delete the orphaned copies of this session id instead of making a copy
    #[arg(long, requires = "target")]
    pub(super) forget: bool,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", requires = "target")]
    pub(super) agent: Option<String>,
}

/// `restore`.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// Conversation or session id to restore
    #[arg(value_name = "CONV|ID")]
    pub(super) target: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
}

/// `export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// File format (default: json if FILE is - or ends in .json, otherwise bundle)
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<ExportAs>,
    /// New file; - prints JSON to standard output (default: a bundle in the exports folder)
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Include env and header values of MCP servers, which may be secret (default: omit)
    #[arg(long)]
    pub(super) secrets: bool,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExportAs {
    /// Messages as JSON, for other programs
    Json,
    /// Archive with transcripts and settings, for sessionctl import
    Bundle,
}

/// `import`.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// Bundle made by sessionctl export
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) path: PathBuf,
    /// Folder that the agent works in
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// Use the folders named in the bundle; only for bundles you trust
    #[arg(long, conflicts_with = "cwd")]
    pub(super) same_folders: bool,
    /// Assign new ids, so that the same conversation can be imported again
    #[arg(long)]
    pub(super) new_ids: bool,
    /// Apply all settings, including the mode and MCP servers to start; only for bundles you trust
    #[arg(long)]
    pub(super) trust_settings: bool,
}

/// `rename`.
#[derive(Debug, Args)]
pub(super) struct Rename {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// New title
    #[arg(value_name = "TITLE")]
    pub(super) title: String,
}

/// `rm`.
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// Delete the transcripts too: the agent's files and all copies
    #[arg(long)]
    pub(super) transcripts: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Do not start agents; check only those that are running
    #[arg(long)]
    pub(super) no_agents: bool,
}

/// `stop`.
#[derive(Debug, Args)]
pub(super) struct Stop {
    /// Time for running turns to end, in milliseconds (default: cancel_grace_ms)
    #[arg(long, value_name = "MS")]
    pub(super) grace_ms: Option<u64>,
}

/// `demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Keep the temporary folder
    #[arg(long)]
    pub(super) keep: bool,
}

#[cfg(test)]
mod tests;
