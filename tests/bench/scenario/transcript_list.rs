//! Lists of transcripts: the first list after a start, later lists, which look at all files again, and the
//! same list by the vendor's own library.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::Outcome;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::vendor;

/// The number of transcripts in the tree.
const TRANSCRIPTS: u64 = 7_000;
/// Transcripts per folder.
const IN_A_FOLDER: u64 = 10;
/// The size of each in bytes: 3.3 GB together. The part between the two ends is a hole, which is never read.
const BYTES: u64 = 470_000;
/// The size of each end that exists and is read.
const END_BYTES: usize = 64 * 1024;
/// Lists of each kind in one run.
const LISTS: u64 = 20;
/// The default number of transcripts per page.
const PAGE: u64 = 50;
/// The number of threads for the floor, the same as in the daemon.
const THREADS: usize = 2;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let count = options.rounds(TRANSCRIPTS);
    let root = home.data().join("loopback");
    let projects = root.join("projects");
    let paths = grow(&projects, count)?;
    let rounds = options.rounds(LISTS);
    let (mut first, mut again, mut one) = (Vec::new(), Vec::new(), Vec::new());
    let (mut read, mut looked, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        read.push(read_ends_ms(&paths)?);
        looked.push(stat_all_ms(&paths)?);
        let daemon = home.start()?;
        let mut client = daemon.connect()?;
        client.call("daemon/status", &json!({}))?;
        first.push(list_ms(&daemon, count, 1, || Ok(()))?);
        all_pages(&daemon, count)?;
        again.push(list_ms(&daemon, count, rounds, || Ok(()))?);
        let changed = paths.first().ok_or("there are no transcripts")?;
        one.push(list_ms(&daemon, count, rounds, || {
            let file = fs::OpenOptions::new().append(true).open(changed)?;
            Ok((&file).write_all(b"{}\n")?)
        })?);
        resident.extend(daemon.resident_mb());
        File::options().write(true).open(changed)?.set_len(BYTES)?;
    }
    let vendors = vendor::list_sessions(&root, count)?;
    let megabytes = count * BYTES / 1_000_000;
    report.add(Row {
        what: format!("transcript/list, first of a life, {count} transcripts, {megabytes} MB"),
        ours: median(&first),
        floor: Some(median(&read)),
        limit: Limit::AtMost(130.0),
        unit: "ms",
        note: format!(
            "floor: the ends of each read on two threads; slowest run {:.0}, resident {:.1} MB; {vendors}",
            percentile(&first, 100),
            median(&resident)
        ),
    });
    report.add(Row {
        what: "transcript/list, first page, nothing changed".to_owned(),
        ours: median(&again),
        floor: Some(median(&looked)),
        limit: Limit::AtMost(25.0),
        unit: "ms",
        note: "floor: a stat of each".to_owned(),
    });
    report.add(Row {
        what: "transcript/list, first page, one file changed".to_owned(),
        ours: median(&one),
        floor: None,
        limit: Limit::AtMost(25.0),
        unit: "ms",
        note: String::new(),
    });
    Ok(())
}

/// The duration of the first page. Checks that the page has the right length, and a cursor if there are more.
fn list_ms(
    daemon: &Daemon,
    count: u64,
    rounds: u64,
    mut before: impl FnMut() -> Outcome<()>,
) -> Outcome<f64> {
    let mut client = daemon.connect()?;
    let mut took_ms = Vec::new();
    for _ in 0..rounds {
        before()?;
        let (answered, took_us) = timed_us(|| client.call("transcript/list", &json!({})));
        let page = answered?;
        let listed = ids(&page).count() as u64;
        if listed != count.min(PAGE) || page["nextCursor"].is_null() != (count <= PAGE) {
            return Err(format!("a first page of {listed} from {count} transcripts").into());
        }
        took_ms.push(took_us / 1_000.0);
    }
    Ok(median(&took_ms))
}

/// Checks that the pages together contain each transcript exactly once.
fn all_pages(daemon: &Daemon, count: u64) -> Outcome<()> {
    let mut client = daemon.connect()?;
    let mut told = BTreeSet::new();
    let mut listed = 0;
    let mut params = json!({});
    loop {
        let page = client.call("transcript/list", &params)?;
        for id in ids(&page) {
            listed += 1;
            told.insert(id.to_owned());
        }
        if page["nextCursor"].is_null() {
            break;
        }
        params = json!({"cursor": page["nextCursor"]});
    }
    if (listed, told.len() as u64) != (count, count) {
        return Err(format!(
            "{listed} of {count} transcripts are listed, {} by name",
            told.len()
        )
        .into());
    }
    Ok(())
}

/// The session ids on a page.
fn ids(page: &Value) -> impl Iterator<Item = &str> {
    let all = page["transcripts"].as_array().into_iter().flatten();
    all.filter_map(|transcript| transcript["upstreamId"].as_str())
}

/// Creates the transcripts and returns their paths.
fn grow(projects: &Path, count: u64) -> Outcome<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for number in 0..count {
        let folder = projects.join(format!("-home-u-project-{}", number / IN_A_FOLDER));
        if number % IN_A_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let path = folder.join(format!("{number:08x}-0000-4000-8000-000000000000.jsonl"));
        let mut file = File::create(&path)?;
        let mut head = line(
            "user",
            number,
            &format!("What was asked first in session {number}"),
        );
        let reply = line("assistant", number, &"words ".repeat(500));
        while head.len() + reply.len() <= END_BYTES {
            head.push_str(&reply);
        }
        let last = line("assistant", number, "the end");
        let mut tail = String::new();
        while tail.len() + reply.len() + last.len() <= END_BYTES {
            tail.push_str(&reply);
        }
        tail.push_str(&last);
        file.write_all(head.as_bytes())?;
        file.seek(SeekFrom::Start(BYTES - tail.len() as u64))?;
        file.write_all(tail.as_bytes())?;
        paths.push(path);
    }
    Ok(paths)
}

fn line(kind: &str, number: u64, text: &str) -> String {
    let mut record = json!({
        "parentUuid": null, "isSidechain": false, "type": kind, "cwd": format!("/home/u/project-{}", number / IN_A_FOLDER),
        "sessionId": format!("{number:08x}-0000-4000-8000-000000000000"), "version": "2.1.316", "gitBranch": "main",
        "uuid": format!("{number:08x}-0000-4000-8000-000000000001"), "timestamp": "2026-11-03T12:00:00.000Z",
        "message": {"role": kind, "content": [{"type": "text", "text": text}]},
    });
    if kind == "user" {
        record["origin"] = json!({"kind": "human"});
    }
    format!("{record}\n")
}

/// Reads the parts that the daemon has to read, without looking at them.
fn read_ends_ms(paths: &[PathBuf]) -> Outcome<f64> {
    let next = AtomicUsize::new(0);
    let read_all = || -> std::io::Result<()> {
        let mut buffer = vec![0; END_BYTES];
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(path)?;
            file.read_exact(&mut buffer)?;
            file.seek(SeekFrom::Start(BYTES - END_BYTES as u64))?;
            file.read_exact(&mut buffer)?;
        }
        Ok(())
    };
    let (read, took_us) = timed_us(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read_all)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        })
    });
    read?;
    Ok(took_us / 1_000.0)
}

fn stat_all_ms(paths: &[PathBuf]) -> Outcome<f64> {
    let (looked, took_us) = timed_us(|| paths.iter().try_for_each(|path| fs::metadata(path).map(drop)));
    looked?;
    Ok(took_us / 1_000.0)
}
