//! The messages of each known editor in its order, with its capabilities, ids and environment, and what the
//! editor relies on.

use std::process::Command;

use serde_json::{Value, json};

use super::Home;
use super::editor::{Answered, Editor, command};

const COMMANDS: &str = "available_commands_update";

/// Starts the agent as an editor with this name and these capabilities. Also returns the result of
/// `initialize`.
fn start(mut command: Command, name: &str, capabilities: Value) -> (Editor, Value) {
    let mut editor = Editor::spawn(&mut command);
    // The SDKs start at 0.
    editor.next_id = 0;
    let params = json!({
        "protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": {"name": name, "version": "1.0.0"},
    });
    let about = editor.call("initialize", params).result().clone();
    assert_eq!(about["protocolVersion"], 1);
    assert_eq!(about["agentCapabilities"]["loadSession"], json!(true));
    (editor, about)
}

/// Creates a session; nothing about it may be sent before the answer.
fn new_session(editor: &mut Editor, home: &Home) -> String {
    let made = editor.call("session/new", json!({"cwd": home.project(), "mcpServers": []}));
    let session = made.result()["sessionId"].as_str().unwrap();
    let is_of_it = |message: &Value| message["params"]["sessionId"] == session;
    assert!(!made.before.iter().any(is_of_it), "{made:?}");
    session.to_owned()
}

fn ended_well(answered: &Answered, said: &str) {
    assert_eq!(answered.result()["stopReason"], "end_turn");
    assert_eq!(answered.said(), said);
}

/// Whether a value contains a null anywhere.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.iter().any(has_null),
        Value::Object(all) => all.values().any(has_null),
        _ => false,
    }
}

#[test]
fn zed() {
    let home = Home::new();
    let _daemon = home.start();
    let capabilities = json!({
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "auth": {"terminal": true},
        "session": {"configOptions": {"boolean": {}}}, "elicitation": {"form": {}, "url": {}},
        "_meta": {"terminal_output": true, "terminal-auth": true},
    });
    // The editor sends mode and options without waiting for the answers; it takes the answer to an option as
    // the complete list.
    let set_defaults = |editor: &mut Editor, session: &str| {
        let [mode, option] = editor.begin_settings(session);
        editor.finish(mode).result();
        let options = editor.finish(option);
        assert_eq!(options.result()["configOptions"][0]["currentValue"], "loop-2");
    };
    let (mut editor, _) = start(command(&home, &[]), "zed", capabilities.clone());
    let session = new_session(&mut editor, &home);
    set_defaults(&mut editor, &session);
    // Commands that are not announced by the end of the first turn cannot be typed.
    editor.prompt(&session, "one").result();
    let announced = editor.received.iter().rfind(|line| line.contains(COMMANDS));
    assert!(announced.unwrap().contains("rewind"));
    editor.begin_endless(&session);
    editor.kill();

    let (mut editor, _) = start(command(&home, &[]), "zed", capabilities);
    let listed = editor.call("session/list", json!({"cwd": home.project()}));
    assert_eq!(listed.result()["sessions"][0]["sessionId"], session.as_str());
    let loaded = editor.on("session/load", &session, &home);
    assert_eq!(
        loaded.kinds().last(),
        Some(&COMMANDS),
        "the editor would ignore commands after the answer"
    );
    assert_eq!(
        loaded.texts("user_message_chunk"),
        ["one", "[[say begun]] [[hang]]"]
    );
    editor.cancel(&session);
    set_defaults(&mut editor, &session);
    ended_well(&editor.prompt(&session, "two"), "echo: two");
    editor.close(&session).result();
    editor.delete(&session).result();
}

#[test]
fn jetbrains() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, about) = start(
        command(&home, &[]),
        "JetBrains.IntelliJ IDEA",
        json!({"fs": {}, "terminal": false}),
    );
    assert!(!has_null(&about), "{about}");
    for marker in about["agentCapabilities"]["sessionCapabilities"]
        .as_object()
        .unwrap()
        .values()
    {
        assert!(marker.is_object(), "{about}");
    }
    let session = new_session(&mut editor, &home);
    ended_well(&editor.prompt(&session, "one"), "echo: one");
    let asking = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    let question = editor.until_permission_asked();
    editor.allow(&question);
    ended_well(&editor.finish(asking), "done");
    // The editor cancels the request itself, and waits for its answer.
    let hanging = editor.begin_endless(&session);
    editor.notify(
        "$/cancel_request",
        json!({"requestId": hanging, "message": "cancelled"}),
    );
    assert_eq!(editor.finish(hanging).result()["stopReason"], "cancelled");
    assert_eq!(editor.call("session/prompt", json!({})).code(), -32602);
    // The editor cannot decode ids of other types.
    for line in &editor.received {
        let message: Value = serde_json::from_str(line).unwrap();
        let id = message.get("id");
        let fits = |id: &Value| id.is_string() || id.as_i64().is_some_and(|id| i32::try_from(id).is_ok());
        assert!(id.is_none_or(fits), "{line}");
    }
}

