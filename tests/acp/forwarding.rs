//! The agent reads and writes files through the editor, and uses the editor's terminals.

use serde_json::{Value, json};

use super::editor::{Editor, sessionctl};
use super::recorder::Recorder;
use crate::home::Home;

/// An editor that offers files and terminals.
fn capable(home: &Home) -> Editor {
    let files = json!({"readTextFile": true, "writeTextFile": true});
    Editor::with(home, json!({"fs": files, "terminal": true}))
}

const READ: &str = r#"[[call fs/read_text_file {"path":"/a", "line":1e0}]]"#;

/// The agent's last message in a turn, as JSON.
fn said(editor: &mut Editor, turn: u64) -> Value {
    let answered = editor.finish(turn);
    assert_eq!(answered.result()["stopReason"], "end_turn", "{answered:?}");
    serde_json::from_str(answered.texts("agent_message_chunk").last().unwrap()).unwrap()
}

#[test]
fn files_and_terminals_are_those_of_the_editor() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = capable(&home);
    let session = editor.new_session(&home);
    let turn = editor.begin_prompt(&session, READ);
    // Requests and answers are forwarded byte for byte, except for the session's id.
    let asked = loop {
        let line = editor.next_line();
        if line.contains("fs/read_text_file") {
            break line;
        }
    };
    assert!(asked.contains(r#""path":"/a","line":1e0"#), "{asked}");
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked["params"]["sessionId"], session.as_str());
    let result = r#"{ "content":"one\u0021","_meta":{"n":1.50} }"#;
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        asked["id"]
    ));
    assert_eq!(said(&mut editor, turn)["content"], "one!");
    let turn = editor.begin_prompt(&session, READ);
    let asked = editor.until_asked("fs/read_text_file");
    let error = r#"{"code":-32002,"message":"n\u006f", "data":{"uri": 1.0},"more":1}"#;
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
        asked["id"]
    ));
    assert_eq!(said(&mut editor, turn)["message"], "no");
    let sent = recorder.all_lines().join("\n");
    assert!(sent.contains(&format!(r#""result":{result}}}"#)), "{sent}");
    assert!(sent.contains(&format!(r#""error":{error}}}"#)), "{sent}");

    for (method, params, result) in [
        (
            "fs/write_text_file",
            json!({"path": "/b", "content": "x"}),
            json!(null),
        ),
        (
            "terminal/create",
            json!({"command": "ls"}),
            json!({"terminalId": "t"}),
        ),
        (
            "terminal/output",
            json!({"terminalId": "t"}),
            json!({"output": "o", "truncated": false}),
        ),
        (
            "terminal/wait_for_exit",
            json!({"terminalId": "t"}),
            json!({"exitCode": 0}),
        ),
        ("terminal/kill", json!({"terminalId": "t"}), json!({})),
        ("terminal/release", json!({"terminalId": "t"}), json!({})),
    ] {
        let turn = editor.begin_prompt(&session, &format!("[[call {method} {params}]]"));
        let asked = editor.until_asked(method);
        editor.answer(&asked, result.clone());
        assert_eq!(said(&mut editor, turn), result, "{method}");
    }
    // The terminal has been released.
    let turn = editor.begin_prompt(&session, r#"[[call terminal/output {"terminalId":"t"}]]"#);
    assert_eq!(said(&mut editor, turn)["code"], -32603);
}

#[test]
fn an_agent_is_offered_only_what_its_editor_advertises() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::with(&home, json!({"fs": {"writeTextFile": true}}));
    let session = editor.new_session(&home);
    let turn = editor.begin_prompt(&session, READ);
    assert_eq!(said(&mut editor, turn)["code"], -32601);
    let call = r#"[[call terminal/create {"command":"ls"}]]"#;
    let turn = editor.begin_prompt(&session, call);
    assert_eq!(said(&mut editor, turn)["code"], -32601);
}

#[test]
fn requests_go_to_the_editor_that_runs_the_turn() {
    let home = Home::new();
    let _daemon = home.start();
    let mut one = capable(&home);
    let session = one.new_session(&home);
    let mut other = capable(&home);
    other.on("session/resume", &session, &home).result();
    for _ in 0..2 {
        let turn = one.begin_prompt(&session, READ);
        let asked = one.until_asked("fs/read_text_file");
        one.answer(&asked, json!({"content": "one"}));
        assert_eq!(said(&mut one, turn), json!({"content": "one"}));
        let turn = other.begin_prompt(&session, READ);
        let asked = other.until_asked("fs/read_text_file");
        other.answer(&asked, json!({"content": "other"}));
        assert_eq!(said(&mut other, turn), json!({"content": "other"}));
    }
    // A terminal belongs to the editor that created it, whichever client runs the turn.
    let turn = one.begin_prompt(&session, r#"[[call terminal/create {"command":"ls"}]]"#);
    let asked = one.until_asked("terminal/create");
    one.answer(&asked, json!({"terminalId": "t"}));
    said(&mut one, turn);
    let turn = other.begin_prompt(&session, r#"[[call terminal/output {"terminalId":"t"}]]"#);
    let asked = one.until_asked("terminal/output");
    one.answer(&asked, json!({"output": "", "truncated": false}));
    assert_eq!(said(&mut other, turn)["output"], "");

    // If the client that runs the turn offers no files, those of another client are used, or none.
    let sending = sessionctl(&home, &["send", "--json", &session, READ]);
    let sending = std::thread::spawn(move || { sending }.output().unwrap());
    let (first, second) = (&mut one, &mut other);
    let asked = second.until(|message| {
        message["method"] == "fs/read_text_file" || message["params"]["update"]["content"]["text"] == READ
    });
    let asked = match asked.last().unwrap()["method"] == "fs/read_text_file" {
        true => asked.last().unwrap().clone(),
        false => second.until_asked("fs/read_text_file"),
    };
    second.answer(&asked, json!({"content": "shared"}));
    assert!(sending.join().unwrap().status.success());
    first.close(&session).result();
    second.close(&session).result();
    // Now the agent runs for the daemon, which offers neither files nor terminals.
    let sent = sessionctl(&home, &["send", &session, READ]).output().unwrap();
    let printed = String::from_utf8_lossy(&sent.stdout);
    assert!(printed.contains("-32601"), "{sent:?}");
}

#[test]
fn an_agent_waits_for_no_editor_that_has_left_or_closed_the_session() {
    let home = Home::new();
    let _daemon = home.start();
    for leave in [Editor::kill, |editor: Editor| assert!(editor.end().0.success())] {
        let mut editor = capable(&home);
        let session = editor.new_session(&home);
        editor.begin_prompt(&session, READ);
        editor.until_asked("fs/read_text_file");
        // The watcher offers no files, and sees the answer that the agent received.
        let mut watcher = Editor::start(&home);
        watcher.on("session/resume", &session, &home).result();
        leave(editor);
        watcher.until(|message| {
            let text = message["params"]["update"]["content"]["text"].as_str();
            text.is_some_and(|text| text.contains("-32800"))
        });
    }
    let mut editor = capable(&home);
    let session = editor.new_session(&home);
    let turn = editor.begin_prompt(&session, READ);
    editor.until_asked("fs/read_text_file");
    let close = editor.begin("session/close", json!({"sessionId": session}));
    editor.until(|message| message["id"] == turn);
    editor.finish(close).result();
}

#[test]
fn a_cancelled_turn_withdraws_its_requests() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = capable(&home);
    let session = editor.new_session(&home);
    let turn = editor.begin_prompt(&session, READ);
    let asked = editor.until_asked("fs/read_text_file");
    editor.cancel(&session);
    let cancelled = editor.finish(turn);
    assert_eq!(cancelled.result()["stopReason"], "cancelled");
    let mut withdrawn = cancelled.before.iter();
    let withdrawn = withdrawn.find(|message| message["method"] == "$/cancel_request");
    assert_eq!(withdrawn.unwrap()["params"]["requestId"], asked["id"]);
    // A late answer is ignored.
    editor.answer(&asked, json!({"content": "late"}));
    let turn = editor.begin_prompt(&session, READ);
    let asked = editor.until_asked("fs/read_text_file");
    editor.answer(&asked, json!({"content": "new"}));
    assert_eq!(said(&mut editor, turn), json!({"content": "new"}));
}

#[test]
fn any_number_of_sessions_ask_at_once() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = capable(&home);
    let sessions: Vec<String> = (0..8).map(|_| editor.new_session(&home)).collect();
    let turns: Vec<u64> = sessions
        .iter()
        .map(|session| editor.begin_prompt(session, READ))
        .collect();
    let mut asked: Vec<Value> = sessions
        .iter()
        .map(|_| editor.until_asked("fs/read_text_file"))
        .collect();
    asked.reverse();
    for asked in &asked {
        editor.answer(asked, json!({"content": asked["params"]["sessionId"]}));
    }
    let mut open = turns;
    while !open.is_empty() {
        let ended = editor
            .until(|message| open.iter().any(|turn| message["id"] == *turn))
            .pop();
        let ended = ended.unwrap();
        assert_eq!(ended["result"]["stopReason"], "end_turn");
        open.retain(|turn| ended["id"] != *turn);
    }
}
