//! What the daemon adds to the protocol, and private extensions of some clients, which it provides for the
//! sessions of every agent.

use serde_json::{Value, json};

use super::Home;
use super::editor::{Answered, Editor, command, run};

/// The capabilities of a client that knows the daemon's extensions.
fn app() -> Value {
    json!({"_meta": {"sessiond": {}}})
}

/// The newest checkpoint in the list of `sessionctl`.
fn newest_checkpoint(home: &Home, session: &str) -> Value {
    let output = run(home, &["checkpoints", "--json", session]);
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    page["checkpoints"][0]["id"].clone()
}

fn said(answered: &Answered) -> String {
    answered.result();
    answered.said()
}

/// The ids of the agent's messages in a load.
fn messages(home: &Home, session: &str) -> Vec<Value> {
    let loaded = Editor::start(home).on("session/load", session, home);
    let updates = loaded.updates().into_iter();
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.map(|chunk| chunk["messageId"].clone()).collect()
}

fn fork(editor: &mut Editor, home: &Home, session: &str, meta: Value) -> Answered {
    let params = json!({"sessionId": session, "cwd": home.project(), "mcpServers": [], "_meta": meta});
    editor.call("session/fork", params)
}

#[test]
fn an_app_is_told_the_checkpoint_of_each_turn_and_edits_there() {
    let home = Home::new();
    let _daemon = home.start();
    let params = json!({"clientCapabilities": app()});
    let (mut editor, about) = Editor::initialized(&mut command(&home, &[]), params);
    let extras = &about["agentCapabilities"]["_meta"]["sessiond"];
    assert_eq!(
        extras["prompt"],
        json!({"edit": {}, "checkpointId": {}}),
        "{extras}"
    );
    let session = editor.new_session(&home);
    let mut checkpoints = Vec::new();
    for text in ["one", "two", "three"] {
        let answered = editor.prompt(&session, text);
        let extras = answered.result()["_meta"]["sessiond"].clone();
        assert!(extras["turnId"].is_string(), "{extras}");
        assert_eq!(extras["checkpointId"], newest_checkpoint(&home, &session));
        checkpoints.push(extras["checkpointId"].clone());
    }
    let edit = |at: &Value, text: &str| {
        json!({
            "sessionId": session, "prompt": [{"type": "text", "text": text}], "_meta": {"sessiond": {"edit": at}},
        })
    };
    let edited = editor.call("session/prompt", edit(&checkpoints[1], "another"));
    assert_eq!(said(&edited), "echo: another");
    assert_eq!(edited.texts("user_message_chunk"), [] as [&str; 0]);
    assert_eq!(
        edited.result()["_meta"]["sessiond"]["checkpointId"],
        newest_checkpoint(&home, &session)
    );
    assert_eq!(editor.recalled(&session), ["one", "another"]);
    let refused = editor.call("session/prompt", edit(&json!("none"), "x"));
    assert_eq!(refused.code(), -32602);
    let refused = editor.call("session/prompt", edit(&json!(7), "x"));
    assert_eq!(refused.code(), -32602);
}

#[test]
fn a_client_of_jetbrains_forks_at_a_message() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "[[say same]]", "[[say same]]", "four"] {
        editor.prompt(&session, text).result();
    }
    let ids = messages(&home, &session);
    let point = |point: Value| json!({"jetbrains": {"air": {"fork": point}}});
    let part = format!("{}:segment:2", ids[1].as_str().unwrap());
    // The SHA-256 hash of "same".
    let same = "sha256:0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5";
    for (place, turns) in [
        (json!({"version": 1, "messageId": ids[0]}), 1),
        (json!({"version": 1, "messageId": part}), 2),
        (
            json!({"version": 1, "messageId": "live", "messageFingerprint": same, "messageOccurrence": 2}),
            3,
        ),
        (json!({"version": 2, "messageId": ids[0]}), 4),
    ] {
        let forked = fork(&mut editor, &home, &session, point(place.clone()));
        let branch = forked.session_id();
        assert_eq!(editor.recalled(&branch).len(), turns, "{place}");
    }
    for wrong in [
        json!({"version": 1, "messageId": "none"}),
        json!({"version": 1}),
        json!({"version": 1, "messageId": "live", "messageFingerprint": same, "messageOccurrence": 3}),
    ] {
        let refused = fork(&mut editor, &home, &session, point(wrong.clone()));
        assert_eq!(refused.code(), -32602, "{wrong}");
    }
}

#[test]
fn a_client_of_jetbrains_is_told_that_a_replay_has_ended() {
    let home = Home::new();
    let _daemon = home.start();
    let wanted = json!({"_meta": {"jetbrains": {"air": {"version": 1, "capabilities": ["loadReplayEnd"]}}}});
    let mut editor = Editor::with(&home, wanted);
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    let loaded = editor.on("session/load", &session, &home);
    let kinds = loaded.kinds();
    let expected = [
        "user_message_chunk",
        "agent_message_chunk",
        "session_info_update",
        "available_commands_update",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        *loaded.updates()[2],
        json!({
            "sessionUpdate": "session_info_update",
            "_meta": {"jetbrains": {"air": {"version": 1, "loadReplayEnd": true}}},
        })
    );
}

/// serde can also decode a struct from an array.
#[test]
fn an_array_is_no_object() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let new = json!({"cwd": home.project(), "mcpServers": [], "_meta": {"sessiond": ["loopback"]}});
    let prompt = json!([session, [{"type": "text", "text": "one"}]]);
    for (method, params) in [
        ("session/new", new),
        ("session/new", json!([home.project(), []])),
        ("session/prompt", prompt),
        ("session/list", json!([home.project()])),
    ] {
        assert_eq!(
            editor.call(method, params.clone()).code(),
            -32602,
            "{method} {params}"
        );
    }
}
