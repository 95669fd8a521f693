//! Forks at a checkpoint: the branch has the turns up to it and no more, and the source stays as it was.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ForkAnswer;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::Fidelity;
use bridge_protocol::rpc::ConversationRpcClient;
use serde_json::json;

use crate::home::Home;
use crate::support::{App, refused, told, within};

async fn fork_at(app: &App, id: ConversationId, in_place: bool, at: &str) -> Result<ForkAnswer, BridgeError> {
    let fork = app.client.fork(
        id.into(),
        Some(in_place),
        Some(at.to_owned()),
        None,
        None,
        None,
        None,
    );
    within(fork).await.map_err(told)
}

/// The checkpoints of a conversation, oldest first.
async fn checkpoints(app: &App, id: ConversationId) -> Vec<Checkpoint> {
    let page = within(app.client.checkpoints(id.into(), None, None))
        .await
        .unwrap();
    page.checkpoints.into_iter().rev().collect()
}

const PROMPTS: [&str; 3] = ["one", r#"two [[tool read {"path":"a"}]][[say done]]"#, "three"];

#[tokio::test]
async fn a_branch_has_the_turns_up_to_its_checkpoint() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let source = home.transcript_of(&app, id).await;
    let before = std::fs::read(&source).unwrap();
    for (index, checkpoint) in checkpoints(&app, id).await.into_iter().enumerate() {
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

/// Also of a session that is not the head any more.
#[tokio::test]
async fn in_place_what_is_left_stays_reachable() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let all = checkpoints(&app, id).await;
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
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let all = checkpoints(&app, id).await;
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
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let other = app.begun(&home.project(), &["elsewhere"]).await;
    let of_other = checkpoints(&app, other).await[0].id.clone();
    let of_own = checkpoints(&app, id).await[0].id.clone();
    let (session, _) = of_own.as_str().rsplit_once('.').unwrap();
    let nowhere = format!("{session}.nowhere");
    let never = app.make(&home.project()).await;
    for (conversation, at, kind) in [
        (id, of_other.as_str(), ErrorKind::NotFound),
        (id, nowhere.as_str(), ErrorKind::NotFound),
        (never, of_own.as_str(), ErrorKind::NotFound),
        (id, "the second", ErrorKind::InvalidParams),
    ] {
        for in_place in [false, true] {
            let error = fork_at(&app, conversation, in_place, at).await.unwrap_err();
            assert_eq!(error.kind, kind, "{at}: {error:?}");
        }
    }
    let message = app
        .call("conversation/history", json!({"conversationId": id}))
        .await
        .unwrap();
    let message = message["messages"][0]["id"].as_str().unwrap().to_owned();
    refused(
        fork_at(&app, id, false, &message).await,
        ErrorKind::Unsupported,
        "names a message",
    );
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 3);
    assert_eq!(app.remembered(id).await, PROMPTS);
}
