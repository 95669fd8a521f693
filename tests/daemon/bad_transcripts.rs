//! Transcripts that another program damaged, deleted or wrote in an unexpected form: the caller gets an error or a
//! report, and the daemon continues.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{App, refused};

/// More than the longest line that the daemon reads.
const LINE_BYTES: u64 = 300 * 1024 * 1024;

fn folder(home: &Home) -> PathBuf {
    let folder = home.data().join("loopback/projects/-home-u-project");
    fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn put(home: &Home, id: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder(home).join(format!("{id}.jsonl"));
    fs::write(&path, bytes).unwrap();
    path
}

/// Returns the text of a transcript with this many turns in the home's project, each with a reply.
pub(crate) fn turns(home: &Home, id: &str, count: usize) -> String {
    let mut lines = String::new();
    let mut parent = Value::Null;
    for turn in 0..count {
        let prompt = json!({
            "type": "user", "uuid": format!("u{turn}"), "parentUuid": parent, "sessionId": id, "cwd": home.project(),
            "timestamp": "2020-11-03T12:00:00.000Z", "origin": {"kind": "human"}, "message": {"content": format!("ask {turn}")},
        });
        let reply = json!({
            "type": "assistant", "uuid": format!("a{turn}"), "parentUuid": format!("u{turn}"), "sessionId": id,
            "cwd": home.project(), "message": {"id": format!("m{turn}"), "content": [{"type": "text", "text": format!("say {turn}")}]},
        });
        parent = json!(format!("a{turn}"));
        lines += &format!("{prompt}\n{reply}\n");
    }
    lines
}

pub(crate) async fn adopt(app: &App, id: &str) -> String {
    let adopted = app
        .call("conversation/adopt", json!({"upstreamId": id}))
        .await
        .unwrap();
    adopted["conversation"]["id"].as_str().unwrap().to_owned()
}

/// Returns the line and the kind of each finding of a check.
async fn found(app: &App, id: &str) -> Vec<(u64, String)> {
    let answer = app
        .call("transcript/check", json!({"upstreamId": id}))
        .await
        .unwrap();
    let findings = answer["findings"].as_array().unwrap().iter();
    let kind = |finding: &Value| finding["kind"].as_str().unwrap().to_owned();
    findings
        .map(|finding| (finding["line"].as_u64().unwrap(), kind(finding)))
        .collect()
}

async fn listed(app: &App) -> Vec<String> {
    let page = app.call("transcript/list", json!({})).await.unwrap();
    let transcripts = page["transcripts"].as_array().unwrap().iter();
    let mut ids: Vec<String> = transcripts
        .map(|one| one["upstreamId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// Returns the texts in the history, the number of checkpoints (after reading each one by its id), and the gaps that
/// the history reports.
async fn said(app: &App, conversation: &str) -> (Vec<String>, usize, Value) {
    let history = app.ask("conversation/history", &conversation).await;
    let messages = history["messages"].as_array().unwrap();
    let parts = messages
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap());
    let texts = parts
        .filter_map(|part| part["text"].as_str())
        .map(str::to_owned)
        .collect();
    let page = app.ask("conversation/checkpoints", conversation).await;
    let checkpoints = page["checkpoints"].as_array().unwrap();
    for checkpoint in checkpoints {
        let one = app
            .call("checkpoint/get", json!({"checkpointId": checkpoint["id"]}))
            .await
            .unwrap();
        assert_eq!(one["checkpoint"]["prompt"], checkpoint["prompt"]);
    }
    (texts, checkpoints.len(), history["gaps"].clone())
}

// Against D6.
#[tokio::test]
async fn what_stands_around_the_records_changes_nothing_that_was_said() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let whole = |id: &str| turns(&home, id, 2).into_bytes();
    let newer = concat!(
        r#"{"type":"quantum-state","version":"99.0.0","uuid":"q1","parentUuid":"a1","sessionId":"newer","payload":[1,{"deep":null}]}"#,
        "\n",
        r#"{"type":"ledger","version":"99.0.0","entries":{"uuid":7}}"#,
        "\n",
    );
    put(&home, "nul", [whole("nul"), vec![0; 5000]].concat());
    put(&home, "newer", [whole("newer"), newer.into()].concat());
    let members = String::from_utf8(whole("members")).unwrap();
    let members = members.replace(
        "\"type\":\"user\"",
        "\"type\":\"user\",\"\\ud83d\":[{}],\"futureOf\":{\"uuid\":1}",
    );
    let members = members.replace("\"content\":[", "\"content\":[{\"type\":\"hologram\",\"of\":9},");
    put(&home, "members", members);
    for id in ["nul", "newer", "members"] {
        assert_eq!(found(&app, id).await, [], "{id}");
        let conversation = adopt(&app, id).await;
        let (texts, checkpoints, gaps) = said(&app, &conversation).await;
        assert_eq!(texts, ["ask 0", "say 0", "ask 1", "say 1"], "{id}");
        assert_eq!(checkpoints, 2, "{id}");
        if id == "newer" {
            let words = "1 of its records is of a kind that this version does not know";
            let gap = json!([{"upstreamId": id, "kind": "unknownRecord", "detail": words}]);
            assert_eq!(gaps, gap);
        } else {
            assert_eq!(gaps, Value::Null, "{id}");
        }
    }
    assert_eq!(listed(&app).await, ["members", "newer", "nul"]);
}

#[tokio::test]
async fn what_is_said_in_a_form_that_is_not_known_is_told_as_it_stands() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let newer = turns(&home, "newer", 2).replace("\"content\":\"ask 1\"", "\"content\":{\"text\":\"ask 1\"}");
    put(&home, "newer", newer);
    assert_eq!(found(&app, "newer").await, []);
    let conversation = adopt(&app, "newer").await;
    let history = app.ask("conversation/history", conversation).await;
    assert_eq!(
        history["messages"][2]["content"],
        json!([{"type": "", "raw": {"text": "ask 1"}}])
    );
}

// Against D6.
#[tokio::test]
async fn what_holds_nothing_is_told() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for (id, bytes) in [
        ("empty", &b""[..]),
        ("nuls", &[0; 9000]),
        ("garbage", b"\xFF\xFE\n@@\n"),
    ] {
        put(&home, id, bytes);
        let kinds = found(&app, id).await;
        assert_eq!(kinds[0], (0, "nothingToResume".to_owned()), "{id}");
        let adopted = app.call("conversation/adopt", json!({"upstreamId": id})).await;
        refused(adopted, ErrorKind::TranscriptDamaged);
    }
    assert_eq!(listed(&app).await, ["empty", "garbage", "nuls"]);
}

