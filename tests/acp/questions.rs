//! Questions of the agent, and what is no answer to them.

use serde_json::{Value, json};

use super::editor::{Editor, run};
use crate::home::Home;
use crate::scripted;

const CREATE: &str = "elicitation/create";

fn able() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

/// The script of an agent that asks this under the id `e`, and waits for the answer.
fn question(members: &Value) -> String {
    let mut params = members.clone();
    params["sessionId"] = json!("$S");
    let request = json!({"jsonrpc": "2.0", "id": "e", "method": CREATE, "params": params});
    let request = request.to_string().replace("\"$S\"", "$S");
    format!("{request}\nawait \"e\"")
}

#[test]
fn a_form_is_filled_in_by_the_editor() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::with(&home, able());
    let session = editor.new_session_of("scripted", &home);
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    let form = json!({"mode": "form", "message": "Which colour?", "requestedSchema": schema});
    let results = [
        json!({"action": "accept", "content": {"colour": "red"}}),
        json!({"action": "decline"}),
    ];
    for result in &results {
        let prompt = editor.begin_prompt(&session, &question(&form));
        let asked = editor.until_asked(CREATE);
        let mut expected = form.clone();
        expected["sessionId"] = json!(session);
        assert_eq!(asked["params"], expected);
        editor.answer(&asked, result.clone());
        assert_eq!(editor.finish(prompt).result()["stopReason"], "end_turn");
    }
    let heard = scripted::heard(&home, "scripted");
    let heard = heard.iter().filter(|line| line["id"] == "e");
    assert_eq!(
        heard.map(|line| line["result"].clone()).collect::<Vec<_>>(),
        results
    );
}

#[test]
fn the_end_of_a_visit_is_reported_to_the_editor_that_opened_the_page() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut editor, mut other) = (Editor::with(&home, able()), Editor::start(&home));
    let session = editor.new_session_of("scripted", &home);
    other.on("session/resume", &session, &home).result();
    let page = json!({
        "mode": "url", "message": "Sign in", "url": "https://example.com/", "elicitationId": "page-1",
    });
    let completed = |id: &str| {
        let params = json!({ "elicitationId": id });
        json!({"jsonrpc": "2.0", "method": "elicitation/complete", "params": params})
    };
    let script = [
        question(&page),
        completed("page-0").to_string(),
        completed("page-1").to_string(),
        scripted::chunk("done"),
    ];
    let prompt = editor.begin_prompt(&session, &script.join("\n"));
    let asked = editor.until_asked(CREATE);
    editor.answer(&asked, json!({"action": "accept"}));
    let answered = editor.finish(prompt);
    let reports = answered
        .before
        .iter()
        .filter(|message| message["method"] == "elicitation/complete");
    assert_eq!(reports.collect::<Vec<_>>(), [&completed("page-1")]);
    // An editor that cannot open it learns how to answer, and of no page.
    let seen = other.until(|message| message["params"]["update"]["content"]["text"] == "done");
    let is_told = |message: &Value| {
        let text = message["params"]["update"]["content"]["text"].as_str();
        text.is_some_and(|text| text.contains("sessionctl answer"))
    };
    assert!(seen.iter().any(is_told), "{seen:?}");
    assert!(
        seen.iter().all(|message| message["method"] == "session/update"),
        "{seen:?}"
    );
}

#[test]
fn an_error_of_one_editor_leaves_the_question_to_another() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = editor.new_session(&home);
    other.on("session/resume", &session, &home).result();
    let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    let asked = other.until_permission_asked();
    other.refuse(&asked);
    other.call("session/list", json!({})).result();
    let asked = editor.until_permission_asked();
    editor.allow(&asked);
    assert_eq!(editor.finish(prompt).texts("agent_message_chunk"), ["done"]);
}

