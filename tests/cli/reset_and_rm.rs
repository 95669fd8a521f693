//! `reset` and `rm` say what they did, and which command takes it back.

use super::home::Home;
use super::text;

/// What a command says on standard error; on standard output it prints nothing.
#[track_caller]
fn said(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(arguments);
    super::check(&output, 0, "");
    text(&output.stderr).trim_end().to_owned()
}

/// The command behind the last colon.
fn command(said: &str) -> Vec<&str> {
    let (_, command) = said.rsplit_once(": sessionctl ").unwrap();
    command.split(' ').collect()
}

#[test]
fn a_reset_is_undone_by_the_command_that_it_prints() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Blue heron"]);
    let never_prompted = said(&home, &["reset", &id]);
    assert!(!never_prompted.contains("sessionctl"), "{never_prompted}");
    home.said(&["send", &id, "one"]);
    let reset = said(&home, &["reset", &id]);
    assert!(
        reset.starts_with(&format!("Reset {} (Blue heron)", &id[..8])),
        "{reset}"
    );
    home.said(&command(&reset));
    let recalled = home.said(&["send", &id, "[[recall]]"]);
    assert!(recalled.contains("\"one\""), "{recalled}");
    // Programs read the answer, and nothing else.
    let output = home.run(&["reset", &id, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn what_was_deleted_is_adopted_by_the_command_that_is_printed() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Blue heron"]);
    home.said(&["send", &id, "one"]);
    let deleted = said(&home, &["rm", &id]);
    assert!(
        deleted.starts_with(&format!("Deleted {} (Blue heron)", &id[..8])),
        "{deleted}"
    );
    let adopted = home.said(&command(&deleted));
    let recalled = home.said(&["send", &adopted, "[[recall]]"]);
    assert!(recalled.contains("\"one\""), "{recalled}");

    // Nothing is left to continue from.
    let deleted = said(&home, &["rm", &adopted, "--transcripts", "--yes"]);
    assert!(
        deleted.contains("and its transcripts") && !deleted.contains("sessionctl"),
        "{deleted}"
    );
    let id = home.said(&["new"]);
    assert_eq!(said(&home, &["rm", &id]), format!("Deleted {}.", &id[..8]));
}
