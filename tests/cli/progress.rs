//! A bar where a command takes long, and only on a terminal.

use std::process::Stdio;

use super::stub::{ID, Stub};
use super::terminal::Terminal;
use super::{sessionctl, text};

/// The stub answers the export once it was asked three times how far that has come.
#[test]
fn a_long_call_has_a_bar_that_goes_when_it_is_over() {
    let stub = Stub::start();
    // Programs and pipes get none: these two begin before the terminal's, and end with it.
    let piped = sessionctl(&stub.home(), &["export", ID])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let json = Terminal::of(80, &sessionctl(&stub.home(), &["--json", "export", ID]));
    stub.wait_for_calls("conversation/export", 2);
    let mut terminal = Terminal::of(80, &sessionctl(&stub.home(), &["export", ID]));
    terminal.until("25%  1.00 MiB of 4.00 MiB");
    let (shown, code) = terminal.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    // The line of the bar is cleared before anything is said.
    let (bars, answer) = shown.rsplit_once("\x1b[2K").unwrap();
    assert!(
        !answer.contains("MiB") && answer.contains("/t/x"),
        "{bars:?} {answer:?}"
    );

    let (shown, code) = json.ended();
    assert_eq!(
        (shown.trim_end(), code),
        (r#"{"path":"/t/x","bytes":1}"#, Some(0))
    );
    let piped = piped.wait_with_output().unwrap();
    assert_eq!(
        (text(&piped.stdout).as_str(), text(&piped.stderr).as_str()),
        ("/t/x\n", "")
    );
}