/// Writes the transcript of session `long`: two turns, with an oversized line between them.
fn put_long(home: &Home) -> PathBuf {
    let path = put(home, "long", turns(home, "long", 1));
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"type\":\"attachment\",\"data\":\"").unwrap();
    // A hole in the file takes no space on disk, and reads as that many zero bytes.
    let begun = file.metadata().unwrap().len();
    file.set_len(begun + LINE_BYTES).unwrap();
    let behind = turns(home, "long", 2);
    let behind: String = behind.lines().skip(2).map(|line| format!("{line}\n")).collect();
    file.write_all(format!("\"}}\n{behind}").as_bytes()).unwrap();
    path
}

/// D8: the records before and after such a line are read.
#[tokio::test]
async fn a_line_that_is_too_long_is_passed_over_and_told() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    put_long(&home);
    assert_eq!(found(&app, "long").await, [(3, "oversizedLine".to_owned())]);
    let conversation = adopt(&app, "long").await;
    let (texts, checkpoints, gaps) = said(&app, &conversation).await;
    assert_eq!(texts, ["ask 0", "say 0", "ask 1", "say 1"]);
    assert_eq!((checkpoints, &gaps[0]["kind"]), (2, &json!("broken")));
    assert_eq!(listed(&app).await, ["long"]);
    if let Some(peak) = daemon.peak_bytes() {
        assert!(peak < 150 << 20, "whole line in memory: {peak} bytes");
    }
}

