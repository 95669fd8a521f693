//! Data folders as earlier versions wrote them. Today's version opens a copy of each and sees everything that
//! was in it.
//!
//! `tests/fixtures/data` holds the folders and says how they were recorded. They are never rewritten:
//! `v1.sha256` has the hash of each file of `v1`.

use std::fmt::Write;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::carrying::files_below;
use crate::continuing::{continued, go_on};
use crate::daemon::set_aside::reported;
use crate::home::Home;
use crate::support::App;

/// The recorded folders.
const VERSIONS: [&str; 2] = ["v1", "v2"];

/// Where the folder of a version was when it was recorded. The journal, kept copies and moves contain absolute paths below
/// checksums, so a copy has to be at the same path.
fn recorded_at(version: &str) -> PathBuf {
    PathBuf::from(format!("/tmp/session-bridge-{version}"))
}

/// Members that may change when another version opens the folder.
const MAY_CHANGE: [&str; 3] = ["live", "revision", "updatedAt"];

/// A copy of the recorded home, at the path where it was recorded. One test at a time has it, of all users
/// and runs.
struct Recorded {
    home: Home,
    expected: Value,
    _only_one: File,
}

impl Recorded {
    /// None, with the reason printed, if an unfinished test of another user has left its copy.
    #[allow(
        clippy::print_stderr,
        reason = "the report of a test run says what was skipped"
    )]
    fn open(version: &str) -> Option<Self> {
        let recorded_at = recorded_at(version);
        // Each user can lock the folder above, and nothing of it stays.
        let only_one = File::open(recorded_at.parent().unwrap()).unwrap();
        flock(&only_one, FlockOperation::LockExclusive).unwrap();
        let left = fs::symlink_metadata(&recorded_at).ok();
        if left.is_some_and(|left| left.uid() != geteuid().as_raw()) {
            eprintln!("skipped: {} belongs to another user", recorded_at.display());
            return None;
        }
        remove(&recorded_at);
        let expected = fs::read(fixture(version, "expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let home = Home::at(&recorded_at);
        copy_folder(&fixture(version, "home"), home.path());
        for folder in expected["folders"].as_array().unwrap() {
            home.folder_named(folder.as_str().unwrap());
        }
        Some(Self {
            home,
            expected,
            _only_one: only_one,
        })
    }

    /// The id of the conversation that was recorded under this name.
    fn id(&self, name: &str) -> ConversationId {
        let id = &self.expected["conversations"][name]["conversation"]["id"];
        serde_json::from_value(id.clone()).unwrap()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            remove(self.home.path());
        }
    }
}

fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data")
}

fn fixture(version: &str, name: &str) -> PathBuf {
    recordings().join(version).join(name)
}

fn copy_folder(from: &Path, to: &Path) {
    // Whatever the umask of the test is: the daemon refuses folders that others can write to.
    DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

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

/// Every page of a list.
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

/// What the daemon of an earlier version wrote is evidence. A new format is recorded in a new folder.
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
    let Some(recorded) = Recorded::open(version) else {
        return;
    };
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
    // Every plan of moves and imports can be read, and what they began is settled.
    for folder in ["moves", "trees", "imports"] {
        let aside = reported(&app, &recorded.home.data().join(folder)).await;
        assert_eq!(aside, [] as [PathBuf; 0]);
    }
    assert!(!recorded.home.data().join("imports").exists());
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
    let Some(recorded) = Recorded::open(version) else {
        return;
    };
    let (_daemon, app) = recorded.home.opened().await;

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

    // Moves are undone although the originals are gone.
    assert!(!recorded.home.data().join("moves").exists());
    let home = recorded.home.path();
    let undo = json!({"undoId": recorded.expected["undoId"]});
    fs::rename(home.join("work/tree-new"), home.join("work/tree-old")).unwrap();
    app.call("transcript/undo", undo).await.unwrap();
    app.ask("conversation/undo", recorded.id("moved")).await;
    for (name, folder) in [("moved", "work/second"), ("tree-moved", "work/tree-old/app")] {
        let id = recorded.id(name);
        assert_eq!(Path::new(&app.get(id).await.cwd), home.join(folder));
        assert_eq!(app.remembered(id).await.len(), 3, "{name}");
    }

    let edited = recorded.id("edited");
    assert_eq!(app.remembered(edited).await[2], "Gamma, edited");
    let undo = json!({"conversationId": edited});
    app.call("conversation/undo", undo).await.unwrap();
    assert_eq!(app.remembered(edited).await[..3], ["Alpha", "Beta", "Gamma"]);
}

#[tokio::test]
async fn what_was_pending_is_taken_up_again() {
    for version in VERSIONS {
        what_was_pending_is_taken_up_again_of(version).await;
    }
}

async fn what_was_pending_is_taken_up_again_of(version: &str) {
    let Some(recorded) = Recorded::open(version) else {
        return;
    };
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
    go_on(&app, id, json!({"at": Timestamp::now()})).await;
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
    let id: ConversationId = serde_json::from_value(answer["conversation"]["id"].clone()).unwrap();
    assert_eq!(answer["conversation"]["title"], "Edited, undone, edited again");
    assert_eq!(app.chain(id).await.len(), 3);
    assert_eq!(
        app.remembered(id).await,
        ["Alpha", "Beta", "Gamma, edited", "Delta"]
    );
}
