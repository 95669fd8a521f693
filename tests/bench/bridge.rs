//! Benchmarks of the daemon as a process, each next to a floor that is measured in the same run.
//!
//! `cargo bench --bench bridge` runs all scenarios, `cargo bench --bench bridge -- latency start` some of
//! them. `-- --quick` uses fewer rounds, and `-- --check` fails if a limit is exceeded. Figures are medians
//! over several runs. They depend on what else the machine does: compare a figure with its floor, not with a
//! figure of another day.
//!
//! This program is also each of the processes that the scenarios need besides the daemon: the streaming agent
//! and the floors. It knows the daemon only as a program and a socket. The exception is filling a store,
//! which would take longer over the socket than everything that is measured.

mod agent;

mod client;
mod daemon;
mod floor;
mod grown;
#[path = "../support/npm.rs"]
#[allow(clippy::expect_used, reason = "shared with tests, where a failure is a panic")]
#[allow(
    dead_code,
    reason = "only the adapter of one vendor brings a library to compare with"
)]
mod npm;
mod options;
mod pin;
mod report;
mod sample;
mod scenario;
mod stored;
mod vendor;
mod ways;

use std::process::ExitCode;

use options::{Options, Role};
use report::Report;

/// The result of a benchmark step. Any error ends the benchmark and is only printed.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let role = Role::read(std::env::args().skip(1));
    let ended = match role {
        Ok(Role::Bench(options)) => measure(&options),
        Ok(Role::Agent) => agent::run().map(|()| ExitCode::SUCCESS),
        Ok(Role::Splice(socket)) => floor::splice(&socket).map(|()| ExitCode::SUCCESS),
        Ok(Role::Answer(socket, bytes)) => floor::answer(&socket, bytes).map(|()| ExitCode::SUCCESS),
        Ok(Role::Index(path)) => scenario::index::be_index(&path).map(|()| ExitCode::SUCCESS),
        Ok(Role::Check(path)) => scenario::index::be_check(&path).map(|()| ExitCode::SUCCESS),
        Ok(Role::Cut(path, uuid)) => scenario::cut::be_cut(&path, &uuid).map(|()| ExitCode::SUCCESS),
        Ok(Role::Copy(path, uuid)) => scenario::cut::be_copy(&path, &uuid).map(|()| ExitCode::SUCCESS),
        Ok(Role::Read(path)) => floor::read(&path).map(|()| ExitCode::SUCCESS),
        Err(error) => Err(error),
    };
    ended.unwrap_or_else(|error| {
        report::complain(error.as_ref());
        ExitCode::FAILURE
    })
}

fn measure(options: &Options) -> Outcome<ExitCode> {
    let mut report = Report::begin();
    for scenario in scenario::ALL {
        if options.wants(scenario.name) {
            report.working_on(scenario.name);
            (scenario.run)(options, &mut report)?;
        }
    }
    report.print()?;
    Ok(if options.check && report.any_over() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
