//! The loopback agent: a small, complete ACP agent that answers from its own transcripts.
//!
//! A process of its own that speaks ACP version 1 on standard input and output, keeps transcripts in Claude's
//! format and resumes from them and only from them. Directives in the prompt script what it does: limits,
//! crashes, forgotten sessions, questions. It is the default where no other agent is configured, and what
//! demonstrations and tests run against. It knows nothing of the daemon and has no way into it.

mod agent;
mod calls;
mod directive;
mod fork;
mod keeper;
mod listing;
mod marks;
mod replay;
mod report;
mod serve;
mod session;
mod sign_in;
mod stream;
mod turn;
mod wire;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::paths::names;

/// The first argument by which a program becomes this agent.
pub const ARGUMENT: &str = "loopback-agent";

/// The variable that names the data folder where the option `--data` does not.
pub const DATA_VARIABLE: &str = "SESSIOND_LOOPBACK_DATA";

/// The variable that names a file with a token, where the agent is to have accounts.
pub const TOKEN_VARIABLE: &str = "SESSIOND_LOOPBACK_TOKEN";

/// The exit status of a call with wrong arguments.
const USAGE_STATUS: u8 = 2;

/// Runs the agent on this process's standard input and output until either ends.
///
/// `arguments` are those behind [`ARGUMENT`]: `--data DIR`. All that the agent keeps is below `DIR/loopback`.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let data = match data_folder(arguments) {
        Ok(data) => data,
        Err(problem) => {
            complain(problem);
            return ExitCode::from(USAGE_STATUS);
        }
    };
    match serve::serve(&data.join(names::LOOPBACK)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("standard input or output failed: {error}"));
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

/// Says something on standard error, which is an agent's log. That nobody may listen is no failure.
fn complain(text: &str) {
    drop(writeln!(std::io::stderr(), "{ARGUMENT}: {text}"));
}
