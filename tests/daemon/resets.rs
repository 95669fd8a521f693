//! Undoing a reset: which history comes back, also if its turns were not acknowledged, or if the conversation has moved
//! since.

use bridge_protocol::ConversationId;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::LineageReason;
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use super::bad_transcripts::{adopt, put, turns};
use super::edits::configure_opaque;
use crate::home::Home;
use crate::keeping::once_kept;
use crate::support::{App, refused};

async fn undo(app: &App, id: ConversationId) -> Result<Value, BridgeError> {
    app.call("conversation/undo", json!({"conversationId": id})).await
}

/// Replaces the last turn.
pub(super) async fn edit_last(app: &App, id: ConversationId, prompt: &str) {
    let at = app.checkpoints(id).await.pop().unwrap().id;
    let edit = json!({"conversationId": id, "at": at, "prompt": prompt});
    app.call("conversation/edit", edit).await.unwrap();
}

/// A turn that met a limit, or whose agent died, is in the transcript without having been acknowledged.
#[tokio::test]
async fn what_no_turn_acknowledged_comes_back() {
    for cut in ["[[limit 3600]]", "[[crash]]"] {
        let home = Home::new();
        let (_daemon, app, id) = home.begun(&["one"]).await;
        app.ask("conversation/reset", id).await;
        let turn = app.send(id, &format!("two [[say so far]]{cut}")).await;
        assert_eq!(turn.stop_reason, StopReason::Failed);
        let head = app.get(id).await.head;
        app.ask("conversation/reset", id).await;
        undo(&app, id).await.unwrap();
        assert_eq!(app.get(id).await.head, head, "{cut}");
        let history = app.ask("conversation/history", id).await;
        let words = history["messages"][0]["content"][0]["text"].as_str().unwrap();
        assert!(words.starts_with("two"), "{cut}: {history}");
        undo(&app, id).await.unwrap();
        assert_eq!(app.remembered(id).await, ["one"], "{cut}");
    }
}

/// An unacknowledged turn also comes back if the conversation had no other and its session is adopted.
#[tokio::test]
async fn to_adopt_what_no_turn_acknowledged_brings_it_back() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one [[say so far]][[limit 3600]]"])
        .await;
    let head = app.get(id).await.head;
    app.ask("conversation/reset", id).await;
    let adopt = json!({"upstreamId": head});
    let adopted = app.call("conversation/adopt", adopt).await.unwrap();
    assert_eq!(adopted["conversation"]["id"], json!(id));
    assert_eq!(adopted["conversation"]["head"], json!(head));
}

/// A fork that was never prompted has the history of its source, also if its transcript cannot be read.
#[tokio::test]
async fn a_fork_that_was_never_prompted_comes_back() {
    let home = Home::new();
    configure_opaque(&home);
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "opaque").await;
    app.send(id, "one").await;
    let fork = app.fork(id, false).await.unwrap().conversation;
    app.ask("conversation/reset", fork.id).await;
    undo(&app, fork.id).await.unwrap();
    assert_eq!(app.get(fork.id).await.head, fork.head);
    assert_eq!(app.remembered(fork.id).await, ["one"]);
}

/// A reset empties the whole chain, but the number of turns of each session stays known.
#[tokio::test]
async fn no_session_forgets_its_turns() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let head = app.get(id).await.head;
    let file = home.transcript_of(&app, id).await;
    edit_last(&app, id, "better").await;
    app.ask("conversation/reset", id).await;
    let entries = app.lineage(id).await;
    let mut known = entries
        .iter()
        .filter(|entry| Some(&entry.upstream_id) == head.as_ref());
    let last = known.next_back().unwrap();
    assert_eq!((last.reason, last.turns), (LineageReason::Updated, 2));

    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, ["one", "better"]);
    let aside = home.path().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    let before = app.get(id).await.head;
    refused(undo(&app, id).await, ErrorKind::NotResumable);
    assert_eq!(app.get(id).await.head, before);
    std::fs::rename(&aside, &file).unwrap();
    undo(&app, id).await.unwrap();
    let link = app.chain(id).await.pop().unwrap();
    assert_eq!((Some(&link.upstream_id), link.turns), (head.as_ref(), 2));
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// Adopting a session brings back its own history, without what came after that.
#[tokio::test]
async fn the_session_that_is_adopted_is_the_one_that_comes_back() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["zero"]).await;
    let zeroth = app.get(id).await.head;
    app.ask("conversation/reset", id).await;
    app.send(id, "one").await;
    let first = app.get(id).await.head;
    app.ask("conversation/reset", id).await;
    app.send(id, "two").await;
    app.ask("conversation/reset", id).await;
    let adopt = json!({"upstreamId": first});
    let adopted = app.call("conversation/adopt", adopt).await.unwrap();
    assert_eq!(adopted["conversation"]["head"], json!(first));
    assert_eq!(app.remembered(id).await, ["one"]);
    undo(&app, id).await.unwrap();
    assert_eq!(app.get(id).await.head, zeroth);
    refused(undo(&app, id).await, ErrorKind::Conflict);
}

