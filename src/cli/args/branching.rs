//! What `fork`, `edit` and `mv` take: branching off a conversation, going back in one, and taking one elsewhere.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::OnQuestion;

/// `fork`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Fork {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Make the branch the head of the same conversation
    #[arg(long)]
    pub(in crate::cli) in_place: bool,
    /// Behind this turn or message, and not behind the last: a step as sessionctl checkpoints counts them, -1 for the last, or an id
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true)]
    pub(in crate::cli) at: Option<String>,
    /// The folder that the branch works in, which must exist; the conversation's own unless given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// What to call the new conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "in_place")]
    pub(in crate::cli) title: Option<String>,
    /// The least of the history that has to come along; a branch that would have less is not made
    #[arg(long, value_name = "LEVEL")]
    pub(in crate::cli) min_fidelity: Option<MinFidelity>,
}

/// The least of a history that will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum MinFidelity {
    /// All of it
    Full,
    /// An older state of it, or one that lacks turns
    Partial,
    /// What was said, told in words; so it is unless another level is given
    Text,
    /// Anything will do
    None,
}

/// `edit`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Edit {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// The turn whose prompt is replaced: a step as sessionctl checkpoints counts them, -1 for the last, or an id; the last turn unless
    /// given
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true)]
    pub(in crate::cli) at: Option<String>,
    /// The new prompt; - reads it from standard input, and without any the old one is opened in $EDITOR
    #[arg(value_name = "TEXT", num_args = 0.., allow_hyphen_values = false)]
    pub(in crate::cli) text: Vec<String>,
    /// The least of the history before the turn that has to come along; an edit that would have less is not made
    #[arg(long, value_name = "LEVEL")]
    pub(in crate::cli) min_fidelity: Option<MinFidelity>,
    /// What to do when the agent asks something, instead of asking you; leave unless there is a terminal to ask at
    #[arg(long, value_name = "WHAT")]
    pub(in crate::cli) on_question: Option<OnQuestion>,
}

/// `mv`.
#[derive(Debug, Args)]
#[command(override_usage = "sessionctl mv [OPTIONS] <CONV|OLD> <NEW>\n       \
    sessionctl mv --undo <ID>\n       sessionctl mv --list")]
pub(in crate::cli) struct Mv {
    /// The conversation: its id, 6 or more characters of it, or . for the newest of this folder; or with a slash in it the
    /// path that a folder had, for everything that ran there or below, also without sessionctl
    #[arg(value_name = "CONV|OLD", required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) what: Option<String>,
    /// The folder that it goes to, which must exist
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath, required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) folder: Option<PathBuf>,
    /// Only tell what would be moved
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// With OLD: have Claude Code's own settings and its list of what was typed name the new folder too
    #[arg(long)]
    pub(in crate::cli) settings: bool,
    /// Take a move of a folder back, by the id that it told
    #[arg(long, value_name = "ID", conflicts_with_all = ["what", "folder", "dry_run", "settings"])]
    pub(in crate::cli) undo: Option<String>,
    /// Tell the moves of folders that can still be taken back, newest first; that of one conversation is taken back by sessionctl undo
    #[arg(long, conflicts_with_all = ["what", "folder", "dry_run", "settings", "undo"])]
    pub(in crate::cli) list: bool,
}
