//! Kept copies of transcripts: they are made automatically, and restored automatically or on request when the agent's
//! own transcripts are missing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::keep::{KeepAnswer, KeepTotal, RestoreAnswer};
use bridge_protocol::link::{Fidelity, LineageReason, LinkReason, Via};
use bridge_protocol::method::Status;
use serde_json::{Value, json};

use super::edits::configure_opaque;
use super::{error_words, lost_turns};
use crate::carrying::{files_below, folders_in};
use crate::home::Home;
use crate::moved_trees::move_tree;
use crate::moving::move_to;
use crate::resumed::check_resumed;
use crate::signs::Watched;
use crate::support::{App, id_in, refused, tried, within};

pub(crate) async fn keep(app: &App, params: Value) -> Result<KeepAnswer, BridgeError> {
    let answer = app.call("transcript/keep", params).await?;
    Ok(serde_json::from_value(answer).unwrap())
}

async fn restore(app: &App, params: Value) -> Result<RestoreAnswer, BridgeError> {
    let answer = app.call("transcript/restore", params).await?;
    Ok(serde_json::from_value(answer).unwrap())
}

async fn total(app: &App) -> KeepTotal {
    keep(app, json!({})).await.unwrap().total.unwrap()
}

/// Waits until the total of all copies meets the condition, and returns the total. It changes only when the data folder
/// changes.
pub(crate) async fn once_kept(app: &App, holds: impl Fn(&KeepTotal) -> bool) -> KeepTotal {
    let home = app.answer(Status::default()).await.home;
    let asking = Watched::below(&Path::new(&home).join("data")).wait_for_answer("such copies", async || {
        Some(total(app).await).filter(|total| holds(total))
    });
    within(asking).await
}

/// Deletes all transcripts that the agent has, with their folder.
pub(crate) fn lose(home: &Home) {
    fs::remove_dir_all(home.data().join("loopback/projects")).unwrap();
}

fn transcript(home: &Home, id: &str) -> PathBuf {
    home.transcript(id).unwrap()
}

/// The first characters of an id find a session whose transcript is missing. If they match two sessions, calls are
/// refused as ambiguous.
#[tokio::test]
async fn a_missing_transcript_is_restored_by_the_beginning_of_its_id() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let (head, short) = (head.as_str(), json!({"upstreamId": &head.as_str()[..8]}));
    let path = transcript(&home, head);
    assert_eq!(keep(&app, short.clone()).await.unwrap().kept.len(), 1);
    for is_held in [true, false] {
        if !is_held {
            app.ask("conversation/delete", id).await;
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(keep(&app, short.clone()).await.unwrap().kept.len(), 1);
        let restored = restore(&app, short.clone()).await.unwrap().restored;
        assert_eq!(restored, [path.to_str().unwrap()]);
    }

    let other = format!("{}-other", &head[..8]);
    fs::rename(&path, path.with_file_name(format!("{other}.jsonl"))).unwrap();
    for method in [
        "transcript/restore",
        "transcript/keep",
        "transcript/check",
        "conversation/adopt",
    ] {
        // The message contains the beginning of the id, which differs in each run, so only kind and details are
        // checked.
        let error = app.call(method, short.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Ambiguous);
        let found: Vec<Value> = error.details["transcripts"].read().unwrap();
        let mut ids: Vec<&str> = found.iter().map(|one| one["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let mut expected = [head, &other];
        expected.sort_unstable();
        assert_eq!(ids, expected, "{method}");
    }
}

/// D14: if the agent deletes an old transcript, the kept hard link still has everything that was appended, even if no
/// copy was made yet.
#[tokio::test]
async fn d14_what_the_agent_has_deleted_goes_on_whole_from_a_link() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let head = app.send(id, "first").await.upstream_id;
    once_kept(&app, |total| total.sessions == 1).await;
    app.send(id, "[[tool Bash {\"command\":\"ls\"}]] second").await;
    let whole = fs::read(transcript(&home, head.as_str())).unwrap();
    daemon.kill();
    lose(&home);
    let (_daemon, app) = home.opened().await;
    let turn = app.send(id, "third").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::Archive, true)]);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(turn.upstream_id, head);
    let restored = fs::read(transcript(&home, head.as_str())).unwrap();
    assert!(
        restored.starts_with(&whole),
        "the restored transcript continues the old one"
    );
    assert_eq!(app.remembered(id).await.len(), 3);
    let chain = app.chain(id).await;
    assert_eq!((chain.len(), chain[0].reason), (1, LinkReason::Created));
    let lineage = app.lineage(id).await;
    assert_eq!(lineage.last().unwrap().reason, LineageReason::Restored);
    assert_eq!(lineage.last().unwrap().attempts.len(), 1);
}

