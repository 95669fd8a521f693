//! A fork at the head, compared with the same fork requested directly from the agent.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Outcome;
use crate::client::Client;
use crate::daemon::{Home, program};
use crate::floor::Ended;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, percentile, timed_us};

/// Forks in one run.
const FORKS: u64 = 100;
/// Turns before the fork, so that the forked session has a history.
const TURNS: u64 = 20;
/// The maximum that the daemon may add, in milliseconds.
const ADDED_MS: f64 = 1.0;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let home = Home::new()?;
    let cwd = home.path().join("project");
    std::fs::create_dir_all(&cwd)?;
    let daemon = home.start()?;
    let mut client = daemon.connect()?;
    let made = client.call("conversation/new", &json!({"agent": "loopback", "cwd": cwd}))?;
    let ours = json!({"conversationId": made["conversation"]["id"]});

    // A separate data folder, so that both agents have the same contents.
    let alone = Home::new()?;
    let mut agent = Command::new(program())
        .args(["loopback-agent", "--data"])
        .arg(alone.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let pipes = (agent.stdout.take(), agent.stdin.take());
    let _agent = Ended(agent);
    let (Some(output), Some(input)) = pipes else {
        return Err("the agent has no pipes".into());
    };
    let mut agent = Client::over(output, input);
    agent.call(
        "initialize",
        &json!({"protocolVersion": 1, "clientCapabilities": {}}),
    )?;
    let begun = agent.call("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
    let theirs = json!({"sessionId": begun["sessionId"], "cwd": cwd, "mcpServers": []});
    for number in 0..TURNS {
        let words = format!("turn {number}: {}", "some words of a prompt ".repeat(20));
        client.call("conversation/prompt", &with(&ours, "prompt", json!(words)))?;
        let blocks = json!([{"type": "text", "text": words}]);
        let prompt = json!({"sessionId": begun["sessionId"], "prompt": blocks});
        agent.call("session/prompt", &prompt)?;
    }

    let (mut bridged, mut direct) = (Vec::new(), Vec::new());
    let forks = options.rounds(FORKS);
    // The first round only warms the caches.
    for number in 0..=forks * options.runs as u64 {
        let (fork, direct_us) = timed_us(|| agent.call("session/fork", &theirs));
        let fork = fork?;
        agent.call("session/close", &json!({"sessionId": fork["sessionId"]}))?;
        let (fork, bridged_us) = timed_us(|| client.call("conversation/fork", &ours));
        let fork = fork?;
        if fork["via"] != "native" {
            return Err(format!("the agent did not fork: {fork}").into());
        }
        // Without the close, each fork would remain an open session.
        client.call(
            "conversation/close",
            &json!({"conversationId": fork["conversation"]["id"]}),
        )?;
        if number > 0 {
            direct.push(direct_us / 1_000.0);
            bridged.push(bridged_us / 1_000.0);
        }
    }
    let floor = median(&direct);
    report.add(Row {
        what: "conversation/fork at the head, synced".to_owned(),
        ours: median(&bridged),
        floor: Some(floor),
        limit: Limit::AtMost(floor + ADDED_MS),
        unit: "ms",
        note: format!(
            "floor: session/fork of the same agent; the limit is {ADDED_MS} ms more; 99 of 100 within {:.2} (floor {:.2})",
            percentile(&bridged, 99),
            percentile(&direct, 99)
        ),
    });
    Ok(())
}

fn with(params: &Value, name: &str, value: Value) -> Value {
    let mut params = params.clone();
    params[name] = value;
    params
}