#[test]
fn codecompanion() {
    let home = Home::new();
    let _daemon = home.start();
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let (mut editor, about) = start(command(&home, &[]), "CodeCompanion.nvim", capabilities.clone());
    // The editor signs in with the first method, and does not connect if that fails.
    if let Some(method) = about["authMethods"].get(0) {
        editor
            .call("authenticate", json!({"methodId": method["id"]}))
            .result();
    }
    let session = new_session(&mut editor, &home);
    let option = json!({"sessionId": session, "configId": "model", "value": "loop-2"});
    editor.call("session/set_config_option", option).result();
    ended_well(&editor.prompt(&session, "one"), "echo: one");
    // The editor never answers a permission request after a cancellation.
    let asking = editor.begin_prompt(&session, "[[ask may I]]");
    editor.until_permission_asked();
    editor.cancel(&session);
    assert_eq!(editor.finish(asking).result()["stopReason"], "cancelled");
    ended_well(&editor.prompt(&session, "two"), "echo: two");
    editor.kill();
    // If a load fails, the editor silently creates a new session. It does not show updates after the answer
    // to a load.
    let (mut editor, _) = start(command(&home, &[]), "CodeCompanion.nvim", capabilities);
    let loaded = editor.on("session/load", &session, &home);
    loaded.result();
    assert_eq!(loaded.texts("agent_message_chunk"), ["echo: one", "echo: two"]);
}

#[test]
fn agentic_and_avante() {
    let home = Home::new();
    let _daemon = home.start();
    // PATH is the only environment variable.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    command.arg("--home").arg(home.path()).arg("acp");
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}});
    let (mut editor, _) = start(command, "agentic.nvim", capabilities);
    let sessions = [(); 2].map(|()| new_session(&mut editor, &home));
    assert_ne!(sessions[0], sessions[1]);
    let model = json!({"sessionId": sessions[0], "modelId": "loop-2"});
    editor.call("session/set_model", model).result();
    // The editor sends prompts for several sessions at once, and leaves a session with only a cancellation.
    let hanging = editor.begin_endless(&sessions[0]);
    ended_well(&editor.prompt(&sessions[1], "one"), "echo: one");
    editor.cancel(&sessions[0]);
    assert_eq!(editor.finish(hanging).result()["stopReason"], "cancelled");
    // The editor would never answer a request for a file.
    let reading = editor.prompt(&sessions[1], r#"[[call fs/read_text_file {"path":"/a"}]]"#);
    assert!(reading.said().contains("-32601"), "{reading:?}");
    editor.kill();
}

