//! A bar where a command takes long, and only on a terminal.

use std::process::Stdio;

use super::stub::{HELD, ID, Stub, WORK, WORK_MIB};
use super::terminal::{Terminal, in_shell};
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
    terminal.until("12%  1.00 MiB of 8.00 MiB");
    let shown = terminal.exits(0);
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

/// A terminal that cannot move its cursor shows no bar, so no progress is requested for it. The stub answers both calls after
/// the export has requested progress three times.
#[test]
fn no_figures_are_asked_for_where_no_bar_can_be_shown() {
    let stub = Stub::start();
    let edit = sessionctl(&stub.home(), &["-v", "edit", ID, "--at", "cp.x", "again"]);
    let edit = Terminal::of(80, &in_shell("TERM=dumb \"$0\" \"$@\"", &edit));
    stub.wait_for_calls("conversation/edit", 1);
    Terminal::of(80, &sessionctl(&stub.home(), &["export", ID])).exits(0);
    let shown = edit.exits(0);
    assert!(
        shown.contains("conversation/edit") && !shown.contains("daemon/work"),
        "{shown}"
    );
}

/// A file that is there; the stub does not read it.
const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Each asks how far its own call has come.
#[test]
fn every_command_that_can_take_long_has_a_bar() {
    let of = |method: &str| -> &[&str] {
        match method {
            "conversation/export" => &["export", ID],
            "conversation/import" => &["import", BUNDLE, "--same-folders"],
            "conversation/adopt" => &["adopt", "up-1"],
            "transcript/check" => &["check", "up-1"],
            "conversation/history" => &["history", ID],
            "conversation/checkpoints" => &["checkpoints", ID],
            "transcript/list" => &["transcripts", HELD],
            "conversation/move" => &["mv", ID, "/"],
            "transcript/move" => &["mv", "/no/such/folder", "/"],
            "transcript/undo" => &["mv", "--undo", "x"],
            "transcript/keep" => &["archive", "ls"],
            "transcript/forget" => &["archive", "rm", "up-1", "--yes"],
            "transcript/restore" => &["archive", "restore", "up-1"],
            "conversation/undo" => &["undo", ID],
            "conversation/fork" => &["fork", ID],
            "conversation/edit" => &["edit", ID, "--at", "cp.x", "again"],
            other => panic!("{other}"),
        }
    };
    let waiting = WORK.map(|(method, done)| {
        let stub = Stub::start();
        let terminal = Terminal::of(80, sessionctl(&stub.home(), of(method)).env("PAGER", ""));
        (terminal, stub, method, done)
    });
    for (mut terminal, stub, method, done) in waiting {
        terminal.until(&format!("{done}.00 MiB of {WORK_MIB}.00 MiB"));
        let shown = terminal.exits(0);
        let (_, answer) = shown.rsplit_once("\x1b[2K").unwrap();
        assert!(!answer.contains("MiB"), "{method}: {answer:?}");
        assert_eq!(stub.calls_of(method).len(), 1, "{method}");
    }
}

/// Both are held until they were asked for, so that they are called from a terminal.
#[test]
fn the_least_that_has_to_come_along_is_the_daemons_to_judge() {
    let levels = [None, Some("full"), Some("partial"), Some("text"), Some("none")];
    let waiting = levels.map(|level| {
        let stub = Stub::start();
        let option: &[&str] = match &level {
            Some(level) => &["--min-fidelity", level],
            None => &[],
        };
        let fork = [&["fork", ID][..], option].concat();
        let edit = [&["edit", ID, "--at", "cp.x", "again"][..], option].concat();
        let terminals = [fork, edit].map(|words| Terminal::of(80, &sessionctl(&stub.home(), &words)));
        (level, stub, terminals)
    });
    for (level, stub, terminals) in waiting {
        for terminal in terminals {
            terminal.exits(0);
        }
        for method in ["conversation/fork", "conversation/edit"] {
            let calls = stub.calls_of(method);
            // What is the default is not sent.
            let sent = level.filter(|level| *level != "text");
            assert_eq!(calls[0]["minFidelity"].as_str(), sent, "{method}");
        }
    }
}
