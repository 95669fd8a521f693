//! `reset` and `rm` say what they did, and which command takes it back.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::text;

/// What a command prints on standard error, where `what` names the case; on standard output it prints nothing.
#[track_caller]
fn printed(home: &Home, arguments: &[&str], what: &str) -> String {
    let output = home.run(arguments);
    super::check(&output, 0, "");
    check_printed(&[&arguments.join(" "), what], &output, 0)
}

#[test]
fn a_reset_is_undone_by_the_command_that_it_prints() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Blue heron"]);
    let never_prompted = printed(&home, &["reset", &id], "before the first prompt");
    assert_eq!(commands(&never_prompted), [""; 0]);
    home.said(&["send", &id, "one"]);
    let reset = printed(&home, &["reset", &id], "with a turn");
    home.said_pasted(commands(&reset)[0]);
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
    let deleted = printed(&home, &["rm", &id], "with a turn");
    let adopted = home.said_pasted(commands(&deleted)[0]);
    let recalled = home.said(&["send", &adopted, "[[recall]]"]);
    assert!(recalled.contains("\"one\""), "{recalled}");

    // Nothing is left to continue from.
    let deleted = printed(&home, &["rm", &adopted, "--transcripts", "--yes"], "with a turn");
    assert_eq!(commands(&deleted), [""; 0]);
    let id = home.said(&["new"]);
    printed(&home, &["rm", &id], "before the first prompt");
}

/// The transcripts that a reset left are named, and so is how to come back to them.
#[test]
fn what_was_deleted_after_a_reset_is_adopted_too() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Blue heron"]);
    home.said(&["send", &id, "one"]);
    home.said(&["reset", &id]);
    let deleted = printed(&home, &["rm", &id], "after a reset");
    let adopted = home.said_pasted(commands(&deleted)[0]);
    let recalled = home.said(&["send", &adopted, "[[recall]]"]);
    assert!(recalled.contains("\"one\""), "{recalled}");

    // Two deleted conversations had this session: the one that was deleted last is named.
    let session = home.shown(&adopted)["head"].as_str().unwrap().to_owned();
    home.said(&["rm", &adopted]);
    let gone = home.printed(&["show", &session], 4);
    assert!(gone.contains(&adopted), "{gone}");
}

/// Each session with a history of its own can be continued from.
#[test]
fn a_deletion_names_each_session_that_no_later_one_contains() {
    let home = Home::new();
    for clears in [false, true] {
        let id = home.said(&["new", "--title", "Blue heron"]);
        home.said(&["send", &id, "one"]);
        if clears {
            home.said(&["send", &id, "[[clear]]"]);
            home.said(&["send", &id, "two"]);
        } else {
            home.said(&["reset", &id]);
            home.said(&["send", &id, "two"]);
            home.said(&["undo", &id]);
        }
        let deleted = printed(
            &home,
            &["rm", &id],
            if clears {
                "after a clear"
            } else {
                "after an undone reset"
            },
        );
        let adopting = commands(&deleted);
        assert_eq!(adopting.len(), 2, "{deleted}");
        let recalled = adopting.iter().map(|adopt| {
            let adopted = home.said_pasted(adopt);
            home.said(&["send", &adopted, "[[recall]]"])
        });
        let recalled: Vec<String> = recalled.collect();
        for said in ["\"one\"", "\"two\""] {
            let having = recalled.iter().filter(|recalled| recalled.contains(said));
            assert_eq!(having.count(), 1, "{said}: {recalled:?}");
        }
    }
}

