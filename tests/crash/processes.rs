//! Everything that a daemon starts ends with it, however a process hides and however the daemon ends. Clients
//! that wait for an agent that dies are notified at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, Line};
use super::home::{Home, ends_within, signal};
use crate::signs::Watched;

/// A loopback agent with descendants: a child that ignores SIGTERM, a grandchild in its own session, and a
/// daemonized process, which has forked twice and lost its parents. Each writes its pid into a file when it
/// runs.
const FAMILY: &str = r#"
echo family >&2
sh -c 'trap "" TERM; echo $$ > "$0/deaf"; while :; do read line < "$0/fifo"; done' "$PIDS" &
sh -c 'setsid sh -c "echo \$\$ > \$0/grandchild; exec cat \$0/fifo" "$0"' "$PIDS" &
sh -c 'setsid sh -c "sh -c \"echo \\\$\\\$ > \\\$0/daemon; exec cat \\\$0/fifo\" \$0 &" "$0" &' "$PIDS"
"#;

/// The files with the pids of the descendants.
const FAMILY_NAMES: [&str; 3] = ["deaf", "grandchild", "daemon"];

/// How long a stop may take with the slowest agent: 0.5 s for the turn, 2 s after the end of its input, 5 s
/// after SIGTERM, 2 s after SIGKILL, the same again for processes that hide, and some time for a busy
/// machine.
const LONGEST_STOP: Duration = Duration::from_secs(30);

/// A home with the agent `odd`, which runs this script.
fn home_with_agent(script: &str) -> Home {
    let home = Home::new("");
    let pids = home.path().join("pids");
    fs::create_dir(&pids).unwrap();
    // A process that reads from this pipe blocks for its whole life.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        pids.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let agent = home.path().join("agent.sh");
    let text = format!("#!/bin/sh\nPIDS={}\n{script}\n", pids.display());
    fs::write(&agent, text).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    home.configure(&format!(
        "[limits]\ncancel_grace_ms = 500\n[agents.odd]\nkind = \"loopback\"\ncommand = \"{}\"\nargs = []\n",
        agent.display(),
    ));
    home
}

/// The shell command of the loopback agent.
fn loopback(home_data: &str) -> String {
    format!(
        "{} loopback-agent --data {home_data}",
        env!("CARGO_BIN_EXE_sessiond")
    )
}

/// A home whose agent has descendants.
fn home_with_family() -> Home {
    // The data folder is in the same folder as the script.
    home_with_agent(&format!("{FAMILY}\nexec {}", loopback("\"${0%/*}/data\"")))
}

/// Starts the agent and returns the pids of its descendants once all of them run.
fn family(home: &Home, client: &mut Client) -> Vec<u32> {
    let id = client.new_conversation(&json!({"agent": "odd", "cwd": home.project()}));
    let turn = client.prompt(&id, "hello");
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    let folder = home.path().join("pids");
    Watched::below(&folder).wait_for("whole family", || {
        let pid = |name| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            // The line break shows that the number is complete.
            text.strip_suffix('\n')?.parse().ok()
        };
        FAMILY_NAMES.into_iter().map(pid).collect()
    })
}

#[track_caller]
fn assert_gone(pids: &[u32]) {
    for pid in pids {
        assert!(ends_within(*pid, Duration::ZERO), "{pid} is still there");
    }
}

#[test]
fn the_whole_family_of_an_agent_ends_with_the_daemon() {
    let home = home_with_family();
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let family = family(&home, &mut client);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_gone(&family);
    home.assert_at_rest();
}

// F32: the agent's descendants survive a killed daemon, so the next daemon must end them.
#[test]
fn the_whole_family_of_an_agent_ends_when_the_daemon_starts_after_it_was_killed() {
    let home = home_with_family();
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let family = family(&home, &mut client);
    daemon.kill();
    for pid in &family {
        assert!(
            !ends_within(*pid, Duration::ZERO),
            "{pid} ended with the killed daemon"
        );
    }
    let next = home.start();
    assert_gone(&family);
    home.assert_nobody_but(&[next.pid()]);
    next.stop();
    home.assert_at_rest();
}

