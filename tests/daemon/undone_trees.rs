//! Tree moves that are undone or were interrupted: what happens to later changes, and to the next move.

use std::fs;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::LineageReason;
use serde_json::json;

use super::error_words;
use super::resets::edit_last;
use crate::carrying::files_below;
use crate::home::Home;
use crate::moved_trees::{STRAY, call, listed_in, move_tree, stray, undo_tree};
use crate::moving::{agents_files, move_to};
use crate::support::refused;

/// The undo of a tree move keeps later turns, and is refused while a conversation has moved elsewhere.
#[tokio::test]
async fn an_undo_takes_along_what_was_done_since() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let (edited, gone) = (
        app.begun(&old, &["one", "two"]).await,
        app.begun(&old, &["three"]).await,
    );
    let id = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
    app.fork(edited, true).await.unwrap();
    app.send(edited, "more").await;
    let elsewhere = home.folder_named("elsewhere");
    move_to(&app, gone, &elsewhere).await.unwrap();
    let error = refused(undo_tree(&app, &id).await, ErrorKind::Conflict);
    assert!(error.message.contains(&gone.to_string()));
    assert_eq!(app.get(edited).await.cwd, new);
    // The conversation's own move is undone first.
    app.ask("conversation/undo", gone).await;
    assert_eq!(undo_tree(&app, &id).await.unwrap().moved, 3);
    for id in [edited, gone] {
        assert_eq!(app.get(id).await.cwd, old);
        assert!(app.chain(id).await.iter().all(|link| link.cwd == old));
    }
    assert_eq!(app.remembered(edited).await, ["one", "two", "more"]);
    assert_eq!(app.remembered(gone).await, ["three"]);
}

/// The undo of a tree move does not count as a change: the conversation's next undo undoes its last change of its own.
#[tokio::test]
async fn an_undo_of_a_folder_leaves_the_next_undo_what_was_done_since() {
    for since in ["edit", "fork", "reset"] {
        let home = Home::new();
        let (old, new) = (home.folder_named("old"), home.folder_named("new"));
        let (_daemon, app) = home.opened().await;
        let id = app.begun(&old, &["one", "two"]).await;
        fs::rename(&old, &new).unwrap();
        let moved = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
        match since {
            "edit" => edit_last(&app, id, "other").await,
            "fork" => drop(app.fork(id, true).await.unwrap()),
            _ => drop(app.ask("conversation/reset", id).await),
        }
        fs::rename(&new, &old).unwrap();
        undo_tree(&app, &moved).await.unwrap();
        app.ask("conversation/undo", id).await;
        assert_eq!(app.get(id).await.cwd, old, "{since}");
        assert_eq!(app.remembered(id).await, ["one", "two"], "{since}");
        let nothing = json!({"conversationId": id});
        let error = app.call("conversation/undo", nothing).await;
        refused(error.map(drop), ErrorKind::Conflict);
    }
}

/// A folder that was moved with everything in it stays where it is: an undo reverts the change before that.
#[tokio::test]
async fn an_undo_after_a_tree_move_goes_back_to_what_was_before_in_the_new_folder() {
    for change in ["edit", "fork", "reset"] {
        let home = Home::new();
        let (old, new) = (home.folder_named("old"), home.folder_named("new"));
        let (_daemon, app) = home.opened().await;
        let id = app.begun(&old, &["one", "two"]).await;
        match change {
            "edit" => edit_last(&app, id, "other").await,
            "fork" => drop(app.fork(id, true).await.unwrap()),
            _ => drop(app.ask("conversation/reset", id).await),
        }
        fs::rename(&old, &new).unwrap();
        let moved = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
        app.ask("conversation/undo", id).await;
        assert_eq!(app.get(id).await.cwd, new, "{change}");
        assert_eq!(app.remembered(id).await, ["one", "two"], "{change}");
        // Nothing is left but the move of the folder, which has an undo of its own.
        let error = app.call("conversation/undo", json!({"conversationId": id})).await;
        refused(error.map(drop), ErrorKind::Conflict);
        fs::rename(&new, &old).unwrap();
        undo_tree(&app, &moved).await.unwrap();
        assert_eq!(app.get(id).await.cwd, old, "{change}");
        assert_eq!(app.remembered(id).await[..2], ["one", "two"], "{change}");
    }
}

