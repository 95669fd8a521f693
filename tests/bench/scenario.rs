//! The scenarios and their names.

mod calls;
mod commands;
pub(crate) mod cut;
mod editors;
mod envelope;
mod fork;
mod herd;
pub(crate) mod index;
mod latency;
mod lists;
mod moving;
mod rebuild;
mod recovery;
mod start;
mod throughput;
mod transcript_list;
mod watch;

use crate::Outcome;
use crate::options::Options;
use crate::report::Report;

/// A scenario to measure.
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// Runs the scenario.
    pub(crate) run: fn(&Options, &mut Report) -> Outcome<()>,
}

/// All scenarios, in the order in which they run.
pub(crate) const ALL: [Scenario; 17] = [
    Scenario {
        name: "latency",
        run: latency::run,
    },
    Scenario {
        name: "throughput",
        run: throughput::run,
    },
    Scenario {
        name: "envelope",
        run: envelope::run,
    },
    Scenario {
        name: "editors",
        run: editors::run,
    },
    Scenario {
        name: "start",
        run: start::run,
    },
    Scenario {
        name: "lists",
        run: lists::run,
    },
    Scenario {
        name: "transcript_list",
        run: transcript_list::run,
    },
    Scenario {
        name: "index",
        run: index::run,
    },
    Scenario {
        name: "cut",
        run: cut::run,
    },
    Scenario {
        name: "fork",
        run: fork::run,
    },
    Scenario {
        name: "move",
        run: moving::run,
    },
    Scenario {
        name: "watch",
        run: watch::run,
    },
    Scenario {
        name: "rebuild",
        run: rebuild::run,
    },
    Scenario {
        name: "recovery",
        run: recovery::run,
    },
    Scenario {
        name: "herd",
        run: herd::run,
    },
    Scenario {
        name: "commands",
        run: commands::run,
    },
    Scenario {
        name: "calls",
        run: calls::run,
    },
];
