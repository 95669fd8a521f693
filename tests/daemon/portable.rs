//! Conversations as plain JSON for other programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use serde_json::{Value, json};

use crate::carrying::files_below;
use crate::home::Home;
use crate::signs::Reads;
use crate::support::{App, refused};

async fn export(app: &App, params: Value) -> Value {
    app.call("conversation/export", params).await.unwrap()
}

#[tokio::test]
async fn it_tells_what_history_tells_and_a_file_holds_the_same() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = app.make_with(&home.project(), json!({"title": "Mine"})).await.id;
    app.send(id, "one [[tool read {\"a\":1}]]").await;
    app.fork(id, true).await.unwrap();
    let mut events = app.events(id).await;
    app.send(id, "two \u{1f600} \"quoted\"").await;
    let mut told = events
        .turn()
        .await
        .into_iter()
        .filter_map(|envelope| match envelope.event {
            Event::Update { update, .. } => Some(update.read::<Value>().unwrap()),
            _ => None,
        });
    let usage = told.rfind(|update| update["sessionUpdate"] == "usage_update");

    let portable = export(&app, json!({"conversationId": id})).await;
    let history = app.ask("conversation/history", id).await;
    assert_eq!(portable["messages"], history["messages"]);
    assert_eq!((&portable["version"], &portable["turns"]), (&json!(1), &json!(2)));
    assert_eq!(portable["conversation"]["title"], json!("Mine"));
    assert_eq!(portable["chain"].as_array().unwrap().len(), 2);
    assert_eq!(portable["lineage"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&portable["pending"], &portable["gaps"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(Some(&portable["usage"]), usage.as_ref());

    let path = home.path().join("out.json");
    let params = json!({"conversationId": id, "format": "json", "path": path});
    let told = export(&app, params).await;
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(told, json!({"path": path, "bytes": text.len()}));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let exported_at = file["exportedAt"].take();
    let (_, fraction) = exported_at.as_str().unwrap().split_once('.').unwrap();
    assert_eq!(fraction.len(), "123Z".len(), "{exported_at}");
    file["exportedAt"] = portable["exportedAt"].clone();
    assert_eq!(file, portable);

    // The last reported usage is known without the agent, also after a restart. A reset clears it.
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let later = export(&app, json!({"conversationId": id})).await;
    assert_eq!(later["usage"], portable["usage"]);
    app.ask("conversation/reset", id).await;
    let anew = export(&app, json!({"conversationId": id})).await;
    assert_eq!(anew["usage"], Value::Null);
}

#[tokio::test]
async fn a_conversation_that_nobody_spoke_in_has_no_messages() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let portable = export(&app, json!({"conversationId": id})).await;
    assert_eq!(
        (&portable["messages"], &portable["turns"]),
        (&json!([]), &json!(0))
    );
    let path = home.path().join("out.json");
    export(&app, json!({"conversationId": id, "path": path})).await;
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["messages"], json!([]));
}

#[tokio::test]
async fn gaps_are_told() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.close(id).await;
    fs::remove_file(home.transcript_of(&app, id).await).unwrap();
    let path = home.path().join("out.json");
    let told = export(&app, json!({"conversationId": id, "path": path})).await;
    assert_eq!(told["gaps"][0]["kind"], json!("missing"));
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["gaps"], told["gaps"]);
}

/// An export that does not fit into a response is refused with a hint, and can be written to a file.
// Against D8.
#[tokio::test]
async fn a_long_conversation_needs_a_file() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    for _ in 0..3 {
        app.send(id, &"x".repeat(6 * 1024 * 1024)).await;
    }
    refused(
        app.call("conversation/export", json!({"conversationId": id}))
            .await,
        ErrorKind::InvalidParams,
    );
    let path = home.path().join("out.json");
    drop(app);
    drop(daemon);
    // This daemon has not held any prompt yet, so its peak memory is that of the export.
    let (daemon, app) = home.opened().await;
    let told = export(&app, json!({"conversationId": id, "path": path})).await;
    if let Some(peak) = daemon.peak_bytes() {
        assert!(
            peak < 100 << 20,
            "more than one prompt was in memory: {peak} bytes"
        );
    }
    assert!(told["bytes"].as_u64().unwrap() > 18 * 1024 * 1024, "{told}");
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["turns"], json!(3));
}

/// A long call reports its progress, and ends when its client disconnects.
#[tokio::test]
async fn long_work_is_told_and_ends_with_its_caller() {
    // Nothing is kept here, because making a copy would read the file too.
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    app.send(id, "one").await;
    // Before it announces the turn as saved, the daemon opens and closes the files beside the transcript.
    let saved = |event: &Event| matches!(event, Event::CheckpointSaved { .. }).then_some(());
    events.find(saved).await;
    let beside = home
        .transcript_of(&app, id)
        .await
        .with_extension("")
        .join("tool-results");
    fs::create_dir_all(&beside).unwrap();
    // A sparse file: it takes no space on disk, and reading it takes longer than any test.
    let endless = fs::File::create(beside.join("endless")).unwrap();
    endless.set_len(1 << 42).unwrap();
    let reads = Reads::of(&beside.join("endless"));
    assert_eq!(
        app.call("daemon/work", json!({})).await.unwrap(),
        json!({"work": []})
    );
    let mut raw = daemon.raw().await;
    raw.send(
        "conversation/export",
        json!({"conversationId": id, "format": "bundle"}),
    )
    .await;
    let mut last = 0;
    while last < 1024 * 1024 {
        assert!(!reads.next_is_close(), "the file is read to its end");
        let told = app.call("daemon/work", json!({})).await.unwrap();
        let work = &told["work"][0];
        assert_eq!(
            (&work["method"], &work["conversationId"]),
            (&json!("conversation/export"), &json!(id))
        );
        let done = work["doneBytes"].as_u64().unwrap();
        // Bytes that are read to find the files count before the total is known.
        let is_known = work["totalBytes"].as_u64().unwrap() > 1 << 42;
        assert!(done >= last && (done < 1024 * 1024 || is_known), "{work}");
        last = done;
    }
    drop(raw);
    while !reads.next_is_close() {}
    drop(app);
    // If the work were still running, the daemon could not stop at once. No unfinished file is left.
    drop(daemon);
    assert_eq!(
        files_below(&home.data().join("exports")),
        [] as [std::path::PathBuf; 0]
    );
}
