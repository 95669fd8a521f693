//! A full disk: changes that cannot be written are refused and leave everything as it was, also in files outside the
//! data folder.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, RollCause, Via};
use rustix::io::Errno;
use serde_json::json;

use super::damaged::{first_reply, tear};
use super::edits::places;
use super::external_changes::{limit_files, limit_files_of};
use super::keeping::{lose, once_kept};
use crate::carrying::files_below;
use crate::failing_calls::{Call, Calls};
use crate::home::{Daemon, Home};
use crate::support::{App, Refusal, tried};
use crate::watching::append;

/// Leaves the daemon no room for another journal line.
fn fill(daemon: &Daemon<'_>) {
    let journal = daemon.home.data().join("journal.jsonl");
    limit_files(daemon, Some(fs::metadata(journal).unwrap().len()));
}

/// The question's agent has ended, so the question exists only in the record.
#[tokio::test]
async fn a_question_whose_refusal_could_not_be_written_stays_open() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    raw.run(id, "[[ask May I?]]").await;
    let raised = raw.event("interruptRaised").await;
    daemon.kill();
    let (daemon, app) = home.opened().await;
    assert!(app.get(id).await.interrupts[0].orphaned);
    fill(&daemon);
    let outcome = json!({"outcome": "selected", "optionId": "reject_once"});
    let answer = json!({"conversationId": id, "interruptId": raised["interrupt"]["id"], "outcome": outcome});
    let told = app.call("conversation/respond", answer.clone()).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::StoreFailed);
    assert_eq!(app.get(id).await.interrupts.len(), 1);
    limit_files(&daemon, None);
    app.call("conversation/respond", answer).await.unwrap();
    daemon.kill();
    let daemon = home.start();
    let conversation = daemon.app().await.get(id).await;
    assert!(conversation.interrupts.is_empty());
    assert_eq!(conversation.state, ConversationState::Idle);
}

#[tokio::test]
async fn a_branch_that_could_not_be_written_down_leaves_no_file() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one", "two"]).await;
    let at = app.checkpoints(id).await[0].id.clone();
    app.close(id).await;
    let transcripts = || files_below(&home.data().join("loopback/projects"));
    let before = transcripts();
    fill(&daemon);
    for in_place in [true, false] {
        let fork = json!({"conversationId": id, "at": at, "inPlace": in_place});
        let told = app.call("conversation/fork", fork).await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::StoreFailed);
        assert_eq!(transcripts(), before, "in place: {in_place}");
    }
    limit_files(&daemon, None);
    assert_eq!(app.remembered(id).await, ["one", "two"]);
    let fork = json!({"conversationId": id, "at": at, "inPlace": true});
    app.call("conversation/fork", fork).await.unwrap();
    assert_eq!(app.remembered(id).await, ["one"]);
    daemon.kill();
    let daemon = home.start();
    assert_eq!(daemon.app().await.remembered(id).await[0], "one");
}

/// If the copy stayed, a retry of the call would make a second one.
#[tokio::test]
async fn a_repair_whose_answer_could_not_be_recorded_leaves_no_copy() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    // Makes the journal longer than the transcript, so that the copy fits within the limit.
    let id = app.begun(&home.project(), &["one", "two"]).await;
    for _ in 0..20 {
        app.make(&home.project()).await;
    }
    app.close(id).await;
    let held = app.get(id).await.head.unwrap();
    let old = "0f1a1f5e-0000-4000-8000-000000000000";
    let projects = home.data().join("loopback/projects");
    let source = projects.join(format!("-elsewhere/{old}.jsonl"));
    let text = fs::read_to_string(home.transcript(held.as_str()).unwrap()).unwrap();
    fs::create_dir_all(source.parent().unwrap()).unwrap();
    fs::write(&source, text.replace(held.as_str(), old) + "{\"type\":\"us").unwrap();
    let before = files_below(&projects);
    let repair = json!({"upstreamId": old, "repair": true, "requestId": "key"});
    fill(&daemon);
    let told = app.call("transcript/check", repair.clone()).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::StoreFailed);
    assert_eq!(files_below(&projects), before);
    limit_files(&daemon, None);
    let answer = app.call("transcript/check", repair.clone()).await.unwrap();
    assert_eq!(files_below(&projects).len(), before.len() + 1);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.call("transcript/check", repair).await.unwrap(), answer);
    assert_eq!(files_below(&projects).len(), before.len() + 1);
}

