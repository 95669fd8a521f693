//! `continue`, `send --wait-limit` and `recover` with a real daemon and the built-in agent.

use serde_json::{Value, json};

use super::home::Home;
use super::text;

fn state(home: &Home, id: &str) -> Value {
    let shown = home.said(&["show", id, "--json"]);
    serde_json::from_str::<Value>(&shown).unwrap()["conversation"].clone()
}

#[test]
fn a_limit_is_waited_for_and_the_wait_is_called_off() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let sent = home.run(&["send", &id, "--wait-limit", "[[limit 3600]]"]);
    assert_eq!(sent.status.code(), Some(7));
    let told = text(&sent.stderr);
    assert!(told.contains("it goes on by itself at"), "{told}");
    assert!(home.said(&["show", &id]).contains("goes on"), "shown");
    let told = home.said(&["continue", &id, "--cancel"]);
    assert_eq!(told, "does not go on by itself any more");
    assert_eq!(state(&home, &id)["continuation"], Value::Null);

    let told = home.said(&["continue", &id, "--at-reset"]);
    assert!(told.starts_with("goes on at "), "{told}");
    let limit = state(&home, &id);
    assert_eq!(limit["continuation"]["at"], limit["limit"]["resetsAt"]);
}

#[test]
fn what_makes_no_sense_is_told_with_what_does() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (arguments, code, words) in [
        (&["continue", &id][..], 2, "--at-reset"),
        (&["continue", &id, "--at", "soon"], 2, "18:30"),
        (&["continue", &id, "--at-reset"], 5, "not run into a limit"),
        (&["continue", &id, "--now"], 5, "give a text"),
        (&["recover"], 2, "--all"),
        (&["recover", "5d0c2a00"], 4, "there is no conversation"),
    ] {
        let output = home.run(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

/// A limit, a missing sign-in, a crash, a stop of the daemon, an open question: each is told what became of it, and goes on.
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
    assert!(line(&limited).contains("goes on at "), "{told}");
    assert!(line(&crashed).contains("goes on now"), "{told}");
    assert!(
        line(&asks).contains("its question is open; answer with: sessionctl answer"),
        "{told}"
    );
    assert!(line(&signed_out).contains("goes on now"), "{told}");
    assert_eq!(told.lines().count(), 4, "{told}");

    let told: Value = serde_json::from_str(&home.said(&["recover", &idle, "--json"])).unwrap();
    assert_eq!(told, json!({"conversationId": idle, "did": "nothing"}));
    assert!(home.said(&["recover", &idle]).contains("nothing was cut short"));
}
