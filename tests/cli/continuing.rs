//! `continue`, `send --wait-limit` and `recover` with a real daemon and the built-in agent.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::home::Home;
use super::text;

fn state(home: &Home, id: &str) -> Value {
    let shown = home.said(&["show", id, "--json"]);
    serde_json::from_str::<Value>(&shown).unwrap()["conversation"].clone()
}

/// Waits until the conversation is shown so.
fn wait_for(home: &Home, id: &str, is_so: impl Fn(&Value) -> bool) {
    let since = Instant::now();
    loop {
        let shown = state(home, id);
        if is_so(&shown) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{shown}");
    }
}

/// Waits until it has gone on.
fn wait_idle(home: &Home, id: &str) {
    wait_for(home, id, |shown| {
        shown["cutShort"] != true && shown["state"] == "idle"
    });
}

#[test]
fn a_limit_is_waited_for_and_the_wait_is_called_off() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let sent = home.run(&["send", &id, "--wait-limit", "[[limit 3600]]"]);
    assert_eq!(sent.status.code(), Some(7));
    assert!(state(&home, &id)["continuation"].is_object());
    let told = home.said(&["continue", &id, "--cancel"]);
    assert_eq!(told, "Cancelled the scheduled continuation.");
    assert_eq!(state(&home, &id)["continuation"], Value::Null);
    let again = home.run(&["continue", &id, "--cancel"]);
    super::check(&again, 0, "");
    assert_eq!(text(&again.stderr), "Nothing was scheduled.\n");

    let told = home.said(&["continue", &id, "--at-reset"]);
    assert!(told.starts_with("Continues at "), "{told}");
    let limit = state(&home, &id);
    assert_eq!(limit["continuation"]["at"], limit["limit"]["resetsAt"]);
}

#[test]
fn what_makes_no_sense_is_told_with_what_does() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (arguments, code) in [
        (&["continue", &id][..], 5),
        (&["continue", &id, "--at", "soon"], 2),
        (&["continue", &id, "--at", "2020-01-01T00:00", "--text", "hi"], 2),
        (&["continue", &id, "--at", "+0m", "--text", "hi"], 2),
        (&["continue", &id, "--at-reset"], 5),
        (&["continue", "5d0c2a00"], 4),
    ] {
        home.printed(arguments, code);
    }
}

#[test]
fn a_time_may_be_short() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for at in ["6:30", "+30m", "+1h", "+1h30m"] {
        let told = home.said(&["continue", &id, "--at", at, "--text", "hi"]);
        assert!(told.starts_with("Continues at "), "{at}: {told}");
        assert!(state(&home, &id)["continuation"].is_object(), "{at}");
    }
}

/// A limit, a missing sign-in, a crash, a stop of the daemon, an open question: each is told what became of
/// it, and goes on.
#[test]
fn recover_goes_on_with_all_that_was_cut_short() {
    let home = Home::new();
    let made = |title: &str| home.said(&["new", "--title", title]);
    let (limited, crashed, asks, idle) = (made("limited"), made("crashed"), made("asks"), made("idle"));
    let signed_out = made("signed out");
    assert_eq!(
        home.run(&["send", &signed_out, "[[fail auth]]"]).status.code(),
        Some(6)
    );
    assert_eq!(state(&home, &signed_out)["state"], "idle");
    home.said(&["send", &idle, "hello"]);
    assert_eq!(
        home.run(&["send", &limited, "[[limit 3600]]"]).status.code(),
        Some(7)
    );
    assert_eq!(home.run(&["send", &crashed, "[[crash]]"]).status.code(), Some(6));
    assert_eq!(
        home.run(&["send", &asks, "[[ask Really?]]"]).status.code(),
        Some(8)
    );
    home.run(&["stop"]);

    let told = home.said(&["recover", "--all"]);
    let line = |id: &str| {
        let mut lines = told.lines();
        lines.find(|line| line.starts_with(&id[..8])).unwrap_or_default()
    };
    assert!(line(&limited).contains("continues at "), "{told}");
    assert!(line(&crashed).contains("continues now"), "{told}");
    assert!(
        line(&asks).contains("waits for an answer: sessionctl answer"),
        "{told}"
    );
    assert!(line(&signed_out).contains("continues now"), "{told}");
    assert_eq!(told.lines().count(), 4, "{told}");
    for id in [&crashed, &signed_out] {
        wait_idle(&home, id);
        let said = home.said(&["history", id]);
        assert!(said.contains("Your last turn was cut short."), "{said}");
    }

    assert_eq!(home.run(&["recover", &idle]).status.code(), Some(5));
    // What is left is done, or still waits.
    let told = home.said(&["continue", "--all", "--json"]);
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let did = |id: &str| {
        told.iter()
            .find(|one| one["conversationId"] == id)
            .map(|one| one["did"].clone())
    };
    assert_eq!(
        (did(&limited), did(&asks)),
        (Some(json!("continues")), Some(json!("asks"))),
        "{told:?}"
    );
}

/// Without a time the turn is continued at once, and its answer is shown.
#[test]
fn continue_follows_the_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let crashed = home.run(&["send", &id, "[[crash]]"]);
    assert_eq!(crashed.status.code(), Some(6));
    let told = text(&crashed.stderr);
    assert!(
        !told.contains("nothing is lost") && told.contains("sessionctl continue"),
        "{told}"
    );
    let answer = home.said(&["continue", &id]);
    assert!(
        answer.starts_with("echo: ") && answer.contains("cut short"),
        "{answer}"
    );
    // The user did not write that.
    let history = home.said(&["history", &id]);
    assert!(
        history.contains("[continued] Your last turn was cut short.") && !history.contains("> Your last"),
        "{history}"
    );
    let answer = home.said(&["continue", &id, "--text", "And now this"]);
    assert_eq!(answer, "echo: And now this");
}

/// A command that waits, in the background; its output is nobody's.
fn begin(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.command(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// What a kill of the daemon left in line, behind the turn that it cut short.
#[test]
fn recover_goes_on_with_the_line_after_a_kill() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
    wait_for(&home, &id, |shown| shown["state"] == "prompting");
    let busy = home.run(&["continue", &id]);
    assert_eq!(busy.status.code(), Some(5), "{}", text(&busy.stderr));
    let waiting = begin(&home, &["send", &id, "--queue", "it waited"]);
    wait_for(&home, &id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    let status: Value = serde_json::from_str(&home.said(&["status", "--json"])).unwrap();
    let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    let daemon = rustix::process::Pid::from_raw(pid).unwrap();
    // Those who sent them have gone first: they would have picked it up.
    for mut child in [running, waiting] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    super::live::kill_and_wait(daemon);
    let told = home.said(&["recover", "--all"]);
    assert!(
        told.starts_with(&id[..8]) && told.contains("continues now"),
        "{told}"
    );
    wait_idle(&home, &id);
    let history = home.said(&["history", &id]);
    let place = |words: &str| {
        history
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {history}"))
    };
    assert!(place("[[hang]]") < place("Your last turn was cut short."));
    assert!(place("Your last turn was cut short.") < place("it waited"));
}

#[test]
fn recover_tells_what_it_could_not_bring_back() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "[[lose]]"]);
    assert_eq!(home.run(&["send", &id, "again"]).status.code(), Some(6));
    assert_eq!(state(&home, &id)["state"], "failed");
    let output = home.run(&["continue", "--all"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("could not be continued: "), "{told}");
}
