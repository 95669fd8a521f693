//! The composition root: assembles the rooms, in the order of start and stop.
//!
//! Start: configuration → private folders → lock → store → end what the previous run left → sockets → ready. No
//! transcript is judged before the sweep of its agent is complete. Stop: no new work → cancel turns → end agents →
//! write answers → flush the store → remove the sockets. The lock ends with the process.

mod activation;
pub mod arguments;
pub mod config;
mod failure;
mod folders;
mod loaded_config;
pub mod lock;
mod presence;
pub mod ready;
mod servers;
mod start;

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::conversation::services::chain_text;
use arguments::Arguments;
pub use failure::StartError;
pub use start::run;

/// The hidden first argument that makes either program the daemon.
pub const ARGUMENT: &str = "daemon";

/// The hidden option, directly after [`ARGUMENT`], with which the process starts the daemon and exits.
const DETACH: &str = "--detach";

/// How long a stop waits for threads that still read after everything else is done.
const THREAD_STOP_LIMIT: Duration = Duration::from_secs(1);

/// The error if the daemon's runtime cannot be started.
const RUNTIME_FAILED: &str = "cannot start the runtime";

/// Runs the daemon until it ends. `arguments` are those after the program's name or after [`ARGUMENT`].
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == DETACH).is_some() {
        return start_detached(arguments);
    }
    let named = std::iter::once(OsString::from("sessiond")).chain(arguments);
    let arguments = match Arguments::try_parse_from(named) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // Ignore a failed print: without a reader, the help text is not needed.
            return match error.print() {
                Ok(()) | Err(_) => ExitCode::from(code),
            };
        }
    };
    start_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run(&arguments));
            // A thread may hang in an unresponsive file system. Everything that must be written was written.
            runtime.shutdown_timeout(THREAD_STOP_LIMIT);
            result
        }
        Err(error) => Err(StartError::io(RUNTIME_FAILED)(error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Starts the daemon in a process of its own, which has no parent once this one has ended.
fn start_detached(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let started = std::env::current_exe()
        .and_then(|program| Command::new(program).arg(ARGUMENT).args(arguments).spawn());
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&StartError::io("cannot start the daemon's process")(error));
            ExitCode::FAILURE
        }
    }
}

/// Prints why the daemon did not start. `sessionctl` reads these two lines from the log.
fn print_error(error: &StartError) {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    let mut text = format!("error: {}\n", chain_text(error));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // Nothing can report this failure.
    let _unwritten = stderr.write_all(text.as_bytes());
}

/// Logs to standard error. `SESSIOND_LOG` filters by `LEVEL` or `TARGET=LEVEL,…`; the default is `info`.
fn start_log() {
    let wanted = std::env::var("SESSIOND_LOG").ok();
    let filter = wanted.as_deref().and_then(|text| text.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let subscriber = tracing_subscriber::registry()
        .with(lines)
        .with(filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO)));
    if subscriber.try_init().is_err() {
        tracing::debug!("the log was already set up");
    }
}
