//! Questions and errors in the middle of the agent's words, at a terminal.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::home::Home;
use super::stub::{ID, Stub};
use super::terminal::Terminal;
use super::{run, sessionctl, text};

fn plain(stub: &Stub) -> Terminal {
    let mut command = sessionctl(&stub.home(), &["send", ID, "split"]);
    Terminal::of(80, command.env("NO_COLOR", "1"))
}

/// The agent may have gone on before this is told that the question was answered.
#[test]
fn an_answered_question_splits_no_word() {
    let stub = Stub::start();
    let mut terminal = plain(&stub);
    terminal.until("type a number and Enter");
    terminal.type_in("1\n");
    let (shown, code) = terminal.ended();
    assert!(shown.contains("\none word\r\nmore\r\n"), "{shown:?}");
    // Whoever typed the answer knows of it.
    assert!(!shown.contains("answered"), "{shown:?}");
    assert_eq!(code, Some(0), "{shown:?}");

    let mut terminal = plain(&stub);
    terminal.until("type a number and Enter");
    let answered = run(&stub.home(), &["answer", ID, "int-1", "split"]);
    assert_eq!(answered.status.code(), Some(0), "{answered:?}");
    let (shown, code) = terminal.ended();
    assert!(shown.contains("\none word\r\n"), "{shown:?}");
    assert!(shown.contains("answered"), "{shown:?}");
    assert_eq!(code, Some(0), "{shown:?}");
}

/// What failed because it was cancelled is named as when it began.
#[test]
fn a_tool_that_is_cancelled_at_its_question_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["send", &id, "[[ask Really?]]"]);
    terminal.until("type a number and Enter");
    terminal.type_in("\x03");
    let (shown, _) = terminal.ended();
    assert!(shown.contains("Really?: failed"), "{shown:?}");
}

/// The error stands on a line of its own, wherever the answer ended.
#[test]
fn the_error_of_a_lost_daemon_is_not_glued_to_the_answer() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let status: Value = serde_json::from_str(&home.said(&["status", "--json"])).unwrap();
    let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    let mut terminal = Terminal::run_plain(&home, 80, &["send", &id, "[[say Begun]] [[hang]]"]);
    terminal.until("Begun");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let (shown, code) = terminal.ended();
    assert!(shown.starts_with("\r\nerror: "), "{shown:?}");
    assert_eq!(code, Some(3), "{shown:?}");
    // In a pipe the answer ends its line too.
    let status = home.run(&["status"]);
    assert_eq!(status.status.code(), Some(3), "{}", text(&status.stderr));
}
