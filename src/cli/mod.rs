//! `sessionctl`: the command line client of the daemon, for users and scripts.
//!
//! It owns the command line, how a daemon is found or started, and how answers and events look on a terminal. It must not
//! use the daemon's or the agents' internals: it uses only the wire contract and the paths, as any other app could.

mod advice;
mod args;
mod commands;
mod complete;
mod connect;
mod demo;
mod event_stream;
mod history_text;
mod humanize;
mod keyboard;
mod output;
mod picker;
mod problem;
mod progress;
mod prompt_text;
mod select;
mod signals;
mod start;
mod table;
mod talk;
mod tree;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anstream::ColorChoice;
use clap_complete::CompleteEnv;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use args::{Arguments, Global};
use commands::Context;
use connect::DaemonConnector;
use output::{Output, is_dumb_terminal};
use problem::{CommandResult, Exit, Problem};

use crate::paths::{Environment, Paths};

/// Builds the definition of a program's command line.
pub type CommandDefinition = fn() -> clap::Command;

/// Runs one command to completion. The first argument is the program's name.
///
/// `daemon` is the daemon's command line, which also has a manual page and completions.
///
/// Starts its own runtime, so it must not be called from within one.
pub fn run(args: impl Iterator<Item = OsString>, daemon: CommandDefinition) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    if let Some(exit) = complete(args::command, &args) {
        return exit;
    }
    let arguments = match args::parse(&args) {
        Ok(arguments) => arguments,
        Err(error) if args::is_help(&error) => {
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            };
            // If the output was closed, nobody reads the help text.
            return match error.print() {
                Ok(()) | Err(_) => exit.into(),
            };
        }
        Err(error) => {
            let problem = args::invalid_call(&error, &args);
            Output::of_this_process(args.iter().any(|arg| arg == "--json")).problem(&problem);
            return problem.exit.into();
        }
    };
    let global = &arguments.global;
    match global.color {
        clap::ColorChoice::Auto => {}
        clap::ColorChoice::Always => ColorChoice::Always.write_global(),
        clap::ColorChoice::Never => ColorChoice::Never.write_global(),
    }
    log_to_stderr(global.verbose);
    let mut output = Output::of_this_process(global.json);
    output.quiet = global.quiet;
    output.daemon_options = global.launch.shell_options();
    if arguments.command.is_none() && !(picker::is_possible(&output) && output.look.columns.is_some()) {
        return without_command(&mut output);
    }
    match carry_out(arguments, daemon, &mut output) {
        Ok(()) => Exit::Success.into(),
        Err(problem) => {
            output.problem(&problem);
            problem.exit.into()
        }
    }
}

/// Prints the help if the program is called without a command and there is no terminal to pick a conversation on.
fn without_command(output: &mut Output) -> ExitCode {
    if output.json {
        let hint = "list the commands and their options: sessionctl help";
        output.problem(&Problem::usage("no command was given").hint(hint));
        return Exit::Usage.into();
    }
    if is_dumb_terminal() && std::io::stdin().is_terminal() {
        let what =
            "the list to pick a conversation from needs a terminal with cursor control, and TERM is dumb";
        let hint = "list the conversations: sessionctl ls; list the commands: sessionctl help";
        output.problem(&Problem::usage(what).hint(hint));
        return Exit::Usage.into();
    }
    let help = args::command().render_help();
    // A reader that has left needs no help text.
    match write!(anstream::stderr(), "{}", help.ansi()) {
        Ok(()) | Err(_) => Exit::Usage.into(),
    }
}

/// Prints completions if a shell requests them, which it does with the environment variable `COMPLETE`.
pub fn complete(definition: CommandDefinition, args: &[OsString]) -> Option<ExitCode> {
    let folder = std::env::current_dir().ok();
    match CompleteEnv::with_factory(definition).try_complete(args, folder.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        // The user is in the middle of a command line: print nothing.
        Err(_) => Some(ExitCode::FAILURE),
    }
}

fn log_to_stderr(verbose: u8) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let (own, all) = (
        Targets::new().with_target("session_bridge", LevelFilter::DEBUG),
        Targets::new().with_default(LevelFilter::TRACE),
    );
    let registry = tracing_subscriber::registry();
    // Fails only if a subscriber is set already.
    let _ = match verbose {
        0 => return,
        1 => {
            let lines = lines.without_time().with_target(false).with_level(false);
            registry.with(own).with(lines).try_init()
        }
        _ => registry.with(all).with(lines).try_init(),
    };
}

fn carry_out(arguments: Arguments, daemon: CommandDefinition, output: &mut Output) -> CommandResult {
    let (yes, command) = (arguments.global.yes, arguments.name);
    let reach = daemon_connector(arguments.global)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::failed(format!("cannot start the runtime: {error}")))?;
    let mut context = Context {
        connector: reach,
        output,
        daemon_definition: daemon,
        yes,
        command,
    };
    let result = match arguments.command {
        Some(command) => runtime.block_on(command.run(&mut context)),
        None => runtime.block_on(select::start_interactive(&mut context)),
    };
    // Do not wait for background work, such as taking a lock or reading a line from the terminal.
    runtime.shutdown_background();
    result
}

/// Builds the connector to the daemon from the options and the environment.
fn daemon_connector(global: Global) -> CommandResult<DaemonConnector> {
    let environment = Environment::of_this_process();
    let launch = global.launch;
    let paths = Paths::resolve(
        launch.home.as_deref(),
        launch.config.as_deref(),
        launch.socket.as_deref(),
        &environment,
    )?;
    Ok(DaemonConnector {
        paths,
        is_socket_explicit: launch.socket.is_some()
            || (launch.home.is_none() && environment.socket.is_some()),
        may_start: !global.no_start,
        daemon_options: launch,
    })
}

/// Logs the error of a step that is not needed to continue.
fn log_error<T, E: Display>(what: &str, result: Result<T, E>) {
    if let Err(error) = result {
        tracing::debug!(%error, "{what}");
    }
}

/// Locks a mutex. Its data is whole even if a thread panicked that had locked it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