/// A fork has the history of its source before its first prompt, in a transcript of its own if the agent has written one.
#[test]
fn a_fork_that_was_never_prompted_comes_back_as_far_as_it_can() {
    let home = Home::new();
    let source = home.said(&["new", "--title", "Blue heron"]);
    home.said(&["send", &source, "one"]);
    home.said(&["send", &source, "two"]);
    let fork = || home.said(&["fork", &source, "--at", "1"]);

    let id = fork();
    let deleted = printed(&home, &["rm", &id], "of a fork before its first prompt");
    let adopted = home.said_pasted(commands(&deleted)[0]);
    let recalled = home.said(&["send", &adopted, "[[recall]]"]);
    assert!(
        recalled.contains("\"one\"") && !recalled.contains("\"two\""),
        "{recalled}"
    );

    let without_transcript = || {
        let id = fork();
        let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
        let listed: Value = serde_json::from_str(&home.said(&["transcripts", &session, "--json"])).unwrap();
        std::fs::remove_file(listed["transcripts"][0]["path"].as_str().unwrap()).unwrap();
        id
    };
    let id = without_transcript();
    let deleted = printed(&home, &["rm", &id], "of a fork without a transcript");
    let again = home.said_pasted(commands(&deleted)[0]);
    assert_eq!(home.said(&["checkpoints", &again]).lines().count(), 1);

    let id = without_transcript();
    home.said(&["rm", &source]);
    let deleted = printed(
        &home,
        &["rm", &id],
        "of a fork without a transcript and without a source",
    );
    assert_eq!(commands(&deleted), [""; 0]);
}

/// Where the transcript is missing, blank or cut off, the backup is named if it has more, and never what cannot be adopted.
#[test]
fn what_only_a_backup_has_is_restored_and_adopted_by_the_command_that_is_printed() {
    let lost = |home: &Home, keeps: bool, damage: fn(&Path)| {
        let id = home.said(&["new", "--title", "Blue heron"]);
        home.said(&["send", &id, "one"]);
        home.said(&["send", &id, "two"]);
        home.said(&["close", &id]);
        let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
        let listed: Value = serde_json::from_str(&home.said(&["transcripts", &session, "--json"])).unwrap();
        let path = PathBuf::from(listed["transcripts"][0]["path"].as_str().unwrap());
        // Compressed, so that the damage is not the backup's too.
        if keeps {
            home.said(&["archive", "add", &id]);
        }
        damage(&path);
        (id, path)
    };
    let remove: fn(&Path) = |path| fs::remove_file(path).unwrap();
    let blank: fn(&Path) = |path| fs::write(path, "\0\0\0\0").unwrap();
    let cut: fn(&Path) = |path| {
        let text = fs::read_to_string(path).unwrap();
        let second = text.find("two").unwrap();
        let line = text[..second].rfind('\n').unwrap();
        fs::write(path, &text[..=line]).unwrap();
    };
    let home = Home::new();
    for (damage, what) in [
        (remove, "with a backup of its transcript"),
        (blank, "with a backup of its blank transcript"),
        (cut, "with a backup of its cut-off transcript"),
    ] {
        let (id, path) = lost(&home, true, damage);
        let deleted = printed(&home, &["rm", &id], what);
        let [both, adopt] = commands(&deleted)[..] else {
            panic!("{deleted}")
        };
        let (restore, _) = both.split_once(" && ").unwrap();
        // It is in the way of the backup, and a refusal to restore says so.
        if what.contains("cut-off") {
            home.printed(
                &["archive", "restore", path.file_stem().unwrap().to_str().unwrap()],
                5,
            );
            fs::remove_file(&path).unwrap();
        }
        home.said_pasted(restore);
        let adopted = home.said_pasted(adopt);
        let recalled = home.said(&["send", &adopted, "[[recall]]"]);
        assert!(
            recalled.contains("\"one\"") && recalled.contains("\"two\""),
            "{recalled}"
        );
    }
    let home = Home::new();
    home.configure("[keep]\nenabled = false\n");
    for (damage, what) in [
        (remove, "without its transcript and backup"),
        (blank, "with a blank transcript and no backup"),
    ] {
        let (id, _) = lost(&home, false, damage);
        let deleted = printed(&home, &["rm", &id], what);
        assert_eq!(commands(&deleted), [""; 0]);
    }
}
