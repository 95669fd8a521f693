//! Transcripts that were deleted or cut off while the agent kept writing to them: their earlier part exists only in the
//! backup.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::link::{Fidelity, LineageReason, Via};
use serde_json::{Value, json};

use crate::home::Home;
use crate::keeping::keep;
use crate::resumed::check_resumed;
use crate::support::{App, id_in};

const PROMPTS: [&str; 4] = ["one", "two", "three", "four"];

/// Makes a closed conversation of four turns. Its file has only the last turn, as if it had been deleted before; the
/// backup has the first three.
async fn cut_off(home: &Home, app: &App) -> (ConversationId, PathBuf) {
    let id = app.begun(&home.project(), &PROMPTS[..3]).await;
    keep(app, json!({"conversationId": id})).await.unwrap();
    let path = home.transcript_of(app, id).await;
    let before = fs::read(&path).unwrap().len();
    app.send(id, PROMPTS[3]).await;
    app.close(id).await;
    let rest = fs::read(&path).unwrap().split_off(before);
    fs::remove_file(&path).unwrap();
    fs::write(&path, rest).unwrap();
    (id, path)
}

/// Returns how many files beside the transcript were set aside.
fn set_aside(transcript: &Path) -> usize {
    let entries = fs::read_dir(transcript.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".set-aside-")).count()
}

pub(super) fn users(history: &Value) -> Vec<&str> {
    let messages = history["messages"].as_array().unwrap().iter();
    let users = messages.filter(|message| message["role"] == "user");
    users
        .filter_map(|message| message["content"][0]["text"].as_str())
        .collect()
}

#[tokio::test]
async fn a_resume_restores_what_the_backup_has_and_keeps_what_came_after_it() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let (id, path) = cut_off(&home, &app).await;
    let resumed = app.send(id, "five").await.resumed.unwrap();
    check_resumed(&resumed, Via::Archive, Fidelity::Full, 0);
    assert_eq!(app.remembered(id).await, [&PROMPTS[..], &["five"]].concat());
    assert_eq!(
        app.lineage(id).await.last().unwrap().reason,
        LineageReason::Restored
    );
    assert_eq!(set_aside(&path), 1, "nothing is deleted");
}

#[tokio::test]
async fn what_the_backup_has_is_read_branched_and_edited_before_a_resume() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let (id, path) = cut_off(&home, &app).await;
    let by_id = json!({"conversationId": id});
    let rest = fs::read(&path).unwrap();
    let history = app.call("conversation/history", by_id.clone()).await.unwrap();
    assert_eq!(
        (users(&history), history.get("gaps")),
        (PROMPTS.to_vec(), None),
        "{history}"
    );
    let places = app.checkpoints(id).await;
    assert_eq!(places.len(), 4);
    let place = json!({"checkpointId": places[1].id});
    let place = app.call("checkpoint/get", place).await.unwrap();
    assert_eq!(place["checkpoint"]["prompt"], "two");
    let found = app.call("transcript/check", by_id).await.unwrap();
    let detail = found["findings"][0]["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("3 turns are missing before it; the backup of "),
        "{found}"
    );
    assert_eq!(fs::read(&path).unwrap(), rest, "reading changed the file");

    let fork = app.call(
        "conversation/fork",
        json!({"conversationId": id, "at": places[1].id}),
    );
    let fork = fork.await.unwrap();
    let fork = id_in(&fork);
    assert_eq!(app.remembered(fork).await, PROMPTS[..2]);
    assert_eq!(app.remembered(id).await, PROMPTS);

    let (other, _) = cut_off(&home, &app).await;
    let places = app.checkpoints(other).await;
    let edit = json!({"conversationId": other, "at": places[2].id, "prompt": "instead"});
    let edited = app.call("conversation/edit", edit).await.unwrap();
    assert_eq!(
        (&edited["fidelity"], &edited["dropped"]),
        (&json!("full"), &json!(2))
    );
    assert_eq!(app.remembered(other).await, ["one", "two", "instead"]);
}

#[tokio::test]
async fn a_repair_drops_nothing_that_the_backup_has() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let (id, _) = cut_off(&home, &app).await;
    let repair = json!({"conversationId": id, "repair": true});
    let repaired = app.call("transcript/check", repair).await.unwrap();
    assert_ne!(repaired["fidelity"], "partial", "{repaired}");
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// The file is deleted again after the backup got both parts.
#[tokio::test]
async fn both_parts_come_back_from_backups() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let (id, path) = cut_off(&home, &app).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    fs::remove_file(&path).unwrap();
    let resumed = app.send(id, "five").await.resumed.unwrap();
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(app.remembered(id).await, [&PROMPTS[..], &["five"]].concat());
}
