//! Changes that the disk does not take: their callers are told so, and everything is as it was, also beside
//! the daemon's own files.

use std::fs;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use serde_json::json;

use super::external_changes::limit_files;
use crate::carrying::files_below;
use crate::home::{Daemon, Home};

/// Leaves the daemon no room for a line in its journal.
fn fill(daemon: &Daemon<'_>) {
    let journal = daemon.home.data().join("journal.jsonl");
    limit_files(daemon, Some(fs::metadata(journal).unwrap().len()));
}

/// Only the record knows of a question whose agent is gone.
#[tokio::test]
async fn a_question_whose_refusal_could_not_be_written_stays_open() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    let mut raw = daemon.raw().await;
    raw.run(id, "[[ask May I?]]").await;
    let raised = raw.event("interruptRaised").await;
    daemon.kill();
    let (daemon, app) = home.opened().await;
    assert!(app.get(id).await.interrupts[0].orphaned);
    fill(&daemon);
    let outcome = json!({"outcome": "selected", "optionId": "reject_once"});
    let answer = json!({"conversationId": id, "interruptId": raised["interrupt"]["id"], "outcome": outcome});
    let told = app.call("conversation/respond", answer.clone()).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::StoreFailed);
    assert_eq!(app.get(id).await.interrupts.len(), 1);
    limit_files(&daemon, None);
    app.call("conversation/respond", answer).await.unwrap();
    daemon.kill();
    let daemon = home.start();
    let conversation = daemon.app().await.get(id).await;
    assert!(conversation.interrupts.is_empty());
    assert_eq!(conversation.state, ConversationState::Idle);
}

#[tokio::test]
async fn a_branch_that_could_not_be_written_down_leaves_no_file() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "two"]).await;
    let at = app.checkpoints(id).await[0].id.clone();
    app.close(id).await;
    let transcripts = || files_below(&home.data().join("loopback/projects"));
    let before = transcripts();
    fill(&daemon);
    for in_place in [true, false] {
        let fork = json!({"conversationId": id, "at": at, "inPlace": in_place});
        let told = app.call("conversation/fork", fork).await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::StoreFailed);
        assert_eq!(transcripts(), before, "in place: {in_place}");
    }
    limit_files(&daemon, None);
    assert_eq!(app.remembered(id).await, ["one", "two"]);
    let fork = json!({"conversationId": id, "at": at, "inPlace": true});
    app.call("conversation/fork", fork).await.unwrap();
    assert_eq!(app.remembered(id).await, ["one"]);
    daemon.kill();
    let daemon = home.start();
    assert_eq!(daemon.app().await.remembered(id).await[0], "one");
}
