//! Deletions on a failing disk: a refused deletion deletes nothing, a deletion that has begun is finished, and the next
//! start erases what could not be erased.

use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::turn::StopReason;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::erasing::removed_in_part;
use super::failing_disk::{ALWAYS, passing};
use crate::carrying::files_below;
use crate::failing_calls::{Call, Calls};
use crate::home::Home;
use crate::signs::Watched;
use crate::support::{App, within};

/// A refused deletion deletes neither the transcript nor its backup.
#[tokio::test]
async fn a_deletion_that_cannot_be_saved_deletes_no_file() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Sync]);
    let (_daemon, app) = calls.opened().await;
    let (id, delete) = kept_and_its_deletion(&home, &app).await;
    let files = |folder: &str| files_below(&home.data().join(folder));
    let before = (files("loopback/projects"), files("kept"));
    assert!(!before.0.is_empty() && !before.1.is_empty());
    let journal = home.data().join("journal.jsonl");
    calls.fail(Call::Sync, &journal, Errno::IO, ALWAYS);
    passing(
        "delete",
        app.call("conversation/delete", delete.clone()).await,
        &journal,
    );
    assert_eq!((files("loopback/projects"), files("kept")), before);
    assert!(calls.succeed() > 0);
    assert_eq!(app.remembered(id).await, ["one"]);
    assert_eq!(app.send(id, "two").await.stop_reason, StopReason::EndTurn);
    app.call("conversation/delete", delete).await.unwrap();
    assert_eq!(files("loopback/projects"), Vec::<PathBuf>::new());
}

/// If the end of a deletion could not be saved, the next call or the next start finishes it.
#[tokio::test]
async fn a_deletion_that_has_begun_is_finished() {
    for is_killed in [false, true] {
        let home = Home::new();
        let calls = Calls::of(&home, &[Call::Sync]);
        let (daemon, app) = calls.opened().await;
        let (id, delete) = kept_and_its_deletion(&home, &app).await;
        let journal = home.data().join("journal.jsonl");
        calls.pass(Call::Sync, &journal, 1);
        calls.fail(Call::Sync, &journal, Errno::IO, ALWAYS);
        passing(
            "delete",
            app.call("conversation/delete", delete.clone()).await,
            &journal,
        );
        assert_eq!(
            files_below(&home.data().join("loopback/projects")),
            Vec::<PathBuf>::new()
        );
        let prompt = json!({"conversationId": id, "prompt": "two"});
        let refusal = app.call("conversation/prompt", prompt).await.unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Busy, "{refusal:?}");
        if !is_killed {
            assert!(calls.succeed() > 0);
            let told = app.call("conversation/delete", delete.clone()).await.unwrap();
            assert_eq!(app.call("conversation/delete", delete).await.unwrap(), told);
            continue;
        }
        daemon.kill();
        calls.succeed();
        let (_daemon, app) = home.opened().await;
        let finished = Watched::below(&home.data()).wait_for_answer("the deletion", async || {
            let view = app.call("conversation/get", json!({"conversationId": id})).await;
            view.err()
        });
        let error = within(finished).await;
        assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}");
        let told = app.call("conversation/delete", delete.clone()).await.unwrap();
        assert_eq!(app.call("conversation/delete", delete).await.unwrap(), told);
    }
}

/// Makes a conversation with a transcript and a backup. Returns it with the parameters of the call that deletes all of
/// it.
async fn kept_and_its_deletion(home: &Home, app: &App) -> (ConversationId, Value) {
    let id = app.begun(&home.project(), &["one"]).await;
    app.close(id).await;
    app.ask("transcript/keep", id).await;
    let delete = json!({"conversationId": id, "transcripts": "delete", "requestId": "deleted"});
    (id, delete)
}

/// The conversation is deleted, and the answer says that files may still contain its messages.
#[tokio::test]
async fn a_deletion_that_could_not_be_erased_says_so_and_the_next_start_does_it() {
    for (call, errno) in [
        (Call::Sync, Errno::IO),
        (Call::Sync, Errno::NOSPC),
        (Call::Open, Errno::MFILE),
    ] {
        erases_at_the_next_start(call, errno).await;
    }
}

