//! What packages install beside the programs, from the one definition of the command lines: `completions`, and with the
//! manual `generate`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use super::Context;
use crate::cli::args::{self, Completions, Generate, Program};
use crate::cli::exit::Exit;
use crate::cli::manual::{self, Definition};
use crate::cli::problem::{Outcome, Problem};

/// Where manual pages of programs are, below a prefix.
const MANUAL: &str = "share/man/man1";

/// Where a shell looks for completions of a program, below a prefix.
fn completions_file(shell: Shell, program: &str) -> Option<String> {
    match shell {
        Shell::Bash => Some(format!("share/bash-completion/completions/{program}")),
        Shell::Fish => Some(format!("share/fish/vendor_completions.d/{program}.fish")),
        Shell::Zsh => Some(format!("share/zsh/site-functions/_{program}")),
        _ => None,
    }
}

/// Prints what makes a shell complete a program's command line.
pub(super) fn completions(context: &mut Context<'_>, options: &Completions) -> Outcome<Exit> {
    let definition = definition(options.program, context.daemon);
    context
        .output
        .text(&args::completions(options.shell, &definition))?;
    Ok(Exit::Done)
}

/// The command line of a program.
fn definition(program: Program, daemon: Definition) -> clap::Command {
    match program {
        Program::Sessionctl => args::command(),
        Program::Sessiond => (daemon.command)(),
    }
}

/// Writes the files, and prints where each is.
pub(super) fn generate(context: &mut Context<'_>, options: &Generate) -> Outcome<Exit> {
    let written = write(&options.prefix, context.daemon)
        .map_err(|(path, error)| Problem::file("write", &path, &error))?;
    let paths: String = written
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    context.output.text(&paths)?;
    Ok(Exit::Done)
}

fn write(prefix: &Path, daemon: Definition) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut files = Vec::new();
    for program in [Program::Sessionctl, Program::Sessiond] {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            if let Some(path) = completions_file(shell, program.name()) {
                let script = args::completions(shell, &definition(program, daemon));
                files.push((prefix.join(path), script));
            }
        }
    }
    for page in manual::pages([args::DEFINITION, daemon]) {
        files.push((prefix.join(MANUAL).join(page.file_name()), page.text));
    }
    for (path, text) in &files {
        let folder = path.parent().unwrap_or(prefix);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
        written.map_err(|error| (path.clone(), error))?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}
