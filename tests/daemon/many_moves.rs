//! Tree moves: which of them can be undone, what happens to sessions without files, and how much a move of many
//! sessions reads.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::link::Via;
use bridge_protocol::transcript::{TreeMove, TreeMoveList};
use serde_json::json;

use super::error_words;
use crate::home::Home;
use crate::keeping::{lose, once_kept};
use crate::moved_trees::{STRAY, move_tree, stray, undo_tree};
use crate::moving::move_to;
use crate::support::{App, tried};

async fn moves(app: &App) -> Vec<TreeMove> {
    let answer = app.call("transcript/moves", json!({})).await.unwrap();
    serde_json::from_value::<TreeMoveList>(answer).unwrap().moves
}

/// `transcript/moves` lists the tree moves that were not undone, newest first, also after a restart. It lists no undos,
/// and no moves that found nothing to move.
#[tokio::test]
async fn the_moves_that_can_be_taken_back_are_told() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let newer = home.folder_named("newer");
    let (first, second) = {
        let (_daemon, app) = home.opened().await;
        assert_eq!(moves(&app).await, []);
        let id = app.begun(&old, &["one"]).await;
        stray(&home, STRAY, &old, &old);
        let first = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
        move_tree(&app, "/nowhere/at/all", &new).await.unwrap();
        // The move of one conversation is not listed.
        move_to(&app, id, &home.folder_named("elsewhere")).await.unwrap();
        app.ask("conversation/undo", id).await;
        let second = move_tree(&app, &new, &newer).await.unwrap().undo_id.unwrap();
        (first, second)
    };
    let (_daemon, app) = home.opened().await;
    let told = moves(&app).await;
    let ids: Vec<&str> = told.iter().map(|one| one.undo_id.as_str()).collect();
    assert_eq!(ids, [&second, &first]);
    let (last, before) = (&told[0], &told[1]);
    assert_eq!((&last.from, &last.to), (&new, &newer));
    assert_eq!((&before.from, &before.to), (&old, &new));
    assert_eq!((before.moved, before.conversations), (2, 1));
    assert!(last.at >= before.at);
    let seconds = last.until.as_second() - last.at.as_second();
    assert_eq!(seconds, 30 * 24 * 60 * 60);
    undo_tree(&app, &second).await.unwrap();
    assert_eq!(moves(&app).await[..], told[1..]);
    undo_tree(&app, &first).await.unwrap();
    assert_eq!(moves(&app).await, []);
}

/// If a session's transcript is missing, there is no file to move: its kept copy is restored in the new folder when it
/// is needed.
#[tokio::test]
async fn a_session_without_a_transcript_is_told_and_goes_on_in_the_new_folder() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let newer = home.folder_named("newer");
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&old, &["one"]).await;
    let head = app.get(id).await.head.unwrap();
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    lose(&home);
    let params = json!({"conversationId": id, "cwd": new, "dryRun": true});
    let planned = app.call("conversation/move", params).await.unwrap();
    let moved = move_to(&app, id, &new).await.unwrap();
    assert_eq!((moved.moved, &moved.kept), (0, &vec![head.clone()]));
    assert_eq!(planned["kept"], json!([head]));
    let moved = move_tree(&app, &new, &newer).await.unwrap();
    assert_eq!((moved.moved, &moved.kept), (0, &vec![head.clone()]));
    assert!(
        home.transcript(head.as_str()).is_none(),
        "a move restores nothing"
    );
    let resumed = app.send(id, "two").await.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::Archive, true)]);
    let there = home.transcript_of(&app, id).await;
    assert!(
        there.parent().unwrap().to_string_lossy().ends_with("newer"),
        "{there:?}"
    );
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// If a session has neither a transcript nor a kept copy, the move lists it in `leftOut`.
#[tokio::test]
async fn a_session_of_which_nothing_is_left_is_told() {
    let home = Home::keeping_nothing();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&old, &["one"]).await;
    app.close(id).await;
    lose(&home);
    let moved = move_to(&app, id, &new).await.unwrap();
    assert_eq!((moved.moved, moved.kept.len(), moved.left_out.len()), (0, 0, 1));
    error_words::check(
        "a move of a session without a transcript",
        "leftOut",
        &moved.left_out[0],
    );
    assert_eq!(app.get(id).await.cwd, new);
}

/// To learn whether other sessions borrow a session's files, a move reads the transcripts in its folder. A tree move
/// reads them once for all sessions, not again for each.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_stays_in_a_folder_is_read_once_for_all_who_leave_it() {
    const CONVERSATIONS: u64 = 32;
    const BYTES: u64 = 256 * 1024;
    // Allows for everything that a move compares. If the folder were read again for each session, each byte would be
    // read more than 30 times.
    const TIMES: u64 = 22;
    let home = Home::keeping_nothing();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (daemon, app) = home.opened().await;
    let mut ids: Vec<ConversationId> = Vec::new();
    for _ in 0..CONVERSATIONS {
        let id = app.begun(&old, &["one"]).await;
        app.close(id).await;
        let path = home.transcript_of(&app, id).await;
        let beside = path.with_extension("").join("tool-results");
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("r.txt"), "a long result").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let fill = "x".repeat(usize::try_from(BYTES).unwrap());
        let note = json!({"type": "note", "forkedFrom": {"sessionId": "another"}, "fill": fill});
        fs::write(&path, format!("{text}{note}\n")).unwrap();
        ids.push(id);
    }
    let read = || {
        let told = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap();
        let line = told.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = read();
    assert_eq!(
        move_tree(&app, &old, &new).await.unwrap().moved,
        2 * CONVERSATIONS
    );
    let times = (read() - before) / (CONVERSATIONS * BYTES);
    assert!(times < TIMES, "each byte was read {times} times");
}
