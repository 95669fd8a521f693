//! A daemon that is killed while it imports: after the next start the conversation is there, whole, or nothing of it
//! is.
//!
//! A test cannot stop a daemon between two system calls. It kills the daemon as soon as it sees a change on disk; by
//! then the daemon may have done more, or have answered already. If a file is still missing after the kill, nothing was
//! recorded, and nothing of the import may be left. If the import was answered, the conversation must be there. If all
//! files are there without an answer, both results are correct. A test fails unless a kill came while files were
//! missing.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::event::Event;
use serde_json::json;

use crate::carrying::{bundled, files_below, import};
use crate::home::Home;
use crate::signs::Watched;

/// How many files lie beside the transcript: enough that an import can be killed in the middle of them.
const RESULTS: usize = 300;

/// A bundle of a conversation with two sessions and many files.
async fn exported(there: &Home) -> (ConversationId, String) {
    let (_daemon, app, id) = there.begun(&[]).await;
    app.send(id, "one").await;
    let first = app.get(id).await.head.unwrap();
    let beside = there.transcript(first.as_str()).unwrap().with_extension("");
    fs::create_dir_all(beside.join("tool-results")).unwrap();
    for number in 0..RESULTS {
        fs::write(
            beside.join(format!("tool-results/{number}.txt")),
            format!("{number}"),
        )
        .unwrap();
    }
    app.fork(id, true).await.unwrap();
    app.send(id, "two").await;
    let path = bundled(&app, id).await;
    (id, path)
}

/// Counts the files of results in the agent's folder, and checks their contents.
fn results(here: &Home) -> usize {
    let all = files_below(&here.data().join("loopback")).into_iter();
    all.filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .inspect(|path| {
            let number = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), number);
        })
        .count()
}

/// Kills a daemon when its import has put at least so many files in place, or has answered. Returns whether it has
/// answered.
async fn killed_at(here: &Home, params: &serde_json::Value, files: usize) -> bool {
    let (daemon, app) = here.opened().await;
    let data = here.data();
    let watched = Watched::below(&data);
    // An import that is faster than this check leaves files too, so the check succeeds in any case.
    let is_so_far = move || {
        let placed = files_below(&data.join("loopback")).len();
        let has_begun = placed > 0 || data.join("imports").exists();
        (has_begun && placed >= files).then_some(())
    };
    let so_far = tokio::task::spawn_blocking(move || watched.wait_for("file of the import", is_so_far));
    let is_answered = tokio::select! {
        biased;
        answer = import(&app, params.clone()) => {
            answer.unwrap();
            true
        }
        found = so_far => {
            found.unwrap();
            false
        }
    };
    daemon.kill();
    is_answered
}

// Against F40 and D12.
#[tokio::test]
async fn an_import_that_is_killed_leaves_nothing_or_a_whole_conversation() {
    let there = Home::new();
    let (id, path) = exported(&there).await;
    let mut interrupted = 0;
    for (new_ids, files) in [
        (false, 0),
        (false, 2),
        (true, 2),
        (true, RESULTS / 2),
        (true, RESULTS),
    ] {
        let here = Home::new();
        let params = json!({"path": path, "cwd": here.project(), "newIds": new_ids});
        let is_answered = killed_at(&here, &params, files).await;
        let is_midway = results(&here) < RESULTS;
        assert!(!(is_answered && is_midway), "answered at {files} files");
        interrupted += usize::from(is_midway);
        let (_daemon, app) = here.opened().await;
        assert_eq!(files_below(&here.data().join("imports")), [] as [PathBuf; 0]);
        let all = app.call("conversation/list", json!({})).await.unwrap();
        let listed = all["conversations"].as_array().unwrap();
        if let [whole] = listed.as_slice() {
            assert!(!is_midway, "killed at {files} files");
            let id = serde_json::from_value(whole["id"].clone()).unwrap();
            assert_eq!(app.remembered(id).await, ["one", "two"]);
            assert_eq!(results(&here), RESULTS, "killed at {files} files");
            continue;
        }
        assert_eq!(listed.len(), 0);
        assert!(!is_answered, "killed at {files} files");
        let left = files_below(&here.data().join("loopback"));
        assert_eq!(left, [] as [PathBuf; 0], "killed at {files} files");
        // The folder that the import made is deleted too.
        assert!(!here.data().join("loopback").exists(), "killed at {files} files");
        let again = import(&app, params).await.unwrap();
        assert_eq!(again.id == id, !new_ids);
        assert_eq!(app.remembered(again.id).await, ["one", "two"]);
        assert_eq!(results(&here), RESULTS, "killed at {files} files");
    }
    assert_ne!(interrupted, 0, "no kill came in the middle");
}

/// The conversation and the response are recorded together: after a kill the repeated call returns the same
/// conversation.
#[tokio::test]
async fn an_import_that_was_killed_after_its_record_is_not_done_again() {
    let (there, here) = (Home::new(), Home::new());
    let (_, path) = exported(&there).await;
    let params = json!({"path": path, "cwd": here.project(), "newIds": true, "requestId": "key"});
    let (daemon, app) = here.opened().await;
    let mut events = app.events_of(None, None).await;
    let announced = events.find(|event| match event {
        Event::Snapshot { conversation, .. } => Some(conversation.id),
        _ => None,
    });
    // When the conversation is announced, the unpacked bundle is still being removed.
    let made = tokio::select! {
        biased;
        made = announced => made,
        answer = import(&app, params.clone()) => panic!("answered before it was announced: {answer:?}"),
    };
    daemon.kill();
    let (_daemon, app) = here.opened().await;
    assert_eq!(import(&app, params).await.unwrap().id, made);
    let all = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(all["conversations"].as_array().unwrap().len(), 1);
    assert_eq!(results(&here), RESULTS);
}

/// An ephemeral daemon cannot tell whether a killed import was recorded, so it leaves the files to the next ordinary
/// start.
#[tokio::test]
async fn an_ephemeral_daemon_takes_nothing_back() {
    use std::os::unix::ffi::OsStrExt;
    let (there, here) = (Home::new(), Home::new());
    let (_, path) = exported(&there).await;
    // This start creates a store without the conversation of the plan below.
    drop(here.start());
    let left = here.folder_named("agent") + "/.left.tmp";
    fs::write(&left, "half").unwrap();
    let plan = here.data().join("imports/left/plan");
    fs::create_dir_all(plan.parent().unwrap()).unwrap();
    let bytes = std::ffi::OsStr::new(&left).as_bytes();
    let notes = [
        json!({"conversation": ConversationId::mint()}),
        json!({"temporary": {"Unix": bytes}}),
    ];
    fs::write(&plan, format!("{}\n{}\n", notes[0], notes[1])).unwrap();
    let daemon = here.start_with(&["--ephemeral"]);
    let app = daemon.app().await;
    import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert!(plan.exists() && fs::exists(&left).unwrap());
    assert_eq!(files_below(&here.data().join("imports")), [plan]);
    drop(app);
    daemon.kill();
    let _daemon = here.start();
    assert!(!fs::exists(&left).unwrap());
    assert_eq!(files_below(&here.data().join("imports")), [] as [PathBuf; 0]);
}
