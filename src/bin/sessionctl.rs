//! The command line's entry point. Packages install this program as `sessiond` too.

use std::process::ExitCode;

use session_bridge::Program;

fn main() -> ExitCode {
    Program::of_this_process().run()
}
