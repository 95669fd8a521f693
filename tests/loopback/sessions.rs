//! Missing sessions, forks at a message, lists and deletions.

use std::fs;

use serde_json::json;

use super::place::{Place, code};
use crate::words::check;

#[test]
fn a_transcript_that_vanishes_is_not_begun_anew() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    fs::remove_file(place.transcript(&session)).expect("the file is deleted");
    assert_eq!(code(&agent.prompt(&session, "two").error()), -32002);
    assert!(place.transcripts(&session).is_empty());
}

#[test]
fn sessions_that_were_never_written_or_heard_of() {
    let place = Place::new();
    let mut agent = place.agent();
    let unwritten = agent.new_session(place.cwd());
    assert_eq!(
        code(&agent.open("session/fork", &unwritten, place.cwd()).error()),
        -32002
    );
    let mut other = place.agent();
    for id in [
        unwritten.as_str(),
        "6d1f4c1e-3d3c-4c5b-9d0a-8f7d1b0e2a11",
        "../escape",
        "",
        "a/b",
    ] {
        for method in ["session/load", "session/resume", "session/fork"] {
            let error = other.open(method, id, place.cwd()).error();
            assert_eq!(
                (code(&error), &error["data"]["sessionId"]),
                (-32002, &json!(id)),
                "{method} {id}"
            );
        }
        assert_eq!(code(&other.prompt(id, "x").error()), -32002);
        assert_eq!(
            other.call("session/close", json!({ "sessionId": id })).result(),
            json!({})
        );
        assert_eq!(
            other.call("session/delete", json!({ "sessionId": id })).result(),
            json!({})
        );
    }
}

#[test]
fn a_fork_can_end_at_a_message() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one [[tool Read {}]] [[say 1]]").result();
    agent.prompt(&session, "two").result();
    agent.prompt(&session, "three").result();
    let turns = place.turns(&session);
    let mut fork_at = |point: &str| {
        let meta =
            json!({ "jetbrains": { "air": { "version": 1, "fork": { "version": 1, "messageId": point } } } });
        let params = json!({ "sessionId": session, "cwd": place.cwd(), "mcpServers": [], "_meta": meta });
        agent.call("session/fork", params).outcome.map(|answer| {
            let branch = answer["sessionId"].as_str().expect("an id").to_owned();
            let history = agent.recall(&branch);
            history.as_array().expect("turns").clone()
        })
    };
    let message = turns[0].last_message_id.as_str();
    let kept = fork_at(message).expect("a fork");
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0]["assistant"], &kept[0]["tools"]),
        (&json!("1"), &json!(["Read"]))
    );
    let kept = fork_at(&turns[1].prompt_uuid).expect("a fork");
    assert_eq!((kept.len(), &kept[1]["assistant"]), (2, &json!("")));
    let error = fork_at("msg_nowhere").expect_err("a refusal");
    assert_eq!(code(&error), -32602);
    let message = error["message"].as_str().expect("a message");
    check("a fork at a message that is not there", "loopback", message);
}

#[test]
fn sessions_are_listed_and_deleted() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut agent = place.agent();
    let here = agent.new_session(place.cwd());
    agent.prompt(&here, "first words\nand more").result();
    let there = agent.new_session(elsewhere.path());
    agent.prompt(&there, "other").result();
    agent.new_session(place.cwd());
    let all = agent.call("session/list", json!({})).result();
    assert_eq!(
        all["sessions"].as_array().map(Vec::len),
        Some(2),
        "sessions without a transcript are not listed"
    );
    let filtered = agent.call("session/list", json!({ "cwd": place.cwd() })).result();
    assert_eq!(filtered["sessions"][0]["sessionId"], here.as_str());
    assert_eq!(filtered["sessions"][0]["title"], "first words");
    assert_eq!(filtered["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        code(&agent.call("session/list", json!({ "cursor": "x" })).error()),
        -32602
    );

    agent
        .call("session/delete", json!({ "sessionId": here }))
        .result();
    assert!(
        place.transcripts(&here).is_empty(),
        "the transcript of a live session was not deleted"
    );
    assert_eq!(code(&agent.prompt(&here, "x").error()), -32002);
    let all = agent.call("session/list", json!({})).result();
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(1));
}