/// A transcript that was moved again is not part of the first move any more. An undo that would move nothing is
/// refused.
#[tokio::test]
async fn an_undo_of_what_went_further_is_refused() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let newer = home.folder_named("newer");
    let (_daemon, app) = home.opened().await;
    stray(&home, STRAY, &old, &old);
    let first = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
    let second = move_tree(&app, &new, &newer).await.unwrap().undo_id.unwrap();
    refused(undo_tree(&app, &first).await, ErrorKind::Conflict);
    undo_tree(&app, &second).await.unwrap();
    assert_eq!(undo_tree(&app, &first).await.unwrap().moved, 1);
    assert_eq!(listed_in(&app, &old).await, [STRAY]);
}

/// An undo leaves a transcript that belongs to a conversation now, or is not where the move put it, and reports that.
#[tokio::test]
async fn what_an_undo_leaves_where_it_is_is_reported() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let [owned, deleted] = [2, 3].map(|number| format!("0a1b2c3d-0000-4000-8000-00000000000{number}"));
    for id in [STRAY, &owned, &deleted] {
        stray(&home, id, &old, &old);
    }
    let id = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
    let adopt = json!({"upstreamId": owned});
    app.call("conversation/adopt", adopt).await.unwrap();
    fs::remove_file(home.transcript(&deleted).unwrap()).unwrap();
    let mut undone = undo_tree(&app, &id).await.unwrap();
    assert_eq!((undone.moved, undone.left_out.len()), (1, 2), "{undone:?}");
    undone.left_out.sort();
    for (what, left_out) in ["that was deleted", "that has an owner"]
        .iter()
        .zip(&undone.left_out)
    {
        error_words::check(&format!("an undo of a session {what}"), "leftOut", left_out);
    }
    assert_eq!(listed_in(&app, &old).await, [STRAY]);
}

/// A move that was interrupted is undone before the next one begins; otherwise a later start would undo the next one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_cannot_come_back_yet_keeps_the_next_move_waiting() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let id = {
        let (_daemon, app) = home.opened().await;
        let id = app.begun(&old, &["one"]).await;
        move_tree(&app, &old, &new).await.unwrap();
        id
    };
    // The record as a kill before the end of the move leaves it.
    let trees = files_below(&home.data().join("trees"));
    let text = fs::read_to_string(&trees[0]).unwrap();
    fs::write(&trees[0], text.lines().next().unwrap().to_owned() + "\n").unwrap();
    let there = agents_files(&home).keys().next().unwrap().clone();
    let mut holder = std::process::Command::new("sleep")
        .arg("600")
        .stdin(fs::File::open(there).unwrap())
        .spawn()
        .unwrap();
    let (_daemon, app) = home.opened().await;
    let answer = move_tree(&app, &new, &home.folder_named("other")).await;
    let cwd = app.get(id).await.cwd;
    holder.kill().unwrap();
    holder.wait().unwrap();
    refused(answer, ErrorKind::Busy);
    assert_eq!(cwd, new);
    // The conversation is moved back first, and then the whole folder is moved.
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!((moved.moved, app.get(id).await.cwd), (1, new.clone()));
    let reasons = app.reasons(id).await;
    let moved = LineageReason::Moved;
    assert!(
        reasons.ends_with(&[moved, LineageReason::Undone, moved]),
        "{reasons:?}"
    );
    assert_eq!(files_below(&home.data().join("trees")).len(), 1);
    assert_eq!(app.remembered(id).await, ["one"]);
}

/// After a kill between the end of a move and the record of its response, a repeated call is answered from the record
/// of the move.
#[tokio::test]
async fn an_answer_that_was_not_noted_is_found_with_the_move() {
    let (home, other) = (Home::new(), Home::new());
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let params = json!({"from": old, "to": new, "requestId": "t1"});
    let answer = {
        let (_daemon, app) = home.opened().await;
        app.begun(&old, &["one"]).await;
        call(&app, "transcript/move", params.clone()).await.unwrap()
    };
    // This daemon knows the move but not the call.
    let trees = other.data().join("trees");
    fs::create_dir_all(&trees).unwrap();
    for file in files_below(&home.data().join("trees")) {
        fs::copy(&file, trees.join(file.file_name().unwrap())).unwrap();
    }
    let (_daemon, app) = other.opened().await;
    assert_eq!(call(&app, "transcript/move", params).await.unwrap(), answer);
    let different = json!({"from": old, "to": home.folder_named("other"), "requestId": "t1"});
    refused(
        call(&app, "transcript/move", different).await,
        ErrorKind::Conflict,
    );
}
