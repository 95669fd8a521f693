//! The index of a long transcript: the time and memory for creating it, and pages of history and checkpoints
//! from its middle.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use session_bridge::transcript::checkpoint::{CheckpointRef, MessageRef};
use session_bridge::transcript::claude::reading;
use session_bridge::transcript::codex::rollout_name;
use session_bridge::transcript::codex::rollouts::{self, OpenRollout, RolloutCache};
use session_bridge::transcript::index_cache::IndexCache;

use crate::Outcome;
use crate::daemon::{Home, own_peak_mb};
use crate::grown::{Grown, grow, rollout};
use crate::options::{CHECK, INDEX, Options, READ};
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::vendor;

/// The size of the transcript in bytes.
const BYTES: u64 = 1_000_000_000;
/// The size of the rollout in bytes, and its folder below that of Codex.
const ROLLOUT_BYTES: u64 = 300_000_000;
const ROLLOUTS: &str = "sessions/2026/11/03";
/// Pages in one run.
const PAGES: u64 = 50;
/// Messages per page.
const MESSAGES: u64 = 50;
/// Checkpoints per page.
const CHECKPOINTS: u64 = 50;
/// The session's id.
const SESSION: &str = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let folder = home.data().join("loopback/projects/-home-u-project");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{SESSION}.jsonl"));
    let cwd = home.path().to_string_lossy().into_owned();
    let grown = grow(&path, SESSION, &cwd, options.rounds(BYTES))?;
    build(options, report, &home, &path, &grown)?;
    check(options, report, &path, &grown)?;
    pages(options, report, &home, &grown)?;
    rollout(options, report)
}

/// The cost of the index in a process that does nothing else.
fn build(options: &Options, report: &mut Report, home: &Home, path: &Path, grown: &Grown) -> Outcome<()> {
    let per_second = |took_us: f64| grown.bytes as f64 / took_us;
    let (mut built, mut peaks) = (Vec::new(), Vec::new());
    let (mut read, mut counted) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let [read_us, counted_us, lines] = figures(READ, path)?;
        same(lines, grown.lines, "lines")?;
        read.push(per_second(read_us));
        counted.push(per_second(counted_us));
        let [built_us, peak_mb, found] = figures(INDEX, path)?;
        built.push(per_second(built_us));
        peaks.push(peak_mb);
        same(found, grown.records, "records")?;
    }
    let megabytes = grown.bytes / 1_000_000;
    report.add(Row {
        what: format!(
            "index of a transcript, {megabytes} MB, {} records in {} lines",
            grown.records, grown.lines
        ),
        ours: median(&built),
        floor: Some(median(&read)),
        limit: Limit::AtLeast(1_000.0),
        unit: "MB/s",
        note: format!(
            "floor: a plain read; counting its lines {:.0}; slowest run {:.0}; {}",
            median(&counted),
            percentile(&built, 0),
            vendor::get_session_messages(&home.data().join("loopback"), SESSION)
        ),
    });
    if peaks.iter().all(|peak| *peak > 0.0) {
        report.add(Row {
            what: "peak memory of the process that makes it".to_owned(),
            ours: median(&peaks),
            floor: None,
            limit: Limit::AtMost(64.0),
            unit: "MB",
            note: String::new(),
        });
    }
    Ok(())
}

/// The cost of a check of the whole transcript.
fn check(options: &Options, report: &mut Report, path: &Path, grown: &Grown) -> Outcome<()> {
    let (mut checked, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let [took_us, peak_mb, findings] = figures(CHECK, path)?;
        if findings != 0.0 {
            return Err(format!("{findings} findings in a whole transcript").into());
        }
        checked.push(grown.bytes as f64 / took_us);
        peaks.push(peak_mb);
    }
    report.add(Row {
        what: "a check of it, and the peak memory of the process".to_owned(),
        ours: median(&peaks),
        floor: None,
        limit: Limit::AtMost(64.0),
        unit: "MB",
        note: format!("{:.0} MB/s", median(&checked)),
    });
    Ok(())
}

