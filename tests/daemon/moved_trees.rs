//! Tree moves: after a project was renamed, its conversations move to the new folder, and so do transcripts that belong
//! to no conversation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bridge_protocol::conversation::MovedKind;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::Event;
use bridge_protocol::link::{LineageReason, LinkReason};
use bridge_protocol::transcript::TreeMoveAnswer;
use serde_json::{Value, json};

use super::error_words;
use crate::codex::{ROOT, ROOT_ID, rollout};
use crate::home::Home;
use crate::moving::agents_files;
use crate::support::{App, id_in, refused};

pub(crate) const STRAY: &str = "0a1b2c3d-0000-4000-8000-000000000001";
const DEEP: &str = "0a1b2c3d-0000-4000-8000-000000000002";
const GUEST: &str = "0a1b2c3d-0000-4000-8000-000000000003";

pub(crate) async fn move_tree(app: &App, from: &str, to: &str) -> Result<TreeMoveAnswer, BridgeError> {
    call(app, "transcript/move", json!({"from": from, "to": to})).await
}

pub(crate) async fn undo_tree(app: &App, id: &str) -> Result<TreeMoveAnswer, BridgeError> {
    call(app, "transcript/undo", json!({"undoId": id})).await
}

pub(crate) async fn call(app: &App, method: &str, params: Value) -> Result<TreeMoveAnswer, BridgeError> {
    let answer = app.call(method, params).await?;
    Ok(serde_json::from_value(answer).unwrap())
}

/// The name of the folder in which agents keep the transcripts of this working directory.
pub(crate) fn folder_of(cwd: &str) -> String {
    let plain = |unit: char| if unit.is_ascii_alphanumeric() { unit } else { '-' };
    cwd.chars().map(plain).collect()
}

/// Writes a transcript that the agent made without a daemon. Its session began in one folder and ended in the other.
pub(crate) fn stray(home: &Home, id: &str, began: &str, ended: &str) -> PathBuf {
    let folder = home.data().join("loopback/projects").join(folder_of(began));
    fs::create_dir_all(&folder).unwrap();
    let record = |number: u32, parent: Option<u32>, kind: &str, cwd: &str| {
        json!({"type": kind, "uuid": format!("{number}"), "parentUuid": parent.map(|parent| format!("{parent}")),
            "sessionId": id, "cwd": cwd, "timestamp": "2026-11-03T12:00:00.000Z", "origin": {"kind": "human"},
            "message": {"role": kind, "content": [{"type": "text", "text": format!("in {began}")}]}})
        .to_string()
    };
    let path = folder.join(format!("{id}.jsonl"));
    let records = [
        record(1, None, "user", began),
        record(2, Some(1), "assistant", ended),
    ];
    fs::write(&path, records.join("\n") + "\n").unwrap();
    path
}

