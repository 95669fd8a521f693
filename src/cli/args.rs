//! The command line: one definition from which parsing, help, completions and manual come.
//!
//! It owns names, options and their words. It must not know what a command does.

mod branching;
mod setup;
mod told;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub(super) use branching::{Edit, Fork, MinFidelity, Mv};
pub(super) use setup::{Completions, DEFINITION, Generate, Man, Program, command, completions, parse};

/// Conversations with coding agents that outlive their sessions.
#[derive(Debug, Parser)]
#[command(
    name = "sessionctl",
    version,
    max_term_width = 100,
    after_help = told::PROGRAM.help(),
    after_long_help = told::PROGRAM.long_help()
)]
pub(super) struct Arguments {
    /// Options that every command takes.
    #[command(flatten)]
    pub(super) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options that may stand before or after the command.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Global {
    /// The daemon's socket [env: SESSIOND_SOCKET]
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "Global options")]
    pub(super) socket: Option<PathBuf>,
    /// One folder that everything is under [env: SESSIOND_HOME]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Global options")]
    pub(super) home: Option<PathBuf>,
    /// The configuration file of a daemon that is started
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Global options")]
    pub(super) config: Option<PathBuf>,
    /// Print the daemon's answer as it is; streams one object a line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(super) json: bool,
    /// Never start a daemon
    #[arg(long, global = true, help_heading = "Global options")]
    pub(super) no_start: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a conversation and print its id
    New(New),
    /// List conversations, newest first
    Ls(List),
    /// List the agents' transcripts on this machine, whoever made them, newest first
    Transcripts(Transcripts),
    /// Show one conversation
    Show(One),
    /// Send a prompt and follow the turn to its end
    Send(Send),
    /// Follow a conversation, whoever talks to it
    Attach(One),
    /// Have a conversation go on by itself, at its limit's reset or at a time
    Continue(Continue),
    /// Go on now with what a limit, a crash or a stop cut short
    Recover(Recover),
    /// Stop the running turn
    Cancel(Cancel),
    /// Open the session without a prompt, and tell how
    Resume(One),
    /// Branch off and print the id of the branch's conversation
    Fork(Fork),
    /// Replace an earlier prompt, and follow the new turn to its end
    Edit(Edit),
    /// Take back the last edit, branch in place or move, then the one before it
    Undo(One),
    /// Have a conversation, or all that ran in a folder, go on in another one
    Mv(Mv),
    /// Show the upstream sessions that can be resumed; the last is the head
    Chain(One),
    /// Show everything that ever happened to the chain
    Lineage(One),
    /// List the places after the turns of the history, newest first
    Checkpoints(Past),
    /// Show what was said, with tool calls folded to a line
    History(Past),
    /// Draw the conversation with its sessions, its forks, and what it was forked from
    Tree(One),
    /// Make a conversation of a transcript that was made elsewhere, and print its id
    Adopt(Adopt),
    /// Tell what is wrong with a transcript, and what that does to a resume
    Check(Check),
    /// Copy a conversation's transcripts, or show what all copies take
    Keep(Keep),
    /// Put kept transcripts back to where their agent looks for them
    Restore(Restore),
    /// Write a conversation into a file, to go on elsewhere or for other programs
    Export(Export),
    /// Make an exported conversation go on here, and print its id
    Import(Import),
    /// Answer a question of the agent
    Answer(Answer),
    /// Give a conversation a title
    Rename(Rename),
    /// Close the session; the next prompt brings it back
    Close(One),
    /// Start a new chat under the same id
    Reset(One),
    /// Delete a conversation for good
    Rm(Remove),
    /// Show the agents
    Agents,
    /// Show how the daemon is
    Status,
    /// Look for what is wrong around the daemon, and tell what to do about it
    Doctor(Doctor),
    /// Stop the daemon
    Stop(Stop),
    /// Play the main job in a folder of its own, and check each step
    Demo(Demo),
    /// Print what makes a shell complete commands and options
    Completions(Completions),
    /// Show the manual page of a command
    Man(Man),
    /// Write completions and manual pages below a folder, as packages have them
    #[command(hide = true)]
    Generate(Generate),
}

