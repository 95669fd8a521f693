//! Which turns a cancellation ends when several clients have the same conversation open.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::editor::{Editor, Stalled, eventually, run};
use super::recorder::Recorder;
use crate::gate::Gate;
use crate::home::Home;
use crate::scripted;

/// Starts two editors that have the same session open.
fn shared(home: &Home) -> (Editor, Editor, String) {
    let (mut one, mut other) = (Editor::start(home), Editor::start(home));
    let session = one.new_session(home);
    other.on("session/resume", &session, home).result();
    (one, other, session)
}

/// A pipe that the agent reads after it has answered a cancelled prompt.
struct Pipe(PathBuf);

impl Pipe {
    fn in_home(home: &Home) -> Self {
        let pipe = home.path().join("answered");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        Self(pipe)
    }

    fn open(&self) {
        fs::write(&self.0, "now\n").unwrap();
    }
}

#[test]
fn equal_prompts_of_two_clients_are_told_apart() {
    const SAME: &str = "[[say same]] [[hang]]";
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other, session) = shared(&home);
    for ending in ["session/cancel", "session/close"] {
        let first = one.begin_prompt(&session, "[[ask may I]]");
        let asked = one.until_permission_asked();
        let of_other = other.begin_prompt(&session, SAME);
        // Requests are handled in order, so once the next one is answered, this prompt is in the queue.
        other.prompt(&session, "/history").result();
        let own = one.begin_prompt(&session, SAME);
        one.prompt(&session, "/history").result();
        one.allow(&asked);
        one.finish(first).result();
        one.until_said(SAME);
        one.until_said("same");
        other.cancel(&session);
        assert_eq!(other.finish(of_other).result()["stopReason"], "cancelled");
        let messages = one.until(|message| message["params"]["update"]["content"]["text"] == "same");
        let echoed = messages
            .iter()
            .any(|message| message["params"]["update"]["content"]["text"] == SAME);
        assert!(
            !echoed,
            "the editor's own prompt was sent back to it: {messages:?}"
        );
        match ending {
            "session/cancel" => one.cancel(&session),
            _ => drop(one.begin(ending, json!({"sessionId": session}))),
        }
        assert_eq!(one.finish(own).result()["stopReason"], "cancelled", "{ending}");
    }
}

#[test]
fn of_two_prompts_only_the_cancelled_one_ends() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let first = editor.begin_prompt(&session, "[[ask may I]] [[say one]]");
    let asked = editor.until_permission_asked();
    let second = editor.begin_prompt(&session, "two");
    let third = editor.begin_prompt(&session, "/history");
    editor.finish(third).result();
    for prompt in [second, third] {
        editor.notify("$/cancel_request", json!({"requestId": prompt}));
    }
    assert_eq!(editor.finish(second).result()["stopReason"], "cancelled");
    editor.allow(&asked);
    let answered = editor.finish(first);
    assert_eq!(answered.result()["stopReason"], "end_turn");
    assert_eq!(answered.texts("agent_message_chunk"), ["one"]);
}

#[test]
fn a_cancel_ends_all_prompts_of_the_editor_and_none_that_waits_for_another_client() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other, session) = shared(&home);
    let first = one.begin_endless(&session);
    let of_other = other.begin_prompt(&session, "other");
    other.prompt(&session, "/history").result();
    let last = one.begin_prompt(&session, "last");
    one.prompt(&session, "/history").result();
    one.cancel(&session);
    let mut stopped = Vec::new();
    one.until(|message| {
        let is_one = message["id"] == first || message["id"] == last;
        stopped.extend(is_one.then(|| message["result"]["stopReason"].clone()));
        stopped.len() == 2
    });
    assert_eq!(stopped, ["cancelled", "cancelled"]);
    let answered = other.finish(of_other);
    assert_eq!(answered.result()["stopReason"], "end_turn");
    assert_eq!(answered.texts("agent_message_chunk").last(), Some(&"echo: other"));
}

#[test]
fn a_cancel_ends_the_turn_that_the_editor_sees() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other, session) = shared(&home);
    let of_other = other.begin_prompt(&session, "[[say begun]] [[hang]]");
    one.until_said("begun");
    one.cancel(&session);
    assert_eq!(other.finish(of_other).result()["stopReason"], "cancelled");
    // The same applies to a turn that was running before the editor opened the session.
    let of_other = other.begin_prompt(&session, "[[say again]] [[hang]]");
    other.until_said("again");
    let mut late = Editor::start(&home);
    late.on("session/resume", &session, &home).result();
    late.cancel(&session);
    assert_eq!(other.finish(of_other).result()["stopReason"], "cancelled");
}

