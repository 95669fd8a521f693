//! A failing disk: if a file cannot be read or synced, the call is refused with the path and can be retried. No
//! acknowledged change is lost, no refused change comes back, and no transcript counts as damaged.

use std::path::{Path, PathBuf};
use std::process::Command;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;
use bridge_protocol::{CheckpointId, ConversationId};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::edits::places;
use super::keeping::once_kept;
use super::set_aside::reported;
use super::{codex_ladder, error_words};
use crate::carrying::files_below;
use crate::codex::{ROOT_ID, rollout};
use crate::codex_watching;
use crate::failing_calls::{Call, Calls};
use crate::home::Home;
use crate::support::{App, tried};
use crate::watching::saved;

/// The call fails each time it is tried.
pub(super) const ALWAYS: usize = usize::MAX;

/// Asserts that the call failed with a retryable error that names the path.
#[track_caller]
pub(super) fn passing(what: &str, told: Result<Value, BridgeError>, path: &Path) {
    let error = told.expect_err(what);
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{what}: {error:?}"
    );
    assert!(
        error.message.contains(path.to_str().unwrap()),
        "{what}: {error:?}"
    );
}

/// After a failed sync, the system may report success for the next one although nothing was written. A refused change
/// must not be stored or count as saved, and each acknowledged change must survive a kill.
#[tokio::test]
async fn a_change_that_could_not_be_synced_is_refused_and_does_not_come_back() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Sync]);
    let (daemon, app) = calls.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let (journal, bodies) = (home.data().join("journal.jsonl"), home.data().join("bodies"));
    let title = |title: String| json!({"conversationId": id, "title": title});
    let mut acknowledged = "one".to_owned();
    // Up to three syncs fail: the one of the line, the one after the line was cut off again, and the one that precedes
    // the next change.
    for times in [1, 2, 3] {
        for round in 0..times {
            calls.fail(Call::Sync, &journal, Errno::IO, times);
            let told = app
                .call("conversation/update", title(format!("refused {times} {round}")))
                .await;
            passing("update", told, &journal);
            assert_eq!(app.get(id).await.title, acknowledged);
            assert!(calls.succeed() > 0);
        }
        acknowledged = format!("acknowledged {times}");
        app.call("conversation/update", title(acknowledged.clone()))
            .await
            .unwrap();
    }
    // A long prompt is stored in its own file, which the journal line names.
    calls.fail(Call::Sync, &bodies, Errno::IO, 1);
    let long = json!({"conversationId": id, "prompt": "word ".repeat(2_000)});
    passing("prompt", app.call("conversation/prompt", long).await, &bodies);
    assert_eq!(calls.succeed(), 1);
    assert_eq!(app.send(id, "two").await.stop_reason, StopReason::EndTurn);

    calls.fail(Call::Sync, &journal, Errno::IO, ALWAYS);
    passing(
        "update",
        app.call("conversation/update", title("refused at the end".to_owned()))
            .await,
        &journal,
    );
    let made = app.call("conversation/new", json!({"cwd": home.project()})).await;
    passing("new", made, &journal);
    daemon.kill();
    calls.succeed();
    let (daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.title, acknowledged);
    assert_eq!(app.remembered(id).await, ["one", "two"]);
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1, "{listed}");
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert!(status["store"]["failure"].is_null(), "{status}");
    drop((app, daemon));
}

/// A journal or database that cannot be read at the moment is not damaged: the start fails with an error and changes
/// nothing.
#[tokio::test]
async fn a_start_that_cannot_read_its_files_says_so_and_changes_nothing() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&["one"]).await;
    daemon.kill();
    let journal = home.data().join("journal.jsonl");
    let before = (std::fs::read(&journal).unwrap(), names(&home.data()));
    let calls = Calls::of(&home, &[Call::Read, Call::Open]);
    for path in [
        journal.clone(),
        home.data().join("store/db"),
        home.data().join("store/conf"),
    ] {
        for (call, errno) in [
            (Call::Read, Errno::IO),
            (Call::Open, Errno::IO),
            (Call::Open, Errno::MFILE),
        ] {
            calls.fail(call, &path, errno, ALWAYS);
            let (status, words) = Home::run_command(calls.command());
            assert!(calls.succeed() > 0);
            let error = error_words::check_start("on a disk that fails", status.code(), &words);
            assert!(error.contains(path.to_str().unwrap()), "{words}");
            assert_eq!(
                (std::fs::read(&journal).unwrap(), names(&home.data())),
                before,
                "{call:?}"
            );
        }
    }
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["one"]);
}

