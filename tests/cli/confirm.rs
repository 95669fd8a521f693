//! Commands that delete ask at a terminal, and elsewhere need `--yes` if what they do cannot be taken back.

use super::continuing::begin;
use super::home::Home;
use super::printed::check_seen;
use super::terminal::Terminal;
use crate::daemon::error_words::plain;

/// A conversation with one turn.
fn conversation(home: &Home) -> String {
    let id = home.said(&["new", "--title", "Blue heron"]);
    home.said(&["send", &id, "one"]);
    id
}

/// Checks what a command shows at a terminal on which this is answered; its exit code.
fn answered(home: &Home, arguments: &[&str], answer: &str) -> Option<i32> {
    let mut terminal = Terminal::run_plain(home, 200, arguments);
    terminal.until("? [y/N] ");
    terminal.type_in(answer);
    let (seen, code) = terminal.seen();
    let options = arguments.iter().filter(|argument| argument.starts_with("--"));
    let command: Vec<&str> = arguments[..1].iter().chain(options).copied().collect();
    check_seen(
        &format!("{} answered {:?}", command.join(" "), answer.trim_end()),
        &seen,
    );
    code
}

#[test]
fn a_terminal_is_asked_first_and_no_is_the_default() {
    let home = Home::new();
    let id = conversation(&home);
    for command in [&["reset", &id][..], &["rm", &id], &["rm", &id, "--transcripts"]] {
        for answer in ["n\r", "\r", "what\r", "\x04"] {
            assert_eq!(answered(&home, command, answer), Some(1), "{command:?}");
        }
        assert!(home.said(&["history", &id]).contains("one"));
    }
    assert_eq!(answered(&home, &["reset", &id], "y\r"), Some(0));
    home.said(&["undo", &id]);
    assert_eq!(answered(&home, &["rm", &id, "--transcripts"], "YES\r"), Some(0));
    assert_eq!(home.run(&["show", &id]).status.code(), Some(4));
}

/// Backups that belong to no conversation are deleted for good, so that a terminal is asked.
#[test]
fn a_terminal_is_asked_before_backups_are_deleted() {
    let home = Home::new();
    let orphan = || {
        let id = conversation(&home);
        home.said(&["archive", "add", &id]);
        let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
        home.said(&["rm", &id]);
        session
    };
    let sessions = [orphan(), orphan()];
    let kept = || {
        home.said(&["archive", "ls", "--json"])
            .matches("\"upstreamId\"")
            .count()
    };
    for command in [&["archive", "rm", &sessions[0]][..], &["archive", "prune"]] {
        assert_eq!(answered(&home, command, "n\r"), Some(1), "{command:?}");
    }
    assert_eq!(kept(), 2);
    assert_eq!(answered(&home, &["archive", "rm", &sessions[0]], "y\r"), Some(0));
    assert_eq!(kept(), 1);
    assert_eq!(answered(&home, &["archive", "prune"], "y\r"), Some(0));
    assert_eq!(kept(), 0);
}

/// A command that will be refused does not ask first.
#[test]
fn while_a_turn_runs_nothing_is_asked() {
    let home = Home::new();
    let id = conversation(&home);
    let mut turn = begin(&home, &["send", &id, "[[hang]]"]);
    home.once(&id, |shown| shown["state"] == "prompting");
    for command in [&["reset", &id][..], &["rm", &id], &["rm", &id, "--transcripts"]] {
        let shown = Terminal::run_plain(&home, 200, command).exits(5);
        assert!(!shown.contains("[y/N]"), "{shown}");
        assert!(
            shown.contains(&format!("sessionctl cancel {}", &id[..8])),
            "{shown}"
        );
    }
    home.said(&["cancel", &id]);
    turn.wait().unwrap();
}

#[test]
fn yes_skips_the_question_at_a_terminal() {
    let home = Home::new();
    let id = conversation(&home);
    for command in [&["reset", &id, "--yes"][..], &["-y", "rm", &id, "--transcripts"]] {
        let shown = Terminal::run_plain(&home, 200, command).exits(0);
        assert!(!shown.contains("[y/N]"), "{shown}");
    }
}

/// Nobody can be asked: what can be taken back is done, what cannot needs `--yes`.
#[test]
fn without_a_terminal_only_what_can_be_taken_back_is_done() {
    let home = Home::new();
    let id = conversation(&home);
    assert_eq!(home.run(&["rm", &id, "--transcripts"]).status.code(), Some(2));
    assert!(home.said(&["history", &id]).contains("one"));
    home.said(&["reset", &id]);
    home.said(&["undo", &id]);
    home.said(&["rm", &id, "--transcripts", "--yes"]);
}

/// No command succeeds in silence at a terminal, and what each says is compared.
#[test]
fn what_was_done_is_said_unless_quiet() {
    let home = Home::new();
    let id = conversation(&home);
    let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
    let bundle = home.path().join("bundle");
    let bundle = bundle.to_str().unwrap();
    let here = home.path().to_str().unwrap();
    for command in [
        &["status"][..],
        &["close", &id],
        // The session is not open.
        &["close", &id],
        &["resume", &id],
        &["cancel", &id],
        &["set", &id, "title=Grey heron"],
        &["rename", &id, "White heron"],
        // As many days and hours away whatever the time is.
        &["continue", &id, "--at", "+9001h30m", "--text", "Go"],
        &["continue", &id, "--cancel"],
        &["archive", "add", &id],
        &["keep", &id],
        &["archive", "restore", &id],
        &["restore", &id],
        &["archive", "prune"],
        &["check", &id],
        &["export", &id, "-o", bundle],
        &["fork", &id, "--in-place"],
        &["undo", &id],
        &["mv", &id, "/"],
        &["undo", &id],
        &["reset", &id],
        &["undo", &id],
        &["rm", &id],
        &["archive", "rm", &session],
        &["adopt", &session],
        &["import", bundle, "--cwd", here, "--new-ids"],
        &["start"],
        &["stop"],
    ] {
        let shown = said_at_a_terminal(&home, command);
        assert_ne!(shown.trim(), "", "{command:?}");
    }
    let output = home.run(&["start", "--quiet"]);
    super::check(&output, 0, "");
    assert_eq!(super::text(&output.stderr), "");
}

/// The same of a turn that waits for an answer, and of one that is stopped.
#[test]
fn what_became_of_a_turn_is_said() {
    let home = Home::new();
    let id = conversation(&home);
    for command in [&["answer", &id, "allow"][..], &["cancel", &id]] {
        assert_eq!(home.run(&["send", &id, "[[ask Really?]]"]).status.code(), Some(8));
        said_at_a_terminal(&home, command);
        home.once(&id, |shown| shown["state"] == "idle");
    }
}

/// Checks what a person sees of a command that works; the folders, sizes and process ids do not matter.
#[track_caller]
fn said_at_a_terminal(home: &Home, command: &[&str]) -> String {
    let (seen, code) = Terminal::run_plain(home, 200, &[command, &["--yes"]].concat()).seen();
    assert_eq!(code, Some(0), "{command:?}: {seen}");
    check_seen(&plain(&format!("{} that works", command.join(" "))), &seen);
    seen
}