/// The one conversation that a command is about.
#[derive(Debug, Args)]
pub(super) struct One {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
}

/// `checkpoints` and `history`.
#[derive(Debug, Args)]
pub(super) struct Past {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// Only the last so many; all unless given
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) last: Option<u32>,
}

/// `new`.
#[derive(Debug, Args)]
pub(super) struct New {
    /// The agent to talk to, as it is called in the configuration
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// The folder to work in, this one unless given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// What to call it
    #[arg(long, value_name = "TEXT")]
    pub(super) title: Option<String>,
    /// The model, by the agent's name of it
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// The session mode, by the agent's id of it
    #[arg(long, value_name = "ID")]
    pub(super) mode: Option<String>,
    /// Open the session at once instead of at the first prompt
    #[arg(long)]
    pub(super) open: bool,
}

/// `ls`.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only those of this folder
    #[arg(long)]
    pub(super) here: bool,
    /// Only those of one agent
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Only those whose title or folder holds this text
    #[arg(long, value_name = "TEXT")]
    pub(super) query: Option<String>,
    /// How many to show
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// Whole ids and folders
    #[arg(long, short)]
    pub(super) long: bool,
}

/// `transcripts`.
#[derive(Debug, Args)]
pub(super) struct Transcripts {
    /// Only those whose title, folder, path or id holds this text
    #[arg(value_name = "QUERY")]
    pub(super) query: Option<String>,
    /// Only those of one agent
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Only those of this folder
    #[arg(long)]
    pub(super) here: bool,
    /// How many to show
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// Whole ids, turns, folders and paths
    #[arg(long, short)]
    pub(super) long: bool,
}

/// `send`.
#[derive(Debug, Args)]
pub(super) struct Send {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// The prompt; - reads it from standard input
    #[arg(value_name = "TEXT", required = true, num_args = 1.., allow_hyphen_values = false)]
    pub(super) text: Vec<String>,
    /// Wait in line while another turn runs
    #[arg(long)]
    pub(super) queue: bool,
    /// At a usage limit, go on by itself when that resets; the command ends and tells when
    #[arg(long)]
    pub(super) wait_limit: bool,
    /// What to do when the agent asks something, instead of asking you; leave unless there is a terminal to ask at
    #[arg(long, value_name = "WHAT")]
    pub(super) on_question: Option<OnQuestion>,
}

/// What to do with a question of the agent when nobody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnQuestion {
    /// Leave it open and exit with 8; the turn waits for `sessionctl answer`
    Leave,
    /// Wait until somebody else has answered it
    Wait,
    /// Refuse what is asked for, and go on
    Deny,
}

/// `continue`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["at_reset", "at", "now", "cancel"]))]
pub(super) struct Continue {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// What to say instead of our own word; needed where nothing was cut short
    #[arg(value_name = "TEXT", conflicts_with = "cancel")]
    pub(super) text: Vec<String>,
    /// When the limit resets that it has run into
    #[arg(long)]
    pub(super) at_reset: bool,
    /// At a time: 18:30, 2026-01-31T18:30, or with a zone
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,
    /// At once
    #[arg(long)]
    pub(super) now: bool,
    /// Not any more
    #[arg(long)]
    pub(super) cancel: bool,
}

/// `recover`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["conversation", "all"]))]
pub(super) struct Recover {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: Option<String>,
    /// All that are limited, interrupted or failed, or whose turn was cut short by anything but you
    #[arg(long)]
    pub(super) all: bool,
}

/// `cancel`.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// Also the prompts that wait in line
    #[arg(long)]
    pub(super) queued: bool,
}

