//! A chat that waits for a line while the daemon restarts, and while other clients change the settings.

use super::home::Home;
use super::terminal::{ASKED, MARK, Terminal};

/// What is shown if the daemon was not connected for a while.
const MISSING: &str = "turns may be missing here; read them with: ";

/// The first command of another client starts the next daemon.
#[test]
fn a_chat_that_waits_for_a_line_follows_the_next_daemon() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    terminal.type_in("half a line");
    terminal.until("half a line");
    let stop = || drop(home.said(&["stop"]));
    let kill = || home.kill_daemon();
    for (end, first) in [(&stop as &dyn Fn(), "one"), (&kill, "two")] {
        end();
        home.said(&["send", &id, first]);
        terminal.until(&format!("{MISSING}/history"));
        terminal.until("half a line");
        home.said(&["send", &id, &format!("{first} more")]);
        terminal.until(&format!("echo: {first} more"));
        terminal.until("half a line");
    }
    let asked = [
        "send",
        &id,
        "[[ask Really?]] [[say Done it]]",
        "--on-question",
        "leave",
    ];
    assert_eq!(home.run(&asked).status.code(), Some(8));
    terminal.until(ASKED);
    terminal.type_in("y");
    terminal.until("Done it");
    terminal.until(MARK);
    terminal.says(" and its end", "echo: half a line and its end");
    terminal.leave();
}

/// The turn that asks is cut off by the end of its daemon, and the question stays open.
#[test]
fn a_chat_that_waits_for_a_line_asks_the_question_that_a_restart_left_open() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    home.said(&["stop"]);
    terminal.signal(rustix::process::Signal::STOP);
    let asked = [
        "send",
        &id,
        "[[ask Really?]] [[say Done it]]",
        "--on-question",
        "leave",
    ];
    assert_eq!(home.run(&asked).status.code(), Some(8));
    home.kill_daemon();
    home.said(&["ls"]);
    terminal.signal(rustix::process::Signal::CONT);
    terminal.until(ASKED);
    terminal.type_in("n");
    terminal.until(MARK);
    terminal.leave();
}

#[test]
fn a_chat_that_waits_for_a_line_never_starts_a_daemon() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    home.said(&["stop"]);
    // This is answered without a daemon.
    terminal.says("/help", "Show this list");
    assert_eq!(home.run(&["status", "--no-start"]).status.code(), Some(3));
    home.said(&["rm", &id, "--yes"]);
    terminal.until("Another client deleted the conversation");
    terminal.exits(0);
}

/// Neither a value that stays nor a change of its own is reported.
#[test]
fn a_chat_shows_which_settings_others_changed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &id]).waiting();
    let mut shown = terminal.says("first", "echo: first");
    home.said(&["set", &id, "mode=plan"]);
    shown += &terminal.until("Changed: mode default → plan");
    shown += &terminal.until(MARK);
    home.said(&["set", &id, "mode=plan"]);
    shown += &terminal.says("/mode default", "mode plan → default");
    home.said(&["set", &id, "model=loop-2"]);
    shown += &terminal.until("Changed: model loop-1 → loop-2");
    shown += &terminal.until(MARK);
    shown += &terminal.says("second", "echo: second");
    assert_eq!(shown.matches("Changed: ").count(), 2, "{shown}");
    terminal.leave();
}

#[test]
fn an_attached_client_shows_which_settings_others_changed() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "first"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["attach", &id]);
    terminal.until("echo: first");
    home.said(&["set", &id, "model=loop-2"]);
    terminal.until("Changed: model loop-1 → loop-2");
    home.said(&["set", &id, "model=loop-2", "title=Other"]);
    home.said(&["send", &id, "second"]);
    let shown = terminal.until("echo: second");
    assert!(!shown.contains("Changed"), "{shown}");
    terminal.type_in("\x03");
    terminal.exits(0);
}
