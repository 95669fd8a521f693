//! Transcripts that are symbolic links, as users make them who keep transcripts elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::link::{Fidelity, Via};
use serde_json::json;

use crate::home::Home;
use crate::keeping::keep;
use crate::moved_trees::move_tree;
use crate::moving::move_to;
use crate::resumed::check_resumed;
use crate::support::App;

/// Makes a closed conversation of two turns whose transcript is a link, and a backup. Returns its id, the link and its target.
async fn linked(home: &Home, app: &App, is_relative: bool) -> (ConversationId, PathBuf, PathBuf) {
    let id = app.begun(&home.project(), &["one", "two"]).await;
    app.close(id).await;
    keep(app, json!({"conversationId": id})).await.unwrap();
    let link = home.transcript_of(app, id).await;
    let target = link.with_extension("elsewhere");
    fs::rename(&link, &target).unwrap();
    match is_relative {
        true => symlink(target.file_name().unwrap(), &link).unwrap(),
        false => symlink(&target, &link).unwrap(),
    }
    (id, link, target)
}

/// A link to a missing file has no content, so the backup takes its place.
#[tokio::test]
async fn a_link_to_a_missing_file_is_replaced_by_the_backup() {
    for is_called in [false, true] {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let (id, link, target) = linked(&home, &app, false).await;
        fs::remove_file(&target).unwrap();
        if is_called {
            app.ask("transcript/restore", id).await;
            assert!(link.is_file() && !link.is_symlink(), "restored");
        }
        let resumed = app.send(id, "three").await.resumed.unwrap();
        let via = if is_called { Via::Resume } else { Via::Archive };
        check_resumed(&resumed, via, Fidelity::Full, 0);
        assert_eq!(app.remembered(id).await, ["one", "two", "three"]);
        assert!(!link.is_symlink() && !target.exists());
    }
}

/// The content is copied, and the link is moved away. Its target stays as it was.
#[tokio::test]
async fn a_linked_transcript_moves_with_its_conversation() {
    for is_relative in [false, true] {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let (id, link, target) = linked(&home, &app, is_relative).await;
        let content = fs::read(&target).unwrap();
        move_to(&app, id, &home.folder_named("new")).await.unwrap();
        let moved = home.transcript_of(&app, id).await;
        assert!(moved.is_file() && !moved.is_symlink());
        assert!(!link.is_symlink(), "the link is left");
        assert_eq!(fs::read(&target).unwrap(), content);
        assert_eq!(app.remembered(id).await, ["one", "two"]);
        app.ask("conversation/undo", id).await;
        assert_eq!(home.transcript_of(&app, id).await, link);
        assert_eq!(app.remembered(id).await[..2], ["one", "two"]);
    }
}

#[tokio::test]
async fn a_linked_transcript_moves_with_its_folder() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, link, _) = linked(&home, &app, false).await;
    let old = home.project();
    let new = format!("{old}-moved");
    fs::rename(&old, &new).unwrap();
    move_tree(&app, &old, &new).await.unwrap();
    assert!(!link.is_symlink());
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}
