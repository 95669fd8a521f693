//! Sessions of Codex, read only from their rollouts: Codex itself is never started.

mod long_lines;

use std::fs;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use super::error_words;
use crate::codex::{
    self, DEEP_FORK, DEEP_ID, EARLY_FORK, EARLY_ID, HEAD_FORK, HEAD_FORK_ID, ROOT, ROOT_ID, rollout, write,
};
use crate::home::Home;
use crate::support::{App, refused};

pub(crate) const FIRST_TURN: &str = "01a1fcbf-db5c-7e90-8043-c4dd5111c2a9";

/// Returns a home with rollouts and a Codex agent whose program does not exist.
pub(crate) fn home() -> Home {
    let home = codex::home();
    for (id, text) in [
        (ROOT_ID, ROOT),
        (HEAD_FORK_ID, HEAD_FORK),
        (EARLY_ID, EARLY_FORK),
        (DEEP_ID, DEEP_FORK),
    ] {
        write(&rollout(&home, id), text);
    }
    // Without backups: they would replace the files that tests delete.
    let config = fs::read_to_string(home.config_file()).unwrap();
    home.configure(&format!("{config}[keep]\nenabled = false\n"));
    home
}

pub(crate) async fn adopt(app: &App, home: &Home, id: &str) -> Value {
    // The session's own folder does not exist here, so the call names another one.
    let params = json!({"upstreamId": id, "cwd": home.project()});
    app.call("conversation/adopt", params).await.unwrap()["conversation"].clone()
}

pub(crate) async fn history(app: &App, conversation: &Value) -> Value {
    let params = json!({"conversationId": conversation["id"]});
    app.call("conversation/history", params).await.unwrap()
}

async fn checkpoints(app: &App, conversation: &Value) -> Vec<Value> {
    let params = json!({"conversationId": conversation["id"]});
    let page = app.call("conversation/checkpoints", params).await.unwrap();
    page["checkpoints"].as_array().unwrap().clone()
}