/// The cost of the index and of a check of a rollout, in a process that does nothing else.
fn rollout(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let folder = home.path().join(ROLLOUTS);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("rollout-2026-11-03T12-00-00-{SESSION}.jsonl"));
    let cwd = home.path().to_string_lossy().into_owned();
    let grown = rollout::grow(&path, SESSION, &cwd, options.rounds(ROLLOUT_BYTES))?;
    let per_second = |took_us: f64| grown.bytes as f64 / took_us;
    let (mut read, mut built, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    let (mut build_peaks, mut check_peaks) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        read.push(per_second(figures(READ, &path)?[0]));
        let [built_us, peak_mb, found] = figures(INDEX, &path)?;
        built.push(per_second(built_us));
        build_peaks.push(peak_mb);
        same(found, grown.records, "messages")?;
        let [checked_us, peak_mb, findings] = figures(CHECK, &path)?;
        if findings != 0.0 {
            return Err(format!("{findings} findings in a whole rollout").into());
        }
        checked.push(per_second(checked_us));
        check_peaks.push(peak_mb);
    }
    let mut row = |what: String, figures: &[f64], floor: Option<f64>, unit, note: String| {
        report.add(Row {
            what,
            ours: median(figures),
            floor,
            // There is no limit for rollouts.
            limit: Limit::Unset,
            unit,
            note,
        });
    };
    let what = format!(
        "index of a rollout, {} MB, {} messages in {} lines",
        grown.bytes / 1_000_000,
        grown.records,
        grown.lines
    );
    let note = format!("floor: a plain read; slowest run {:.0}", percentile(&built, 0));
    row(what, &built, Some(median(&read)), "MB/s", note);
    let what = "peak memory of the process that makes it".to_owned();
    row(what, &build_peaks, None, "MB", String::new());
    let note = format!("{:.0} MB/s", median(&checked));
    let what = "a check of it, and the peak memory of the process".to_owned();
    row(what, &check_peaks, None, "MB", note);
    Ok(())
}

