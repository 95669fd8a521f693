//! Files of the daemon that it cannot read: they are kept and reported, and nothing that they refer to is deleted.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::diagnosis::{DiagnosticKind, Severity};
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::carrying::files_below;
use crate::home::Home;
use crate::keeping::keep;
use crate::moved_trees::{STRAY, move_tree, stray, undo_tree};
use crate::moving::{agents_files, move_to};
use crate::support::{App, refused};

/// The format version of a daemon that does not exist yet.
const NEWER: u64 = 99;

/// Returns the files below a folder that `daemon/diagnose` reports as set aside.
pub(crate) async fn reported(app: &App, folder: &Path) -> Vec<PathBuf> {
    let found = app.diagnosed().await.into_iter();
    let aside = found.filter(|one| one.kind == DiagnosticKind::SetAside);
    let aside = aside.inspect(|one| assert_eq!(one.severity, Severity::Warning));
    let mut paths: Vec<PathBuf> = aside.filter_map(|one| one.subject).map(PathBuf::from).collect();
    paths.retain(|path| path.starts_with(folder));
    assert!(paths.iter().all(|path| path.exists()), "{paths:?}");
    paths
}

/// The content of every file below a folder.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    files_below(folder)
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A conversation whose transcript was copied, and the folder of the copy.
pub(crate) async fn kept(home: &Home, app: &App) -> (ConversationId, PathBuf) {
    let id = app.begun(&home.project(), &["first"]).await;
    app.close(id).await;
    let answer = keep(app, json!({"conversationId": id})).await.unwrap();
    let folder = Path::new(&answer.kept[0].path).parent().unwrap().to_owned();
    (id, folder)
}

/// The same, and the daemon is stopped: while it compresses a copy, it would write the list again.
pub(crate) async fn kept_and_stopped(home: &Home) -> (ConversationId, PathBuf) {
    let (_daemon, app) = home.opened().await;
    kept(home, &app).await
}

/// Without a readable list it is unknown which copy belongs to which file.
#[tokio::test]
async fn copies_whose_list_cannot_be_read_stay_and_the_session_is_kept_anew() {
    for damage in ["missing", "garbage", "empty", "cut off"] {
        let home = Home::new();
        let (id, folder) = kept_and_stopped(&home).await;
        let list = folder.join("kept.json");
        let text = fs::read(&list).unwrap();
        match damage {
            "missing" => fs::remove_file(&list).unwrap(),
            "garbage" => fs::write(&list, "garbage").unwrap(),
            "empty" => fs::write(&list, "").unwrap(),
            _ => fs::write(&list, &text[..text.len() / 2]).unwrap(),
        }
        let before = contents(&folder);
        let (_daemon, app) = home.opened().await;
        app.send(id, "second").await;
        app.close(id).await;
        let answer = keep(&app, json!({"conversationId": id})).await.unwrap();
        assert_eq!(answer.kept.len(), 1, "{damage}");
        let all = contents(&home.data().join("kept"));
        assert!(before.iter().all(|file| all.contains(file)), "{damage}");
        let aside = reported(&app, &home.data().join("kept")).await;
        assert_eq!(aside.len(), 1, "{damage}");
        // The new copy is complete.
        fs::remove_dir_all(home.data().join("loopback/projects")).unwrap();
        assert_eq!(app.remembered(id).await, ["first", "second"], "{damage}");
    }
}

/// A newer version finds its list, and the copies that it names, unchanged.
#[tokio::test]
async fn copies_of_a_newer_version_stay_where_it_looks_for_them() {
    let home = Home::new();
    let (id, folder) = kept_and_stopped(&home).await;
    let list = folder.join("kept.json");
    let mut text: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    text["version"] = json!(NEWER);
    // This version does not know such a value.
    text["files"] = json!("elsewhere");
    fs::write(&list, text.to_string()).unwrap();
    let before = contents(&folder);
    let (_daemon, app) = home.opened().await;
    app.send(id, "second").await;
    app.close(id).await;
    let error = keep(&app, json!({"conversationId": id})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TranscriptDamaged);
    assert!(error.message.contains(&NEWER.to_string()), "{error:?}");
    assert_eq!(contents(&folder), before);
    assert_eq!(reported(&app, &home.data().join("kept")).await, [folder]);
}

/// Files that the daemon did not write are not deleted, and do not hinder it.
#[tokio::test]
async fn strangers_among_the_copies_stay_and_keeping_goes_on() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, folder) = kept(&home, &app).await;
    fs::create_dir(folder.join("stray")).unwrap();
    fs::write(folder.join("stray/notes"), "mine").unwrap();
    fs::write(folder.join("notes"), "mine too").unwrap();
    app.send(id, "second").await;
    app.close(id).await;
    let answer = keep(&app, json!({"conversationId": id})).await.unwrap();
    assert_eq!(answer.kept.len(), 1);
    assert_eq!(fs::read_to_string(folder.join("stray/notes")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "mine too");
    fs::remove_dir_all(home.data().join("loopback/projects")).unwrap();
    assert_eq!(app.remembered(id).await, ["first", "second"]);
}

