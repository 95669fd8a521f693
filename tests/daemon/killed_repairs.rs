//! A daemon that is killed while it makes a repaired copy: after the next start the agent's folders contain the whole
//! copy or nothing of it.
//!
//! A test cannot stop a daemon between two system calls. It kills the daemon as soon as it sees a change on disk; by
//! then the daemon may have done more, or have answered already. The copy stays, whole, if the repair was answered, if
//! the conversation continues with it, or, for a session without a conversation, if its intent was deleted. Otherwise
//! nothing of it may be left. The test fails unless a kill came before one of these.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use serde_json::{Value, json};

use crate::home::Home;
use crate::signs::Watched;

const ID: &str = "0f1a1f5e-0000-4000-8000-000000000000";

/// How many results of tools the transcript names: enough that a repair can be killed in the middle of them.
const RESULTS: usize = 300;

/// All files and folders below a folder.
fn all_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

/// Writes a session that belongs to no conversation, with many long results of tools and a torn record at its end.
fn damaged(home: &Home) {
    let folder = home.data().join("loopback/projects/-elsewhere");
    let results = folder.join("lender/tool-results");
    fs::create_dir_all(&results).unwrap();
    let record = |kind: &str, uuid: &str, parent: Value, content: Value| {
        json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": ID, "cwd": home.project(),
            "timestamp": "2026-11-24T03:57:09.123Z", "message": {"role": kind, "id": format!("m{uuid}"), "content": content},
        })
    };
    let mut prompt = record("user", "u0", Value::Null, json!("one"));
    prompt["origin"] = json!({"kind": "human"});
    let mut records = vec![prompt];
    let mut parent = "u0".to_owned();
    for number in 0..RESULTS {
        let named = results.join(format!("{number}.txt"));
        fs::write(&named, "x".repeat(20_000)).unwrap();
        let (call, result) = (format!("c{number}"), format!("r{number}"));
        let used = json!([{"type": "tool_use", "id": call, "name": "Read", "input": {}}]);
        records.push(record("assistant", &call, json!(parent), used));
        let said = format!(
            "<persisted-output>\nFull output saved to: {}\n\nPreview:\nx",
            named.display()
        );
        let given = json!([{"type": "tool_result", "tool_use_id": call, "content": said}]);
        let mut given = record("user", &result, json!(call), given);
        given["toolUseResult"] = json!({"persistedOutputPath": named});
        records.push(given);
        parent = result;
    }
    let said = json!([{"type": "text", "text": "Done."}]);
    records.push(record("assistant", "a0", json!(parent), said));
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(folder.join(format!("{ID}.jsonl")), lines + "{\"type\":\"us").unwrap();
}

/// A conversation that continues the damaged session.
async fn adopted(home: &Home) -> ConversationId {
    let (_daemon, app) = home.opened().await;
    let adopt = json!({"upstreamId": ID, "cwd": home.project()});
    app.made_by("conversation/adopt", adopt).await
}

/// Kills the daemon when its repair has begun more than `files` files, or has answered. Returns the id of the copy if
/// the repair was answered.
async fn killed_at(home: &Home, conversation: Option<ConversationId>, files: usize) -> Option<String> {
    let (daemon, app) = home.opened().await;
    let params = match conversation {
        Some(id) => json!({"conversationId": id, "repair": true}),
        None => json!({"upstreamId": ID, "repair": true}),
    };
    let projects = home.data().join("loopback/projects");
    let before = all_below(&projects).len();
    let watched = Watched::below(&home.data());
    let is_so_far = move || (all_below(&projects).len() > before + files).then_some(());
    let so_far = tokio::task::spawn_blocking(move || watched.wait_for("file of the copy", is_so_far));
    let answered = tokio::select! {
        biased;
        answer = app.call("transcript/check", params) => {
            Some(answer.unwrap()["repaired"].as_str().unwrap().to_owned())
        }
        found = so_far => {
            found.unwrap();
            None
        }
    };
    daemon.kill();
    answered
}

#[tokio::test]
async fn a_repair_that_is_killed_leaves_nothing_with_the_agent_or_a_whole_copy() {
    let mut interrupted = 0;
    for (has_conversation, files) in [(false, 0), (false, 5), (true, 0), (true, 5)] {
        let told = format!("killed at {files} files, {has_conversation}");
        let home = Home::keeping_nothing();
        damaged(&home);
        let conversation = match has_conversation {
            true => Some(adopted(&home).await),
            false => None,
        };
        let projects = home.data().join("loopback/projects");
        let before = all_below(&projects);
        let answered = killed_at(&home, conversation, files).await;
        let has_intent = !all_below(&home.data().join("copies")).is_empty();
        let (_daemon, app) = home.opened().await;
        let left: Vec<PathBuf> = all_below(&projects).difference(&before).cloned().collect();
        let head = match conversation {
            Some(id) => app.get(id).await.head.map(|head| head.to_string()),
            None => None,
        };
        let copy_on_disk = left
            .iter()
            .find_map(|path| path.to_str().unwrap().strip_suffix(".jsonl"));
        let name = copy_on_disk.map(|path| Path::new(path).file_name().unwrap().to_str().unwrap());
        let copy = match conversation {
            _ if answered.is_some() => answered,
            Some(_) => head.filter(|head| head != ID),
            None => name.filter(|_| !has_intent).map(str::to_owned),
        };
        interrupted += usize::from(copy.is_none());
        assert_eq!(all_below(&home.data().join("copies")).len(), 0, "{told}");
        if let Some(copy) = copy {
            assert_eq!(name, Some(&*copy), "{told}");
            let check = app.call("transcript/check", json!({"upstreamId": copy})).await;
            assert_eq!(check.unwrap()["findings"], json!([]), "{told}");
            continue;
        }
        assert_eq!(left, [] as [PathBuf; 0], "{told}");
        let params = json!({"upstreamId": ID, "repair": true});
        let answer = app.call("transcript/check", params).await.unwrap();
        assert!(answer["repaired"].is_string(), "{answer}");
    }
    assert_ne!(interrupted, 0, "no kill came in the middle");
}
