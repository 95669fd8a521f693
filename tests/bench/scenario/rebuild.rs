//! A start whose database is missing or not trusted, as after a power loss: it is rebuilt from the journal.

use serde_json::json;

use crate::Outcome;
use crate::daemon::Home;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, monotonic_ns, timed_us};
use crate::stored;

/// Conversations in the store.
const CONVERSATIONS: usize = 100_000;
/// The maximum number of runs, because each takes seconds.
const RUNS: usize = 3;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    stored::fill(&home.data(), CONVERSATIONS)?;
    let journal = std::fs::metadata(home.data().join("journal.jsonl"))?.len();
    let (mut took, mut floors, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs.min(RUNS) {
        std::fs::remove_dir_all(home.data().join("store"))?;
        floors.push(written_s(&home.data().join("floor"), journal)?);
        let (daemon, took_us) = timed_us(|| {
            let daemon = home.start()?;
            let status = daemon.connect()?.call("daemon/status", &json!({}))?;
            if status["conversations"] != CONVERSATIONS {
                return Err(format!("the store holds other conversations: {status}").into());
            }
            Outcome::Ok(daemon)
        });
        memory.extend(daemon?.resident_mb());
        took.push(took_us / 1e6);
    }
    report.add(Row {
        what: format!("start that builds the database anew, {CONVERSATIONS} conversations"),
        ours: median(&took),
        floor: Some(median(&floors)),
        limit: Limit::AtMost(10.0),
        unit: "s",
        note: "floor: as many bytes written and synced as the journal has".to_owned(),
    });
    if !memory.is_empty() {
        report.add(Row {
            what: "resident memory after it".to_owned(),
            ours: median(&memory),
            floor: None,
            limit: Limit::AtMost(60.0),
            unit: "MB",
            note: String::new(),
        });
    }
    Ok(())
}

fn written_s(path: &std::path::Path, bytes: u64) -> Outcome<f64> {
    let begun = monotonic_ns();
    let mut file = std::fs::File::create(path)?;
    std::io::copy(&mut std::io::Read::take(std::io::repeat(b'x'), bytes), &mut file)?;
    file.sync_all()?;
    let took = (monotonic_ns() - begun) as f64 / 1e9;
    std::fs::remove_file(path)?;
    Ok(took)
}
