//! A daemon that is killed while it moves a conversation: afterwards the conversation is in the new folder or in the
//! old one.
//!
//! A test cannot stop a daemon between two system calls. It kills the daemon as soon as it sees a change on disk; by
//! then the daemon may have done more, or have answered already. What a kill proves depends on what is found after it:
//!
//! | found | proves |
//! |---|---|
//! | a file in its old place, and no answer | nothing was recorded: the move is undone |
//! | no file in its old place, and no answer | the move is complete or undone; both are correct |
//! | an answer | the move was recorded: it is complete |
//!
//! The tests assert each of these, and fail unless a kill came while files were in both places.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_protocol::error::BridgeError;

use crate::carrying::files_below;
use crate::home::Home;
use crate::moved_trees::{move_tree, stray};
use crate::moving::{agents_files, move_to};
use crate::signs::Watched;

/// How many files lie beside the transcript: enough that a move can be killed in the middle of them.
const FILES: usize = 100;

/// A step of a move, at which the daemon is killed.
#[derive(Clone, Copy, Debug)]
enum Reached {
    /// The intent of a tree move is written.
    Noted,
    /// At least this many journals were begun.
    Begun(usize),
    /// At least this many files are being copied, or are copied.
    Copied(usize),
    /// At least this many copies have their final names.
    Placed(usize),
    /// At least this many files were taken from their old places by moves that are not recorded yet.
    Taken(usize),
}

fn is_reached(reached: Reached, data: &Path, old: usize, begun: &mut BTreeSet<PathBuf>) -> bool {
    let moves = files_below(&data.join("moves"));
    // The journal of a recorded move is deleted, so all journals seen so far are collected.
    begun.extend(moves.iter().filter(|path| path.ends_with("journal")).cloned());
    let named = |path: &&PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    let all = files_below(&data.join("loopback/projects"));
    let taken = moves
        .iter()
        .filter(|path| path.parent().unwrap().ends_with("kept"))
        .count();
    match reached {
        Reached::Noted => !files_below(&data.join("trees")).is_empty(),
        Reached::Begun(count) => begun.len() >= count,
        Reached::Copied(count) => all.len() + taken >= old + count,
        Reached::Placed(count) => all.iter().filter(named).count() + taken >= old + count,
        Reached::Taken(count) => taken >= count,
    }
}

/// What was found after a kill; see the table at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    FileInOldPlace,
    NoFileInOldPlace,
    Answer,
}

impl Found {
    fn after_kill(is_answered: bool, before: &BTreeMap<PathBuf, String>) -> Self {
        match before.keys().any(|path| path.exists()) {
            _ if is_answered => Self::Answer,
            true => Self::FileInOldPlace,
            false => Self::NoFileInOldPlace,
        }
    }

    fn check(self, is_moved: bool, reached: Reached) {
        match self {
            Self::FileInOldPlace => assert!(!is_moved, "{reached:?}"),
            Self::NoFileInOldPlace => {}
            Self::Answer => assert!(is_moved, "{reached:?}"),
        }
    }
}

/// Waits until a move has reached this step or is answered, and returns whether it was answered. `old` is the number of
/// the agent's files before the move.
async fn is_answered_before<T: std::fmt::Debug>(
    home: &Home,
    reached: Reached,
    old: usize,
    moving: impl Future<Output = Result<T, BridgeError>>,
) -> bool {
    let data = home.data();
    let watched = Watched::below(&data);
    let is_over = Arc::new(AtomicBool::new(false));
    let (ended, mut begun) = (Arc::clone(&is_over), BTreeSet::new());
    let so_far = move || {
        let is_reached = is_reached(reached, &data, old, &mut begun);
        (is_reached || ended.load(Ordering::Relaxed)).then_some(())
    };
    let so_far = tokio::task::spawn_blocking(move || watched.wait_for("file of the move", so_far));
    tokio::select! {
        biased;
        answer = moving => {
            answer.unwrap();
            // The next change in the data folder ends the watch.
            is_over.store(true, Ordering::Relaxed);
            true
        }
        found = so_far => {
            found.unwrap();
            false
        }
    }
}

/// Returns whether a killed move left copies, or files that it had taken from their places. `old` is the number of the
/// agent's files before the move.
fn is_partly_copied(home: &Home, old: usize) -> bool {
    is_reached(Reached::Copied(1), &home.data(), old, &mut BTreeSet::new())
}

