//! With `--json`, whatever a command prints on standard output is JSON, one object a line.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::home::Home;
use super::text;

/// Runs a command with `--json` and checks each line; gives the first one.
#[track_caller]
fn lines_of(home: &Home, arguments: &[&str], code: i32) -> Value {
    let output = home.run(&[arguments, &["--json", "--yes"]].concat());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    let printed = text(&output.stdout);
    let lines = printed.lines().map(|line| {
        let read = serde_json::from_str::<Value>(line);
        read.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"))
    });
    let lines: Vec<Value> = lines.collect();
    assert!(lines.iter().all(Value::is_object), "{arguments:?}: {printed}");
    assert_eq!(lines.is_empty(), code != 0, "{arguments:?}: {output:?}");
    if code != 0 {
        let told: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(told["error"]["exitCode"], code, "{arguments:?}: {told}");
    }
    lines.into_iter().next().unwrap_or_default()
}

#[test]
fn every_line_of_every_command_is_json() {
    let home = Home::new();
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let bundle = home.path().join("bundle");
    let bundle = bundle.to_str().unwrap();
    let made = lines_of(&home, &["new", "--title", "Blue heron"], 0);
    let id = made["conversation"]["id"].as_str().unwrap();
    lines_of(&home, &["send", id, "one"], 0);
    let session = home.shown(id)["head"].as_str().unwrap().to_owned();
    let calls: &[(&[&str], i32)] = &[
        (&["edit", id, "two"], 0),
        (&["undo", id], 0),
        (&["fork", id], 0),
        (&["set", id, "title=Grey heron"], 0),
        (&["rename", id, "White heron"], 0),
        (&["mv", id, other], 0),
        (&["close", id], 0),
        (&["resume", id], 0),
        (&["cancel", id], 0),
        (&["answer", id, "allow"], 4),
        (&["continue", id, "--at", "+1h", "--text", "three"], 0),
        (&["continue", id, "--cancel"], 0),
        (&["ls"], 0),
        (&["show", id], 0),
        (&["history", id], 0),
        (&["tree", id], 0),
        (&["checkpoints", id], 0),
        (&["transcripts"], 0),
        (&["check", id], 0),
        (&["archive", "ls"], 0),
        (&["archive", "add", id], 0),
        (&["archive", "restore", id], 0),
        (&["keep", id], 0),
        (&["restore", id], 0),
        (&["export", id], 0),
        (&["export", id, "-o", bundle], 0),
        (&["chain", id], 0),
        (&["lineage", id], 0),
        (&["reset", id], 0),
        (&["rm", id], 0),
        (&["attach", id], 4),
        (&["adopt", &session], 0),
        (&["import", bundle, "--cwd", other, "--new-ids"], 0),
        (&["archive", "rm", "nothing"], 4),
        (&["agents"], 0),
        (&["doctor", "--no-agents"], 0),
        (&["status"], 0),
        (&["start"], 0),
        (&["chat", "--new"], 2),
        // What these print is text for another program or for people.
        (&["acp"], 2),
        (&["demo"], 2),
        (&["completions", "bash"], 2),
        (&["man"], 2),
        (&["stop"], 0),
        (&["stop"], 0),
    ];
    for (arguments, code) in calls {
        lines_of(&home, arguments, *code);
    }
    let called: BTreeSet<&str> = calls.iter().map(|(arguments, _)| arguments[0]).collect();
    let help = home.said(&["help"]);
    let commands = help.lines().filter_map(|line| line.strip_prefix("  "));
    let named = commands
        .filter_map(|line| line.split_once("  "))
        .map(|(name, _)| name);
    let named =
        named.filter(|name| !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_lowercase()));
    let named: Vec<&str> = named.filter(|name| !["new", "send"].contains(name)).collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        assert!(called.contains(name), "{name} is a command of the help");
    }
}