#[test]
fn a_cancel_ends_a_turn_of_another_editor_of_which_only_the_prompt_was_shown() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other, session) = shared(&home);
    one.prompt(&session, "first").result();
    // The agent sends no update in this turn, so the other editor sees only the prompt.
    let silent = one.begin_prompt(&session, "[[hang]]");
    other.until_said("[[hang]]");
    other.cancel(&session);
    assert_eq!(one.finish(silent).result()["stopReason"], "cancelled");
}

/// A user cannot mean to cancel a turn that the editor does not show.
#[test]
fn a_late_cancel_leaves_a_turn_of_another_client_that_the_editor_was_not_shown() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut one, mut other, session) = shared(&home);
    other.prompt(&session, "first").result();
    // The session is being opened, so no agent has the prompt.
    run(&home, &["close", &session]);
    gate.hold("session/resume");
    let opening = one.begin_prompt(&session, "[[say ran]]");
    gate.wait_until_held();
    other.cancel(&session);
    other.call("session/list", json!({})).result();
    gate.open();
    let ended = one.finish(opening);
    assert_eq!(ended.result()["stopReason"], "end_turn");
    assert!(ended.said().ends_with("ran"), "{ended:?}");
}

/// The protocol requires this, whatever the agent answers.
#[test]
fn a_cancelled_prompt_that_the_agent_answers_with_an_error_was_cancelled() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    for error in [
        json!({"code": -32603, "message": "the request was aborted"}),
        json!({"code": -32000, "message": "sign in first"}),
    ] {
        let refusal = format!(r#"{{"jsonrpc":"2.0","id":$P,"error":{error}}}"#);
        let script = format!("{}\nhold\ninstead {refusal}", scripted::chunk("begun"));
        let prompt = editor.begin_prompt(&session, &script);
        editor.until_said("begun");
        editor.cancel(&session);
        assert_eq!(
            editor.finish(prompt).result()["stopReason"],
            "cancelled",
            "{error}"
        );
    }
}

#[test]
fn nothing_follows_the_answer_to_a_cancelled_prompt() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session_of("scripted", &home);
    other.on("session/resume", &session, &home).result();
    let pipe = Pipe::in_home(&home);
    let script = format!(
        "{}\nhold\nuntil answered\n{}",
        scripted::chunk("begun"),
        scripted::chunk("late")
    );
    let prompt = one.begin_prompt(&session, &script);
    one.until_said("begun");
    one.cancel(&session);
    assert_eq!(one.finish(prompt).result()["stopReason"], "cancelled");
    pipe.open();
    other.until_said("late");
    let listed = one.call("session/list", json!({}));
    assert_eq!(listed.before, [] as [Value; 0]);
    // The next request about the session releases the update.
    let answered = one.prompt(&session, &scripted::chunk("next"));
    assert_eq!(answered.texts("agent_message_chunk"), ["late", "next"]);
}

#[test]
fn a_change_by_another_client_is_reported_right_after_a_cancelled_prompt() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let prompt = editor.begin_endless(&session);
    editor.cancel(&session);
    assert_eq!(editor.finish(prompt).result()["stopReason"], "cancelled");
    run(&home, &["reset", &session]);
    editor.until(|message| {
        let text = message["params"]["update"]["content"]["text"].as_str();
        text.is_some_and(|text| text.contains("Another client reset this conversation"))
    });
}

#[test]
fn what_is_held_back_is_bounded_for_all_sessions_of_an_editor() {
    let configured = scripted::configured("scripted", None);
    let home = Home::with_config(&format!("[limits]\nsubscriber_events = 64\n{configured}"));
    let _daemon = home.start();
    let pipe = Pipe::in_home(&home);
    let mut editor = Editor::start(&home);
    for name in ["one", "two"] {
        let session = editor.new_session_of("scripted", &home);
        let mut script = format!("{}\nhold\nuntil answered\n", scripted::chunk("begun"));
        for late in 1..=40 {
            script += &scripted::chunk(&format!("{name} {late}"));
            script.push('\n');
        }
        let prompt = editor.begin_prompt(&session, &script);
        editor.until_said("begun");
        editor.cancel(&session);
        assert_eq!(editor.finish(prompt).result()["stopReason"], "cancelled");
        pipe.open();
    }
    editor.until_said("two 40");
}

