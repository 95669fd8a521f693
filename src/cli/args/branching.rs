//! Arguments of `fork` and `mv`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// `fork`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Fork {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Continue the same conversation on the branch (default: create a new conversation)
    #[arg(long)]
    pub(in crate::cli) in_place: bool,
    /// Turn to fork after: number (-1 is the last), checkpoint id or message id (default: -1)
    #[arg(long, value_name = "CHECKPOINT", allow_hyphen_values = true)]
    pub(in crate::cli) at: Option<String>,
    /// Existing folder that the branch works in (default: the conversation's folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// Title of the new conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "in_place")]
    pub(in crate::cli) title: Option<String>,
    /// Fail if the branch would keep less of the history than this (default: text)
    #[arg(long, value_name = "LEVEL")]
    pub(in crate::cli) min_fidelity: Option<MinFidelity>,
}

/// Least acceptable fidelity of a branch's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum MinFidelity {
    /// The complete history
    Full,
    /// An older state of the history, or one that lacks turns
    Partial,
    /// The messages, retold as text
    Text,
    /// No history required
    None,
}

/// `mv`.
#[derive(Debug, Args)]
#[command(override_usage = "sessionctl mv [OPTIONS] <CONV|OLD> <NEW>\n       \
    sessionctl mv --undo <ID>\n       sessionctl mv --list")]
pub(in crate::cli) struct Mv {
    /// Conversation to move, or the old path of a project folder, written with a slash
    #[arg(value_name = "CONV|OLD", required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) what: Option<String>,
    /// Existing folder to move to
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath, required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) folder: Option<PathBuf>,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// With OLD: update the folder in the settings and prompt history of Claude Code too
    #[arg(long)]
    pub(in crate::cli) settings: bool,
    /// Undo a folder move, by the id that the move printed
    #[arg(long, value_name = "ID", conflicts_with_all = ["what", "folder", "dry_run", "settings"])]
    pub(in crate::cli) undo: Option<String>,
    /// List the folder moves that can be undone, newest first
    #[arg(long, conflicts_with_all = ["what", "folder", "dry_run", "settings", "undo"])]
    pub(in crate::cli) list: bool,
}
