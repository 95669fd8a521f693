//! What `fork` says of the branch that it made.

use super::home::Home;
use super::printed::commands;
use super::text;

/// A turn without an answer is one too.
#[test]
fn a_fork_names_the_turns_that_it_was_asked_for() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    assert_ne!(home.run(&["send", &id, "[[crash]]"]).status.code(), Some(0));
    let forked = home.run(&["fork", &id, "--at", "2"]);
    let told = text(&forked.stderr);
    assert!(told.contains("with turns 1 to 2"), "{told}");
}

/// A fork in place keeps a text that is scheduled for later, and names the command that cancels it.
#[test]
fn a_fork_in_place_tells_that_a_text_is_scheduled() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    home.said(&["continue", &id, "--at", "+2h", "--text", "later"]);
    let forked = home.run(&["fork", &id, "--at", "1", "--in-place"]);
    let told = text(&forked.stderr);
    let cancel = *commands(&told).last().unwrap();
    home.said_pasted(cancel);
    assert!(home.shown(&id)["continuation"].is_null(), "{told}");
}