pub(crate) async fn listed_in(app: &App, cwd: &str) -> Vec<String> {
    let page = app.call("transcript/list", json!({"cwd": cwd})).await.unwrap();
    let mut ids: Vec<String> = page["transcripts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|transcript| transcript["upstreamId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// D1: a tree move moves everything below a renamed folder, and its undo restores every byte. A folder whose name is
/// only similar stays.
#[tokio::test]
async fn everything_below_a_renamed_folder_goes_along_and_comes_back() {
    let home = Home::new();
    let old = home.folder_named("my app é");
    let (sub, like, case) = (
        home.folder_named("my app é/sub"),
        home.folder_named("my app é-er"),
        home.folder_named("My app é"),
    );
    let new = home.path().join("renamed").to_str().unwrap().to_owned();
    let (_daemon, app) = home.opened().await;
    let (whole, inner) = (app.begun(&old, &["one"]).await, app.begun(&sub, &["two"]).await);
    let unlike = app.begun(&like, &["three"]).await;
    let other_case = app.begun(&case, &["four"]).await;
    let never = app.make(&old).await;
    stray(&home, STRAY, &old, &old);
    let deep = stray(&home, DEEP, &sub, &format!("{sub}/deep"));
    fs::create_dir_all(deep.with_extension("").join("subagents")).unwrap();
    fs::write(
        deep.with_extension("").join("subagents/agent-1.jsonl"),
        format!("{{\"cwd\":\"{sub}\"}}\n"),
    )
    .unwrap();
    // This session began in another folder. It stays, because the agent looks for it there.
    stray(&home, GUEST, &home.project(), &old);
    for id in [whole, inner] {
        app.close(id).await;
    }
    let before = agents_files(&home);

    fs::rename(&old, &new).unwrap();
    let dry = json!({"from": old, "to": new, "dryRun": true});
    let planned = call(&app, "transcript/move", dry).await.unwrap();
    assert_eq!((planned.moved, &planned.undo_id), (0, &None));
    assert!(planned.left_out[0].contains(GUEST), "{:?}", planned.left_out);
    assert_eq!(planned.left_out.len(), 1);
    error_words::check(
        "a move of a folder in which a session of another folder ended",
        "leftOut",
        &planned.left_out[0],
    );
    assert_eq!(agents_files(&home), before);
    assert!(!home.data().join("moves").exists() && !home.data().join("trees").exists());

    let mut events = app.events(inner).await;
    let moved = move_tree(&app, &format!("{old}/"), &new).await.unwrap();
    assert_eq!(
        (moved.moved, &moved.plan, &moved.left_out),
        (5, &planned.plan, &planned.left_out)
    );
    let kinds = |kind| moved.plan.iter().filter(|planned| planned.kind == kind).count();
    assert_eq!((kinds(MovedKind::Transcript), kinds(MovedKind::SideFile)), (4, 1));
    assert_eq!(kinds(MovedKind::Metadata), 3);
    let Event::Moved { from, to } = events.until("moved").await else {
        panic!("not a `moved` event")
    };
    assert_eq!((from, to), (sub.clone(), format!("{new}/sub")));
    for (id, cwd) in [
        (whole, new.clone()),
        (never, new.clone()),
        (inner, format!("{new}/sub")),
        (unlike, like),
        (other_case, case),
    ] {
        assert_eq!(app.get(id).await.cwd, cwd);
    }
    let after = agents_files(&home);
    assert_eq!(after.len(), before.len());
    let renamed: Vec<String> = after
        .values()
        .filter(|text| text.contains(&format!("\"{new}")))
        .cloned()
        .collect();
    assert_eq!(renamed.len(), 5);
    // Text in which the old folder is mentioned is unchanged.
    assert!(
        after
            .values()
            .any(|text| text.contains(&format!("in {old}")) && text.contains(&new))
    );
    let mut here = vec![
        STRAY.to_owned(),
        app.get(whole).await.head.unwrap().as_str().to_owned(),
    ];
    here.sort();
    assert_eq!(listed_in(&app, &new).await, here);
    assert_eq!(app.remembered(inner).await, ["two"]);
    assert_eq!(app.chain(inner).await[0].reason, LinkReason::Moved);
    app.close(inner).await;

    // One conversation's part of a tree move cannot be undone alone.
    let id = moved.undo_id.unwrap();
    let undone = app
        .call("conversation/undo", json!({"conversationId": inner}))
        .await;
    let error = refused(undone, ErrorKind::Conflict);
    assert_eq!(error.data()["undoId"], json!(id).into());
    refused(undo_tree(&app, &id).await, ErrorKind::InvalidCwd);
    fs::rename(&new, &old).unwrap();
    let undone = undo_tree(&app, &id).await.unwrap();
    assert_eq!((undone.moved, undone.undo_id), (5, None));
    assert_eq!(app.get(inner).await.cwd, sub);
    let last = app.lineage(inner).await.pop().unwrap();
    assert_eq!(last.reason, LineageReason::Undone);
    let mut now = agents_files(&home);
    // The records that were added since are moved back too.
    let head = home.transcript_of(&app, inner).await;
    assert!(now[&head].starts_with(&before[&head]) && now[&head].contains("[[recall]]"));
    assert!(!now[&head].contains(&new));
    now.insert(head.clone(), before[&head].clone());
    assert_eq!(now, before);
    refused(undo_tree(&app, &id).await, ErrorKind::Conflict);
    refused(
        app.call("conversation/undo", json!({"conversationId": inner}))
            .await,
        ErrorKind::Conflict,
    );
    assert_eq!(app.remembered(whole).await, ["one"]);
}

#[tokio::test]
async fn folders_that_cannot_be_meant_are_refused() {
    let home = Home::new();
    let (old, inner) = (home.folder_named("old"), home.folder_named("old/inner"));
    let (_daemon, app) = home.opened().await;
    app.begun(&old, &["one"]).await;
    let nowhere = format!("{old}/../nowhere");
    for (from, to, kind) in [
        ("relative", old.as_str(), ErrorKind::InvalidParams),
        (&old, "relative", ErrorKind::InvalidParams),
        (&old, &nowhere, ErrorKind::InvalidCwd),
        (&old, &old, ErrorKind::InvalidParams),
        (&old, &inner, ErrorKind::InvalidParams),
        (&inner, &old, ErrorKind::InvalidParams),
        ("/", &old, ErrorKind::InvalidParams),
    ] {
        refused(move_tree(&app, from, to).await, kind);
    }
    // Nothing ran in this folder.
    let answer = move_tree(&app, "/not/there", &old).await.unwrap();
    assert_eq!(answer, TreeMoveAnswer::default());
    assert!(!home.data().join("trees").exists());
    for id in ["x", "6f0b2f8e-4d6a-4d0e-9c5b-0a4f3f1c9d11"] {
        refused(undo_tree(&app, id).await, ErrorKind::NotFound);
    }
}

/// A tree move moves everything or nothing: if one item cannot be moved, those before it are moved back.
#[tokio::test]
async fn where_one_cannot_go_nothing_does() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let (first, second) = (app.begun(&old, &["one"]).await, app.begun(&old, &["two"]).await);
    let path = stray(&home, STRAY, &old, &old);
    for id in [first, second] {
        app.close(id).await;
    }
    let before = agents_files(&home);

    // A running turn is noticed before anything moves.
    let mut events = app.events(second).await;
    let running = app.try_send(second, "[[ask May I?]]");
    let asked = async {
        events.until("interruptRaised").await;
        let error = refused(move_tree(&app, &old, &new).await, ErrorKind::Busy);
        assert!(error.message.contains(&second.to_string()));
        app.ask("conversation/cancel", second).await;
    };
    tokio::join!(running, asked).0.unwrap();
    app.close(second).await;
    let before_two = agents_files(&home);
    assert_eq!(before_two.len(), before.len());

    // Another file has the name that a transcript would get.
    let taken = home
        .data()
        .join("loopback/projects")
        .join(folder_of(&new))
        .join(format!("{STRAY}.jsonl"));
    fs::create_dir_all(taken.parent().unwrap()).unwrap();
    fs::write(&taken, "{\"uuid\":\"other\"}\n").unwrap();
    refused(move_tree(&app, &old, &new).await, ErrorKind::Conflict);
    fs::remove_file(&taken).unwrap();
    fs::remove_dir(taken.parent().unwrap()).unwrap();
    assert_eq!(agents_files(&home), before_two);

    // The open file is noticed only after the conversations were moved, so they are moved back.
    #[cfg(target_os = "linux")]
    {
        let mut holder = std::process::Command::new("sleep")
            .arg("600")
            .stdin(fs::File::open(&path).unwrap())
            .spawn()
            .unwrap();
        let answer = move_tree(&app, &old, &new).await;
        holder.kill().unwrap();
        holder.wait().unwrap();
        refused(answer, ErrorKind::Busy);
        assert_eq!(agents_files(&home), before_two);
        for id in [first, second] {
            assert_eq!(app.get(id).await.cwd, old);
            let reasons = app.reasons(id).await;
            assert!(
                reasons.ends_with(&[LineageReason::Moved, LineageReason::Undone]),
                "{reasons:?}"
            );
        }
        assert!(!home.data().join("trees").exists());
    }
    assert!(path.exists());
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!(moved.moved, 3);
    assert_eq!(app.remembered(first).await, ["one"]);
    assert_eq!(app.remembered(second).await, ["two", "[[ask May I?]]"]);
}

/// A repeated call gets the result of the first, also after a restart.
#[tokio::test]
async fn a_repeated_call_moves_the_folder_once() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let params = json!({"from": old, "to": new, "requestId": "t1"});
    let first = {
        let (_daemon, app) = home.opened().await;
        app.begun(&old, &["one"]).await;
        let (first, second) = tokio::join!(
            call(&app, "transcript/move", params.clone()),
            call(&app, "transcript/move", params.clone())
        );
        assert_eq!(first, second);
        first.unwrap()
    };
    let (_daemon, app) = home.opened().await;
    let again = call(&app, "transcript/move", params).await.unwrap();
    assert_eq!(again, first);
    // The move can still be undone after the restart.
    let id = first.undo_id.unwrap();
    assert_eq!(undo_tree(&app, &id).await.unwrap().moved, 1);
}

