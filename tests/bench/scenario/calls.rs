//! Calls: sequential ones, many in flight, and a whole prompt.

use serde_json::json;

use crate::Outcome;
use crate::daemon::{Home, SocketClient};
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, timed_us};
use crate::ways::{Bridge, Direct, Way};

/// Calls in one run.
const CALLS: u64 = 10_000;
/// Calls in flight at the same time: as many as one connection may have.
const IN_FLIGHT: u64 = 64;
/// Prompts in one run.
const PROMPTS: u64 = 50;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let (mut one, mut many, mut prompts, mut bare_prompts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut bridge = Bridge::open("loopback")?;
    let folder = tempfile::tempdir()?;
    let mut direct = Direct::to_loopback(folder.path())?;
    for _ in 0..options.runs {
        one.push(one_after_another_us(&mut client, options.rounds(CALLS))?);
        many.push(in_flight_per_second(&mut client, options.rounds(CALLS))?);
        prompts.push(prompt_us(&mut bridge, options.rounds(PROMPTS))? / 1_000.0);
        bare_prompts.push(prompt_us(&mut direct, options.rounds(PROMPTS))? / 1_000.0);
    }
    report.add(Row {
        what: "daemon/status, one after another".to_owned(),
        ours: median(&one),
        floor: None,
        limit: Limit::Unset,
        unit: "µs",
        note: "p50".to_owned(),
    });
    report.add(Row {
        what: format!("daemon/status, {IN_FLIGHT} in flight"),
        ours: median(&many),
        floor: None,
        limit: Limit::Unset,
        unit: "/s",
        note: String::new(),
    });
    report.add(Row {
        what: "a prompt to the loopback agent and its answer".to_owned(),
        ours: median(&prompts),
        floor: Some(median(&bare_prompts)),
        limit: Limit::Unset,
        unit: "ms",
        note: "p50; floor: the same agent on a pipe; three synced writes of the store lie between".to_owned(),
    });
    Ok(())
}

fn one_after_another_us(client: &mut SocketClient, calls: u64) -> Outcome<f64> {
    let mut took = Vec::new();
    for _ in 0..calls {
        let (answered, took_us) = timed_us(|| {
            client.send("daemon/status", &json!({}))?;
            client.skip_answer()
        });
        answered?;
        took.push(took_us);
    }
    Ok(median(&took))
}

fn in_flight_per_second(client: &mut SocketClient, calls: u64) -> Outcome<f64> {
    let (answered, took_us) = timed_us(|| {
        for sent in 0..calls + IN_FLIGHT {
            if sent < calls {
                client.send("daemon/status", &json!({}))?;
            }
            if sent >= IN_FLIGHT {
                client.skip_answer()?;
            }
        }
        Outcome::Ok(())
    });
    answered?;
    Ok(calls as f64 / took_us * 1e6)
}

fn prompt_us(way: &mut impl Way, prompts: u64) -> Outcome<f64> {
    let mut took = Vec::new();
    for _ in 0..prompts {
        let (answered, took_us) = timed_us(|| way.prompt("hello", &mut |_| {}));
        answered?;
        took.push(took_us);
    }
    Ok(median(&took))
}
