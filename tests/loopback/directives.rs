//! Directives within a turn.

use std::fs;

use serde_json::{Value, json};

use super::place::Place;

#[test]
fn the_transcript_has_claudes_shape() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent
        .prompt(
            &session,
            "[[say a]][[tool Read {\"n\":12345678901234567890.10}]][[say b]]",
        )
        .result();
    let records = place.records(&session);
    let kinds: Vec<_> = records
        .iter()
        .map(|record| record["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(kinds, ["user", "assistant", "assistant", "user", "assistant"]);
    assert_eq!(records[0]["origin"], json!({ "kind": "human" }));
    assert_eq!(records[0]["parentUuid"], Value::Null);
    for pair in records.windows(2) {
        assert_eq!(pair[1]["parentUuid"], pair[0]["uuid"]);
    }
    for record in &records {
        assert_eq!(record["sessionId"], session.as_str());
        assert_eq!(record["cwd"], json!(place.cwd()));
        assert_eq!(
            (&record["isSidechain"], &record["gitBranch"]),
            (&json!(false), &json!(""))
        );
        assert!(
            record["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
        assert!(record["version"].is_string());
    }
    assert_eq!(
        records[1]["message"]["id"], records[2]["message"]["id"],
        "the blocks belong to one message"
    );
    assert_ne!(
        records[2]["message"]["id"], records[4]["message"]["id"],
        "a tool result starts another message"
    );
    assert!(records[3]["toolUseResult"].is_string());
    let text = fs::read_to_string(place.transcript(&session)).expect("a transcript");
    assert!(
        text.contains("12345678901234567890.10"),
        "the arguments were changed"
    );
}

#[test]
fn a_stream_is_numbered_200_byte_chunks_in_order() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    for (directive, chunks) in [
        ("[[stream 2000 0]]", 2_000),
        ("[[stream 5 1]]", 5),
        ("[[stream 0 0]]", 0),
    ] {
        let reply = agent.prompt(&session, directive);
        let texts: Vec<&str> = reply
            .updates("agent_message_chunk")
            .iter()
            .map(|update| update["content"]["text"].as_str().expect("a text"))
            .filter(|text| *text != "done")
            .collect();
        assert_eq!(texts.len(), chunks, "{directive}");
        for (number, text) in texts.iter().enumerate() {
            assert_eq!((text.len(), &text[..10]), (200, format!("{number:010}").as_str()));
        }
    }
    let turns = place.turns(&session);
    assert_eq!(turns[0].reply.len(), 2_000 * 200);
}

#[test]
fn a_file_is_written_in_the_folder_of_the_session_only() {
    let place = Place::new();
    let mut agent = place.agent();
    let folder = place.cwd().join("project");
    std::fs::create_dir(&folder).unwrap();
    let session = agent.new_session(&folder);
    for (path, status, is_written) in [
        ("sub/a.txt", "completed", true),
        ("../outside.txt", "failed", false),
    ] {
        let reply = agent.prompt(&session, &format!("[[write {path} x]]"));
        assert_eq!(reply.updates("tool_call_update")[0]["status"], status);
        assert_eq!(folder.join(path).exists(), is_written);
    }
}

#[test]
fn a_cancel_withdraws_the_question() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let prompt = agent.begin_prompt(&session, "[[ask may I?]]");
    let (question, _) = agent.read_until("question", |message| {
        message["method"] == "session/request_permission"
    });
    agent.cancel(&session);
    let reply = agent.finish(prompt);
    assert_eq!(reply.stop_reason(), "cancelled");
    let withdrawn = reply
        .before
        .iter()
        .find(|message| message["method"] == "$/cancel_request");
    assert_eq!(
        withdrawn.expect("a withdrawal")["params"]["requestId"],
        question["id"]
    );
}
