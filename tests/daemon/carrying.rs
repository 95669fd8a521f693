//! Bundles: a conversation is moved from one daemon to another in a file, and continues there with its whole history.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::{Fidelity, LineageReason, Via};
use bridge_protocol::{ConversationId, UpstreamId};
use serde_json::{Value, json};

use super::error_words;
use crate::home::Home;
use crate::moved_trees::folder_of;
use crate::resumed::check_resumed;
use crate::support::{App, refused};

/// Exports a conversation as a bundle and returns the answer.
pub(crate) async fn bundle(app: &App, id: ConversationId) -> Value {
    let params = json!({"conversationId": id, "format": "bundle"});
    app.call("conversation/export", params).await.unwrap()
}

pub(crate) async fn import(app: &App, params: Value) -> Result<Conversation, BridgeError> {
    let answer = app.call("conversation/import", params).await?;
    Ok(serde_json::from_value(answer["conversation"].clone()).unwrap())
}

/// Makes a conversation with these prompts, each after the first in a new fork in place, and exports it. Returns its
/// id, the path of its bundle, and its head.
async fn exported(there: &Home, texts: &[&str]) -> (ConversationId, String, UpstreamId) {
    let (_daemon, app, id) = there.begun(&[]).await;
    for (number, text) in texts.iter().enumerate() {
        if number > 0 {
            app.fork(id, true).await.unwrap();
        }
        app.send(id, text).await;
    }
    (id, bundled(&app, id).await, app.get(id).await.head.unwrap())
}

/// Exports a conversation as a bundle and returns the bundle's path.
pub(crate) async fn bundled(app: &App, id: ConversationId) -> String {
    bundle(app, id).await["path"].as_str().unwrap().to_owned()
}

/// Copies a folder with its whole content.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy_folder(&file.path(), &target);
        } else {
            fs::copy(file.path(), target).unwrap();
        }
    }
}

/// Returns all files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Returns the `cwd` of each record of a transcript that has one.
pub(crate) fn folders_in(transcript: &Path) -> Vec<String> {
    let text = fs::read_to_string(transcript).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter_map(|record| record["cwd"].as_str().map(str::to_owned))
        .collect()
}

/// F12, D12: the conversation continues in the folder that it was imported into, and its transcript is there.
#[tokio::test]
async fn a_bundle_goes_on_in_another_home_and_folder() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path, head) = {
        let (_daemon, app) = there.opened().await;
        let made = app
            .make_with(&there.project(), json!({"title": "Fix: the  Build!"}))
            .await;
        app.send(made.id, "one [[tool read {\"a\":1}]]").await;
        app.send(made.id, "two").await;
        let exported = bundle(&app, made.id).await;
        assert_eq!(exported["missing"], Value::Null);
        let path = exported["path"].as_str().unwrap().to_owned();
        assert_eq!(exported["bytes"], json!(fs::metadata(&path).unwrap().len()));
        (made.id, path, app.get(made.id).await.head.unwrap())
    };
    let name = Path::new(&path).file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("fix-the-build-2") && name.ends_with(".session-bundle.tar.zst"),
        "{name}"
    );
    assert_eq!(Path::new(&path).parent().unwrap(), there.data().join("exports"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let (daemon, app) = here.opened().await;
    let mut events = app.events_of(None, None).await;
    let imported = import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    events.until("snapshot").await;
    assert_eq!((imported.id, imported.head.as_ref()), (id, Some(&head)));
    assert_eq!(
        (imported.title.as_str(), &imported.cwd),
        ("Fix: the  Build!", &here.project())
    );
    let link = &app.chain(id).await[0];
    assert_eq!((link.turns, link.written, &link.cwd), (2, true, &here.project()));
    let lineage = app.lineage(id).await;
    let last = lineage.last().unwrap();
    assert_eq!(
        (last.reason, last.fidelity),
        (LineageReason::Restored, Fidelity::Full)
    );
    let transcript = here.transcript(head.as_str()).unwrap();
    let folders = folders_in(&transcript);
    assert!(
        !folders.is_empty() && folders.iter().all(|cwd| *cwd == here.project()),
        "{folders:?}"
    );

    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Full, 0);
    assert_eq!(
        app.remembered(id).await,
        ["one [[tool read {\"a\":1}]]", "two", "go on"]
    );
    // As in the old home, any id that the conversation ever had leads to it.
    let found = app.ask("conversation/get", head).await;
    assert_eq!(found["conversation"]["id"], json!(id));
    drop(app);
    daemon.kill();
    let (_daemon, app) = here.opened().await;
    assert_eq!(app.remembered(id).await.len(), 4);
    assert_eq!(files_below(&here.data().join("imports")), [] as [PathBuf; 0]);
}

