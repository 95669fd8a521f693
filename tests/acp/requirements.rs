//! Requirements of the protocol that no editor in `editors` relies on.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use super::editor::{Editor, command};
use super::recorder::Recorder;
use crate::gate::Gate;
use crate::home::Home;
use crate::scripted;

#[test]
fn each_kind_of_content_reaches_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let text = json!({"type": "text", "text": "look"});
    for block in [
        json!({"type": "resource_link", "uri": "file:///a.md", "name": "a.md"}),
        json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}),
        json!({"type": "resource", "resource": {"uri": "file:///b.md", "mimeType": "text/markdown", "text": "b"}}),
        json!({"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "aGVsbG8="}}),
    ] {
        let prompt = json!({"sessionId": session, "prompt": [text, block]});
        let answered = editor.call("session/prompt", prompt);
        assert_eq!(answered.result()["stopReason"], "end_turn", "{block}");
        let lines = recorder.all_lines();
        assert!(
            lines.iter().any(|line| line.contains(&block.to_string())),
            "{block}: {lines:#?}"
        );
    }
}

#[test]
fn a_resume_needs_no_servers_and_replays_nothing() {
    let home = Home::new();
    let _daemon = home.start();
    let (_editor, session) = Editor::after_one_turn(&home);
    let mut editor = Editor::start(&home);
    let params = json!({"sessionId": session, "cwd": home.project()});
    let resumed = editor.call("session/resume", params);
    resumed.result();
    let answered = editor.prompt(&session, "two");
    for messages in [&resumed, &answered] {
        assert!(!messages.kinds().contains(&"user_message_chunk"), "{messages:?}");
        assert!(
            !messages.texts("agent_message_chunk").contains(&"echo: one"),
            "{messages:?}"
        );
    }
    assert_eq!(answered.texts("agent_message_chunk"), ["echo: two"]);
}

#[test]
fn a_folder_without_sessions_has_an_empty_list() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.new_session(&home);
    for folder in [home.folder_named("other"), "/no/such/folder".to_owned()] {
        let listed = editor.call("session/list", json!({"cwd": folder}));
        assert_eq!(listed.result(), &json!({"sessions": []}));
    }
}

#[test]
fn more_folders_are_offered_where_the_agent_has_them() {
    let capabilities = r#"{"sessionCapabilities":{"additionalDirectories":{}}}"#;
    let home = Home::with_config(&scripted::configured("scripted", Some(capabilities)));
    let _daemon = home.start();
    for (agent, offered) in [("scripted", Some(&json!({}))), ("loopback", None)] {
        let (mut editor, about) = Editor::initialized(&mut command(&home, &["--agent", agent]), json!({}));
        let sessions = &about["agentCapabilities"]["sessionCapabilities"];
        assert_eq!(sessions.get("additionalDirectories"), offered, "{agent}");
        if offered.is_some() {
            let more = [home.folder_named("more")];
            let params = json!({"cwd": home.project(), "mcpServers": [], "additionalDirectories": more});
            editor.call("session/new", params).result();
            let heard = scripted::heard(&home, agent);
            let new = heard.iter().find(|line| line["method"] == "session/new").unwrap();
            assert_eq!(new["params"]["additionalDirectories"], json!(more));
        }
    }
}

/// The history can be read, and the session continues once the folder exists again.
#[test]
fn a_session_whose_folder_is_gone_is_not_lost() {
    let home = Home::new();
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let folder = home.folder_named("gone");
    let made = editor.call("session/new", json!({"cwd": folder, "mcpServers": []}));
    let session = made.session_id();
    editor.prompt(&session, "one").result();
    editor.kill();
    drop(daemon);
    fs::remove_dir(&folder).unwrap();
    let _daemon = home.start();
    let params = json!({"sessionId": session, "cwd": folder, "mcpServers": []});
    for (method, replayed) in [("session/load", &["echo: one"][..]), ("session/resume", &[])] {
        let mut editor = Editor::start(&home);
        let opened = editor.call(method, params.clone());
        assert_eq!(opened.result()["sessionId"], session.as_str());
        assert_eq!(opened.texts("agent_message_chunk"), replayed);
        let refused = editor.prompt(&session, "two");
        assert_eq!(refused.code(), -32602);
        assert_eq!(refused.answer["error"]["data"]["kind"], "invalidCwd");
    }
    home.folder_named("gone");
    let mut editor = Editor::start(&home);
    editor.call("session/load", params).result();
    let recalled = editor.prompt(&session, "[[recall]]").said();
    assert!(
        recalled.contains("echo: one") && !recalled.contains("two"),
        "{recalled}"
    );
}

#[test]
fn a_prompt_behind_a_load_is_cancelled_alone() {
    let (home, gate) = Gate::home();
    let mut daemon = home.start();
    let (editor, session) = Editor::after_one_turn(&home);
    editor.kill();
    for method in ["session/cancel", "$/cancel_request"] {
        drop(daemon);
        daemon = home.start();
        gate.hold("session/resume");
        let mut editor = Editor::start(&home);
        let load = editor.begin_on("session/load", &session, &home);
        gate.wait_until_held();
        let prompt = editor.begin_prompt(&session, "[[hang]]");
        match method {
            "session/cancel" => editor.notify(method, json!({"sessionId": session})),
            _ => editor.notify(method, json!({"requestId": prompt})),
        }
        assert_eq!(
            editor.finish(prompt).result()["stopReason"],
            "cancelled",
            "{method}"
        );
        gate.open();
        let loaded = editor.finish(load);
        loaded.result();
        assert_eq!(loaded.texts("user_message_chunk"), ["one"], "{method}");
    }
}

/// A daemon stopped by SIGSTOP cannot notice that the editor has left, so `sessionctl acp` must end without
/// it.
#[test]
fn the_process_ends_with_its_input_although_the_daemon_does_not_answer() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.begin_endless(&session);
    daemon.signal(Signal::STOP);
    let (status, complaint) = editor.end();
    assert!(status.success() && complaint.is_empty(), "{status}: {complaint}");
    daemon.signal(Signal::CONT);
}

/// An editor may start the process with only `PATH` set. The folders then come from the user's entry in
/// `/etc/passwd`, which this test replaces in a mount namespace.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stderr, reason = "the harness shows why a test was skipped")]
fn without_home_the_folders_are_those_of_the_user() {
    const SCRIPT: &str =
        r#"mount --bind "$1" /etc/passwd; cd /; "$2" acp --agent loopback; "$2" stop 2>/dev/null"#;
    if let Err(reason) = mounts() {
        eprintln!("skipped: {reason}");
        return;
    }
    let home = Home::new();
    let users = home.path().join("passwd");
    let user = format!("root:x:0:0::{}:/bin/sh\n", home.path().display());
    fs::write(&users, user).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-euc", SCRIPT, "sh"]);
    command.arg(&users).arg(env!("CARGO_BIN_EXE_sessionctl"));
    command.env_clear().env("PATH", "/usr/bin:/bin");
    let (mut editor, _) = Editor::initialized(&mut command, json!({}));
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    let (status, complaint) = editor.end();
    assert!(status.success() && complaint.is_empty(), "{status}: {complaint}");
    assert!(home.path().join(".local/share/sessiond/sessiond.lock").exists());
}

/// Whether this user may mount something in a namespace.
#[cfg(target_os = "linux")]
fn mounts() -> Result<(), String> {
    let mut unshare = Command::new("unshare");
    unshare.args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]);
    match unshare.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("this user may not mount a disk in memory".to_owned()),
        Err(error) => Err(format!("unshare cannot be run: {error}")),
    }
}