/// D14, F11: the same from the compressed copy that replaces the link when the conversation hibernates.
#[tokio::test]
async fn d14_a_hibernated_conversation_goes_on_whole_from_its_copy() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first", "second"]).await;
    assert_eq!(once_kept(&app, |total| total.sessions == 1).await.bytes, 0);
    app.close(id).await;
    let packed = once_kept(&app, |total| total.bytes > 0).await;
    assert_eq!((packed.sessions, packed.files), (1, 1));
    lose(&home);
    // A restore on request makes the transcript readable for other programs.
    assert_eq!(
        restore(&app, json!({"conversationId": id}))
            .await
            .unwrap()
            .restored
            .len(),
        1
    );
    let history = app
        .call("conversation/history", json!({"conversationId": id, "limit": 10}))
        .await
        .unwrap();
    assert_eq!(history["messages"].as_array().unwrap().len(), 4);
    lose(&home);
    let resumed = app.send(id, "third").await.resumed.unwrap();
    assert_eq!(tried(&resumed), [(Via::Resume, false), (Via::Archive, true)]);
    assert_eq!(app.remembered(id).await, ["first", "second", "third"]);
}

/// The transcript is restored, but the agent refuses its session id, so the session is copied under a new id.
#[tokio::test]
async fn a_restored_session_that_is_refused_is_copied() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    once_kept(&app, |total| total.sessions == 1).await;
    app.send(id, "[[say second]][[lose]]").await;
    let resumed = app.send(id, "third").await.resumed.unwrap();
    let tried = tried(&resumed);
    assert_eq!(
        tried[tried.len() - 2..],
        [(Via::Archive, false), (Via::Copied, true)]
    );
    assert_eq!(resumed.fidelity, Fidelity::Full);
    assert_eq!(
        app.remembered(id).await,
        ["first", "[[say second]][[lose]]", "third"]
    );
}

#[tokio::test]
async fn a_copy_that_is_older_than_the_conversation_is_told_as_such() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.send(id, "never kept").await;
    app.close(id).await;
    lose(&home);
    let strict = json!({"conversationId": id, "minFidelity": "full"});
    let error = refused(
        app.call("conversation/resume", strict).await,
        ErrorKind::NotResumable,
    );
    let last = &error.detail("attempts")[1];
    assert_eq!(last["via"], "archive", "{error:?}");
    let why = last["error"].as_str().unwrap();
    error_words::check_counted("the last way to resume a kept copy", "attempt", why, &[1, 2]);
    lose(&home);
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Archive, Fidelity::Partial, 1);
    assert_eq!(app.remembered(id).await, ["first", "go on"]);
}

#[tokio::test]
async fn nothing_is_kept_where_that_is_off() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    assert!(!keep(&app, json!({})).await.unwrap().enabled);
    assert_eq!(total(&app).await, KeepTotal::default());
    assert!(!home.data().join("kept").exists());
    lose(&home);
    let resume = app
        .call("conversation/resume", json!({"conversationId": id}))
        .await;
    refused(resume, ErrorKind::NotResumable);
    let nothing = restore(&app, json!({"conversationId": id})).await;
    refused(nothing, ErrorKind::NotFound);
}

