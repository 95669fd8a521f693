//! Data folders that earlier versions wrote. The current version opens a copy of each one and finds all of its data.
//!
//! `tests/fixtures/data` holds the folders and describes how they were recorded. They are never rewritten: `v1.sha256`
//! has the hash of each file of `v1`.

mod backups;
mod half_done;
mod recorded;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::carrying::files_below;
use crate::continuing::{AT_ONCE, continued, go_on, prompts};
use crate::home::Home;
use crate::support::{App, id_in};

use recorded::{Recorded, VERSIONS, fixture, recordings};

/// Members that may change when another version opens the folder.
const MAY_CHANGE: [&str; 3] = ["live", "revision", "updatedAt"];

/// Asserts that everything recorded is still there. Later versions may add members.
fn assert_has(now: &Value, recorded: &Value, at: &str) {
    match (now, recorded) {
        (Value::Object(now), Value::Object(recorded)) => {
            for (name, value) in recorded
                .iter()
                .filter(|(name, _)| !MAY_CHANGE.contains(&name.as_str()))
            {
                assert_has(
                    now.get(name).unwrap_or(&Value::Null),
                    value,
                    &format!("{at}.{name}"),
                );
            }
        }
        (Value::Array(now), Value::Array(recorded)) => {
            assert_eq!(now.len(), recorded.len(), "{at}: {now:#?}");
            for (index, (now, recorded)) in now.iter().zip(recorded).enumerate() {
                assert_has(now, recorded, &format!("{at}[{index}]"));
            }
        }
        (Value::String(now), Value::String(recorded)) if now != recorded => {
            let millisecond = |text: &str| text.parse::<Timestamp>().map(Timestamp::as_millisecond).ok();
            assert!(millisecond(now).is_some(), "{at}: {now} is not {recorded}");
            assert_eq!(millisecond(now), millisecond(recorded), "{at}");
        }
        _ => assert_eq!(now, recorded, "{at}"),
    }
}

/// Returns the items of all pages of a list.
async fn all_pages(app: &App, method: &str, id: &Value, list: &str) -> Value {
    let (mut all, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut params = json!({"conversationId": id});
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let mut page = app.call(method, params).await.unwrap();
        all.append(page[list].as_array_mut().unwrap());
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            return Value::Array(all);
        }
    }
}

/// Returns each warning or error: its kind, and the path in the home that it is about. Diagnostics of disk space and
/// installed agents depend on the machine and are left out.
fn bad_of(home: &Home, found: &Value) -> Vec<(String, String)> {
    let found = found["diagnostics"].as_array().unwrap().iter();
    let is_bad = |one: &&Value| one["severity"] == "warning" || one["severity"] == "error";
    let is_machine = |one: &Value| one["kind"] == "room" || one["kind"] == "agent";
    found
        .filter(|one| is_bad(one) && !is_machine(one))
        .map(|one| {
            let subject = Path::new(one["subject"].as_str().unwrap_or_default());
            let below = subject.strip_prefix(home.path()).unwrap_or(subject);
            let kind = one["kind"].as_str().unwrap();
            (kind.to_owned(), below.to_str().unwrap().to_owned())
        })
        .collect()
}

/// Returns the warnings and errors of `daemon/diagnose`.
async fn bad(home: &Home, app: &App) -> Vec<(String, String)> {
    let found = app.call("daemon/diagnose", json!({"agents": false})).await;
    bad_of(home, &found.unwrap())
}