/// The cost of a page over the socket.
fn pages(options: &Options, report: &mut Report, home: &Home, grown: &Grown) -> Outcome<()> {
    let middle = MessageRef {
        upstream_id: SESSION.to_owned(),
        record_uuid: grown.middle.clone(),
    };
    let (mut first, mut next, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    let (mut turns_ms, mut turn_ms) = (Vec::new(), Vec::new());
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let whole = json!({"upstreamId": SESSION, "agent": "loopback"});
    let (adopted, adopted_us) = timed_us(|| client.call("conversation/adopt", &whole));
    let adopted = adopted?;
    report.add(Row {
        what: "conversation/adopt of it, which makes the index".to_owned(),
        ours: grown.bytes as f64 / adopted_us,
        floor: None,
        limit: Limit::Unset,
        unit: "MB/s",
        note: format!(
            "once; resident {:.1} MB",
            daemon.resident_mb().unwrap_or_default()
        ),
    });
    drop(client);
    let conversation = &adopted["conversation"]["id"];
    let page = json!({"conversationId": conversation, "cursor": format!("b.{middle}"), "limit": MESSAGES});
    let place = CheckpointRef {
        agent: "loopback".to_owned(),
        upstream_id: SESSION.to_owned(),
        record_uuid: grown.middle.clone(),
    }
    .to_string();
    let turns = json!({"conversationId": conversation, "before": place, "limit": CHECKPOINTS});
    let turn = json!({"checkpointId": place, "conversationId": conversation});
    drop(daemon);
    for _ in 0..options.runs {
        let daemon = home.start()?;
        let mut client = daemon.connect()?;
        client.call("daemon/status", &json!({}))?;
        let rounds = options.rounds(PAGES);
        let mut each_ms = |method: &str, params: &Value, list: &str| -> Outcome<Vec<f64>> {
            let mut took_ms = Vec::new();
            for _ in 0..=rounds {
                let (answered, took_us) = timed_us(|| client.call(method, params));
                if answered?[list].as_array().is_none_or(Vec::is_empty) {
                    return Err(format!("{method} from the middle is empty").into());
                }
                took_ms.push(took_us / 1_000.0);
            }
            Ok(took_ms)
        };
        let mut took_ms = each_ms("conversation/history", &page, "messages")?;
        first.push(took_ms.remove(0));
        next.push(median(&took_ms));
        let took_ms = each_ms("conversation/checkpoints", &turns, "checkpoints")?;
        turns_ms.push(median(&took_ms));
        let took_ms = each_ms("checkpoint/get", &turn, "messages")?;
        turn_ms.push(median(&took_ms));
        resident.extend(daemon.resident_mb());
    }
    report.add(Row {
        what: format!("conversation/history, {MESSAGES} messages from its middle"),
        ours: median(&next),
        floor: None,
        limit: Limit::AtMost(10.0),
        unit: "ms",
        note: format!(
            "the first of a life, which makes the index, {:.0}; resident {:.1} MB",
            median(&first),
            median(&resident)
        ),
    });
    let mut row = |what: String, took_ms: &[f64]| {
        report.add(Row {
            what,
            ours: median(took_ms),
            floor: None,
            limit: Limit::AtMost(10.0),
            unit: "ms",
            note: String::new(),
        });
    };
    let what = format!("conversation/checkpoints, {CHECKPOINTS} before its middle");
    row(what, &turns_ms);
    row("checkpoint/get, the turn in its middle".to_owned(), &turn_ms);
    Ok(())
}

/// Fails if the number found differs from the number written.
fn same(found: f64, written: u64, what: &str) -> Outcome<()> {
    if found != written as f64 {
        return Err(format!("{found} {what} were found and {written} written").into());
    }
    Ok(())
}

/// Runs this program in one of its roles and returns the figures it prints.
fn figures(role: &str, path: &Path) -> Outcome<[f64; 3]> {
    let arguments = [OsStr::new(role), path.as_os_str()];
    let output = Command::new(std::env::current_exe()?).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = said
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let figures = <[f64; 3]>::try_from(figures);
    figures.map_err(|_| format!("{role} said: {said}{}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Indexes a transcript. Prints the duration in microseconds, the peak memory in MB (0 if the system does not
/// report it), and the number of records.
pub(crate) fn be_index(path: &Path) -> Outcome<()> {
    let library = IndexCache::default();
    let (records, took_us) = match rollout_at(path) {
        Some((root, id)) => {
            let books = RolloutCache::default();
            let (open, took_us) = timed_us(|| OpenRollout::open(&books, root, id, None));
            (open?.history.messages(), took_us)
        }
        None => {
            let (index, took_us) = timed_us(|| library.index(path));
            (index?.records(), took_us)
        }
    };
    let peak_mb = own_peak_mb().unwrap_or_default();
    writeln!(std::io::stdout(), "{took_us} {peak_mb} {records}")?;
    Ok(())
}

/// The folder of Codex and the session id, if the file is a rollout.
fn rollout_at(path: &Path) -> Option<(&Path, &str)> {
    let name = rollout_name(path.file_name()?.to_str()?)?;
    let below = Path::new(ROLLOUTS).components().count() + 1;
    Some((path.ancestors().nth(below)?, name.upstream_id))
}

/// Checks a transcript. Prints the duration, the peak memory, and the number of findings.
pub(crate) fn be_check(path: &Path) -> Outcome<()> {
    let (checked, took_us) = timed_us(|| match rollout_at(path) {
        Some((root, id)) => rollouts::check(root, id),
        None => reading::check(path),
    });
    let findings = checked?.findings.len();
    let peak_mb = own_peak_mb().unwrap_or_default();
    writeln!(std::io::stdout(), "{took_us} {peak_mb} {findings}")?;
    Ok(())
}
