//! Sessions of subagents, which the agent announces in the parent session.

use serde_json::{Value, json};

use super::editor::{Editor, command, show};
use crate::codex::{self, ROOT, ROOT_ID, rollout, write};
use crate::home::Home;
use crate::scripted;

/// An editor that supports subagent sessions and offers files.
fn able(home: &Home) -> Editor {
    Editor::with(
        home,
        json!({"subagents": {"of tomorrow": 1}, "fs": {"readTextFile": true}}),
    )
}

/// The script line of an update in this session; `session` is JSON.
fn update(session: &str, update: Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"n":1E+2,"sessionId":{session},"update":{update}}}}}"#
    )
}

fn announcement(of: &str, subagent: &str) -> String {
    update(
        of,
        json!({"sessionUpdate": "subagent_update", "sessionId": subagent, "state": {"state": "running"}}),
    )
}

fn chunk(session: &str, text: &str) -> String {
    let content = json!({"type": "text", "text": text});
    update(
        session,
        json!({"sessionUpdate": "agent_message_chunk", "content": content}),
    )
}

/// The script of a request with this id, and of the wait for its answer.
fn request(session: &str, id: &str, method: &str, members: Value) -> String {
    let mut params = members;
    params["sessionId"] = json!("$SESSION");
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let request = request.to_string().replace(r#""$SESSION""#, session);
    format!("{request}\nawait {}", json!(id))
}

fn permission(session: &str, id: &str) -> String {
    let members = json!({"toolCall": {"toolCallId": "t"}, "options": []});
    request(session, id, "session/request_permission", members)
}

fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

#[test]
fn updates_and_requests_of_subagents_pass_with_the_ids_of_the_agent() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut one = able(&home);
    let session = one.new_session_of("scripted", &home);
    let told = json!({"jsonrpc": "2.0", "method": "_x/told", "params": {"sessionId": "sub"}});
    let message = json!({"sessionUpdate": "session_message", "messageId": "m"});
    let script = [
        permission("$S", "begin"),
        // This update comes before the announcement, and is forwarded after it.
        chunk(r#""sub""#, "early"),
        announcement("$S", "sub"),
        announcement(r#""sub""#, "sub of sub"),
        chunk(r#""sub of sub""#, "deep"),
        update("$S", message.clone()).replace(r#""messageId""#, r#""senderSessionId":$S,"messageId""#),
        told.to_string(),
        permission(r#""sub""#, "question"),
        request(r#""sub""#, "file", "fs/read_text_file", json!({"path": "/a"})),
        request(r#""sub of sub""#, "unnamed", "_x/ask", json!({})),
        chunk("$S", "done"),
    ];
    let turn = one.begin_prompt(&session, &script.join("\n"));
    let begin = one.until_permission_asked();
    let mut plain = Editor::start(&home);
    plain.on("session/resume", &session, &home).result();
    plain.until_permission_asked();
    one.answer(&begin, cancelled());

    let question = one.until_permission_asked();
    assert_eq!(question["params"]["sessionId"], "sub");
    // The question belongs to the conversation. An editor without support for subagents gets it in the parent
    // session.
    let shown = plain.until_permission_asked();
    assert_eq!(shown["params"]["sessionId"], session.as_str());
    let interrupts = show(&home, &session)["interrupts"].clone();
    assert_eq!(interrupts.as_array().unwrap().len(), 1, "{interrupts}");
    // An editor that opens the session now gets the announcements and the open question.
    let mut late = able(&home);
    late.on("session/load", &session, &home).result();
    let late_question = late.until_permission_asked();
    assert_eq!(late_question["params"]["sessionId"], "sub");
    late.answer(&late_question, cancelled());

    let file = one.until_asked("fs/read_text_file");
    assert_eq!(file["params"]["sessionId"], "sub");
    one.answer(&file, json!({"content": "text"}));
    let unnamed = one.until_asked("_x/ask");
    assert_eq!(unnamed["params"]["sessionId"], "sub of sub");
    one.answer(&unnamed, json!({"n": 1}));
    assert_eq!(one.finish(turn).result()["stopReason"], "end_turn");
    plain.until_said("done");
    late.until_said("done");

    let own = json!(session).to_string();
    let in_order = [
        announcement("$S", "sub"),
        chunk(r#""sub""#, "early"),
        announcement(r#""sub""#, "sub of sub"),
        chunk(r#""sub of sub""#, "deep"),
    ];
    for editor in [&one, &late] {
        let lines = in_order.iter().map(|line| line.replace("$S", &own));
        let places = lines.map(|line| {
            let params = line.split_once(r#""params":"#).unwrap().1.to_owned();
            let place = editor.received.iter().position(|line| line.ends_with(&params));
            place.unwrap_or_else(|| panic!("{params}: {:#?}", editor.received))
        });
        assert!(places.collect::<Vec<_>>().is_sorted(), "{:#?}", editor.received);
        let sender = format!(r#""senderSessionId":{own}"#);
        assert!(
            editor.received.iter().any(|line| line.contains(&sender)),
            "{:#?}",
            editor.received
        );
    }
    assert!(
        one.received
            .iter()
            .any(|line| line.ends_with(r#""params":{"sessionId":"sub"}}"#))
    );
    // The editor without subagent support never sees the id of a subagent.
    let other: Vec<_> = plain
        .received
        .iter()
        .filter(|line| line.contains("sub"))
        .collect();
    assert!(other.is_empty(), "{other:#?}");

    let heard = scripted::heard(&home, "scripted");
    let about = heard
        .iter()
        .find(|message| message["method"] == "initialize")
        .unwrap();
    let capabilities = &about["params"]["clientCapabilities"];
    assert_eq!(capabilities["subagents"], json!({"of tomorrow": 1}));
    let answers = ["question", "file", "unnamed"];
    for id in answers {
        let answer = heard.iter().find(|message| message["id"] == id);
        assert!(answer.unwrap()["result"].is_object(), "{id}");
    }
}

#[test]
fn what_an_editor_sends_about_a_subagent_reaches_the_agent() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = able(&home);
    let session = editor.new_session_of("scripted", &home);
    let script = [
        announcement("$S", "sub"),
        permission(r#""sub""#, "q"),
        chunk("$S", "done"),
    ];
    let turn = editor.begin_prompt(&session, &script.join("\n"));
    let asked = editor.until_permission_asked();
    editor.cancel("sub");
    let echoed = editor.call("_echo", json!({"sessionId": "sub", "n": 1}));
    assert_eq!(echoed.result(), &json!({"sessionId": "sub", "n": 1}));
    // The daemon has no conversation with this id.
    let prompt = json!([{"type": "text", "text": "hello"}]);
    let prompted = editor.call("session/prompt", json!({"sessionId": "sub", "prompt": prompt}));
    assert_eq!(prompted.code(), -32002);
    editor.cancel("sub");
    let heard = || scripted::heard(&home, "scripted");
    super::editor::eventually(|| {
        let cancels = heard();
        let cancels = cancels
            .iter()
            .filter(|message| message["method"] == "session/cancel");
        cancels
            .map(|message| message["params"]["sessionId"].clone())
            .eq(["sub", "sub"])
    });
    // The parent session's own turn is still running.
    editor.answer(&asked, cancelled());
    let ended = editor.finish(turn);
    assert_eq!(ended.result()["stopReason"], "end_turn");
    assert_eq!(ended.texts("agent_message_chunk"), ["done"]);
    // After a close, the subagent is no longer known.
    editor.close(&session).result();
    assert_eq!(editor.call("_echo", json!({"sessionId": "sub"})).code(), -32002);
}

#[test]
fn a_session_that_was_not_announced_is_nobodys() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = able(&home);
    let session = editor.new_session_of("scripted", &home);
    let script = [
        chunk(r#""stranger""#, "from nowhere"),
        permission(r#""stranger""#, "q"),
        chunk("$S", "done"),
    ];
    let ended = editor.prompt(&session, &script.join("\n"));
    assert_eq!(ended.texts("agent_message_chunk"), ["done"]);
    let heard = scripted::heard(&home, "scripted");
    let refused = heard.iter().find(|message| message["id"] == "q").unwrap();
    assert_eq!(refused["error"]["code"], -32601);
    // An announcement does not take a session away from its editor.
    let mut other = able(&home);
    let others = other.new_session_of("scripted", &home);
    let id = other.call("_echo", json!({"sessionId": others})).result()["sessionId"].clone();
    editor
        .prompt(&session, &announcement("$S", id.as_str().unwrap()))
        .result();
    assert_eq!(other.prompt(&others, &chunk("$S", "mine")).said(), "mine");
}

/// No user started the subagent, and its history may be a copy of the user's session.
#[test]
fn a_subagent_of_codex_is_not_offered_as_a_session() {
    const SUBAGENT: &str = "01a1fc16-01ee-76c3-a43d-78487b788798";
    let home = codex::home();
    let spawned = ROOT.replace(ROOT_ID, SUBAGENT).replacen(
        r#""source":"vscode""#,
        &format!(r#""source":{{"subagent":{{"thread_spawn":{{"parent_thread_id":"{ROOT_ID}"}}}}}}"#),
        1,
    );
    write(&rollout(&home, ROOT_ID), ROOT);
    write(&rollout(&home, SUBAGENT), spawned);
    let _daemon = home.start();
    let (mut editor, _) = Editor::initialized(&mut command(&home, &["--agent", "codex"]), json!({}));
    let listed = editor.call("session/list", json!({"cwd": "/home/u/project"}));
    let sessions = listed.result()["sessions"].as_array().unwrap().iter();
    let ids: Vec<&Value> = sessions.map(|session| &session["sessionId"]).collect();
    assert_eq!(ids, [ROOT_ID]);
}
