//! `generate`: what packages install beside the programs, from the one definition of the command lines.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::Man;

use super::Context;
use crate::cli::args::{self, Generate};
use crate::cli::exit::Exit;
use crate::cli::problem::{Outcome, Problem};

/// Where the shells look for completions of `sessionctl`, below a prefix.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/sessionctl"),
    (Shell::Fish, "share/fish/vendor_completions.d/sessionctl.fish"),
    (Shell::Zsh, "share/zsh/site-functions/_sessionctl"),
];

/// Where manual pages of programs are, below a prefix.
const MANUAL: &str = "share/man/man1";

/// Writes the files, and prints where each is.
pub(super) fn generate(context: &mut Context<'_>, options: &Generate) -> Outcome<Exit> {
    let written = write(&options.prefix, (context.daemon)())
        .map_err(|(path, error)| Problem::file("write", &path, &error))?;
    let paths: String = written
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    context.output.text(&paths)?;
    Ok(Exit::Done)
}

fn write(prefix: &Path, daemon: clap::Command) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut files = Vec::new();
    for (shell, path) in COMPLETIONS {
        files.push((prefix.join(path), args::completions(shell).into_bytes()));
    }
    let mut pages = Vec::new();
    pages_of(built(args::command()), &mut pages);
    pages_of(built(daemon), &mut pages);
    for page in pages {
        let page = Man::new(page);
        let path = prefix.join(MANUAL).join(page.get_filename());
        let mut text = Vec::new();
        page.render(&mut text).map_err(|error| (path.clone(), error))?;
        files.push((path, text));
    }
    for (path, text) in &files {
        let folder = path.parent().unwrap_or(prefix);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
        written.map_err(|error| (path.clone(), error))?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// With what clap adds of its own accord, but for `help`.
fn built(command: clap::Command) -> clap::Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// A page for the command, and for each below it.
fn pages_of(command: clap::Command, pages: &mut Vec<clap::Command>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages_of(below.clone(), pages);
    }
    pages.push(command);
}