/// The database is rebuilt from the journal, or it has what the journal lost. sled takes a file that it cannot read for
/// an empty one, so a failed read must end the start before sled opens the database.
#[tokio::test]
async fn a_start_whose_database_cannot_be_read_loses_no_conversation() {
    for (is_missing, passed) in [(false, 0), (true, 0), (true, 1), (true, 2)] {
        let home = Home::new();
        let (daemon, app) = home.opened().await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(app.begun(&home.project(), &["one"]).await);
        }
        drop((app, daemon));
        match is_missing {
            true => std::fs::remove_dir_all(home.data().join("store")).unwrap(),
            false => damage_lines_of(&home, ids[1]),
        }
        let database = home.data().join("store");
        let calls = Calls::of(&home, &[Call::Read]);
        calls.pass(Call::Read, &database, passed);
        calls.fail(Call::Read, &database, Errno::IO, 1);
        let (status, words) = Home::run_command(calls.command());
        assert!(calls.succeed() > 0, "{words}");
        let error = error_words::check_start("on a disk that fails", status.code(), &words);
        assert!(error.contains(database.to_str().unwrap()), "{words}");
        let (_daemon, app) = home.opened().await;
        for id in ids {
            assert_eq!(app.remembered(id).await, ["one"], "{is_missing} {passed}");
        }
    }
}

fn damage_lines_of(home: &Home, id: ConversationId) {
    let journal = home.data().join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let id = id.to_string();
    let lines = text.lines().map(|line| match line.contains(&id) {
        true => "damaged\n".to_owned(),
        false => format!("{line}\n"),
    });
    std::fs::write(&journal, lines.collect::<String>()).unwrap();
}

/// If the process has no free descriptor, the change is refused, and the next one is accepted.
#[tokio::test]
async fn a_change_for_which_no_file_can_be_opened_is_refused_and_can_be_tried_again() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Open]);
    let (daemon, app) = calls.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let bodies = home.data().join("bodies");
    // A long prompt is stored in its own file, which a journal line names.
    let long = json!({"conversationId": id, "prompt": "word ".repeat(2_000)});
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOSPC] {
        calls.fail(Call::Open, &bodies, errno, ALWAYS);
        let told = app.call("conversation/prompt", long.clone()).await;
        passing("prompt", told, &bodies);
        assert!(calls.succeed() > 0);
    }
    calls.fail(
        Call::Open,
        &home.data().join("journal.jsonl"),
        Errno::MFILE,
        ALWAYS,
    );
    let title = json!({"conversationId": id, "title": "no file is opened for it"});
    app.call("conversation/update", title).await.unwrap();
    calls.succeed();
    app.call("conversation/prompt", long).await.unwrap();
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.title, "no file is opened for it");
    assert_eq!(app.remembered(id).await.len(), 2);
}

/// Returns the sorted paths in the data folder.
fn names(data: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// A closed conversation with two turns, of which the daemon has read nothing yet.
struct Scene<'a> {
    home: &'a Home,
    calls: &'a Calls<'a>,
    id: ConversationId,
    transcript: PathBuf,
    /// The checkpoint of the first turn.
    first: CheckpointId,
    /// The message id of the second turn's prompt.
    second: String,
}

impl<'a> Scene<'a> {
    async fn new(home: &'a Home, calls: &'a Calls<'a>) -> Self {
        let (_daemon, app) = calls.opened().await;
        let id = app.begun(&home.project(), &["one", "two"]).await;
        let transcript = home.transcript_of(&app, id).await;
        let first = app.checkpoints(id).await.pop().unwrap().id;
        let second = places(&app, id).await[1][0].clone();
        app.close(id).await;
        Self {
            home,
            calls,
            id,
            transcript,
            first,
            second,
        }
    }

