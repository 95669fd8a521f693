//! Conversations whose transcripts were deleted by their agent: they are read from kept copies, and reading restores
//! nothing.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::check::CheckAnswer;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::LinkReason;
use serde_json::{Value, json};

use super::error_words;
use crate::carrying::{bundle, files_below, import};
use crate::codex::{DEEP_ID, ROOT_ID, rollout, write};
use crate::codex_rollouts::{self, adopt, said};
use crate::home::Home;
use crate::keeping::{keep, lose, once_kept};
use crate::signs::Watched;
use crate::support::{App, refused};

/// Reads the conversation in every way and returns each answer.
async fn read(app: &App, home: &Home, id: ConversationId) -> Vec<(&'static str, Value)> {
    let by_id = json!({"conversationId": id});
    let place = app.checkpoints(id).await[0].id.clone();
    let file = home.path().join("said.json");
    let told = json!({"conversationId": id, "path": file});
    let calls = [
        ("conversation/history", by_id.clone()),
        ("conversation/checkpoints", by_id.clone()),
        ("checkpoint/get", json!({"checkpointId": place})),
        ("conversation/export", by_id.clone()),
        ("conversation/export", told),
        ("transcript/check", by_id),
    ];
    let mut read = Vec::new();
    for (method, params) in calls {
        let answer = app.call(method, params).await;
        let mut answer = answer.unwrap_or_else(|error| panic!("{method}: {error:?}"));
        // An export contains the time at which it was made, so only its other members are compared.
        if method == "conversation/export" {
            answer = json!({"messages": answer["messages"], "turns": answer["turns"], "kept": answer["kept"], "gaps": answer["gaps"]});
        }
        read.push((method, answer));
    }
    let mut written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    written["exportedAt"].take();
    read.push((
        "file",
        json!({"messages": written["messages"], "kept": written["kept"]}),
    ));
    fs::remove_file(&file).unwrap();
    read
}

/// Removes the list of sessions that were read from kept copies from each answer. Returns those lists and the rest.
fn without_kept(read: Vec<(&'static str, Value)>) -> (Vec<Value>, Vec<(&'static str, Value)>) {
    let mut kept = Vec::new();
    let rest = read.into_iter().map(|(method, mut answer)| {
        let own = answer.as_object_mut().unwrap().remove("kept");
        kept.push(own.unwrap_or(Value::Null));
        (method, answer)
    });
    let rest = rest.collect();
    (kept, rest)
}

/// The chain has two sessions, which are read from a hard link or a compressed copy.
#[tokio::test]
async fn d14_what_is_gone_is_read_from_what_is_kept_and_nothing_is_put_back() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one", "[[tool read {\"a\":1}]] two"])
        .await;
    app.fork(id, true).await.unwrap();
    app.send(id, "three").await;
    let head = app.get(id).await.head.unwrap();
    once_kept(&app, |total| total.sessions == 2).await;
    let (none, before) = without_kept(read(&app, &home, id).await);
    assert!(none.iter().all(Value::is_null), "{none:?}");
    for is_packed in [false, true] {
        if is_packed {
            app.close(id).await;
            keep(&app, json!({"conversationId": id})).await.unwrap();
            assert!(once_kept(&app, |_| true).await.bytes > 0);
        }
        let projects = home.data().join("loopback/projects");
        let aside = home.path().join("aside");
        fs::rename(&projects, &aside).unwrap();
        for _ in 0..2 {
            let (kept, told) = without_kept(read(&app, &home, id).await);
            assert_eq!(told, before, "packed: {is_packed}");
            assert!(kept.iter().all(|kept| *kept == json!([head])), "{kept:?}");
        }
        assert!(
            !projects.exists(),
            "reading must not restore the agent's transcripts"
        );
        fs::rename(&aside, &projects).unwrap();
    }
    // Once the transcripts exist again, they are read instead of the copies.
    let (none, told) = without_kept(read(&app, &home, id).await);
    assert!(none.iter().all(Value::is_null), "{none:?}");
    assert_eq!(told, before);
}

/// A bundle of a deleted transcript is as complete as one that was made before, and the conversation continues from it
/// elsewhere.
#[tokio::test]
async fn a_bundle_of_what_is_gone_goes_on_elsewhere() {
    let (there, here) = (Home::new(), Home::new());
    let (_daemon, app, id) = there.begun(&["one", "two"]).await;
    let head = app.get(id).await.head.unwrap();
    let transcript = there.transcript_of(&app, id).await;
    let beside = transcript.with_extension("").join("tool-results/r.txt");
    fs::create_dir_all(beside.parent().unwrap()).unwrap();
    fs::write(&beside, "a long result").unwrap();
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    lose(&there);
    let answer = bundle(&app, id).await;
    assert_eq!((answer.get("missing"), &answer["kept"]), (None, &json!([head])));
    let other = here.start();
    let elsewhere = other.app().await;
    let params = json!({"path": answer["path"], "cwd": here.project()});
    let made = import(&elsewhere, params).await.unwrap();
    assert_eq!(elsewhere.remembered(made.id).await, ["one", "two"]);
    let arrived = here.transcript_of(&elsewhere, made.id).await;
    let arrived = arrived.with_extension("").join("tool-results/r.txt");
    assert_eq!(fs::read_to_string(arrived).unwrap(), "a long result");
}

