//! `mv` with a real daemon and the built-in agent: one conversation, and a project that was renamed.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::home::Home;
use super::printed::{check_printed, check_shown, commands};
use super::text;

/// A conversation of one turn in a folder, and where that is to go.
fn begun(home: &Home) -> (String, PathBuf, PathBuf) {
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    fs::create_dir(&old).unwrap();
    let id = home.said(&["new", "--cwd", old.to_str().unwrap()]);
    home.said(&["send", &id, "one"]);
    (id, old, new)
}

#[test]
fn a_renamed_project_goes_along_by_one_command_and_comes_back_by_another() {
    let home = Home::new();
    let (id, old, new) = begun(&home);
    home.said(&["close", &id]);
    fs::rename(&old, &new).unwrap();
    // As one would type them, with a slash that tells a folder from a conversation.
    let (typed, into) = (format!("{}/", old.display()), new.display().to_string());
    home.shows(&["mv", &typed, &into, "--dry-run"]);
    let moved = home.run(&["mv", &typed, &into]);
    check_shown(&["mv", &typed, &into], &moved, 0);
    let told = check_printed(&["mv", &typed, &into], &moved, 0);
    let undo = commands(&told)[0];
    let id_of_move = undo.rsplit(' ').next().unwrap();
    let listed = home.shows(&["mv", "--list"]);
    assert!(listed.starts_with(id_of_move), "{listed}");
    assert!(
        listed.contains(old.to_str().unwrap()) && listed.contains(&into),
        "{listed}"
    );
    // On the clock of this machine.
    let utc = home.command(&["mv", "--list"]).env("TZ", "UTC").output().unwrap();
    let there = home
        .command(&["mv", "--list"])
        .env("TZ", "Asia/Tokyo")
        .output()
        .unwrap();
    assert_ne!(text(&utc.stdout), text(&there.stdout));
    let told: Value = serde_json::from_str(&home.said(&["mv", "--list", "--json"])).unwrap();
    assert_eq!(told["moves"][0]["undoId"], id_of_move);
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], into);
    assert_eq!(home.run(&["mv", &typed, &into]).status.code(), Some(4));

    // The conversation's own undo names the command that takes back the whole move.
    assert_eq!(commands(&home.printed(&["undo", &id], 5)), [undo]);
    fs::rename(&new, &old).unwrap();
    let undone: Value = serde_json::from_str(&home.said_pasted(&format!("{undo} --json"))).unwrap();
    assert_eq!((&undone["moved"], undone.get("undoId")), (&1.into(), None));
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], old.to_str().unwrap());
    let none = home.run(&["mv", "--list"]);
    assert!(none.stdout.is_empty());
    check_printed(&["mv", "--list"], &none, 0);
}

#[test]
fn a_session_without_a_transcript_is_said_to_come_later() {
    let home = Home::new();
    let (id, _, new) = begun(&home);
    fs::create_dir(&new).unwrap();
    home.said(&["keep", &id]);
    home.said(&["close", &id]);
    fs::remove_dir_all(home.path().join("data/loopback/projects")).unwrap();
    home.printed(&["mv", &id, new.to_str().unwrap()], 0);
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], new.to_str().unwrap());
}

/// It has no session yet, so the move is not part of its history, and `undo` would not take it back.
#[test]
fn the_move_of_a_conversation_without_a_prompt_names_the_move_back() {
    let home = Home::new();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    fs::create_dir(&old).unwrap();
    fs::create_dir(&new).unwrap();
    let id = home.said(&["new", "--cwd", old.to_str().unwrap()]);
    let told = home.run(&["mv", &id, new.to_str().unwrap()]);
    let told = check_printed(&["mv", &id, "a folder"], &told, 0);
    home.said_pasted(commands(&told)[0]);
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], old.to_str().unwrap());
}

#[test]
fn a_move_that_is_undone_says_which_folder_it_is_back_in() {
    let home = Home::new();
    let (id, old, new) = begun(&home);
    fs::create_dir(&new).unwrap();
    home.said(&["close", &id]);
    let told = home.printed(&["mv", &id, new.to_str().unwrap()], 0);
    assert!(
        commands(&told).contains(&&*format!("sessionctl undo {}", &id[..8])),
        "{told}"
    );
    assert!(home.shows(&["undo", &id]).contains(old.to_str().unwrap()));
}

/// Claude Code's list of folders is its own. A conversation of another agent does not need it.
#[test]
fn a_move_says_that_claude_asks_about_the_new_folder() {
    let home = Home::new();
    // Any program that is there.
    let program = env!("CARGO_BIN_EXE_sessionctl");
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.claude]\ncommand = \"{program}\"\n"
    ));
    let (id, old, new) = begun(&home);
    fs::rename(&old, &new).unwrap();
    let moved = home.run(&["mv", old.to_str().unwrap(), new.to_str().unwrap()]);
    check_printed(&["mv of a folder, with Claude Code"], &moved, 0);
    fs::create_dir(&old).unwrap();
    let moved = home.run(&["mv", &id, old.to_str().unwrap()]);
    check_printed(
        &["mv of another agent's conversation, with Claude Code"],
        &moved,
        0,
    );
}

/// The dot names another conversation once the one that it named has left the folder.
#[test]
fn a_move_out_of_this_folder_says_what_the_dot_means_then() {
    let home = Home::new();
    let folder = home.path().join("elsewhere");
    fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let first = home.said(&["new", "--title", "First"]);
    home.said(&["new", "--title", "Second"]);
    for (left, what) in [(Some(&first), "one is left"), (None, "none is left")] {
        let output = home.run(&["mv", ".", folder]);
        let told = check_printed(&[&format!("mv . of which {what}")], &output, 0);
        let dot = told.lines().last().unwrap();
        assert_eq!(dot.contains(&first[..8]), left.is_some(), "{told}");
    }
}

#[test]
fn what_cannot_be_meant_says_what_to_do() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let folder = home.path().to_str().unwrap().to_owned();
    for (arguments, code) in [
        (&["mv"][..], 2),
        (&["mv", &id], 2),
        (&["mv", "--undo", "x", &id], 2),
        (&["mv", "--list", &id], 2),
        (&["mv", "./none", "./nowhere"], 1),
        (&["mv", "/nope/x", "/tmp"], 4),
        (&["mv", &id, "./nowhere"], 1),
        (&["mv", "old", &folder], 4),
        (&["mv", "--undo", "x"], 4),
    ] {
        home.printed(arguments, code);
    }
}

/// An undo of the folder's move needs the old folder.
#[test]
fn the_undo_of_a_moved_folder_is_named_with_the_rename() {
    let home = Home::new();
    let (id, old, new) = begun(&home);
    fs::rename(&old, &new).unwrap();
    home.said(&["mv", old.to_str().unwrap(), new.to_str().unwrap()]);
    let told = home.printed(&["undo", &id], 5);
    let command = told.split("undo the move of the folder: ").nth(1).unwrap();
    let again = home.printed(&["mv", "--undo", command.trim().rsplit(' ').next().unwrap()], 1);
    assert!(again.contains(command.trim()), "{again}");
    home.said_pasted(command.trim());
    assert_eq!(home.shown(&id)["cwd"], old.to_str().unwrap());
}
