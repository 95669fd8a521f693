//! `mv` with a real daemon and the built-in agent: one conversation, and a project that was renamed.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::home::Home;
use super::printed::{check_printed, commands};
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
    let planned = home.said(&["mv", &typed, &into, "--dry-run"]);
    assert!(
        planned.contains("transcript ") && planned.contains("conversation ") && !planned.contains("moved"),
        "{planned}"
    );
    let moved = home.run(&["mv", &typed, &into]);
    assert_eq!(text(&moved.stdout).trim_end(), "moved 1 conversation and 1 file");
    let told = check_printed(&["mv", &typed, &into], &moved, 0);
    let undo = commands(&told)[0];
    let id_of_move = undo.rsplit(' ').next().unwrap();
    let listed = home.said(&["mv", "--list"]);
    assert!(listed.starts_with(id_of_move), "{listed}");
    let folders = format!("{} -> {into}", old.display());
    assert!(
        listed.contains("1 conversation, 1 file") && listed.contains(&folders),
        "{listed}"
    );
    let told: Value = serde_json::from_str(&home.said(&["mv", "--list", "--json"])).unwrap();
    assert_eq!(told["moves"][0]["undoId"], id_of_move);
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], into);
    assert!(home.said(&["mv", &typed, &into]).starts_with("nothing ran in "));

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

#[test]
fn a_move_that_is_undone_says_which_folder_it_is_back_in() {
    let home = Home::new();
    let (id, old, new) = begun(&home);
    fs::create_dir(&new).unwrap();
    home.said(&["close", &id]);
    let told = home.printed(&["mv", &id, new.to_str().unwrap()], 0);
    assert!(told.contains(&format!("sessionctl undo {id}\n")), "{told}");
    assert_eq!(home.said(&["undo", &id]), format!("back in {}", old.display()));
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
        (&["mv", &id, "./nowhere"], 1),
        (&["mv", "old", &folder], 4),
        (&["mv", "--undo", "x"], 4),
    ] {
        home.printed(arguments, code);
    }
}
