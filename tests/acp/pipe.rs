//! The process in between: it may be killed, and so may the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::editor::{Editor, command, sessionctl};
use crate::home::Home;

#[test]
fn a_killed_editor_loses_nothing_of_its_turn() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    editor.begin_prompt(&session, "[[say begun]] [[ask may I]] [[say ended]]");
    editor.until_said("begun");
    editor.kill();
    // The next one sees the turn so far, and is asked.
    let mut editor = Editor::start(&home);
    let replayed = editor.on("session/load", &session, &home);
    let prompts = replayed.texts("user_message_chunk");
    assert_eq!(prompts, ["one", "[[say begun]] [[ask may I]] [[say ended]]"]);
    assert_eq!(replayed.texts("agent_message_chunk"), ["echo: one", "begun"]);
    let asked = editor.until_asked("session/request_permission");
    editor.allow(&asked);
    editor.until_said("ended");
    assert!(editor.end().0.success());
}

#[test]
fn a_killed_daemon_loses_no_history_and_no_id() {
    let home = Home::new();
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    editor.begin_prompt(&session, "[[say begun]] [[hang]]");
    editor.until_said("begun");
    daemon.kill();
    let (status, said) = editor.ended();
    assert_eq!(status.code(), Some(3));
    assert!(
        said.starts_with("error: the daemon closed the connection\n"),
        "{said}"
    );
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let replayed = editor.on("session/load", &session, &home);
    replayed.result();
    assert_eq!(
        replayed.texts("user_message_chunk"),
        ["one", "[[say begun]] [[hang]]"]
    );
    assert_eq!(
        editor.prompt(&session, "two").texts("agent_message_chunk"),
        ["echo: two"]
    );
}

#[test]
fn it_starts_a_daemon_that_outlives_it_and_is_no_descendant() {
    let home = Home::new();
    let mut editor = Editor::start(&home);
    let session = editor.new_session(&home);
    let lock = fs::read_to_string(home.data().join("sessiond.lock")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    let daemon = lock["pid"].as_u64().unwrap();
    #[cfg(target_os = "linux")]
    {
        let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
        let parent = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .to_owned();
        assert_ne!(parent, editor.pid().to_string());
    }
    let mode = fs::metadata(home.path().join("run/acp.sock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let (status, said) = editor.end();
    assert_eq!((status.success(), said.as_str()), (true, ""), "{daemon}");
    let mut editor = Editor::start(&home);
    editor.on("session/load", &session, &home).result();
    let (status, said) = editor.end();
    assert_eq!((status.success(), said.as_str()), (true, ""));
    let stopped = sessionctl(&home, &["stop"]).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(!home.path().join("run/acp.sock").exists());
}

#[test]
fn a_removed_socket_is_bound_again() {
    let home = Home::new();
    let _daemon = home.start();
    let socket = home.path().join("run/acp.sock");
    fs::remove_file(&socket).unwrap();
    // It waits for the new one.
    let mut editor = Editor::start(&home);
    editor.new_session(&home);
    assert!(socket.exists());
}

#[test]
fn the_agent_is_chosen_on_the_command_line() {
    let home = Home::with_config(
        "[agents.second]\nkind = \"loopback\"\n[agents.silent]\nkind = \"generic\"\ncommand = \"/bin/false\"\n",
    );
    let _daemon = home.start();
    let mut editor = Editor::spawn(&mut command(&home, &["--agent", "second"]));
    editor.call("initialize", json!({"protocolVersion": 1})).result();
    let session = editor.new_session(&home);
    let shown = sessionctl(&home, &["show", "--json", &session]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["conversation"]["agent"], "second");
    // Only its sessions are listed, also where its transcripts cannot be.
    for (agent, sessions) in [("second", 1), ("loopback", 0), ("silent", 0)] {
        let mut editor = Editor::spawn(&mut command(&home, &["--agent", agent]));
        let listed = editor.call("session/list", json!({"cwd": home.project()}));
        assert_eq!(
            listed.result()["sessions"].as_array().unwrap().len(),
            sessions,
            "{agent}"
        );
    }
    let mut editor = Editor::spawn(&mut command(&home, &["--agent", "none"]));
    let made = editor.call("session/new", json!({"cwd": home.project(), "mcpServers": []}));
    assert_eq!(made.code(), -32602);
}