#[tokio::test]
async fn what_is_named_is_kept_and_put_back_and_nothing_is_written_over() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let head = app.get(id).await.head.unwrap();
    let path = transcript(&home, head.as_str());
    let text = fs::read(&path).unwrap();
    app.close(id).await;
    for by in [json!({"conversationId": id}), json!({"upstreamId": head})] {
        let kept = keep(&app, by.clone()).await.unwrap().kept;
        assert_eq!(kept.len(), 1);
        let size = fs::metadata(&kept[0].path).unwrap().len();
        assert_eq!(kept[0].bytes, size);
        assert!(Path::new(&kept[0].path).starts_with(home.data().join("kept")));
        assert_eq!(total(&app).await.bytes, size);
        assert_eq!(
            restore(&app, by.clone()).await.unwrap().restored,
            [] as [String; 0]
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(
            restore(&app, by.clone()).await.unwrap().restored,
            [path.to_str().unwrap()]
        );
        assert_eq!(fs::read(&path).unwrap(), text);
        fs::write(&path, "{}\n").unwrap();
        let there = restore(&app, by).await;
        let there = refused(there, ErrorKind::Conflict);
        assert_eq!(there.detail("path"), path.to_str().unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"{}\n");
        fs::write(&path, &text).unwrap();
    }
    let unknown = json!({"upstreamId": "00000000-0000-4000-8000-000000000000"});
    refused(keep(&app, unknown.clone()).await, ErrorKind::NotFound);
    refused(restore(&app, unknown).await, ErrorKind::NotFound);
    let none = json!({"conversationId": "00000000"});
    refused(keep(&app, none).await, ErrorKind::NotFound);
    let both = json!({"conversationId": id, "upstreamId": head});
    refused(keep(&app, both).await, ErrorKind::InvalidParams);
    refused(restore(&app, json!({})).await, ErrorKind::InvalidParams);
    let agent = json!({"agent": "loopback"});
    refused(keep(&app, agent).await, ErrorKind::InvalidParams);
    let new = app.make(&home.project()).await;
    let unprompted = keep(&app, json!({"conversationId": new})).await;
    refused(unprompted, ErrorKind::NotFound);
}

/// The format of these transcripts is unknown to the daemon.
#[tokio::test]
async fn what_cannot_be_read_is_neither_kept_nor_put_back() {
    let home = Home::new();
    configure_opaque(&home);
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "opaque").await;
    app.send(id, "first").await;
    for method in ["transcript/check", "transcript/keep", "transcript/restore"] {
        let answer = app.call(method, json!({"conversationId": id})).await;
        refused(answer, ErrorKind::Unsupported);
    }
}

/// If another program cuts off a transcript, the older copy is kept beside the new one, and `foreignWriter` is emitted.
#[tokio::test]
async fn what_was_cut_off_by_another_program_is_kept_beside_the_rest_and_told() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first", "second"]).await;
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    let head = app.get(id).await.head.unwrap();
    let path = transcript(&home, head.as_str());
    let text = fs::read_to_string(&path).unwrap();
    let cut: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&path, cut).unwrap();
    let mut events = app.events(id).await;
    app.ask("conversation/resume", id).await;
    app.close(id).await;
    events.until("foreignWriter").await;
    assert_eq!(once_kept(&app, |total| total.files == 2).await.sessions, 1);
    fs::remove_file(&path).unwrap();
    restore(&app, json!({"conversationId": id})).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn deleting_a_conversation_with_its_transcripts_deletes_the_copies() {
    let home = Home::new();
    let (_daemon, app, gone) = home.begun(&["first"]).await;
    let kept = app.begun(&home.project(), &["first"]).await;
    for id in [gone, kept] {
        app.close(id).await;
    }
    once_kept(&app, |total| total.sessions == 2 && total.bytes > 0).await;
    let delete = |id: ConversationId, transcripts: &str| {
        let params = json!({"conversationId": id, "transcripts": transcripts});
        app.call("conversation/delete", params)
    };
    delete(gone, "delete").await.unwrap();
    assert_eq!(total(&app).await.sessions, 1);
    delete(kept, "keep").await.unwrap();
    assert_eq!(total(&app).await.sessions, 1);
}

/// The daemon is killed or stopped during a turn, before it copied the turn's transcript. The next start copies it.
#[tokio::test]
async fn what_the_end_of_the_daemon_cut_short_is_kept() {
    for is_killed in [true, false] {
        let home = Home::new();
        let (daemon, app) = home.opened().await;
        app.begun(&home.project(), &["another"]).await;
        once_kept(&app, |total| total.sessions == 1).await;
        daemon.kill();
        let (daemon, app) = home.opened().await;
        // After this pass over all transcripts, the next one is a day later, so it cannot make the copy.
        let passed = home.data().join("kept/passed");
        Watched::below(&home.data()).wait_for("the pass over all", || passed.exists().then_some(()));
        let id = app.make(&home.project()).await;
        lost_turns::begin(&daemon, &app, id, None).await;
        match is_killed {
            true => daemon.kill(),
            false => drop(daemon),
        }
        let (_daemon, app) = home.opened().await;
        once_kept(&app, |total| total.sessions == 2).await;
        fs::remove_file(home.transcript_of(&app, id).await).unwrap();
        let resumed = app.send(id, "go on").await.resumed.unwrap();
        assert_eq!(
            (resumed.via, resumed.fidelity, resumed.missing_turns),
            (Via::Archive, Fidelity::Full, 0),
            "killed: {is_killed}"
        );
        assert_eq!(app.remembered(id).await, [lost_turns::CUT_SHORT, "go on"]);
    }
}

