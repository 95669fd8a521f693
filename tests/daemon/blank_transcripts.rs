//! Transcripts that a loss of power left empty or full of zeros. They hold nothing, so they are restored from their
//! kept copies as if they were missing, and the blank file is set aside.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::link::{Fidelity, Via};
use serde_json::json;

use crate::home::Home;
use crate::keeping::keep;
use crate::resumed::check_resumed;
use crate::support::{App, id_in};

/// Makes a conversation of two turns with a kept copy of its transcript. Returns its id and the transcript's path.
async fn kept(home: &Home) -> (ConversationId, PathBuf) {
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    (id, home.transcript_of(&app, id).await)
}

/// Overwrites the file in place with zeros; its inode stays the same.
fn blank(transcript: &Path, bytes: usize) {
    let file = File::options().write(true).truncate(true).open(transcript);
    file.unwrap().write_all(&vec![0; bytes]).unwrap();
}

/// Returns the path to which the blank transcript is set aside.
fn aside(transcript: &Path) -> PathBuf {
    transcript.with_extension("jsonl.set-aside-1")
}

async fn assert_goes_on(app: &App, id: ConversationId) {
    let turn = app.send(id, "three").await;
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::Archive, Fidelity::Full, 0);
    assert_eq!(app.remembered(id).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_prompt_goes_on_from_the_kept_copy() {
    for bytes in [4_096, 0] {
        let home = Home::new();
        let (id, transcript) = kept(&home).await;
        blank(&transcript, bytes);
        let (_daemon, app) = home.opened().await;
        assert_goes_on(&app, id).await;
        assert_eq!(fs::read(aside(&transcript)).unwrap(), vec![0; bytes]);
    }
}

#[tokio::test]
async fn restore_sets_the_file_aside_and_puts_the_copy_in_its_place() {
    let home = Home::keeping_nothing();
    let (id, transcript) = kept(&home).await;
    let whole = fs::read(&transcript).unwrap();
    blank(&transcript, 100);
    let (_daemon, app) = home.opened().await;
    let answer = app
        .call("transcript/restore", json!({"conversationId": id}))
        .await;
    assert_eq!(answer.unwrap()["restored"], json!([transcript]));
    assert_eq!(fs::read(&transcript).unwrap(), whole);
    assert_eq!(fs::read(aside(&transcript)).unwrap(), vec![0; 100]);
    let forked = app.fork(id, false).await.unwrap().conversation.id;
    assert_eq!(app.remembered(forked).await, ["one", "two"]);
}

/// Reading the history restores nothing.
#[tokio::test]
async fn the_history_is_read_from_the_kept_copy() {
    let home = Home::keeping_nothing();
    let (id, transcript) = kept(&home).await;
    let (_daemon, app) = home.opened().await;
    blank(&transcript, 100);
    let history = app
        .call("conversation/history", json!({"conversationId": id, "limit": 10}))
        .await
        .unwrap();
    assert_eq!(history["messages"].as_array().unwrap().len(), 4, "{history}");
    assert_eq!(fs::read(&transcript).unwrap(), vec![0; 100]);
    assert!(!aside(&transcript).exists());
}

/// A fork restores the session first.
#[tokio::test]
async fn a_branch_is_made_of_the_kept_copy() {
    let home = Home::keeping_nothing();
    let (id, transcript) = kept(&home).await;
    let whole = fs::read(&transcript).unwrap();
    let (_daemon, app) = home.opened().await;
    let place = app.checkpoints(id).await[0].id.clone();
    blank(&transcript, 100);
    let fork = app.call("conversation/fork", json!({"conversationId": id, "at": place}));
    let forked = fork.await.unwrap();
    let branch = id_in(&forked);
    assert_eq!(app.remembered(branch).await, ["one"]);
    assert_eq!(fs::read(&transcript).unwrap(), whole);
    assert!(aside(&transcript).exists());
}

/// Even a single byte that is not zero may be left of real content, so this file is not replaced.
#[tokio::test]
async fn what_holds_anything_else_is_not_replaced() {
    let home = Home::keeping_nothing();
    let (id, transcript) = kept(&home).await;
    let mut other = vec![0; 100];
    other[99] = b'x';
    fs::write(&transcript, &other).unwrap();
    let (_daemon, app) = home.opened().await;
    let restored = app
        .call("transcript/restore", json!({"conversationId": id}))
        .await;
    assert_eq!(
        restored.unwrap_err().kind,
        bridge_protocol::error::ErrorKind::Conflict
    );
    assert_eq!(fs::read(&transcript).unwrap(), other);
    assert!(!aside(&transcript).exists());
}
