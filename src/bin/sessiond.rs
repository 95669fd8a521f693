//! The daemon's entry point. `cargo` builds it; packages install `sessionctl` under this name instead.

use std::process::ExitCode;

use session_bridge::Program;

fn main() -> ExitCode {
    Program::Daemon.run()
}
