//! Commands that delete ask at a terminal, and elsewhere need `--yes` if what they do cannot be taken back.

use super::home::Home;
use super::printed::check_seen;
use super::terminal::Terminal;

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

/// No command of these succeeds in silence.
#[test]
fn what_was_done_is_said_unless_quiet() {
    let home = Home::new();
    let id = conversation(&home);
    for command in [
        &["close", &id][..],
        &["set", &id, "title=Grey heron"],
        &["archive", "add", &id],
        &["archive", "restore", &id],
        &["archive", "prune"],
        &["fork", &id, "--in-place"],
        &["mv", &id, "/"],
        &["reset", &id],
        &["rm", &id],
        &["start"],
        &["stop"],
    ] {
        let command = [command, &["--yes"]].concat();
        let shown = Terminal::run_plain(&home, 200, &command).exits(0);
        assert_ne!(shown.trim(), "", "{command:?}");
    }
    let output = home.run(&["start", "--quiet"]);
    super::check(&output, 0, "");
    assert_eq!(super::text(&output.stderr), "");
}