/// D7: whenever the daemon is killed, each file is in exactly one place afterwards, whole, and the conversation
/// continues with all of them.
#[tokio::test]
async fn a_move_that_is_killed_is_done_or_taken_back() {
    let mut between = 0;
    for reached in [
        Reached::Begun(1),
        Reached::Copied(1),
        Reached::Copied(FILES / 2),
        Reached::Placed(1),
        Reached::Placed(FILES / 2),
        Reached::Taken(1),
        Reached::Taken(FILES / 2),
        Reached::Taken(FILES + 1),
    ] {
        let home = Home::new();
        let (old, new) = (home.project(), home.folder_named("other"));
        let (daemon, app) = home.opened().await;
        let id = app.begun(&old, &["one", "two"]).await;
        app.close(id).await;
        let head = app.get(id).await.head.unwrap();
        let transcript = home.transcript(head.as_str()).unwrap();
        let beside = transcript.with_extension("").join("subagents");
        fs::create_dir_all(&beside).unwrap();
        for number in 0..FILES {
            let path = beside.join(format!("agent-{number}.meta.json"));
            fs::write(path, format!("{number}")).unwrap();
        }
        let before = agents_files(&home);
        let moving = move_to(&app, id, &new);
        let is_answered = is_answered_before(&home, reached, before.len(), moving).await;
        drop(app);
        daemon.kill();
        let found = Found::after_kill(is_answered, &before);
        between += usize::from(found == Found::FileInOldPlace && is_partly_copied(&home, before.len()));

        let (_daemon, app) = home.opened().await;
        let after = agents_files(&home);
        assert_eq!(after.len(), before.len(), "{reached:?}");
        let is_moved = app.get(id).await.cwd == new;
        found.check(is_moved, reached);
        if is_moved {
            assert!(after.keys().all(|path| !before.contains_key(path)), "{reached:?}");
            let said = |files: &std::collections::BTreeMap<_, String>| -> Vec<String> {
                files.values().map(|text| text.replace(&new, &old)).collect()
            };
            assert_eq!(said(&after), said(&before), "{reached:?}");
        } else {
            assert_eq!(after, before, "{reached:?}");
        }
        assert!(!home.data().join("moves").exists(), "{reached:?}");
        assert_eq!(app.remembered(id).await, ["one", "two"]);
        if !is_moved {
            move_to(&app, id, &new).await.unwrap();
            assert_eq!(app.get(id).await.cwd, new);
        }
    }
    assert_ne!(between, 0, "no kill came in the middle");
}

/// A tree move moves all conversations of a folder, and the transcripts that belong to none, or nothing at all.
#[tokio::test]
async fn a_move_of_a_folder_that_is_killed_is_done_or_taken_back_as_a_whole() {
    let mut between = 0;
    for reached in [
        Reached::Noted,
        Reached::Begun(1),
        Reached::Begun(2),
        Reached::Begun(3),
        Reached::Copied(FILES / 2),
        Reached::Placed(FILES / 2),
        Reached::Taken(1),
        Reached::Taken(FILES / 2),
        Reached::Taken(FILES),
    ] {
        let home = Home::new();
        let (old, new) = (home.folder_named("old"), home.folder_named("new"));
        let (daemon, app) = home.opened().await;
        let mut conversations = Vec::new();
        for prompt in ["one", "two", "three"] {
            let id = app.begun(&old, &[prompt]).await;
            app.close(id).await;
            conversations.push((id, prompt));
        }
        for number in 0..FILES {
            stray(
                &home,
                &format!("0a1b2c3d-0000-4000-8000-{number:012}"),
                &old,
                &old,
            );
        }
        let before = agents_files(&home);
        let moving = move_tree(&app, &old, &new);
        let is_answered = is_answered_before(&home, reached, before.len(), moving).await;
        drop(app);
        daemon.kill();
        let found = Found::after_kill(is_answered, &before);
        between += usize::from(found == Found::FileInOldPlace && is_partly_copied(&home, before.len()));

        let (_daemon, app) = home.opened().await;
        let after = agents_files(&home);
        let is_moved = app.get(conversations[0].0).await.cwd == new;
        found.check(is_moved, reached);
        let cwd = if is_moved { &new } else { &old };
        for (id, prompt) in &conversations {
            assert_eq!(app.get(*id).await.cwd, *cwd, "{reached:?}");
            assert!(
                app.chain(*id).await.iter().all(|link| link.cwd == *cwd),
                "{reached:?}"
            );
            assert_eq!(app.remembered(*id).await, [*prompt], "{reached:?}");
        }
        if is_moved {
            let mut said: Vec<_> = after.values().map(|text| text.replace(&new, &old)).collect();
            let mut expected: Vec<_> = before.values().cloned().collect();
            said.sort();
            expected.sort();
            assert_eq!(said, expected, "{reached:?}");
            assert!(after.keys().all(|path| !before.contains_key(path)), "{reached:?}");
        } else {
            assert_eq!(after, before, "{reached:?}");
            assert!(!home.data().join("trees").exists(), "{reached:?}");
            for (id, _) in &conversations {
                app.close(*id).await;
            }
            let moved = move_tree(&app, &old, &new).await.unwrap();
            assert_eq!(moved.moved as usize, before.len(), "{reached:?}");
        }
    }
    assert_ne!(between, 0, "no kill came in the middle");
}
