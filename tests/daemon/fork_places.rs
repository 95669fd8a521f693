//! Forks at a checkpoint or a message: the branch has the history up to it and no more, and the source stays unchanged.

use bridge_protocol::method::Fork;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, ForkAnswer};
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::Fidelity;
use serde_json::json;

use crate::home::{Daemon, Home};
use crate::support::{App, refused};

async fn fork_at(app: &App, id: ConversationId, in_place: bool, at: &str) -> Result<ForkAnswer, BridgeError> {
    app.result(Fork {
        conversation_id: id.into(),
        in_place,
        at: Some(at.to_owned()),
        ..Default::default()
    })
    .await
}

const PROMPTS: [&str; 3] = ["one", r#"two [[tool read {"path":"a"}]][[say done]]"#, "three"];

/// Makes a conversation with the turns of `PROMPTS`. Returns a client, the conversation, and its transcript.
async fn with_a_past(daemon: &Daemon<'_>, home: &Home) -> (App, ConversationId, PathBuf) {
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let source = home.transcript_of(&app, id).await;
    (app, id, source)
}

// Against D7.
#[tokio::test]
async fn a_branch_has_the_turns_up_to_its_checkpoint() {
    let home = Home::new();
    let daemon = home.start();
    let (app, id, source) = with_a_past(&daemon, &home).await;
    let before = std::fs::read(&source).unwrap();
    for (index, checkpoint) in app.checkpoints(id).await.into_iter().enumerate() {
        let fork = fork_at(&app, id, false, checkpoint.id.as_str()).await.unwrap();
        assert_eq!(fork.fidelity, Fidelity::Full);
        let link = fork.link.unwrap();
        assert_eq!(link.from_checkpoint_id.as_ref(), Some(&checkpoint.id));
        assert_eq!(link.carried_turns, index as u64 + 1);
        assert_eq!(
            fork.conversation.parent.unwrap().checkpoint_id,
            Some(checkpoint.id)
        );
        let branch = fork.conversation.id;
        assert_eq!(app.remembered(branch).await, PROMPTS[..=index]);
    }
    assert_eq!(std::fs::read(&source).unwrap(), before);
}

/// A branch never has a tool call without its result. A branch at such a call ends before it, like a branch at the
/// message before it.
// Against D7.
#[tokio::test]
async fn a_branch_at_a_message_is_rounded_to_whole_calls() {
    let home = Home::new();
    let daemon = home.start();
    let (app, id, source) = with_a_past(&daemon, &home).await;
    let before = std::fs::read(&source).unwrap();
    let messages = app.messages(id).await;
    let kinds: Vec<&str> = messages.iter().map(|(_, kind)| kind.as_str()).collect();
    let of_tool = ["text", "toolCall", "toolResult", "text"];
    assert_eq!(kinds, [&["text"; 2], &of_tool[..], &["text"; 2]].concat());
    // For a branch at each message: the replies of all three turns, with `-` for a turn that is not in the branch. A
    // call without a result adds nothing.
    let done = |replies: [&str; 3]| {
        let turns = PROMPTS.iter().zip(replies);
        let turns = turns.filter(|(_, reply)| *reply != "-");
        turns
            .map(|(prompt, reply)| ((*prompt).to_owned(), reply.to_owned()))
            .collect::<Vec<_>>()
    };
    let table = [
        done(["", "-", "-"]),
        done(["echo: one", "-", "-"]),
        done(["echo: one", "", "-"]),
        done(["echo: one", "", "-"]),
        done(["echo: one", "", "-"]),
        done(["echo: one", "done", "-"]),
        done(["echo: one", "done", ""]),
        done(["echo: one", "done", "echo: three"]),
    ];
    for ((message, _), expected) in messages.iter().zip(table) {
        let fork = fork_at(&app, id, false, message).await.unwrap();
        assert_eq!(
            (fork.fidelity, fork.via),
            (Fidelity::Full, Some(BranchedVia::Cut))
        );
        let turns = app.recall(fork.conversation.id).await;
        let turns: Vec<_> = turns
            .into_iter()
            .map(|turn| (turn.user, turn.assistant))
            .collect();
        assert_eq!(turns, expected, "{message}");
    }
    let branched = fork_at(&app, id, false, &messages[3].0).await.unwrap();
    let of_branch = app.messages(branched.conversation.id).await;
    assert_eq!(of_branch.len(), 3, "call in branch: {of_branch:#?}");
    let branched = fork_at(&app, id, false, &messages[4].0).await.unwrap();
    assert_eq!(app.messages(branched.conversation.id).await.len(), 5);
    assert_eq!(std::fs::read(&source).unwrap(), before);
}

/// A fork can also begin at a checkpoint of a session that is no longer the head.
#[tokio::test]
async fn in_place_what_is_left_stays_reachable() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let all = app.checkpoints(id).await;
    let fork = fork_at(&app, id, true, all[0].id.as_str()).await.unwrap();
    assert_eq!((fork.conversation.id, fork.fidelity), (id, Fidelity::Full));
    app.send(id, "instead").await;
    assert_eq!(app.remembered(id).await, ["one", "instead"]);
    let old = fork_at(&app, id, false, all[2].id.as_str()).await.unwrap();
    assert_eq!(app.remembered(old.conversation.id).await, PROMPTS);
}

