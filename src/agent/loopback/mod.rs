//! The loopback agent: a small but complete ACP agent that answers from its own transcripts.
//!
//! A separate process that speaks ACP version 1 on standard input and output, writes transcripts in Claude's format
//! and resumes only from them. Directives in a prompt script its behaviour: limits, crashes, forgotten sessions,
//! questions. It is the default if no other agent is configured and none is found on `PATH`. Demos and tests run against
//! it. It does not know the daemon and cannot access it.

mod agent;
mod calls;
mod directive;
mod fork;
mod listing;
mod persistent_state;
mod replay;
mod report;
mod serve;
mod session;
mod sign_in;
mod stream;
mod transcript_writer;
mod turn;
mod wire;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::paths::names;

/// The first argument that makes a program this agent.
pub const ARGUMENT: &str = "loopback-agent";

/// The variable for the data folder if `--data` is not given.
pub const DATA_VARIABLE: &str = "SESSIOND_LOOPBACK_DATA";

/// The variable for a file with a token. If it is set, the agent has accounts.
pub const TOKEN_VARIABLE: &str = "SESSIOND_LOOPBACK_TOKEN";

/// The exit code for invalid arguments.
const USAGE_STATUS: u8 = 2;

/// Runs the agent on standard input and output until either ends.
///
/// `arguments` are those after [`ARGUMENT`]: `--data DIR`. The agent's files are below `DIR/loopback`.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let data = match data_folder(arguments) {
        Ok(data) => data,
        Err(problem) => {
            log_error(problem);
            return ExitCode::from(USAGE_STATUS);
        }
    };
    match serve::serve(&data.join(names::LOOPBACK)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log_error(&format!("standard input or output failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn data_folder(arguments: impl IntoIterator<Item = OsString>) -> Result<PathBuf, &'static str> {
    let mut arguments = arguments.into_iter();
    let named = match arguments.next() {
        Some(option) if option == "--data" => Some(arguments.next().ok_or("--data needs a folder")?),
        Some(_) => return Err("the only option is --data DIR"),
        None => std::env::var_os(DATA_VARIABLE),
    };
    if arguments.next().is_some() {
        return Err("the only option is --data DIR");
    }
    let data = named
        .filter(|folder| !folder.is_empty())
        .ok_or("no data folder: give --data DIR or set SESSIOND_LOOPBACK_DATA")?;
    std::path::absolute(data).map_err(|_| "the data folder has no absolute path")
}

/// Prints a line to standard error, which is an agent's log. Ignores errors, because the log may have no reader.
fn log_error(text: &str) {
    drop(writeln!(std::io::stderr(), "{ARGUMENT}: {text}"));
}
