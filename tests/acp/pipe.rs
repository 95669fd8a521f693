//! `sessionctl acp`, the process between editor and daemon: what happens if it or the daemon is killed.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::editor::{Editor, command, run, show};
use crate::home::Home;

#[test]
fn a_killed_editor_loses_nothing_of_its_turn() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    editor.begin_prompt(&session, "[[say begun]] [[ask may I]] [[say ended]]");
    editor.until_said("begun");
    editor.kill();
    // The next editor gets the turn so far, and the open question.
    let mut editor = Editor::start(&home);
    let replayed = editor.on("session/load", &session, &home);
    let prompts = replayed.texts("user_message_chunk");
    assert_eq!(prompts, ["one", "[[say begun]] [[ask may I]] [[say ended]]"]);
    assert_eq!(replayed.texts("agent_message_chunk"), ["echo: one", "begun"]);
    let asked = editor.until_permission_asked();
    editor.allow(&asked);
    editor.until_said("ended");
    assert!(editor.end().0.success());
}

#[test]
fn a_killed_daemon_loses_no_history_and_no_id() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let prompt = editor.begin_endless(&session);
    editor.line(r#"{"id":"a list","method":"session/list","jsonrpc":"2.0","params":{}}"#);
    editor.until(|message| message["id"] == "a list");
    let cancelled = editor.begin(
        "session/load",
        json!({"sessionId": "none", "cwd": "/", "mcpServers": []}),
    );
    editor.finish(cancelled);
    daemon.kill();
    // The open request is answered with an error, and nothing is answered twice.
    assert_eq!(editor.finish(prompt).code(), -32603);
    let answered = editor.received.len();
    let (status, said) = editor.ended();
    assert_eq!(editor.received.len(), answered);
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
fn a_request_with_an_invalid_id_is_answered_once() {
    let home = Home::new();
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    for id in [r#"{"a":1}"#, "[1]", "true"] {
        editor.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list","params":{{}}}}"#
        ));
        let refused = editor.next();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&Value::Null, &json!(-32600)),
            "{id}"
        );
    }
    daemon.kill();
    let answered = editor.received.len();
    editor.ended();
    assert_eq!(editor.received[answered..], [] as [String; 0]);
}

/// The ancestors of a process, from its parent up to pid 1.
#[cfg(target_os = "linux")]
fn ancestors(pid: u64) -> Vec<u64> {
    let parent = |pid: &u64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let behind_name = stat.rsplit(')').next()?;
        behind_name.split_whitespace().nth(1)?.parse().ok()
    };
    let above = std::iter::successors(parent(&pid), parent);
    above.take_while(|pid| *pid != 0).collect()
}

#[test]
fn it_starts_a_daemon_that_outlives_it_and_is_no_descendant() {
    let home = Home::new();
    let (editor, session) = Editor::in_session(&home);
    let lock = fs::read_to_string(home.data().join("sessiond.lock")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    let daemon = lock["pid"].as_u64().unwrap();
    #[cfg(target_os = "linux")]
    assert!(!ancestors(daemon).contains(&u64::from(editor.pid())), "{daemon}");
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
    run(&home, &["stop"]);
    assert!(!home.path().join("run/acp.sock").exists());
}

#[test]
fn a_removed_socket_is_bound_again() {
    let home = Home::new();
    let _daemon = home.start();
    let socket = home.path().join("run/acp.sock");
    fs::remove_file(&socket).unwrap();
    // The new process waits until the daemon has created the socket again.
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
    let (mut editor, _) = Editor::initialized(&mut command(&home, &["--agent", "second"]), json!({}));
    let session = editor.new_session(&home);
    let shown = show(&home, &session);
    assert_eq!(shown["agent"], "second");
    // Only sessions of this agent are listed, also for an agent whose transcripts cannot be listed.
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

/// Both daemons use the user's runtime folder, but each has its own data.
#[test]
fn the_editors_of_two_daemons_do_not_meet() {
    // The folder has mode 0700, as a runtime folder must have.
    let runtime = tempfile::Builder::new().prefix("sb").tempdir().unwrap();
    let (home, other) = (Home::new(), Home::new());
    let of = |command: &mut Command, home: &Home| {
        command
            .env_remove("SESSIOND_HOME")
            .env("XDG_RUNTIME_DIR", runtime.path())
            .env("XDG_DATA_HOME", home.data());
    };
    let daemon_of = |home: &Home| {
        let mut daemon = home.command();
        of(&mut daemon, home);
        daemon.arg("--config").arg(home.config_file());
        daemon
    };
    let socket = runtime.path().join("sessiond/second.sock");
    let _one = home.start_command(daemon_of(&home), &[]);
    let _two = other.start_command(daemon_of(&other), &["--socket", socket.to_str().unwrap()]);
    let editor_of = |home: &Home, socket: Option<&PathBuf>| {
        let mut acp = command(home, &[]);
        of(&mut acp, home);
        acp.envs(socket.map(|socket| ("SESSIOND_SOCKET", socket)));
        Editor::initialized(&mut acp, json!({})).0
    };
    let (mut first, mut second) = (editor_of(&home, None), editor_of(&other, Some(&socket)));
    second.new_session(&other);
    for (editor, sessions) in [(&mut first, 0), (&mut second, 1)] {
        let listed = editor.call("session/list", json!({}));
        assert_eq!(listed.result()["sessions"].as_array().unwrap().len(), sessions);
    }
}

#[test]
fn a_socket_that_could_not_be_bound_is_not_named() {
    let home = Home::new();
    let folder = home.folder_named("run");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(home.path().join("run/acp.sock"), "another program's").unwrap();
    let _daemon = home.start();
    let lock = fs::read_to_string(home.data().join("sessiond.lock")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    assert_eq!(lock.get("acpSocket"), None, "{lock}");
    let mut editor = Editor::spawn(&mut command(&home, &[]));
    let (status, said) = editor.ended();
    assert_eq!(status.code(), Some(3));
    assert!(said.contains("no socket for editors"), "{said}");
}

#[test]
fn the_connections_of_both_sockets_have_one_limit() {
    let home = Home::with_config("[limits]\nconnections = 2\n");
    let _daemon = home.start();
    let answer = |socket: PathBuf| {
        let mut stream = UnixStream::connect(socket).unwrap();
        // A refused connection may already be closed.
        let _sent = stream.write_all(b"garbage\n");
        let (mut stream, mut line) = (BufReader::new(stream), String::new());
        stream.read_line(&mut line).unwrap();
        (stream, line)
    };
    let (app_socket, editor_socket) = (home.socket(), home.path().join("run/acp.sock"));
    let served = [&app_socket, &editor_socket].map(|socket| answer(socket.clone()));
    for (_, line) in &served {
        assert!(line.contains("not valid JSON"), "{line}");
    }
    for socket in [app_socket, editor_socket] {
        let (_, refusal) = answer(socket);
        assert!(refusal.contains("2 connections are open"), "{refusal}");
    }
}
