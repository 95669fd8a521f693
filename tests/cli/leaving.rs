//! Ctrl-C and Esc while the daemon takes its time, and in a turn that runs already.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::finding::{CTRL_F, ENTER, ESCAPE};
use super::home::Home;
use super::sessionctl;
use super::stub::{ID, Stub};
use super::terminal::{ASKED, MARK, Terminal, in_shell};

const CTRL_C: &str = "\x03";

#[test]
fn the_second_ctrl_c_leaves_a_chat_that_entered_a_running_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut sent = home
        // The prompt, which is shown too, does not have the word that the agent says.
        .command(&["send", &id, "[[say Be]][[say gun]] [[deaf]] [[hang]]"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sent.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
    sent.kill().unwrap();
    sent.wait().unwrap();
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]);
    terminal.until("Begun");
    terminal.type_in(CTRL_C);
    terminal.until("Ctrl-C again leaves at once");
    terminal.type_in(CTRL_C);
    let (seen, code) = terminal.seen();
    assert_eq!(code, Some(0), "{seen}");
    let last = seen.trim_end().lines().last();
    assert!(
        last.is_some_and(|line| line.contains("sessionctl attach")),
        "{seen}"
    );
    // A line that has not ended is shown too.
    assert!(seen.lines().any(|line| line == "Begun"), "{seen}");
    home.said(&["cancel", &id]);
}

#[test]
fn the_second_ctrl_c_leaves_also_if_the_first_was_answered() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["send", ID, "deaf"]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
    terminal.until("hanging");
    terminal.type_in(CTRL_C);
    terminal.until(" on\r\n");
    terminal.type_in(CTRL_C);
    let shown = terminal.exits(1);
    assert!(shown.contains("sessionctl attach"), "{shown:?}");
    assert_eq!(stub.calls_of("conversation/cancel").len(), 1);
}

/// In `send` and in a chat.
#[test]
fn an_answer_that_the_daemon_does_not_take_can_be_left() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["send", ID, "slow"]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
    terminal.until(ASKED);
    terminal.type_in("y");
    stub.wait_for_calls("conversation/respond", 1);
    terminal.type_in(CTRL_C);
    let shown = terminal.exits(1);
    assert!(shown.contains("sessionctl attach"), "{shown:?}");
    let mut command = sessionctl(&stub.home(), &["chat", ID]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1")).waiting();
    terminal.enter("/answer allow");
    stub.wait_for_calls("conversation/respond", 2);
    terminal.type_in(CTRL_C);
    terminal.until("stopped waiting");
    terminal.until(MARK);
    // JSON keeps its quotes.
    terminal.says("/answer {\"outcome\":\"cancelled\"}", "Answered");
    terminal.leave();
    let outcome = &stub.calls_of("conversation/respond")[2]["outcome"];
    assert_eq!(*outcome, json!({"outcome": "cancelled"}));
}

/// Also after the picker, which reads keys itself.
#[test]
fn ctrl_c_ends_a_command_that_asks_after_the_picker() {
    for (arguments, asks) in [(&["rm"][..], "[y/N]"), (&["send"], "Ctrl-D sends it")] {
        let stub = Stub::start();
        let mut command = sessionctl(&stub.home(), arguments);
        let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
        terminal.until("Esc leaves");
        terminal.type_in(ENTER);
        terminal.until(asks);
        terminal.type_in(CTRL_C);
        terminal.exits(130);
        assert!(stub.calls_of("conversation/delete").is_empty());
    }
}

/// The terminal is as it was found: see [`Terminal::ended`].
#[test]
fn a_signal_ends_a_chat_and_a_question() {
    let stub = Stub::start();
    let at = |arguments: &[&str]| {
        let mut command = sessionctl(&stub.home(), arguments);
        Terminal::of(80, command.env("NO_COLOR", "1"))
    };
    let mut question = at(&["send", ID, "ask"]);
    question.until(ASKED);
    let chat = at(&["chat", ID]).waiting();
    let mut picked = at(&["chat"]);
    picked.until("Rename");
    picked.type_in(ENTER);
    let picked = picked.waiting();
    for terminal in [question, chat, picked] {
        terminal.signal(Signal::TERM);
        terminal.exits(143);
    }
}

