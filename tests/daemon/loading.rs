//! `checkpointLoaded` events, which report what an agent loads on a resume. For Codex see `codex_watching`.

use std::fs;

use bridge_protocol::event::Event;
use serde_json::{Value, json};

use crate::home::Home;
use crate::watching::{kinds, turn, until_saved};

#[tokio::test]
async fn what_an_agent_loads_is_told_with_its_size() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    app.send(id, "one").await;
    app.send(id, "two").await;
    let all = until_saved(&mut events, 2).await;
    assert_eq!(
        kinds(&all, &["checkpointLoaded"]),
        [] as [&str; 0],
        "a new session loads nothing"
    );
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    app.ask("conversation/resume", id).await;
    let expected = Event::CheckpointLoaded {
        upstream_id: head.clone(),
        step: 2,
        messages: 4,
    };
    assert_eq!(events.until("checkpointLoaded").await, expected);
    // A session that is open is not loaded again.
    app.ask("conversation/resume", id).await;
    app.send(id, "three").await;
    let all = until_saved(&mut events, 3).await;
    assert_eq!(kinds(&all, &["checkpointLoaded"]), [] as [&str; 0]);
}

/// Messages that a compaction replaced are in the history, but the agent does not load them.
#[tokio::test]
async fn of_a_compacted_transcript_the_summary_and_what_follows_it_is_loaded() {
    let home = Home::new();
    let folder = home.data().join("loopback/projects/-compacted");
    fs::create_dir_all(&folder).unwrap();
    let (prompt, reply) = turn(&Value::Null, "before", "Long.");
    let last: Value = serde_json::from_str(&reply).unwrap();
    let boundary = json!({
        "type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": null,
        "logicalParentUuid": last["uuid"], "timestamp": "2020-11-03T12:00:02.000Z",
    });
    let summary = json!({
        "type": "user", "uuid": "s1", "parentUuid": "b1", "isCompactSummary": true,
        "timestamp": "2020-11-03T12:00:03.000Z", "message": {"role": "user", "content": "It was long."},
    });
    let behind = turn(&json!("s1"), "behind", "Short.");
    let text = format!("{prompt}{reply}{boundary}\n{summary}\n{}{}", behind.0, behind.1);
    fs::write(folder.join("s1.jsonl"), text).unwrap();
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": "s1", "cwd": home.project()});
    let id = app.made_by("conversation/adopt", params).await;
    let history = app.ask("conversation/history", id).await;
    assert_eq!(history["messages"].as_array().unwrap().len(), 5);
    let mut events = app.events(id).await;
    app.ask("conversation/resume", id).await;
    let expected = Event::CheckpointLoaded {
        upstream_id: "s1".into(),
        step: 2,
        messages: 3,
    };
    assert_eq!(events.until("checkpointLoaded").await, expected);
}