#[test]
fn an_answer_is_not_answered_whatever_it_is() {
    let home = Home::with_config("[limits]\nmax_line_bytes = 1048576\n");
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let long = "x".repeat(2 * 1024 * 1024);
    for rest in [
        r#""error":null"#.to_owned(),
        format!(r#""result":{{"outcome":"{long}"}}"#),
    ] {
        let prompt = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
        let asked = editor.until_permission_asked();
        editor.line(&format!(r#"{{"jsonrpc":"2.0","id":{},{rest}}}"#, asked["id"]));
        let messages = editor.until(|message| {
            let text = message["params"]["update"]["content"]["text"].as_str();
            text.is_some_and(|text| text.contains("cannot answer the question"))
        });
        assert!(
            messages.iter().all(|message| message["error"].is_null()),
            "{messages:?}"
        );
        // Nor is one to a question that was withdrawn.
        run(&home, &["answer", &session, "allow"]);
        assert_eq!(editor.finish(prompt).texts("agent_message_chunk"), ["done"]);
        editor.line(&format!(r#"{{"jsonrpc":"2.0","id":{},{rest}}}"#, asked["id"]));
        assert_eq!(editor.call("session/list", json!({})).before, [] as [Value; 0]);
    }
}

#[test]
fn a_question_of_another_client_is_withdrawn_from_an_editor_that_closes_the_session() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session(&home);
    other.on("session/resume", &session, &home).result();
    let turn = one.begin_prompt(&session, "[[ask may I]]");
    let asked = one.until_permission_asked();
    let shown = other.until_permission_asked();
    let closed = other.close(&session);
    let mut withdrawn = closed.before.iter();
    let withdrawn = withdrawn.find(|message| message["method"] == "$/cancel_request");
    assert_eq!(withdrawn.unwrap()["params"]["requestId"], shown["id"]);
    one.allow(&asked);
    assert_eq!(one.finish(turn).result()["stopReason"], "end_turn");
}

/// The agent reports no commands, so the load waits for them while the question is held back.
#[test]
fn a_question_that_was_never_sent_is_not_withdrawn() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session_of("scripted", &home);
    let script = [
        scripted::chunk("begun"),
        r#"{"jsonrpc":"2.0","id":"r","method":"session/request_permission","params":{"sessionId":$S,"toolCall":{"toolCallId":"t"},"options":[]}}"#
            .to_owned(),
        r#"await "r""#.to_owned(),
    ];
    let turn = one.begin_prompt(&session, &script.join("\n"));
    let asked = one.until_permission_asked();
    let load = other.begin_on("session/load", &session, &home);
    other.until_said("begun");
    other.notify("$/cancel_request", json!({"requestId": load}));
    assert_eq!(other.finish(load).code(), -32800);
    assert_eq!(other.call("session/list", json!({})).before, [] as [Value; 0]);
    assert!(
        !other
            .received
            .iter()
            .any(|line| line.contains("$/cancel_request"))
    );
    one.answer(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    one.finish(turn).result();
}

/// The oldest ones are forgotten: an agent may never report the end of a visit.
#[test]
fn the_ends_of_the_newest_visits_are_reported() {
    const REMEMBERED: usize = 64;
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::with(&home, able());
    let session = editor.new_session_of("scripted", &home);
    let id = |page: usize| format!("page-{page}");
    let pages = 0..=REMEMBERED;
    let mut script: Vec<String> = pages
        .clone()
        .map(|page| {
            let url = json!({
                "mode": "url", "message": "Sign in", "url": "https://example.com/", "elicitationId": id(page),
            });
            question(&url)
        })
        .collect();
    script.extend(pages.clone().map(|page| {
        let params = json!({ "elicitationId": id(page) });
        json!({"jsonrpc": "2.0", "method": "elicitation/complete", "params": params}).to_string()
    }));
    let prompt = editor.begin_prompt(&session, &script.join("\n"));
    for _ in pages.clone() {
        let asked = editor.until_asked(CREATE);
        editor.answer(&asked, json!({"action": "accept"}));
    }
    let ended = editor.finish(prompt);
    let reports = ended
        .before
        .iter()
        .filter(|message| message["method"] == "elicitation/complete");
    let reported: Vec<_> = reports
        .map(|report| report["params"]["elicitationId"].clone())
        .collect();
    assert_eq!(reported, pages.skip(1).map(id).collect::<Vec<_>>());
}

/// It is not asked again: an editor that allows things unasked would start a turn.
#[test]
fn a_question_that_outlives_its_agent_is_shown_with_the_command_that_answers_it() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.begin_prompt(&session, "[[ask Really?]] [[say Done it]]");
    editor.until_permission_asked();
    daemon.kill();
    let _daemon = home.start();

    let command = format!("sessionctl answer {session}");
    let is_shown = |text: &str| text.contains("Really?") && text.contains(&command);
    let mut editor = Editor::start(&home);
    let loaded = editor.on("session/load", &session, &home);
    assert!(
        loaded.texts("agent_message_chunk").into_iter().any(is_shown),
        "{loaded:?}"
    );
    assert!(
        loaded
            .before
            .iter()
            .all(|message| message["method"] == "session/update")
    );
    let mut other = Editor::start(&home);
    other.on("session/resume", &session, &home).result();
    other.until(|message| {
        is_shown(
            message["params"]["update"]["content"]["text"]
                .as_str()
                .unwrap_or_default(),
        )
    });

    run(&home, &["answer", &session, "allow"]);
    let loaded = editor.on("session/load", &session, &home);
    assert!(!loaded.said().contains(&command), "{loaded:?}");
}
