//! Work during which an earlier version was killed: moves, an import, and the copy for an edit. The first start of the
//! current version undoes what was not recorded. Everything else stays unchanged, and the same work can be done again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::recorded::{Recorded, VERSIONS, fixture};
use super::{bad, doctor, known_to_be_bad};
use crate::carrying::{files_below, import};
use crate::home::Home;
use crate::moved_trees::{folder_of, move_tree};
use crate::moving::{agents_files, move_to};

/// The session of the copy for the edit during which the daemon was killed.
const COPY: &str = "4c6a055e-ec78-4215-bc23-889031443a3d";

/// The folders that the moves and the import were filling.
const FILLING: [&str; 3] = ["work/half-new", "work/half-tree-new", "work/imported"];

/// Returns the agent's folder for a folder of the home.
fn agents_folder(home: &Home, folder: &str) -> PathBuf {
    let name = folder_of(home.path().join(folder).to_str().unwrap());
    home.data().join("loopback/projects").join(name)
}

/// Returns whether the killed daemon wrote this file of the agent for work that it had not recorded.
fn is_half_done(home: &Home, path: &Path) -> bool {
    let is_filled = FILLING
        .iter()
        .any(|folder| path.starts_with(agents_folder(home, folder)));
    is_filled || path.file_stem().is_some_and(|stem| stem == COPY)
}

#[tokio::test]
async fn the_first_start_takes_back_what_was_not_recorded() {
    for version in VERSIONS {
        let recorded = Recorded::open(version);
        let home = &recorded.home;
        let before = agents_files(home);
        let (half_done, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(path, _)| is_half_done(home, path));
        let stems: Vec<_> = half_done.keys().map(|path| path.file_stem().unwrap()).collect();
        let is_filled = |folder: &&str| agents_folder(home, folder).exists();
        // The first version was killed during the move of a single conversation.
        let filled = if version == "v1" { &FILLING[..1] } else { &FILLING };
        assert!(filled.iter().all(is_filled), "{stems:?}");
        assert_eq!(stems.contains(&COPY.as_ref()), version == "v2", "{stems:?}");

        let (daemon, app) = home.opened().await;
        assert_eq!(agents_files(home), after, "{version}");
        for folder in FILLING {
            assert!(!agents_folder(home, folder).exists(), "{version}: {folder}");
        }
        for folder in ["moves", "imports", "copies"] {
            assert!(!home.data().join(folder).exists(), "{version}: {folder}");
        }
        // The finished move can still be undone; the unfinished one was undone by the start.
        let trees = home.data().join("trees");
        let finished = trees.join(recorded.expected["undoId"].as_str().unwrap());
        assert_eq!(files_below(&trees), [finished]);
        assert_eq!(bad(home, &app).await, known_to_be_bad(version));
        assert_eq!(doctor(home), known_to_be_bad(version));

        // A second start finds nothing left to settle.
        drop((app, daemon));
        let (_daemon, app) = home.opened().await;
        assert_eq!(agents_files(home), after, "{version}");
        assert_eq!(bad(home, &app).await, known_to_be_bad(version));
    }
}

#[tokio::test]
async fn what_was_taken_back_can_be_done_again() {
    for version in VERSIONS {
        let recorded = Recorded::open(version);
        let home = &recorded.home;
        let (_daemon, app) = home.opened().await;
        let path = |folder: &str| home.path().join(folder).to_str().unwrap().to_owned();

        let id = recorded.id("half-moved");
        move_to(&app, id, &path("work/half-new")).await.unwrap();
        let moved = files_below(&agents_folder(home, "work/half-new"));
        assert_eq!(moved.len(), 13, "a transcript and the files beside it");
        assert_eq!(
            files_below(&agents_folder(home, "work/half-old")),
            [] as [PathBuf; 0]
        );
        let remembered = app.remembered(id).await;
        assert_eq!(remembered, ["In the folder before", "And a second turn"]);
        if version == "v1" {
            continue;
        }

        let (old, new) = (path("work/half-tree-old"), path("work/half-tree-new"));
        assert_eq!(move_tree(&app, &old, &new).await.unwrap().moved, 2);
        for number in [1, 2] {
            let id = recorded.id(&format!("half-tree-{number}"));
            assert_eq!(app.get(id).await.cwd, new);
            let last = format!("This is number {number}");
            assert_eq!(app.remembered(id).await, ["In the old folder", &last]);
        }

        let bundle = home.path().join("edited.bundle");
        fs::copy(fixture(version, "edited.bundle"), &bundle).unwrap();
        let params = json!({"path": bundle, "cwd": path("work/imported"), "newIds": true});
        let imported = import(&app, params).await.unwrap().id;
        let remembered = app.remembered(imported).await;
        assert_eq!(remembered, ["Alpha", "Beta", "Gamma, edited", "Delta"]);

        let id = recorded.id("half-edited");
        let place = app.checkpoints(id).await.pop().unwrap().id;
        let edit = json!({"conversationId": id, "at": place, "prompt": "Edited"});
        app.call("conversation/edit", edit).await.unwrap();
        assert_eq!(app.remembered(id).await, ["Before the edit", "Edited"]);
    }
}

/// A file that differs from the one in an intent may be in use, so it stays. The intent of the copy explains the file,
/// so it is set aside instead of deleted.
#[tokio::test]
async fn in_a_restored_backup_nothing_of_the_agents_is_deleted() {
    for version in VERSIONS {
        let recorded = Recorded::restored(version);
        let home = &recorded.home;
        let mut before = agents_files(home);
        // A temporary file without a final name belongs to no session and may be deleted.
        before.retain(|path, _| path.extension() != Some("tmp".as_ref()));
        let (_daemon, app) = home.opened().await;
        assert_eq!(agents_files(home), before, "{version}");
        let mut expected = known_to_be_bad(version);
        if version == "v2" {
            let aside = format!("data/copies/{COPY}.set-aside-1");
            expected.push(("setAside".to_owned(), aside));
        }
        assert_eq!(bad(home, &app).await, expected, "{version}");
        assert_eq!(doctor(home), expected, "{version}");
        let id = recorded.id("half-moved");
        let remembered = app.remembered(id).await;
        assert_eq!(remembered, ["In the folder before", "And a second turn"]);
    }
}
