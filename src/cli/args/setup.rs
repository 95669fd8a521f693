//! The definition as a whole, and what `completions`, `man` and `generate` make of it.
//!
//! It owns what the help says behind the options. That is in blocks which the manual has as sections: a line that ends in
//! a colon, and below it indented what [`crate::paths::told`] says of its form.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use clap_complete::Shell;

use super::Arguments;
use crate::paths::told;

/// What `-h` says behind the options.
pub(super) const HELP: &str = "CONV is a conversation's id, a prefix of it of 6 characters or more, any upstream id that \
    it ever held, or . for the newest conversation of this folder.\n\n\
    The first command that needs the daemon starts it. sessionctl demo shows what all this is for.\n\n\
    Examples:\n  \
    sessionctl new --title 'First steps'\n  \
    sessionctl send . 'Hello there'\n  \
    sessionctl history .\n\n\
    Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 not found, 5 busy or conflict, \
    6 agent failure, 7 limited, 8 the agent asks and nobody is there to answer.";

/// The variables that are read beside those that say where things are.
const VARIABLES: &str = "
  VISUAL, EDITOR
    What sessionctl edit opens the old prompt with
  PAGER
    What sessionctl history shows its text with on a terminal; less unless it is set, nothing when it is empty
  NO_COLOR
    Nothing is coloured where it is set
  LC_ALL, LC_CTYPE, LANG
    Signs beyond ASCII are used where the locale is UTF-8
  A daemon that is started gets all variables of the command that starts it; see sessiond for those that it reads.";

/// What `--help` says there.
pub(super) fn long_help() -> String {
    format!(
        "{HELP}\n\nEnvironment:{}{VARIABLES}\n\nFiles:{}",
        told::VARIABLES,
        told::FILES
    )
}

/// `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Packages and packaging/install.sh put this to where the shells look. zsh has to be told of a folder below \
    your home: fpath=(~/.zfunc $fpath) in ~/.zshrc, before compinit.\n\nExamples:\n  \
    source <(sessionctl completions bash)\n  \
    sessionctl completions bash sessiond\n  \
    sessionctl completions fish > ~/.config/fish/completions/sessionctl.fish\n  \
    sessionctl completions zsh > ~/.zfunc/_sessionctl"
)]
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
#[command(
    after_help = "On a terminal the page is shown by man, and elsewhere printed as roff, so that it can be kept or given \
    on. Where the pages are installed, man sessionctl finds them by itself.\n\nExamples:\n  \
    sessionctl man send\n  \
    sessionctl man sessiond\n  \
    sessionctl man > sessionctl.1\n  \
    sessionctl man fork | man -l -"
)]
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

/// The definition of the command line.
pub(in crate::cli) fn command() -> clap::Command {
    let command = Arguments::command();
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
