//! Loads of sessions whose transcripts the daemon cannot read: the editor gets what the agent replays.

use std::fs;

use bridge_protocol::turn::CONTINUE_PROMPT;
use serde_json::{Value, json};

use super::editor::{Answered, Editor, run, show};
use crate::home::Home;
use crate::scripted;

/// An agent that can only load, like Gemini CLI, and one that can also resume, like opencode.
const LOADS: &str = r#"{"loadSession":true,"sessionCapabilities":{}}"#;
const LOADS_AND_RESUMES: &str = r#"{"loadSession":true,"sessionCapabilities":{"close":{},"resume":{}}}"#;

/// A home with an agent that has these capabilities.
fn with_agent(capabilities: &str) -> Home {
    Home::with_config(&scripted::configured("scripted", Some(capabilities)))
}

/// An editor and its session, after one turn.
fn after_one_turn(home: &Home, agent: &str) -> (Editor, String) {
    let mut editor = Editor::start(home);
    let session = editor.new_session_of(agent, home);
    editor.prompt(&session, &scripted::chunk("said")).result();
    (editor, session)
}

/// The texts of the updates before an answer. All updates are about this session.
fn texts<'a>(loaded: &'a Answered, session: &str) -> Vec<&'a str> {
    loaded.result();
    for message in &loaded.before {
        assert_eq!(message["params"]["sessionId"], session, "{message}");
    }
    let updates = loaded.updates().into_iter();
    updates
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

/// How often each of these methods was sent to the agent.
fn requests(home: &Home, agent: &str) -> [usize; 2] {
    let heard = scripted::heard(home, agent);
    ["session/load", "session/resume"]
        .map(|method| heard.iter().filter(|line| line["method"] == method).count())
}

#[test]
fn an_editor_gets_the_agents_replay_after_a_restart_and_while_the_session_is_open() {
    for capabilities in [LOADS, LOADS_AND_RESUMES] {
        let home = with_agent(capabilities);
        let daemon = home.start();
        let (editor, session) = after_one_turn(&home, "scripted");
        drop((editor, daemon));
        let _daemon = home.start();
        let mut first = Editor::start(&home);
        for opens in 1..=2 {
            let mut editor = Editor::start(&home);
            let loaded = editor.on("session/load", &session, &home);
            assert_eq!(texts(&loaded, &session), ["replayed", "replayed"]);
            let chunks = ["user_message_chunk", "agent_message_chunk"];
            assert_eq!(
                loaded.kinds(),
                [chunks[0], chunks[1], "available_commands_update"]
            );
            assert_eq!(requests(&home, "scripted"), [opens, 0]);
        }
        // The same holds for a session that this editor has open already.
        for _ in 1..=2 {
            let loaded = first.on("session/load", &session, &home);
            assert_eq!(texts(&loaded, &session), ["replayed", "replayed"]);
        }
        let turn = first.prompt(&session, &scripted::chunk("next"));
        assert_eq!(texts(&turn, &session), ["next"]);
        assert_eq!(show(&home, &session)["state"], "idle");
    }
}

#[test]
fn other_clients_get_nothing_of_a_replay() {
    let home = with_agent(LOADS_AND_RESUMES);
    let _daemon = home.start();
    let (mut editor, session) = after_one_turn(&home, "scripted");
    let mut other = Editor::start(&home);
    let loaded = other.on("session/load", &session, &home);
    assert_eq!(texts(&loaded, &session), ["replayed", "replayed"]);
    let turn = other.begin_prompt(&session, &scripted::chunk("next"));
    let seen = editor.until(|message| message["params"]["update"]["content"]["text"] == "next");
    let chunks = seen
        .iter()
        .map(|message| &message["params"]["update"]["sessionUpdate"]);
    assert_eq!(
        chunks.collect::<Vec<_>>(),
        ["user_message_chunk", "agent_message_chunk"],
        "{seen:?}"
    );
    assert_eq!(texts(&other.finish(turn), &session), ["next"]);
}

/// Gemini CLI answers the load first. Its replay must not become a part of the next turn.
#[test]
fn a_replay_after_the_agents_answer_comes_before_the_answer_to_the_editor() {
    let home = Home::with_config(&scripted::configured_with(
        "gemini",
        Some(LOADS),
        "kind = \"gemini\"",
    ));
    let daemon = home.start();
    let (editor, session) = after_one_turn(&home, "gemini");
    drop((editor, daemon));
    let chunk =
        |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
    let replay = [
        chunk("user_message_chunk", "one"),
        chunk("agent_message_chunk", "two"),
    ];
    scripted::answer(&home, &json!({"session/load": {"result": {}, "after": replay}}));
    let _daemon = home.start();
    let mut other = Editor::start(&home);
    other.on("session/resume", &session, &home).result();
    let mut editor = Editor::start(&home);
    let loaded = editor.on("session/load", &session, &home);
    assert_eq!(texts(&loaded, &session), ["one", "two"]);
    run(&home, &["close", &session]);
    let turn = editor.prompt(&session, &scripted::chunk("next"));
    assert_eq!(texts(&turn, &session), ["next"]);
    let seen = other.until(|message| message["params"]["update"]["content"]["text"] == "next");
    let is_replayed = |message: &&Value| {
        ["one", "two"]
            .map(Value::from)
            .contains(&message["params"]["update"]["content"]["text"])
    };
    assert_eq!(seen.iter().find(is_replayed), None);
}

