//! Usage limits: a limited conversation has a state with a time, and keeps its session.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::turn::{FailureKind, StopReason};
use serde_json::json;

use crate::home::Home;

/// F20, F23, F25: a prompt that hits a limit is tried once, the head is kept, and the time of the reset is reported.
#[tokio::test]
async fn a_limit_is_told_with_its_reset_and_keeps_everything() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let head = app.send(id, "before").await.upstream_id;
    let mut events = app.events(id).await;
    let before = app.get(id).await.updated_at;
    let turn = app.send(id, "[[limit 3600]]").await;
    assert_eq!(turn.stop_reason, StopReason::Failed);
    let failure = turn.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::RateLimited);
    let resets_at = failure.resets_at.unwrap();
    // One hour after some moment of the turn, rounded up to a second.
    let after = app.get(id).await.updated_at;
    let [earliest, latest] = [before, after].map(|time| time.as_second() + 3_600);
    assert!(
        (earliest..=latest + 1).contains(&resets_at.as_second()),
        "{resets_at}"
    );
    let Event::Limited { limit } = events.until("limited").await else {
        unreachable!()
    };
    assert_eq!(
        (limit.kind, limit.resets_at),
        (FailureKind::RateLimited, Some(resets_at))
    );
    let conversation = app.get(id).await;
    assert_eq!(conversation.state, ConversationState::Limited);
    assert_eq!(conversation.limit, Some(limit));
    assert_eq!(
        (conversation.head, conversation.chain_length),
        (Some(head.clone()), 1)
    );

    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(
        app.get(id).await.state,
        ConversationState::Limited,
        "the limit survives a restart"
    );
    // A prompt is tried despite the limit. If it succeeds, the limit is cleared.
    let turn = app.send(id, "something small").await;
    assert_eq!((turn.stop_reason, turn.upstream_id), (StopReason::EndTurn, head));
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.limit),
        (ConversationState::Idle, None)
    );
    assert_eq!(app.remembered(id).await, ["before", "something small"]);
}

/// F22: the limit of one conversation does not affect another.
#[tokio::test]
async fn a_limit_of_one_conversation_is_none_of_the_others() {
    let home = Home::new();
    let (_daemon, app, limited) = home.begun(&[]).await;
    let other = app.make(&home.project()).await;
    app.send(limited, "[[limit 3600]]").await;
    assert_eq!(app.send(other, "hello").await.stop_reason, StopReason::EndTurn);
    assert_eq!(app.get(other).await.state, ConversationState::Idle);
    assert_eq!(app.get(limited).await.state, ConversationState::Limited);
}

/// If the upstream session is missing after a limit, the history continues under a new id, with `limit` as the cause.
#[tokio::test]
async fn a_session_that_is_gone_after_a_limit_is_rolled_for_that_cause() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    app.send(id, "[[forget]][[limit 3600]]").await;
    assert_eq!(app.get(id).await.state, ConversationState::Limited);
    let mut events = app.events(id).await;
    let turn = app.send(id, "after").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    let rolled = events.until("rolled").await;
    assert_eq!(serde_json::to_value(&rolled).unwrap()["cause"], json!("limit"));
    assert_eq!(app.remembered(id).await, ["before", "after"]);
    let chain = app.chain(id).await;
    assert_eq!(chain.len(), 2);
    assert_eq!(serde_json::to_value(chain[1].cause).unwrap(), json!("limit"));
}
