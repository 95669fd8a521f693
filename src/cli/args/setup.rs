//! The definition as a whole, and what `completions`, `man` and `generate` make of it.
//!
//! It owns how the definition and what is told beside it come together.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use clap_complete::Shell;

use super::{Arguments, told};
use crate::cli::manual::Definition;
use crate::paths::told::Told;

/// `completions`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(in crate::cli) shell: Shell,
    /// The program that is completed
    #[arg(value_name = "PROGRAM", default_value = "sessionctl")]
    pub(in crate::cli) program: Program,
}

/// The programs that have a command line.
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
    /// A command, or sessiond for the daemon; the page of sessionctl as a whole unless given
    #[arg(value_name = "COMMAND", hide_possible_values = true)]
    pub(in crate::cli) page: Option<String>,
}

/// `generate`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Generate {
    /// The folder, as /usr: files go to share/man/man1 and where the shells look below share
    #[arg(value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) prefix: PathBuf,
}

/// The command line, and what is told of it.
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
    command.mut_subcommand("man", |man| man.mut_arg("page", |page| page.value_parser(pages)))
}

/// What there is a page of, by each name that it goes by.
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

/// The command line, taken apart.
///
/// # Errors
/// That it makes no sense, or that it asks for help: clap's own, which knows what to print.
pub(in crate::cli) fn parse(line: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(line)?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The script that completes a command line in a shell.
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

/// What clap leaves out for fish: the values of what is no option, and that most of those are no files.
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

/// Whether a file or a folder is meant.
fn is_path(hint: ValueHint) -> bool {
    matches!(
        hint,
        ValueHint::FilePath | ValueHint::DirPath | ValueHint::AnyPath
    )
}

/// The definition without what is hidden from people, and with what a shell has to know to offer no files where none are
/// meant.
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

/// A value of which nothing is known is no file.
fn hinted(arg: clap::Arg) -> clap::Arg {
    match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() && arg.get_possible_values().is_empty() => {
            arg.value_hint(ValueHint::Other)
        }
        _ => arg,
    }
}