async fn erases_at_the_next_start(call: Call, errno: Errno) {
    let home = Home::keeping_nothing();
    let calls = Calls::of(&home, &[call]);
    let (daemon, app) = calls.opened().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(app.begun(&home.project(), &["a secretprompt"]).await);
    }
    let new = home.data().join("journal.new");
    calls.fail(call, &new, errno, ALWAYS);
    let delete = json!({"conversationId": ids[0], "transcripts": "delete"});
    let answer = app.call("conversation/delete", delete).await.unwrap();
    let told = answer["notErased"].as_str().unwrap();
    assert!(told.contains(new.to_str().unwrap()), "{answer}");
    let words = removed_in_part(&home, ids[1]);
    assert!(
        words.contains(new.to_str().unwrap()) && words.contains("sessionctl stop"),
        "{words}"
    );
    assert!(calls.succeed() > 0);
    let has_words = |file: &PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(12).any(|part| part == b"secretprompt")
    };
    assert!(files_below(&home.data()).iter().any(has_words));
    drop((app, daemon));
    let (_daemon, app) = home.opened().await;
    // The store finishes the erasure before it accepts a change.
    let third = app.begun(&home.project(), &["one"]).await;
    let left: Vec<PathBuf> = files_below(&home.data()).into_iter().filter(has_words).collect();
    assert_eq!(left, [] as [PathBuf; 0]);
    let delete = json!({"conversationId": third, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
}

/// The erasure replaces the database with a copy. Whichever read of the database fails, no other conversation is lost.
#[tokio::test]
async fn an_erasure_whose_database_cannot_be_read_loses_no_conversation() {
    let mut refused = 0;
    for passed in 0..8 {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[Call::Read]);
        let (daemon, app) = calls.opened().await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(app.begun(&home.project(), &["one"]).await);
        }
        let database = home.data().join("store");
        calls.pass(Call::Read, &database, passed);
        calls.fail(Call::Read, &database, Errno::IO, 1);
        let delete = json!({"conversationId": ids.remove(0), "transcripts": "delete"});
        let answer = app.call("conversation/delete", delete).await.unwrap();
        calls.succeed();
        if let Some(told) = answer["notErased"].as_str() {
            assert!(told.contains(database.to_str().unwrap()), "{answer}");
            refused += 1;
        }
        ids.push(app.begun(&home.project(), &["one"]).await);
        let listed = app.call("conversation/list", json!({})).await.unwrap();
        assert_eq!(
            listed["conversations"].as_array().unwrap().len(),
            3,
            "{passed}: {listed}"
        );
        drop((app, daemon));
        let (_daemon, app) = home.opened().await;
        for id in ids {
            assert_eq!(app.remembered(id).await, ["one"], "{passed}");
        }
    }
    assert!(refused > 0);
}

/// The erasure replaces the journal. Whichever sync or open fails once during this, the daemon accepts changes
/// afterwards and keeps them.
#[tokio::test]
async fn an_erasure_that_fails_keeps_the_daemon_from_no_change() {
    for (call, errno) in [(Call::Sync, Errno::IO), (Call::Open, Errno::MFILE)] {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let (daemon, app) = calls.opened().await;
        // Without a turn, only the store syncs or opens files.
        let id = app.make(&home.project()).await;
        let (mut title, mut refused) = (String::new(), 0);
        for passed in 0.. {
            let deleted = app.make(&home.project()).await;
            calls.pass(call, &home.data(), passed);
            calls.fail(call, &home.data(), errno, 1);
            let delete = json!({"conversationId": deleted, "transcripts": "delete"});
            let answer = app.call("conversation/delete", delete).await;
            if calls.succeed() == 0 {
                break;
            }
            refused += usize::from(answer.is_ok_and(|answer| answer["notErased"].is_string()));
            title = format!("after {passed}");
            let update = json!({"conversationId": id, "title": title});
            app.call("conversation/update", update).await.unwrap();
        }
        assert!(refused > 1, "{call:?}");
        drop(app);
        daemon.kill();
        let (_daemon, app) = home.opened().await;
        assert_eq!(app.get(id).await.title, title, "{call:?}");
    }
}
