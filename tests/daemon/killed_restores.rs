//! A daemon that is killed after it restored a transcript from an older copy, and before it reported what is missing: the next
//! resume reports that, although the transcript looks whole by then.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, LineageReason, Via};
use bridge_protocol::{CheckpointId, ConversationId, UpstreamId};
use serde_json::{Value, json};

use super::set_aside::reported;
use crate::carrying::files_below;
use crate::codex::{ROOT_ID, rollout};
use crate::codex_watching;
use crate::gate::Gate;
use crate::home::{Daemon, Home};
use crate::keeping::{keep, lose};
use crate::scripted::{self, LOAD_NEEDS, SILENT_ON_LOAD};
use crate::signs::Watched;
use crate::support::{App, refused};

/// Nothing is kept but what a test asks for.
const KEEP_NOTHING: &str = "[keep]\nenabled = false\n";

/// The file that says what the restored transcript of a session lacks.
fn mark_of(home: &Home, session: &str) -> Option<PathBuf> {
    let marks = files_below(&home.data().join("kept/unreported")).into_iter();
    let mut marks = marks.filter(|mark| mark.ends_with(format!("{session}.mark")));
    marks.next()
}

fn unreported(home: &Home, session: &str) -> Value {
    let Some(mark) = mark_of(home, session) else {
        return Value::Null;
    };
    let line: Value = serde_json::from_slice(&fs::read(mark).unwrap()).unwrap();
    line["note"]["turns"].clone()
}

/// The one list of copies.
fn list(home: &Home) -> PathBuf {
    let mut lists = files_below(&home.data().join("kept"));
    lists.retain(|path| path.ends_with("kept.json"));
    let [list] = &lists[..] else { panic!("{lists:?}") };
    list.clone()
}

/// A closed conversation whose transcript holds a cancelled turn, which is not counted, and lacks the last turn, because it was
/// restored from an older copy. The transcript does not show that.
async fn restored(home: &Home) -> (Daemon<'_>, App, ConversationId) {
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    cancelled_turn(&daemon, &app, id).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    lose(home);
    let params = json!({"conversationId": id});
    let restored = app.call("transcript/restore", params).await.unwrap();
    assert_eq!(restored["missingTurns"], json!(1));
    (daemon, app, id)
}

async fn cancelled_turn(daemon: &Daemon<'_>, app: &App, id: ConversationId) {
    let mut raw = daemon.raw().await;
    let (running, _) = raw.run(id, "[[hang]]").await;
    app.ask("conversation/cancel", id).await;
    raw.answer(running).await;
}

async fn assert_reported_once(app: &App, id: ConversationId) {
    let resumed = app.resumed(id).await;
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Archive, Fidelity::Partial, 1)
    );
    assert_eq!(resumed.attempts.last().unwrap().via, Via::Archive);
    let last = app.lineage(id).await.pop().unwrap();
    assert_eq!(
        (last.reason, last.fidelity),
        (LineageReason::Restored, Fidelity::Partial)
    );
}

/// Whatever begins with the head would take the rest for all of it.
async fn assert_not_to_be_branched(app: &App, id: ConversationId, place: Option<&CheckpointId>) {
    let mut calls = vec![
        ("conversation/fork", json!({"conversationId": id})),
        ("transcript/check", json!({"conversationId": id, "repair": true})),
    ];
    if let Some(place) = place {
        calls.push(("conversation/fork", json!({"conversationId": id, "at": place})));
        let edit = json!({"conversationId": id, "at": place, "prompt": "instead"});
        calls.push(("conversation/edit", edit));
    }
    for (method, params) in calls {
        refused(app.call(method, params).await, ErrorKind::TranscriptDamaged);
    }
}

