//! Hints that name the next command: after a turn was cut short, in a renamed folder, and for an invalid argument.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::io::Errno;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::terminal::{MARK, Terminal};
use super::{check, run, text};
use crate::failing_calls::{Call, Calls};

/// The conversation is idle, but its last turn did not finish.
#[test]
fn a_turn_that_was_cut_short_is_marked_where_the_user_looks() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let failed = home.run(&["send", &id, "do it [[fail network]]"]);
    assert_eq!(failed.status.code(), Some(6), "{failed:?}");
    let listed = home.said(&["ls"]);
    assert!(listed.contains("\tidle (cut short)\t"), "{listed}");
    let show = ["show", &id];
    let output = home.run(&show);
    let told = check_printed(&show, &output, 0);
    assert_eq!(commands(&told), [format!("sessionctl continue {}", &id[..8])]);
    assert!(
        text(&output.stdout).contains("idle, last turn cut short"),
        "{output:?}"
    );
    home.said(&["send", &id, "something else"]);
    for command in [&["ls"][..], &show] {
        assert!(!home.said(command).contains("cut short"), "{command:?}");
    }
}

/// The turns are not lost: undo and continue bring them back when there is room.
#[test]
fn an_edit_on_a_full_disk_names_what_brings_the_turns_back() {
    let home = crate::home::Home::new();
    let calls = Calls::of(&home, &[Call::Write]);
    let _daemon = calls.start();
    let id = text(&run(home.path(), &["new"]).stdout).trim_end().to_owned();
    for prompt in ["one", "two"] {
        let sent = run(home.path(), &["send", &id, prompt]);
        check(&sent, 0, &format!("echo: {prompt}\n"));
    }
    calls.fail(
        Call::Write,
        &home.data().join("loopback"),
        Errno::NOSPC,
        usize::MAX,
    );
    let short = &id[..8];
    let (continues, undo) = (
        format!("sessionctl continue {short}"),
        format!("sessionctl undo {short}"),
    );
    let printed =
        |arguments: &[&str], code: i32| check_printed(arguments, &run(home.path(), arguments), code);
    let told = printed(&["edit", &id, "--at", "1", "new"], 6);
    assert!(
        told.contains("free some space") && told.contains(&continues),
        "{told}"
    );
    for command in ["history", "checkpoints"] {
        let told = printed(&[command, &id], 0);
        assert_eq!(commands(&told), [&*continues, &undo], "{command}");
    }
    assert_eq!(commands(&printed(&["fork", &id], 6)), [&*continues]);
    calls.succeed();
    check(&run(home.path(), &["continue", &id]), 0, "echo: new\n");
    let undone = run(home.path(), &["undo", &id]);
    assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    check(&run(home.path(), &["send", &id, "three"]), 0, "echo: three\n");
    assert!(text(&run(home.path(), &["history", &id]).stdout).contains("> one"));
}

/// The old folder no longer exists, so its conversations may belong to the new one.
#[test]
fn a_renamed_folder_is_moved_with_the_command_that_is_named() {
    let home = Home::new();
    let [old, new, elsewhere] = ["old", "new", "far/away"].map(|name| home.path().join(name));
    for folder in [&old, &elsewhere] {
        fs::create_dir_all(folder).unwrap();
    }
    let id = home.said(&["new", "--cwd", old.to_str().unwrap()]);
    // A newer conversation, but its folder has another parent.
    home.said(&["new", "--cwd", elsewhere.to_str().unwrap()]);
    fs::rename(&old, &new).unwrap();
    fs::remove_dir(&elsewhere).unwrap();
    let in_new = |arguments: &[&str]| home.command(arguments).current_dir(&new).output().unwrap();
    let show = ["show", "."];
    let told = check_printed(&["show . in a renamed folder"], &in_new(&show), 4);
    let expected = format!("sessionctl mv {} .", old.canonicalize().unwrap_or(old).display());
    assert_eq!(commands(&told).last(), Some(&&*expected), "{told}");
    let moved = in_new(&expected.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(moved.status.code(), Some(0), "{moved:?}");
    assert!(text(&in_new(&show).stdout).contains(&id));
    assert_eq!(in_new(&["rm", "."]).status.code(), Some(0));
    let told = check_printed(&["show . after rm"], &in_new(&show), 4);
    assert!(!told.contains("sessionctl mv"), "{told}");
}

/// A branch at an earlier turn keeps most of the history.
#[test]
fn a_history_that_no_longer_fits_is_branched_off_earlier() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let told = home.printed(&["send", &id, "[[fail context]]"], 6);
    let [fork, reset] = commands(&told)[..] else {
        panic!("{told}")
    };
    assert_eq!(reset, format!("sessionctl reset {}", &id[..8]));
    home.said_pasted(fork);
}

#[test]
fn the_transcript_of_a_deleted_conversation_is_adopted_with_the_command_that_is_named() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let session = home.shown(&id)["head"].as_str().unwrap().to_owned();
    home.said(&["rm", &id]);
    let told = home.printed(&["history", &session], 4);
    let adopted = home.said_pasted(commands(&told)[0]);
    assert!(home.said(&["history", &adopted]).contains("echo: one"));
}