    /// Returns calls that read the transcript. Each has the member of its answer that reports what is missing, or none
    /// if the call is refused.
    fn reading(&self) -> Vec<(&'static str, Value, Option<&'static str>)> {
        let id = self.id;
        vec![
            (
                "conversation/history",
                json!({"conversationId": id}),
                Some("gaps"),
            ),
            (
                "conversation/checkpoints",
                json!({"conversationId": id}),
                Some("gaps"),
            ),
            ("conversation/export", json!({"conversationId": id}), Some("gaps")),
            (
                "conversation/export",
                json!({"conversationId": id, "format": "bundle", "path": self.bundle()}),
                None,
            ),
            ("transcript/list", json!({}), Some("unreadable")),
            ("transcript/check", json!({"conversationId": id}), None),
            (
                "transcript/check",
                json!({"conversationId": id, "repair": true}),
                None,
            ),
            ("transcript/keep", json!({"conversationId": id}), None),
            ("conversation/fork", json!({"conversationId": id}), None),
            (
                "conversation/fork",
                json!({"conversationId": id, "inPlace": true}),
                None,
            ),
        ]
    }

    fn bundle(&self) -> PathBuf {
        self.home.path().join("unread.bundle")
    }

    /// Returns calls that continue the conversation or change its history.
    fn continuing(&self) -> Vec<(&'static str, Value, Option<&'static str>)> {
        let id = self.id;
        vec![
            ("conversation/resume", json!({"conversationId": id}), None),
            (
                "conversation/resume",
                json!({"conversationId": id, "minFidelity": "full"}),
                None,
            ),
            (
                "conversation/prompt",
                json!({"conversationId": id, "prompt": "three"}),
                None,
            ),
            (
                "conversation/fork",
                json!({"conversationId": id, "minFidelity": "full"}),
                None,
            ),
            (
                "conversation/fork",
                json!({"conversationId": id, "at": self.first}),
                None,
            ),
            (
                "conversation/edit",
                json!({"conversationId": id, "at": self.second, "prompt": "2"}),
                None,
            ),
            (
                "conversation/move",
                json!({"conversationId": id, "cwd": self.home.folder_named("moved")}),
                None,
            ),
        ]
    }

    /// Asserts that each of these calls reports that the files below this path cannot be read now.
    async fn check(&self, app: &App, all: Vec<(&str, Value, Option<&str>)>, path: &Path) {
        for (method, params, missing) in all {
            let what = format!("{method} {params}");
            let told = app.call(method, params).await;
            let Some(missing) = missing else {
                passing(&what, told, path);
                continue;
            };
            let told = told.expect(&what);
            let (missing, what) = (told[missing].to_string(), format!("{what}: {told}"));
            assert!(missing.contains(path.to_str().unwrap()), "{what}");
        }
    }

    /// Asserts that the conversation is unchanged after the disk works again.
    async fn check_afterwards(&self, app: &App) {
        assert!(self.calls.succeed() > 0);
        assert!(!self.bundle().exists());
        let now = app.get(self.id).await;
        assert_eq!((now.state, now.failure), (ConversationState::Idle, None));
        assert_eq!(app.chain(self.id).await.len(), 1);
        let resumed = app.resumed(self.id).await;
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
        assert_eq!(app.remembered(self.id).await, ["one", "two"]);
        assert_eq!(files_below(&self.home.data().join("loopback/projects")).len(), 1);
    }
}

/// Neither the daemon nor the agent can read the transcript. A new session would lose the whole history.
#[tokio::test]
async fn a_transcript_that_cannot_be_read_now_is_neither_damaged_nor_replaced() {
    let faults = [
        (Call::Read, Errno::IO),
        (Call::Open, Errno::IO),
        (Call::Open, Errno::MFILE),
    ];
    for (call, errno) in faults {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let scene = Scene::new(&home, &calls).await;
        let (_daemon, app) = calls.opened().await;
        calls.fail(call, &scene.transcript, errno, ALWAYS);
        scene.check(&app, scene.reading(), &scene.transcript).await;
        scene.check(&app, scene.continuing(), &scene.transcript).await;
        scene.check_afterwards(&app).await;
    }
}

