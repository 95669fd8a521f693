//! The delay that the daemon adds to an update, with all processes on one core.

use crate::Outcome;
use crate::options::Options;
use crate::pin::Pinned;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, monotonic_ns, percentile};
use crate::ways::{Bridge, Direct, Splice, Way};

/// Updates in one run.
pub(super) const UPDATES: u64 = 2_000;
/// The agent's pause between two updates, in microseconds: long enough for all processes to become idle.
const GAP_US: u64 = 500;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let (mut ours, mut ours_late, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let pinned = Pinned::to_one_core()?;
    let (mut direct, mut splice, mut bridge) = (Direct::open()?, Splice::open()?, Bridge::open("bench")?);
    let updates = options.rounds(UPDATES);
    for _ in 0..options.runs {
        let direct = latencies_us(&mut direct, updates)?;
        let splice = latencies_us(&mut splice, updates)?;
        let bridge = latencies_us(&mut bridge, updates)?;
        floors.push(median(&splice) - median(&direct));
        ours.push(median(&bridge) - median(&direct));
        ours_late.push(percentile(&bridge, 99) - percentile(&direct, 99));
    }
    drop(pinned);
    report.add(Row {
        what: "update of 200 bytes, added to a direct pipe, one core".to_owned(),
        ours: median(&ours),
        floor: Some(median(&floors)),
        limit: Limit::AtMost(24.0),
        unit: "µs",
        note: format!(
            "p99 {:+.1}; floor: bare splice; measured elsewhere: acp conductor 72",
            median(&ours_late)
        ),
    });
    Ok(())
}

pub(super) fn latencies_us(way: &mut impl Way, updates: u64) -> Outcome<Vec<f64>> {
    let mut latencies = Vec::new();
    way.prompt(&format!("drip {updates} {GAP_US}"), &mut |arrived| {
        let passed_ns = monotonic_ns().saturating_sub(arrived.written_ns);
        latencies.push(passed_ns as f64 / 1_000.0);
    })?;
    if latencies.len() as u64 != updates {
        return Err(format!("{} updates of {updates} arrived", latencies.len()).into());
    }
    Ok(latencies)
}
