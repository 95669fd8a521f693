//! `edit`, `undo` and `fork --at` with a real daemon and the built-in agent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use super::home::Home;
use super::printed::{check_printed, commands};
use super::text;

/// The prompts of the history, as the agent has them.
fn prompts(home: &Home, id: &str) -> Vec<String> {
    let recalled: Vec<Value> = serde_json::from_str(&home.said(&["send", id, "[[recall]]"])).unwrap();
    let users = recalled
        .iter()
        .map(|turn| turn["user"].as_str().unwrap().to_owned());
    users.filter(|prompt| prompt != "[[recall]]").collect()
}

fn begun(home: &Home) -> String {
    let id = home.said(&["new"]);
    for prompt in ["one", "two", "three"] {
        home.said(&["send", &id, prompt]);
    }
    id
}

/// As from a variable that is not set.
#[test]
fn an_empty_turn_or_question_is_a_wrong_call() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    for arguments in [
        &["edit", &id, "--at", ""][..],
        &["edit", &id, "--at", "", "two"],
        &["fork", &id, "--at", ""],
        &["answer", &id, "allow", "--question", ""],
    ] {
        let told = home.printed(arguments, 2);
        assert!(told.contains("an empty value was given"), "{told}");
    }
}

#[test]
fn an_earlier_prompt_is_replaced_and_brought_back() {
    let home = Home::new();
    let id = begun(&home);
    let edit = ["edit", &id, "--at", "2", "deux", "mots"];
    let edited = home.run(&edit);
    assert_eq!(text(&edited.stdout).trim_end(), "echo: deux mots");
    let told = check_printed(&edit, &edited, 0);
    assert_eq!(prompts(&home, &id), ["one", "deux mots"]);
    home.said_pasted(commands(&told)[0]);
    assert_eq!(prompts(&home, &id), ["one", "two", "three"]);
}

/// What was said since is no longer in the conversation, and the printed command brings it back beside it.
#[test]
fn the_turns_that_an_undo_leaves_behind_can_be_had_back() {
    let home = Home::new();
    let id = begun(&home);
    home.said(&["edit", &id, "--at", "2", "deux"]);
    home.said(&["send", &id, "trois"]);
    let undone = home.run(&["undo", &id]);
    let told = check_printed(&["undo", &id], &undone, 0);
    let branch = home.said_pasted(commands(&told)[0]);
    assert_eq!(prompts(&home, &branch), ["one", "deux", "trois"]);
    assert_eq!(prompts(&home, &id), ["one", "two", "three"]);
    assert!(
        text(&undone.stdout).starts_with("Undid the edit with its 2 turns."),
        "{undone:?}"
    );
    // An undo that drops no turn says nothing of one.
    home.said(&["fork", &id, "--in-place", "--at", "1"]);
    let undone = home.run(&["undo", &id]);
    assert_eq!(text(&undone.stderr), "");
    assert!(
        text(&undone.stdout).starts_with("Undid the in-place fork. "),
        "{undone:?}"
    );
    home.said(&["edit", &id, "--at", "2", "deux"]);
    home.said(&["reset", &id]);
    home.said(&["send", &id, "uno"]);
    for change in ["reset with its 1 turn", "edit with its 1 turn"] {
        let told = home.said(&["undo", &id]);
        assert!(told.starts_with(&format!("Undid the {change}. ")), "{told}");
    }
}

#[test]
fn the_last_turn_is_meant_where_none_is_named_and_json_is_the_answer() {
    let home = Home::new();
    let id = begun(&home);
    let lines = home.said(&["edit", &id, "--json", "trois"]);
    let answer: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&answer["dropped"], &answer["fidelity"]),
        (&1.into(), &"full".into())
    );
    assert_eq!(
        (&answer["type"], &answer["turn"]["stopReason"]),
        (&"result".into(), &"end_turn".into())
    );
    let undone: Value = serde_json::from_str(&home.said(&["undo", &id, "--json"])).unwrap();
    assert_eq!(undone["link"]["reason"], "undone");
    assert_eq!(prompts(&home, &id), ["one", "two", "three"]);
}

