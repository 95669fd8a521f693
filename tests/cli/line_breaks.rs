//! Where lines end on a terminal: between words, and neither within a command nor in the end of a path.

use super::finding::shown;
use super::home::Home;
use super::terminal::Terminal;
use super::text;

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn a_backup_is_listed_with_both_ends_of_its_path() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let listed = home.said(&["archive", "add", &id]);
    let (_, path) = listed.split_once('\t').unwrap();
    let lines = shown(&home, 60, &["archive", "add", &id]);
    assert_eq!(words(&lines[0]), ["SIZE", "FILE"]);
    assert!(lines[1].chars().count() <= 60, "{lines:?}");
    let (begin, end) = words(&lines[1]).pop().unwrap().split_once('…').unwrap();
    assert!(
        path.starts_with(begin) && path.ends_with(end),
        "{lines:?}: {path}"
    );
    assert!(end.len() > 20, "{lines:?}");
}

#[test]
fn a_sentence_is_broken_between_words_and_in_a_pipe_not_at_all() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    for (arguments, code) in [
        (&["show", "no such title"][..], 4),
        (&["check", &id, "--repair"], 0),
        (&["continue", &id], 5),
        (&["fork", &id], 0),
    ] {
        let piped = home.run(arguments);
        let piped = text(&piped.stdout) + &text(&piped.stderr);
        for columns in [60, 80] {
            let seen = Terminal::run_plain(&home, columns, arguments).exits(code);
            let too_long = seen.lines().find(|line| line.chars().count() > columns.into());
            assert_eq!(too_long, None, "{arguments:?}: {seen}");
            // A fork has another id each time.
            if arguments[0] != "fork" {
                assert_eq!(words(&seen), words(&piped), "{arguments:?}");
            }
        }
        let lines = piped.lines().filter(|line| line.len() > 80).count();
        assert!(lines > 0 || arguments[0] != "show", "{piped}");
    }
}

#[test]
fn a_command_is_not_broken() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let short = &id[..8];
    for (arguments, code, command) in [
        (
            &["send", &id, "[[limit 5400]]"][..],
            7,
            format!("sessionctl continue {short} --at-reset"),
        ),
        (
            &["continue", &id, "--at-reset"],
            0,
            format!("sessionctl continue {short} --cancel"),
        ),
    ] {
        let seen = Terminal::run_plain(&home, 50, arguments).exits(code);
        assert!(seen.lines().any(|line| line.contains(&command)), "{seen}");
    }
}

/// A user has to see a command as it is before approving it.
#[test]
fn the_command_of_a_question_keeps_its_own_lines() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let command = format!("echo {}", "many words ".repeat(8).trim());
    let prompt = format!("[[ask Run it?]] [[tool Bash {{\"command\":\"{command}\"}}]]");
    let mut terminal = Terminal::run_plain(&home, 40, &["send", &id, &prompt]);
    let asked = terminal.until("? helps");
    assert!(asked.contains(&command), "{asked}");
    terminal.type_in("n");
    terminal.exits(0);
}

#[test]
fn backups_of_no_conversation_are_listed_with_their_titles() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "The blue heron in the morning"]);
    home.said(&["send", &id, "one"]);
    home.said(&["archive", "add", &id]);
    home.said(&["rm", &id]);
    let lines = shown(&home, 80, &["archive", "ls"]);
    let too_long = lines.iter().find(|line| line.chars().count() > 80);
    assert_eq!(too_long, None, "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("  The blue heron")),
        "{lines:?}"
    );
}
