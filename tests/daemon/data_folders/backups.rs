//! The backups of an earlier version: if the agent has deleted its transcripts, the current version reads, restores and
//! continues from the backups, and still knows which turns a restored transcript lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Resumed, Via};
use serde_json::{Value, json};

use super::recorded::{Recorded, VERSIONS};
use super::{all_pages, assert_has};
use crate::carrying::files_below;
use crate::home::Home;
use crate::keeping::lose;
use crate::moving::agents_files;
use crate::resumed::check_resumed;
use crate::support::App;

/// Opens a copy of the folder: the first start settles unfinished work and makes no new backups, then the agent deletes
/// all transcripts. Also returns the transcripts before their deletion.
fn lost(version: &str) -> (Recorded, BTreeMap<PathBuf, String>) {
    let recorded = Recorded::open(version);
    let home = &recorded.home;
    let config = fs::read_to_string(home.config_file()).unwrap();
    home.configure(&format!("{config}[keep]\nenabled = false\n"));
    drop(home.start());
    let texts = agents_files(home);
    lose(home);
    (recorded, texts)
}

/// Returns each session that has backups, with its list of copies.
fn lists(home: &Home) -> Vec<(String, Value)> {
    let mut lists = files_below(&home.data().join("kept"));
    lists.retain(|path| path.ends_with("kept.json"));
    let read = |path: &PathBuf| {
        let session = path.parent().unwrap().file_name().unwrap();
        let list: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let list = list.get("note").unwrap_or(&list).clone();
        (session.to_str().unwrap().to_owned(), list)
    };
    lists.iter().map(read).collect()
}

fn contents(messages: &Value) -> Vec<&Value> {
    let messages = messages.as_array().unwrap().iter();
    messages.map(|message| &message["content"]).collect()
}

/// The conversations whose last session had no backup yet when the daemon was killed.
fn without_backup(version: &str) -> &[&str] {
    match version {
        "v1" => &["half-moved", "queued"],
        _ => &["question"],
    }
}

#[tokio::test]
async fn deleted_transcripts_are_read_and_restored_from_backups() {
    for version in VERSIONS {
        let (recorded, texts) = lost(version);
        let home = &recorded.home;
        let kept = lists(home);
        let files = kept
            .iter()
            .map(|(_, list)| list["files"].as_object().unwrap().len());
        let files: usize = files.sum();
        let (_daemon, app) = home.opened().await;

        let listed = app.call("transcript/keep", json!({})).await.unwrap();
        assert_eq!(listed["total"]["sessions"], kept.len(), "{version}");
        assert_eq!(listed["total"]["files"], files, "{version}");
        let [deleted] = &listed["unclaimed"].as_array().unwrap()[..] else {
            panic!("not one session without a conversation: {listed}")
        };
        assert_eq!(deleted["title"], "Deleted");

        let mut restored = BTreeSet::new();
        for (name, expected) in recorded.conversations() {
            let id = &expected["conversation"]["id"];
            let of_id = json!({"conversationId": id});
            let Some(head) = expected["conversation"]["head"].as_str() else {
                continue;
            };
            if without_backup(version).contains(&name) {
                let history = app.call("conversation/history", of_id.clone()).await.unwrap();
                assert_eq!(history["messages"], json!([]), "{name}");
                assert_eq!(history["gaps"][0]["kind"], "missing", "{name}");
                assert_eq!(history["gaps"][0]["upstreamId"], head, "{name}");
                let refusal = app.call("transcript/restore", of_id).await.unwrap_err();
                assert_eq!(refusal.kind, ErrorKind::NotFound, "{name}");
                continue;
            }
            let messages = all_pages(&app, "conversation/history", id, "messages").await;
            if !kept.iter().any(|(session, _)| session == head) {
                // Its history and checkpoints are those of another session.
                assert_eq!(name, "forked-unprompted");
                assert_eq!(contents(&messages), contents(&expected["messages"]));
                continue;
            }
            assert_has(&messages, &expected["messages"], &format!("{name}: history"));
            let answer = app.call("transcript/restore", of_id).await.unwrap();
            let paths = answer["restored"].as_array().unwrap();
            assert!(
                paths.iter().any(|path| path.as_str().unwrap().contains(head)),
                "{name}: {answer}"
            );
            restored.extend(paths.iter().map(|path| PathBuf::from(path.as_str().unwrap())));
        }
        // Restores also the sessions that are no longer in a chain, and the session of the deleted conversation.
        for (session, _) in &kept {
            let of_session = json!({"upstreamId": session});
            let answer = app.call("transcript/restore", of_session).await.unwrap();
            let paths = answer["restored"].as_array().unwrap().iter();
            restored.extend(paths.map(|path| PathBuf::from(path.as_str().unwrap())));
        }
        let deleted = home.transcript(deleted["upstreamId"].as_str().unwrap()).unwrap();
        let text = fs::read_to_string(&deleted).unwrap();
        assert!(text.contains("Words of a deleted conversation"), "{text}");

        // The restored files equal the deleted transcripts, each where the agent looks for it. The recording has no
        // transcript of the conversation `kept`.
        assert_eq!(restored.len(), files, "{version}");
        for path in &restored {
            let name = path.file_name().unwrap();
            let deleted = texts.iter().find(|(path, _)| path.file_name() == Some(name));
            match deleted {
                Some((_, text)) => assert_eq!(&fs::read_to_string(path).unwrap(), text, "{name:?}"),
                None => assert_eq!(path.file_stem().unwrap(), recorded.head("kept")),
            }
        }
    }
}

