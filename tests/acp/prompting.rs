//! Prompts, cancellations and questions.

use std::fs;

use serde_json::{Value, json};

use super::editor::{Editor, run, show};
use crate::home::Home;
use crate::scripted;
use crate::watching::{append_turn, until_saved};

#[test]
fn the_updates_of_a_turn_come_before_its_answer() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let answered = editor.prompt(&session, r#"[[say a]] [[tool Read {"path":"b"}]] [[say c]]"#);
    assert_eq!(answered.result()["stopReason"], "end_turn");
    let kinds: Vec<&str> = answered
        .kinds()
        .into_iter()
        .filter(|kind| !kind.contains("command"))
        .collect();
    let expected = [
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ];
    assert_eq!(kinds[..4], expected, "{kinds:?}");
    assert!(
        answered
            .before
            .iter()
            .all(|message| message["params"]["sessionId"] == session.as_str())
    );
}

#[test]
fn the_editors_answer_to_a_question_reaches_the_agent() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for (option, said) in [
        ("allow_once", vec!["done"]),
        ("reject_once", vec!["refused: may I"]),
    ] {
        let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
        let asked = editor.until_permission_asked();
        assert_eq!(asked["params"]["sessionId"], session.as_str());
        assert!(asked["params"]["toolCall"].is_object(), "{asked}");
        editor.answer(
            &asked,
            json!({"outcome": {"outcome": "selected", "optionId": option}}),
        );
        let answered = editor.finish(prompt);
        assert_eq!(answered.texts("agent_message_chunk"), said, "{option}");
    }
}

#[test]
fn the_first_answer_to_a_question_wins() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    let asked = editor.until_permission_asked();
    run(&home, &["answer", &session, "allow"]);
    let answered = editor.finish(prompt);
    let withdrawn =
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}});
    assert_eq!(answered.before.first(), Some(&withdrawn));
    assert_eq!(answered.texts("agent_message_chunk"), ["done"]);
    // A late answer is ignored.
    editor.answer(
        &asked,
        json!({"outcome": {"outcome": "selected", "optionId": "reject_once"}}),
    );
    assert_eq!(
        editor.prompt(&session, "next").texts("agent_message_chunk"),
        ["echo: next"]
    );
}

#[test]
fn a_question_that_the_editor_cannot_answer_is_left_to_others() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    let asked = editor.until_permission_asked();
    editor.refuse(&asked);
    let told = editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    let told = &told.last().unwrap()["params"]["update"]["content"]["text"];
    let command = format!("sessionctl answer {session}");
    assert!(told.as_str().unwrap().ends_with(&command), "{told}");
    run(&home, &["answer", &session, "allow"]);
    assert_eq!(editor.finish(prompt).texts("agent_message_chunk"), ["done"]);
}

#[test]
fn a_cancel_does_not_wait_for_an_unanswered_question() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    editor.until_permission_asked();
    editor.cancel(&session);
    let answered = editor.finish(prompt);
    assert_eq!(answered.result()["stopReason"], "cancelled");
    assert_eq!(
        editor.prompt(&session, "next").texts("agent_message_chunk"),
        ["echo: next"]
    );
}

#[test]
fn another_clients_turn_is_shown_after_a_cancelled_one() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = editor.begin_endless(&session);
    editor.cancel(&session);
    editor.finish(prompt).result();
    run(&home, &["send", &session, "from a terminal"]);
    editor.until_said("from a terminal");
    editor.until_said("echo: from a terminal");
}

#[test]
fn each_way_to_cancel_ends_the_turn() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for method in ["session/cancel", "$/cancel_request", "session/close"] {
        let prompt = editor.begin_endless(&session);
        match method {
            "$/cancel_request" => editor.notify(method, json!({"requestId": prompt})),
            "session/cancel" => editor.notify(method, json!({"sessionId": session})),
            _ => drop(editor.begin(method, json!({"sessionId": session}))),
        }
        let answered = editor.finish(prompt);
        assert_eq!(answered.result()["stopReason"], "cancelled", "{method}");
    }
}

