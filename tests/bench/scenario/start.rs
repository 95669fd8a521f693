//! Starts with an empty and with a large store: the time to the first answer, the cost of a list, and the
//! memory.

use std::process::Command;

use serde_json::json;

use crate::Outcome;
use crate::daemon::{Home, SocketClient, client, resident_mb};
use crate::floor::Ended;
use crate::options::{ANSWER, Options};
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::stored;

/// Starts in one run; each is short.
const STARTS: usize = 4;
/// Lists in one run.
const LISTS: u64 = 500;
/// The approximate size of the answer to a list of 50 conversations, in bytes; used for the floor.
const LIST_BYTES: usize = 20_000;
/// The approximate size of the answer to `daemon/status`, in bytes.
const STATUS_BYTES: usize = 320;

/// The limits for a store with this many conversations.
struct Size {
    conversations: usize,
    start: Limit,
    list: Limit,
    memory: Limit,
    note_of_memory: &'static str,
}

const SIZES: [Size; 3] = [
    Size {
        conversations: 0,
        start: Limit::AtMost(15.0),
        list: Limit::Unset,
        memory: Limit::Unset,
        note_of_memory: "",
    },
    Size {
        conversations: 1_000,
        start: Limit::Unset,
        list: Limit::Unset,
        memory: Limit::AtMost(10.0),
        note_of_memory: "measured elsewhere: pueued 6.5, codex app-server 91",
    },
    Size {
        conversations: 100_000,
        start: Limit::AtMost(20.0),
        list: Limit::AtMost(1.0),
        memory: Limit::AtMost(60.0),
        note_of_memory: "",
    },
];

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    first(options, report)?;
    for size in SIZES {
        measure(&size, options, report)?;
    }
    Ok(())
}

/// The first start in a new folder, which creates and syncs folders and files.
fn first(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut starts = Vec::new();
    for _ in 0..options.runs * STARTS {
        let home = Home::new()?;
        let (daemon, took_us) = timed_us(|| {
            let daemon = home.start()?;
            daemon.connect()?.call("daemon/status", &json!({}))?;
            Outcome::Ok(daemon)
        });
        drop(daemon?);
        starts.push(took_us / 1_000.0);
    }
    report.add(Row {
        what: "start to first answer, in a new folder".to_owned(),
        ours: median(&starts),
        floor: None,
        limit: Limit::Unset,
        unit: "ms",
        note: format!("fastest {:.1}; the disk's syncs count", percentile(&starts, 0)),
    });
    Ok(())
}

fn measure(size: &Size, options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    if size.conversations > 0 {
        stored::fill(&home.data(), size.conversations)?;
    }
    let floor = Floor::new()?;
    let (mut starts, mut start_floors) = (Vec::new(), Vec::new());
    let (mut lists, mut list_floors) = (Vec::new(), Vec::new());
    let (mut memory, mut memory_floors) = (Vec::new(), Vec::new());
    // The first start creates the folders, or records that the store is in use.
    drop(home.start()?.connect()?);
    for _ in 0..options.runs {
        for _ in 0..STARTS {
            start_floors.push(floor.start(STATUS_BYTES)?.1 / 1_000.0);
            let (daemon, took_us) = timed_us(|| {
                let daemon = home.start()?;
                let mut client = daemon.connect()?;
                let status = client.call("daemon/status", &json!({}))?;
                if status["conversations"] != size.conversations {
                    return Err(format!("the store holds other conversations: {status}").into());
                }
                Outcome::Ok((daemon, client))
            });
            let (daemon, mut client) = daemon?;
            starts.push(took_us / 1_000.0);
            client.call("conversation/list", &json!({}))?;
            memory.extend(daemon.resident_mb());
        }
        let daemon = home.start()?;
        lists.push(list_ms(&mut daemon.connect()?, options.rounds(LISTS))?);
        let (process, _) = floor.start(LIST_BYTES)?;
        list_floors.push(list_ms(&mut client(&floor.socket())?, options.rounds(LISTS))?);
        memory_floors.extend(resident_mb(process.0.id()));
    }
    let of = format!("{} conversations", size.conversations);
    report.add(Row {
        what: format!("start to first answer, {of}"),
        ours: median(&starts),
        floor: Some(median(&start_floors)),
        limit: size.start,
        unit: "ms",
        note: format!(
            "fastest {:.1}; floor: a process that binds and answers; measured elsewhere: pueued 3 to 10",
            percentile(&starts, 0)
        ),
    });
    report.add(Row {
        what: format!("conversation/list, first page, {of}"),
        ours: median(&lists),
        floor: Some(median(&list_floors)),
        limit: size.list,
        unit: "ms",
        note: format!("floor: an answer of {LIST_BYTES} bytes"),
    });
    if !memory.is_empty() {
        report.add(Row {
            what: format!("resident memory after a list, {of}"),
            ours: median(&memory),
            floor: Some(median(&memory_floors)),
            limit: size.memory,
            unit: "MB",
            note: size.note_of_memory.to_owned(),
        });
    }
    Ok(())
}

fn list_ms(client: &mut SocketClient, rounds: u64) -> Outcome<f64> {
    let mut took_ms = Vec::new();
    for _ in 0..rounds {
        let (answered, took_us) = timed_us(|| {
            client.send("conversation/list", &json!({}))?;
            client.skip_answer()
        });
        answered?;
        took_ms.push(took_us / 1_000.0);
    }
    Ok(median(&took_ms))
}

/// A process that always gives the same answer.
struct Floor {
    folder: tempfile::TempDir,
}

impl Floor {
    fn new() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("sb").tempdir()?;
        Ok(Self { folder })
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("answer.sock")
    }

    /// Starts the process and sends it one request. Returns the duration in microseconds.
    fn start(&self, bytes: usize) -> Outcome<(Ended, f64)> {
        let socket = self.socket();
        if socket.exists() {
            std::fs::remove_file(&socket)?;
        }
        let (process, took_us) = timed_us(|| {
            let mut command = Command::new(std::env::current_exe()?);
            let process = Ended(command.arg(ANSWER).arg(&socket).arg(bytes.to_string()).spawn()?);
            let mut client = client(&socket)?;
            client.send("daemon/status", &json!({}))?;
            client.skip_answer()?;
            Outcome::Ok(process)
        });
        Ok((process?, took_us))
    }
}
