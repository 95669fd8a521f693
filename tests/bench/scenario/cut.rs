//! A cut in the middle of a long transcript, compared with a copy of its lines.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use session_bridge::transcript::claude::cut::cut;
use session_bridge::transcript::index_cache::IndexCache;

use crate::Outcome;
use crate::daemon::{Home, own_peak_mb};
use crate::grown::{Grown, grow};
use crate::options::{COPY, CUT, Options};
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::vendor;

/// The sizes of the transcripts in bytes. With fewer rounds, all but the first are smaller.
const SHORT_BYTES: u64 = 21_000_000;
const LONG_BYTES: u64 = 256_000_000;
const HUGE_BYTES: u64 = 1_000_000_000;
/// The ids of the session and of its cuts.
const SESSION: &str = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";
const NEW: &str = "1c8f6c1f-208d-4e4b-8b62-9e703d4f5b6c";
/// The memory limit of a cut: a fixed part in MB, and a part in bytes for each record.
const MEMORY_MB: f64 = 32.0;
const RECORD_BYTES: f64 = 48.0;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let long = options.rounds(LONG_BYTES).max(SHORT_BYTES * 2);
    for bytes in [SHORT_BYTES, long, options.rounds(HUGE_BYTES)] {
        let home = Home::new()?;
        let folder = home.path().join("projects/-home-u-project");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{SESSION}.jsonl"));
        let grown = grow(&path, SESSION, "/home/u/project", bytes)?;
        measure(options, report, &home, &path, &grown)?;
    }
    Ok(())
}

fn measure(options: &Options, report: &mut Report, home: &Home, path: &Path, grown: &Grown) -> Outcome<()> {
    let (mut cuts, mut known, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut copies, mut parts) = (Vec::new(), Vec::new());
    // The first round only fills the caches.
    for round in 0..=options.runs {
        let [copied_us, part_us, _] = figures(COPY, path, &grown.middle)?;
        let [cut_us, index_us, peak_mb] = figures(CUT, path, &grown.middle)?;
        if round > 0 {
            copies.push(copied_us / 1_000.0);
            parts.push(part_us / 1_000.0);
            cuts.push(cut_us / 1_000.0);
            known.push((cut_us - index_us) / 1_000.0);
            peaks.push(peak_mb);
        }
    }
    let copied = median(&copies);
    report.add(Row {
        what: format!(
            "a cut in the middle of a transcript, {} MB, {} records",
            grown.bytes / 1_000_000,
            grown.records
        ),
        ours: median(&cuts),
        floor: Some(copied),
        limit: Limit::AtMost(copied * 1.3),
        unit: "ms",
        note: format!(
            "floor: a copy of its lines with another id, synced; of those before the cut {:.1}; the cut without the index {:.1}; \
             slowest {:.1}; {}",
            median(&parts),
            median(&known),
            percentile(&cuts, 100),
            vendor::fork_session(home.path(), SESSION, &grown.middle)
        ),
    });
    if peaks.iter().all(|peak| *peak > 0.0) {
        report.add(Row {
            what: "peak memory of the process that makes it".to_owned(),
            ours: median(&peaks),
            floor: None,
            limit: Limit::AtMost(MEMORY_MB + grown.records as f64 * RECORD_BYTES / 1e6),
            unit: "MB",
            note: "with the index of the whole".to_owned(),
        });
    }
    Ok(())
}

/// Runs this program in one of its roles and returns the figures it prints.
fn figures(role: &str, path: &Path, uuid: &str) -> Outcome<[f64; 3]> {
    let arguments = [OsStr::new(role), path.as_os_str(), OsStr::new(uuid)];
    let output = Command::new(std::env::current_exe()?).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = said
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let figures = <[f64; 3]>::try_from(figures);
    figures.map_err(|_| format!("{role} said: {said}{}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Cuts a transcript after a record, without an index from before. Prints the duration in microseconds, the
/// part of it that indexing took, and the peak memory in MB (0 if the system does not report it).
pub(crate) fn be_cut(path: &Path, uuid: &str) -> Outcome<()> {
    let folder = path.parent().ok_or("no folder")?;
    let library = IndexCache::default();
    let (made, took_us) = timed_us(|| {
        let (index, index_us) = timed_us(|| library.index(path));
        let made = index.and_then(|index| cut(path, &index, folder, NEW, uuid));
        made.map(|made| (made, index_us))
    });
    let (made, index_us) = made?;
    let peak_mb = own_peak_mb().unwrap_or_default();
    writeln!(std::io::stdout(), "{took_us} {index_us} {peak_mb}")?;
    fs::remove_file(made)?;
    Ok(())
}

/// Copies the lines of a transcript with another session id, then again only up to the record with this uuid.
/// Prints both durations in microseconds and the number of lines.
pub(crate) fn be_copy(path: &Path, uuid: &str) -> Outcome<()> {
    let target = path.with_file_name(format!("{NEW}.jsonl"));
    let last = format!("\"uuid\":\"{uuid}\"");
    let (lines, whole_us) = timed_us(|| copy_lines(path, &target, None));
    let lines = lines?;
    fs::remove_file(&target)?;
    let (part, part_us) = timed_us(|| copy_lines(path, &target, Some(last.as_bytes())));
    part?;
    fs::remove_file(&target)?;
    writeln!(std::io::stdout(), "{whole_us} {part_us} {lines}")?;
    Ok(())
}

fn copy_lines(from: &Path, to: &Path, last: Option<&[u8]>) -> std::io::Result<u64> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(from)?);
    let mut writer = BufWriter::with_capacity(64 * 1024, File::create(to)?);
    let session = memchr::memmem::Finder::new(SESSION.as_bytes());
    let last = last.map(memchr::memmem::Finder::new);
    let (mut line, mut lines) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        let mut written = 0;
        for place in session.find_iter(&line) {
            writer.write_all(line.get(written..place).unwrap_or_default())?;
            writer.write_all(NEW.as_bytes())?;
            written = place + SESSION.len();
        }
        writer.write_all(line.get(written..).unwrap_or_default())?;
        lines += 1;
        if last.as_ref().is_some_and(|last| last.find(&line).is_some()) {
            break;
        }
        line.clear();
    }
    writer.into_inner()?.sync_all()?;
    Ok(lines)
}