/// A line that is copied, compared or backed up is held in memory only once. A line that is nested too deeply is copied
/// too.
#[tokio::test]
async fn a_move_and_a_backup_hold_one_line() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let data = "x".repeat(60 << 20);
    let long = json!({"type": "attachment", "cwd": home.project(), "data": data});
    let (deep, shallow) = ("[".repeat(10_000), "]".repeat(10_000));
    let text = turns(&home, "long", 2);
    let path = put(
        &home,
        "long",
        format!("{text}{long}\n{{\"cwd\":{deep}{shallow}}}\n"),
    );
    let conversation = adopt(&app, "long").await;
    let before = daemon.peak_bytes();
    let named = json!({"conversationId": conversation});
    app.call("transcript/keep", named.clone()).await.unwrap();
    let other = home.folder_named("other");
    let to = json!({"conversationId": conversation, "cwd": other});
    app.call("conversation/move", to).await.unwrap();
    assert!(!path.exists());
    app.call("transcript/keep", named).await.unwrap();
    if let (Some(before), Some(peak)) = (before, daemon.peak_bytes()) {
        let more = (peak - before) >> 20;
        assert!(more < 100, "second copy of the line: {more} MiB");
    }
}

/// An id that begins with a dash works like any other, also as a file name and in a request to the agent.
#[tokio::test]
async fn an_id_may_begin_with_a_dash() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let path = put(&home, "-x", turns(&home, "-x", 2));
    assert_eq!(found(&app, "-x").await, []);
    let conversation = adopt(&app, "-x").await;
    let named = json!({"conversationId": conversation});
    app.call("transcript/keep", named.clone()).await.unwrap();
    fs::remove_file(&path).unwrap();
    app.call("transcript/restore", named).await.unwrap();
    let turn = app.send(conversation.parse().unwrap(), "ask 2").await;
    assert_eq!(turn.upstream_id.as_str(), "-x");
    let (texts, ..) = said(&app, &conversation).await;
    assert_eq!(texts[..4], ["ask 0", "say 0", "ask 1", "say 1"]);
    assert_eq!(listed(&app).await, ["-x"]);
}

#[tokio::test]
async fn a_file_that_is_no_longer_what_it_was_ends_the_pages() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let path = put(&home, "s1", turns(&home, "s1", 20));
    let conversation = adopt(&app, "s1").await;
    let changes: [(&str, &dyn Fn()); 3] = [
        ("shrinks", &|| fs::write(&path, turns(&home, "s1", 1)).unwrap()),
        ("is emptied", &|| fs::write(&path, "").unwrap()),
        ("vanishes", &|| fs::remove_file(&path).unwrap()),
    ];
    for (name, change) in changes {
        fs::write(&path, turns(&home, "s1", 20)).unwrap();
        let page = json!({"conversationId": conversation, "limit": 4});
        let page = app.call("conversation/history", page).await.unwrap();
        assert_eq!(page["messages"].as_array().unwrap().len(), 4);
        let old = app.ask("conversation/checkpoints", &conversation).await;
        let old = old["checkpoints"].as_array().unwrap();
        assert_eq!(old.len(), 20);
        change();
        let next = json!({"conversationId": conversation, "limit": 4, "cursor": page["nextCursor"]});
        let next = app.call("conversation/history", next).await;
        refused(next, ErrorKind::InvalidParams);
        let gone = app
            .call("checkpoint/get", json!({"checkpointId": old[0]["id"]}))
            .await;
        refused(gone, ErrorKind::CheckpointNotFound);
        let first = app.ask("conversation/history", &conversation).await;
        let told = match name {
            "shrinks" => (2, json!("behind")),
            "is emptied" => (0, json!("behind")),
            _ => (0, json!("missing")),
        };
        let messages = first["messages"].as_array().unwrap().len();
        assert_eq!(
            (messages, first["gaps"][0]["kind"].clone()),
            told,
            "{name}: {first}"
        );
    }
}

