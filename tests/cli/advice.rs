//! What commands say about who answers and what to do next.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::home::Home;
use super::printed::{check_printed, commands};
use super::{sessionctl, text};

/// The agent that a new conversation gets.
#[track_caller]
fn agent_of(printed: &[u8]) -> String {
    let created: Value = serde_json::from_slice(printed).unwrap();
    created["conversation"]["agent"].as_str().unwrap().to_owned()
}

/// An agent that is installed while the daemon runs answers in the next new conversation, and a conversation of the echo says
/// that it is one.
#[test]
fn an_agent_that_is_installed_later_is_the_default() {
    let home = Home::new();
    let programs = home.path().join("programs");
    fs::create_dir(&programs).unwrap();
    fs::create_dir_all(home.path().join(".claude/projects")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("HOME", home.path()).env("PATH", &programs);
        command.output().unwrap()
    };
    let first = run(&["new", "--json"]);
    assert_eq!(agent_of(&first.stdout), "loopback", "{first:?}");
    let adapter = programs.join("claude-agent-acp");
    fs::write(&adapter, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&adapter, Permissions::from_mode(0o755)).unwrap();
    let send = ["send", ".", "hello"];
    let sent = run(&send);
    let warned = check_printed(&send, &sent, 0);
    assert_eq!(warned.matches("warning:").count(), 1, "{warned}");
    assert_eq!(text(&run(&send).stderr).matches("warning:").count(), 0);
    let second = run(&["new", "--json"]);
    assert_eq!(agent_of(&second.stdout), "claude", "{second:?}");
}

#[test]
fn a_default_agent_that_is_not_installed_is_not_used() {
    let home = Home::new();
    let config = "[agents.mine]\nkind = \"claude\"\ncommand = \"/no/such/adapter\"\n";
    home.configure(config);
    home.printed(&["new", "--title", "a default that is not installed"], 6);
    assert_eq!(home.run(&["send", "--new", "hello"]).status.code(), Some(6));
    assert_eq!(home.said(&["ls", "--all", "--json"]), r#"{"conversations":[]}"#);
}

#[test]
fn a_prompt_that_clears_says_how_to_go_back() {
    let home = Home::new();
    home.said(&["new", "--title", "Grey heron"]);
    home.said(&["send", ".", "before"]);
    let old = home.said(&["show", ".", "--json"]);
    let old: Value = serde_json::from_str(&old).unwrap();
    let old = old["conversation"]["head"].as_str().unwrap();
    let cleared = home.run(&["send", ".", "[[clear]]"]);
    assert!(text(&cleared.stderr).contains("Go back to "), "{cleared:?}");
    let forked = home.run(&["history", old]);
    assert!(
        text(&forked.stderr).contains("is an earlier session of conversation"),
        "{forked:?}"
    );
    home.said(&["undo", "."]);
    assert!(home.said(&["history", "."]).contains("before"));
}

#[test]
fn a_lost_transcript_is_not_called_a_beginning() {
    let home = Home::new();
    home.configure("[keep]\nenabled = false\n");
    home.said(&["send", "--new", "before"]);
    home.said(&["close", "."]);
    fs::remove_dir_all(home.path().join("data/loopback/projects")).unwrap();
    for command in [
        &["history", "."][..],
        &["edit", ".", "--at", "1", "x"],
        &["send", ".", "x"],
    ] {
        let said = home.run(command);
        let said = text(&said.stderr);
        assert!(!said.contains("no turns yet"), "{command:?}: {said}");
        assert!(
            said.contains("sessionctl") && said.contains(" reset "),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn commands_of_the_archive_say_which_conversation_they_act_on() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Grey heron"]);
    home.said(&["send", &id, "hello"]);
    for word in [".", "heron"] {
        for command in ["add", "restore"] {
            home.printed(&["archive", command, word], 0);
        }
    }
    for command in ["add", "restore"] {
        let line = ["--", "sessionctl", "archive", command, ""];
        let output = sessionctl(home.path(), &line)
            .env("COMPLETE", "fish")
            .output()
            .unwrap();
        assert!(text(&output.stdout).contains(&id[..8]), "{output:?}");
    }
}

#[test]
fn a_move_to_where_it_is_says_so_without_moving_too() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let moved = home.said(&["mv", &id, "."]);
    assert_eq!(home.said(&["mv", &id, ".", "--dry-run"]), moved);
}

#[test]
fn the_time_of_a_continuation_has_the_form_of_the_wire() {
    let home = Home::new();
    let id = home.said(&["new"]);
    assert_eq!(home.run(&["send", &id, "[[limit 5400]]"]).status.code(), Some(7));
    let continued: Value = serde_json::from_str(&home.said(&["continue", "--all", "--json"])).unwrap();
    let shown = home.shown(&id);
    assert_eq!(
        continued["at"], shown["continuation"]["at"],
        "{continued} {shown}"
    );
}

#[test]
fn an_export_onto_a_file_names_a_command_that_works() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "hello"]);
    home.said(&["export", &id, "-o", "talk.session-bundle.tar.zst"]);
    let refused = home.printed(&["export", &id, "-o", "talk.session-bundle.tar.zst"], 5);
    let exported = home.said_pasted(commands(&refused)[0]);
    assert!(exported.ends_with("/talk-2.session-bundle.tar.zst"), "{exported}");
}

