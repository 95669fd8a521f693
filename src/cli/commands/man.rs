//! `man`: the manual page of a command, shown on a terminal and printed elsewhere.

use std::fs;
use std::io;
use std::process::Command;

use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::cli::args::{self, Man, Program};
use crate::cli::exit::Exit;
use crate::cli::manual::{self, Page};
use crate::cli::problem::{Outcome, Problem};

/// Shows a page.
pub(super) fn man(context: &mut Context<'_>, options: &Man) -> Outcome<Exit> {
    let name = name(options.page.as_deref());
    let page = manual::page(&name, [args::DEFINITION, context.daemon]);
    let Some(page) = page else {
        return Err(Problem::new(Exit::Usage, format!("there is no page of {name}")));
    };
    if context.output.look.columns.is_none() || context.output.json {
        context.output.text(&page.text)?;
        return Ok(Exit::Done);
    }
    match shown(&page) {
        Ok(true) => Ok(Exit::Done),
        Ok(false) => Err(Problem::new(Exit::Failed, "man could not show the page")
            .hint("sessionctl help tells the commands and their options")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            context.output.text(&page.text)?;
            context.output.note(
                "there is no program man here to show this with; sessionctl help tells the commands and their options",
            )?;
            Ok(Exit::Done)
        }
        Err(error) => Err(Problem::new(
            Exit::Failed,
            format!("the page cannot be shown: {error}"),
        )),
    }
}

/// The name of the page that is meant.
fn name(page: Option<&str>) -> String {
    let main = Program::Sessionctl.name();
    match page {
        None => main.to_owned(),
        Some(program) if program == main || program == Program::Sessiond.name() => program.to_owned(),
        Some(command) if command.starts_with(main) => command.to_owned(),
        Some(command) => format!("{main}-{command}"),
    }
}

/// Has `man` show a page; whether it could.
fn shown(page: &Page) -> io::Result<bool> {
    // Each `man` takes a path for one, and few take standard input.
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(page.file_name());
    fs::write(&path, &page.text)?;
    // At a terminal Ctrl-C is for the pager, which goes on: it must not be left there alone.
    let _interrupts = signal(SignalKind::interrupt());
    Ok(Command::new("man").arg(&path).status()?.success())
}
