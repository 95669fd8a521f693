//! The time from the last byte of a turn that another program writes to the event that reports the turn.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::mpsc;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use serde_json::json;

use crate::Outcome;
use crate::daemon::Home;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, monotonic_ns, percentile};

/// Other folders besides the one that is written to: as many as heavy users have.
const FOLDERS: u64 = 700;
/// Turns that the transcript has at the start.
const TURNS: u64 = 500;
/// Turns that are appended in one run.
const APPENDS: u64 = 200;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let projects = home.data().join("loopback/projects");
    for number in 0..FOLDERS {
        let folder = projects.join(format!("-home-u-project-{number}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("other.jsonl"), turn(0))?;
    }
    let folder = projects.join("-home-u-project-0");
    let path = folder.join("session.jsonl");
    let held: String = (0..TURNS).map(turn).collect();
    fs::write(&path, held)?;
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let adopt = json!({"upstreamId": "session", "agent": "loopback", "cwd": home.path()});
    let adopted = client.call("conversation/adopt", &adopt)?;
    let id = &adopted["conversation"]["id"];
    client.call("conversation/subscribe", &json!({"conversationId": id}))?;
    let (mut ours, mut late, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let appends = options.rounds(APPENDS);
    let mut number = TURNS;
    let mut file = OpenOptions::new().append(true).open(&path)?;
    for _ in 0..options.runs {
        floors.push(median(&bare_ms(&home.path().join("bare"), appends)?));
        let mut took_ms = Vec::new();
        for _ in 0..appends {
            let text = turn(number);
            number += 1;
            let begun = monotonic_ns();
            file.write_all(text.as_bytes())?;
            client.until_event("checkpointSaved")?;
            took_ms.push((monotonic_ns() - begun) as f64 / 1e6);
        }
        ours.push(median(&took_ms));
        late.push(percentile(&took_ms, 99));
    }
    report.add(Row {
        what: format!("append to checkpointSaved, {FOLDERS} folders, {TURNS} turns"),
        ours: median(&ours),
        floor: Some(median(&floors)),
        limit: Limit::AtMost(5.0),
        unit: "ms",
        note: format!(
            "p99 {:.2}; floor: the system's own word of the change",
            median(&late)
        ),
    });
    Ok(())
}

/// The records of a turn as another program writes them.
fn turn(number: u64) -> String {
    let uuid = |sort: u64, number: u64| format!("{number:08x}-0000-4000-8000-{sort:012x}");
    let parent = number.checked_sub(1).map(|before| uuid(2, before));
    let record = |kind: &str, uuid: &str, parent: Option<&str>, text: &str| {
        json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": false, "sessionId": "session",
            "cwd": "/home/u/project", "timestamp": "2026-11-03T12:00:00.000Z",
            "message": {"role": kind, "content": [{"type": "text", "text": text}]},
        })
    };
    let asked = uuid(1, number);
    let mut prompt = record("user", &asked, parent.as_deref(), "Go on, please");
    prompt["origin"] = json!({"kind": "human"});
    let mut reply = record("assistant", &uuid(2, number), Some(&asked), &"words ".repeat(100));
    // This stop reason marks the end of the turn.
    reply["message"]["stop_reason"] = json!("end_turn");
    format!("{prompt}\n{reply}\n")
}

/// The time from an append until a thread has received the change notification of the system.
fn bare_ms(folder: &Path, appends: u64) -> Outcome<Vec<f64>> {
    fs::create_dir_all(folder)?;
    let mut file = File::create(folder.join("file"))?;
    let queue = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(&queue, folder, WatchFlags::MODIFY)?;
    let (sender, heard) = mpsc::sync_channel(1);
    let mut took_ms = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = [MaybeUninit::uninit(); 4_096];
            let mut reader = Reader::new(&queue, &mut buffer);
            for _ in 0..appends {
                let told = reader.next().is_ok();
                if !told || sender.send(monotonic_ns()).is_err() {
                    return;
                }
            }
        });
        for number in 0..appends {
            let text = turn(number);
            let begun = monotonic_ns();
            file.write_all(text.as_bytes())?;
            took_ms.push((heard.recv()? - begun) as f64 / 1e6);
        }
        Ok(took_ms)
    })
}
