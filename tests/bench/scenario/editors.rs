//! The time an editor waits with `sessionctl acp` in place of its agent.

use serde_json::json;

use super::commands::whole_ms;
use super::{latency, throughput};
use crate::Outcome;
use crate::client::Client;
use crate::daemon::Home;
use crate::floor::Ended;
use crate::options::Options;
use crate::pin::Pinned;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::ways::{Direct, Splice, acp};

/// Processes in one run that are started and initialized.
const HANDSHAKES: u64 = 50;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let pinned = Pinned::to_one_core()?;
    measure_latency(options, report)?;
    drop(pinned);
    let home = Home::new()?;
    let daemon = home.start()?;
    drop(daemon.connect()?);
    measure_throughput(&home, options, report)?;
    measure_handshake(&home, options, report)
}

/// Starts another daemon, which is pinned to the one core too.
fn measure_latency(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let daemon = home.start()?;
    drop(daemon.connect()?);
    let (mut ours, mut ours_late, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let (mut direct, mut splice, mut editor) = (Direct::open()?, Splice::open()?, Direct::to_daemon(&home)?);
    let updates = options.rounds(latency::UPDATES);
    for _ in 0..options.runs {
        let direct = latency::latencies_us(&mut direct, updates)?;
        let splice = latency::latencies_us(&mut splice, updates)?;
        let editor = latency::latencies_us(&mut editor, updates)?;
        floors.push(median(&splice) - median(&direct));
        ours.push(median(&editor) - median(&direct));
        ours_late.push(percentile(&editor, 99) - percentile(&direct, 99));
    }
    report.add(Row {
        what: "update of 200 bytes to an editor, added to the agent itself, one core".to_owned(),
        ours: median(&ours),
        floor: Some(median(&floors)),
        limit: Limit::AtMost(60.0),
        unit: "µs",
        note: format!("p99 {:+.1}; floor: bare splice, one process", median(&ours_late)),
    });
    Ok(())
}

fn measure_throughput(home: &Home, options: &Options, report: &mut Report) -> Outcome<()> {
    let updates = options.rounds(throughput::UPDATES);
    let (mut direct, mut editor) = (Direct::open()?, Direct::to_daemon(home)?);
    let (mut floors, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        floors.push(throughput::stream(&mut direct, updates)?.per_second);
        let run = throughput::stream(&mut editor, updates)?;
        if run.lost > 0 || !run.in_order {
            return Err(format!("{} updates did not reach the editor, or not in order", run.lost).into());
        }
        rates.push(run.per_second);
    }
    report.add(Row {
        what: format!("updates of 200 bytes to an editor, {updates} a run"),
        ours: median(&rates),
        floor: Some(median(&floors)),
        limit: Limit::AtLeast(250_000.0),
        unit: "/s",
        note: "in order, none lost; floor: the agent itself".to_owned(),
    });
    Ok(())
}

fn measure_handshake(home: &Home, options: &Options, report: &mut Report) -> Outcome<()> {
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        for _ in 0..options.rounds(HANDSHAKES) {
            let (asked, took_us) = timed_us(|| handshake(home));
            asked?;
            ours.push(took_us / 1_000.0);
            floors.push(whole_ms(home, &["--version"])?);
        }
    }
    report.add(Row {
        what: "start of `sessionctl acp` to the answer to initialize".to_owned(),
        ours: median(&ours),
        floor: Some(median(&floors)),
        limit: Limit::AtMost(20.0),
        unit: "ms",
        note: format!(
            "p99 {:.1}; floor: the same program says its version",
            percentile(&ours, 99)
        ),
    });
    Ok(())
}

/// Starts the process and waits for its first answer. Returns the process, so that it is ended outside the
/// measured time.
fn handshake(home: &Home) -> Outcome<Ended> {
    let mut process = Ended(acp(home).spawn()?);
    let (Some(input), Some(output)) = (process.0.stdout.take(), process.0.stdin.take()) else {
        return Err("the process has no pipes".into());
    };
    let mut client = Client::over(input, output);
    client.call(
        "initialize",
        &json!({"protocolVersion": 1, "clientCapabilities": {}}),
    )?;
    Ok(process)
}