/// The chain has a fork in place and a roll: every session is imported, with the way back through them.
// Against D12.
#[tokio::test]
async fn a_chain_comes_along_whole() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path, chain, told) = {
        let (_daemon, app, id) = there.begun(&[]).await;
        app.send(id, "one").await;
        app.fork(id, true).await.unwrap();
        app.send(id, "two [[forget]]").await;
        app.close(id).await;
        app.send(id, "three").await;
        let path = bundled(&app, id).await;
        let told = app.ask("conversation/history", id).await;
        (id, path, app.chain(id).await, told)
    };
    assert!(chain.len() >= 3, "{chain:?}");
    let (_daemon, app) = here.opened().await;
    import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    let here_chain = app.chain(id).await;
    assert_eq!(here_chain.len(), chain.len());
    for (link, old) in here_chain.iter().zip(&chain) {
        assert_eq!(
            (
                &link.upstream_id,
                link.reason,
                link.relation,
                &link.from_upstream_id,
                &link.from_checkpoint_id
            ),
            (
                &old.upstream_id,
                old.reason,
                old.relation,
                &old.from_upstream_id,
                &old.from_checkpoint_id
            )
        );
        assert!(here.transcript(link.upstream_id.as_str()).is_some(), "{link:?}");
    }
    let again = app.ask("conversation/history", id).await;
    assert_eq!(again, told);
    assert_eq!(app.remembered(id).await, ["one", "two [[forget]]", "three"]);
}

#[tokio::test]
async fn new_ids_make_a_second_conversation_of_the_same_daemon() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.fork(id, true).await.unwrap();
    app.send(id, "two").await;
    let path = bundled(&app, id).await;
    let held = refused(
        import(&app, json!({"path": path, "sameFolders": true})).await,
        ErrorKind::Conflict,
    );
    assert!(held.message.contains(&id.to_string()), "{held:?}");

    let params = json!({"path": path, "newIds": true, "cwd": home.folder_named("other")});
    let second = import(&app, params).await.unwrap();
    assert_ne!(second.id, id);
    let (old, new) = (app.chain(id).await, app.chain(second.id).await);
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(&new) {
        assert_ne!(old.upstream_id, new.upstream_id);
    }
    assert_eq!(new[1].from_upstream_id.as_ref(), Some(&new[0].upstream_id));
    let place = new[1].from_checkpoint_id.as_ref().unwrap();
    assert!(place.as_str().contains(new[0].upstream_id.as_str()), "{place:?}");
    // Each record names its new session and the new id of the session that it was copied from.
    let transcript = fs::read_to_string(home.transcript(new[1].upstream_id.as_str()).unwrap()).unwrap();
    for link in &old {
        assert!(!transcript.contains(link.upstream_id.as_str()), "{link:?}");
    }
    assert!(transcript.contains(new[0].upstream_id.as_str()), "its fork");
    app.send(second.id, "here").await;
    app.send(id, "there").await;
    assert_eq!(app.remembered(second.id).await, ["one", "two", "here"]);
    assert_eq!(app.remembered(id).await, ["one", "two", "there"]);
    // Checkpoints are reported under the new ids and can be looked up by them.
    let told = app
        .call("conversation/checkpoints", json!({"conversationId": second.id}))
        .await
        .unwrap();
    let checkpoint = &told["checkpoints"][1];
    let got = app
        .call("checkpoint/get", json!({"checkpointId": checkpoint["id"]}))
        .await
        .unwrap();
    assert_eq!(got["checkpoint"]["prompt"], checkpoint["prompt"]);
}

