//! Benchmarks of the daemon as a process, each beside a floor that is measured in the same run.
//!
//! `cargo bench --bench bridge` runs all scenarios, `cargo bench --bench bridge -- latency start` some, `--
//! --quick` with fewer rounds, `-- --check` fails when a limit is passed. Figures are medians over several
//! runs. Whatever else the machine does shows in them: compare a figure with its floor, not with another
//! day's.
//!
//! This program is also each of the processes that the scenarios need beside the daemon: the agent that
//! floods, the floors. It knows the daemon by its program and its socket only, but for filling a store, which
//! over the socket would take longer than all that is measured.

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

/// What can go wrong in a benchmark ends it; the text is all that anybody does with it.
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
