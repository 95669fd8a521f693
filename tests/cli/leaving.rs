//! Ctrl-C and Esc while the daemon takes its time, and in a turn that runs already.

use std::io::Read;
use std::process::Stdio;

use super::finding::{CTRL_F, ESCAPE};
use super::home::Home;
use super::sessionctl;
use super::stub::{ID, Stub};
use super::terminal::{MARK, Terminal};

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
    let shown = terminal.exits(0);
    assert!(!shown.contains(MARK), "{shown:?}");
    home.said(&["cancel", &id]);
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
    for (key, code) in [(ESCAPE, 0), (CTRL_C, 130)] {
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
