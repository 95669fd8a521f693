//! Bundles of Codex sessions, whose histories begin in other sessions' files. Codex itself is never started.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::Fidelity;
use serde_json::{Value, json};

use super::error_words;
use crate::carrying::{bundle, files_below, import};
use crate::codex::{DEEP_FORK, DEEP_ID, EARLY_FORK, EARLY_ID, ROOT, ROOT_ID, home, rollout, write};
use crate::home::Home;
use crate::support::{App, refused};

const FAMILY: [(&str, &str); 3] = [(ROOT_ID, ROOT), (EARLY_ID, EARLY_FORK), (DEEP_ID, DEEP_FORK)];

/// Writes a fork of a fork: the first of the three rollouts is compressed, the second is archived.
fn written(home: &Home) {
    let packed = rollout(home, ROOT_ID).with_extension("jsonl.zst");
    write(&packed, zstd::encode_all(ROOT.as_bytes(), 3).unwrap());
    let name = rollout(home, EARLY_ID);
    let archive = home.path().join("codex/archived_sessions");
    write(&archive.join(name.file_name().unwrap()), EARLY_FORK.as_bytes());
    write(&rollout(home, DEEP_ID), DEEP_FORK.as_bytes());
}

async fn adopted(app: &App, home: &Home) -> Value {
    let params = json!({"upstreamId": DEEP_ID, "cwd": home.project()});
    app.call("conversation/adopt", params).await.unwrap()["conversation"].clone()
}

async fn history(app: &App, id: &Value) -> Value {
    let params = json!({"conversationId": id});
    app.call("conversation/history", params).await.unwrap()
}

async fn findings(app: &App, id: &Value) -> Value {
    let params = json!({"upstreamId": id});
    app.call("transcript/check", params).await.unwrap()["findings"].clone()
}

/// Exports the fork of a fork. Returns the bundle's path, the history, and the conversation.
async fn exported(home: &Home) -> (String, Value, Value) {
    written(home);
    let (_daemon, app) = home.opened().await;
    let made = adopted(&app, home).await;
    let id = serde_json::from_value(made["id"].clone()).unwrap();
    let answer = bundle(&app, id).await;
    assert_eq!(answer.get("missing"), None, "{answer}");
    let told = history(&app, &made["id"]).await;
    (answer["path"].as_str().unwrap().to_owned(), told, made)
}

// Against D12.
#[tokio::test]
async fn a_fork_comes_along_with_the_files_that_it_continues() {
    let (there, here) = (home(), home());
    let (path, told, made) = exported(&there).await;
    let (_daemon, app) = here.opened().await;
    let imported = import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(json!(imported.id), made["id"]);
    // The bytes of these files do not change: forks refer to a number of bytes in them.
    let mut expected: Vec<PathBuf> = Vec::new();
    for (id, text) in FAMILY {
        assert_eq!(fs::read_to_string(rollout(&here, id)).unwrap(), text, "{id}");
        expected.push(rollout(&here, id));
    }
    expected.sort();
    assert_eq!(files_below(&here.path().join("codex")), expected);
    assert_eq!(history(&app, &made["id"]).await, told);
    assert_eq!(findings(&app, &json!(DEEP_ID)).await, json!([]));
}

// Against D12.
#[tokio::test]
async fn under_new_ids_every_reference_follows_and_no_byte_moves() {
    let home = home();
    let (path, told, made) = exported(&home).await;
    let (_daemon, app) = home.opened().await;
    let before = files_below(&home.path().join("codex"));
    refused(
        import(&app, json!({"path": path, "sameFolders": true})).await,
        ErrorKind::Conflict,
    );
    let second = import(&app, json!({"path": path, "sameFolders": true, "newIds": true}))
        .await
        .unwrap();
    let head = second.head.clone().unwrap();
    assert_ne!(json!(second.id), made["id"]);
    let all = files_below(&home.path().join("codex"));
    let new: Vec<&PathBuf> = all.iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(new.len(), 3, "{new:?}");
    for path in new {
        let text = fs::read_to_string(path).unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let id = &stem[stem.len() - 36..];
        assert_eq!(&id[14..15], "7", "not a UUID version 7: {id}");
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["payload"]["id"], json!(id));
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        let is_like = |(_, old): &&(&str, &str)| old.lines().map(str::len).eq(lengths.iter().copied());
        assert!(FAMILY.iter().any(|old| is_like(&old)), "{id}");
        for (old, _) in FAMILY {
            assert!(!text.contains(old), "{id} still names {old}");
        }
    }
    // The content is the same, under other ids.
    let content = |told: &Value| -> Vec<Value> {
        let messages = told["messages"].as_array().unwrap().iter();
        messages
            .map(|message| json!([message["role"], message["kind"], message["content"]]))
            .collect()
    };
    let here = history(&app, &json!(second.id)).await;
    assert_eq!(here.get("gaps"), None);
    assert_eq!(content(&here), content(&told));
    assert_eq!(findings(&app, &json!(head)).await, json!([]));
    let listed = app
        .call("transcript/list", json!({"agent": "codex"}))
        .await
        .unwrap();
    assert_eq!(listed["transcripts"].as_array().unwrap().len(), 6);
}