/// Once a day, or at the first start after a day, links become compressed copies, and copies older than `days` are
/// deleted.
#[tokio::test]
async fn what_is_older_than_the_user_wants_goes_and_links_become_copies() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    once_kept(&app, |total| (total.sessions, total.bytes) == (1, 0)).await;
    daemon.kill();
    // Without this file, the next start acts as if a day had passed.
    let passed = home.data().join("kept/passed");
    let later = || {
        if let Err(error) = fs::remove_file(&passed) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    };
    later();
    let (daemon, app) = home.opened().await;
    once_kept(&app, |total| total.sessions == 1 && total.bytes > 0).await;
    let head = app.get(id).await.head.unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    let file = fs::File::options()
        .append(true)
        .open(transcript(&home, head.as_str()));
    file.unwrap().set_modified(old).unwrap();
    drop(daemon);
    fs::remove_dir_all(home.data().join("kept")).unwrap();
    let (daemon, app) = home.opened().await;
    // Conversations that are older than the `kept` folder are copied too.
    once_kept(&app, |total| total.sessions == 1 && total.bytes > 0).await;
    drop(daemon);
    home.configure("default_agent = \"loopback\"\n[keep]\ndays = 2\n");
    later();
    let (_daemon, app) = home.opened().await;
    once_kept(&app, |total| total.sessions == 0).await;
    assert!(
        transcript(&home, head.as_str()).exists(),
        "the agent's own transcript is not deleted"
    );
}

/// A copy that lacks the last turn is reported as partial, although it contains as many turns as were acknowledged: one
/// of its turns was cancelled, and is not counted.
#[tokio::test]
async fn d14_a_copy_without_the_last_turn_is_told_as_partial() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    let mut raw = daemon.raw().await;
    let (running, _) = raw.hang(id).await;
    app.ask("conversation/cancel", id).await;
    raw.answer(running).await;
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    drop(daemon);
    fs::create_dir_all(home.path().join("config")).unwrap();
    fs::write(
        home.path().join("config/config.toml"),
        "[keep]\nenabled = false\n",
    )
    .unwrap();
    let (_daemon, app) = home.opened().await;
    app.send(id, "second").await;
    app.close(id).await;
    lose(&home);
    let resumed = app.send(id, "third").await.resumed.unwrap();
    assert_eq!(tried(&resumed).last(), Some(&(Via::Archive, true)));
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Partial, 1));
    let remembered = app.remembered(id).await;
    assert_eq!((remembered.len(), remembered[0].as_str()), (3, "first"));
    assert_eq!(remembered[2], "third");
}

/// F12: a transcript that was lost before its conversation moved is restored in the new folder, and its records name
/// the new folder. This works after several moves, and also on request.
#[tokio::test]
async fn f12_what_was_lost_before_a_move_comes_back_in_the_new_folder() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut cwd = home.project();
    let id = app.begun(&cwd, &["first"]).await;
    let head = app.get(id).await.head.unwrap();
    let mut said = vec!["first".to_owned()];
    for (round, name) in ["a much longer name é", "b", "project", "c"]
        .into_iter()
        .enumerate()
    {
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        let records = fs::read_to_string(transcript(&home, head.as_str())).unwrap();
        lose(&home);
        // Move the conversation alone and the whole folder in turn.
        let new = home.folder_named(name);
        match round % 2 {
            0 => drop(move_to(&app, id, &new).await.unwrap()),
            _ => drop(move_tree(&app, &cwd, &new).await.unwrap()),
        }
        let expected = records.replace(&format!("\"cwd\":\"{cwd}\""), &format!("\"cwd\":\"{new}\""));
        assert!(round == 0 || expected != records);
        let via = match round {
            2 => {
                let put = restore(&app, json!({"conversationId": id})).await.unwrap();
                assert_eq!(put.restored, [transcript(&home, head.as_str()).to_str().unwrap()]);
                // A second restore has nothing to do.
                let again = restore(&app, json!({"conversationId": id})).await.unwrap();
                assert_eq!(again.restored, [] as [String; 0]);
                Via::Resume
            }
            _ => Via::Archive,
        };
        let text = format!("in {name}");
        let turn = app.send(id, &text).await;
        let resumed = turn.resumed.unwrap();
        check_resumed(&resumed, via, Fidelity::Full, 0);
        assert_eq!(turn.upstream_id, head);
        let path = transcript(&home, head.as_str());
        assert!(fs::read_to_string(&path).unwrap().starts_with(&expected));
        assert!(folders_in(&path).iter().all(|folder| *folder == new));
        said.push(text);
        assert_eq!(app.remembered(id).await, said);
        said.push("[[recall]]".to_owned());
        cwd = new;
    }
    assert_eq!(app.chain(id).await.len(), 1);
}

