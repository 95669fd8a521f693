//! Requests that the state of a conversation does not allow.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::{Refusal, refused};

/// An agent that can neither resume nor load would lose the history with the session, so a close is refused. A reset,
/// which gives the history up, closes the session.
#[tokio::test]
async fn closing_what_cannot_be_brought_back_is_refused() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app
        .make_with(&home.project(), json!({"agent": "scripted", "open": true}))
        .await
        .id;
    app.close(id).await;
    let head = app.send(id, "\n").await.upstream_id;
    let mut raw = daemon.raw().await;
    let this = json!({"conversationId": id});
    let expected = Refusal(1012, "conflict", false);
    raw.refused("conversation/close", this.clone(), expected).await;
    let conversation = app.get(id).await;
    assert_eq!((conversation.live, conversation.head), (true, Some(head)));
    app.send(id, "\n").await;
    app.call("conversation/reset", this).await.unwrap();
    assert!(!app.get(id).await.live);
}

#[tokio::test]
async fn an_answer_to_no_question_or_with_no_sense_or_too_late_is_refused() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let respond = |interrupt: &Value, outcome: Value| json!({"conversationId": id, "interruptId": interrupt, "outcome": outcome});
    let unknown = Refusal(1001, "notFound", false);
    let nothing = respond(&json!("nothing"), json!({"outcome": "cancelled"}));
    raw.refused("conversation/respond", nothing, unknown).await;

    let (request, _) = raw.run(id, "[[ask may I?]] [[say thanks]]").await;
    let question = raw.event("interruptRaised").await["interrupt"].clone();
    let mut other = daemon.raw().await;
    for outcome in [
        json!("yes"),
        json!({}),
        json!({"outcome": "selected"}),
        json!({"outcome": "selected", "optionId": "allow_for_ever"}),
        json!({"outcome": "approved"}),
        json!(null),
    ] {
        let expected = Refusal(-32602, "invalidParams", false);
        other
            .refused(
                "conversation/respond",
                respond(&question["id"], outcome),
                expected,
            )
            .await;
    }
    assert_eq!(app.get(id).await.state, ConversationState::Awaiting);

    let yes = json!({"outcome": "selected", "optionId": "allow_once"});
    let answered = other
        .ask("conversation/respond", respond(&question["id"], yes.clone()))
        .await;
    assert_eq!(answered["result"], json!({}));
    let late = Refusal(1013, "interruptResolved", false);
    let data = other
        .refused("conversation/respond", respond(&question["id"], yes), late)
        .await;
    assert_eq!(data["by"], "client");
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancelling_nothing_is_no_error_and_cancels_nothing() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    for more in [json!({}), json!({"queued": true}), json!({"turnId": "unknown"})] {
        let mut params = more;
        params["conversationId"] = json!(id);
        let answer = app.call("conversation/cancel", params).await.unwrap();
        assert_eq!(answer, json!({"cancelled": false}));
    }
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    let other = json!({"conversationId": id, "turnId": "unknown"});
    let answer = app.call("conversation/cancel", other).await.unwrap();
    assert_eq!(answer, json!({"cancelled": false}), "another turn is left alone");
    assert_eq!(app.get(id).await.state, ConversationState::Prompting);
    app.ask("conversation/cancel", id).await;
    holder.answer(request).await;
}

/// F39: a conversation that was never prompted has nothing to branch from, so a fork in place is refused.
#[tokio::test]
async fn a_conversation_that_was_never_prompted_has_no_branch_in_place() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    refused(app.fork(id, true).await, ErrorKind::Conflict);
    // The same applies if its session is open but was not written to.
    app.ask("conversation/resume", id).await;
    refused(app.fork(id, true).await, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_change_on_an_old_revision_is_refused_with_the_present_one() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let made = app.make_with(&home.project(), json!({})).await;
    let update = |title: &str, revision: u64| json!({"conversationId": made.id, "title": title, "expectedRevision": revision});
    let first = app
        .call("conversation/update", update("mine", made.revision))
        .await
        .unwrap();
    let revision = first["conversation"]["revision"].as_u64().unwrap();
    assert!(revision > made.revision);
    let error = refused(
        app.call("conversation/update", update("theirs", made.revision))
            .await,
        ErrorKind::RevisionMismatch,
    );
    assert_eq!(error.detail("revision"), revision);
    assert_eq!(app.get(made.id).await.title, "mine");
}