/// An existing rollout is used if its content is the same, and is never overwritten.
// Against F40.
#[tokio::test]
async fn rollouts_that_are_there_are_shared_or_refused() {
    let (there, here) = (home(), home());
    let (path, told, made) = exported(&there).await;
    let (_daemon, app) = here.opened().await;
    let params = json!({"path": path, "cwd": here.project()});
    let elsewhere = here.path().join("codex/sessions/2026/12/01");
    let other = elsewhere.join(rollout(&here, ROOT_ID).file_name().unwrap());
    // The forks use only this many bytes of the file.
    let counted = 5_102;
    let mut changed = ROOT.as_bytes().to_vec();
    changed[counted - 3] ^= 1;
    for bad in [&ROOT.as_bytes()[..counted - 1], &changed] {
        write(&other, bad);
        refused(import(&app, params.clone()).await, ErrorKind::Conflict);
        assert_eq!(
            files_below(&here.path().join("codex")),
            std::slice::from_ref(&other)
        );
        assert_eq!(fs::read(&other).unwrap(), bad);
    }
    // The rollout of the session itself is archived here, where it cannot be resumed.
    let grown = format!("{ROOT}{{\"ordinal\":75}}\n");
    write(&other, grown.as_bytes());
    let name = rollout(&here, DEEP_ID);
    let archived = here
        .path()
        .join("codex/archived_sessions")
        .join(name.file_name().unwrap());
    write(&archived, DEEP_FORK.as_bytes());
    refused(import(&app, params.clone()).await, ErrorKind::Conflict);
    fs::remove_file(archived).unwrap();
    import(&app, params).await.unwrap();
    assert_eq!(history(&app, &made["id"]).await, told);
    assert!(other.exists() && !rollout(&here, ROOT_ID).exists());
}

/// A rollout that Codex has compressed here still counts as the same.
#[tokio::test]
async fn a_rollout_that_is_continued_and_compressed_here_is_shared() {
    let (there, here) = (home(), home());
    let (path, told, made) = exported(&there).await;
    let packed = rollout(&here, ROOT_ID).with_extension("jsonl.zst");
    write(&packed, zstd::encode_all(ROOT.as_bytes(), 3).unwrap());
    let (_daemon, app) = here.opened().await;
    import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(history(&app, &made["id"]).await, told);
    assert!(packed.exists() && !rollout(&here, ROOT_ID).exists());
}

#[tokio::test]
async fn a_file_that_a_session_continues_and_that_is_gone_is_named() {
    let (there, here) = (home(), home());
    written(&there);
    fs::remove_file(rollout(&there, ROOT_ID).with_extension("jsonl.zst")).unwrap();
    let (_daemon, app) = there.opened().await;
    let made = adopted(&app, &there).await;
    let id = serde_json::from_value(made["id"].clone()).unwrap();
    let answer = bundle(&app, id).await;
    assert_eq!(answer["missing"][0]["upstreamId"], json!(ROOT_ID), "{answer}");
    let other = here.start();
    let far = other.app().await;
    let params = json!({"path": answer["path"], "cwd": here.project()});
    let told = far.call("conversation/import", params).await.unwrap();
    assert_eq!(told["missing"][0]["upstreamId"], json!(ROOT_ID), "{told}");
    let lineage = far.lineage(id).await;
    assert_eq!(lineage.last().unwrap().fidelity, Fidelity::Partial);
}

/// The export reports what the rollout lacks, for Codex sessions too.
#[tokio::test]
async fn an_export_tells_what_the_rollout_lacks() {
    let home = home();
    write(&rollout(&home, ROOT_ID), ROOT.as_bytes());
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": ROOT_ID, "cwd": home.project()});
    let id = app.made_by("conversation/adopt", params).await;
    assert_eq!(bundle(&app, id).await.get("missing"), None);
    let ends = ROOT
        .match_indices("\"task_complete\"")
        .map(|(at, _)| at)
        .next()
        .unwrap();
    let end = ends + ROOT[ends..].find('\n').unwrap() + 1;
    write(&rollout(&home, ROOT_ID), &ROOT.as_bytes()[..end]);
    let missing = bundle(&app, id).await["missing"].clone();
    assert_eq!(
        (missing.as_array().map(Vec::len), &missing[0]["upstreamId"]),
        (Some(1), &json!(ROOT_ID))
    );
    let detail = missing[0]["detail"].as_str().unwrap();
    error_words::check_counted("an export of a cut rollout", "missing", detail, &[5, 6]);
}