/// The running turn is not disturbed; the exported copy has it as an interrupted turn.
#[tokio::test]
async fn a_busy_conversation_is_exported_as_it_stands() {
    let (there, here) = (Home::new(), Home::new());
    let (daemon, app, id) = there.begun(&[]).await;
    app.send(id, "one").await;
    let mut raw = daemon.raw().await;
    let (_, turn) = raw.hang(id).await;
    let path = bundled(&app, id).await;
    let portable = app.ask("conversation/export", id).await;
    assert_eq!(portable["conversation"]["state"], json!("prompting"));
    assert_eq!(app.get(id).await.state, ConversationState::Prompting);

    let other = here.start();
    let far = other.app().await;
    let imported = import(&far, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(imported.state, ConversationState::Interrupted);
    assert_eq!(far.remembered(id).await[0], "one");
    let cancelled = raw
        .ask(
            "conversation/cancel",
            json!({"conversationId": id, "turnId": turn}),
        )
        .await;
    assert_eq!(cancelled["result"]["cancelled"], json!(true));
}

#[tokio::test]
async fn an_open_question_is_pending_and_comes_along_as_an_orphan() {
    let (there, here) = (Home::new(), Home::new());
    let (daemon, app, id) = there.begun(&[]).await;
    let mut raw = daemon.raw().await;
    raw.run(id, "[[ask Really?]] [[say Done]]").await;
    let mut raised = raw.event("interruptRaised").await["interrupt"].clone();
    assert!(raised.to_string().contains("Really?"), "{raised}");
    assert_ne!(raised["options"].as_array().map(Vec::len), Some(0), "{raised}");
    let portable = app.ask("conversation/export", id).await;
    assert_eq!(portable["pending"], json!([raised]));
    let path = bundled(&app, id).await;
    let other = here.start();
    let far = other.app().await;
    let imported = import(&far, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    raised["orphaned"] = json!(true);
    assert_eq!(json!(imported.interrupts), json!([raised]));
    app.ask("conversation/cancel", id).await;
}

/// The bundle has only the lines that were complete when the export began, and the files beside the transcript.
#[tokio::test]
async fn side_files_come_along_and_a_torn_line_does_not() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path, head) = {
        let (_daemon, app, id) = there.begun(&[]).await;
        app.send(id, "one").await;
        app.close(id).await;
        let head = app.get(id).await.head.unwrap();
        let transcript = there.transcript(head.as_str()).unwrap();
        let mut text = fs::read_to_string(&transcript).unwrap();
        text.push_str("{\"type\":\"user\",\"uuid\":\"torn");
        fs::write(&transcript, text).unwrap();
        let beside = transcript.with_extension("");
        fs::create_dir_all(beside.join("subagents")).unwrap();
        fs::create_dir_all(beside.join("tool-results")).unwrap();
        let line = json!({"cwd": there.project(), "sessionId": head, "text": there.project()});
        fs::write(beside.join("subagents/agent-1.jsonl"), format!("{line}\n{{\"to")).unwrap();
        fs::write(beside.join("tool-results/long.txt"), there.project()).unwrap();
        let long = "x".repeat(150);
        fs::write(beside.join("tool-results").join(&long), "long").unwrap();
        std::os::unix::fs::symlink("/etc", beside.join("link")).unwrap();
        let exported = bundle(&app, id).await;
        let missing = exported["missing"][0]["detail"].as_str().unwrap();
        error_words::check("an export of a session with a link beside it", "missing", missing);
        (id, exported["path"].as_str().unwrap().to_owned(), head)
    };
    let (_daemon, app) = here.opened().await;
    let params = json!({"path": path, "cwd": here.project(), "newIds": true});
    let imported = import(&app, params).await.unwrap();
    assert_ne!(imported.id, id);
    let new = imported.head.unwrap();
    let transcript = here.transcript(new.as_str()).unwrap();
    let text = fs::read_to_string(&transcript).unwrap();
    assert!(text.ends_with("}\n") && !text.contains("torn"), "{text}");
    let beside = transcript.with_extension("");
    let moved = json!({"cwd": here.project(), "sessionId": new, "text": there.project()});
    assert_eq!(
        fs::read_to_string(beside.join("subagents/agent-1.jsonl")).unwrap(),
        format!("{moved}\n")
    );
    // Only records are rewritten; the content of other files stays as it is.
    assert_eq!(
        fs::read_to_string(beside.join("tool-results/long.txt")).unwrap(),
        there.project()
    );
    assert_eq!(
        fs::read_to_string(beside.join("tool-results").join("x".repeat(150))).unwrap(),
        "long"
    );
    assert!(here.transcript(head.as_str()).is_none());
    assert_eq!(app.remembered(imported.id).await, ["one"]);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (there, here) = (Home::keeping_nothing(), Home::new());
    let (id, path, lost) = {
        let (_daemon, app, id) = there.begun(&[]).await;
        app.send(id, "one").await;
        app.fork(id, true).await.unwrap();
        app.send(id, "two").await;
        let lost = app.chain(id).await[0].upstream_id.clone();
        fs::remove_file(there.transcript(lost.as_str()).unwrap()).unwrap();
        let exported = bundle(&app, id).await;
        assert_eq!(exported["missing"][0]["upstreamId"], json!(lost));
        (id, exported["path"].as_str().unwrap().to_owned(), lost)
    };
    let (_daemon, app) = here.opened().await;
    let answer = app
        .call(
            "conversation/import",
            json!({"path": path, "cwd": here.project()}),
        )
        .await
        .unwrap();
    assert_eq!(answer["missing"][0]["upstreamId"], json!(lost));
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

#[tokio::test]
async fn a_conversation_that_nobody_spoke_in_comes_along_too() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path) = {
        let (_daemon, app, id) = there.begun(&[]).await;
        (id, bundled(&app, id).await)
    };
    let (_daemon, app) = here.opened().await;
    let imported = import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(
        (imported.id, imported.head, imported.state),
        (id, None, ConversationState::Idle)
    );
    app.send(id, "first").await;
    assert_eq!(app.remembered(id).await, ["first"]);
}

