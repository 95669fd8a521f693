//! Questions of the agent, and messages that do not answer them.

use serde_json::{Value, json};

use super::editor::{Editor, run, show};
use super::opening::report_commands;
use crate::home::{Home, kill_now};
use crate::scripted;

const CREATE: &str = "elicitation/create";

fn able() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

/// A script of an agent that asks this question with the id `e` and waits for the answer.
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
    // An editor that cannot open pages gets the command that answers the question, and no completion.
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
fn a_question_that_an_editor_cannot_show_is_reported_once_at_each_opening() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::with(&home, able());
    let session = editor.new_session_of("scripted", &home);
    let form = json!({"mode": "form", "message": "Which colour?", "requestedSchema": {"type": "object"}});
    editor.begin_prompt(&session, &question(&form));
    editor.until_asked(CREATE);
    for method in ["session/resume", "session/load"] {
        let mut other = Editor::start(&home);
        for reported in 1..=2 {
            other.on(method, &session, &home).result();
            other.call("session/list", json!({})).result();
            let lines = other.received.iter();
            let count = lines.filter(|line| line.contains("sessionctl answer")).count();
            // A resume of an open session shows nothing again.
            let expected = if method == "session/load" { reported } else { 1 };
            assert_eq!(count, expected, "{method}");
        }
    }
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
        // An answer to a withdrawn question gets no answer either.
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
    // The load does not end before it is cancelled, because it waits for commands.
    report_commands(&mut one, &home);
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

/// The daemon remembers a limited number of visits, because an agent may never report their end.
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

/// The question is not asked again: an editor that allows requests automatically would start a turn.
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

/// The script line of an agent that asks for permission with this id.
fn permission(id: &str) -> String {
    let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"session/request_permission","params":{{"sessionId":$S,"toolCall":{{"toolCallId":"t"}},"options":[{option}]}}}}"#
    )
}

fn granted() -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": "yes"}})
}

/// The results that the agent received for its request with this id.
fn answers_to(home: &Home, id: &str) -> Vec<Value> {
    let heard = scripted::heard(home, "scripted").into_iter();
    let answers = heard.filter(|line| line["id"] == id && line["method"].is_null());
    answers.map(|mut line| line["result"].take()).collect()
}

#[test]
fn what_stands_beside_the_outcome_reaches_the_agent() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let prompt = editor.begin_prompt(&session, &[permission("p"), r#"await "p""#.to_owned()].join("\n"));
    let asked = editor.until_permission_asked();
    let mut answer = granted();
    answer["_meta"] = json!({"reason": "trusted"});
    answer["content"] = json!({"note": 1});
    editor.answer(&asked, answer.clone());
    editor.finish(prompt).result();
    assert_eq!(answers_to(&home, "p"), [answer]);
}

#[test]
fn a_question_is_not_overtaken_by_what_the_agent_sends_after_it() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut able = able();
    able["fs"] = json!({"readTextFile": true});
    let mut editor = Editor::with(&home, able);
    let session = editor.new_session_of("scripted", &home);
    let read =
        r#"{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"sessionId":$S,"path":"/a"}}"#;
    let form = question(&json!({"mode": "form", "message": "Which?", "requestedSchema": {}}));
    let (form, _) = form.split_once('\n').unwrap();
    let table = [
        (permission("q"), "session/request_permission", "q", granted()),
        (form.to_owned(), CREATE, "e", json!({"action": "decline"})),
    ];
    for (line, method, id, answer) in table {
        let script = [
            line,
            scripted::chunk("after"),
            read.to_owned(),
            format!("await \"{id}\""),
            scripted::chunk("answered"),
            r#"await "f""#.to_owned(),
        ];
        let prompt = editor.begin_prompt(&session, &script.join("\n"));
        let mut messages =
            editor.until(|message| message["id"].is_number() && message["method"] == "fs/read_text_file");
        messages
            .retain(|message| message["params"]["update"]["sessionUpdate"] != "available_commands_update");
        let methods: Vec<_> = messages
            .iter()
            .map(|message| message["method"].as_str().unwrap())
            .collect();
        assert_eq!(methods, [method, "session/update", "fs/read_text_file"]);
        editor.answer(&messages[0], answer);
        editor.until_said("answered");
        editor.answer(&messages[2], json!({"content": ""}));
        editor.finish(prompt).result();
    }
}

#[test]
fn a_question_is_withdrawn_when_its_agent_dies() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let prompt = editor.begin_prompt(&session, &[permission("p"), r#"await "p""#.to_owned()].join("\n"));
    let asked = editor.until_permission_asked();
    // The names of the agent's sessions contain its process id.
    let head = show(&home, &session)["head"].clone();
    let (pid, _) = head.as_str().unwrap()[1..].split_once('-').unwrap();
    kill_now(pid.parse().unwrap());
    let ended = editor.finish(prompt);
    let withdrawn =
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}});
    assert!(ended.before.contains(&withdrawn), "{ended:?}");
}

#[test]
fn a_question_after_the_end_of_a_turn_stays_open_until_it_is_answered() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let script = [
        r#"{"jsonrpc":"2.0","id":$P,"result":{"stopReason":"end_turn"}}"#.to_owned(),
        permission("p"),
        r#"await "p""#.to_owned(),
        scripted::chunk("answered"),
    ];
    let prompt = editor.begin_prompt(&session, &script.join("\n"));
    editor.finish(prompt).result();
    let asked = editor.until_permission_asked();
    let next = editor.prompt(&session, &scripted::chunk("next"));
    assert_eq!(next.result()["stopReason"], "end_turn");
    assert!(
        next.before
            .iter()
            .all(|message| message["method"] == "session/update"),
        "{next:?}"
    );
    editor.answer(&asked, granted());
    editor.until_said("answered");
    assert_eq!(answers_to(&home, "p"), [granted()]);
}

/// The agent waits for the answer before it opens the session.
#[test]
fn a_question_about_the_request_that_opens_a_session_does_not_block_it() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let request = json!({"mode": "form", "message": "Which?", "requestedSchema": {}, "requestId": "$P"});
    let request = json!({"jsonrpc": "2.0", "id": "e", "method": CREATE, "params": request});
    let script = format!("{}\nawait \"e\"", request.to_string().replace("\"$P\"", "$P"));
    std::fs::write(home.path().join(scripted::BEFORE_OPENING), script).unwrap();
    let _daemon = home.start();
    let mut editor = Editor::with(&home, able());
    editor.new_session_of("scripted", &home);
    assert_eq!(answers_to(&home, "e"), [json!({"action": "cancel"})]);
}
