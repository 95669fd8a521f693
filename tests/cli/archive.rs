//! `archive`: copies of transcripts are made, listed, restored and deleted.

use std::fs;

use serde_json::Value;

use super::home::Home;
use super::printed::commands;

/// A conversation with one turn: its id, and the id of its session.
fn conversation(home: &Home) -> (String, String) {
    let id = home.said(&["new", "--title", "The blue heron"]);
    home.said(&["send", &id, "the blue heron"]);
    let show: Value = serde_json::from_str(&home.said(&["--json", "show", &id])).unwrap();
    let session = show["conversation"]["head"].as_str().unwrap().to_owned();
    (id, session)
}

/// How many sessions have backups, and how many of them no conversation has, as programs are told.
#[track_caller]
fn backups(home: &Home) -> (u64, u64) {
    let listed: Value = serde_json::from_str(&home.said(&["--json", "archive", "ls"])).unwrap();
    let count = |name: &str| listed["total"][name].as_u64().unwrap_or_default();
    (count("sessions"), count("unclaimed"))
}

#[test]
fn a_transcript_is_copied_and_restored() {
    let home = Home::new();
    let (id, _) = conversation(&home);
    let kept = home.said(&["archive", "add", &id]);
    assert!(kept.ends_with(".zst") && kept.contains("\t/"), "{kept}");
    assert_eq!(home.said(&["keep", &id]), kept);
    assert_eq!(backups(&home), (1, 0));

    assert_eq!(home.said(&["archive", "restore", &id]), "");
    home.said(&["close", &id]);
    let listed: Value = serde_json::from_str(&home.said(&["--json", "transcripts"])).unwrap();
    let path = listed["transcripts"][0]["path"].as_str().unwrap().to_owned();
    fs::remove_file(&path).unwrap();
    // It can be read all the same, and nothing is restored for that.
    assert!(home.said(&["history", &id]).contains("heron"));
    assert!(!fs::exists(&path).unwrap());
    assert_eq!(home.said(&["restore", &id]), path);
    assert!(home.said(&["history", &id]).contains("heron"));
    fs::write(&path, "{}\n").unwrap();
    home.printed(&["archive", "restore", &id], 5);
    for command in ["add", "restore"] {
        home.printed(&["archive", command, "nothing"], 4);
    }
}

#[test]
fn a_session_of_no_conversation_is_copied_and_restored_by_its_id() {
    let home = Home::new();
    let (id, session) = conversation(&home);
    home.said(&["archive", "add", &id]);
    home.said(&["rm", &id]);
    let listed: Value = serde_json::from_str(&home.said(&["--json", "transcripts"])).unwrap();
    let path = listed["transcripts"][0]["path"].as_str().unwrap().to_owned();
    home.said(&["archive", "add", &session]);
    fs::remove_file(&path).unwrap();
    assert_eq!(home.said(&["archive", "restore", &session]), path);
    home.printed(&["archive", "restore", "."], 4);
}

#[test]
fn copies_of_no_conversation_are_listed_and_deleted_only_with_yes() {
    let home = Home::new();
    let (id, session) = conversation(&home);
    home.said(&["archive", "add", &id]);
    home.printed(&["archive", "rm", &session, "--yes"], 5);
    assert_eq!(
        home.said(&["archive", "ls"]).lines().count(),
        1,
        "a conversation has it"
    );
    home.said(&["rm", &id]);
    let listed = home.said(&["archive", "ls"]);
    let line = listed.lines().nth(2).unwrap();
    assert!(
        line.starts_with(&session) && line.ends_with("loopback\tThe blue heron"),
        "{listed}"
    );

    let restores = home.printed(&["archive", "ls"], 0);
    home.said_pasted(commands(&restores)[0]);
    for command in [&["archive", "rm", &session][..], &["archive", "prune"]] {
        home.printed(command, 2);
    }
    // Without anything to delete there is no question.
    home.printed(&["archive", "rm", "nothing"], 4);
    assert_eq!(backups(&home), (1, 1), "nothing is deleted");
    assert_eq!(home.said(&["archive", "rm", &session, "--yes"]), "");
    assert_eq!(backups(&home), (0, 0));
    home.shows(&["archive", "ls"]);
    home.printed(&["archive", "rm", &session, "--yes"], 4);
}

#[test]
fn prune_deletes_all_copies_of_no_conversation_and_no_other() {
    let home = Home::new();
    let [(first, _), (second, _), (stays, _)] = [(); 3].map(|()| conversation(&home));
    for id in [&first, &second, &stays] {
        home.said(&["archive", "add", id]);
    }
    for id in [&first, &second] {
        home.said(&["rm", id]);
    }
    home.printed(&["archive", "prune", "--yes"], 0);
    assert_eq!(backups(&home), (1, 0));
    assert_eq!(home.said(&["archive", "prune", "--yes"]), "");
}