/// The agent could open the session, but the daemon cannot check whether all turns are in it.
#[tokio::test]
async fn a_session_is_not_continued_while_its_transcript_cannot_be_read_here() {
    let home = Home::keeping_nothing();
    let calls = Calls::of(&home, &[Call::Read]);
    let scene = Scene::new(&home, &calls).await;
    let (daemon, app) = calls.opened().await;
    calls.fail_in(
        Some(daemon.pid()),
        Call::Read,
        &scene.transcript,
        Errno::IO,
        ALWAYS,
    );
    scene.check(&app, scene.continuing(), &scene.transcript).await;
    scene.check_afterwards(&app).await;
}

/// A bad sector is permanent. The error says how to continue from the backup, and following it works.
#[tokio::test]
async fn a_transcript_on_a_bad_sector_is_replaced_by_its_backup_as_the_error_says() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Read, Call::Open]);
    let scene = Scene::new(&home, &calls).await;
    let (id, path) = (scene.id, &scene.transcript);
    let (_daemon, app) = calls.opened().await;
    app.ask("transcript/keep", id).await;
    let aside = path.with_file_name(format!(
        "{}.set-aside-2",
        path.file_name().unwrap().to_str().unwrap()
    ));
    std::fs::write(aside.with_extension("set-aside-1"), "").unwrap();
    let advice = format!(
        "if the file stays unreadable, continue from its backup: sessionctl close {id} && mv {} {}",
        path.display(),
        aside.display()
    );

    calls.fail(Call::Open, path, Errno::MFILE, ALWAYS);
    let exhausted = app.try_send(id, "three").await.unwrap_err();
    assert!(
        calls.succeed() > 0 && !exhausted.message.contains("backup"),
        "{exhausted:?}"
    );
    calls.fail(Call::Read, path, Errno::IO, ALWAYS);
    for (method, params) in [
        (
            "conversation/prompt",
            json!({"conversationId": id, "prompt": "three"}),
        ),
        ("conversation/resume", json!({"conversationId": id})),
        ("transcript/check", json!({"conversationId": id})),
    ] {
        let error = app.call(method, params).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (ErrorKind::StoreFailed, true));
        assert!(error.message.ends_with(&advice), "{method}: {error:?}");
        error_words::check("a transcript on a bad sector", "storeFailed", &error.message);
    }

    app.close(id).await;
    assert!(calls.succeed() > 0);
    let (_, command) = advice.split_once(" && ").unwrap();
    assert!(
        Command::new("sh")
            .args(["-c", command])
            .status()
            .unwrap()
            .success()
    );
    calls.fail(Call::Read, &aside, Errno::IO, ALWAYS);
    let resumed = app.send(id, "three").await.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::Archive, true)]);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(app.remembered(id).await, ["one", "two", "three"]);
    assert!(aside.exists());
}