/// A line of a journal, as this version writes it.
fn line(note: &Value) -> String {
    let note = note.to_string();
    let crc32 = crc32fast::hash(note.as_bytes());
    format!("{{\"version\":1,\"crc32\":{crc32},\"note\":{note}}}\n")
}

/// A recorded move whose daemon was killed before it deleted the original. Returns the conversation, and the folder
/// with the original and the journal.
async fn moved(home: &Home) -> (ConversationId, PathBuf) {
    left_by_a_move(home, true).await
}

/// Does the same for a move that was recorded or not.
pub(crate) async fn left_by_a_move(home: &Home, is_recorded: bool) -> (ConversationId, PathBuf) {
    let (daemon, app, id) = home.begun(&["one"]).await;
    app.close(id).await;
    let (from, text) = agents_files(home).pop_first().unwrap();
    let after = app.lineage(id).await.len();
    move_to(&app, id, &home.folder_named("other")).await.unwrap();
    let to = agents_files(home).pop_first().unwrap().0;
    let after = match is_recorded {
        true => after,
        false => app.lineage(id).await.len(),
    };
    drop(app);
    drop(daemon);
    let folder = home.data().join("moves").join(format!("{id}.0"));
    fs::create_dir_all(folder.join("kept")).unwrap();
    fs::write(folder.join("kept/0"), text).unwrap();
    let subject = json!({"conversation": {"conversationId": id, "after": after}}).to_string();
    let step = json!({
        "session": to.file_stem().unwrap().to_str(), "from": from, "to": to, "kind": "transcript", "bytes": 1,
        "stays": false, "folders": [[home.project(), home.folder_named("other")]],
    });
    let begun = json!({"begun": {"subject": subject, "steps": [step], "temporary": [], "folders": []}});
    let copied = json!({"copied": [null]});
    fs::write(folder.join("journal"), line(&begun) + &line(&copied)).unwrap();
    (id, folder)
}

#[tokio::test]
async fn a_move_that_was_recorded_is_finished_by_the_next_start() {
    for is_of_version_before in [false, true] {
        let home = Home::new();
        let (id, folder) = moved(&home).await;
        let journal = folder.join("journal");
        let text = fs::read_to_string(&journal).unwrap();
        if is_of_version_before {
            fs::write(&journal, without_version(&text) + "\"done\"\n").unwrap();
        }
        let (_daemon, app) = home.opened().await;
        assert_eq!(reported(&app, &home.data()).await, [] as [PathBuf; 0]);
        assert!(!home.data().join("moves").exists());
        app.send(id, "two").await;
        app.ask("conversation/undo", id).await;
        assert_eq!(app.get(id).await.cwd, home.project());
        assert_eq!(app.remembered(id).await, ["one", "two"]);
    }
}

/// The moved files were deleted since, so the originals are the only ones.
#[tokio::test]
async fn originals_that_are_not_in_the_new_place_are_kept() {
    let home = Home::new();
    let (_, folder) = moved(&home).await;
    for (path, _) in agents_files(&home) {
        fs::remove_file(path).unwrap();
    }
    let before = contents(&folder);
    let (_daemon, app) = home.opened().await;
    let moves = home.data().join("moves");
    assert_eq!(contents(&moves), before);
    assert_eq!(reported(&app, &moves).await.len(), 1);
}

/// One wrong bit is enough, in any line of the journal.
#[tokio::test]
async fn a_move_whose_journal_is_damaged_keeps_the_originals() {
    for place in [0, 1, 2] {
        let home = Home::new();
        let (id, folder) = moved(&home).await;
        let journal = folder.join("journal");
        let text = fs::read_to_string(&journal).unwrap();
        let first = text.find('\n').unwrap();
        flip(&journal, [0, first / 2, first][place]);
        let before = contents(&folder);
        assert!(before.len() > 1, "a journal and an original");
        let (daemon, app) = home.opened().await;
        let moves = home.data().join("moves");
        assert_eq!(contents(&moves), before, "{place}");
        let aside = reported(&app, &moves).await;
        assert_eq!(aside.len(), 1, "{place}");
        assert!(aside[0] != folder && !folder.exists(), "{place}");
        assert_eq!(app.remembered(id).await, ["one"]);
        // Another start changes nothing.
        drop(app);
        drop(daemon);
        let (_daemon, app) = home.opened().await;
        assert_eq!(reported(&app, &moves).await, aside, "{place}");
        assert_eq!(contents(&moves), before, "{place}");
    }
}

/// Without a journal the originals are the only trace of the move.
#[tokio::test]
async fn a_move_whose_journal_is_missing_keeps_the_originals() {
    let home = Home::new();
    let (_, folder) = moved(&home).await;
    fs::remove_file(folder.join("journal")).unwrap();
    let before = contents(&folder);
    assert!(!before.is_empty());
    let (_daemon, app) = home.opened().await;
    let moves = home.data().join("moves");
    assert_eq!(contents(&moves), before);
    assert_eq!(reported(&app, &moves).await.len(), 1);
}

