//! Generates files from the definitions of the command lines: `completions`, `man`, and `generate`, which writes both for
//! packages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueHint};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man as Page;

use super::Context;
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::signals;
use crate::cli::{CommandDefinition, args};

/// Print shell completions
///
/// Packages and packaging/install.sh install the completions. The shell asks the program itself for commands, options,
/// checkpoints, and conversations, which it finds by id or title. To load completions from your home folder in zsh, add
/// fpath=(~/.zfunc $fpath) to ~/.zshrc before compinit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(sessionctl completions bash)
  sessionctl completions fish > ~/.config/fish/completions/sessionctl.fish
  sessionctl completions zsh > ~/.zfunc/_sessionctl
  sessionctl completions bash sessiond")]
pub(in crate::cli) struct Completions {
    /// Shell to print completions for
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// Program to complete
    #[arg(value_name = "PROGRAM", default_value = PROGRAMS[0], value_parser = PROGRAMS)]
    program: String,
}

/// Show a manual page
///
/// On a terminal, opens the page in man. Otherwise prints it as roff. If the pages are installed, man sessionctl works too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl man send
  sessionctl man sessiond
  sessionctl man fork | man -l -")]
pub(in crate::cli) struct Man {
    /// Command, or sessiond for the daemon (default: sessionctl)
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Write completions and manual pages to a folder, for packages
#[derive(Debug, Args)]
pub(in crate::cli) struct Generate {
    /// Installation prefix, such as /usr; files are written under its share folder
    #[arg(value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    prefix: PathBuf,
}

const PROGRAMS: [&str; 2] = ["sessionctl", "sessiond"];

/// Prints the script that makes a shell request completions from a program.
pub(in crate::cli) fn completions(context: &mut Context<'_>, options: &Completions) -> CommandResult {
    context
        .output
        .text(&registration(options.shell, &options.program))
}

/// The script that makes a shell call a program, by its name on `PATH`, with the variable `COMPLETE`.
fn registration(shell: Shell, program: &str) -> String {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&shell.to_string()) {
        // Cannot fail: the script is written to memory, and both lists of shells are the same.
        let _ = shell.write_registration("COMPLETE", program, program, program, &mut script);
    }
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes the files, and prints their paths.
pub(in crate::cli) fn generate(context: &mut Context<'_>, options: &Generate) -> CommandResult {
    let share = options.prefix.join("share");
    let mut files = Vec::new();
    for program in PROGRAMS {
        for (shell, path) in [
            (Shell::Bash, format!("bash-completion/completions/{program}")),
            (Shell::Fish, format!("fish/vendor_completions.d/{program}.fish")),
            (Shell::Zsh, format!("zsh/site-functions/_{program}")),
        ] {
            let path = share.join(path);
            let written = fs::create_dir_all(path.parent().unwrap_or(&share))
                .and_then(|()| fs::write(&path, registration(shell, program)));
            written.map_err(|error| Problem::file_error("write", &path, &error))?;
            files.push(path);
        }
    }
    files.extend(write_pages(&share.join("man/man1"), context.daemon_definition)?);
    for file in files {
        context.output.verbatim(&file.display().to_string())?;
    }
    Ok(())
}

/// Writes the manual pages of both programs and of every command to a folder, and returns their paths.
fn write_pages(folder: &Path, daemon: CommandDefinition) -> CommandResult<Vec<PathBuf>> {
    let mut pages = Vec::new();
    let written = fs::create_dir_all(folder).and_then(|()| {
        [args::command(), daemon()].into_iter().try_for_each(|program| {
            let mut program = program.disable_help_subcommand(true);
            program.build();
            write_page(&program, folder, &mut pages)
        })
    });
    written.map_err(|error| Problem::file_error("write manual pages to", folder, &error))?;
    Ok(pages)
}

/// Writes the pages of a command and its subcommands. `clap_mangen::generate_to` is not used, because it does not return
/// the paths, and omits the values of options from the synopsis.
fn write_page(command: &clap::Command, folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    // An empty date would be omitted, and the next argument would replace it.
    let man = Page::new(command.clone())
        .date(" ")
        .source(concat!("session-bridge ", env!("CARGO_PKG_VERSION")));
    let (path, mut page) = (folder.join(man.get_filename()), Vec::new());
    man.render(&mut page)?;
    fs::write(
        &path,
        with_values_in_synopsis(&String::from_utf8_lossy(&page), command),
    )?;
    pages.push(path);
    let mut below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.try_for_each(|below| write_page(below, folder, pages))
}

/// Adds the names of the options' values to the synopsis of a page, and a sign to arguments that can be repeated.
fn with_values_in_synopsis(page: &str, command: &clap::Command) -> String {
    command.get_arguments().fold(page.to_owned(), |page, arg| {
        let name = arg.get_value_names().map(|names| names.join(" "));
        let name = name.unwrap_or_default().replace('-', r"\-");
        let takes_values = arg.get_num_args().unwrap_or_default();
        let (shown, with_value) = match arg.get_long() {
            Some(long) if takes_values.takes_values() => {
                let option = format!(r"\-\-{}\fR", long.replace('-', r"\-"));
                (format!("{option}]"), format!(r"{option} \fI{name}\fR]"))
            }
            None if takes_values.max_values() > 1 => {
                let shown = format!(r"[\fI{name}\fR]");
                (shown.clone(), shown + "...")
            }
            _ => return page,
        };
        page.replacen(&shown, &with_value, 1)
    })
}

/// Shows a manual page: opened in `man` on a terminal, otherwise printed.
pub(in crate::cli) fn man(context: &mut Context<'_>, options: &Man) -> CommandResult {
    let name = match options.command.join("-") {
        none if none.is_empty() => PROGRAMS[0].to_owned(),
        program if program.starts_with("session") => program,
        command => format!("{}-{command}", PROGRAMS[0]),
    };
    // Every `man` accepts the path of a page, but few read standard input.
    let folder = tempfile::tempdir()
        .map_err(|error| Problem::file_error("make a folder in", &std::env::temp_dir(), &error))?;
    write_pages(folder.path(), context.daemon_definition)?;
    let path = folder.path().join(format!("{name}.1"));
    let Ok(page) = fs::read_to_string(&path) else {
        let problem = Problem::usage(format!("no manual page: {name}"));
        return Err(problem.hint("sessionctl help lists the commands; sessionctl man shows the page of all"));
    };
    if context.output.look.columns.is_none() {
        return context.output.text(&page);
    }
    match signals::run_at_terminal(Command::new("man").arg(&path)) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Problem::failed("man could not show the page")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            context.output.text(&page)?;
            let note = "man is not installed; sessionctl help describes the commands too";
            context.output.note(note)
        }
        Err(error) => Err(Problem::failed(format!("cannot run man: {error}"))),
    }
}