#[tokio::test]
async fn while_a_turn_runs_it_branches_side_by_side() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&PROMPTS).await;
    let all = app.checkpoints(id).await;
    let mut holder = daemon.raw().await;
    holder.hang(id).await;
    let fork = fork_at(&app, id, false, all[1].id.as_str()).await.unwrap();
    assert_eq!(fork.fidelity, Fidelity::Full);
    assert_eq!(app.remembered(fork.conversation.id).await, PROMPTS[..2]);
    let error = fork_at(&app, id, true, all[1].id.as_str()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
}

#[tokio::test]
async fn what_is_no_place_of_the_conversation_is_refused_and_makes_nothing() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let other = app.begun(&home.project(), &["elsewhere"]).await;
    let of_other = app.checkpoints(other).await[0].id.clone();
    let of_own = app.checkpoints(id).await[0].id.clone();
    let (session, _) = of_own.as_str().rsplit_once('.').unwrap();
    let nowhere = format!("{session}.nowhere");
    let of_nobody = app.messages(other).await[0].0.clone();
    let never = app.make(&home.project()).await;
    for (conversation, at, kind) in [
        (id, of_other.as_str(), ErrorKind::CheckpointNotFound),
        (id, nowhere.as_str(), ErrorKind::CheckpointNotFound),
        (never, of_own.as_str(), ErrorKind::CheckpointNotFound),
        (id, of_nobody.as_str(), ErrorKind::NotFound),
        (id, "the second", ErrorKind::InvalidParams),
    ] {
        for in_place in [false, true] {
            let error = fork_at(&app, conversation, in_place, at).await.unwrap_err();
            assert_eq!(error.kind, kind, "{at}: {error:?}");
        }
    }
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 3);
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// If a transcript is missing, the daemon cannot know that it lacks the checkpoint, so the error is not
/// `CheckpointNotFound`. Once the transcript is restored, the fork succeeds.
#[tokio::test]
async fn a_place_in_what_is_gone_is_not_said_to_be_none() {
    let home = Home::keeping_nothing();
    let daemon = home.start();
    let (app, id, source) = with_a_past(&daemon, &home).await;
    let place = app.checkpoints(id).await[1].id.clone();
    let message = app.messages(id).await[1].0.clone();
    let edit = json!({"conversationId": id, "at": place, "prompt": "instead"});
    app.close(id).await;
    let whole = std::fs::read(&source).unwrap();
    std::fs::remove_file(&source).unwrap();
    let edited = app.call("conversation/edit", edit).await;
    refused(edited, ErrorKind::TranscriptDamaged);
    let forked = fork_at(&app, id, false, &message).await;
    refused(forked, ErrorKind::TranscriptDamaged);
    let nowhere = fork_at(&app, id, false, "cp.loopback.nowhere.x").await;
    refused(nowhere, ErrorKind::CheckpointNotFound);
    std::fs::write(&source, whole).unwrap();
    let fork = fork_at(&app, id, false, &message).await.unwrap();
    assert_eq!(app.remembered(fork.conversation.id).await, PROMPTS[..1]);
}

/// The branch's transcript is written where the agent looks for sessions of that folder.
#[tokio::test]
async fn a_branch_at_a_place_may_have_a_folder_of_its_own() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let first = app.checkpoints(id).await.remove(0);
    let elsewhere = home.folder_named("elsewhere");
    let params = json!({"conversationId": id, "at": first.id, "cwd": elsewhere});
    let made: ForkAnswer =
        serde_json::from_value(app.call("conversation/fork", params).await.unwrap()).unwrap();
    let (branch, source) = (made.conversation.id, home.transcript_of(&app, id).await);
    let copy = home.transcript_of(&app, branch).await;
    assert_ne!(copy.parent(), source.parent());
    assert!(
        copy.parent().unwrap().to_string_lossy().ends_with("elsewhere"),
        "{copy:?}"
    );
    app.send(branch, "[[write made.txt x]]").await;
    assert!(home.path().join("elsewhere/made.txt").exists());
    assert_eq!(app.remembered(branch).await[0], "one");
}