/// If the history's folder no longer exists, the history comes back in the conversation's current folder.
#[tokio::test]
async fn a_history_comes_back_where_the_conversation_is_now() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let old = home.folder_named("old");
    let id = app.begun(&old, &["one"]).await;
    let head = app.get(id).await.head;
    app.ask("conversation/reset", id).await;
    let new = format!("{}/new", home.path().display());
    std::fs::rename(&old, &new).unwrap();
    let moved = json!({"conversationId": id, "cwd": new});
    app.call("conversation/move", moved).await.unwrap();
    let undone = undo(&app, id).await.unwrap();
    assert_eq!(undone["conversation"]["cwd"], json!(new));
    assert_eq!(app.get(id).await.head, head);
    assert_eq!(app.remembered(id).await, ["one"]);

    // If the history's folder still exists, the history comes back there.
    let third = home.folder_named("third");
    app.ask("conversation/reset", id).await;
    let moved = json!({"conversationId": id, "cwd": third});
    app.call("conversation/move", moved).await.unwrap();
    let undone = undo(&app, id).await.unwrap();
    assert_eq!(undone["conversation"]["cwd"], json!(new));
    assert_eq!(app.remembered(id).await[..1], ["one"]);
}

/// If the history's folder was moved with its transcripts, the history comes back in the new folder, even if the old
/// one still exists.
#[tokio::test]
async fn a_history_that_was_moved_with_its_folder_comes_back_there() {
    // The transcripts of the first two are in one folder of the agent, whose name has a dash for each dot.
    for (from, to) in [("some.where", "some-where"), ("old", "new")] {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let (from, to) = (home.folder_named(from), home.folder_named(to));
        let id = app.begun(&from, &["one"]).await;
        app.ask("conversation/reset", id).await;
        let moved = json!({"from": from, "to": to});
        app.call("transcript/move", moved).await.unwrap();
        undo(&app, id).await.unwrap();
        assert_eq!(app.get(id).await.cwd, to);
        assert_eq!(app.chain(id).await.pop().unwrap().cwd, to);
        assert_eq!(app.remembered(id).await, ["one"]);
        refused(undo(&app, id).await, ErrorKind::Conflict);
    }
}

/// The session was in no chain when its folder was moved without the conversation.
#[tokio::test]
async fn a_session_that_was_moved_with_its_folder_comes_back_where_the_conversation_is() {
    // Both have one folder of the agent, whose name has a dash for each dot.
    for (from, to) in [("some.where", "some-where"), ("old", "new")] {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let (from, to) = (home.folder_named(from), home.folder_named(to));
        let third = home.folder_named("third");
        let id = app.begun(&from, &["one", "two"]).await;
        edit_last(&app, id, "other").await;
        app.ask("conversation/reset", id).await;
        let moved = json!({"from": from, "to": to});
        app.call("transcript/move", moved).await.unwrap();
        let moved = json!({"conversationId": id, "cwd": third});
        app.call("conversation/move", moved).await.unwrap();
        for expected in [["one", "other"], ["one", "two"]] {
            undo(&app, id).await.unwrap();
            let cwd = app.get(id).await.cwd;
            assert_eq!(app.chain(id).await.pop().unwrap().cwd, cwd);
            let transcript = std::fs::read_to_string(home.transcript_of(&app, id).await).unwrap();
            let named = json!({"cwd": cwd}).to_string();
            assert!(transcript.contains(&named[1..named.len() - 1]), "{cwd}");
            assert_eq!(app.remembered(id).await, expected);
        }
    }
}

/// The undo of a reset brings back only the head. So the undo of the earlier move leaves the session from before the
/// edit in the folder of that move.
#[tokio::test]
async fn an_edit_before_a_move_and_a_reset_is_undone_where_the_conversation_is_now() {
    for is_removed in [false, true] {
        let home = Home::new();
        let (daemon, app, id) = home.begun(&["one", "two"]).await;
        let transcript = home.transcript_of(&app, id).await;
        edit_last(&app, id, "other").await;
        let there = home.folder_named("there");
        let moved = json!({"conversationId": id, "cwd": there});
        app.call("conversation/move", moved).await.unwrap();
        app.ask("conversation/reset", id).await;
        for _ in ["the reset", "the move"] {
            undo(&app, id).await.unwrap();
        }
        assert_eq!(app.get(id).await.cwd, home.project());
        assert!(!transcript.exists());
        if is_removed {
            std::fs::remove_dir(&there).unwrap();
        }
        undo(&app, id).await.unwrap();
        // A kill at this point must not move the transcript back.
        daemon.kill();
        let (_daemon, app) = home.opened().await;
        assert_eq!(app.get(id).await.cwd, home.project());
        assert_eq!(app.chain(id).await.pop().unwrap().cwd, home.project());
        assert_eq!(home.transcript_of(&app, id).await, transcript);
        assert_eq!(app.remembered(id).await, ["one", "two"]);
        assert_eq!(home.transcript_of(&app, id).await, transcript);
        refused(undo(&app, id).await, ErrorKind::Conflict);
    }
}

