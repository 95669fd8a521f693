//! A daemon that stops answering while a command waits for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::listeners::refused;
use super::terminal::Terminal;
use super::{check, run, sessionctl, text};
use crate::home::Home;

/// Wide enough for lines with paths and process ids, which differ in length.
const WIDE: u16 = 600;

/// A command with `--json`, and the lines that it prints.
fn begun(home: &Home, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut command = sessionctl(home.path(), &[&["--json"], arguments].concat());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(Result::unwrap))
}

/// A turn, the events of others and a single answer may take hours; a daemon that is stopped is noticed all the same.
#[test]
fn no_command_waits_for_a_daemon_that_stops_answering() {
    // The agent does not hear that its turn is cancelled, and is not ended for it during this test.
    let home = Home::with_config("[limits]\ncancel_grace_ms = 3600000\n");
    let daemon = home.start();
    let new = || {
        let made = run(home.path(), &["new"]);
        text(&made.stdout).trim_end().to_owned()
    };
    let (deaf, talk, done) = (new(), new(), new());
    let (attach, mut events) = begun(&home, &["attach", &deaf]);
    let (send, mut lines) = begun(&home, &["send", &deaf, "[[say Begun]] [[deaf]] [[hang]]"]);
    assert!(lines.any(|line| line.contains("Begun")));
    let mut chat = sessionctl(home.path(), &["chat", &talk]);
    let mut chat = Terminal::of(WIDE, chat.env("NO_COLOR", "1")).waiting();
    chat.enter("[[say Begun]] [[hang]]");
    chat.until("Begun");
    let (idle, mut events_of_done) = begun(&home, &["attach", &done]);
    assert!(events_of_done.any(|line| line.contains("snapshot")));
    check(&run(home.path(), &["send", &done, "one"]), 0, "echo: one\n");
    assert!(events_of_done.any(|line| line.contains("turnEnded")));
    let (cancel, _answer) = begun(&home, &["cancel", &deaf]);
    assert!(events.any(|line| line.contains("cancelling")));

    let frozen = daemon.freeze();
    // The chat shows that it is waiting for the daemon long before it gives up.
    chat.check_before_line("chat whose daemon is stopped", WIDE.into());
    for (name, child) in [
        ("send", send),
        ("attach", attach),
        ("attach, after the turn", idle),
        ("cancel", cancel),
    ] {
        let output = child.wait_with_output().unwrap();
        let error = refused(&format!("{name} (daemon stopped meanwhile)"), &output);
        let expected = json!({"path": home.socket(), "pid": daemon.pid()});
        assert_eq!(error["data"], expected, "{error}");
    }
    // The chat is still connected when the daemon answers again, and the turns run on.
    drop(frozen);
    chat.says("/history", "Begun");
    chat.leave();
    for (id, state) in [(&deaf, "cancelling"), (&talk, "prompting")] {
        let shown = run(home.path(), &["show", id, "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["conversation"]["state"], state, "{shown}");
    }
    check(&run(home.path(), &["cancel", &talk]), 0, "");
    // It would wait for the agent that hears nothing.
    daemon.kill();
}
