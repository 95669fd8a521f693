//! Commands as whole processes with a running daemon: the time a user waits.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::Outcome;
use crate::daemon::{Home, command_line};
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};
use crate::stored;

/// Conversations in the store.
const CONVERSATIONS: usize = 1_000;
/// Commands in one run.
const COMMANDS: u64 = 100;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    stored::fill(&home.data(), CONVERSATIONS)?;
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let made = client.call(
        "conversation/new",
        &json!({"agent": "loopback", "cwd": home.path()}),
    )?;
    let id = made["conversation"]["id"]
        .as_str()
        .ok_or("a conversation without an id")?
        .to_owned();
    let ways: [(&str, Vec<&str>, Limit); 2] = [
        (
            "`sessionctl ls` on 1,000 conversations",
            vec!["ls"],
            Limit::AtMost(10.0),
        ),
        (
            "`sessionctl send` to a warm session",
            vec!["send", &id, "hello"],
            Limit::AtMost(15.0),
        ),
    ];
    for (what, arguments, limit) in ways {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            for _ in 0..options.rounds(COMMANDS) {
                ours.push(whole_ms(&home, &arguments)?);
                floors.push(whole_ms(&home, &["--version"])?);
            }
        }
        report.add(Row {
            what: what.to_owned(),
            ours: median(&ours),
            floor: Some(median(&floors)),
            limit,
            unit: "ms",
            note: format!(
                "p99 {:.1}; floor: the same program says its version",
                percentile(&ours, 99)
            ),
        });
    }
    Ok(())
}

/// The duration of a command from start to exit.
pub(super) fn whole_ms(home: &Home, arguments: &[&str]) -> Outcome<f64> {
    let program: PathBuf = command_line().into();
    let mut command = Command::new(program);
    command.arg("--home").arg(home.path()).args(arguments);
    command.env("HOME", home.path()).current_dir(home.path());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (status, took_us) = timed_us(|| command.status());
    let status = status?;
    if !status.success() {
        return Err(format!("{arguments:?} ended with {status}").into());
    }
    Ok(took_us / 1_000.0)
}
