//! The daemon's entry point: only dispatch.

use std::process::ExitCode;

use clap::CommandFactory;
use session_bridge::agent::loopback;
use session_bridge::{cli, daemon};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    match arguments.peek() {
        Some(first) if first == loopback::ARGUMENT => loopback::main(arguments.skip(1)),
        Some(first) if first == daemon::ARGUMENT => daemon::main(arguments.skip(1)),
        _ => {
            let line: Vec<_> = std::env::args_os().collect();
            let completed = cli::complete(daemon::arguments::Arguments::command, &line);
            completed.unwrap_or_else(|| daemon::main(arguments))
        }
    }
}
