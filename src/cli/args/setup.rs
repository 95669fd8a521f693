//! The complete definition with its help texts, and the arguments and output of `completions`, `man` and `generate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use clap_complete::Shell;

use super::{Arguments, groups, told};
use crate::cli::manual::Definition;
use crate::paths::told::Told;

/// `completions`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Completions {
    /// Shell to print completions for
    #[arg(value_name = "SHELL")]
    pub(in crate::cli) shell: Shell,
    /// Program to complete
    #[arg(value_name = "PROGRAM", default_value = "sessionctl")]
    pub(in crate::cli) program: Program,
}

/// The programs with a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Program {
    /// The command line
    Sessionctl,
    /// The daemon
    Sessiond,
}

impl Program {
    /// Its name.
    pub(in crate::cli) const fn name(self) -> &'static str {
        match self {
            Self::Sessionctl => SESSIONCTL,
            Self::Sessiond => SESSIOND,
        }
    }
}

const SESSIONCTL: &str = "sessionctl";
const SESSIOND: &str = "sessiond";

/// `man`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Man {
    /// Command, or sessiond for the daemon (default: sessionctl)
    #[arg(value_name = "COMMAND", hide_possible_values = true)]
    pub(in crate::cli) page: Option<String>,
}

/// `generate`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Generate {
    /// Installation prefix, such as /usr; files are written under its share folder
    #[arg(value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) prefix: PathBuf,
}

/// The command line and its help texts.
pub(in crate::cli) const DEFINITION: Definition = Definition {
    command,
    told: |name| match name {
        SESSIONCTL => told::PROGRAM,
        below => told_of(below).unwrap_or(Told::NOTHING),
    },
};

fn told_of(command: &str) -> Option<Told> {
    let mut commands = told::COMMANDS.iter();
    commands.find(|(name, _)| *name == command).map(|(_, told)| *told)
}

/// The definition of the command line.
pub(in crate::cli) fn command() -> clap::Command {
    let command = Arguments::command().mut_subcommands(|below| match told_of(below.get_name()) {
        Some(told) => below.after_help(told.help()),
        None => below,
    });
    let pages = PossibleValuesParser::new(pages(&command));
    let groups = groups::listing(&command);
    command
        .before_help(groups)
        .mut_subcommand("man", |man| man.mut_arg("page", |page| page.value_parser(pages)))
}

/// The names of all manual pages, with their aliases.
fn pages(command: &clap::Command) -> Vec<PossibleValue> {
    let commands = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut pages: Vec<_> = commands
        .map(|below| {
            let name = below.get_name();
            PossibleValue::new(name.to_owned()).alias(format!("{SESSIONCTL}-{name}"))
        })
        .collect();
    pages.extend([SESSIONCTL, SESSIOND].map(PossibleValue::new));
    pages
}

/// Parses a command line.
///
/// # Errors
/// clap's own error for an invalid line or a request for help; it prints itself.
pub(in crate::cli) fn parse(line: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(line)?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Generates the completion script for a shell.
pub(in crate::cli) fn completions(shell: Shell, definition: &clap::Command) -> String {
    let mut script = Vec::new();
    let mut shown = shown(definition);
    let name = shown.get_name().to_owned();
    clap_complete::generate(shell, &mut shown, &*name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        script.push_str(&fish_values(&name, &shown));
    }
    script
}

/// Completes positional values in fish, which clap omits: known values, and no files unless the value is a path.
fn fish_values(name: &str, shown: &clap::Command) -> String {
    let mut lines = String::new();
    for command in shown.get_subcommands() {
        let mut values = command.get_positionals().peekable();
        if values.peek().is_none() || values.any(|value| is_path(value.get_value_hint())) {
            continue;
        }
        let known: Vec<String> = command
            .get_positionals()
            .flat_map(clap::Arg::get_possible_values)
            .map(|value| value.get_name().to_owned())
            .collect();
        let known = match known.is_empty() {
            true => String::new(),
            false => format!(" -a \"{}\"", known.join(" ")),
        };
        let below = command.get_name();
        lines.push_str(&format!(
            "complete -c {name} -n \"__fish_{name}_using_subcommand {below}\" -f{known}\n"
        ));
    }
    lines
}

/// Whether the value is a file or a folder.
fn is_path(hint: ValueHint) -> bool {
    matches!(
        hint,
        ValueHint::FilePath | ValueHint::DirPath | ValueHint::AnyPath
    )
}

/// The definition without hidden commands and options, with hints that keep shells from offering files for other values.
fn shown(definition: &clap::Command) -> clap::Command {
    let mut shown = clap::Command::new(definition.get_name().to_owned());
    if let Some(version) = definition.get_version() {
        shown = shown.version(version.to_owned());
    }
    let arguments = definition.get_arguments().filter(|arg| !arg.is_hide_set());
    let commands = definition.get_subcommands().filter(|below| !below.is_hide_set());
    shown
        .args(arguments.cloned())
        .subcommands(commands.cloned())
        .mut_args(hinted)
        .mut_subcommands(|below| below.mut_args(hinted))
}

/// Marks a value without a hint as something other than a file.
fn hinted(arg: clap::Arg) -> clap::Arg {
    match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() && arg.get_possible_values().is_empty() => {
            arg.value_hint(ValueHint::Other)
        }
        _ => arg,
    }
}
