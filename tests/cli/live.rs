//! The command line with a real daemon and the built-in agent: what only both together show.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::home::Home;
use super::printed::{check_printed, check_shown, commands};
use super::terminal::Terminal;
use super::text;

/// What a prompt prints that waits for another turn.
const IS_QUEUED: &str = "another turn is running; this prompt is queued";

/// What it prints of that turn's question.
const WAITS_FOR_ANSWER: &str = "the running turn is waiting for an answer: First?";

/// What others print of it.
const ONE_IS_QUEUED: &str = "1 prompt is queued";

#[test]
fn an_unknown_agent_is_told_with_those_that_are_known() {
    let home = Home::new();
    home.printed(&["new", "--agent", "zork"], 4);
}

#[test]
fn a_conversation_that_could_not_be_opened_at_once_is_named() {
    let home = Home::new();
    home.configure("[agents.gone]\nkind = \"generic\"\ncommand = \"/bin/false\"\n");
    let output = home.run(&["new", "--open"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let told = text(&output.stderr);
    let (_, id) = told.split_once("sessionctl rm ").unwrap();
    let (id, _) = id.split_once(' ').unwrap();
    assert!(home.said(&["show", id]).contains("gone"), "{told}");
    home.said(&["rm", id]);
}

/// As it is, and not as a program would quote it.
#[test]
fn the_tree_shows_a_title_as_it_is() {
    let home = Home::new();
    let id = home.said(&["new", "--title", r#"The "blue" C:\heron"#]);
    let tree = home.said(&["tree", &id]);
    assert!(tree.contains(r#"The "blue" C:\heron"#), "{tree}");
}

#[test]
fn the_tree_of_a_fork_begins_with_what_it_came_from() {
    let home = Home::new();
    let root = home.said(&["new", "--title", "Root"]);
    home.said(&["send", &root, "hello"]);
    let fork = home.said(&["fork", &root, "--title", "Fork"]);
    home.said(&["send", &root, "only here"]);
    home.shows(&["tree", &fork]);
    let answer: Value = serde_json::from_str(&home.said(&["tree", &fork, "--json"])).unwrap();
    let ids = answer["conversations"].as_array().unwrap().iter();
    let ids: Vec<&Value> = ids.map(|member| &member["conversation"]["id"]).collect();
    assert_eq!(ids, [&json!(root), &json!(fork)]);
    home.shows(&["tree", &root]);

    home.said(&["rm", &root]);
    check_shown(
        &["tree of a fork whose source is deleted"],
        &home.run(&["tree", &fork]),
        0,
    );
}

/// A reset removes no turns from the sessions before it.
#[test]
fn the_tree_counts_the_turns_before_a_reset() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Root"]);
    home.said(&["send", &id, "one"]);
    home.said(&["send", &id, "two"]);
    home.said(&["reset", &id]);
    home.said(&["send", &id, "three"]);
    let tree = home.said(&["tree", &id]);
    assert!(tree.contains("2 turns") && tree.contains("1 turn"), "{tree}");
}

#[test]
fn with_json_an_error_is_json_too() {
    let home = Home::new();
    let table = [
        (
            &["--json", "show", "5d0c2a"][..],
            4,
            json!("notFound"),
            json!(1001),
        ),
        (&["--json", "show", "."], 4, json!("notFound"), json!(1001)),
        (&["--json", "nonsense"], 2, json!("usage"), Value::Null),
        (
            &["new", "--cwd", "/no/such/folder", "--json"],
            1,
            json!("invalidCwd"),
            json!(1004),
        ),
    ];
    for (arguments, code, kind, wire_code) in table {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let told = text(&output.stderr);
        assert_eq!(told.lines().count(), 1, "{told}");
        let error = &serde_json::from_str::<Value>(&told).unwrap()["error"];
        assert_eq!((&error["kind"], &error["code"]), (&kind, &wire_code), "{told}");
        assert_eq!(error["exitCode"], code, "{told}");
        assert!(
            error["message"].is_string() && error["hint"].is_string(),
            "{told}"
        );
        assert!(error["retryable"].is_boolean(), "{told}");
    }
}

/// A folder that a conversation is to be given is another one; a conversation's own can be made again, or it
/// goes elsewhere.
#[test]
fn a_folder_that_is_not_there_is_told_with_what_helps() {
    let home = Home::new();
    let folder = home.path().join("project");
    std::fs::create_dir(&folder).unwrap();
    let cwd = folder.to_str().unwrap();
    let id = home.said(&["new", "--cwd", cwd]);
    std::fs::remove_dir(&folder).unwrap();
    for arguments in [
        &["new", "--cwd", cwd][..],
        &["send", &id, "one"],
        &["resume", &id],
    ] {
        let told = home.printed(arguments, 1);
        assert!(told.contains(cwd), "{told}");
    }
}

#[test]
fn a_wrong_answer_is_told_where_the_right_ones_are() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.printed(&["answer", &id, "allow"], 4);
    home.run(&["send", &id, "[[ask Really?]]"]);
    let show: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    let interrupt = show["conversation"]["interrupts"][0]["id"].as_str().unwrap();
    let wrong = home.printed(&["answer", &id, "perhaps"], 2);
    let right = format!(
        "answer it (allow, deny): sessionctl answer {} allow --question {interrupt}",
        &id[..8]
    );
    assert!(wrong.contains(&right), "{wrong}");
    home.printed(&["answer", &id, "allow", "--question", "none"], 4);
    // Without an answer and a terminal it says what is asked.
    let asked = home.printed(&["answer", &id], 8);
    assert!(asked.contains(&right), "{asked}");
    // What it says can be pasted.
    home.said(&["answer", &id, "deny", "--question", interrupt]);
}

#[test]
fn the_question_of_another_turn_is_told_as_such_and_left_alone() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let asked = home.run(&["send", &id, "[[ask First?]] [[say First is done]]"]);
    assert_eq!(asked.status.code(), Some(8), "{asked:?}");

    home.printed(&["send", &id, "Second"], 5);

    // In line: it must not end for the other turn's question, and stream nothing of that turn.
    let mut waiting = home
        .command(&["send", "--queue", &id, "Second"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut notes = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let mut until = |words: &str| {
        notes
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("{words} is told"))
    };
    until(IS_QUEUED);
    until(WAITS_FOR_ANSWER);
    // Others see it there, once its place is on disk: what was told so far was told before it was asked for.
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| !queue.is_empty())
    });
    let turn = home.shown(&id)["queue"][0]["turnId"].as_str().unwrap().to_owned();
    assert!(home.said(&["show", &id]).contains(&turn[..8]));
    assert!(home.said(&["ls"]).contains("awaiting"));
    let mut attached = home
        .command(&["attach", &id])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(attached.stderr.take().unwrap()).lines();
    let in_line = told.map(Result::unwrap).find(|line| line == ONE_IS_QUEUED);
    assert!(in_line.is_some());
    kill_process(Pid::from_child(&attached), Signal::INT).unwrap();
    attached.wait().unwrap();
    let how = until("sessionctl answer");
    let interrupt = how
        .split(' ')
        .skip_while(|word| *word != "--question")
        .nth(1)
        .unwrap();
    home.said(&["answer", &id, "allow", "--question", interrupt]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "echo: Second\n");
}

/// Whoever answered a question sees what came of it, also once the turn has ended.
#[test]
fn attach_begins_with_the_last_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "Earlier"]);
    let asked = home.run(&[
        "send",
        &id,
        "[[ask First?]] [[tool Read {}]] [[say First is done]]",
    ]);
    assert_eq!(asked.status.code(), Some(8), "{asked:?}");
    home.said(&["answer", &id, "yes"]);
    home.said(&["send", "--queue", &id, "[[tool Read {}]] [[say Second]]"]);
    let mut attached = Terminal::run_plain(&home, 80, &["attach", &id]);
    let shown = attached.until("idle");
    assert!(!shown.contains("First is done"), "{shown:?}");
    let shown = attached.until("Second\r\n");
    assert!(
        shown.contains("> [[tool Read {}]]") && !shown.contains("Earlier"),
        "{shown:?}"
    );
    home.said(&["send", &id, "After"]);
    attached.until("echo: After");
    attached.type_in("\x03");
    let (shown, code) = attached.ended();
    assert_eq!(code, Some(0), "{shown:?}");
}