/// A hang-up by hand leaves the terminal as it was found; see [`Terminal::ended`].
#[test]
fn a_hang_up_ends_the_picker() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["chat"]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
    terminal.until("Rename");
    terminal.signal(Signal::HUP);
    terminal.exits(129);
}

/// As in a background job of a script, and after `nohup`, whose command outlives its terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_was_ignored_stays_ignored() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let attach = home.command(&["attach", &id]);
    let script =
        "mkfifo out; trap '' INT HUP; \"$0\" \"$@\" < /dev/null > out 2>&1 & echo job $!.; read line";
    let mut terminal = Terminal::of(80, &in_shell(script, &attach));
    terminal.until("job ");
    let job = terminal.until(".");
    let job = Pid::from_raw(job.trim_end_matches('.').parse().unwrap()).unwrap();
    let mut shown = BufReader::new(File::open(home.path().join("out")).unwrap()).lines();
    let mut shows = |words: &str| shown.any(|line| line.unwrap().contains(words));
    assert!(shows("idle"));
    for signal in [Signal::INT, Signal::HUP] {
        kill_process(job, signal).unwrap();
    }
    drop(terminal);
    // It follows the conversation on.
    home.said(&["send", &id, "hello"]);
    assert!(shows("echo: hello"));
    kill_process(job, Signal::TERM).unwrap();
    assert!(!shows("echo"));
}

/// Nobody reads what it brings: the daemon would hold events for it.
#[test]
fn a_chat_ends_the_subscription_to_a_turn() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["chat", ID]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1")).waiting();
    terminal.says("hello", "echo: hello");
    stub.wait_for_calls("conversation/unsubscribe", 1);
    terminal.leave();
}

/// A program at the terminal gets Ctrl-C, and what it makes of it is its own.
#[test]
fn ctrl_c_in_the_editor_or_the_pager_is_theirs() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let at = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("NO_COLOR", "1");
        command.env(
            "EDITOR",
            "edit() { trap '' INT; echo EDITING; read line; printf \"$line\" > \"$1\"; }; edit",
        );
        command.env("PAGER", "trap '' INT; cat; echo PAGED; read line < /dev/tty");
        Terminal::of(80, &command)
    };
    let mut terminal = at(&["edit", &id]);
    terminal.until("EDITING");
    terminal.type_in(CTRL_C);
    terminal.type_in("two\n");
    terminal.until("echo: two");
    terminal.exits(0);

    let mut terminal = at(&["chat", &id]).waiting();
    terminal.enter("/edit");
    terminal.until("EDITING");
    terminal.type_in(CTRL_C);
    terminal.type_in("three\n");
    terminal.until("echo: three");
    terminal.until(MARK);
    terminal.leave();

    let mut terminal = at(&["send", &id, "[[ask Really?]] [[say Done it]]"]);
    terminal.until(ASKED);
    terminal.type_in("d");
    terminal.until("PAGED");
    terminal.type_in(CTRL_C);
    terminal.type_in("\n");
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until("Done it");
    terminal.exits(0);
}

/// Before the first turn of the chat and after it.
#[test]
fn ctrl_c_gives_a_command_of_the_chat_up_and_not_the_chat() {
    let stub = Stub::start();
    let mut command = sessionctl(&stub.home(), &["chat", ID]);
    let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1")).waiting();
    for calls in 1..=2 {
        terminal.enter("/rewind");
        stub.wait_for_calls("conversation/checkpoints", calls);
        terminal.type_in(CTRL_C);
        terminal.until("stopped waiting");
        terminal.until(MARK);
        terminal.says("hello", "echo: hello");
    }
    terminal.leave();
}

#[test]
fn the_picker_can_be_left_while_the_daemon_forks() {
    for (key, code) in [(ESCAPE, 1), (CTRL_C, 130)] {
        let stub = Stub::start();
        let mut command = sessionctl(&stub.home(), &["show"]);
        let mut terminal = Terminal::of(80, command.env("NO_COLOR", "1"));
        terminal.until("Esc leaves");
        terminal.type_in(CTRL_F);
        stub.wait_for_calls("conversation/fork", 1);
        terminal.type_in(key);
        let shown = terminal.exits(code);
        assert!(shown.contains("stopped waiting"), "{shown:?}");
    }
}
