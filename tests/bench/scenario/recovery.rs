//! A prompt after the death of its agent, compared with the time the agent itself takes for its start, resume
//! and turn.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::Outcome;
use crate::client::Client;
use crate::daemon::{Home, program};
use crate::floor::Ended;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};

/// Deaths in one run. Each is the death of the only agent of a new daemon, because the daemon waits before it
/// restarts an agent that has just died.
const DEATHS: usize = 4;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    if !cfg!(target_os = "linux") {
        crate::report::complain(
            "recovery: this system does not tell which process is the agent; it is left out",
        );
        return Ok(());
    }
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..options.runs * DEATHS {
        floors.push(by_itself_ms()?);
        ours.push(through_the_daemon_ms()?);
    }
    let own = median(&floors);
    report.add(Row {
        what: "a prompt behind its agent's death, added to the agent's own time".to_owned(),
        ours: median(&ours) - own,
        floor: Some(own),
        limit: Limit::AtMost(2.5),
        unit: "ms",
        note: format!(
            "floor: the agent's own start, resume and turn; in all {:.1}, 9 of 10 within {:.1}",
            median(&ours),
            percentile(&ours, 90)
        ),
    });
    Ok(())
}

/// The time from the prompt to its answer, after the agent was killed.
fn through_the_daemon_ms() -> Outcome<f64> {
    let home = Home::new()?;
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let made = client.call(
        "conversation/new",
        &json!({"agent": "loopback", "cwd": home.path(), "open": true}),
    )?;
    let conversation = &made["conversation"]["id"];
    client.call(
        "conversation/prompt",
        &json!({"conversationId": conversation, "prompt": "one"}),
    )?;
    let agent = only_child(daemon.pid())?;
    kill_process(agent, Signal::KILL)?;
    let (turn, took_us) = timed_us(|| {
        client.call(
            "conversation/prompt",
            &json!({"conversationId": conversation, "prompt": "two"}),
        )
    });
    let turn = turn?;
    let resumed = &turn["resumed"];
    if turn["stopReason"] != "end_turn" || resumed["fidelity"] != "full" {
        return Err(format!("it did not come back whole: {turn}").into());
    }
    Ok(took_us / 1_000.0)
}

/// The time for the same requests over the agent's own pipes.
fn by_itself_ms() -> Outcome<f64> {
    let folder = tempfile::Builder::new().prefix("sb").tempdir()?;
    let cwd = folder.path();
    let start = || {
        let mut command = Command::new(program());
        command.arg("loopback-agent").arg("--data").arg(cwd.join("data"));
        let mut agent = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let (Some(output), Some(input)) = (agent.0.stdout.take(), agent.0.stdin.take()) else {
            return Err("the agent has no pipes".into());
        };
        let mut client = Client::over(output, input);
        client.call(
            "initialize",
            &json!({"protocolVersion": 1, "clientCapabilities": {}}),
        )?;
        Outcome::Ok((agent, client))
    };
    let prompt = |text: &str, session: &serde_json::Value| json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    let (agent, mut client) = start()?;
    let made = client.call("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
    let session = &made["sessionId"];
    client.call("session/prompt", &prompt("one", session))?;
    drop(agent);
    let (again, took_us) = timed_us(|| {
        let (agent, mut client) = start()?;
        client.call(
            "session/resume",
            &json!({"sessionId": session, "cwd": cwd, "mcpServers": []}),
        )?;
        client.call("session/prompt", &prompt("two", session))?;
        Outcome::Ok(agent)
    });
    drop(again?);
    Ok(took_us / 1_000.0)
}

/// The only child of this process.
fn only_child(parent: u32) -> Outcome<Pid> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        // The process may have ended since.
        let Ok(status) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // After the name, which may contain anything, come the state and the parent.
        let behind = status.rsplit(')').next().unwrap_or_default();
        if behind.split_whitespace().nth(1) == Some(parent.to_string().as_str()) {
            children.extend(Pid::from_raw(pid));
        }
    }
    match children.as_slice() {
        [agent] => Ok(*agent),
        others => Err(format!("the daemon has {} children, not one agent", others.len()).into()),
    }
}
