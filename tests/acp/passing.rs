//! What the protocol does not name passes between editor and agent byte for byte.

use serde_json::json;

use super::editor::{Editor, sessionctl};
use super::recorder::Recorder;
use crate::home::Home;

/// Members that no version of the protocol names, in an order and with numbers that a decoder would change.
const UNNAMED: &str = r#""_meta":{"z":1.50,"a":9007199254740993},"of tomorrow":[1E+2]"#;

/// Whether a line has them; to `_meta` the daemon adds members of its own.
fn has_unnamed(line: &str) -> bool {
    [r#""z":1.50,"a":9007199254740993"#, r#""of tomorrow":[1E+2]"#]
        .iter()
        .all(|part| line.contains(part))
}

#[test]
fn unnamed_parameters_reach_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let folder = json!(home.path());
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":801,"method":"session/new","params":{{"cwd":{folder},"mcpServers":[],{UNNAMED}}}}}"#
    ));
    let session = editor.finish(801).result()["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let prompt = |id: u64, text: &str, members: &str| {
        let prompt = json!([{"type": "text", "text": text}]);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":{prompt},{members}}}}}"#
        )
    };
    editor.line(&prompt(802, "one", UNNAMED));
    editor.finish(802).result();
    // What is meant for the daemon is not the agent's.
    editor.line(&prompt(803, "two", r#""_meta":{"sessiond":{}},"tomorrow":1.0"#));
    editor.finish(803).result();
    // A session that is opened again is opened as it was.
    let closed = sessionctl(&home, &["close", &session]).output().unwrap();
    assert!(closed.status.success(), "{closed:?}");
    editor.prompt(&session, "three").result();

    let lines = recorder.all_lines();
    let sent = |method: &str| {
        let method = format!(r#""method":"{method}""#);
        let sent = lines.iter().filter(|line| line.contains(&method));
        sent.cloned().collect::<Vec<String>>()
    };
    for method in ["session/new", "session/resume"] {
        let opened = sent(method);
        assert!(!opened.is_empty(), "{method}: {lines:#?}");
        assert!(opened.iter().all(|line| has_unnamed(line)), "{opened:#?}");
    }
    let is_prompt = |text: &str| {
        let text = format!(r#""text":"{text}""#);
        sent("session/prompt")
            .into_iter()
            .find(|line| line.contains(&text))
            .unwrap()
    };
    assert!(has_unnamed(&is_prompt("one")), "{lines:#?}");
    assert!(is_prompt("two").contains(r#""tomorrow":1.0"#), "{lines:#?}");
    assert!(!is_prompt("two").contains("sessiond"), "{lines:#?}");
}

#[test]
fn unnamed_members_of_answers_reach_the_editor() {
    let home = Home::new();
    let script = format!(r#"s/"result":{{/"result":{{{UNNAMED},/"#);
    let _recorder = Recorder::filtered(&home, &format!("sed -u '{script}'"));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.new_session(&home);
    let opened = editor.received.last().unwrap().clone();
    assert!(has_unnamed(&opened), "{opened}");
    let session: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let session = session["result"]["sessionId"].as_str().unwrap().to_owned();
    editor.prompt(&session, "one").result();
    let ended = editor.received.last().unwrap();
    assert!(has_unnamed(ended), "{ended}");
}

/// An edit by a command keeps what is attached to it.
#[test]
fn what_is_attached_to_an_edit_reaches_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    let attached = json!({"type": "resource_link", "uri": "file:///notes.md", "name": "notes.md"});
    let prompt = json!([{"type": "text", "text": "/edit 1 two"}, attached]);
    let edited = editor.call("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(edited.result()["stopReason"], "end_turn");
    let lines = recorder.all_lines();
    let edit = lines
        .iter()
        .find(|line| line.contains(r#""text":"two""#))
        .unwrap();
    assert!(edit.contains("file:///notes.md"), "{edit}");
}