/// The lines of a file as a newer version might write them.
fn newer(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| format!("{}\n", json!({"version": NEWER, "said": line})))
        .collect()
}

/// The lines of a file as the previous version wrote them, without a version number.
fn without_version(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let note = line.get("note").unwrap_or(&line);
        let about = note["intent"].get("about").or(note.get("about"));
        let note = about.unwrap_or(note);
        format!("{note}\n")
    });
    lines.collect()
}

#[tokio::test]
async fn a_move_of_a_newer_version_stays_where_it_looks_for_it() {
    let home = Home::new();
    let (_, folder) = moved(&home).await;
    let journal = folder.join("journal");
    fs::write(&journal, newer(&fs::read_to_string(&journal).unwrap())).unwrap();
    let before = contents(&folder);
    let (_daemon, app) = home.opened().await;
    assert_eq!(contents(&folder), before);
    assert_eq!(reported(&app, &home.data().join("moves")).await, [folder]);
}

/// Makes a tree move. Returns its id and the file that records what was moved where.
async fn moved_tree(home: &Home) -> (String, PathBuf) {
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    app.begun(&old, &["one"]).await;
    stray(home, STRAY, &old, &old);
    let id = move_tree(&app, &old, &new).await.unwrap().undo_id.unwrap();
    let path = home.data().join("trees").join(&id);
    (id, path)
}

#[tokio::test]
async fn a_move_of_a_folder_that_cannot_be_read_is_not_forgotten() {
    let home = Home::new();
    let (id, path) = moved_tree(&home).await;
    flip(&path, 10);
    let before = fs::read(&path).unwrap();
    let there = agents_files(&home);
    let (_daemon, app) = home.opened().await;
    let trees = home.data().join("trees");
    assert_eq!(contents(&trees), [before]);
    assert_eq!(reported(&app, &trees).await.len(), 1);
    // The move is neither completed nor undone.
    refused(undo_tree(&app, &id).await, ErrorKind::NotFound);
    assert_eq!(agents_files(&home), there);
}

#[tokio::test]
async fn a_move_of_a_folder_is_read_in_its_own_version_only() {
    let home = Home::new();
    let (id, path) = moved_tree(&home).await;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, newer(&text)).unwrap();
    {
        let (_daemon, app) = home.opened().await;
        let trees = home.data().join("trees");
        assert_eq!(reported(&app, &trees).await, std::slice::from_ref(&path));
        refused(undo_tree(&app, &id).await, ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(&path).unwrap(), newer(&text));
    }
    // The format of the previous version can be read.
    fs::write(&path, without_version(&text)).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(undo_tree(&app, &id).await.unwrap().moved, 2);
}

/// Only the plan of an import says which files the import has written.
#[tokio::test]
async fn the_plan_of_an_import_that_cannot_be_read_stays_with_what_was_unpacked() {
    let home = Home::new();
    let imports = home.data().join("imports");
    let left = home.folder_named("agent") + "/.left.tmp";
    fs::write(&left, "half").unwrap();
    let plan = |name: &str, text: String| {
        let folder = imports.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("plan"), text).unwrap();
        fs::write(folder.join("0"), "unpacked").unwrap();
        folder
    };
    let bytes = std::ffi::OsStr::new(&left).as_bytes();
    let conversation = json!({"conversation": ConversationId::mint()}).to_string();
    let temporary = json!({"temporary": {"Unix": bytes}}).to_string();
    plan(
        "damaged",
        format!("{conversation}\n{}\n{temporary}\n", &temporary[1..]),
    );
    plan("garbage", "garbage\n".to_owned());
    let later = plan("newer", newer("plan"));
    let before = contents(&imports);
    let (_daemon, app) = home.opened().await;
    assert_eq!(fs::read_to_string(&left).unwrap(), "half");
    let mut after = contents(&imports);
    let mut expected = before.clone();
    after.sort();
    expected.sort();
    assert_eq!(after, expected);
    let aside = reported(&app, &imports).await;
    assert_eq!(aside.len(), 3, "{aside:?}");
    assert!(aside.contains(&later), "{aside:?}");
}

/// Only the intent of a copy says that the copy may belong to no conversation.
#[tokio::test]
async fn the_note_of_a_copy_that_cannot_be_read_stays() {
    let home = Home::new();
    let copies = home.data().join("copies");
    fs::create_dir_all(&copies).unwrap();
    fs::write(copies.join("damaged"), "{\"upstr\u{1}").unwrap();
    let later = copies.join("newer");
    fs::write(&later, newer("note")).unwrap();
    let before = contents(&copies);
    let (_daemon, app) = home.opened().await;
    assert_eq!(contents(&copies), before);
    let aside = reported(&app, &copies).await;
    assert_eq!(aside.len(), 2, "{aside:?}");
    assert!(aside.contains(&later), "{aside:?}");
}