#[tokio::test]
async fn what_a_restored_transcript_lacks_is_reported_by_the_next_daemon() {
    let (home, gate) = Gate::home_with(KEEP_NOTHING);
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first", "second"]).await;
    let plan = json!({"conversationId": id, "settings": {"mode": "plan"}});
    app.call("conversation/update", plan).await.unwrap();
    // A turn that was cancelled before the agent said a word stands in the transcript, and is not counted: so the transcript does
    // not show what it lacks.
    cancelled_turn(&daemon, &app, id).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    let place = app.checkpoints(id).await.pop().unwrap().id;
    let head = app.get(id).await.head.unwrap();
    app.close(id).await;
    lose(&home);
    let mut raw = daemon.raw().await;
    // The agent has opened the restored session by then, and nothing was reported.
    gate.hold("session/set_mode");
    raw.send("conversation/resume", json!({"conversationId": id}))
        .await;
    gate.wait_until_held();
    assert!(home.transcript(head.as_str()).is_some(), "it is restored");
    assert_eq!(unreported(&home, head.as_str()), json!(1));
    daemon.kill();

    let (daemon, app) = home.opened().await;
    assert_not_to_be_branched(&app, id, Some(&place)).await;
    let history = json!({"conversationId": id, "limit": 10});
    let history = app.call("conversation/history", history).await.unwrap();
    assert_eq!(history["gaps"][0]["kind"], "behind", "{history}");
    let bundle = home.path().join("bundle.tar.zst");
    let export = json!({"conversationId": id, "path": bundle});
    let exported = app.call("conversation/export", export).await.unwrap();
    assert_eq!(exported["gaps"][0]["upstreamId"], json!(head), "{exported}");
    // Nobody is told of a resume that is refused.
    let strict = json!({"conversationId": id, "minFidelity": "full"});
    let error = refused(
        app.call("conversation/resume", strict).await,
        ErrorKind::NotResumable,
    );
    assert_eq!(error.detail("attempts")[0]["via"], "archive", "{error:?}");
    assert_eq!(unreported(&home, head.as_str()), json!(1));
    assert_reported_once(&app, id).await;
    assert_eq!(unreported(&home, head.as_str()), Value::Null);
    let forked = app.fork(id, false).await.unwrap();
    app.close(forked.conversation.id).await;
    app.close(id).await;
    assert_eq!(app.resumed(id).await.via, Via::Resume);
    assert_eq!(app.remembered(id).await[..2], ["first", "second"]);
    drop(daemon);
}

/// Codex' rollouts are not compared with what was acknowledged, unless they were restored.
#[tokio::test]
async fn what_a_restored_rollout_lacks_is_reported_by_the_next_daemon() {
    // Without a number only the rollout tells, in which a compaction may have been a turn.
    for (kept_turns_are_known, turns) in [(true, 1), (false, 2)] {
        let home = codex_watching::home();
        let mut config = File::options().append(true).open(home.config_file()).unwrap();
        config.write_all(KEEP_NOTHING.as_bytes()).unwrap();
        let (daemon, app) = home.opened().await;
        let id = codex_watching::adopt(&app, &home).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        if !kept_turns_are_known {
            forget_turns(&home);
        }
        for _turn in 0..turns {
            app.send(id, r#"{"jsonrpc":"2.0","method":"_nothing/new"}"#).await;
        }
        app.close(id).await;
        let path = rollout(&home, ROOT_ID);
        fs::remove_file(&path).unwrap();
        fs::write(home.path().join(LOAD_NEEDS), path.to_str().unwrap()).unwrap();
        fs::write(home.path().join(SILENT_ON_LOAD), "").unwrap();
        let before = loads(&home);
        let mut raw = daemon.raw().await;
        let watched = Watched::below(home.path());
        raw.send("conversation/resume", json!({"conversationId": id}))
            .await;
        watched.wait_for("second load", || (loads(&home) == before + 2).then_some(()));
        assert!(path.exists(), "it is restored");
        assert_eq!(unreported(&home, ROOT_ID), json!(1));
        daemon.kill();
        fs::remove_file(home.path().join(SILENT_ON_LOAD)).unwrap();

        let (_daemon, app) = home.opened().await;
        assert_not_to_be_branched(&app, id, None).await;
        assert_reported_once(&app, id).await;
        app.close(id).await;
        let resumed = app.resumed(id).await;
        assert_eq!((resumed.via, resumed.fidelity), (Via::Load, Fidelity::Full));
    }
}

/// The list as it is after a link was copied: how many turns are in it is not known.
fn forget_turns(home: &Home) {
    let list = list(home);
    let mut line: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    let files = line["note"]["files"].as_object_mut().unwrap().values_mut();
    for copy in files.flat_map(|copies| copies.as_array_mut().unwrap()) {
        copy.as_object_mut().unwrap().remove("turns").unwrap();
    }
    write_list(&list, line);
}

fn write_list(list: &Path, mut line: Value) {
    line["crc32"] = json!(crc32fast::hash(line["note"].to_string().as_bytes()));
    fs::write(list, format!("{line}\n")).unwrap();
}

/// How many sessions the agent was asked to load.
fn loads(home: &Home) -> usize {
    let heard = scripted::heard_lines(home, "codex");
    heard
        .iter()
        .filter(|line| line.contains("\"session/load\""))
        .count()
}

/// An answer to a client that puts a transcript back is no report of the conversation.
#[tokio::test]
async fn what_was_restored_by_hand_is_reported_by_the_next_resume() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let old = SystemTime::UNIX_EPOCH;
    let transcript = home.transcript(head.as_str()).unwrap();
    let file = File::options().append(true).open(transcript).unwrap();
    file.set_modified(old).unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    lose(&home);
    let restore = json!({"conversationId": id});
    let restored = app.call("transcript/restore", restore).await.unwrap();
    assert_eq!(restored["missingTurns"], json!(1));
    drop(daemon);
    // Old copies are deleted at a start, but not what says what is missing.
    home.configure("default_agent = \"loopback\"\n[keep]\nenabled = false\ndays = 1\n");
    let passed = home.data().join("kept/passed");
    let watched = Watched::below(&home.data());
    let (daemon, app) = home.opened().await;
    watched.wait_for("look at all copies", || passed.exists().then_some(()));
    let copies = keep_total(&app).await;
    assert_eq!(copies, 0);
    assert_reported_once(&app, id).await;
    assert_eq!(unreported(&home, head.as_str()), Value::Null);
    drop(daemon);
}