#[test]
fn attach_goes_on_when_the_daemon_comes_back() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut attached = home
        .command(&["attach", &id])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut notes = BufReader::new(attached.stderr.take().unwrap()).lines();
    let mut shown = BufReader::new(attached.stdout.take().unwrap()).lines();
    let mut until = |words: &str| {
        let told = notes
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(words));
        assert!(told.is_some(), "{words} is told");
    };
    // It has subscribed.
    until("idle");
    assert_eq!(home.said(&["send", &id, "Before"]), "echo: Before");
    assert_eq!(shown.next().unwrap().unwrap(), "echo: Before");

    home.kill_daemon();
    until("waiting up to 60 s for it");
    // The next command starts a daemon; attach must not.
    home.said(&["show", &id]);
    until("the daemon answers again");
    until("idle");
    assert_eq!(home.said(&["send", &id, "After"]), "echo: After");
    assert_eq!(shown.next().unwrap().unwrap(), "echo: After");
    kill_process(Pid::from_child(&attached), Signal::INT).unwrap();
    assert_eq!(attached.wait().unwrap().code(), Some(0));
}

/// Only a daemon that starts reads the configuration: whoever names another file to one that runs is told.
#[test]
fn a_configuration_that_is_not_used_is_told() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.toml", "second.toml"].map(|name| {
        let file = folder.path().join(name);
        std::fs::write(&file, "default_agent = \"loopback\"\n").unwrap();
        file.to_str().unwrap().to_owned()
    });
    for (options, is_told) in [
        (vec!["--config", &first], false),
        (vec!["--config", &first], false),
        (vec![], false),
        (vec!["--config", &second], true),
        (vec!["--config", &second, "--json"], false),
    ] {
        let listed = home.run(&[&options[..], &["ls"]].concat());
        let what = if is_told {
            "that is not used"
        } else {
            "that is used"
        };
        check_printed(&["ls with a configuration", what], &listed, 0);
    }
}