#[test]
fn a_session_with_a_running_turn_or_without_turns_is_not_reopened_for_a_load() {
    let home = with_agent(LOADS_AND_RESUMES);
    let _daemon = home.start();
    let (mut editor, session) = after_one_turn(&home, "scripted");
    let turn = editor.begin_prompt(
        &session,
        &[scripted::chunk("begun"), "hold".to_owned()].join("\n"),
    );
    editor.until_said("begun");
    let loaded = Editor::start(&home).on("session/load", &session, &home);
    let shown = texts(&loaded, &session);
    assert!(shown[0].starts_with("The history cannot be shown"), "{shown:?}");
    assert_eq!(shown.last(), Some(&"begun"));
    editor.cancel(&session);
    assert_eq!(editor.finish(turn).result()["stopReason"], "cancelled");
    let unprompted = editor.new_session_of("scripted", &home);
    let loaded = Editor::start(&home).on("session/load", &unprompted, &home);
    loaded.result();
    assert_eq!(requests(&home, "scripted"), [0, 0]);
}

#[test]
fn a_session_that_the_agent_does_not_load_is_resumed() {
    let home = with_agent(LOADS_AND_RESUMES);
    let _daemon = home.start();
    let (_editor, session) = after_one_turn(&home, "scripted");
    let error = json!({"code": -32603, "message": "cannot replay"});
    fs::write(home.path().join(scripted::REFUSE_LOAD), error.to_string()).unwrap();
    let head = show(&home, &session)["head"].clone();
    let mut editor = Editor::start(&home);
    let loaded = editor.on("session/load", &session, &home);
    let shown = texts(&loaded, &session);
    assert!(shown[0].starts_with("The history cannot be shown"), "{shown:?}");
    // Once more in another process.
    assert_eq!(requests(&home, "scripted"), [2, 1]);
    let turn = editor.prompt(&session, &scripted::chunk("next"));
    assert_eq!(texts(&turn, &session), ["next"]);
    assert_eq!(show(&home, &session)["head"], head);
}

#[test]
fn a_replay_passes_unchanged_without_what_the_editor_does_not_know() {
    let home = with_agent(LOADS);
    let _daemon = home.start();
    let (_editor, session) = after_one_turn(&home, "scripted");
    let line =
        |params: Value| json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string();
    let text =
        |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
    let script = [
        // The daemon's own prompt, and the session of a subagent.
        scripted::update(&text("user_message_chunk", CONTINUE_PROMPT)),
        scripted::update(&json!({"sessionUpdate": "subagent_update", "sessionId": "child"})),
        line(json!({"sessionId": "child", "update": text("agent_message_chunk", "of a subagent")})),
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"_meta":{"a":1.0},"sessionId":$S,"update":{"sessionUpdate":"tool_call","toolCallId":"t","x":1e2}}}"#
            .to_owned(),
    ];
    fs::write(home.path().join(scripted::BEFORE_OPENING), script.join("\n")).unwrap();
    let mut able = Editor::with(&home, json!({"subagents": {}}));
    let loaded = able.on("session/load", &session, &home);
    let sessions = loaded
        .before
        .iter()
        .map(|message| &message["params"]["sessionId"]);
    let sessions: Vec<&Value> = sessions.collect();
    assert_eq!(
        sessions,
        [&session, &session, &session, "child", &session, &session]
    );
    let mut editor = Editor::start(&home);
    let load = editor.begin_on("session/load", &session, &home);
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("\"id\":")) {
        lines.push(editor.next_line());
    }
    assert_eq!(
        serde_json::from_str::<Value>(lines.last().unwrap()).unwrap()["id"],
        load
    );
    let expected = format!(
        r#""params":{{"_meta":{{"a":1.0}},"sessionId":"{session}","update":{{"sessionUpdate":"tool_call","toolCallId":"t","x":1e2}}}}"#
    );
    assert!(lines[2].contains(&expected), "{lines:?}");
    assert_eq!(lines.len(), 5, "{lines:?}");
}