/// D1: paths so long that the agent shortens the names of its folders, and a link that was left in the old place.
#[tokio::test]
async fn long_names_and_links_lead_where_the_agent_looks() {
    let home = Home::new();
    let long = "n".repeat(120);
    let base = home.folder_named(&format!("{long}/{long}"));
    let old = format!("{base}/old");
    fs::create_dir(&old).unwrap();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&old, &["one"]).await;
    app.close(id).await;
    let new = format!("{base}/new");
    fs::rename(&old, &new).unwrap();
    symlink(&new, &old).unwrap();
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!(moved.moved, 1);
    assert_eq!(app.get(id).await.cwd, new);
    assert_eq!(app.remembered(id).await, ["one"]);
    let resumed = app.chain(id).await;
    assert_eq!((resumed.len(), resumed[0].cwd.as_str()), (1, new.as_str()));
}

/// A conversation whose agent is no longer configured stays and is listed in `leftOut`; the others move.
#[tokio::test]
async fn a_conversation_of_an_agent_that_is_gone_stays() {
    let home = Home::with_config("[agents.second]\nkind = \"loopback\"\n");
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (stays, goes) = {
        let (_daemon, app) = home.opened().await;
        let stays = app.make_with(&old, json!({"agent": "second"})).await.id;
        app.send(stays, "one").await;
        (stays, app.begun(&old, &["two"]).await)
    };
    home.configure("default_agent = \"loopback\"\n");
    let (_daemon, app) = home.opened().await;
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!(moved.left_out.len(), 1);
    assert!(
        moved.left_out[0].contains(&stays.to_string()),
        "{:?}",
        moved.left_out
    );
    error_words::check(
        "a move of a folder with a conversation of an unknown agent",
        "leftOut",
        &moved.left_out[0],
    );
    assert_eq!((app.get(stays).await.cwd, app.get(goes).await.cwd), (old, new));
}