#[test]
fn a_prompt_behind_a_running_one_has_its_turn_after_it() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let first = editor.begin_prompt(&session, "[[ask may I]] [[say one]]");
    let second = editor.begin_prompt(&session, "two");
    let asked = editor.until_permission_asked();
    editor.allow(&asked);
    assert_eq!(editor.finish(first).texts("agent_message_chunk"), ["one"]);
    assert_eq!(editor.finish(second).texts("agent_message_chunk"), ["echo: two"]);
}

#[test]
fn a_limit_is_said_with_its_end() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let answered = editor.prompt(&session, "[[limit 3600]]");
    assert_eq!(answered.result()["stopReason"], "end_turn");
    let said = answered.said();
    assert!(said.contains("usage limit is reached"), "{said}");
    assert!(said.contains("The limit ends at 2"), "{said}");
    assert!(said.ends_with("send /continue."), "{said}");
}

#[test]
fn other_failures_are_errors() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for (failure, code) in [("auth", -32000), ("overloaded", -32603), ("context", -32603)] {
        let answered = editor.prompt(&session, &format!("[[fail {failure}]]"));
        assert_eq!(answered.code(), code, "{failure}");
        assert!(
            answered.answer["error"]["message"]
                .as_str()
                .is_some_and(|words| !words.is_empty())
        );
    }
    // The session remains usable.
    assert_eq!(
        editor.prompt(&session, "next").texts("agent_message_chunk"),
        ["echo: next"]
    );
}

#[test]
fn an_error_of_the_agent_is_passed_on() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let refused = editor.call(
        "session/set_mode",
        json!({"sessionId": session, "modeId": "no-such-mode"}),
    );
    assert_eq!(refused.code(), -32602, "the agent's own error: {refused:?}");
}

#[test]
fn what_a_reopening_lost_is_a_notice_where_the_editor_shows_them() {
    for shows_notices in [false, true] {
        let home = Home::new();
        let daemon = home.start();
        let (mut editor, session) = Editor::in_session(&home);
        for text in ["one", "two"] {
            editor.prompt(&session, text).result();
        }
        let shown = show(&home, &session);
        let transcript = home.transcript(shown["head"].as_str().unwrap()).unwrap();
        daemon.kill();
        // Simulates a power loss that cut off the last turn.
        let whole = fs::read_to_string(&transcript).unwrap();
        let left = whole.lines().take_while(|line| !line.contains("two"));
        let left: String = left.map(|line| format!("{line}\n")).collect();
        fs::write(&transcript, left).unwrap();

        let _daemon = home.start();
        let capabilities = match shows_notices {
            true => json!({"session": {"notices": {}}}),
            false => json!({}),
        };
        let mut editor = Editor::with(&home, capabilities);
        let answered = editor.prompt(&session, "three");
        let said = answered.said();
        let notices = answered.updates().into_iter();
        let notices: Vec<&Value> = notices
            .filter(|update| update["sessionUpdate"] == "notice")
            .collect();
        let lost = "The agent's session was reopened without 1 earlier turn.";
        if shows_notices {
            let notice = json!({"sessionUpdate": "notice", "severity": "warning", "title": lost});
            assert_eq!((said.as_str(), notices), ("echo: three", vec![&notice]));
        } else {
            assert_eq!((said, notices), (format!("{lost}\n\necho: three"), Vec::new()));
        }
    }
}

