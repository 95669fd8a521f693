//! A store whose files were damaged while no daemon ran, and one that a newer version has written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::diagnosis::{Diagnosis, DiagnosticKind, Severity};
use serde_json::json;

use crate::home::Home;
use crate::support::App;

/// All files of the store and what is in them, without what each start writes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_none_or(|extension| extension != "lock") {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

async fn ids(app: &App) -> Vec<String> {
    let listed = app
        .call("conversation/list", json!({"limit": 100}))
        .await
        .unwrap();
    let listed = listed["conversations"].as_array().unwrap().clone();
    let id = |one: &serde_json::Value| one["id"].as_str().unwrap().to_owned();
    listed.iter().map(id).collect()
}

/// A home with some conversations whose daemon was stopped, in the order of the list.
async fn home_with_conversations() -> (Home, ConversationId, Vec<String>) {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    for _ in 0..10 {
        app.make(&home.project()).await;
    }
    let begun = app.begun(&home.project(), &["one", "two"]).await;
    let ids = ids(&app).await;
    assert_eq!(ids.len(), 11);
    drop(daemon);
    (home, begun, ids)
}

#[tokio::test]
async fn a_journal_of_a_newer_version_ends_the_start_and_stays_as_it_is() {
    let (home, begun, before) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let mut newer: serde_json::Value = serde_json::from_str(header).unwrap();
    newer["journal"] = json!(2);
    newer["writtenBy"] = json!("session-bridge 9.8.7");
    fs::write(&journal, format!("{newer}\n{lines}{{\"not\":\"known yet\"")).unwrap();
    let as_it_is = files(&home.data());
    for _ in 0..2 {
        let (status, said) = home.run(&[]);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("session-bridge 9.8.7"), "{said}");
        let found = files(&home.data());
        assert!(found == as_it_is, "{:?}", found.keys());
    }
    // The version that wrote it has everything.
    fs::write(&journal, &text).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(ids(&app).await, before);
    assert_eq!(app.remembered(begun).await, ["one", "two"]);
}

#[tokio::test]
async fn a_damaged_journal_loses_no_conversation_and_is_reported() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage); 6] = [
        ("emptied", |bytes| bytes.clear()),
        ("cut to its half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeros", |bytes| bytes.fill(0)),
        ("a bit of the last line", |bytes| {
            let at = bytes.len() - 40;
            bytes[at] ^= 4;
        }),
        ("its last line break", |bytes| {
            let at = bytes.len() - 1;
            bytes[at] ^= 1;
        }),
        ("its header", |bytes| bytes[0] ^= 1),
    ];
    for (what, damage) in table {
        let (home, begun, before) = home_with_conversations().await;
        let journal = home.data().join("journal.jsonl");
        let mut bytes = fs::read(&journal).unwrap();
        damage(&mut bytes);
        fs::write(&journal, &bytes).unwrap();
        let (daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{what}");
        assert_eq!(app.remembered(begun).await, ["one", "two"], "{what}");
        assert_eq!(
            fs::read(home.data().join("journal.damaged-1")).unwrap(),
            bytes,
            "{what}"
        );

        let answer = app
            .call("daemon/diagnose", json!({"agents": false}))
            .await
            .unwrap();
        let all = serde_json::from_value::<Diagnosis>(answer).unwrap().diagnostics;
        let found = all
            .iter()
            .find(|one| one.kind == DiagnosticKind::Store && one.data.get("missingChanges").is_some())
            .unwrap_or_else(|| panic!("{what}: {all:#?}"));
        assert_eq!(found.severity, Severity::Warning, "{what}: {found:?}");
        assert_eq!(found.data["missingChanges"], 0, "{what}: {found:?}");
        drop(daemon);

        // The journal alone has all of it again.
        fs::remove_dir_all(home.data().join("store")).unwrap();
        let (_daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{what}");
        assert_eq!(app.remembered(begun).await[..2], ["one", "two"], "{what}");
    }
}

/// What is lost is reported: here nothing is left but a part of the journal.
#[tokio::test]
async fn what_neither_file_has_is_reported() {
    let (home, _, before) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(5);
    fs::write(&journal, lines.concat()).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let (_daemon, app) = home.opened().await;
    assert!(ids(&app).await.len() + 1 >= before.len());
    let answer = app
        .call("daemon/diagnose", json!({"agents": false}))
        .await
        .unwrap();
    let all = serde_json::from_value::<Diagnosis>(answer).unwrap().diagnostics;
    let found = all
        .iter()
        .find(|one| one.data.get("missingChanges") == Some(&json!(1)));
    assert_eq!(found.map(|one| one.severity), Some(Severity::Error), "{all:#?}");
    assert!(home.data().join("journal.damaged-1").exists());
}