/// The backup is a hard link to the transcript, so it has the same bad sector.
#[tokio::test]
async fn a_backup_that_shares_the_bad_sector_is_no_way_out() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Read]);
    let (_daemon, app) = calls.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
    once_kept(&app, |total| total.sessions == 1).await;
    let path = home.transcript_of(&app, id).await;
    calls.fail(Call::Read, &path, Errno::IO, ALWAYS);
    let check = json!({"conversationId": id});
    let error = app.call("transcript/check", check).await.unwrap_err();
    assert!(
        calls.succeed() > 0 && !error.message.contains("backup"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_bundle_that_cannot_be_read_now_is_not_called_damaged() {
    let faults = [
        (Call::Open, 0, Errno::MFILE),
        (Call::Read, 0, Errno::IO),
        // The second read fails after the file was recognized as a bundle.
        (Call::Read, 1, Errno::IO),
    ];
    for (call, before, errno) in faults {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let scene = Scene::new(&home, &calls).await;
        let (_daemon, app) = calls.opened().await;
        let bundle = home.path().join("taken.bundle");
        let params = json!({"conversationId": scene.id, "format": "bundle", "path": bundle});
        app.call("conversation/export", params).await.unwrap();
        calls.pass(call, &bundle, before);
        calls.fail(call, &bundle, errno, ALWAYS);
        let import = json!({"path": bundle, "newIds": true, "cwd": home.project()});
        passing(
            "an import",
            app.call("conversation/import", import.clone()).await,
            &bundle,
        );
        assert!(calls.succeed() > 0);
        app.call("conversation/import", import).await.unwrap();
    }
}

/// A bundle without the transcript would look like a backup of the whole conversation.
#[tokio::test]
async fn no_bundle_is_made_of_a_transcript_that_cannot_be_read_now() {
    for (call, errno) in [
        (Call::Read, Errno::IO),
        (Call::Open, Errno::IO),
        (Call::Open, Errno::MFILE),
    ] {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let scene = Scene::new(&home, &calls).await;
        let (_daemon, app) = calls.opened().await;
        calls.fail(call, &scene.transcript, errno, ALWAYS);
        let bundle = home.path().join("taken.bundle");
        let params = json!({"conversationId": scene.id, "format": "bundle", "path": bundle});
        let refused = app.call("conversation/export", params.clone()).await;
        passing(&format!("a bundle: {call:?} {errno}"), refused, &scene.transcript);
        assert!(calls.succeed() > 0 && !bundle.exists());
        let made = app.call("conversation/export", params).await.unwrap();
        assert!(made["missing"].is_null(), "{made}");
    }
}

/// Backups cannot be written or read at the moment. Neither they nor the transcripts count as damaged, and nothing that
/// was backed up before is lost.
#[tokio::test]
async fn a_backup_that_cannot_be_written_or_read_now_is_not_called_damaged() {
    let faults = [
        (Call::Open, Errno::MFILE),
        (Call::Open, Errno::NOSPC),
        (Call::Sync, Errno::NOSPC),
        (Call::Read, Errno::IO),
        (Call::List, Errno::IO),
    ];
    for fault in faults {
        let (call, errno) = fault;
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let (_daemon, app) = calls.opened().await;
        let id = app.begun(&home.project(), &["one"]).await;
        app.close(id).await;
        let this = json!({"conversationId": id});
        app.call("transcript/keep", this.clone()).await.unwrap();
        let (kept, projects) = (home.data().join("kept"), home.data().join("loopback/projects"));
        let copies = || {
            let mut copies = files_below(&kept);
            copies.retain(|path| !path.ends_with("kept.json"));
            let text = |path: PathBuf| (std::fs::read(&path).unwrap(), path);
            copies.into_iter().map(text).collect::<Vec<_>>()
        };
        let before = copies();
        assert!(!before.is_empty(), "{fault:?}");
        app.send(id, "two").await;
        app.close(id).await;
        calls.fail(call, &kept, errno, ALWAYS);
        let params = match call {
            // Only the totals require a list of all copies.
            Call::List => json!({}),
            _ => this.clone(),
        };
        let told = app.call("transcript/keep", params.clone()).await;
        passing(&format!("a backup: {fault:?}"), told, &kept);
        assert!(calls.succeed() > 0, "{fault:?}");
        // Bytes that a failed write appended are ignored: each copy must still begin with its previous content.
        let after = copies();
        for (text, path) in &before {
            let is_there = |(now, there): &(Vec<u8>, PathBuf)| there == path && now.starts_with(text);
            assert!(after.iter().any(is_there), "{fault:?}: {}", path.display());
        }
        app.call("transcript/keep", params).await.unwrap();
        app.call("transcript/keep", this.clone()).await.unwrap();

        std::fs::remove_dir_all(&projects).unwrap();
        let below = match call {
            // A restore syncs files in the agent's folder.
            Call::Sync => home.data().join("loopback"),
            _ => kept.clone(),
        };
        if call != Call::List {
            calls.fail(call, &below, errno, ALWAYS);
            let told = app.call("transcript/restore", this.clone()).await;
            passing(&format!("a restore: {fault:?}"), told, &below);
            let prompt = json!({"conversationId": id, "prompt": "three"});
            let told = app.call("conversation/prompt", prompt).await;
            passing(&format!("a prompt: {fault:?}"), told, &below);
            assert!(calls.succeed() > 0, "{fault:?}");
        }
        app.call("transcript/restore", this).await.unwrap();
        assert_eq!(app.remembered(id).await, ["one", "two"], "{fault:?}");
        assert_eq!(app.chain(id).await.len(), 1, "{fault:?}");
        assert_eq!(
            reported(&app, &home.data()).await,
            [] as [PathBuf; 0],
            "{fault:?}"
        );
    }
}

/// No file below the folder of all transcripts can be opened, or the folder cannot be listed.
#[tokio::test]
async fn a_folder_that_cannot_be_read_now_is_not_called_empty() {
    for (call, errno) in [(Call::Open, Errno::MFILE), (Call::List, Errno::IO)] {
        let home = Home::keeping_nothing();
        let calls = Calls::of(&home, &[call]);
        let scene = Scene::new(&home, &calls).await;
        let (_daemon, app) = calls.opened().await;
        let projects = home.data().join("loopback/projects");
        calls.fail(call, &projects, errno, ALWAYS);
        let mut reading = scene.reading();
        if call == Call::List {
            // The other calls find the transcript in its project's folder, without a list.
            reading.retain(|(method, ..)| *method == "transcript/list");
        }
        scene.check(&app, reading, &projects).await;
        scene.check_afterwards(&app).await;
    }
}

/// If a sync failed once, the data may never be written. A later successful sync of the same file does not prove that
/// it was.
#[tokio::test]
async fn a_turn_whose_transcript_could_not_be_synced_is_never_called_saved() {
    let home = Home::new();
    let calls = Calls::of(&home, &[Call::Sync]);
    let (_daemon, app) = calls.opened().await;
    let id = app.make(&home.project()).await;
    let mut events = app.events(id).await;
    app.send(id, "one").await;
    assert_eq!(saved(&mut events).await.prompt, "one");
    let transcript = home.transcript_of(&app, id).await;
    calls.fail(Call::Sync, &transcript, Errno::IO, 1);
    for prompt in ["two", "three"] {
        assert_eq!(app.send(id, prompt).await.stop_reason, StopReason::EndTurn);
        // The other turn is saved in a later round of the watcher, which has handled this conversation's turn by then.
        let other = app.make(&home.project()).await;
        let mut others = app.events(other).await;
        app.send(other, "beside").await;
        saved(&mut others).await;
    }
    assert_eq!(calls.succeed(), 1);
    app.fork(id, true).await.unwrap();
    app.send(id, "four").await;
    assert_eq!(saved(&mut events).await.prompt, "four");
    assert_eq!(app.remembered(id).await, ["one", "two", "three", "four"]);
}

/// The disk is full when the rollout's folder is to be made. The error is temporary: nothing counts as damaged, and the
/// head stays.
#[tokio::test]
async fn located_a_rollout_whose_folder_finds_no_room_is_brought_back_when_there_is_room() {
    let home = codex_watching::home();
    let calls = Calls::of(&home, &[Call::Sync]);
    let (_daemon, app) = calls.opened().await;
    let id = codex_watching::adopt(&app, &home).await;
    let place = rollout(&home, ROOT_ID);
    let folder = place.parent().unwrap();
    let moved = codex_ladder::move_to(&home, "sessions/2020/01/01");
    std::fs::remove_dir(folder).unwrap();
    codex_ladder::refuse_load(&home, codex_ladder::UNKNOWN);
    calls.fail(Call::Sync, &home.path().join("codex"), Errno::NOSPC, ALWAYS);
    let resume = json!({"conversationId": id});
    let error = app.call("conversation/resume", resume).await.unwrap_err();
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{error:?}"
    );
    assert!(error.message.contains(folder.to_str().unwrap()), "{error:?}");
    assert_eq!(app.get(id).await.head.unwrap().as_str(), ROOT_ID);
    assert!(moved.exists());
    assert!(calls.succeed() > 0);
    let expected = [(Via::Load, false), (Via::Located, false), (Via::Text, true)];
    assert_eq!(tried(&app.resumed(id).await), expected);
    assert!(place.exists());
}