/// Turns that the copy lacks are reported as they are for a transcript, even if the copy contains a command that may
/// count as a turn.
#[tokio::test]
async fn what_the_copy_lacks_is_told() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    for with_command in [false, true] {
        let id = app.begun(&home.project(), &["one"]).await;
        if with_command {
            app.close(id).await;
            let path = home.transcript_of(&app, id).await;
            let text = fs::read_to_string(&path).unwrap();
            let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            let command = json!({"type": "user", "uuid": "c1", "parentUuid": last["uuid"],
                "message": {"role": "user", "content": "<command-name>/status</command-name>"}});
            fs::write(&path, format!("{text}{command}\n")).unwrap();
        }
        keep(&app, json!({"conversationId": id})).await.unwrap();
        app.send(id, "never kept").await;
        app.close(id).await;
        lose(&home);
        let by_id = json!({"conversationId": id});
        let history = app.call("conversation/history", by_id.clone()).await.unwrap();
        assert_eq!(history["gaps"][0]["kind"], "behind", "{with_command}: {history}");
        let detail = history["gaps"][0]["detail"].as_str().unwrap();
        error_words::check_counted("conversation/history of a kept copy", "behind", detail, &[1, 2]);
        let exported = bundle(&app, id).await;
        assert_eq!(exported["missing"][0]["detail"], history["gaps"][0]["detail"]);
        // Without kept copies, the transcript is reported as missing.
        fs::remove_dir_all(home.data().join("kept")).unwrap();
        let history = app.call("conversation/history", by_id.clone()).await.unwrap();
        assert_eq!(history["gaps"][0]["kind"], "missing");
        refused(app.call("transcript/check", by_id).await, ErrorKind::NotFound);
    }
}

/// A damaged copy is reported as damaged, not as if no copy had been kept.
#[tokio::test]
async fn a_copy_that_cannot_be_read_is_told() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.close(id).await;
    let kept = keep(&app, json!({"conversationId": id})).await.unwrap().kept;
    let copy = Path::new(&kept[0].path);
    let mut bytes = fs::read(copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(copy, bytes).unwrap();
    lose(&home);
    let by_id = json!({"conversationId": id});
    let history = app.call("conversation/history", by_id.clone()).await.unwrap();
    assert_eq!(history["gaps"][0]["kind"], "unreadable", "{history}");
    let detail = history["gaps"][0]["detail"].as_str().unwrap();
    error_words::check("conversation/history of a kept copy", "unreadable", detail);
    let checked = app.call("transcript/check", by_id).await;
    refused(checked, ErrorKind::TranscriptDamaged);
}

/// If the copy has grown since it was unpacked, the history is read from the new copy.
#[tokio::test]
async fn what_is_read_is_the_copy_as_it_is() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    for turns in 1..4 {
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        lose(&home);
        assert_eq!(app.messages(id).await.len(), 2 * turns);
        app.send(id, "more").await;
    }
}

/// A checkpoint that is no longer in any history is found by its id, in the copy of its own session.
#[tokio::test]
async fn a_place_that_was_left_is_found_in_its_copy() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let places = app.checkpoints(id).await;
    let edit = json!({"conversationId": id, "at": places[1].id, "prompt": "instead"});
    app.call("conversation/edit", edit).await.unwrap();
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    let get = || async {
        let place = json!({"checkpointId": places[1].id});
        app.call("checkpoint/get", place).await.unwrap()
    };
    let before = get().await;
    assert_eq!(
        (&before["checkpoint"]["prompt"], before.get("kept")),
        (&json!("two"), None)
    );
    lose(&home);
    let mut told = get().await;
    let kept = told.as_object_mut().unwrap().remove("kept");
    assert_eq!(kept, Some(json!([places[1].upstream_id])));
    assert_eq!(told, before);
}

/// The checkpoints from a kept copy can be used for a fork or an edit, which restore the transcript.
#[tokio::test]
async fn places_in_what_is_gone_can_be_branched_at() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two", "three"]).await;
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    lose(&home);
    let places = app.checkpoints(id).await;
    let steps: Vec<u64> = places.iter().map(|place| place.step).collect();
    assert_eq!(steps, [1, 2, 3]);
    let params = json!({"conversationId": id, "at": places[1].id});
    let fork = app.made_by("conversation/fork", params).await;
    assert_eq!(app.remembered(fork).await, ["one", "two"]);
}

