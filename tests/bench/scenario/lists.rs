//! Lists that search many conversations, and the time that other calls wait meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::Outcome;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::stored;

/// Conversations in the store.
const CONVERSATIONS: usize = 100_000;
/// Lists of each kind in one run.
const LISTS: u64 = 20;
/// Searches in one run during which other calls are measured.
const SEARCHES: u64 = 10;

/// The searches, and the time limit for their first page.
const KINDS: [(&str, Limit); 3] = [
    // One conversation in a thousand is in this folder, so a page of 50 has to search half of them.
    ("cwd", Limit::AtMost(100.0)),
    ("cwd without any", Limit::AtMost(150.0)),
    ("query without a match", Limit::AtMost(200.0)),
];

/// The limit for the wait of a cheap call during a search, in milliseconds. Even an idle machine shows some
/// milliseconds. A search on the thread that serves all calls would take its whole duration.
const LONGEST_WAIT: Limit = Limit::AtMost(20.0);

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    stored::fill(&home.data(), CONVERSATIONS)?;
    let daemon = home.start()?;
    let (mut took, mut waits, mut quiet) = (vec![Vec::new(); KINDS.len()], Vec::new(), Vec::new());
    for _ in 0..options.runs {
        for (took, (kind, _)) in took.iter_mut().zip(KINDS) {
            took.push(list_ms(&daemon, &params(kind), options.rounds(LISTS))?);
        }
        let (waited, calls) = longest_wait_ms(&daemon, options.rounds(SEARCHES))?;
        waits.push(waited);
        quiet.push(longest_quiet_ms(&daemon, calls)?);
    }
    for (took, (kind, limit)) in took.iter().zip(KINDS) {
        report.add(Row {
            what: format!("conversation/list, first page by {kind}, {CONVERSATIONS} conversations"),
            ours: median(took),
            floor: None,
            limit,
            unit: "ms",
            note: format!("slowest run {:.1}", percentile(took, 100)),
        });
    }
    report.add(Row {
        what: "the longest that daemon/status waited during such lists".to_owned(),
        ours: median(&waits),
        floor: Some(median(&quiet)),
        limit: LONGEST_WAIT,
        unit: "ms",
        note: "floor: as many calls while nobody lists".to_owned(),
    });
    Ok(())
}

fn params(kind: &str) -> Value {
    match kind {
        "cwd" => json!({"cwd": "/home/u/project-500"}),
        "cwd without any" => json!({"cwd": "/home/u/elsewhere", "limit": 1}),
        _ => json!({"query": "a title that nobody gave"}),
    }
}

fn list_ms(daemon: &Daemon, params: &Value, rounds: u64) -> Outcome<f64> {
    let mut client = daemon.connect()?;
    let mut took_ms = Vec::new();
    for _ in 0..rounds {
        let (answered, took_us) = timed_us(|| client.call("conversation/list", params));
        answered?;
        took_ms.push(took_us / 1_000.0);
    }
    Ok(median(&took_ms))
}

/// Makes one call after another during a search. Returns the slowest and the number of calls.
fn longest_wait_ms(daemon: &Daemon, searches: u64) -> Outcome<(f64, u64)> {
    let (mut searcher, mut caller) = (daemon.connect()?, daemon.connect()?);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let searching = scope.spawn(|| {
            let searched = (0..searches).try_for_each(|_| {
                let found = KINDS
                    .iter()
                    .try_for_each(|(kind, _)| searcher.call("conversation/list", &params(kind)).map(drop));
                // The error is not `Send`, so its text is returned.
                found.map_err(|error| error.to_string())
            });
            is_over.store(true, Ordering::Relaxed);
            searched
        });
        let (mut longest, mut calls) = (0.0_f64, 0);
        while !is_over.load(Ordering::Relaxed) {
            let (answered, took_us) = timed_us(|| caller.call("daemon/status", &json!({})));
            answered?;
            longest = longest.max(took_us / 1_000.0);
            calls += 1;
        }
        let searched = searching.join().map_err(|_| "the searcher panicked")?;
        searched?;
        Ok((longest, calls))
    })
}

fn longest_quiet_ms(daemon: &Daemon, calls: u64) -> Outcome<f64> {
    let mut client = daemon.connect()?;
    let mut longest = 0.0_f64;
    for _ in 0..calls {
        let (answered, took_us) = timed_us(|| client.call("daemon/status", &json!({})));
        answered?;
        longest = longest.max(took_us / 1_000.0);
    }
    Ok(longest)
}