#[tokio::test]
async fn a_repeated_import_is_answered_with_what_it_was() {
    let (there, here) = (Home::new(), Home::new());
    let (_, path, _) = exported(&there, &["one"]).await;
    let (daemon, app) = here.opened().await;
    let params = json!({"path": path, "cwd": here.project(), "requestId": "key"});
    let (first, second) = tokio::join!(import(&app, params.clone()), import(&app, params.clone()));
    assert_eq!(first.unwrap().id, second.unwrap().id);
    drop(app);
    daemon.kill();
    let (_daemon, app) = here.opened().await;
    import(&app, params.clone()).await.unwrap();
    let mut other = params;
    other["newIds"] = json!(true);
    refused(import(&app, other).await, ErrorKind::Conflict);
}

/// An import that was killed before it was recorded leaves files that no conversation refers to. The next import uses
/// them.
#[tokio::test]
async fn an_import_that_was_killed_is_taken_up_again() {
    let (there, here, third) = (Home::new(), Home::new(), Home::new());
    let (id, path, head) = exported(&there, &["one"]).await;
    let shared = third.folder_named("shared");
    let placed = {
        let (_daemon, app) = here.opened().await;
        import(&app, json!({"path": path, "cwd": shared})).await.unwrap();
        here.transcript(head.as_str()).unwrap()
    };
    // What the kill leaves behind: a transcript in its final place, and unpacked files.
    let relative = placed.strip_prefix(here.data()).unwrap();
    let target = third.data().join(relative);
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::copy(&placed, &target).unwrap();
    fs::create_dir_all(third.data().join("imports/old")).unwrap();
    fs::write(third.data().join("imports/old/plan.new"), "{").unwrap();
    let (_daemon, app) = third.opened().await;
    import(&app, json!({"path": path, "cwd": shared})).await.unwrap();
    assert_eq!(files_below(&third.data().join("imports")), [] as [PathBuf; 0]);
    assert_eq!(app.remembered(id).await, ["one"]);
}

// Against F40.
#[tokio::test]
async fn nothing_is_written_over_a_transcript_that_differs() {
    let (there, here) = (Home::new(), Home::new());
    let (id, path, head) = exported(&there, &["one", "two"]).await;
    let project = here.project();
    let folder = folder_of(&project);
    let taken = here
        .data()
        .join(format!("loopback/projects/{folder}/{head}.jsonl"));
    fs::create_dir_all(taken.parent().unwrap()).unwrap();
    fs::write(&taken, "{}\n").unwrap();
    let (_daemon, app) = here.opened().await;
    let params = json!({"path": path, "cwd": project});
    refused(import(&app, params).await, ErrorKind::Conflict);
    // The session before the conflicting one had already been written; the failed import deleted it again.
    assert_eq!(
        files_below(&here.data().join("loopback")),
        std::slice::from_ref(&taken)
    );
    assert_eq!(fs::read_to_string(&taken).unwrap(), "{}\n");
    assert!(
        app.call("conversation/get", json!({"conversationId": id}))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_folder_or_an_agent_that_is_not_here_is_named() {
    let config =
        "[agents.helper]\nkind = \"claude\"\ncommand = \"/nowhere/claude\"\ntranscripts = \"/nowhere/t\"\n";
    let (there, here) = (Home::with_config(config), Home::new());
    let (plain, other) = {
        let (_daemon, app) = there.opened().await;
        let plain = app.make(&there.folder_named("gone")).await;
        let other = app.make_of(&there.project(), "helper").await;
        (bundled(&app, plain).await, bundled(&app, other).await)
    };
    fs::remove_dir(there.path().join("gone")).unwrap();
    let (daemon, app) = here.opened().await;
    let error = refused(
        import(&app, json!({"path": plain, "sameFolders": true})).await,
        ErrorKind::InvalidCwd,
    );
    assert!(error.message.contains("/gone"), "{error:?}");
    refused(
        import(&app, json!({"path": plain, "cwd": "/nowhere/at/all"})).await,
        ErrorKind::InvalidCwd,
    );
    refused(
        import(&app, json!({"path": other, "cwd": here.project()})).await,
        ErrorKind::AgentUnavailable,
    );
    drop(app);
    drop(daemon);
    // The conversation continues with an agent of the same kind, whatever its name is here.
    here.configure(&format!(
        "default_agent = \"loopback\"\n{}",
        config.replace("helper", "work")
    ));
    let (_daemon, app) = here.opened().await;
    let imported = import(&app, json!({"path": other, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(imported.agent.as_str(), "work");
}