/// The conversations continue without a manual restore.
#[tokio::test]
async fn conversations_continue_from_backups() {
    for version in VERSIONS {
        let (recorded, _) = lost(version);
        let (_daemon, app) = recorded.home.opened().await;
        for (name, prompts) in [
            ("edited", &["Alpha", "Beta", "Gamma, edited", "Delta"][..]),
            ("moved", &["Before the move", "After the move"]),
            ("scheduled", &["Do the first half"]),
        ] {
            let id = recorded.id(name);
            let turn = app.send(id, "And now?").await;
            let resumed = turn.resumed.unwrap();
            assert_eq!(
                (resumed.via, resumed.fidelity),
                (Via::Archive, Fidelity::Full),
                "{name}"
            );
            let remembered = app.remembered(id).await;
            assert_eq!(remembered.split_last().unwrap().1, prompts, "{name}");
        }
    }
}

async fn resume(app: &App, recorded: &Recorded, name: &str) -> Resumed {
    let answer = app.ask("conversation/resume", recorded.id(name)).await;
    serde_json::from_value(answer["resumed"].clone()).unwrap()
}

/// The first version wrote no marks for the turns that a restored transcript lacks.
#[tokio::test]
async fn what_a_restored_transcript_lacks_is_reported_once() {
    let recorded = Recorded::open("v2");
    let id = recorded.id("unreported");
    let marks = recorded.home.data().join("kept/unreported");
    assert_eq!(files_below(&marks).len(), 1);
    {
        let (_daemon, app) = recorded.home.opened().await;
        let history = app.ask("conversation/history", id).await;
        assert_eq!(history["gaps"][0]["kind"], "behind", "{history}");
        let resumed = resume(&app, &recorded, "unreported").await;
        check_resumed(&resumed, Via::Archive, Fidelity::Partial, 1);
        let last = app.lineage(id).await.pop().unwrap();
        assert_eq!(
            (last.reason, last.fidelity),
            (LineageReason::Restored, Fidelity::Partial)
        );
        assert_eq!(files_below(&marks), [] as [PathBuf; 0]);
    }
    // A gap that the transcript itself shows is reported each time.
    let (_daemon, app) = recorded.home.opened().await;
    let resumed = resume(&app, &recorded, "unreported").await;
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
    let lineage = app.lineage(id).await;
    let is_report = |entry: &&LineageEntry| entry.reason == LineageReason::Restored;
    assert_eq!(lineage.iter().filter(is_report).count(), 1);
    assert_eq!(app.remembered(id).await, ["In the copy"]);
}