#[test]
fn transcripts_are_listed_with_the_conversations_that_hold_them() {
    let home = Home::new();
    home.printed(&["transcripts", "--agent", "loopback"], 0);
    let id = home.said(&["new"]);
    home.said(&["send", &id, "Mend the build"]);
    let lines = home.said(&["transcripts", "--agent", "loopback", "mend"]);
    let head: Value = serde_json::from_str(&home.said(&["--json", "show", &id])).unwrap();
    let head = head["conversation"]["head"].as_str().unwrap().to_owned();
    assert!(lines.starts_with(&head), "{lines}");
    let columns: Vec<&str> = lines.split('\t').collect();
    assert_eq!(
        (columns[3], columns[4], columns[6]),
        ("loopback", id.as_str(), "Mend the build")
    );
    let told: Value =
        serde_json::from_str(&home.said(&["--json", "transcripts", "--agent", "loopback"])).unwrap();
    assert_eq!(told["transcripts"][0]["upstreamId"], json!(head));
}

/// A turn that ran while there was no connection.
#[test]
fn attach_names_what_shows_the_turns_that_it_missed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "Before"]);
    let mut attached = Terminal::run_plain(&home, 80, &["attach", &id]);
    attached.until("echo: Before");
    attached.signal(Signal::STOP);
    home.kill_daemon();
    home.said(&["send", &id, "Meanwhile"]);
    attached.signal(Signal::CONT);
    attached.until("the daemon answers again");
    let told = attached.until(" -n 2");
    let shown = home.said_pasted(commands(&told)[0]);
    assert!(shown.contains("echo: Meanwhile"), "{shown}");
    attached.type_in("\x03");
    attached.exits(0);
}