#[test]
fn an_error_of_the_agent_keeps_its_code_and_data() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    for error in [
        r#"{"code":-32042,"message":"a page has to be opened","data":{"elicitations":[{"id":9007199254740993}]}}"#,
        r#"{"code":-32602,"message":"the picture is too large","data":"picture"}"#,
        r#"{"code":-32000,"message":"sign in first","data":{"methods":["key"]}}"#,
    ] {
        let refusal = format!(r#"{{"jsonrpc":"2.0","id":$P,"error":{error}}}"#);
        let prompt = editor.begin_prompt(&session, &refusal);
        editor.finish(prompt);
        let line = editor.received.last().unwrap();
        assert!(line.contains(&format!(r#""error":{error}"#)), "{line}");
    }
    // An error without data gets the kind of the failure as data.
    let error = json!({"code": -32603, "message": "it broke"});
    let refusal = format!(r#"{{"jsonrpc":"2.0","id":$P,"error":{error}}}"#);
    let ended = editor.prompt(&session, &refusal);
    assert_eq!(ended.code(), -32603);
    assert_eq!(ended.answer["error"]["data"]["kind"], "unknown");
}

/// The text must name the possible causes, and must not say that the agent was too fast.
#[test]
fn an_update_that_is_nested_too_deeply_is_reported_as_missing() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let update = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{{"sessionUpdate":"plan","entries":{deep}}}}}}}"#
    );
    let answered = editor.prompt(
        &session,
        &[scripted::chunk("one"), update, scripted::chunk("two")].join("\n"),
    );
    let said = answered.said();
    assert!(said.starts_with("one") && said.ends_with("two"), "{said}");
    assert!(said.contains("too long or too deeply nested"), "{said}");
}

/// An editor is notified once of turns that another program added, before the agent's next answer.
#[tokio::test]
async fn turns_of_another_program_are_told_with_the_next_prompt() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for shows_notices in [false, true] {
        let capabilities = match shows_notices {
            true => json!({"session": {"notices": {}}}),
            false => json!({}),
        };
        let mut editor = Editor::with(&home, capabilities);
        let session = editor.new_session(&home);
        let mut events = app.events(session.parse().unwrap()).await;
        editor.prompt(&session, "one").result();
        until_saved(&mut events, 1).await;
        let shown = show(&home, &session);
        let transcript = home.transcript(shown["head"].as_str().unwrap()).unwrap();
        append_turn(&transcript, "elsewhere");
        events.until("foreignWriter").await;
        let answered = editor.prompt(&session, "two");
        let told = "Another program, such as the agent in a terminal, has changed this conversation; reopen the thread if \
                    you do not see the change.";
        let notices = answered.updates().into_iter();
        let notices: Vec<&Value> = notices
            .filter(|update| update["sessionUpdate"] == "notice")
            .collect();
        match shows_notices {
            true => {
                assert_eq!(notices.len(), 1, "{answered:?}");
                assert_eq!(notices[0]["title"], told);
                assert_eq!(answered.texts("agent_message_chunk"), ["echo: two"]);
            }
            false => assert_eq!(
                answered.texts("agent_message_chunk"),
                [format!("{told}\n\n"), "echo: two".to_owned()]
            ),
        }
        let next = editor.prompt(&session, "three");
        assert_eq!(next.texts("agent_message_chunk"), ["echo: three"]);
        assert!(!next.kinds().contains(&"notice"), "{next:?}");
    }
}

/// The agent can neither resume nor load a session, and its transcripts cannot be read.
#[test]
fn the_error_of_a_session_that_cannot_be_reopened_names_the_command_that_starts_an_empty_one() {
    let home = Home::with_config(&scripted::configured("scripted", Some("{}")));
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    editor.prompt(&session, &scripted::chunk("one")).result();
    drop((editor, daemon));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let refused = editor.prompt(&session, &scripted::chunk("two"));
    let words = refused.answer["error"]["message"].as_str().unwrap();
    assert_eq!(
        words.matches(&format!("sessionctl reset {session}")).count(),
        1,
        "{words}"
    );
    run(&home, &["reset", &session]);
    let answered = editor.prompt(&session, &scripted::chunk("two"));
    assert_eq!(answered.texts("agent_message_chunk").last(), Some(&"two"));
}