/// A repair would lose what the backup has: the check and the repair name the command that brings it back instead.
#[test]
fn the_backup_of_a_damaged_transcript_is_named() {
    let home = Home::new();
    // Only what is copied here, so that no copy of the damaged file comes later.
    home.configure("[keep]\nenabled = false\n");
    let (id, _) = conversation(&home);
    home.said(&["send", &id, "and the grey one"]);
    home.said(&["archive", "add", &id]);
    let listed: Value = serde_json::from_str(&home.said(&["--json", "transcripts"])).unwrap();
    let path = listed["transcripts"][0]["path"].as_str().unwrap().to_owned();
    let whole = fs::read_to_string(&path).unwrap();
    let damaged = whole.replacen("echo: the blue heron", "\0\n", 1);
    assert_ne!(damaged, whole);
    fs::write(&path, &damaged).unwrap();
    // It is open.
    let told = home.printed(&["archive", "restore", &id], 5);
    assert!(commands(&told)[0].starts_with("sessionctl close "), "{told}");
    home.said(&["close", &id]);
    let checked = home.run(&["check", &id]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let found = String::from_utf8(checked.stdout).unwrap();
    let told = home.printed(&["check", &id, "--repair"], 5);
    let command = commands(&told)[0];
    assert_eq!(commands(&found)[0], command);
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    home.said_pasted(command);
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    assert_eq!(home.said(&["check", &id]), "no damage found");
    assert!(home.said(&["history", &id]).contains("echo: the blue heron"));
    home.said(&["check", &id, "--repair"]);
}

/// A transcript without its last turn, as after an older copy was put in its place, is whole. The check names the backup that
/// has the turn, also when a newer backup has a later turn instead. Its command brings the turn back, and keeps the later one
/// in a fork.
#[test]
fn a_backup_with_a_turn_that_the_transcript_lacks_is_named_and_restored() {
    for (is_continued, has_newer_backup) in [(false, false), (true, false), (true, true)] {
        let home = Home::new();
        // Backups are made only by `archive add`.
        home.configure("[keep]\nenabled = false\n");
        let (id, session) = conversation(&home);
        home.said(&["send", &id, "and the grey one"]);
        let listed: Value = serde_json::from_str(&home.said(&["--json", "transcripts"])).unwrap();
        let path = listed["transcripts"][0]["path"].as_str().unwrap().to_owned();
        let older = fs::read_to_string(&path).unwrap();
        home.said(&["send", &id, "and the white one"]);
        let whole = fs::read_to_string(&path).unwrap();
        let backup = home.said(&["archive", "add", &id]);
        let backup = backup.split('\t').next_back().unwrap();
        home.said(&["close", &id]);
        fs::write(&path, older).unwrap();
        if is_continued {
            home.said(&["send", &id, "and the black one"]);
        }
        if has_newer_backup {
            home.said(&["archive", "add", &id]);
        }
        let checked = home.run(&["check", &id]);
        assert_eq!(checked.status.code(), Some(1), "{checked:?}");
        let found = String::from_utf8(checked.stdout).unwrap();
        assert!(found.contains(backup) && found.contains("1 turn"), "{found}");
        let forked = home.said_pasted(commands(&found)[0]);
        assert_eq!(fs::read_to_string(&path).unwrap(), whole, "{session}");
        assert_eq!(home.said(&["check", &id]), "no damage found");
        home.said(&["send", &id, "and the red one"]);
        assert!(home.said(&["history", &id]).contains("echo: and the white one"));
        if is_continued {
            let fork = forked.split_whitespace().next().unwrap();
            assert!(
                home.said(&["history", fork]).contains("echo: and the black one"),
                "{forked}"
            );
        }
    }
}

/// The backup lacks the last turn, so the repair keeps more.
#[test]
fn a_backup_without_the_last_turn_is_no_reason_against_a_repair() {
    let home = Home::new();
    home.configure("[keep]\nenabled = false\n");
    let (id, _) = conversation(&home);
    home.said(&["send", &id, "and the grey one"]);
    home.said(&["archive", "add", &id]);
    home.said(&["send", &id, "and the last one"]);
    home.said(&["close", &id]);
    let listed: Value = serde_json::from_str(&home.said(&["--json", "transcripts"])).unwrap();
    let path = listed["transcripts"][0]["path"].as_str().unwrap().to_owned();
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole.replacen("echo: the blue heron", "\0\n", 1)).unwrap();
    let repaired = home.said(&["check", &id, "--repair"]);
    assert!(repaired.contains("repaired as "), "{repaired}");
    assert!(home.said(&["history", &id]).contains("echo: and the last one"));
}
