//! A daemon that is killed after it restored a transcript from an older copy, and before it reported what is missing:
//! the next resume reports that, although the transcript looks whole by then.

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
use crate::resumed::check_resumed;
use crate::scripted::{self, LOAD_NEEDS, SILENT_ON_LOAD};
use crate::signs::Watched;
use crate::support::{App, refused};

/// Copies are made only when a test asks for them.
const KEEP_NOTHING: &str = "[keep]\nenabled = false\n";

/// The mark that records how many turns the restored transcript of a session lacks.
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

/// The path of the only list of copies.
fn list(home: &Home) -> PathBuf {
    let mut lists = files_below(&home.data().join("kept"));
    lists.retain(|path| path.ends_with("kept.json"));
    let [list] = &lists[..] else { panic!("{lists:?}") };
    list.clone()
}

/// Makes a closed conversation whose transcript was restored from an older copy and lacks the last turn. The transcript
/// does not show that, because it also has a cancelled turn, which is not counted.
async fn restored(home: &Home) -> (Daemon<'_>, App, ConversationId) {
    let (daemon, app, id) = home.begun(&["first"]).await;
    cancelled_turn(&daemon, &app, id).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    lose(home);
    let restored = app.ask("transcript/restore", id).await;
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
    check_resumed(&resumed, Via::Archive, Fidelity::Partial, 1);
    assert_eq!(resumed.attempts.last().unwrap().via, Via::Archive);
    let last = app.lineage(id).await.pop().unwrap();
    assert_eq!(
        (last.reason, last.fidelity),
        (LineageReason::Restored, Fidelity::Partial)
    );
}

/// Asserts that forks, edits and repairs are refused: they would copy the incomplete head as if it were whole.
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
    let (daemon, app, id) = home.begun(&["first", "second"]).await;
    let plan = json!({"conversationId": id, "settings": {"mode": "plan"}});
    app.call("conversation/update", plan).await.unwrap();
    // A turn that was cancelled before the agent's first word is in the transcript but is not counted, so the
    // transcript does not show what it lacks.
    cancelled_turn(&daemon, &app, id).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    let place = app.checkpoints(id).await.pop().unwrap().id;
    let head = app.get(id).await.head.unwrap();
    app.close(id).await;
    lose(&home);
    let mut raw = daemon.raw().await;
    // While this request is held, the agent has opened the restored session, and the missing turn is not reported yet.
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
    // A refused resume does not count as a report of the missing turn.
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

/// Codex's rollouts are compared with the acknowledged turns only after they were restored.
#[tokio::test]
async fn what_a_restored_rollout_lacks_is_reported_by_the_next_daemon() {
    // If the list does not say how many turns the copy has, they are counted in the rollout, where a compaction may
    // look like a turn.
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

/// Removes the numbers of turns from the list, as if a hard link had been copied, whose number of turns is unknown.
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

/// The number of `session/load` requests that the agent has received.
fn loads(home: &Home) -> usize {
    let heard = scripted::heard_lines(home, "codex");
    heard
        .iter()
        .filter(|line| line.contains("\"session/load\""))
        .count()
}

/// The response of `transcript/restore` does not count as a report: the next resume still reports the missing turn.
#[tokio::test]
async fn what_was_restored_by_hand_is_reported_by_the_next_resume() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["first"]).await;
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
    let restored = app.ask("transcript/restore", id).await;
    assert_eq!(restored["missingTurns"], json!(1));
    drop(daemon);
    // This start deletes old copies, but not the mark that records the missing turn.
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

/// Ways to make a list of copies, or a mark, unreadable.
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

/// If the list of copies cannot be read, the mark still records what a transcript lacks.
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

/// A conversation that was never restored counts as whole, even if the list of its copies cannot be read.
#[tokio::test]
async fn a_list_that_cannot_be_read_makes_no_turns_missing() {
    for how in SPOILED {
        let home = Home::keeping_nothing();
        let (_daemon, app, id) = home.begun(&["first"]).await;
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

/// A mark that cannot be read still means that turns are missing. After that is reported, the mark is set aside
/// unchanged.
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
        check_resumed(&resumed, Via::Archive, Fidelity::Partial, 0);
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

/// The history reports the gap, whether it is read from the restored file or, after that is deleted too, from the kept
/// copy.
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

/// Makes a conversation that continues in another session. Returns its older session and the first checkpoint in that.
/// The older session's transcript is missing. It was restored from an older copy before, and then copied again, so only
/// its mark records that the copy lacks a turn.
async fn older_restored(home: &Home) -> (Daemon<'_>, App, ConversationId, UpstreamId, CheckpointId) {
    let (daemon, app, id) = home.begun(&["first"]).await;
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

/// A copy that lacks an unknown number of turns is not restored as if it were whole.
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

/// A resume restores only the head, so for an older session the error names a command that restores it.
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
    let branch = app.made_by("conversation/fork", fork).await;
    assert_eq!(app.remembered(branch).await, ["first"]);
    // The mark is kept.
    assert_eq!(unreported(&home, older.as_str()), json!(1));
}

/// After a restore that failed, no turns are reported as missing.
#[tokio::test]
async fn a_restore_that_fails_leaves_no_mark() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    let kept = keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let path = home.transcript(head.as_str()).unwrap();
    let text = fs::read(&path).unwrap();
    lose(&home);
    // First failure: the folder of the transcript cannot be made.
    let projects = home.data().join("loopback/projects");
    fs::write(&projects, "").unwrap();
    let restore = || app.call("transcript/restore", json!({"conversationId": id}));
    restore().await.unwrap_err();
    fs::remove_file(&projects).unwrap();
    // Second failure: the copy is damaged.
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

/// The agent of an open session would continue with what it has in memory, and nothing would report what the restored
/// file lacks.
#[tokio::test]
async fn nothing_is_restored_into_an_open_session() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let head = app.get(id).await.head.unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    let names = [json!({"conversationId": id}), json!({"upstreamId": head})];
    // The transcript is there, so there is nothing to restore.
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
    let restored = app.ask("transcript/restore", id).await;
    assert_eq!(restored["missingTurns"], json!(1));
    assert_reported_once(&app, id).await;
}
