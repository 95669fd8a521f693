//! What the agent learns about the editor, and which editors share an agent process.

use serde_json::json;

use super::editor::{Editor, command, run};
use super::recorder::Recorder;
use crate::home::Home;

/// An editor with this name that can show forms and open pages.
fn editor(home: &Home, name: &str) -> Editor {
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    let info = json!({"name": name, "version": "1"});
    let params = json!({"clientCapabilities": capabilities, "clientInfo": info});
    Editor::initialized(&mut command(home, &[]), params).0
}

#[test]
fn capabilities_and_name_of_an_editor_reach_the_agent_byte_for_byte() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = Editor::spawn(&mut command(&home, &[]));
    let capabilities =
        r#"{"fs": {"readTextFile":true}, "_meta":{"n":1.50},"elicitation":{"form":{},"url":{ }}}"#;
    let info = r#"{"name":"raw" , "version":"1\u0031","of tomorrow":9007199254740993}"#;
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{capabilities},"clientInfo":{info}}}}}"#
    ));
    editor.finish(1).result();
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    assert_eq!(recorder.arguments(), ["configured"]);
    let sent = &recorder.lines_for("raw")[0];
    for part in [
        format!(r#""clientCapabilities":{capabilities}"#),
        format!(r#""clientInfo":{info}"#),
    ] {
        assert!(sent.contains(&part), "{sent}");
    }

    // The daemon advertises elicitations even if this editor cannot show them, because other clients can
    // answer them.
    let info = json!({"name": "plain", "version": "1"});
    let params = json!({"clientCapabilities": {"terminal": true}, "clientInfo": info});
    let (mut editor, _) = Editor::initialized(&mut command(&home, &[]), params);
    editor.new_session(&home);
    let sent = &recorder.lines_for("plain")[0];
    let capabilities = r#""clientCapabilities":{"terminal":true,"elicitation":{"form":{},"url":{}}}"#;
    assert!(sent.contains(capabilities), "{sent}");
}

#[test]
fn only_editors_with_equal_names_and_capabilities_share_a_process() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut one = editor(&home, "one");
    one.new_session(&home);
    let mut equal = editor(&home, "one");
    equal.new_session(&home);
    assert_eq!(recorder.processes(), 1);
    let mut other = editor(&home, "other");
    other.new_session(&home);
    assert_eq!(recorder.processes(), 2);
    run(&home, &["send", "--new", "from the terminal"]);
    assert_eq!(recorder.processes(), 3);
    assert_eq!(recorder.prompts_for("sessiond"), ["from the terminal"]);
}

/// `_meta` may differ with each connection, for example for tracing.
#[test]
fn the_meta_of_an_editor_does_not_decide_who_shares_a_process() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let traced = |trace: &str| {
        let info = json!({"name": "traced", "version": "1"});
        let params = json!({"clientCapabilities": {}, "clientInfo": info, "_meta": {"traceparent": trace}});
        Editor::initialized(&mut command(&home, &[]), params).0
    };
    let mut one = traced("one");
    let session = one.new_session(&home);
    let mut other = traced("other");
    other.new_session(&home);
    other.on("session/load", &session, &home).result();
    assert_eq!(recorder.processes(), 1);
    let sent = recorder.lines_for("traced");
    assert!(
        sent[0].contains(r#""_meta":{"traceparent":"one"}"#),
        "{}",
        sent[0]
    );
    assert!(
        !sent
            .iter()
            .any(|line| line.contains(r#""method":"session/resume""#)),
        "{sent:?}"
    );
}

#[test]
fn a_session_runs_for_the_editor_that_opened_it_last() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut one = editor(&home, "one");
    let session = one.new_session(&home);
    one.prompt(&session, "first").result();
    let mut other = editor(&home, "other");
    other.on("session/load", &session, &home).result();
    // The session has moved to the other editor's process. Clients that only use the session do not move it
    // back.
    let id = one.begin_prompt(&session, "second");
    let said = one.finish(id);
    assert_eq!(said.texts("agent_message_chunk"), ["echo: second"]);
    run(&home, &["send", &session, "third"]);
    assert_eq!(recorder.prompts_for("one"), ["first"]);
    assert_eq!(recorder.prompts_for("other"), ["second", "third"]);

    // A fork runs for the editor that requested it.
    let mut last = editor(&home, "last");
    let branch = last.on("session/fork", &session, &home);
    let branch = branch.session_id();
    last.prompt(&branch, "in the branch").result();
    assert_eq!(recorder.prompts_for("last"), ["in the branch"]);
}

#[test]
fn a_session_stays_where_it_is_while_a_turn_runs() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut one = editor(&home, "one");
    let session = one.new_session(&home);
    let turn = one.begin_prompt(&session, "[[say begun]] [[ask may I]] [[say ended]]");
    let asked = one.until_permission_asked();
    let mut other = editor(&home, "other");
    other.on("session/resume", &session, &home).result();
    one.allow(&asked);
    assert_eq!(one.finish(turn).result()["stopReason"], "end_turn");
    one.prompt(&session, "next").result();
    assert_eq!(recorder.prompts_for("one").len(), 2);
    assert!(recorder.prompts_for("other").is_empty());
}
