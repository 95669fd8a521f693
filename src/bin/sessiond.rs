//! The daemon's entry point: only dispatch.

use std::process::ExitCode;

use session_bridge::agent::loopback;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == loopback::ARGUMENT => loopback::main(arguments),
        _ => ExitCode::SUCCESS,
    }
}
