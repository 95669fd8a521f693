//! Large values: names over the limit are refused, and large settings do not break lists and subscriptions.

use std::collections::HashSet;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::{App, refused};
use crate::watching::saved;

const TITLE_LIMIT_BYTES: usize = 4 * 1024;
const NAMESPACE_LIMIT_BYTES: usize = 256;

/// The size of one conversation's settings, in bytes. `MANY` of these are longer than any response.
const LARGE: usize = 1_000_000;
const MANY: usize = 36;

async fn make_large(app: &App, cwd: &str, bytes: usize) -> ConversationId {
    let settings = json!({"settings": {"systemPrompt": "x".repeat(bytes)}});
    app.make_with(cwd, settings).await.id
}

#[tokio::test]
async fn names_that_are_too_long_are_refused_with_the_limit() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let title = "x".repeat(TITLE_LIMIT_BYTES);
    let longest = json!({"title": title, "namespace": "n".repeat(NAMESPACE_LIMIT_BYTES)});
    let made = app.make_with(&home.project(), longest).await;
    assert_eq!(made.title, title);
    let long_title = json!(format!("{title}x"));
    let long_namespace = json!("n".repeat(NAMESPACE_LIMIT_BYTES + 1));
    let (cwd, id) = (home.project(), made.id);
    let table = [
        ("new", json!({"cwd": cwd, "title": long_title})),
        ("new", json!({"cwd": cwd, "namespace": long_namespace})),
        ("update", json!({"conversationId": id, "title": long_title})),
        ("fork", json!({"conversationId": id, "title": long_title})),
    ];
    for (method, params) in table {
        let answer = app.call(&format!("conversation/{method}"), params).await;
        refused(answer, ErrorKind::InvalidParams);
    }
    let all = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(
        all["conversations"].as_array().unwrap().len(),
        1,
        "nothing was made"
    );
}

#[tokio::test]
async fn a_name_that_an_agent_gives_is_cut_between_characters() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (_daemon, app) = home.opened().await;
    let made = app.make_with(&home.project(), json!({"agent": "scripted"})).await;
    let title = format!("x{}", "é".repeat(TITLE_LIMIT_BYTES));
    let update = json!({"sessionUpdate": "session_info_update", "title": title}).to_string();
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
    );
    app.send(made.id, &line).await;
    let kept = app.get(made.id).await.title;
    assert_eq!(kept.len(), TITLE_LIMIT_BYTES - 1);
    assert!(title.starts_with(&kept));
}

/// A page of large conversations ends early and has a cursor for the next page. Each conversation is found once, in
/// order.
#[tokio::test]
async fn a_page_of_large_conversations_ends_early() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut made = Vec::new();
    for _ in 0..MANY {
        made.push(make_large(&app, &home.project(), LARGE).await);
    }
    made.push(app.make(&home.project()).await);
    let mut raw = daemon.raw().await;
    let (mut found, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let request = raw.send("conversation/list", json!({"cursor": cursor})).await;
        let line = raw.line().await;
        assert!(line.len() < 3 * LARGE, "a page of {} bytes", line.len());
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], request);
        let page = answer["result"]["conversations"].as_array().unwrap();
        assert!(!page.is_empty(), "a page has at least one conversation");
        found.extend(page.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        cursor = answer["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let expected: Vec<String> = made.iter().rev().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

/// A subscriber to all conversations gets a snapshot of each large one that is not idle, however slowly it reads.
#[tokio::test]
async fn snapshots_that_are_large_together_are_all_told() {
    // The subscriber's queue is limited to 16 events here, so there is never room for all snapshots at once.
    let home = Home::with_config("[limits]\nsubscriber_events = 16\n");
    let (_daemon, app) = home.opened().await;
    let mut limited = HashSet::new();
    for _ in 0..MANY {
        let id = make_large(&app, &home.project(), LARGE / 4).await;
        let mut events = app.events(id).await;
        app.send(id, "[[limit 3600]]").await;
        // Without this wait, many `checkpointSaved` events could fill the queue of the subscriber below.
        saved(&mut events).await;
        limited.insert(id);
    }
    let mut all = app.events_of(None, None).await;
    for _ in 0..MANY {
        let envelope = all.next().await;
        assert!(
            matches!(envelope.event, Event::Snapshot { .. }),
            "{} instead of a snapshot",
            envelope.event.kind()
        );
        assert!(limited.remove(&envelope.conversation_id));
    }
    // Live events follow the snapshots.
    let later = app.make(&home.project()).await;
    let envelope = all.next().await;
    let told = (envelope.conversation_id, envelope.event.kind());
    assert_eq!(told, (later, "snapshot"), "each conversation has one snapshot");
}
