//! The rooms (top-level modules) of session-bridge. A room uses only the rooms above it in ARCHITECTURE.md's table.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use agent::loopback;

pub mod paths;

mod files;

pub mod acp;
pub mod agent;
pub mod archive;
pub mod bridge;
pub mod chain;
pub mod conversation;
pub mod daemon;
pub mod diagnosis;
pub mod server;
pub mod store;
pub mod transcript;

pub mod cli;

#[cfg(test)]
#[path = "../tests/support/words.rs"]
mod words;

/// A program of this library. One executable can be both, under two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `sessionctl`.
    CommandLine,
    /// `sessiond`.
    Daemon,
}

impl Program {
    /// Returns the program that this process was started as: the daemon if its name is `sessiond`.
    #[must_use]
    pub fn of_this_process() -> Self {
        let name = std::env::args_os().next();
        match name.as_deref().map(Path::new).and_then(Path::file_name) {
            Some(name) if name == "sessiond" => Self::Daemon,
            _ => Self::CommandLine,
        }
    }

    /// Runs the program to its end with the arguments of this process. A hidden first argument runs the daemon or the built-in
    /// agent instead, so that either program can start them.
    ///
    /// Starts its own runtime, so it must not be called from within one.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let line: Vec<OsString> = std::env::args_os().collect();
        let from = |first| line.iter().skip(first).cloned();
        let daemon_line = daemon::arguments::Arguments::command;
        match line.get(1) {
            Some(first) if first == loopback::ARGUMENT => loopback::main(from(2)),
            Some(first) if first == daemon::ARGUMENT => daemon::main(from(2)),
            _ if self == Self::Daemon => {
                cli::complete(daemon_line, &line).unwrap_or_else(|| daemon::main(from(1)))
            }
            _ => cli::run(from(0), daemon_line),
        }
    }
}
