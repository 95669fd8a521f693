//! Moves a folder tree with a thousand transcripts, compared with copying and syncing the same files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Outcome;
use crate::daemon::Home;
use crate::grown::grow;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};

/// The number of transcripts.
const TRANSCRIPTS: u64 = 1_000;
/// The size of each in bytes: 500 MB together.
const BYTES: usize = 500_000;
/// The session and folder of the first transcript; the others are copies with replaced ids.
const SESSION: &str = "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b";
const FOLDER: &str = "/home/u/project";
/// The number of folders in the tree in which they were started.
const FOLDERS: u64 = 50;
/// The size of the buffer for copying, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let count = options.rounds(TRANSCRIPTS);
    let [there, here] = ["there", "here"].map(|name| home.path().join(name));
    let records = records(&home.path().join("records"))?;
    let mut sources = Vec::new();
    let mut bytes = 0;
    for number in 0..count {
        let name = format!("project{}", number % FOLDERS);
        for tree in [&there, &here] {
            fs::create_dir_all(tree.join(&name))?;
        }
        let cwd = here.join(&name).to_string_lossy().into_owned();
        let project = cwd.replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
        let project = home.data().join("loopback/projects").join(project);
        fs::create_dir_all(&project)?;
        let session = format!("0b7e5b0e-1f7c-4d3a-9a51-{number:012x}");
        let path = project.join(format!("{session}.jsonl"));
        let records = records.replace(SESSION, &session).replace(FOLDER, &cwd);
        fs::write(&path, &records)?;
        bytes += records.len();
        sources.push(path);
    }
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let (mut moved, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        copied.push(copy_all_ms(&sources, &home.path().join("copies"))?);
        let (answer, took_us) =
            timed_us(|| client.call("transcript/move", &json!({"from": here, "to": there})));
        let answer = answer?;
        if answer["moved"] != json!(count) {
            return Err(format!("{} files moved of {count}", answer["moved"]).into());
        }
        moved.push(took_us / 1_000.0);
        // The move back is not measured; afterwards the files are in the same places for the next round.
        client.call("transcript/move", &json!({"from": there, "to": here}))?;
    }
    let floor = median(&copied);
    report.add(Row {
        what: format!("transcript/move, {count} transcripts, {} MB", bytes / 1_000_000),
        ours: median(&moved),
        floor: Some(floor),
        limit: Limit::AtMost(2.0 * floor),
        unit: "ms",
        note: format!(
            "floor: copying and syncing each, and their folder; the limit is twice that; slowest {:.0}",
            percentile(&moved, 100)
        ),
    });
    Ok(())
}

/// Whole records of at most the wanted length.
fn records(path: &Path) -> Outcome<String> {
    grow(path, SESSION, FOLDER, BYTES as u64)?;
    let mut records = fs::read_to_string(path)?;
    let end = records.get(..BYTES).and_then(|fits| fits.rfind('\n'));
    records.truncate(end.map_or(records.len(), |end| end + 1));
    Ok(records)
}

fn copy_all_ms(sources: &[PathBuf], folder: &Path) -> Outcome<f64> {
    fs::create_dir_all(folder)?;
    let (copied, took_us) = timed_us(|| -> io::Result<()> {
        for (number, source) in sources.iter().enumerate() {
            let mut copy = File::create(folder.join(number.to_string()))?;
            // Copies in user space as a move does, because a copy within the kernel may only share the
            // blocks.
            let mut source = io::BufReader::with_capacity(BUFFER_BYTES, File::open(source)?);
            io::copy(&mut source, &mut copy)?;
            copy.sync_all()?;
        }
        File::open(folder)?.sync_all()
    });
    copied?;
    fs::remove_dir_all(folder)?;
    Ok(took_us / 1_000.0)
}