/// Calls that are sent without waiting are carried out in order: an undo takes back the reset before it and not the
/// move before that, and each one that is answered was done.
#[tokio::test]
async fn an_undo_that_is_sent_behind_a_reset_takes_back_the_reset() {
    for (is_awaited, undos) in [(false, 1), (false, 2), (true, 2)] {
        let home = Home::new();
        let (daemon, app, id) = home.begun(&["one"]).await;
        let there = home.folder_named("there");
        let moved = json!({"conversationId": id, "cwd": there});
        app.call("conversation/move", moved).await.unwrap();
        let mut raw = daemon.raw().await;
        let named = json!({"conversationId": id});
        let reset = raw.send("conversation/reset", named.clone()).await;
        let (mut calls, mut done) = (vec![reset], 0);
        if is_awaited {
            assert!(raw.answer(reset).await["result"].is_object());
            (calls, done) = (Vec::new(), 1);
        }
        for _ in 0..undos {
            calls.push(raw.send("conversation/undo", named.clone()).await);
        }
        while !calls.is_empty() {
            let answer = raw.next().await;
            let Some(number) = answer["id"].as_u64() else {
                continue;
            };
            calls.retain(|call| *call != number);
            match answer.get("result") {
                Some(_) => done += 1,
                // Another undo is in progress.
                None => assert_eq!(answer["error"]["code"], 1003, "{answer}"),
            }
        }
        let folders = [&there, &there, &home.project()].map(Clone::clone);
        let what = format!("{is_awaited} {undos}: {done}");
        // If undos are sent to a conversation at rest, the first one succeeds.
        assert!(done > usize::from(is_awaited), "{what}");
        assert_eq!(app.get(id).await.cwd, folders[done - 1], "{what}");
        // Further undos undo the rest.
        for folder in &folders[done..] {
            app.call("conversation/undo", named.clone()).await.unwrap();
            assert_eq!(&app.get(id).await.cwd, folder, "{what}");
        }
        assert_eq!(app.remembered(id).await, ["one"]);
        assert_eq!(
            raw.ask("conversation/undo", named).await["error"]["code"],
            1012,
            "{what}"
        );
    }
}

/// The agent writes a fork next to its source, also if the fork is for another folder.
#[tokio::test]
async fn a_fork_into_another_folder_comes_back_there() {
    for in_place in [false, true] {
        for prompts in [0, 1] {
            let home = Home::new();
            let (_daemon, app) = home.opened().await;
            let other = home.folder_named("other");
            let id = app.begun(&home.project(), &["one"]).await;
            let fork = json!({"conversationId": id, "cwd": other, "inPlace": in_place});
            let id = app.made_by("conversation/fork", fork).await;
            for _ in 0..prompts {
                app.send(id, "two").await;
            }
            app.ask("conversation/reset", id).await;
            undo(&app, id).await.unwrap();
            assert_eq!(
                app.get(id).await.cwd,
                other,
                "in place: {in_place}, prompts: {prompts}"
            );
            assert_eq!(app.remembered(id).await, ["one", "two"][..=prompts]);
        }
    }
}

/// A session without a turn that ended here, because it was adopted or its only turn cleared it, is backed up when the conversation
/// leaves it. The undo then needs no transcript.
#[tokio::test]
async fn a_session_is_backed_up_when_it_is_left() {
    for is_adopted in [true, false] {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let id: ConversationId = match is_adopted {
            true => {
                put(&home, "adopted", turns(&home, "adopted", 2));
                let id = adopt(&app, "adopted").await.parse().unwrap();
                app.ask("conversation/reset", id).await;
                id
            }
            false => app.begun(&home.project(), &["one [[clear]]"]).await,
        };
        once_kept(&app, |total| total.sessions == 1).await;
        let left = app.lineage(id).await.swap_remove(0).upstream_id;
        std::fs::remove_file(home.transcript(left.as_str()).unwrap()).unwrap();
        undo(&app, id).await.unwrap();
        assert_eq!(app.get(id).await.head, Some(left));
        let expected: &[&str] = if is_adopted {
            &["ask 0", "ask 1"]
        } else {
            &["one [[clear]]"]
        };
        assert_eq!(app.remembered(id).await, expected);
    }
}