/// An editor that is a script: it sees the old prompt, and what it leaves is sent.
#[test]
fn without_a_text_the_old_prompt_is_opened_in_an_editor() {
    let home = Home::new();
    let id = begun(&home);
    let editor = home.path().join("an editor");
    let script = |body: &str| {
        std::fs::write(&editor, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let edit = |arguments: &[&str]| {
        let mut command = home.command(&[&["edit", &id][..], arguments].concat());
        command.env("EDITOR", format!("'{}' --wait", editor.display()));
        command.output().unwrap()
    };
    script(r#"printf '%s and more' "$(cat "$2")" > "$2""#);
    let edited = edit(&["--at", "-2"]);
    assert_eq!(
        text(&edited.stdout).trim_end(),
        "echo: two and more",
        "{}",
        text(&edited.stderr)
    );
    assert_eq!(prompts(&home, &id), ["one", "two and more"]);
    for body in ["exit 1", "true", r#": > "$2""#] {
        script(body);
        let edited = edit(&["--at", "1"]);
        check_printed(&["edit with the editor", body], &edited, 1);
    }
    // A lone dash is what was written, and no sign for standard input.
    script(r#"printf -- - > "$2""#);
    let edited = edit(&["--at", "2"]);
    assert_eq!(
        text(&edited.stdout).trim_end(),
        "echo: -",
        "{}",
        text(&edited.stderr)
    );
    home.said(&["undo", &id]);
    // A message names its turn, the reply as well as the prompt.
    let history: Value = serde_json::from_str(&home.said(&["history", &id, "--json"])).unwrap();
    for message in [0, 1] {
        script(r#"printf '%s by message' "$(cat "$2")" > "$2""#);
        let place = history["messages"][message]["id"].as_str().unwrap();
        let edited = edit(&["--at", place]);
        assert_eq!(
            text(&edited.stdout).trim_end(),
            "echo: one by message",
            "{}",
            text(&edited.stderr)
        );
        home.said(&["undo", &id]);
    }
    home.printed(&["edit", &id, "--at", "2", ""], 2);
    let unknown = edit(&["--at", "msg.none.none"]);
    assert_eq!(unknown.status.code(), Some(4), "{}", text(&unknown.stderr));
    let mut command = home.command(&["edit", &id]);
    let nobody = command
        .env_remove("EDITOR")
        .env_remove("VISUAL")
        .output()
        .unwrap();
    check_printed(&["edit without an editor"], &nobody, 2);
    assert_eq!(prompts(&home, &id), ["one", "two and more"]);
}

/// What somebody has written is there still when nothing came of it, and they are told where.
#[test]
fn what_was_written_for_an_edit_that_is_refused_is_kept() {
    let home = Home::new();
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let remove = format!("'{}' rm \"$CONVERSATION\" >&2", env!("CARGO_BIN_EXE_sessionctl"));
    let cases = [
        ("mine, and the editor fails", "exit 1", "", 1),
        // Meanwhile somebody else deletes the conversation.
        ("mine", &remove, "", 4),
        ("mine, for a program", &remove, "--json", 4),
        // The editor takes the name of its file away.
        (
            "mine without a name",
            &format!("{remove}; exec 3<\"$1\"; rm \"$1\""),
            "",
            4,
        ),
    ];
    for (wrote, then, json, code) in cases {
        let id = begun(&home);
        let editor = format!("write() {{ printf '{wrote}' > \"$1\"; {then}; }}; write");
        let arguments = ["edit", &id, "--at", "2", json];
        let arguments: Vec<&str> = arguments.into_iter().filter(|it| !it.is_empty()).collect();
        let edited = home
            .command(&arguments)
            .env("EDITOR", editor)
            .env("TMPDIR", &temporary)
            .env("CONVERSATION", &id)
            .env("TZ", "Asia/Tokyo")
            .output()
            .unwrap();
        let told = text(&edited.stderr);
        assert_eq!(edited.status.code(), Some(code), "{wrote}: {told}");
        if code == 4 {
            // The time of the user's clock, which is nine hours ahead.
            let shown = home.command(&["show", &id]).env("TZ", "UTC").output().unwrap();
            let at = |told: &str| -> jiff::civil::DateTime {
                let (_, at) = told.split_once(" was deleted at ").unwrap();
                at.split_once(';').unwrap().0.replace(' ', "T").parse().unwrap()
            };
            let ahead = at(&told) - at(&text(&shown.stderr));
            assert_eq!(ahead.total(jiff::Unit::Hour).unwrap(), 9.0, "{told}");
        }
        let files: Vec<_> = std::fs::read_dir(&temporary).unwrap().collect();
        assert_eq!(files.len(), 1, "{wrote}: {files:?}");
        let path = files[0].as_ref().unwrap().path();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wrote);
        let kept = format!("what you wrote is in {}", path.display());
        assert!(told.contains(&kept), "{wrote}: {told}");
        std::fs::remove_file(path).unwrap();
    }
    // What was accepted stands in the transcript.
    let id = begun(&home);
    let edited = home
        .command(&["edit", &id])
        .env("EDITOR", "write() { printf taken > \"$1\"; }; write")
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

/// A picture cannot be edited as text, and does not go without a word.
#[test]
fn what_an_old_prompt_has_beside_its_text_is_told() {
    let home = Home::new();
    let id = begun(&home);
    let picture = json!({"type": "image", "mimeType": "image/png", "data": "QUJD"});
    let words = json!({"type": "text", "text": "look"});
    let prompt = json!({"conversationId": id, "prompt": [words, picture, picture]});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "conversation/prompt", "params": prompt});
    let mut socket = UnixStream::connect(home.path().join("run/sessiond.sock")).unwrap();
    writeln!(socket, "{request}").unwrap();
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).unwrap();
    assert!(answer.contains("end_turn"), "{answer}");
    let edit = |at: &str, what: &str| {
        let editor = "more() { printf ' again' >> \"$1\"; }; more";
        let mut command = home.command(&["edit", &id, "--at", at]);
        let edited = command.env("EDITOR", editor).output().unwrap();
        check_printed(&["edit with the editor", what], &edited, 0);
    };
    edit("4", "a prompt with two pictures");
    assert_eq!(prompts(&home, &id), ["one", "two", "three", "look again"]);
    edit("1", "a prompt of text");
}

#[test]
fn a_place_is_a_step_or_an_id() {
    let home = Home::new();
    let id = begun(&home);
    for (at, expected) in [
        ("1", &["one"][..]),
        ("-2", &["one", "two"]),
        ("-1", &["one", "two", "three"]),
    ] {
        let fork = home.said(&["fork", &id, "--at", at]);
        assert_eq!(prompts(&home, &fork), expected, "{at}");
    }
    let history: Value = serde_json::from_str(&home.said(&["history", &id, "--json"])).unwrap();
    let message = history["messages"][1]["id"].as_str().unwrap();
    let fork = home.said(&["fork", &id, "--at", message]);
    assert_eq!(prompts(&home, &fork), ["one"]);
    for (arguments, code) in [
        (&["fork", &id, "--at", "4"][..], 4),
        (&["edit", &id, "--at", "-9", "text"], 4),
        (&["edit", &id, "--at", "0", "text"], 4),
        (&["edit", &id, "--at", "cp.nowhere", "text"], 4),
        (&["fork", &id, "--at", "nowhere"], 4),
        (&["edit", &id, "--at", "1", " "], 2),
        (&["fork", &id, "--min-fidelity", "most"], 2),
        (&["edit", &id, "--min-fidelity", "most", "text"], 2),
        (&["undo", &id], 5),
        (&["undo", "5d0c2a00"], 4),
    ] {
        home.printed(arguments, code);
    }
}

/// The new prompt was taken as the conversation; the hint is the edit that was meant.
#[test]
fn an_edit_without_a_conversation_says_how_it_is_written() {
    let home = Home::new();
    let id = begun(&home);
    for (arguments, expected) in [
        (&["edit", "--at", "2", "deux mots"][..], &["one", "deux mots"][..]),
        (&["edit", "trois", "mots"], &["one", "deux mots", "trois mots"]),
    ] {
        let told = home.printed(arguments, 4);
        home.said_pasted(commands(&told)[0]);
        assert_eq!(prompts(&home, &id), expected, "{told}");
    }
}

/// A path that begins at the folder of the one who types it.
#[test]
fn a_branch_may_work_in_another_folder() {
    let home = Home::new();
    let id = begun(&home);
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.canonicalize().unwrap();
    let fork = ["fork", &id, "--at", "2", "--cwd", "./other"];
    let forked = home.run(&fork);
    check_printed(&fork, &forked, 0);
    let fork = text(&forked.stdout).trim_end().to_owned();
    let shown: Value = serde_json::from_str(&home.said(&["show", &fork, "--json"])).unwrap();
    assert_eq!(shown["conversation"]["cwd"], other.to_str().unwrap());
    assert_eq!(prompts(&home, &fork), ["one", "two"]);
    let shown: Value = serde_json::from_str(&home.said(&["show", &id, "--json"])).unwrap();
    assert_ne!(shown["conversation"]["cwd"], other.to_str().unwrap());
    let answer = home.said(&["fork", &id, "--cwd", "other", "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["via"], "native");
    for json in [&[][..], &["--json"]] {
        let told = home.printed(&[&["fork", &id, "--cwd", "nowhere"][..], json].concat(), 1);
        let path = home.path().join("nowhere");
        assert!(told.contains(path.to_str().unwrap()), "{told}");
    }
}

/// Of a conversation whose own folder is gone it says which option helps.
#[test]
fn a_fork_whose_folder_is_gone_is_told_how_it_can_be_made() {
    let home = Home::new();
    let gone = home.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let id = home.said(&["new", "--cwd", gone.to_str().unwrap()]);
    home.said(&["send", &id, "one"]);
    home.said(&["close", &id]);
    std::fs::remove_dir(&gone).unwrap();
    home.printed(&["fork", &id], 1);
    let fork = home.said(&["fork", &id, "--cwd", "."]);
    assert_eq!(prompts(&home, &fork), ["one"]);
}

/// Turns that were acknowledged and that the transcript lacks are no secret: where all was asked for, no
/// branch is made.
#[test]
fn a_branch_that_would_have_less_than_was_asked_for_is_not_made() {
    let home = Home::new();
    let id = begun(&home);
    home.said(&["close", &id]);
    let kept: Value = serde_json::from_str(&home.said(&["transcripts", "--json"])).unwrap();
    let path = kept["transcripts"][0]["path"].as_str().unwrap();
    let whole = std::fs::read_to_string(path).unwrap();
    let third = whole.find("\"three\"").unwrap();
    let end = whole[..third].rfind('\n').unwrap() + 1;
    std::fs::write(path, &whole[..end]).unwrap();
    home.printed(&["fork", &id, "--min-fidelity", "full"], 6);
    home.printed(&["fork", &id, "--min-fidelity", "partial"], 0);
}

/// The agent has deleted the transcript: what was said is read from the kept copy, and steps count in it.
#[test]
fn a_step_counts_in_what_is_kept_of_a_transcript_that_is_gone() {
    let home = Home::new();
    let id = begun(&home);
    home.said(&["keep", &id]);
    home.said(&["close", &id]);
    let projects = home.path().join("data/loopback/projects");
    std::fs::remove_dir_all(&projects).unwrap();
    for (words, said) in [
        (&["history", &id][..], "echo: two"),
        (&["checkpoints", &id], "\n2\t"),
        (&["check", &id], "no damage found"),
        (&["export", &id, "-o", "-"], "echo: two"),
        (&["export", &id], ".session-bundle"),
    ] {
        let output = home.run(words);
        let told = text(&output.stdout);
        assert!(told.contains(said), "{words:?}: {output:?}");
        check_printed(words, &output, 0);
        let is_json = words.contains(&"-");
        assert_eq!(told.contains("\"kept\""), is_json, "{words:?}: {output:?}");
    }
    assert!(!projects.exists());
    let edited = home.run(&["edit", &id, "--at", "2", "deux"]);
    assert_eq!(
        text(&edited.stdout).trim_end(),
        "echo: deux",
        "{}",
        text(&edited.stderr)
    );
    assert_eq!(prompts(&home, &id), ["one", "deux"]);
}

/// As for `send`: without a terminal a question is left open, refused, or left to another client.
#[test]
fn a_question_of_an_edited_turn_is_handled_as_asked() {
    let home = Home::new();
    let prompt = "[[ask Really?]] [[say Done it]]";
    for (handling, code, answers) in [
        (&[][..], 8, None),
        (&["--on-question", "leave"], 8, None),
        (&["--on-question", "deny"], 0, None),
        (&["--on-question", "wait"], 0, Some("allow")),
    ] {
        let id = home.said(&["new"]);
        home.said(&["send", &id, "one"]);
        let edit = [&["edit", &id, "--at", "1"][..], handling, &[prompt]].concat();
        let mut child = home
            .command(&edit)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(answer) = answers {
            let mut told = BufReader::new(child.stderr.as_mut().unwrap()).lines();
            let how = told.find(|line| line.as_ref().unwrap().contains("answer it"));
            assert!(how.is_some(), "{handling:?}");
            home.said(&["answer", &id, answer]);
        }
        let output = child.wait_with_output().unwrap();
        if answers.is_none() {
            check_printed(&edit, &output, code);
        }
        assert_eq!(output.status.code(), Some(code), "{handling:?}: {output:?}");
        let is_allowed = answers.is_some();
        assert_eq!(text(&output.stdout).contains("Done it"), is_allowed, "{output:?}");
        let open = home.shown(&id)["interrupts"].as_array().map_or(0, Vec::len);
        assert_eq!(open, usize::from(code == 8), "{handling:?}");
    }
}

/// The editor has the user's own words.
#[test]
fn the_file_of_an_edited_prompt_stays_attached() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let file = home.path().join("notes.md");
    std::fs::write(&file, "the secret word\n").unwrap();
    home.said(&["send", &id, "Look", "--file", file.to_str().unwrap()]);
    let mut edit = home.command(&["edit", &id]);
    edit.env(
        "EDITOR",
        r#"edit() { cp "$1" seen; echo ' again' >> "$1"; }; edit"#,
    );
    let output = edit.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let seen = std::fs::read_to_string(home.path().join("seen")).unwrap();
    assert_eq!(seen, "Look");
    let history = home.said(&["history", &id]);
    let name = file.canonicalize().unwrap();
    assert!(
        history.starts_with(&format!("> Look again\n> @{}\n", name.display())),
        "{history}"
    );
    assert!(home.said(&["history", &id, "--json"]).contains("the secret word"));
}
