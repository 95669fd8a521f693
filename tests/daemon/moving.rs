//! Moves of a conversation and all its files to another folder, where the conversation continues.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{ConversationState, MoveAnswer, MovedKind};
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LineageReason, LinkReason, Via};
use serde_json::{Value, json};

use super::error_words;
use crate::carrying::{files_below, folders_in};
use crate::home::Home;
use crate::scripted;
use crate::support::{App, refused};

pub(crate) async fn move_to(app: &App, id: ConversationId, cwd: &str) -> Result<MoveAnswer, BridgeError> {
    move_with(app, json!({"conversationId": id, "cwd": cwd})).await
}

async fn move_with(app: &App, params: Value) -> Result<MoveAnswer, BridgeError> {
    let answer = app.call("conversation/move", params).await?;
    Ok(serde_json::from_value(answer).unwrap())
}

/// All files of the built-in agent, with their contents.
pub(crate) fn agents_files(home: &Home) -> BTreeMap<PathBuf, String> {
    let files = files_below(&home.data().join("loopback/projects")).into_iter();
    files
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

async fn places(app: &App, id: ConversationId) -> Vec<Value> {
    let told = app.ask("conversation/checkpoints", id).await;
    let told = told["checkpoints"].as_array().unwrap().clone();
    told.into_iter().map(|place| place["id"].clone()).collect()
}

/// D1, F12: the session stays the same, its transcript is in the new folder and names it, and the agent continues with
/// the whole history, also after a restart.
#[tokio::test]
async fn a_conversation_goes_on_in_another_folder_with_its_whole_history() {
    let home = Home::new();
    let (old, new) = (home.project(), home.folder_named("renamed é"));
    let id = {
        let (_daemon, app) = home.opened().await;
        let id = app.begun(&old, &["one", "two"]).await;
        let head = app.get(id).await.head.unwrap();
        let before = home.transcript(head.as_str()).unwrap();
        let beside = before.with_extension("");
        fs::create_dir_all(beside.join("subagents")).unwrap();
        fs::create_dir_all(beside.join("tool-results")).unwrap();
        fs::write(
            beside.join("subagents/agent-1.jsonl"),
            format!("{{\"cwd\":\"{old}\"}}\n"),
        )
        .unwrap();
        fs::write(beside.join("tool-results/r.txt"), "result").unwrap();
        let files = agents_files(&home);
        let checkpoints = places(&app, id).await;

        // A dry run reports the plan and changes nothing.
        let planned = move_with(&app, json!({"conversationId": id, "cwd": new, "dryRun": true}))
            .await
            .unwrap();
        assert_eq!((planned.moved, app.get(id).await.cwd), (0, old.clone()));
        assert_eq!(agents_files(&home), files);

        let mut events = app.events(id).await;
        let moved = move_to(&app, id, &new).await.unwrap();
        assert_eq!((moved.moved, &moved.plan), (3, &planned.plan));
        let kinds: Vec<_> = moved.plan.iter().map(|planned| planned.kind).collect();
        let side = MovedKind::SideFile;
        assert_eq!(kinds, [MovedKind::Transcript, side, side, MovedKind::Metadata]);
        let Event::Moved { from, to } = events.until("moved").await else {
            panic!("not a `moved` event")
        };
        assert_eq!((&from, &to), (&old, &new));

        let after = home.transcript(head.as_str()).unwrap();
        assert_ne!(after.parent(), before.parent());
        assert!(!before.exists());
        assert!(folders_in(&after).iter().all(|cwd| *cwd == new));
        let beside = after.with_extension("");
        assert_eq!(folders_in(&beside.join("subagents/agent-1.jsonl")), [&*new]);
        assert_eq!(
            fs::read_to_string(beside.join("tool-results/r.txt")).unwrap(),
            "result"
        );

        let conversation = app.get(id).await;
        assert_eq!(
            (&conversation.cwd, conversation.state),
            (&new, ConversationState::Idle)
        );
        let chain = app.chain(id).await;
        assert_eq!(
            (chain.len(), &chain[0].cwd, chain[0].reason),
            (1, &new, LinkReason::Moved)
        );
        let last = app.lineage(id).await.pop().unwrap();
        assert_eq!(
            (last.reason, last.fidelity, last.upstream_id),
            (LineageReason::Moved, Fidelity::Full, head)
        );
        // The checkpoints have the same ids as before.
        assert_eq!(places(&app, id).await, checkpoints);
        assert_eq!(app.remembered(id).await, ["one", "two"]);
        let said = app.send(id, "three").await;
        assert_eq!(said.resumed, None);
        id
    };
    let (_daemon, app) = home.opened().await;
    let said = app.send(id, "four").await;
    let resumed = said.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let remembered = app.remembered(id).await;
    assert_eq!(remembered, ["one", "two", "[[recall]]", "three", "four"]);
}

/// An agent that cannot resume sessions may use the same session id twice.
#[tokio::test]
async fn a_session_that_another_conversation_has_too_stays_and_is_reported() {
    let home = Home::new();
    let capabilities = r#"{"loadSession":false,"sessionCapabilities":{"close":{}}}"#;
    let agent = scripted::configured_kind(&home, "claude", capabilities);
    home.configure(&format!("default_agent = \"claude\"\n{agent}"));
    fs::write(home.path().join(scripted::NEXT_SESSION), "\"same\"").unwrap();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (_daemon, app, id) = home.begun(&[]).await;
        app.send(id, "\n").await;
        ids.push(id);
    }
    let (_daemon, app) = home.opened().await;
    let elsewhere = home.folder_named("elsewhere");
    let moved = move_to(&app, ids[0], &elsewhere).await.unwrap();
    let [left_out] = &moved.left_out[..] else {
        panic!("{moved:?}")
    };
    assert!(left_out.contains(&ids[1].to_string()), "{left_out}");
    error_words::check("a move of a session of two conversations", "leftOut", left_out);
    assert_eq!((moved.moved, app.get(ids[0]).await.cwd), (0, elsewhere));
}