/// Returns the warnings and errors of `sessionctl doctor`, and asserts that it succeeds.
fn doctor(home: &Home) -> Vec<(String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    command.env_clear().env("SESSIOND_HOME", home.path());
    let output = command
        .args(["--json", "doctor", "--no-agents", "--no-start"])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    bad_of(home, &serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the warnings that are expected in a recorded folder. The database of the first version was written before a
/// restart of the machine, so it is set aside.
fn known_to_be_bad(version: &str) -> Vec<(String, String)> {
    let aside = || ("setAside".to_owned(), "data/store.broken-1".to_owned());
    (version == "v1").then(aside).into_iter().collect()
}

/// Recordings of earlier versions are never edited. A new format is recorded in a new folder.
#[test]
fn recorded_data_folders_are_unchanged() {
    let folders = fs::read_dir(recordings())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.is_dir()) {
        let mut digests = String::new();
        // Sorted by path, as `sha256sum` reads and prints them.
        for file in files_below(&folder) {
            let hash = Sha256::digest(fs::read(&file).unwrap());
            let name = file.strip_prefix(recordings()).unwrap();
            writeln!(digests, "{hash:x}  {}", name.display()).unwrap();
        }
        let expected = fs::read_to_string(folder.with_extension("sha256")).unwrap();
        for (now, recorded) in digests.lines().zip(expected.lines()) {
            assert_eq!(now, recorded, "a recorded file was changed, added or removed");
        }
        assert_eq!(
            digests.lines().count(),
            expected.lines().count(),
            "{}",
            folder.display()
        );
    }
}

#[tokio::test]
async fn everything_in_a_data_folder_is_still_there() {
    for version in VERSIONS {
        everything_in_a_data_folder_is_still_there_of(version).await;
    }
}

async fn everything_in_a_data_folder_is_still_there_of(version: &str) {
    let recorded = Recorded::open(version);
    let (_daemon, app) = recorded.home.opened().await;
    for (name, expected) in recorded.expected["conversations"].as_object().unwrap() {
        let id = &expected["conversation"]["id"];
        let of_id = json!({"conversationId": id});
        let got = app.call("conversation/get", of_id.clone()).await.unwrap();
        assert_has(&got["conversation"], &expected["conversation"], name);
        let chain = app.call("conversation/chain", of_id).await.unwrap();
        assert_has(&chain["links"], &expected["links"], &format!("{name}: links"));
        let entries = all_pages(&app, "conversation/lineage", id, "entries").await;
        assert_has(&entries, &expected["entries"], &format!("{name}: lineage"));
        let of_id = json!({"conversationId": id, "limit": 100});
        let checkpoints = app.call("conversation/checkpoints", of_id).await.unwrap();
        assert_has(
            &checkpoints["checkpoints"],
            &expected["checkpoints"],
            &format!("{name}: checkpoints"),
        );
        let messages = all_pages(&app, "conversation/history", id, "messages").await;
        assert_has(&messages, &expected["messages"], &format!("{name}: history"));
        for entry in expected["entries"].as_array().unwrap() {
            let upstream = json!({"conversationId": entry["upstreamId"]});
            let found = app.call("conversation/get", upstream).await.unwrap();
            assert_eq!(found["conversation"]["id"], *id, "{name}: {entry}");
        }
    }
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(
        listed["conversations"].as_array().unwrap().len(),
        recorded.expected["conversations"].as_object().unwrap().len()
    );
    assert_eq!(listed["nextCursor"], Value::Null);
    assert_eq!(bad(&recorded.home, &app).await, known_to_be_bad(version));
    assert_eq!(doctor(&recorded.home), known_to_be_bad(version));
    let deleted = json!({"conversationId": recorded.expected["deleted"]});
    let refusal = app.call("conversation/get", deleted).await.unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::NotFound);
    assert!(refusal.detail("deletedAt").is_string(), "{refusal:?}");
}

#[tokio::test]
async fn recorded_conversations_continue() {
    for version in VERSIONS {
        recorded_conversations_continue_of(version).await;
    }
}