async fn keep_total(app: &App) -> u64 {
    keep(app, json!({})).await.unwrap().total.unwrap().sessions
}

/// How a list of copies, or a mark, becomes one that cannot be read.
const SPOILED: [&str; 2] = ["damaged", "of a newer version"];

fn spoil(path: &Path, how: &str) {
    if how == "a folder" {
        fs::remove_file(path).unwrap();
        return fs::create_dir(path).unwrap();
    }
    let mut line: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    if how == "damaged" {
        line["crc32"] = json!(1);
        fs::write(path, format!("{line}\n")).unwrap();
    } else {
        line["version"] = json!(9);
        write_list(path, line);
    }
}

/// What a transcript lacks is known even if the list of its copies is not.
#[tokio::test]
async fn a_list_that_cannot_be_read_hides_no_missing_turns() {
    for how in SPOILED {
        let home = Home::keeping_nothing();
        let (_daemon, app, id) = restored(&home).await;
        spoil(&list(&home), how);
        refused(app.fork(id, false).await, ErrorKind::TranscriptDamaged);
        assert_reported_once(&app, id).await;
        app.fork(id, false).await.unwrap();
        app.close(id).await;
        let resumed = app.resumed(id).await;
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    }
}

/// A conversation that was never restored is whole, whatever becomes of the list of its copies.
#[tokio::test]
async fn a_list_that_cannot_be_read_makes_no_turns_missing() {
    for how in SPOILED {
        let home = Home::keeping_nothing();
        let (_daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), &["first"]).await;
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        let list = list(&home);
        spoil(&list, how);
        let written = fs::read(&list).unwrap();
        app.fork(id, false).await.unwrap();
        let resumed = app.resumed(id).await;
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
        app.close(id).await;
        lose(&home);
        let params = json!({"conversationId": id});
        assert!(app.call("transcript/restore", params).await.is_err());
        assert_eq!(fs::read(list).unwrap(), written);
    }
}

/// That there is a mark says that turns are missing. Once they are reported it is set aside, as it was.
#[tokio::test]
async fn a_mark_that_cannot_be_read_is_reported_without_a_number_and_once() {
    for how in SPOILED.into_iter().chain(["a folder"]) {
        let home = Home::keeping_nothing();
        let (_daemon, app, id) = restored(&home).await;
        let head = app.get(id).await.head.unwrap();
        let mark = mark_of(&home, head.as_str()).unwrap();
        spoil(&mark, how);
        let spoiled = fs::read(&mark).ok();
        refused(app.fork(id, false).await, ErrorKind::TranscriptDamaged);
        let strict = json!({"conversationId": id, "minFidelity": "full"});
        refused(
            app.call("conversation/resume", strict).await,
            ErrorKind::NotResumable,
        );
        let resumed = app.resumed(id).await;
        assert_eq!(
            (resumed.via, resumed.fidelity, resumed.missing_turns),
            (Via::Archive, Fidelity::Partial, 0)
        );
        app.fork(id, false).await.unwrap();
        app.close(id).await;
        let resumed = app.resumed(id).await;
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
        let aside = PathBuf::from(format!("{}.set-aside-1", mark.display()));
        assert!(
            !fs::exists(&mark).unwrap() && fs::exists(&aside).unwrap(),
            "{how}"
        );
        assert_eq!(fs::read(&aside).ok(), spoiled, "{how}");
        assert_eq!(reported(&app, &home.data()).await, [aside], "{how}");
    }
}

/// The history says so too, whether it is read from the restored file or, once that is gone again, from the backup.
#[tokio::test]
async fn a_mark_that_cannot_be_read_is_a_gap_in_the_history() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = restored(&home).await;
    let head = app.get(id).await.head.unwrap();
    spoil(&mark_of(&home, head.as_str()).unwrap(), "damaged");
    let of_id = json!({"conversationId": id});
    for is_there in [true, false] {
        if !is_there {
            lose(&home);
        }
        let history = app.call("conversation/history", of_id.clone()).await.unwrap();
        assert_eq!(history["gaps"][0]["kind"], "behind", "{is_there}: {history}");
    }
}