/// A fork without room for its copy names the file and can be retried, whether the agent or the daemon makes the copy.
#[tokio::test]
async fn a_fork_without_room_for_its_copy_can_be_tried_again() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "[[stream 1000 0]]"]).await;
    let at = app.checkpoints(id).await[1].id.clone();
    let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
    let transcript = home.transcript_of(&app, id).await;
    let limit = journal + 32_000;
    assert!(fs::metadata(&transcript).unwrap().len() > limit);
    limit_files(&daemon, Some(limit));
    limit_files_of(home.only_agent(), Some(limit));
    let mut raw = daemon.raw().await;
    let folder = transcript.parent().unwrap().to_str().unwrap();
    for fork in [json!({"at": at}), json!({})] {
        for in_place in [true, false] {
            let mut fork = fork.clone();
            fork["conversationId"] = json!(id);
            fork["inPlace"] = json!(in_place);
            let answer = raw.ask("conversation/fork", fork.clone()).await;
            Refusal(1015, "storeFailed", true).check(&answer, "a fork without room");
            assert!(
                answer["error"]["message"].as_str().unwrap().contains(folder),
                "{answer}"
            );
        }
    }
    limit_files(&daemon, None);
    // The system ended the first agent, and the daemon started another one with its own limit.
    for agent in home.agents() {
        limit_files_of(agent, None);
    }
    assert_eq!(app.remembered(id).await[0], "one");
    app.fork(id, false).await.unwrap();
}

/// The agent has forgotten the session, and there is no room for a copy of the whole transcript. This is temporary, so
/// the head stays.
#[tokio::test]
async fn a_head_whose_copy_finds_no_room_stays_until_there_is_room() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one", "[[stream 1000 0]][[forget]]"])
        .await;
    app.close(id).await;
    let before = (app.get(id).await.head, app.chain(id).await);
    let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
    let transcript = home.transcript_of(&app, id).await;
    let limit = journal + 32_000;
    assert!(fs::metadata(&transcript).unwrap().len() > limit);
    limit_files(&daemon, Some(limit));
    let error = app.try_send(id, "no room").await.unwrap_err();
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{error:?}"
    );
    assert_eq!((app.get(id).await.head, app.chain(id).await), before);

    limit_files(&daemon, None);
    let turn = app.send(id, "with room").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Copied, Fidelity::Full));
    assert_eq!(app.remembered(id).await[0], "one");
}

/// Sends a prompt for which the daemon has to write a transcript of this length, which the disk does not allow. Asserts
/// that the error is temporary, nothing counts as damaged, and the head stays. With room, the session comes back by way
/// of `via`.
async fn finds_no_room_and_comes_back(
    daemon: &Daemon<'_>,
    app: &App,
    id: ConversationId,
    bytes: u64,
    via: Via,
) {
    let before = (app.get(id).await.head, app.chain(id).await);
    let journal = fs::metadata(daemon.home.data().join("journal.jsonl")).unwrap();
    let limit = journal.len() + 32_000;
    assert!(bytes > limit);
    limit_files(daemon, Some(limit));
    let error = app.try_send(id, "no room").await.unwrap_err();
    assert_eq!(
        (error.kind, error.retryable),
        (ErrorKind::StoreFailed, true),
        "{via:?}: {error:?}"
    );
    let folder = daemon.home.data().join("loopback/projects");
    assert!(error.message.contains(folder.to_str().unwrap()), "{error:?}");
    assert_eq!((app.get(id).await.head, app.chain(id).await), before);

    limit_files(daemon, None);
    let resumed = app.send(id, "with room").await.resumed.unwrap();
    assert_eq!(tried(&resumed).last(), Some(&(via, true)));
    assert_eq!(app.remembered(id).await[0], "one");
}

#[tokio::test]
async fn a_repaired_copy_that_finds_no_room_is_made_when_there_is_room() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one", "two", "[[stream 1000 0]]"])
        .await;
    app.close(id).await;
    let transcript = home.transcript_of(&app, id).await;
    // The agent would continue from before the damage.
    let noted = json!({"type": "last-prompt", "lastPrompt": "one", "leafUuid": first_reply(&transcript)});
    append(&transcript, &format!("{noted}\n"));
    let head = app.get(id).await.head.unwrap();
    tear(&home, head.as_str(), "echo: two");
    let bytes = fs::metadata(&transcript).unwrap().len();
    finds_no_room_and_comes_back(&daemon, &app, id, bytes, Via::Rebuilt).await;
}

#[tokio::test]
async fn a_backup_that_finds_no_room_is_restored_when_there_is_room() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "[[stream 1000 0]]"]).await;
    let bytes = fs::metadata(home.transcript_of(&app, id).await).unwrap().len();
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    lose(&home);
    finds_no_room_and_comes_back(&daemon, &app, id, bytes, Via::Archive).await;
}

