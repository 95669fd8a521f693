//! The number of updates per second that reach one subscriber, complete and in order.

use crate::Outcome;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, timed_us};
use crate::ways::{Bridge, Splice, Way};

/// Updates in one run.
pub(super) const UPDATES: u64 = 500_000;

/// The result of one run.
pub(super) struct Run {
    pub(super) per_second: f64,
    pub(super) lost: u64,
    pub(super) in_order: bool,
}

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let updates = options.rounds(UPDATES);
    let (mut splice, mut bridge) = (Splice::open()?, Bridge::open("bench")?);
    let (mut floors, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        floors.push(stream(&mut splice, updates)?.per_second);
        let run = stream(&mut bridge, updates)?;
        if run.lost > 0 {
            // The daemon has dropped the subscriber.
            bridge = Bridge::open("bench")?;
        }
        runs.push(run);
    }
    let rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
    let lost: u64 = runs.iter().map(|run| run.lost).sum();
    let note = if runs.iter().all(|run| run.in_order) {
        "in order; floor: bare splice; measured elsewhere: acp conductor 18,600"
    } else {
        "NOT in order"
    };
    report.add(Row {
        what: format!("updates of 200 bytes to one subscriber, {updates} a run"),
        ours: median(&rates),
        floor: Some(median(&floors)),
        limit: Limit::AtLeast(750_000.0),
        unit: "/s",
        note: note.to_owned(),
    });
    report.add(Row {
        what: "updates lost in all runs".to_owned(),
        ours: lost as f64,
        floor: None,
        limit: Limit::AtMost(0.0),
        unit: "",
        note: String::new(),
    });
    Ok(())
}

pub(super) fn stream(way: &mut impl Way, updates: u64) -> Outcome<Run> {
    let (mut arrived, mut in_order) = (0, true);
    let (outcome, took_us) = timed_us(|| {
        way.prompt(&format!("stream {updates}"), &mut |update| {
            in_order &= update.number == arrived;
            arrived += 1;
        })
    });
    outcome?;
    Ok(Run {
        per_second: arrived as f64 / took_us * 1e6,
        lost: updates.saturating_sub(arrived),
        in_order,
    })
}