#[test]
fn transcripts_are_found_as_conversations_are() {
    let home = Home::new();
    let id = home.said(&["new", "--title", "Grey heron"]);
    home.said(&["send", &id, "the grey heron"]);
    let found = |words: &[&str]| {
        let listed = home.said(&[&["transcripts", "--json"], words].concat());
        let listed: Value = serde_json::from_str(&listed).unwrap();
        listed["transcripts"].as_array().unwrap().len()
    };
    assert_eq!(found(&["heron", "grey"]), 1);
    assert_eq!(found(&["heron", "blue"]), 0);
    home.printed(&["transcripts", "--cwd", "./nowhere"], 4);
}

/// A negative number, an empty variable and a missing folder are refused with what to give instead.
#[test]
fn values_that_cannot_be_meant_say_what_to_give() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for command in ["history", "checkpoints", "ls"] {
        home.printed(&[command, "-n", "-1"], 2);
    }
    home.printed(&["fork", &id, "--cwd", ""], 2);
    home.printed(&["mv", "--undo", ""], 2);
    // One code for a folder that is missing, whatever it is for.
    for arguments in [
        &["fork", &id, "--cwd", "missing"][..],
        &["new", "--cwd", "missing"],
        &["mv", &id, "missing"],
        &["export", &id, "-o", "missing/talk.json"],
        &["export", &id, "-o", "missing/talk.session-bundle.tar.zst"],
    ] {
        home.printed(arguments, 1);
    }
    assert!(!home.path().join("missing").exists());
}

#[test]
fn an_export_as_json_is_not_imported_and_the_bundle_of_it_is() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "hello"]);
    home.said(&["export", &id, "-o", "talk.json"]);
    for place in [&["--cwd", "."][..], &["--same-folders"], &[]] {
        let told = home.printed(&[&["import", "talk.json"], place].concat(), 2);
        let bundle = home.said_pasted(commands(&told)[0]);
        assert!(bundle.ends_with(".session-bundle.tar.zst"), "{bundle}");
        std::fs::remove_file(&bundle).unwrap();
    }
}

/// A command that is pasted asks the daemon that the first one was told to ask. Words of users and agents stay as they are.
#[test]
fn printed_commands_name_the_daemon_as_the_user_did() {
    let home = Home::new();
    let folder = home.path().join("another home");
    let option = format!("--home={}", folder.display());
    let run = |arguments: &[&str]| home.run(&[&[option.as_str()], arguments].concat());
    let named = format!("sessionctl --home '{}'", folder.display());
    let title = "Paste: sessionctl ls";
    let id = text(&run(&["new", "--title", title]).stdout)
        .trim_end()
        .to_owned();
    let said = run(&["send", &id, "[[say Run: sessionctl undo .]]"]);
    assert!(text(&said.stdout).contains("Run: sessionctl undo ."), "{said:?}");
    let shown = text(&run(&["show", "."]).stdout);
    assert!(shown.contains(title), "{shown}");

    let reset = text(&run(&["reset", "."]).stderr);
    assert!(reset.contains(&format!("({title})")), "{reset}");
    let undo = commands(&reset).pop().unwrap();
    assert_eq!(undo, format!("{named} undo {}", &id[..8]));
    home.said_pasted(undo);

    for (arguments, command) in [
        (&["undo", &id][..], format!("{named} lineage {}", &id[..8])),
        (&["fork", &id, "--at", "no-such"], format!("{named} checkpoints")),
        (
            &["send", "no title like that"],
            format!("{named} send --new 'no title like that'"),
        ),
        (&["ls", "no title like that"], format!("{named} ls --all")),
    ] {
        let output = run(arguments);
        assert!(text(&output.stderr).contains(&command), "{command}: {output:?}");
    }
    let json = run(&["undo", &id, "--json"]);
    assert!(text(&json.stderr).contains(&named), "{json:?}");
    assert_eq!(run(&["stop"]).status.code(), Some(0));
}