/// A link that points to another project does not move that project, and no link hides that one folder is inside the
/// other.
#[tokio::test]
async fn links_do_not_drag_other_folders_along() {
    let home = Home::new();
    let (first, second) = (home.folder_named("p-v1"), home.folder_named("p-v2"));
    let inner = home.folder_named("p-v2/inner");
    let link = format!("{}/p", home.path().display());
    symlink(&second, &link).unwrap();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&second, &["one"]).await;
    let before = agents_files(&home);
    for to in [&first, &inner] {
        refused(move_tree(&app, &link, to).await, ErrorKind::InvalidParams);
    }
    // Links in the parent folders of a path are followed.
    let above = home.folder_named("above");
    symlink(&second, format!("{above}/q")).unwrap();
    let through = format!("{above}/q/inner");
    refused(move_tree(&app, &through, &second).await, ErrorKind::InvalidParams);
    assert_eq!((agents_files(&home), app.get(id).await.cwd), (before, second));
}

/// Sessions that ran in one folder under two paths are in two folders of the agent, and both would move into the same
/// one.
#[tokio::test]
async fn a_file_whose_place_is_taken_by_another_stays_and_is_reported() {
    let home = Home::new();
    let (by_path, new) = (home.folder_named("real/old"), home.folder_named("new"));
    symlink(home.path().join("real"), home.path().join("link")).unwrap();
    let by_link = format!("{}/link/old", home.path().display());
    let (_daemon, app) = home.opened().await;
    let both = [&by_path, &by_link].map(|cwd| stray(&home, STRAY, cwd, cwd));
    let moved = move_tree(&app, &by_link, &new).await.unwrap();
    let [left_out] = &moved.left_out[..] else {
        panic!("{moved:?}")
    };
    error_words::check(
        "a move of a folder with two files for one place",
        "leftOut",
        left_out,
    );
    let stays = both.iter().filter(|path| path.exists());
    assert_eq!((moved.moved, stays.count()), (1, 1));
}

