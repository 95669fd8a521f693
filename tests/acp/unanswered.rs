//! A request that the agent leaves unanswered delays no request that does not need its answer.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::editor::{Editor, eventually, run, sessionctl, show};
use crate::gate::Gate;
use crate::home::Home;
use crate::scripted;

/// Starts to set a mode as another client. The agent leaves the request unanswered until the gate is opened.
pub(super) fn begin_held_setting(home: &Home, session: &str, gate: &Gate) -> Child {
    gate.hold("session/set_mode");
    let setting = sessionctl(home, &["set", session, "mode=plan"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    gate.wait_until_held();
    setting
}

/// Loads the session in another editor, which needs the agent to be started again, and in its own. Lists and reads the
/// session, and cancels a waiting prompt.
fn check_other_requests(home: &Home, editor: &mut Editor, session: &str) {
    let mut other = Editor::with(home, json!({"fs": {"readTextFile": true}}));
    for editor in [&mut other, &mut *editor] {
        let loaded = editor.on("session/load", session, home);
        assert_eq!(loaded.texts("agent_message_chunk")[..1], ["echo: one"]);
        let listed = editor.call("session/list", json!({}));
        assert_eq!(listed.result()["sessions"].as_array().unwrap().len(), 1);
    }
    run(home, &["history", session]);
    let waiting = editor.begin_prompt(session, "waits");
    editor.cancel(session);
    assert_eq!(editor.finish(waiting).result()["stopReason"], "cancelled");
}

#[test]
fn an_unanswered_fork_delays_no_other_request() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    gate.hold("session/fork");
    let fork = editor.begin_on("session/fork", &session, &home);
    gate.wait_until_held();
    check_other_requests(&home, &mut editor, &session);
    gate.open();
    let branch = editor.finish(fork).session_id();
    assert_eq!(editor.recalled(&branch), ["one"]);
    assert_eq!(editor.recalled(&session), ["one"]);
}

#[test]
fn an_unanswered_setting_delays_no_other_request() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    gate.hold("session/set_mode");
    let mode = json!({"sessionId": session, "modeId": "plan"});
    let setting = editor.begin("session/set_mode", mode);
    gate.wait_until_held();
    check_other_requests(&home, &mut editor, &session);
    // The editor's next setting follows the first.
    let model = json!({"sessionId": session, "configId": "model", "value": "loop-2"});
    let next = editor.begin("session/set_config_option", model);
    editor.call("session/list", json!({})).result();
    gate.open();
    assert_eq!(editor.finish(setting).result(), &json!({}));
    editor.finish(next).result();
    let said = editor.prompt(&session, "[[settings]]").said();
    assert!(said.contains("loop-2") && said.contains("plan"), "{said}");
}

#[test]
fn a_question_is_answered_while_a_setting_is_unanswered() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let turn = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    editor.until_permission_asked();
    let mut setting = begin_held_setting(&home, &session, &gate);
    editor.on("session/load", &session, &home).result();
    run(&home, &["answer", &session, "allow"]);
    assert_eq!(show(&home, &session)["state"], "prompting");
    gate.open();
    assert_eq!(editor.finish(turn).said(), "done");
    assert!(setting.wait().unwrap().success());
}

#[test]
fn a_turn_is_cancelled_while_a_setting_is_unanswered() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    scripted::answer(&home, &json!({"session/set_mode": {"silent": true}}));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let turn = editor.begin_prompt(&session, &format!("{}\nhold", scripted::chunk("begun")));
    editor.until_said("begun");
    editor.begin(
        "session/set_mode",
        json!({"sessionId": session, "modeId": "full"}),
    );
    eventually(|| is_asked(&home, "session/set_mode"));
    editor.cancel(&session);
    assert_eq!(editor.finish(turn).result()["stopReason"], "cancelled");
}

/// Whether the scripted agent was sent such a request.
fn is_asked(home: &Home, method: &str) -> bool {
    let heard = scripted::heard_lines(home, "scripted");
    heard
        .iter()
        .any(|line| line.contains(&format!("\"method\":\"{method}\"")))
}

#[test]
fn a_command_that_makes_a_branch_is_cancelled_while_the_agent_makes_it() {
    for ending in ["session/cancel", "session/close"] {
        let (home, gate) = Gate::home();
        let _daemon = home.start();
        let (mut editor, session) = Editor::after_one_turn(&home);
        gate.hold("session/fork");
        let fork = editor.begin_prompt(&session, "/fork");
        gate.wait_until_held();
        match ending {
            "session/cancel" => editor.cancel(&session),
            _ => drop(editor.begin(ending, json!({"sessionId": session}))),
        }
        assert_eq!(
            editor.finish(fork).result()["stopReason"],
            "cancelled",
            "{ending}"
        );
        gate.open();
    }
}

/// The mode is recorded even though the client got an error for it and has changed another setting since.
#[test]
fn a_setting_that_the_agent_accepts_late_is_recorded() {
    let configured = scripted::configured(
        "scripted",
        Some(r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#),
    );
    let home = Home::with_config(&format!("[limits]\nsession_open_ms = 2000\n{configured}"));
    let modes = json!({"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"}, {"id": "full", "name": "Full"}]});
    scripted::answer(
        &home,
        &json!({"session/new": {"result": {"modes": modes}}, "session/set_mode": {"silent": true}}),
    );
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let refused = editor.call(
        "session/set_mode",
        json!({"sessionId": session, "modeId": "full"}),
    );
    let why = refused.answer["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("mode = full") && why.contains("sessionctl close"),
        "{why}"
    );
    assert_eq!(show(&home, &session)["settings"]["mode"], "default");
    let option = json!({"sessionId": session, "configId": "tone", "value": "rich"});
    editor.call("session/set_config_option", option).result();
    let heard = scripted::heard(&home, "scripted");
    let asked = heard
        .iter()
        .find(|line| line["method"] == "session/set_mode")
        .unwrap();
    let late = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}});
    editor.prompt(&session, &late.to_string()).result();
    assert_eq!(show(&home, &session)["settings"]["mode"], "full");
    let opened = editor.on("session/resume", &session, &home);
    assert_eq!(opened.result()["modes"]["currentModeId"], Value::from("full"));
}