/// A fork and an edit restore a missing transcript as a prompt does, without a resume first.
#[tokio::test]
async fn d14_what_the_agent_has_deleted_is_put_back_for_a_branch_of_it() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let prompts = ["first", "second", "third"];
    let id = app.begun(&home.project(), &prompts).await;
    let places = app.checkpoints(id).await.into_iter();
    let places: Vec<String> = places.map(|place| place.id.as_str().to_owned()).collect();
    app.close(id).await;
    let fork = |at: Option<&String>| json!({"conversationId": id, "at": at});
    let edit = |at: &String| json!({"conversationId": id, "at": at, "prompt": "instead"});

    // Without a copy the calls are refused and change nothing.
    let aside = home.data().join("aside");
    let projects = home.data().join("loopback/projects");
    fs::rename(&projects, &aside).unwrap();
    let forked = app.call("conversation/fork", fork(Some(&places[1]))).await;
    refused(forked, ErrorKind::AgentError);
    let edited = app.call("conversation/edit", edit(&places[1])).await;
    refused(edited, ErrorKind::TranscriptDamaged);
    fs::rename(&aside, &projects).unwrap();

    keep(&app, json!({"conversationId": id})).await.unwrap();
    let head = app.get(id).await.head.unwrap();
    let whole = fs::read(transcript(&home, head.as_str())).unwrap();
    for (turns, at) in [(1, Some(&places[0])), (2, Some(&places[1])), (3, None)] {
        lose(&home);
        let forked = app.call("conversation/fork", fork(at)).await.unwrap();
        assert_eq!(forked["fidelity"], "full");
        let branch = id_in(&forked);
        assert_eq!(app.remembered(branch).await, prompts[..turns]);
        assert_eq!(fs::read(transcript(&home, head.as_str())).unwrap(), whole);
    }
    for (turns, at) in places.iter().enumerate() {
        lose(&home);
        let edited = app.call("conversation/edit", edit(at)).await.unwrap();
        assert_eq!(
            (&edited["fidelity"], &edited["dropped"]),
            (&json!("full"), &json!(3 - turns))
        );
        assert_eq!(
            app.remembered(id).await,
            [&prompts[..turns], &["instead"]].concat()
        );
        app.ask("conversation/undo", id).await;
        assert_eq!(fs::read(transcript(&home, head.as_str())).unwrap(), whole);
    }
    // A refused fork of another conversation restores no transcript of this one.
    let other = app.begun(&home.project(), &["other"]).await;
    lose(&home);
    let forked = app
        .call(
            "conversation/fork",
            json!({"conversationId": other, "at": places[0]}),
        )
        .await;
    refused(forked, ErrorKind::CheckpointNotFound);
    assert_eq!(home.transcript(head.as_str()), None);
}