/// The disk fills up at various points of an edit. What the client was told holds once there is room, without a
/// restart, and after a kill.
#[tokio::test]
async fn an_edit_during_which_the_disk_fills_is_what_its_caller_was_told() {
    let (mut stood, mut refused) = (0, 0);
    for more in [0, 200, 400, 800, 1_600, 2_400, 3_200, 4_800, 6_400] {
        let home = Home::new();
        let (daemon, app, id) = home.begun(&["one", "two"]).await;
        let head = app.get(id).await.head;
        let at = places(&app, id).await[1][0].clone();
        let edit = json!({"conversationId": id, "at": at, "prompt": "[[say better]]", "requestId": "edit"});
        let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
        limit_files(&daemon, Some(journal + more));
        let told = app.call("conversation/edit", edit.clone()).await;
        limit_files(&daemon, None);
        let told = match told {
            Ok(told) => {
                stood += 1;
                told
            }
            Err(error) => {
                refused += 1;
                assert_eq!(
                    (error.kind, error.retryable),
                    (ErrorKind::StoreFailed, true),
                    "{more}: {error:?}"
                );
                assert_eq!(app.get(id).await.head, head, "{more}");
                assert_eq!(app.remembered(id).await, ["one", "two"], "{more}");
                continue;
            }
        };
        assert_eq!(told["turn"]["stopReason"], "end_turn", "{more}: {told}");
        let branch = told["link"]["upstreamId"].clone();
        let is_there = |conversation: &Conversation| json!(conversation.head) == branch;
        if !is_there(&app.get(id).await) {
            app.once(id, is_there).await;
        }
        let history = app.ask("conversation/history", id).await;
        assert!(
            history.to_string().contains("better") && !history.to_string().contains("\"two\""),
            "{more}"
        );
        daemon.kill();
        let (_daemon, app) = home.opened().await;
        let again = app.call("conversation/edit", edit).await.unwrap();
        assert_eq!(
            (&again["turn"]["turnId"], &again["link"]["upstreamId"]),
            (&told["turn"]["turnId"], &branch),
            "{more}"
        );
        assert_eq!(again["turn"]["stopReason"], "end_turn", "{more}: {again}");
        assert!(is_there(&app.get(id).await), "{more}");
        assert_eq!(app.remembered(id).await, ["one", "[[say better]]"], "{more}");
    }
    assert!(stood > 0 && refused > 0, "{stood} {refused}");
}

/// On a full disk, the agent leaves an empty transcript. No turn was acknowledged, so the conversation continues in a
/// new session and reports that. An edit of the first prompt can still be undone.
#[tokio::test]
async fn a_first_prompt_without_room_for_its_transcript_can_be_sent_again() {
    for (is_edit, is_kept) in [(false, true), (false, false), (true, true)] {
        let home = if is_kept {
            Home::new()
        } else {
            Home::keeping_nothing()
        };
        let calls = Calls::of(&home, &[Call::Write]);
        let (daemon, app) = calls.opened().await;
        let id = match is_edit {
            true => app.begun(&home.project(), &["one", "two"]).await,
            false => app.make(&home.project()).await,
        };
        let transcripts = home.data().join("loopback");
        calls.fail(Call::Write, &transcripts, Errno::NOSPC, usize::MAX);
        let failed = match is_edit {
            true => {
                let at = &places(&app, id).await[0][0];
                let edit = json!({"conversationId": id, "at": at, "prompt": "1"});
                app.call("conversation/edit", edit).await.unwrap()["turn"].take()
            }
            false => serde_json::to_value(app.send(id, "1").await).unwrap(),
        };
        assert_eq!(failed["stopReason"], "failed", "{failed}");
        let failed = failed["upstreamId"].as_str().unwrap().to_owned();
        let transcript = home.transcript(&failed).unwrap();
        assert_eq!(fs::metadata(&transcript).unwrap().len(), 0);
        assert!(calls.succeed() > 0);
        let kept = app.call("transcript/keep", json!({"conversationId": id})).await;
        daemon.kill();

        let (_daemon, app) = home.opened().await;
        let mut events = app.events(id).await;
        let turn = app.send(id, "2").await;
        let resumed = turn.resumed.unwrap();
        assert_eq!(
            tried(&resumed),
            [(Via::Resume, false), (Via::Fresh, true)],
            "{kept:?}"
        );
        assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
        let Event::Rolled { from, cause, .. } = events.until("rolled").await else {
            unreachable!()
        };
        assert_eq!(
            (from, cause),
            (Some(failed.as_str().into()), RollCause::Forgotten)
        );
        assert_eq!(app.remembered(id).await, ["2"]);
        assert_eq!(fs::metadata(&transcript).unwrap().len(), 0);
        if is_edit {
            app.ask("conversation/undo", id).await;
            assert_eq!(app.remembered(id).await, ["one", "two"]);
        }
    }
}
