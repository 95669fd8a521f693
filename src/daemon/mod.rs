//! The composition root: puts the rooms together, in the order in which they start and stop.
//!
//! Start: configuration → private folders → lock → store → end what the last life left → sockets → ready. Nothing
//! decides from a transcript before the sweep of its agent is done. Stop: no new work → turns are cancelled → agents
//! end → answers are written → the store is flushed → sockets and lock go.

mod activation;
pub mod arguments;
pub mod config;
mod configured;
mod failure;
pub mod folders;
pub mod lock;
pub mod ready;
pub mod recorder;
mod standing;
mod start;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::conversation::services::chain_text;
use arguments::Arguments;
pub use failure::StartError;
pub use start::run;

/// The hidden first argument with which either program becomes the daemon.
pub const ARGUMENT: &str = "daemon";

/// How long a stop waits for threads that still read when all else is done.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// Runs the daemon to its end. `arguments` are those behind the program's name or behind [`ARGUMENT`].
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let named = std::iter::once(OsString::from("sessiond")).chain(arguments);
    let arguments = match Arguments::try_parse_from(named) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A reader that has left needs no help text.
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
            // A thread may hang in a file system that answers no more; what had to be written is written.
            runtime.shutdown_timeout(LAST_THREADS);
            result
        }
        Err(source) => Err(StartError::Runtime(source)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Tells a person why the daemon did not start; `sessionctl` reads these two lines from the log.
fn say_error(error: &StartError) {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    let mut text = format!("error: {}\n", chain_text(error));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // There is nobody left to tell when this fails.
    let _unwritten = stderr.write_all(text.as_bytes());
}

/// Log lines go to standard error; `SESSIOND_LOG` chooses which, as `LEVEL` or `TARGET=LEVEL,…`; `info` unless set.
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
        tracing::debug!("a log was set up before");
    }
}
