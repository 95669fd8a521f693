//! What `.` means after commands that make a conversation, and after those that only look.

use std::path::Path;

use serde_json::Value;

use super::home::Home;
use super::printed::check_printed;
use super::sessionctl;
use super::terminal::{Terminal, in_shell};

/// The id of the conversation that `.` means in the home's folder.
#[track_caller]
fn here(home: &Home) -> String {
    let shown: Value = serde_json::from_str(&home.said(&["--json", "show", "."])).unwrap();
    shown["conversation"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_branch_is_what_is_used_next() {
    let home = Home::new();
    let parent = home.said(&["new"]);
    home.said(&["send", ".", "one"]);
    let branch = home.said(&["fork", "."]);
    assert_eq!(here(&home), branch);
    let printed: Value = serde_json::from_str(&home.said(&["--json", "fork", &parent])).unwrap();
    assert_eq!(printed["conversation"]["id"], here(&home));
    // In place it is the same conversation.
    home.said(&["fork", &parent, "--in-place"]);
    assert_eq!(here(&home), parent);

    let mut terminal = Terminal::run_plain(&home, 80, &["chat", &parent]).waiting();
    terminal.says("/fork", "a branch of");
    terminal.leave();
    let last = here(&home);
    assert!(![parent, branch].contains(&last), "{last}");
}

/// After the conversation that was used last is deleted, `.` means the newest one of this folder.
#[test]
fn the_newest_of_this_folder_is_meant_after_the_last_was_deleted() {
    let home = Home::new();
    let first = home.said(&["new"]);
    let last = home.said(&["new"]);
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    home.said(&["new", "--cwd", other.to_str().unwrap()]);
    home.said(&["rm", &last]);
    assert_eq!(here(&home), first);
    home.said(&["rm", &first]);
    assert_eq!(home.run(&["show", "."]).status.code(), Some(4));
}

/// The same in another folder.
#[track_caller]
fn there(home: &Home, folder: &Path) -> String {
    let output = home
        .command(&["--json", "show", "."])
        .current_dir(folder)
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    shown["conversation"]["id"].as_str().unwrap().to_owned()
}

/// From wherever it was started.
#[test]
fn a_conversation_is_used_next_in_the_folder_that_it_was_started_for() {
    let home = Home::new();
    let folder = home.path().join("other");
    std::fs::create_dir(&folder).unwrap();
    let other = folder.to_str().unwrap();
    let here_first = home.said(&["new"]);
    for _ in 0..2 {
        let started = home.said(&["new", "--cwd", other]);
        assert_eq!(there(&home, &folder), started);
    }
    assert_eq!(here(&home), here_first);
}

#[test]
fn a_conversation_that_was_moved_back_is_what_is_used_next_again() {
    let home = Home::new();
    let folder = home.path().join("other");
    std::fs::create_dir(&folder).unwrap();
    let (first, last) = (home.said(&["new"]), home.said(&["new"]));
    home.said(&["send", ".", "one"]);
    home.said(&["mv", ".", folder.to_str().unwrap()]);
    home.said(&["undo", &last]);
    assert_eq!(here(&home), last, "not {first}");
}

#[test]
fn an_imported_and_an_adopted_conversation_are_used_next() {
    let (there, home) = (Home::new(), Home::new());
    let id = there.said(&["new"]);
    there.said(&["send", &id, "long ago"]);
    let bundle = there.said(&["export", &id]);
    let other = home.said(&["new"]);
    assert_eq!(home.said(&["import", &bundle, "--cwd", "."]), id);
    assert_eq!(here(&home), id);

    home.said(&["send", &other, "words"]);
    let chain: Value = serde_json::from_str(&home.said(&["--json", "chain", &other])).unwrap();
    home.said(&["rm", &other]);
    assert_eq!(here(&home), id);
    let adopted = home.said(&["adopt", chain["links"][0]["upstreamId"].as_str().unwrap()]);
    assert_eq!(here(&home), adopted);
}

#[test]
fn completion_changes_nothing() {
    let home = Home::new();
    let first = home.said(&["new"]);
    home.said(&["send", &first, "one"]);
    let last = home.said(&["new"]);
    let output = sessionctl(home.path(), &["--", "sessionctl", "fork", &first, "--at", ""])
        .env("COMPLETE", "fish")
        .output()
        .unwrap();
    assert!(super::text(&output.stdout).contains("one"), "{output:?}");
    assert_eq!(here(&home), last);
}

#[test]
fn a_picked_conversation_is_used_next() {
    let home = Home::new();
    let first = home.said(&["new", "--title", "First"]);
    home.said(&["new", "--title", "Last"]);
    let mut terminal = Terminal::run_plain(&home, 80, &["show"]);
    terminal.until("Esc leaves");
    terminal.type_in("first");
    terminal.until("1 of 2");
    terminal.type_in("\r");
    terminal.exits(0);
    assert_eq!(here(&home), first);
}

/// A shell whose folder was deleted or has another name.
#[test]
fn the_folder_is_named_that_has_no_conversation_because_it_is_missing() {
    let home = Home::new();
    home.said(&["new"]);
    let script = "mkdir gone && cd gone && rmdir ../gone && \"$0\" \"$@\"";
    let output = in_shell(script, &home.command(&["show", "."])).output().unwrap();
    check_printed(&["show . in a deleted folder"], &output, 1);
}