/// Moving there and back, however often, leaves nothing behind. Turns from the new folder are kept.
#[tokio::test]
async fn the_way_back_is_a_move_too() {
    let home = Home::new();
    let (old, new) = (home.project(), home.folder_named("other"));
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&old, &["one"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let transcript = home.transcript(head.as_str()).unwrap();
    // The session has a long result in a file of its own.
    let results = transcript.with_extension("").join("tool-results");
    fs::create_dir_all(&results).unwrap();
    fs::write(results.join("r.txt"), "result").unwrap();
    let before = agents_files(&home);
    for _ in 0..2 {
        move_to(&app, id, &new).await.unwrap();
        move_to(&app, id, &old).await.unwrap();
    }
    assert_eq!(agents_files(&home), before);
    move_to(&app, id, &new).await.unwrap();
    app.send(id, "two").await;
    app.ask("conversation/undo", id).await;
    assert!(folders_in(&transcript).iter().all(|cwd| *cwd == old));
    assert_eq!(agents_files(&home).len(), before.len());
    // A move to the folder in which the conversation already is does nothing.
    assert_eq!(move_to(&app, id, &old).await.unwrap().plan, []);
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// D9: if the folder was renamed, the error names the missing folder and nothing is lost. After a move to the new
/// folder the conversation continues.
#[tokio::test]
async fn a_folder_that_was_renamed_is_told_and_moved_to() {
    let home = Home::new();
    let old = home.folder_named("gone");
    let id = {
        let (_daemon, app) = home.opened().await;
        app.begun(&old, &["one", "two"]).await
    };
    let new = home.path().join("renamed").to_str().unwrap().to_owned();
    fs::rename(&old, &new).unwrap();
    let (_daemon, app) = home.opened().await;
    let chain = app.chain(id).await;
    let error = refused(app.try_send(id, "three").await, ErrorKind::InvalidCwd);
    assert!(error.message.contains(&old), "{error:?}");
    assert_eq!(app.chain(id).await, chain);
    move_to(&app, id, &new).await.unwrap();
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

#[tokio::test]
async fn what_was_never_prompted_moves_without_files() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let new = home.folder_named("other");
    let moved = move_to(&app, id, &new).await.unwrap();
    assert_eq!((moved.moved, moved.plan.len()), (0, 1));
    assert_eq!(app.get(id).await.cwd, new);
    app.send(id, "one").await;
    assert_eq!(app.chain(id).await[0].cwd, new);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_and_leaves_everything_as_it_is() {
    let home = Home::new();
    let new = home.folder_named("other");
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let mut events = app.events(id).await;
    let running = app.try_send(id, "[[ask May I?]]");
    let asked = async {
        events.until("interruptRaised").await;
        refused(move_to(&app, id, &new).await, ErrorKind::Busy);
        app.ask("conversation/cancel", id).await;
    };
    let (turn, ()) = tokio::join!(running, asked);
    turn.unwrap();
    for (cwd, kind) in [
        ("relative", ErrorKind::InvalidParams),
        ("/nowhere/at/all", ErrorKind::InvalidCwd),
    ] {
        refused(move_to(&app, id, cwd).await, kind);
    }
    app.close(id).await;

    // Another file has the name that the transcript would get.
    let head = app.get(id).await.head.unwrap();
    let planned = move_with(&app, json!({"conversationId": id, "cwd": new, "dryRun": true}))
        .await
        .unwrap();
    let place = PathBuf::from(&planned.plan[0].to);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "{\"uuid\":\"other\"}\n").unwrap();
    let before = agents_files(&home);
    for dry_run in [true, false] {
        let params = json!({"conversationId": id, "cwd": new, "dryRun": dry_run});
        refused(move_with(&app, params).await, ErrorKind::Conflict);
    }
    assert_eq!(agents_files(&home), before);
    fs::remove_file(&place).unwrap();
    assert!(!home.data().join("moves").exists());

    // Another process has the transcript open.
    #[cfg(target_os = "linux")]
    {
        let held = fs::File::open(home.transcript(head.as_str()).unwrap()).unwrap();
        let mut holder = std::process::Command::new("sleep")
            .arg("600")
            .stdin(held)
            .spawn()
            .unwrap();
        let answer = move_to(&app, id, &new).await;
        holder.kill().unwrap();
        holder.wait().unwrap();
        refused(answer, ErrorKind::Busy);
    }
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.get(id).await.head, Some(head));
    assert_eq!(app.remembered(id).await, ["one", "[[ask May I?]]"]);
}

/// A repeated call gets the result of the first, also after a restart.
#[tokio::test]
async fn a_repeated_call_moves_once() {
    let home = Home::new();
    let new = home.folder_named("other");
    let (id, first) = {
        let (_daemon, app, id) = home.begun(&["one"]).await;
        let params = json!({"conversationId": id, "cwd": new, "requestId": "m1"});
        let (first, second) = tokio::join!(move_with(&app, params.clone()), move_with(&app, params));
        assert_eq!(first, second);
        (id, first.unwrap())
    };
    let (_daemon, app) = home.opened().await;
    let again = move_with(&app, json!({"conversationId": id, "cwd": new, "requestId": "m1"})).await;
    assert_eq!(again.unwrap(), first);
    let other = json!({"conversationId": id, "cwd": home.project(), "requestId": "m1"});
    refused(move_with(&app, other).await, ErrorKind::Conflict);
}

/// All sessions in the chain move, and the branch of another conversation stays.
#[tokio::test]
async fn the_whole_chain_goes_along_and_branches_of_others_stay() {
    let home = Home::new();
    let new = home.folder_named("other");
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let beside = app.fork(id, false).await.unwrap().conversation.id;
    app.send(beside, "beside").await;
    app.fork(id, true).await.unwrap();
    app.send(id, "two").await;
    let moved = move_to(&app, id, &new).await.unwrap();
    assert_eq!(moved.moved, 2);
    assert!(app.chain(id).await.iter().all(|link| link.cwd == new));
    assert_eq!(app.get(beside).await.cwd, home.project());
    assert_eq!(app.remembered(beside).await, ["one", "beside"]);
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}
