//! Checks of transcripts: each finding names its line, and a check changes nothing.

use std::fs;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::damaged::tear;
use crate::home::Home;
use crate::support::{App, refused};
use crate::watching::append;

async fn kinds(app: &App, params: Value) -> Vec<(u64, String)> {
    let answer = app.call("transcript/check", params).await.unwrap();
    let findings = answer["findings"].as_array().unwrap();
    let place = |finding: &Value| {
        assert!(!finding["detail"].as_str().unwrap().is_empty(), "{finding}");
        (
            finding["line"].as_u64().unwrap(),
            finding["kind"].as_str().unwrap().to_owned(),
        )
    };
    findings.iter().map(place).collect()
}

// Against D6.
#[tokio::test]
async fn a_transcript_is_checked_by_its_id_or_its_conversations() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&[]).await;
    let by_conversation = json!({"conversationId": id});
    refused(
        app.call("transcript/check", by_conversation.clone()).await,
        ErrorKind::NotFound,
    );
    for text in ["one", "[[tool Read {}]]", "three"] {
        app.send(id, text).await;
    }
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let by_id = json!({"upstreamId": head});
    for params in [&by_conversation, &by_id] {
        assert_eq!(kinds(&app, params.clone()).await, []);
    }

    tear(&home, head.as_str(), "echo: one");
    let path = home.transcript(head.as_str()).unwrap();
    let torn = fs::read_to_string(&path).unwrap() + "{\"type\":\"us";
    fs::write(&path, &torn).unwrap();
    let lines: Vec<&str> = torn.lines().collect();
    let broken = lines.iter().position(|line| line.starts_with("{@")).unwrap() as u64 + 1;
    let expected = [
        (broken, "garbageLine".to_owned()),
        (broken + 1, "brokenParent".to_owned()),
        (lines.len() as u64, "tornLine".to_owned()),
    ];
    for params in [&by_conversation, &by_id] {
        assert_eq!(kinds(&app, params.clone()).await, expected);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), torn, "file changed");

    fs::write(&path, "").unwrap();
    assert_eq!(kinds(&app, by_id).await, [(0, "nothingToResume".to_owned())]);
    fs::remove_file(&path).unwrap();
    refused(
        app.call("transcript/check", by_conversation).await,
        ErrorKind::NotFound,
    );
}

#[tokio::test]
async fn what_cannot_be_checked_is_refused() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let table = [
        (json!({}), ErrorKind::InvalidParams),
        (
            json!({"upstreamId": "a", "conversationId": "b"}),
            ErrorKind::InvalidParams,
        ),
        (
            json!({"conversationId": "b", "agent": "loopback"}),
            ErrorKind::InvalidParams,
        ),
        (json!({"upstreamId": "a", "repair": true}), ErrorKind::NotFound),
        (
            json!({"conversationId": "b", "agent": "loopback", "repair": true}),
            ErrorKind::InvalidParams,
        ),
        (json!({"repair": true}), ErrorKind::InvalidParams),
        (json!({"upstreamId": "a", "repair": false}), ErrorKind::NotFound),
        (json!({"upstreamId": "a/b"}), ErrorKind::NotFound),
        (json!({"conversationId": "abcdef"}), ErrorKind::NotFound),
    ];
    for (params, kind) in table {
        refused(app.call("transcript/check", params).await, kind);
    }
}

/// The number of checks of a long transcript that run or wait at the same time.
const CHECKS: usize = 8;

/// A check reads the whole transcript. However many checks are waiting, a history can still be read.
#[tokio::test]
async fn checks_of_a_long_transcript_keep_no_history_waiting() {
    let home = Home::keeping_nothing();
    let (daemon, app, long) = home.begun(&["one"]).await;
    app.close(long).await;
    let other = app.begun(&home.project(), &["two"]).await;
    let path = home.transcript_of(&app, long).await;
    let text = fs::read_to_string(&path).unwrap();
    let mut replies = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["type"] == "assistant");
    let mut record = replies.next_back().unwrap();
    record["message"]["content"] = json!([{"type": "text", "text": "long ".repeat(400)}]);
    let mut more = String::new();
    for number in 0..4_000 {
        record["parentUuid"] = record["uuid"].take();
        record["uuid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
        more += &format!("{record}\n");
    }
    append(&path, &more);

    let mut raw = daemon.raw().await;
    let mut checks = Vec::new();
    for _ in 0..CHECKS {
        checks.push(
            raw.send("transcript/check", json!({"conversationId": long}))
                .await,
        );
    }
    let mut reads = Vec::new();
    for method in ["conversation/history", "conversation/checkpoints"] {
        reads.push(raw.send(method, json!({"conversationId": other})).await);
    }
    while !reads.is_empty() {
        let answer = raw.next().await;
        assert!(answer.get("error").is_none(), "{answer}");
        let id = answer["id"].as_u64().unwrap();
        reads.retain(|read| *read != id);
        checks.retain(|check| *check != id);
    }
    assert!(checks.len() >= CHECKS / 2, "{} are left", checks.len());
    for _ in checks {
        let answer = raw.next().await;
        assert_eq!(answer["result"]["findings"], json!([]), "{answer}");
    }
}