/// Without `VISUAL` and `EDITOR`, `edit` runs the first known editor that is installed.
#[test]
fn an_edit_opens_the_editor_of_the_system() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    let programs = home.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let editor = programs.join("sensible-editor");
    fs::write(&editor, "#!/bin/sh\nprintf edited > \"$1\"\n").unwrap();
    fs::set_permissions(&editor, Permissions::from_mode(0o755)).unwrap();
    let mut edit = home.command(&["edit", &id]);
    edit.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    let shown = Terminal::of(80, &edit).exits(0);
    assert!(shown.contains("echo: edited"), "{shown}");
}

#[test]
fn a_folder_that_was_not_renamed_is_renamed_first() {
    let home = Home::new();
    fs::create_dir(home.path().join("old")).unwrap();
    home.said(&["new", "--cwd", "old"]);
    let told = home.printed(&["mv", "./old", "./old/../newer"], 1);
    let folder = |name: &str| {
        home.path()
            .canonicalize()
            .unwrap()
            .join(name)
            .display()
            .to_string()
    };
    let (old, new) = (folder("old"), folder("newer"));
    assert!(
        told.contains(&format!("rename it first: mv {old} {new}")),
        "{told}"
    );
    // Printed paths contain no `..`.
    let told = home.printed(&["mv", ".", "old/../other"], 4);
    assert!(!told.contains(".."), "{told}");
}

/// Only the JSON form contains what the agent received besides the prompts.
#[test]
fn notes_to_the_agent_are_not_shown_as_messages() {
    const SESSION: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";
    let home = Home::new();
    let codex = home.path().join("codex");
    let config = format!(
        "default_agent = \"loopback\"\n[agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n",
        codex.display()
    );
    let rollout = include_str!("../fixtures/transcripts/codex/0.166.0-limit.jsonl");
    let file = format!("sessions/2026/11/21/rollout-2026-11-21T06-16-34-{SESSION}.jsonl");
    for (path, text) in [
        (home.path().join("config/config.toml"), &*config),
        (codex.join(file), rollout),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let id = home.said(&["adopt", SESSION, "--cwd", "."]);
    let said = home.said(&["history", &id]);
    assert!(
        said.starts_with("> ") && !said.contains("<environment_context>"),
        "{said}"
    );
    let json = home.said(&["--json", "history", &id]);
    assert!(json.contains("<environment_context>"), "{json}");
}

/// What is typed during a turn is not echoed between the lines of the answer.
#[test]
fn a_line_that_is_typed_during_a_turn_is_confirmed_and_sent_after_it() {
    let home = Home::new();
    let mut terminal = Terminal::run_plain(&home, 40, &["chat", "--new"]).waiting();
    terminal.enter("[[say Begun]] [[hang]]");
    terminal.until("Begun");
    terminal.type_in("next\\\rline\r");
    terminal.until("queued: next");
    let long = "long ".repeat(20);
    terminal.type_in(&format!("{long}\rhalf a"));
    let shown = terminal.until("…");
    assert!(shown.contains("queued: long long"), "{shown}");
    terminal.type_in("\x03");
    terminal.until("echo: next");
    terminal.until("line");
    terminal.until("echo: long");
    terminal.until(MARK);
    terminal.until("half a");
    terminal.says(" line", "echo: half a line");
    // The arrow keys recall queued lines too.
    terminal.type_in("\x1b[A\x1b[A\x1b[A");
    terminal.says("", "echo: next");
    // Ctrl-D leaves when the turn has ended.
    terminal.enter("[[say Again]] [[hang]]");
    terminal.until("Again");
    terminal.type_in("\x04\x03");
    terminal.exits(0);
}

#[test]
fn a_name_that_does_not_fit_is_answered_with_one_that_does() {
    let home = Home::new();
    let [first, _] = ["Talk of one", "Talk of two"].map(|title| home.said(&["new", "--title", title]));
    // A command about one of several would be a guess, and `rm` would delete it.
    for arguments in [&["rename", "Talk", "Other"][..], &["rm", "Talk", "--yes"]] {
        let told = home.printed(arguments, 4);
        assert_eq!(commands(&told), [""; 0]);
    }
    let told = home.printed(&["send", "-", &first], 4);
    assert_eq!(commands(&told), [format!("sessionctl send {first} -")]);
    let long = "x".repeat(10_000);
    for arguments in [&["new", "--title", &long][..], &["rename", &first, &long]] {
        let output = home.run(arguments);
        assert!(
            text(&output.stderr).contains("hint: give a shorter title"),
            "{output:?}"
        );
    }
    let title = format!("title=One\n{}", "and more ".repeat(20));
    let set = home.run(&["set", &first, &title]);
    let told = check_printed(&["set with a long title"], &set, 0);
    assert!(told.lines().count() == 1 && told.len() < 260, "{told}");
}