/// A conversation that continues on another session: its older session, the first place in it, and the transcript, which is missing.
/// It was restored from an older copy before, and backed up again, so only its mark says that the copy lacks a turn.
async fn older_restored(home: &Home) -> (Daemon<'_>, App, ConversationId, UpstreamId, CheckpointId) {
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    cancelled_turn(&daemon, &app, id).await;
    let place = app.checkpoints(id).await[0].id.clone();
    let older = app.get(id).await.head.unwrap();
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    app.fork(id, true).await.unwrap();
    app.send(id, "elsewhere").await;
    app.close(id).await;
    let transcript = home.transcript(older.as_str()).unwrap();
    fs::remove_file(&transcript).unwrap();
    let named = json!({"upstreamId": older});
    let restored = app.call("transcript/restore", named.clone()).await.unwrap();
    assert_eq!(restored["missingTurns"], json!(1));
    keep(&app, named).await.unwrap();
    fs::remove_file(&transcript).unwrap();
    (daemon, app, id, older, place)
}

/// A copy that lacks an unknown number of turns is not whole.
#[tokio::test]
async fn a_mark_that_cannot_be_read_keeps_an_older_session_from_being_restored_as_whole() {
    for how in SPOILED.into_iter().chain(["a folder"]) {
        let home = Home::keeping_nothing();
        let (_daemon, app, id, older, place) = older_restored(&home).await;
        spoil(&mark_of(&home, older.as_str()).unwrap(), how);
        let fork = json!({"conversationId": id, "at": place});
        let forked = app.call("conversation/fork", fork).await;
        refused(forked, ErrorKind::TranscriptDamaged);
        assert_eq!(home.transcript(older.as_str()), None, "{how}");
    }
}

/// A resume restores only the head of a conversation.
#[tokio::test]
async fn the_refusal_of_an_older_session_that_lacks_turns_names_the_command_that_restores_it() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id, older, place) = older_restored(&home).await;
    let fork = json!({"conversationId": id, "at": place});
    let forked = app.call("conversation/fork", fork.clone()).await;
    let error = refused(forked, ErrorKind::TranscriptDamaged);
    let (_, command) = error.message.rsplit_once(": sessionctl ").expect(&error.message);
    let mut sessionctl = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    sessionctl.env_clear().env("SESSIOND_HOME", home.path());
    let output = sessionctl.args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    assert!(home.transcript(older.as_str()).is_some(), "{command}");
    let forked = app.call("conversation/fork", fork).await.unwrap();
    let branch = serde_json::from_value(forked["conversation"]["id"].clone()).unwrap();
    assert_eq!(app.remembered(branch).await, ["first"]);
    // What the session lacks is still known.
    assert_eq!(unreported(&home, older.as_str()), json!(1));
}

/// What was not restored lacks nothing.
#[tokio::test]
async fn a_restore_that_fails_leaves_no_mark() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    app.close(id).await;
    let kept = keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let path = home.transcript(head.as_str()).unwrap();
    let text = fs::read(&path).unwrap();
    lose(&home);
    // The folder of the transcript cannot be made.
    let projects = home.data().join("loopback/projects");
    fs::write(&projects, "").unwrap();
    let restore = || app.call("transcript/restore", json!({"conversationId": id}));
    restore().await.unwrap_err();
    fs::remove_file(&projects).unwrap();
    // The copy is damaged.
    let copy = Path::new(&kept.kept[0].path);
    let mut bytes = fs::read(copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(copy, bytes).unwrap();
    restore().await.unwrap_err();
    // The agent's own file is back, whole.
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, &text).unwrap();
    app.fork(id, false).await.unwrap();
    let resumed = app.resumed(id).await;
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
}

/// The agent would continue with what it has in memory, and nothing would report what the file lacks.
#[tokio::test]
async fn nothing_is_restored_into_an_open_session() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    let head = app.get(id).await.head.unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    let names = [json!({"conversationId": id}), json!({"upstreamId": head})];
    // Nothing is to be done.
    for params in &names {
        let answer = app.call("transcript/restore", params.clone()).await.unwrap();
        assert_eq!(answer["restored"], json!([]));
    }
    lose(&home);
    for params in names {
        refused(app.call("transcript/restore", params).await, ErrorKind::Busy);
    }
    assert!(home.transcript(head.as_str()).is_none());
    app.close(id).await;
    let restore = json!({"conversationId": id});
    let restored = app.call("transcript/restore", restore).await.unwrap();
    assert_eq!(restored["missingTurns"], json!(1));
    assert_reported_once(&app, id).await;
}