/// `answer`.
#[derive(Debug, Args)]
pub(super) struct Answer {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// The question's id, as sessionctl show tells it
    #[arg(value_name = "INTERRUPT")]
    pub(super) interrupt: String,
    /// The option's id, `cancel`, or a whole ACP outcome as a JSON object
    #[arg(value_name = "OPTION")]
    pub(super) option: String,
}

/// `adopt`.
#[derive(Debug, Args)]
pub(super) struct Adopt {
    /// The agent's own id of the session, the name of its transcript, or 6 or more characters of its beginning
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// The agent, where several have a transcript of this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// The folder to work in, the transcript's own unless given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// What to call it
    #[arg(long, value_name = "TEXT")]
    pub(super) title: Option<String>,
}

/// `check`.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// A conversation, whose newest session is checked, or the id of any session that has a transcript, or its beginning
    #[arg(value_name = "CONV|ID")]
    pub(super) target: String,
    /// The agent, where several have a transcript of this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Write a repaired copy under a new id, where something is wrong that it would not have
    #[arg(long)]
    pub(super) repair: bool,
    /// Cut texts of tools' results in the copy that are longer than this, in bytes; Claude's transcripts only
    #[arg(long, value_name = "BYTES", requires = "repair", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) cut_output: Option<u64>,
}

/// `keep`.
#[derive(Debug, Args)]
pub(super) struct Keep {
    /// A conversation, or the id of any session that has a transcript; without it is told what all copies take, and which of
    /// them no conversation has
    #[arg(value_name = "CONV|ID")]
    pub(super) target: Option<String>,
    /// Delete the copies of a session that no conversation has, named by its id, instead of making some
    #[arg(long, requires = "target")]
    pub(super) forget: bool,
    /// The agent, where several have a transcript of this id
    #[arg(long, value_name = "NAME", requires = "target")]
    pub(super) agent: Option<String>,
}

/// `restore`.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// A conversation, or the id of a session that is kept
    #[arg(value_name = "CONV|ID")]
    pub(super) target: String,
    /// The agent, where several have a transcript of this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
}

/// `export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// What to make: json where FILE is - or ends in .json, else a bundle
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<ExportAs>,
    /// The file, which must not be there yet; - is standard output. A bundle without it goes into the daemon's own folder
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Include the values of MCP servers' env and headers, which may be keys
    #[arg(long)]
    pub(super) secrets: bool,
}

/// What an export makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExportAs {
    /// What was said, as plain JSON for other programs
    Json,
    /// Everything that is needed to go on elsewhere
    Bundle,
}

/// `import`.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// The bundle that sessionctl export made
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) path: PathBuf,
    /// The folder to run the conversation in
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// Use the folders that the bundle names; only for bundles of your own
    #[arg(long, conflicts_with = "cwd")]
    pub(super) same_folders: bool,
    /// Give the conversation and its sessions new ids, so that it can be here twice
    #[arg(long)]
    pub(super) new_ids: bool,
    /// Take all its settings over, also MCP servers, which are started, and the mode; only for bundles of your own
    #[arg(long)]
    pub(super) trust_settings: bool,
}

/// `rename`.
#[derive(Debug, Args)]
pub(super) struct Rename {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// Its new title
    #[arg(value_name = "TITLE")]
    pub(super) title: String,
}

/// `rm`.
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(super) conversation: String,
    /// Also delete the transcripts: the agent's, with what lies beside them, and our copies
    #[arg(long)]
    pub(super) transcripts: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Start no agent; those that run are asked all the same
    #[arg(long)]
    pub(super) no_agents: bool,
}

/// `stop`.
#[derive(Debug, Args)]
pub(super) struct Stop {
    /// How long running turns get to end, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(super) grace_ms: Option<u64>,
}

/// `demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Leave the folder behind, to look at
    #[arg(long)]
    pub(super) keep: bool,
}

#[cfg(test)]
mod tests;