async fn findings(app: &App, id: &str) -> Vec<(u64, String)> {
    let checked = app
        .call("transcript/check", json!({"upstreamId": id}))
        .await
        .unwrap();
    let place = |finding: &Value| {
        let kind = finding["kind"].as_str().unwrap().to_owned();
        (finding["line"].as_u64().unwrap(), kind)
    };
    checked["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(place)
        .collect()
}

/// Returns the texts of prompts and replies, without asides and errors.
pub(crate) fn said(page: &Value) -> Vec<&str> {
    let messages = page["messages"].as_array().unwrap();
    let plain = messages.iter().filter(|message| message.get("kind").is_none());
    let parts = plain.flat_map(|message| message["content"].as_array().unwrap());
    let texts = parts.filter(|part| part["type"] == "text");
    texts.map(|part| part["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_session_of_codex_is_listed_adopted_and_read() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let listed = app
        .call("transcript/list", json!({"agent": "codex"}))
        .await
        .unwrap();
    assert_eq!(listed["transcripts"].as_array().unwrap().len(), 4);
    let conversation = adopt(&app, &home, ROOT_ID).await;
    assert_eq!(
        (
            &conversation["agent"],
            &conversation["head"],
            &conversation["chainLength"]
        ),
        (&json!("codex"), &json!(ROOT_ID), &json!(1))
    );
    let places = checkpoints(&app, &conversation).await;
    let told: Vec<(u64, &str, &str)> = places
        .iter()
        .map(|place| {
            (
                place["step"].as_u64().unwrap(),
                place["prompt"].as_str().unwrap(),
                place["reply"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (6, "sixth [[text six]]", "six"),
            (5, "fifth [[text five]]", "five"),
            (4, "fourth [[slow 40 0.3]]", ""),
            (3, "third [[err 429]]", ""),
            (
                2,
                "second [[tool exec_command {\"cmd\":\"echo tooled\"}]] [[text after tool]]",
                "after tool"
            ),
            (1, "first [[text hi one]]", "hi one"),
        ]
    );
    assert_eq!(places[4]["tools"], json!(["exec_command"]));
    assert_eq!(places[5]["id"], json!(format!("cp.codex.{ROOT_ID}.{FIRST_TURN}")));
    assert_eq!(places[4]["parentId"], places[5]["id"]);

    let whole = history(&app, &conversation).await;
    assert_eq!(whole.get("gaps"), None);
    let messages = whole["messages"].as_array().unwrap();
    let parts = || {
        messages
            .iter()
            .flat_map(|message| message["content"].as_array().unwrap())
    };
    let call = parts().find(|part| part["type"] == "toolCall").unwrap();
    assert_eq!(call["input"], json!({"cmd": "echo tooled"}));
    let result = parts().find(|part| part["type"] == "toolResult").unwrap();
    assert_eq!(
        (&result["toolCallId"], &result["isError"]),
        (&call["toolCallId"], &json!(false))
    );
    let kinds: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["aside", "error", "aside", "aside", "summary"]);

    // Reading the history in pages, forwards or backwards, gives the same messages.
    let mut forwards = Vec::new();
    let mut params = json!({"conversationId": conversation["id"], "limit": 4});
    loop {
        let page = app.call("conversation/history", params.clone()).await.unwrap();
        forwards.extend(page["messages"].as_array().unwrap().clone());
        let Some(next) = page.get("nextCursor") else { break };
        params["cursor"] = next.clone();
    }
    assert_eq!(&forwards, messages);
    let last = json!({"conversationId": conversation["id"], "last": 3});
    let last = app.call("conversation/history", last).await.unwrap();
    let before =
        json!({"conversationId": conversation["id"], "cursor": last["previousCursor"], "limit": 100});
    let mut backwards = app.call("conversation/history", before).await.unwrap()["messages"]
        .as_array()
        .unwrap()
        .clone();
    backwards.extend(last["messages"].as_array().unwrap().clone());
    assert_eq!(&backwards, messages);

    let got = app
        .call("checkpoint/get", json!({"checkpointId": places[4]["id"]}))
        .await
        .unwrap();
    assert_eq!(got["checkpoint"], places[4]);
    assert_eq!(said(&got).last(), Some(&"after tool"));
    refused(
        app.call(
            "checkpoint/get",
            json!({"checkpointId": format!("cp.codex.{ROOT_ID}.nowhere")}),
        )
        .await,
        ErrorKind::CheckpointNotFound,
    );
    // Adopting the session again returns the same conversation.
    assert_eq!(adopt(&app, &home, ROOT_ID).await["id"], conversation["id"]);
}

#[tokio::test]
async fn a_fork_of_codex_begins_in_the_rollouts_that_it_continues() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let root = adopt(&app, &home, ROOT_ID).await;
    let of_root = checkpoints(&app, &root).await;
    let deep = adopt(&app, &home, DEEP_ID).await;
    let whole = history(&app, &deep).await;
    assert_eq!(
        said(&whole),
        [
            "first [[text hi one]]",
            "hi one",
            "on early fork [[text early]]",
            "early",
            "deep [[text deep]]",
            "deep",
        ]
    );
    let owners: Vec<&str> = whole["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["upstreamId"].as_str().unwrap())
        .collect();
    assert_eq!(
        owners,
        [ROOT_ID, ROOT_ID, ROOT_ID, EARLY_ID, EARLY_ID, DEEP_ID, DEEP_ID]
    );
    // The fork refers to its source without copying it: the checkpoint is the source's own and has no origin.
    let places = checkpoints(&app, &deep).await;
    assert_eq!((places.len(), &places[2]["id"]), (3, &of_root[5]["id"]));
    assert_eq!(
        (&places[2]["upstreamId"], places[2].get("origin")),
        (&json!(ROOT_ID), None)
    );
    let chain = app
        .call("conversation/chain", json!({"conversationId": deep["id"]}))
        .await
        .unwrap();
    let [link] = chain["links"].as_array().unwrap().as_slice() else {
        panic!("{chain}");
    };
    assert_eq!(
        (
            &link["relation"],
            &link["fromUpstreamId"],
            &link["fromCheckpointId"]
        ),
        (&json!("carries"), &json!(EARLY_ID), &places[1]["id"])
    );
    for place in &places {
        for params in [
            json!({"checkpointId": place["id"]}),
            json!({"checkpointId": place["id"], "conversationId": deep["id"]}),
        ] {
            let got = app.call("checkpoint/get", params).await.unwrap();
            assert_eq!(got["checkpoint"]["prompt"], place["prompt"]);
        }
    }
    let before = json!({"conversationId": deep["id"], "before": places[1]["id"]});
    let older = app.call("conversation/checkpoints", before).await.unwrap();
    assert_eq!(older["checkpoints"], json!([places[2]]));
    let forked = adopt(&app, &home, HEAD_FORK_ID).await;
    assert_eq!(checkpoints(&app, &forked).await.len(), 6);

    // If the first rollout of the chain is missing, the history has the remaining messages and a gap.
    fs::remove_file(rollout(&home, ROOT_ID)).unwrap();
    let rest = history(&app, &deep).await;
    assert_eq!(said(&rest).len(), 4);
    assert_eq!(
        (&rest["gaps"][0]["kind"], &rest["gaps"][0]["upstreamId"]),
        (&json!("missing"), &json!(ROOT_ID))
    );
    assert_eq!(findings(&app, DEEP_ID).await, [(1, "missingSource".to_owned())]);
}

/// The session is from an early version whose format current Codex refuses. It is adopted, and the answer says why it
/// cannot be resumed.
#[tokio::test]
async fn adopting_what_codex_refuses_to_resume_says_so() {
    const OLD_ID: &str = "82ace22b-a325-4eb4-b3c2-75701e12acde";
    let home = home();
    let old = include_str!("../fixtures/transcripts/codex/0.29.0.jsonl");
    write(&rollout(&home, OLD_ID), old);
    let (_daemon, app) = home.opened().await;
    let adopted = async |id: &str| {
        let params = json!({"upstreamId": id, "cwd": home.project()});
        app.call("conversation/adopt", params).await.unwrap()
    };
    let told = adopted(OLD_ID).await;
    let checked = app.call("transcript/check", json!({"upstreamId": OLD_ID})).await;
    assert_eq!(told["findings"], checked.unwrap()["findings"]);
    let why = told["findings"][0]["detail"].as_str().unwrap();
    error_words::check("an old rollout", "adopt", why);
    assert_eq!(adopted(ROOT_ID).await.get("findings"), None);
}

#[tokio::test]
async fn packed_and_archived_rollouts_are_read_like_others() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let deep = adopt(&app, &home, DEEP_ID).await;
    let (whole, places) = (history(&app, &deep).await, checkpoints(&app, &deep).await);
    for id in [ROOT_ID, EARLY_ID, DEEP_ID] {
        let path = rollout(&home, id);
        let packed = zstd::encode_all(&fs::read(&path).unwrap()[..], 3).unwrap();
        fs::write(path.with_extension("jsonl.zst"), packed).unwrap();
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(history(&app, &deep).await, whole);
    assert_eq!(checkpoints(&app, &deep).await, places);
    assert_eq!(findings(&app, DEEP_ID).await, []);

    let archive = home.path().join("codex/archived_sessions");
    fs::create_dir_all(&archive).unwrap();
    for id in [ROOT_ID, DEEP_ID, HEAD_FORK_ID] {
        let plain = rollout(&home, id);
        let packed = plain.with_extension("jsonl.zst");
        let path = if plain.exists() { plain } else { packed };
        fs::rename(&path, archive.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(history(&app, &deep).await, whole);
    assert_eq!(checkpoints(&app, &deep).await, places);
    let checked = app
        .call("transcript/check", json!({"upstreamId": DEEP_ID}))
        .await
        .unwrap();
    let said = checked["findings"][0]["detail"].as_str().unwrap();
    assert!(said.contains(&format!("codex unarchive {DEEP_ID}")), "{said}");
    // An archived session can be adopted; the answer says that it is archived.
    let params = json!({"upstreamId": HEAD_FORK_ID, "cwd": home.project()});
    let adopted = app.call("conversation/adopt", params.clone()).await.unwrap();
    assert_eq!(adopted["archived"], json!(true));
    assert_eq!(checkpoints(&app, &adopted["conversation"]).await.len(), 6);
    let again = app.call("conversation/adopt", params).await.unwrap();
    assert_eq!(
        (&again["conversation"]["id"], again.get("archived")),
        (&adopted["conversation"]["id"], Some(&json!(true)))
    );

    // The list shows all of them with their titles.
    let page = app
        .call("transcript/list", json!({"agent": "codex"}))
        .await
        .unwrap();
    let listed = page["transcripts"].as_array().unwrap();
    assert_eq!(listed.len(), 4);
    let deep = listed
        .iter()
        .find(|one| one["upstreamId"] == json!(DEEP_ID))
        .unwrap();
    assert_eq!(
        (&deep["title"], &deep["cwd"]),
        (&json!("deep [[text deep]]"), &json!("/home/u/project"))
    );
}

/// Codex uses one of several rollouts of a session. If another one has more turns, that is reported.
#[tokio::test]
async fn a_rollout_with_more_beside_the_one_that_counts_is_told() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let path = rollout(&home, ROOT_ID);
    let first = |lines: usize| -> String { ROOT.split_inclusive('\n').take(lines).collect() };
    let archived = home.path().join("codex/archived_sessions");
    let archived = archived.join(path.file_name().unwrap());
    let packed = path.with_extension("jsonl.zst");
    let other = home
        .path()
        .join("codex/sessions/2020")
        .join(path.file_name().unwrap());
    let packed_root = zstd::encode_all(ROOT.as_bytes(), 3).unwrap();
    let whole = ROOT.as_bytes();
    let by_id = json!({"upstreamId": ROOT_ID});
    let longer = first(15);
    for (content, beside, case) in [
        (first(14), (&archived, whole), "more turns, archived"),
        (first(14), (&packed, &packed_root), "more turns, compressed"),
        (first(14), (&other, whole), "more turns, written earlier"),
        (first(14), (&archived, longer.as_bytes()), "more bytes, archived"),
    ] {
        let (beside, its) = beside;
        write(beside, its);
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        let file = fs::File::options().write(true).open(beside).unwrap();
        file.set_modified(long_ago).unwrap();
        write(&path, content);
        let checked = app.call("transcript/check", by_id.clone()).await.unwrap();
        let finding = checked["findings"][0].clone();
        assert_eq!(
            (&finding["line"], &finding["kind"]),
            (&json!(0), &json!("otherCopy"))
        );
        let told = finding["detail"].as_str().unwrap();
        let paths = [beside, &path].map(|path| path.to_str().unwrap());
        for path in paths {
            assert!(told.contains(path), "{path}: {told}");
        }
        error_words::check(&format!("a rollout with another copy: {case}"), "otherCopy", told);
        // Once the rollout that Codex uses has all turns, nothing is reported.
        write(&path, ROOT);
        assert_eq!(findings(&app, ROOT_ID).await, [], "{case}");
        fs::remove_file(beside).unwrap();
    }
    write(&archived, ROOT);
    write(&path, first(14));
    let checked = app.call("transcript/check", by_id.clone()).await.unwrap();
    let params = json!({"upstreamId": ROOT_ID, "cwd": home.project()});
    let adopted = app.call("conversation/adopt", params).await.unwrap();
    assert_eq!(adopted["findings"][0], checked["findings"][0]);
    let named = json!({"conversationId": adopted["conversation"]["id"]});
    let of_head = app.call("transcript/check", named).await.unwrap();
    assert_eq!(of_head, checked);
}

// Against D6.
#[tokio::test]
async fn damaged_rollouts_are_told_and_never_end_the_daemon() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let root = adopt(&app, &home, ROOT_ID).await;
    let path = rollout(&home, ROOT_ID);
    let mut lines: Vec<&str> = ROOT.lines().collect();
    lines[7] = "{@@@";
    let damaged = lines.join("\n") + "\n{\"timest";
    fs::write(&path, &damaged).unwrap();
    let rest = history(&app, &root).await;
    assert_eq!(rest["gaps"][0]["kind"], json!("broken"));
    assert_eq!(said(&rest)[0], "hi one");
    let expected = [(8, "garbageLine".to_owned()), (76, "tornLine".to_owned())];
    assert_eq!(findings(&app, ROOT_ID).await, expected);
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged, "file changed");

    // An incomplete last line is still being written and is not damage.
    fs::write(&path, ROOT.trim_end().rsplit_once('"').unwrap().0).unwrap();
    assert_eq!(history(&app, &root).await.get("gaps"), None);
    for text in ["", "\n", "garbage", "{}\n", "[1]\n\0\0"] {
        fs::write(&path, text).unwrap();
        assert_eq!(history(&app, &root).await["messages"], json!([]), "{text:?}");
        assert!(!findings(&app, ROOT_ID).await.is_empty(), "{text:?}");
    }
    fs::write(path.with_extension("jsonl.zst"), "not compressed").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(history(&app, &root).await["gaps"][0]["kind"], json!("unreadable"));
    refused(
        app.call("transcript/check", json!({"upstreamId": ROOT_ID})).await,
        ErrorKind::TranscriptDamaged,
    );
    fs::remove_file(path.with_extension("jsonl.zst")).unwrap();
    assert_eq!(history(&app, &root).await["gaps"][0]["kind"], json!("missing"));
    for (id, kind) in [(ROOT_ID, ErrorKind::NotFound), ("a/b", ErrorKind::NotFound)] {
        for method in ["conversation/adopt", "transcript/check"] {
            let params = json!({"upstreamId": id, "agent": "codex"});
            if method == "conversation/adopt" && id == ROOT_ID {
                continue;
            }
            refused(app.call(method, params).await, kind);
        }
    }
    // A session without any prompt cannot be continued.
    let empty: String = EARLY_FORK
        .lines()
        .take(3)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(rollout(&home, EARLY_ID), empty).unwrap();
    refused(
        app.call(
            "conversation/adopt",
            json!({"upstreamId": EARLY_ID, "cwd": home.project()}),
        )
        .await,
        ErrorKind::TranscriptDamaged,
    );
    // The session's folder does not exist on this machine.
    fs::write(rollout(&home, EARLY_ID), EARLY_FORK).unwrap();
    refused(
        app.call("conversation/adopt", json!({"upstreamId": EARLY_ID}))
            .await,
        ErrorKind::InvalidCwd,
    );
    // Without its source, the session is adopted with partial fidelity.
    adopt(&app, &home, EARLY_ID).await;
    let lineage = app.ask("conversation/lineage", EARLY_ID).await;
    assert_eq!(lineage["entries"][0]["fidelity"], json!("partial"));
    app.call("daemon/status", json!({})).await.unwrap();
}

/// Unknown records are reported or skipped. A file without any known record is reported as damaged, not read as an
/// empty conversation.
#[tokio::test]
async fn a_rollout_of_a_newer_version_is_told_as_far_as_it_is_understood() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let path = rollout(&home, ROOT_ID);
    let newer: String = ROOT
        .lines()
        .flat_map(|line| {
            let item = r#"{"type":"response_item","payload":{"type":"hologram","turn_id":{"new":1},"content":{"text":"x"}}}"#;
            let kind = r#"{"type":"brand_new","ordinal":"x","payload":[{"type":"message"}]}"#;
            [line.replacen("{\"timestamp\"", "{\"schema\":{\"v\":9},\"timestamp\"", 1), item.to_owned(), kind.to_owned()]
        })
        .map(|line| line + "\n")
        .collect();
    write(&path, &newer);
    let root = adopt(&app, &home, ROOT_ID).await;
    let told = history(&app, &root).await;
    assert_eq!(checkpoints(&app, &root).await.len(), 6);
    assert!(
        told.to_string().contains("hologram"),
        "unknown items are shown unchanged"
    );
    assert_eq!(findings(&app, ROOT_ID).await, []);

    // No record of this rollout is understood.
    let foreign: String = ROOT
        .lines()
        .map(|line| line.replace("\"payload\"", "\"body\"") + "\n")
        .collect();
    write(&rollout(&home, HEAD_FORK_ID), &foreign);
    let params = json!({"upstreamId": HEAD_FORK_ID, "cwd": home.project()});
    refused(
        app.call("conversation/adopt", params).await,
        ErrorKind::TranscriptDamaged,
    );
    let found = findings(&app, HEAD_FORK_ID).await;
    assert!(
        found.iter().any(|(_, kind)| kind == "nothingToResume"),
        "{found:?}"
    );
}

/// The tree has a folder that links to itself, a dangling link, a folder in place of a file, and a file in place of a
/// folder.
#[tokio::test]
async fn folders_that_cannot_be_walked_cost_what_is_in_them() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let sessions = home.path().join("codex/sessions");
    std::os::unix::fs::symlink(&sessions, sessions.join("2026/loop")).unwrap();
    std::os::unix::fs::symlink("/nowhere", sessions.join("2026/lost")).unwrap();
    write(&home.path().join("codex/archived_sessions"), "not a folder");
    fs::create_dir(sessions.join("rollout-2026-11-21T06-16-34-01a1fcbf-0000-7000-8000-000000000000.jsonl"))
        .unwrap();
    let page = app
        .call("transcript/list", json!({"agent": "codex"}))
        .await
        .unwrap();
    assert_eq!(page["transcripts"].as_array().unwrap().len(), 4);
    let deep = adopt(&app, &home, DEEP_ID).await;
    assert_eq!(said(&history(&app, &deep).await).len(), 6);
    assert_eq!(findings(&app, DEEP_ID).await, []);

    // The rollout of an adopted session is cut off, then deleted, then restored.
    let path = rollout(&home, DEEP_ID);
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(said(&history(&app, &deep).await).len() < 6);
    fs::remove_file(&path).unwrap();
    // The gap is `unreadable`, not `missing`: the file may be in a part of the tree that cannot be read.
    assert_eq!(history(&app, &deep).await["gaps"][0]["kind"], json!("unreadable"));
    fs::write(&path, &text).unwrap();
    assert_eq!(said(&history(&app, &deep).await).len(), 6);
}
