//! What is wrong with a transcript is told by line, and nothing is changed.

use std::fs;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::damaged::tear;
use crate::home::Home;
use crate::support::{App, refused};

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
    let (_daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
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
    assert_eq!(fs::read_to_string(&path).unwrap(), torn, "nothing is changed");

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