async fn recorded_conversations_continue_of(version: &str) {
    let recorded = Recorded::open(version);
    let (daemon, app) = recorded.home.opened().await;

    let remembered = app.remembered(recorded.id("many-links")).await;
    assert_eq!(remembered.len(), 18);
    assert_eq!(remembered[0], "The first prompt of many");

    let turn = app.send(recorded.id("kept"), "Are you still there?").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Archive, Fidelity::Full));
    assert_eq!(
        app.remembered(recorded.id("kept")).await,
        ["Keep this", "And this", "Are you still there?"]
    );

    for (name, prompts) in [
        ("moved", ["Before the move", "After the move"]),
        ("tree-moved", ["In the old folder", "In the new folder"]),
        ("half-moved", ["In the folder before", "And a second turn"]),
        ("forked", ["Alpha", "On the branch"]),
    ] {
        assert_eq!(app.remembered(recorded.id(name)).await, prompts, "{name}");
    }

    let moves = app.call("transcript/moves", json!({})).await.unwrap();
    let [tree] = &moves["moves"].as_array().unwrap()[..] else {
        panic!("not exactly one move: {moves}")
    };
    let work = recorded.home.path().join("work");
    assert_eq!(tree["undoId"], recorded.expected["undoId"]);
    assert_eq!(
        (&tree["from"], &tree["to"]),
        (&json!(work.join("tree-old")), &json!(work.join("tree-new")))
    );
    assert_eq!((&tree["moved"], &tree["conversations"]), (&json!(1), &json!(1)));
    // Moves can be undone even if the original files were deleted.
    assert!(!recorded.home.data().join("moves").exists());
    let home = recorded.home.path();
    let undo = json!({"undoId": recorded.expected["undoId"]});
    fs::rename(home.join("work/tree-new"), home.join("work/tree-old")).unwrap();
    let undone = app.call("transcript/undo", undo).await.unwrap();
    assert_eq!(undone["moved"], 1);
    let moves = app.call("transcript/moves", json!({})).await.unwrap();
    assert_eq!(moves["moves"], json!([]));
    app.ask("conversation/undo", recorded.id("moved")).await;
    for (name, folder) in [("moved", "work/second"), ("tree-moved", "work/tree-old/app")] {
        let id = recorded.id(name);
        assert_eq!(Path::new(&app.get(id).await.cwd), home.join(folder));
        assert_eq!(app.remembered(id).await.len(), 3, "{name}");
    }

    let edited = recorded.id("edited");
    assert_eq!(app.remembered(edited).await[2], "Gamma, edited");
    app.ask("conversation/undo", edited).await;
    assert_eq!(app.remembered(edited).await[..3], ["Alpha", "Beta", "Gamma"]);

    // Records of the earlier version can be read after this version added to them.
    drop(app);
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().await.success());
    let (_daemon, app) = recorded.home.opened().await;
    assert_eq!(bad(&recorded.home, &app).await, known_to_be_bad(version));
}

#[tokio::test]
async fn what_was_pending_is_taken_up_again() {
    for version in VERSIONS {
        what_was_pending_is_taken_up_again_of(version).await;
    }
}

async fn what_was_pending_is_taken_up_again_of(version: &str) {
    let recorded = Recorded::open(version);
    let (_daemon, app) = recorded.home.opened().await;

    let id = recorded.id("question");
    let question = &app.get(id).await.interrupts[0];
    assert!(question.orphaned);
    let mut events = app.events(id).await;
    let allow = json!({
        "conversationId": id,
        "interruptId": question.id,
        "outcome": {"outcome": "selected", "optionId": "allow_once"},
    });
    let answer = app.call("conversation/respond", allow).await.unwrap();
    assert!(answer["turnId"].is_string(), "{answer}");
    events.until("turnEnded").await;
    assert_eq!(app.get(id).await.interrupts, []);

    let id = recorded.id("queued");
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    for _ in 0..3 {
        continued(&mut events).await;
    }
    let remembered = app.remembered(id).await;
    let [.., first, second] = &remembered[..] else {
        panic!("{remembered:?}")
    };
    assert_eq!(first, "The first that waits");
    assert!(second.starts_with("The second that waits") && second.len() > 16_000);

    for name in ["limited", "scheduled"] {
        let id = recorded.id(name);
        go_on(&app, id, json!({"at": "reset", "cancel": true})).await;
        assert_eq!(app.get(id).await.continuation, None, "{name}");
    }
    let id = recorded.id("limited");
    assert_eq!(app.get(id).await.state, ConversationState::Limited);
    assert_eq!(app.remembered(id).await[0], "Before the limit");
}