#[test]
fn a_refused_call_ends_with_the_command_that_was_meant() {
    let home = Home::new();
    let hinted = |arguments: &[&str], code| {
        let mut command = home.command(arguments);
        let output = command.env("EDITOR", "true").output().unwrap();
        let arguments = arguments.join(" ");
        let printed = check_printed(&[&arguments], &output, code);
        commands(&printed).pop().unwrap_or_default().to_owned()
    };
    // Nothing can be started before this.
    let config = home.path().join("config.toml");
    let missing = ["--config", config.to_str().unwrap(), "ls"];
    let printed = home.printed(&missing, 3);
    assert!(
        printed.contains("hint: name another file, or omit --config; see which files exist: ls -l "),
        "{printed}"
    );

    let id = home.said_pasted(&hinted(&["new", "My title"], 2));
    assert_eq!(home.shown(&id)["title"], "My title");
    assert_eq!(home.said_pasted(&hinted(&["chat", "--new"], 2)), "echo: Hello");
    home.said(&["send", &id, "first"]);
    assert_eq!(home.said_pasted(&hinted(&["edit", &id], 1)), "echo: Hello");
    assert!(!home.said(&["history", &id]).contains("first"));
}

/// A conversation whose first turn got no answer is named by its prompt, and `show` says how to continue it.
#[test]
fn a_first_turn_without_an_answer_names_the_conversation() {
    let home = Home::new();
    let limited = home.run(&["send", "--new", "Count the herons [[limit 5400]]"]);
    assert_eq!(limited.status.code(), Some(7), "{limited:?}");
    assert!(home.said(&["ls"]).contains("Count the herons"));
    let shown = home.printed(&["show", "herons"], 0);
    home.said_pasted(commands(&shown)[0]);
    assert!(home.shown("herons")["continuation"].is_object());
    home.printed(&["show", "herons"], 0);
}

#[test]
fn a_file_in_place_of_a_folder_and_a_folder_that_is_gone_are_told_apart() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "hello"]);
    fs::write(home.path().join("notes.txt"), "").unwrap();
    for call in [
        &["fork", &id, "--cwd", "notes.txt"][..],
        &["new", "--cwd", "notes.txt"],
        &["mv", &id, "notes.txt"],
    ] {
        let refused = home.printed(call, 1);
        assert!(refused.contains("that of the file"), "{refused}");
    }
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    fs::create_dir_all(&old).unwrap();
    fs::create_dir_all(&new).unwrap();
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    home.said(&["mv", &id, old]);
    home.said(&["mv", &id, new]);
    fs::remove_dir(old).unwrap();
    let refused = home.printed(&["undo", &id], 1);
    assert_eq!(refused.matches("mkdir -p ").count(), 1, "{refused}");
}

#[test]
fn a_value_that_begins_with_a_dash_is_written_behind_an_equals_sign() {
    let home = Home::new();
    let refused = home.printed(&["new", "--title", "-grey heron"], 2);
    assert!(refused.contains("--title='-grey heron'"), "{refused}");
    let id = home.said(&["new", "--title=-grey heron"]);
    assert_eq!(home.shown(&id)["title"], "-grey heron");
    let refused = home.printed(&["checkpoints", &id, "--at", "2"], 2);
    assert!(!refused.contains("as a value"), "{refused}");
}

#[test]
fn an_edit_while_a_turn_runs_names_the_command_that_cancels_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "hello"]);
    let asked = home.run(&["send", &id, "[[ask Really?]]", "--on-question", "leave"]);
    assert_eq!(asked.status.code(), Some(8), "{asked:?}");
    let refused = home.printed(&["edit", &id, "--at", "1", "other"], 5);
    assert!(refused.contains("sessionctl cancel "), "{refused}");
}