/// A repair restores the transcript first, because it writes a repaired copy beside it.
#[tokio::test]
async fn what_is_gone_is_repaired() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let head = app.get(id).await.head.unwrap();
    app.close(id).await;
    let path = home.transcript_of(&app, id).await;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}no record\n")).unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    lose(&home);
    let check = |params: Value| app.call("transcript/check", params);
    for by in [json!({"conversationId": id}), json!({"upstreamId": head})] {
        let found = check(by).await.unwrap();
        assert_eq!(found["findings"][0]["kind"], "garbageLine", "{found}");
        assert_eq!(found["kept"], json!([head]));
    }
    assert!(!path.exists());
    let repaired = check(json!({"conversationId": id, "repair": true}))
        .await
        .unwrap();
    let repaired: CheckAnswer = serde_json::from_value(repaired).unwrap();
    let chain = app.chain(id).await;
    assert_eq!(chain.last().unwrap().reason, LinkReason::Rebuilt);
    assert_eq!(
        Some(&chain.last().unwrap().upstream_id),
        repaired.repaired.as_ref()
    );
    assert!(path.exists(), "the source was not restored");
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}

/// Files beside a transcript are kept with it, and a check does not report them as missing.
#[tokio::test]
async fn a_check_finds_what_is_kept_beside_it() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one [[tool read {\"a\":1}]]"]).await;
    app.close(id).await;
    let path = home.transcript_of(&app, id).await;
    let beside = path.with_extension("");
    let named = beside.join("tool-results/long.txt");
    let gone = beside.join("tool-results/gone.txt");
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        if record["message"]["content"][0]["type"] == "tool_result" {
            let said = |path: &Path| {
                json!({"type": "tool_result", "tool_use_id": record["message"]["content"][0]["tool_use_id"],
                    "content": format!("<persisted-output>\nFull output saved to: {}\n\nPreview", path.display())})
            };
            record["message"]["content"] = json!([said(&named), said(&gone)]);
            record["toolUseResult"] = json!({"agentId": "x1"});
        }
        format!("{record}\n")
    });
    let text: String = lines.collect();
    fs::write(&path, text).unwrap();
    write(&named, "long");
    write(&beside.join("subagents/agent-x1.jsonl"), "{}\n");
    let check = || async {
        let answer = app.call("transcript/check", json!({"conversationId": id})).await;
        answer.unwrap()["findings"].clone()
    };
    let before = check().await;
    assert_eq!(before.as_array().unwrap().len(), 1, "{before}");
    let detail = before[0]["detail"].as_str().unwrap();
    assert!(detail.contains(gone.to_str().unwrap()), "{detail}");
    keep(&app, json!({"conversationId": id})).await.unwrap();
    lose(&home);
    assert_eq!(check().await, before);
}

/// The history of a Codex fork begins in the files of its sources. Existing files are read, and the deleted ones are
/// read from copies.
#[tokio::test]
async fn a_rollout_that_is_gone_is_read_with_those_in_which_it_begins() {
    let home = codex_rollouts::home();
    let (_daemon, app) = home.opened().await;
    let deep = adopt(&app, &home, DEEP_ID).await;
    let whole = codex_rollouts::history(&app, &deep).await;
    assert_eq!(said(&whole).len(), 6);
    keep(&app, json!({"conversationId": deep["id"]})).await.unwrap();
    let (root, own) = (rollout(&home, ROOT_ID), rollout(&home, DEEP_ID));
    let texts = [fs::read(&root).unwrap(), fs::read(&own).unwrap()];
    for lost in [vec![&own], vec![&root], vec![&own, &root]] {
        lost.iter().for_each(|path| fs::remove_file(path).unwrap());
        let mut told = codex_rollouts::history(&app, &deep).await;
        let kept = told.as_object_mut().unwrap().remove("kept").unwrap();
        assert_eq!(kept.as_array().unwrap().len(), lost.len(), "{kept}");
        assert_eq!(told, whole, "{lost:?}");
        let checked = app
            .call("transcript/check", json!({"conversationId": deep["id"]}))
            .await
            .unwrap();
        assert_eq!(checked["findings"], json!([]), "{lost:?}");
        let id = serde_json::from_value(deep["id"].clone()).unwrap();
        let exported = bundle(&app, id).await;
        assert_eq!(exported.get("missing"), None, "{exported}");
        assert!(lost.iter().all(|path| !path.exists()));
        write(&root, &texts[0]);
        write(&own, &texts[1]);
    }
}

/// An unpacked copy is deleted together with its kept copy. The next start deletes those that a killed daemon left.
#[tokio::test]
async fn what_is_unpacked_does_not_stay() {
    let home = Home::new();
    let unpacked = home.data().join("kept/unpacked");
    let texts = || match unpacked.exists() {
        true => files_below(&unpacked).len(),
        false => 0,
    };
    let (daemon, app, id) = home.begun(&["one"]).await;
    let other = app.begun(&home.project(), &["two"]).await;
    app.close(id).await;
    app.close(other).await;
    once_kept(&app, |total| total.sessions == 2 && total.bytes > 0).await;
    lose(&home);
    assert_eq!(
        (app.messages(id).await.len(), app.messages(other).await.len()),
        (2, 2)
    );
    assert_eq!(texts(), 2);
    app.erase(id).await;
    assert_eq!(texts(), 1);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    Watched::below(&home.data()).wait_for("end of the unpacked files", || (texts() == 0).then_some(()));
    assert_eq!(app.messages(other).await.len(), 2);
}