#[test]
fn the_whole_family_of_an_agent_ends_with_the_agent() {
    let home = home_with_family();
    let daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let family = family(&home, &mut client);
    let agent = home
        .agents(&daemon)
        .into_iter()
        .find(|pid| is_loopback(*pid))
        .expect("the agent runs");
    signal(agent, Signal::KILL);
    for pid in family {
        assert!(ends_within(pid, LONGEST_STOP), "{pid} outlives its agent");
    }
    daemon.stop();
    home.assert_at_rest();
}

fn is_loopback(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"loopback-agent")
}

/// Waits until the agent has sent something in a turn.
fn wait_for_words(client: &mut Client) {
    loop {
        if let Line::Event(event) = client.read().unwrap()
            && event["event"]["update"]["sessionUpdate"] == "agent_message_chunk"
        {
            return;
        }
    }
}

fn wait_for_state(client: &mut Client, state: &str) {
    let is_it = |line: Line| matches!(line, Line::Event(event) if event["event"]["state"] == state);
    while !is_it(client.read().unwrap()) {}
}

fn answer_to(client: &mut Client, request: u64) -> Value {
    loop {
        if let Line::Answer(id, answer) = client.read().unwrap()
            && id == request
        {
            return answer.unwrap();
        }
    }
}

/// A home whose agent ignores the end of its input, SIGTERM and, if its prompt says so, a cancellation.
fn home_with_stubborn_agent() -> Home {
    let agent = loopback("\"${0%/*}/data\"");
    home_with_agent(&format!(
        "trap '' TERM\n{agent}\nwhile :; do read line < $PIDS/fifo; done"
    ))
}

/// Starts a turn that never ends, and waits until it runs.
fn hang(home: &Home, client: &mut Client) -> u64 {
    let id = client.new_conversation(&json!({"agent": "odd", "cwd": home.project()}));
    client.call("conversation/subscribe", &json!({"conversationId": id}));
    let prompt = json!({"conversationId": id, "prompt": "[[deaf]][[say on my way]][[hang]]"});
    let request = client.send("conversation/prompt", &prompt).unwrap();
    wait_for_words(client);
    request
}

// F28: the daemon must stop even if its agent ignores everything except SIGKILL.
#[test]
fn a_stop_ends_when_the_agent_heeds_nothing() {
    let home = home_with_stubborn_agent();
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    let request = hang(&home, &mut client);
    client.send("daemon/shutdown", &json!({"graceMs": 300})).unwrap();
    let turn = answer_to(&mut client, request);
    assert_eq!(
        turn["stopReason"], "cancelled",
        "the waiting client did not get a cancelled turn: {turn}"
    );
    assert!(daemon.wait().success());
    home.assert_at_rest();
}

#[test]
fn a_second_signal_cuts_a_stop_short() {
    let home = home_with_stubborn_agent();
    home.configure(&format!(
        "{}\n[limits]\ncancel_grace_ms = 3600000\n",
        fs::read_to_string(home.path().join("config/config.toml"))
            .unwrap()
            .replace("[limits]\ncancel_grace_ms = 500\n", "")
    ));
    let mut daemon = home.start();
    let mut client = Client::connect(&home.socket()).unwrap();
    hang(&home, &mut client);
    daemon.signal(Signal::TERM);
    // From now on the daemon would wait for an hour, unless a second signal comes.
    wait_for_state(&mut client, "cancelling");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    home.assert_at_rest();
}

#[test]
fn a_process_that_another_home_has_started_is_left_alone() {
    let (home, other) = (Home::new(""), Home::new(""));
    let (mut daemon, neighbour) = (home.start(), other.start());
    let mut client = Client::connect(&other.socket()).unwrap();
    let id = client.new_conversation(&json!({"agent": "loopback", "cwd": other.project()}));
    client.prompt(&id, "hello");
    let agents = other.agents(&neighbour);
    assert!(!agents.is_empty());
    daemon.kill();
    home.start().stop();
    for pid in agents {
        assert!(
            !ends_within(pid, Duration::ZERO),
            "the process {pid} of another home was ended"
        );
    }
    neighbour.stop();
    other.assert_at_rest();
}