/// The test replaces the recorded time, which is far in the future, with one in the past.
#[tokio::test]
async fn a_recorded_continuation_runs_at_its_time() {
    for version in VERSIONS {
        let text = "Now the second half";
        let recorded = Recorded::open(version);
        let id = recorded.id("scheduled");
        {
            let (_daemon, app) = recorded.home.opened().await;
            let due = app.get(id).await.continuation.unwrap();
            assert_eq!(due.at, "2096-02-29T12:00:00Z".parse().unwrap());
            assert_eq!(prompts(&app, &recorded.home, id).await, ["Do the first half"]);
        }

        let passed = ("2096-02-29T12:00:00Z", "2020-02-29T12:00:00Z");
        let recorded = Recorded::with(version, &[passed]);
        let (daemon, app) = recorded.home.opened().await;
        let is_over = |conversation: &Conversation| {
            conversation.continuation.is_none() && conversation.state == ConversationState::Idle
        };
        app.once(id, is_over).await;
        let both = ["Do the first half", text];
        assert_eq!(prompts(&app, &recorded.home, id).await, both);
        // The continuation runs only once.
        drop((app, daemon));
        let (_daemon, app) = recorded.home.opened().await;
        assert!(is_over(&app.get(id).await));
        assert_eq!(app.remembered(id).await, both);
    }
}

/// A daemon that was stopped, not killed, left nothing unfinished.
#[tokio::test]
async fn a_folder_whose_daemon_stopped_is_whole() {
    let recorded = Recorded::closed("v2");
    recorded.home.folder_named("work/project");
    let (_daemon, app) = recorded.home.opened().await;
    assert_eq!(bad(&recorded.home, &app).await, []);
    assert_eq!(doctor(&recorded.home), []);
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    let listed = listed["conversations"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    let kept = app.call("transcript/keep", json!({})).await.unwrap();
    assert_eq!(kept["total"]["unclaimed"], Value::Null);
    let mut parent = None;
    for (number, title) in ["The first of three", "Number 2 of three", "Number 3 of three"]
        .iter()
        .enumerate()
    {
        let id = &recorded.expected[format!("number-{}", number + 1)];
        let id: ConversationId = serde_json::from_value(id.clone()).unwrap();
        let conversation = app.get(id).await;
        assert_eq!(conversation.title, *title);
        assert_eq!(
            Path::new(&conversation.cwd),
            recorded.home.path().join("work/project")
        );
        assert_eq!(conversation.parent.map(|parent| parent.conversation_id), parent);
        parent = Some(id);
        let chain = app.chain(id).await;
        assert_eq!((chain.len(), chain[0].turns), (1, 1));
        assert_eq!(app.checkpoints(id).await.len(), number + 1);
        assert_eq!(app.messages(id).await.len(), 2 * (number + 1));
        let turn = app.send(id, "And more").await;
        assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Full);
        let mut prompts = ["one", "two", "three"][..=number].to_vec();
        prompts.push("And more");
        assert_eq!(app.remembered(id).await, prompts);
    }
}

#[tokio::test]
async fn a_recorded_bundle_is_imported() {
    for version in VERSIONS {
        a_recorded_bundle_is_imported_of(version).await;
    }
}

async fn a_recorded_bundle_is_imported_of(version: &str) {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let bundle = home.path().join("edited.bundle");
    fs::copy(fixture(version, "edited.bundle"), &bundle).unwrap();
    let params = json!({"path": bundle, "cwd": home.project()});
    let answer = app.call("conversation/import", params).await.unwrap();
    let id = id_in(&answer);
    assert_eq!(answer["conversation"]["title"], "Edited, undone, edited again");
    assert_eq!(app.chain(id).await.len(), 3);
    assert_eq!(
        app.remembered(id).await,
        ["Alpha", "Beta", "Gamma, edited", "Delta"]
    );
}