#[tokio::test]
async fn a_copy_that_is_older_than_the_conversation_is_resumed_and_told_before_it_is_branched() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    // A cancelled turn is in the transcript but is not counted, so the number of turns does not show that one is
    // missing.
    for cancelled in [false, true] {
        let id = app.begun(&home.project(), &["first", "second"]).await;
        if cancelled {
            let mut raw = daemon.raw().await;
            let (running, _) = raw.hang(id).await;
            let cancel = app.call("conversation/cancel", json!({"conversationId": id}));
            cancel.await.unwrap();
            raw.answer(running).await;
        }
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
        app.send(id, "never kept").await;
        let place = app.checkpoints(id).await[0].id.clone();
        app.close(id).await;
        lose(&home);
        let edit = json!({"conversationId": id, "at": place, "prompt": "instead"});
        for (method, params) in [
            ("conversation/fork", json!({"conversationId": id})),
            ("conversation/fork", json!({"conversationId": id, "at": place})),
            ("conversation/edit", edit),
        ] {
            let refusal = app.call(method, params).await;
            refused(refusal, ErrorKind::TranscriptDamaged);
        }
        // A restore on request reports the missing turn too.
        let told = restore(&app, json!({"conversationId": id})).await.unwrap();
        assert_eq!((told.restored.len(), told.missing_turns), (1, 1));
        lose(&home);
        let resumed = app
            .call("conversation/resume", json!({"conversationId": id}))
            .await;
        let resumed = resumed.unwrap()["resumed"].clone();
        assert_eq!(
            (&resumed["via"], &resumed["missingTurns"]),
            (&json!("archive"), &json!(1)),
            "{cancelled}"
        );
        let forked = app.fork(id, false).await.unwrap();
        assert_eq!(
            app.remembered(forked.conversation.id).await[..2],
            ["first", "second"]
        );
        app.close(id).await;
    }
}

/// A session is restored to the place that belongs to the folder in which it ran, even if the conversation runs in
/// another folder now.
#[tokio::test]
async fn what_is_put_back_for_a_branch_lies_where_it_ran() {
    let home = Home::keeping_nothing();
    let (old, new) = (home.project(), home.folder_named("other"));
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&old, &["first", "second"]).await;
    let place = app.checkpoints(id).await[0].id.clone();
    let first = app.get(id).await.head.unwrap();
    app.close(id).await;
    let path = transcript(&home, first.as_str());
    keep(&app, json!({"conversationId": id})).await.unwrap();
    let fork = json!({"conversationId": id, "inPlace": true, "cwd": new});
    app.call("conversation/fork", fork).await.unwrap();
    app.send(id, "third").await;
    fs::remove_file(&path).unwrap();
    let fork = json!({"conversationId": id, "at": place});
    app.call("conversation/fork", fork).await.unwrap();
    assert_eq!(transcript(&home, first.as_str()), path);
}

/// After the agent's own clean-up, a branch that was never prompted has no transcript, and only a kept copy is left of
/// its source.
#[tokio::test]
async fn d14_a_branch_that_was_never_prompted_is_made_again_of_what_is_kept_of_its_source() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first", "second"]).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    let fork = app.fork(id, false).await.unwrap().conversation.id;
    app.close(fork).await;
    lose(&home);
    assert_eq!(app.remembered(fork).await, ["first", "second"]);
}

/// A session that the conversation has left is restored into the folder that the conversation has by then.
#[tokio::test]
async fn a_session_that_was_left_names_the_folder_in_which_it_is_restored() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let left = app.get(id).await.head.unwrap();
    let places = app.checkpoints(id).await;
    app.close(id).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.ask("conversation/reset", id).await;
    app.send(id, "anew").await;
    app.close(id).await;
    let new = home.folder_named("new");
    move_to(&app, id, &new).await.unwrap();
    lose(&home);
    let fork = json!({"conversationId": id, "at": places[0].id});
    app.call("conversation/fork", fork).await.unwrap();
    let folders = folders_in(&transcript(&home, left.as_str()));
    assert!(
        !folders.is_empty() && folders.iter().all(|folder| *folder == new),
        "{folders:?}"
    );
}

/// A move writes a new file, so the kept hard link must be made again.
#[tokio::test]
async fn a_moved_transcript_is_linked_again() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut cwd = home.project();
    let id = app.begun(&cwd, &["first"]).await;
    once_kept(&app, |total| total.sessions == 1).await;
    for (is_tree, name) in [(false, "moved"), (true, "moved-again")] {
        let new = home.folder_named(name);
        match is_tree {
            false => drop(move_to(&app, id, &new).await.unwrap()),
            true => drop(move_tree(&app, &cwd, &new).await.unwrap()),
        }
        let head = app.get(id).await.head.unwrap();
        let path = transcript(&home, head.as_str());
        let kept = home.data().join("kept");
        let inode = |path: &Path| path.metadata().ok().map(|metadata| metadata.ino());
        let is_linked = || {
            let mut links = files_below(&kept).into_iter();
            links.any(|link| inode(&link) == inode(&path)).then_some(())
        };
        Watched::below(&home.data()).wait_for("the link to the moved transcript", is_linked);
        cwd = new;
    }
}