#[test]
fn agent_shell() {
    let home = Home::new();
    let _daemon = home.start();
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let (mut editor, _) = start(command(&home, &[]), "agent-shell", capabilities.clone());
    let session = new_session(&mut editor, &home);
    // The editor groups blocks by message id, and must not get its own prompt back.
    let ids = |answered: &Answered| -> Vec<String> {
        assert_eq!(answered.texts("user_message_chunk"), [] as [&str; 0]);
        let updates = answered.updates().into_iter();
        let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks
            .map(|chunk| chunk["messageId"].as_str().unwrap().to_owned())
            .collect()
    };
    let turns = ["one", "/history"].map(|text| ids(&editor.prompt(&session, text)));
    assert!(turns.iter().all(|ids| !ids.is_empty()));
    assert!(turns[0].iter().all(|id| !turns[1].contains(id)), "{turns:?}");
    let hanging = editor.begin_endless(&session);
    editor.notify(
        "session/cancel",
        json!({"sessionId": session, "reason": "User cancelled"}),
    );
    assert_eq!(editor.finish(hanging).result()["stopReason"], "cancelled");
    assert_eq!(editor.end().1, "", "the editor would show this as an error");

    let (mut editor, _) = start(command(&home, &[]), "agent-shell", capabilities);
    let listed = editor.call("session/list", json!({"cwd": home.project()}));
    let first = listed.result()["sessions"][0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    editor.on("session/resume", &first, &home).result();
    ended_well(&editor.prompt(&first, "two"), "echo: two");
    let fork = editor.on("session/fork", &first, &home).session_id();
    editor.delete(&fork).result();
    assert_eq!(editor.end().1, "");
}

#[test]
fn toad() {
    /// The editor closes the connection at a longer line.
    const LINE_BYTES: usize = 10 * 1024 * 1024;
    let home = Home::new();
    let _daemon = home.start();
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    let (mut editor, _) = start(command(&home, &[]), "toad", capabilities.clone());
    let session = new_session(&mut editor, &home);
    editor
        .call(
            "session/set_mode",
            json!({"sessionId": session, "modeId": "plan"}),
        )
        .result();
    let long = "long ".repeat(LINE_BYTES / 4);
    ended_well(&editor.prompt(&session, &format!("[[say one]] {long}")), "one");
    let commands = editor
        .received
        .iter()
        .rfind(|line| line.contains(COMMANDS))
        .unwrap();
    let commands: Value = serde_json::from_str(commands).unwrap();
    for command in commands["params"]["update"]["availableCommands"]
        .as_array()
        .unwrap()
    {
        assert!(
            command["name"].is_string() && command["description"].is_string(),
            "{command}"
        );
    }
    editor.kill();
    let (mut editor, _) = start(command(&home, &[]), "toad", capabilities);
    assert!(editor.on("session/load", &session, &home).result().is_object());
    let longest = editor.received.iter().map(String::len).max().unwrap();
    assert!((LINE_BYTES / 2..LINE_BYTES).contains(&longest), "{longest}");
}

#[test]
fn acpx() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, _) = start(command(&home, &[]), "acpx", json!({}));
    let session = new_session(&mut editor, &home);
    assert!(editor.end().0.success());
    // The first prompt comes from another process, which silently creates a new session if it cannot resume
    // this one.
    let (mut editor, _) = start(command(&home, &[]), "acpx", json!({}));
    editor.on("session/resume", &session, &home).result();
    ended_well(&editor.prompt(&session, "one"), "echo: one");
    assert!(editor.end().0.success());
    let (mut editor, _) = start(command(&home, &[]), "acpx", json!({}));
    editor.on("session/load", &session, &home).result();
    assert_eq!(editor.on("session/resume", "none", &home).code(), -32002);
    editor.close(&session).result();
}

#[test]
fn clients_on_the_sdks() {
    /// The longest line that the Python SDK reads by default.
    const LINE_BYTES: usize = 64 * 1024;
    let home = Home::new();
    let _daemon = home.start();
    let mut variables = command(&home, &[]);
    variables.envs([
        ("LOGNAME", "me"),
        ("SHELL", "/bin/sh"),
        ("TERM", "dumb"),
        ("USER", "me"),
    ]);
    let (mut editor, _) = start(variables, "sdk-client", json!({}));
    let session = new_session(&mut editor, &home);
    ended_well(&editor.prompt(&session, "one"), "echo: one");
    // The Python SDK sends no servers with a fork.
    let fork = editor.call(
        "session/fork",
        json!({"sessionId": session, "cwd": home.project()}),
    );
    let fork = fork.session_id();
    assert_ne!(fork, session);
    // The TypeScript client treats -32002 as success.
    for method in ["session/close", "session/delete", "session/close"] {
        let answer = editor.call(method, json!({"sessionId": fork})).answer;
        assert!(
            answer["result"].is_object() || answer["error"]["code"] == -32002,
            "{answer}"
        );
    }
    // The daemon's own longest line lists many turns.
    let long = "\u{1F600}".repeat(300);
    for _ in 0..90 {
        editor.prompt(&session, &long).result();
    }
    editor.prompt(&session, "/history").result();
    let longest = editor.received.iter().map(String::len).max().unwrap();
    assert!((LINE_BYTES / 2..LINE_BYTES).contains(&longest), "{longest}");
}

#[test]
fn a_hundred_at_once() {
    const EDITORS: usize = 100;
    let home = Home::new();
    let _daemon = home.start();
    let mut editors: Vec<Editor> = (0..EDITORS)
        .map(|_| Editor::spawn(&mut command(&home, &[])))
        .collect();
    for editor in &mut editors {
        editor.begin(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": {}}),
        );
        let params = json!({"cwd": home.project(), "mcpServers": []});
        editor.begin("session/new", params);
    }
    let prompts: Vec<(String, u64)> = editors
        .iter_mut()
        .map(|editor| {
            let made = editor.finish(editor.next_id - 1);
            let session = made.session_id();
            let prompt = editor.begin_prompt(&session, &format!("for {session}"));
            (session, prompt)
        })
        .collect();
    for (editor, (session, prompt)) in editors.iter_mut().zip(&prompts) {
        let answered = editor.finish(*prompt);
        ended_well(&answered, &format!("echo: for {session}"));
        let mut updates = answered.before.iter();
        assert!(updates.all(|update| update["params"]["sessionId"] == session.as_str()));
    }
}