/// A deleted conversation does not keep its session from moving with another conversation.
#[tokio::test]
async fn the_session_of_a_deleted_conversation_goes_along() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let deleted = app.begun(&old, &["one"]).await;
    let head = app.get(deleted).await.head.unwrap();
    app.ask("conversation/delete", deleted).await;
    let adopted = app
        .call("conversation/adopt", json!({"upstreamId": head}))
        .await
        .unwrap();
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!((moved.moved, moved.left_out), (1, Vec::new()));
    let id = id_in(&adopted);
    assert_eq!(app.get(id).await.cwd, new);
    assert!(
        agents_files(&home)
            .values()
            .all(|text| !text.contains(&format!("\"{old}\"")))
    );
    assert_eq!(app.remembered(id).await, ["one"]);
}

/// The agent's memory files of a project move too. A file that differs from one in the new folder stays and is listed
/// in `leftOut`.
#[tokio::test]
async fn what_the_agent_remembers_of_a_project_goes_along() {
    let home = Home::new();
    let (old, new) = (home.folder_named("old"), home.folder_named("new"));
    let (_daemon, app) = home.opened().await;
    let path = stray(&home, STRAY, &old, &old);
    let projects = path.parent().unwrap().parent().unwrap();
    let memory = |cwd: &str| projects.join(folder_of(cwd)).join("memory");
    for (cwd, name, text) in [
        (&old, "MEMORY.md", "of the project"),
        (&old, "topics/build.md", "how it is built"),
        (&old, "mine.md", "old"),
        (&new, "mine.md", "new"),
    ] {
        let file = memory(cwd).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let before = agents_files(&home);
    let moved = move_tree(&app, &old, &new).await.unwrap();
    assert_eq!(moved.moved, 3);
    assert!(
        moved.left_out.len() == 1 && moved.left_out[0].contains("mine.md"),
        "{:?}",
        moved.left_out
    );
    error_words::check(
        "a move of a folder to one with a note of the same name",
        "leftOut",
        &moved.left_out[0],
    );
    let read = |cwd: &str, name: &str| fs::read_to_string(memory(cwd).join(name)).unwrap();
    assert_eq!(read(&new, "MEMORY.md"), "of the project");
    assert_eq!(read(&new, "topics/build.md"), "how it is built");
    assert_eq!(
        (read(&old, "mine.md"), read(&new, "mine.md")),
        ("old".to_owned(), "new".to_owned())
    );
    assert!(!memory(&old).join("MEMORY.md").exists());
    undo_tree(&app, &moved.undo_id.unwrap()).await.unwrap();
    assert_eq!(agents_files(&home), before);
}

/// Codex finds a rollout by its id, wherever it ran. A rollout that belongs to no conversation stays and is listed in
/// `leftOut`.
#[tokio::test]
async fn sessions_that_their_agent_finds_by_id_stay_and_are_told() {
    let home = crate::codex::home();
    crate::codex::write(&rollout(&home, ROOT_ID), ROOT);
    let new = home.folder_named("new");
    let (_daemon, app) = home.opened().await;
    let answer = move_tree(&app, "/home/u/project", &new).await.unwrap();
    assert_eq!((answer.plan.len(), answer.moved, answer.undo_id), (0, 0, None));
    assert_eq!(answer.left_out.len(), 1);
    error_words::check(
        "a move of a folder with a rollout",
        "leftOut",
        &answer.left_out[0],
    );
    assert!(rollout(&home, ROOT_ID).exists());
}
