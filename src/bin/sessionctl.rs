//! The command line's entry point: only dispatch.

use std::process::ExitCode;

fn main() -> ExitCode {
    session_bridge::cli::run(std::env::args_os())
}