/// The filter in front of the built-in agent delays one chunk until after the answer to the cancelled prompt.
#[test]
fn what_was_held_back_is_not_sent_again_after_a_load() {
    let home = Home::new();
    let pipe = Pipe::in_home(&home);
    let filter = format!(
        r#"while IFS= read -r line; do case $line in *'"text":"late"'*) late=$line;;
        *'"stopReason":"cancelled"'*) printf '%s\n' "$line"; read -r _ < '{}'; printf '%s\n' "$late";;
        *) printf '%s\n' "$line";; esac; done"#,
        pipe.0.display()
    );
    let _recorder = Recorder::filtered(&home, &filter);
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = editor.begin_prompt(&session, "[[say late]] [[say begun]] [[hang]]");
    editor.until_said("begun");
    // A second editor shows when the chunk has arrived.
    let mut other = Editor::start(&home);
    other.on("session/resume", &session, &home).result();
    editor.cancel(&session);
    assert_eq!(editor.finish(prompt).result()["stopReason"], "cancelled");
    pipe.open();
    other.until_said("late");
    let before = editor.received.len();
    editor.on("session/load", &session, &home).result();
    editor.prompt(&session, "next").result();
    let told = editor.received[before..].iter();
    assert_eq!(told.filter(|line| line.contains(r#""text":"late""#)).count(), 1);
}

#[test]
fn a_cancellation_that_is_sent_as_a_request_is_carried_out_and_answered() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let turn = editor.begin_endless(&session);
    let cancel = editor.begin("session/cancel", json!({"sessionId": session}));
    let mut open = vec![turn, cancel];
    let messages = editor.until(|message| {
        open.retain(|request| message["id"] != *request || message["method"].is_string());
        open.is_empty()
    });
    let answer = |id: u64| messages.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(answer(turn)["result"]["stopReason"], "cancelled");
    assert_eq!(answer(cancel)["result"], json!({}));
    // Without a turn there is nothing to cancel, and without a session nothing can be meant.
    let cancelled = editor.call("session/cancel", json!({"sessionId": session}));
    assert_eq!(cancelled.result(), &json!({}));
    assert_eq!(editor.call("session/cancel", json!({})).code(), -32602);
}

#[test]
fn a_session_is_deleted_whose_request_was_cancelled() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let sessions = |editor: &mut Editor| -> Vec<Value> {
        let listed = editor.call("session/list", json!({}));
        listed.result()["sessions"].as_array().unwrap().clone()
    };
    for (method, held, leaves) in [
        ("session/new", "session/new", false),
        ("session/fork", "session/fork", false),
        ("session/new", "session/new", true),
    ] {
        gate.hold(held);
        let mut other = Editor::start(&home);
        let request = other.begin_on(method, &session, &home);
        gate.wait_until_held();
        if leaves {
            other.kill();
        } else {
            other.notify("$/cancel_request", json!({"requestId": request}));
            assert_eq!(other.finish(request).code(), -32800, "{method}");
        }
        gate.open();
        // This prompt is handled after the branch is made.
        editor.prompt(&session, "next").result();
        eventually(|| sessions(&mut editor).len() == 1);
    }
    // A session whose request was already answered stays.
    let request = editor.begin("session/new", json!({"cwd": home.project(), "mcpServers": []}));
    editor.finish(request).result();
    editor.notify("$/cancel_request", json!({"requestId": request}));
    assert_eq!(sessions(&mut editor).len(), 2);
}

/// The editor has stopped reading, so the answer waits for room.
#[test]
fn a_session_is_deleted_whose_editor_left_before_the_answer() {
    const ROOM: usize = 16;
    let home = Home::with_config(&format!("[limits]\nsubscriber_events = {ROOM}\n"));
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.prompt(&session, &"long ".repeat(100_000)).result();
    let conversations = || -> Vec<Value> {
        let listed = run(&home, &["ls", "--all", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["conversations"].as_array().unwrap().clone()
    };
    let count = conversations().len();
    let mut leaving = Stalled::start(&home);
    leaving.begin_load(&session, &home);
    let request = |id: usize, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    // These are answered at once and in order.
    for id in 0..ROOM {
        leaving.line(&request(id, "session/cancel", json!({"sessionId": "none"})));
    }
    leaving.line(&request(
        ROOM,
        "session/new",
        json!({"cwd": home.project(), "mcpServers": []}),
    ));
    eventually(|| {
        let listed = conversations();
        listed.len() > count && listed.iter().all(|listed| listed["live"] == true)
    });
    drop(leaving);
    eventually(|| conversations().len() == count);
}