#[tokio::test]
async fn links_that_go_in_circles_and_files_in_place_of_folders() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    put(&home, "whole", turns(&home, "whole", 1));
    let projects = home.data().join("loopback/projects");
    symlink(&projects, projects.join("-circle")).unwrap();
    symlink("-itself", projects.join("-itself")).unwrap();
    symlink("ring.jsonl", folder(&home).join("ring.jsonl")).unwrap();
    fs::write(projects.join("-a-file"), "x").unwrap();
    fs::create_dir(folder(&home).join("inside.jsonl")).unwrap();
    assert_eq!(listed(&app).await, ["whole"]);
    assert_eq!(found(&app, "whole").await, []);
    for id in ["ring", "inside"] {
        for method in ["transcript/check", "conversation/adopt"] {
            let answer = app.call(method, json!({"upstreamId": id})).await;
            refused(answer, ErrorKind::NotFound);
        }
    }
    let conversation = adopt(&app, "whole").await;
    assert_eq!(said(&app, &conversation).await.0, ["ask 0", "say 0"]);
    fs::remove_dir_all(&projects).unwrap();
    fs::write(&projects, "x").unwrap();
    for method in ["transcript/check", "conversation/adopt"] {
        let answer = app.call(method, json!({"upstreamId": "other"})).await;
        refused(answer, ErrorKind::NotFound);
    }
    let history = app.ask("conversation/history", &conversation).await;
    assert_eq!(history["gaps"][0]["kind"], "unreadable", "{history}");
    let page = app.call("transcript/list", json!({})).await.unwrap();
    assert_eq!(page["transcripts"], json!([]));
    assert!(
        page["unreadable"][0]
            .as_str()
            .unwrap()
            .ends_with("loopback/projects"),
        "{page}"
    );
}

/// The page still begins where the caller asked.
#[tokio::test]
async fn a_result_whose_call_is_missing_makes_no_page_longer() {
    let home = Home::new();
    let result = json!({
        "type": "user", "uuid": "r", "parentUuid": "a39", "sessionId": "result", "cwd": home.project(),
        "message": {"content": [{"type": "tool_result", "tool_use_id": "gone", "content": "found"}]},
    });
    put(
        &home,
        "result",
        format!("{}{result}\n", turns(&home, "result", 40)),
    );
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, "result").await;
    let params = json!({"conversationId": id, "last": 1, "as": "updates"});
    let page = app.call("conversation/history", params).await.unwrap();
    assert_eq!(page["updates"], json!([]));
    let before =
        json!({"conversationId": id, "cursor": page["previousCursor"], "as": "updates", "limit": 100});
    let before = app.call("conversation/history", before).await.unwrap();
    assert_eq!(before["updates"].as_array().unwrap().len(), 80);
}

/// The index shows that the position is unknown, so no message is read.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_unknown_cursor_is_refused_without_reading_the_history() {
    let home = Home::new();
    let text = turns(&home, "long", 200).replace("say ", &"long ".repeat(4_000));
    let bytes = text.len() as u64;
    put(&home, "long", text);
    let (daemon, app) = home.opened().await;
    let id = adopt(&app, "long").await;
    let last = json!({"conversationId": id, "last": 1});
    app.call("conversation/history", last).await.unwrap();
    let read = || {
        let told = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap();
        let line = told.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = read();
    let unknown = json!({"conversationId": id, "cursor": "b.msg.another.record"});
    refused(
        app.call("conversation/history", unknown).await,
        ErrorKind::InvalidParams,
    );
    let read = read() - before;
    assert!(read < bytes / 4, "{read} of {bytes} bytes were read");
}

/// The agent's own last record follows the last reply, and the agent noted it as the end. The next prompt follows it too: if it
/// followed the reply, each later resume would go back to the end that was noted.
#[tokio::test]
async fn prompts_after_a_noted_end_that_is_no_message_stay_in_the_history() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let note = json!({
        "type": "system", "subtype": "turn_duration", "durationMs": 5, "uuid": "note", "parentUuid": "a1", "sessionId": "noted",
        "cwd": home.project(),
    });
    let end = json!({"type": "last-prompt", "lastPrompt": "ask 1", "leafUuid": "note", "sessionId": "noted"});
    put(
        &home,
        "noted",
        format!("{}{note}\n{end}\n", turns(&home, "noted", 2)),
    );
    let id: ConversationId = adopt(&app, "noted").await.parse().unwrap();
    for text in ["three", "four"] {
        app.send(id, text).await;
    }
    app.close(id).await;
    assert_eq!(app.remembered(id).await, ["ask 0", "ask 1", "three", "four"]);
}
