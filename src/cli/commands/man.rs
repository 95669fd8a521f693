//! `man`: the manual page of a command, shown on a terminal and printed elsewhere.

use std::fs;
use std::io;
use std::process::Command;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use super::generate::write_pages;
use crate::cli::exit::Exit;
use crate::cli::problem::{Outcome, Problem};

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

/// Shows a page.
pub(in crate::cli) fn man(context: &mut Context<'_>, options: &Man) -> Outcome<Exit> {
    let name = match options.command.join("-") {
        none if none.is_empty() => "sessionctl".to_owned(),
        program if program.starts_with("session") => program,
        command => format!("sessionctl-{command}"),
    };
    // Each `man` takes a path for a page, and few take standard input.
    let folder = tempfile::tempdir()
        .map_err(|error| Problem::file("make a folder in", &std::env::temp_dir(), &error))?;
    write_pages(folder.path(), context.daemon)?;
    let path = folder.path().join(format!("{name}.1"));
    let Ok(page) = fs::read_to_string(&path) else {
        let problem = Problem::new(Exit::Usage, format!("no manual page: {name}"));
        return Err(problem.hint("sessionctl help lists the commands; sessionctl man shows the page of all"));
    };
    let mut is_missing = false;
    if context.output.look.columns.is_some() && !context.output.json {
        // Ctrl-C on a terminal is meant for the pager, which keeps running: this program must outlive it.
        let _interrupts = signal(SignalKind::interrupt());
        match Command::new("man").arg(&path).status() {
            Ok(status) if status.success() => return Ok(Exit::Done),
            Ok(_) => return Err(Problem::new(Exit::Failed, "man could not show the page")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => is_missing = true,
            Err(error) => return Err(Problem::new(Exit::Failed, format!("cannot run man: {error}"))),
        }
    }
    context.output.text(&page)?;
    if is_missing {
        context
            .output
            .note("man is not installed; sessionctl help describes the commands too")?;
    }
    Ok(Exit::Done)
}
