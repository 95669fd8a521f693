//! Request ids: a call that is repeated runs once, also over the daemon's death.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Refusal, refused};

fn prompt(id: ConversationId, text: &str, request: &str) -> Value {
    json!({"conversationId": id, "prompt": text, "requestId": request})
}

#[tokio::test]
async fn the_same_prompt_again_joins_the_running_turn() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.make(&home.project()).await;
    let mut first = daemon.raw().await;
    first.subscribe(id).await;
    let text = "[[say working]][[hang]]";
    let asked = first.send("conversation/prompt", prompt(id, text, "r1")).await;
    first.event("promptAccepted").await;
    let mut second = daemon.raw().await;
    let again = second.send("conversation/prompt", prompt(id, text, "r1")).await;
    // Behind it on the same connection: by its answer the repetition has been admitted.
    let other = Refusal(1012, "conflict", false, "request id \"r1\" was used before");
    second
        .refused("conversation/prompt", prompt(id, "something else", "r1"), other)
        .await;
    assert!(second.passed.is_empty(), "the repetition waits with the first");
    app.call("conversation/cancel", json!({"conversationId": id}))
        .await
        .unwrap();
    let answers = (first.answer(asked).await, second.answer(again).await);
    assert_eq!(answers.0["result"]["stopReason"], "cancelled");
    assert_eq!(answers.0["result"], answers.1["result"]);
    assert_eq!(app.recall(id).await.len(), 1);
}

#[tokio::test]
async fn the_same_prompt_afterwards_returns_the_result_and_runs_nothing() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.make(&home.project()).await;
    let first = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    let again = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    assert_eq!(first, again);
    let other = app.call("conversation/prompt", prompt(id, "twice", "r1")).await;
    refused(other, ErrorKind::Conflict, "use a new id");
    let failed = app
        .call("conversation/prompt", prompt(id, "[[fail network]]", "r2"))
        .await;
    let again = app
        .call("conversation/prompt", prompt(id, "[[fail network]]", "r2"))
        .await;
    assert_eq!(failed.unwrap(), again.unwrap(), "a failure is a result too");
    // Another conversation's ids are its own.
    let sibling = app.make(&home.project()).await;
    let theirs = app
        .call("conversation/prompt", prompt(sibling, "once", "r1"))
        .await
        .unwrap();
    assert_ne!(theirs["turnId"], first["turnId"]);

    daemon.kill();
    let daemon = home.start();
    let app = daemon.app().await;
    let after = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    assert_eq!(after, first);
    let other = app.call("conversation/prompt", prompt(id, "twice", "r1")).await;
    refused(other, ErrorKind::Conflict, "use a new id");
    assert_eq!(
        app.remembered(id).await,
        ["once"],
        "the one that failed is no turn"
    );
}

/// F18: a prompt that was sent when the daemon was killed has its end, and is not sent again under the same id.
#[tokio::test]
async fn a_prompt_that_the_daemon_died_over_is_not_sent_again() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.make(&home.project()).await;
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let text = "[[write made.txt x]][[hang]]";
    raw.send("conversation/prompt", prompt(id, text, "r1")).await;
    let turn = raw.event("promptAccepted").await["turnId"].clone();
    daemon.kill();

    let daemon = home.start();
    let app = daemon.app().await;
    assert_eq!(app.get(id).await.state, ConversationState::Interrupted);
    let again = app
        .call("conversation/prompt", prompt(id, text, "r1"))
        .await
        .unwrap();
    assert_eq!(again["turnId"], turn);
    assert_eq!(again["stopReason"], "failed");
    assert_eq!(again["failure"]["kind"], "daemonRestarted");
    assert_eq!(app.remembered(id).await, [text]);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
}

#[tokio::test]
async fn a_conversation_and_a_fork_are_made_once() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let new = json!({"cwd": home.project(), "title": "one", "requestId": "n1"});
    let made = app.call("conversation/new", new.clone()).await.unwrap();
    assert_eq!(app.call("conversation/new", new.clone()).await.unwrap(), made);
    let other = json!({"cwd": home.project(), "title": "two", "requestId": "n1"});
    refused(
        app.call("conversation/new", other).await,
        ErrorKind::Conflict,
        "n1",
    );
    let id: ConversationId = serde_json::from_value(made["conversation"]["id"].clone()).unwrap();
    app.send(id, "first").await;
    let fork = json!({"conversationId": id, "title": "branch", "requestId": "f1"});
    let branch = app.call("conversation/fork", fork.clone()).await.unwrap();
    let same = |again: &Value| {
        assert_eq!(again["conversation"]["id"], branch["conversation"]["id"]);
        assert_eq!(again["link"], branch["link"]);
    };
    same(&app.call("conversation/fork", fork.clone()).await.unwrap());
    let other = json!({"conversationId": id, "title": "another", "requestId": "f1"});
    refused(
        app.call("conversation/fork", other).await,
        ErrorKind::Conflict,
        "f1",
    );
    daemon.kill();

    let daemon = home.start();
    let app = daemon.app().await;
    assert_eq!(app.call("conversation/new", new).await.unwrap(), made);
    same(&app.call("conversation/fork", fork).await.unwrap());
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["conversations"], 2);
}

/// Two calls of `new` with one id that cross each other make one conversation.
#[tokio::test]
async fn two_of_the_same_new_at_once_make_one_conversation() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let new = json!({"cwd": home.project(), "requestId": "n1"});
    let requests = [
        raw.send("conversation/new", new.clone()).await,
        raw.send("conversation/new", new).await,
    ];
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let answer = raw.next().await;
        assert!(requests.contains(&answer["id"].as_u64().unwrap()));
        ids.push(answer["result"]["conversation"]["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    let status = raw.ask("daemon/status", json!({})).await;
    assert_eq!(status["result"]["conversations"], 1);
}

#[tokio::test]
async fn a_reset_and_a_deletion_are_done_once() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.make(&home.project()).await;
    app.send(id, "before").await;
    let reset = json!({"conversationId": id, "requestId": "r1"});
    let first = app.call("conversation/reset", reset.clone()).await.unwrap();
    app.send(id, "after").await;
    assert_eq!(app.call("conversation/reset", reset).await.unwrap(), first);
    assert_eq!(app.remembered(id).await, ["after"], "the repetition did nothing");
    let delete = json!({"conversationId": id, "requestId": "d1"});
    assert_eq!(
        app.call("conversation/delete", delete.clone()).await.unwrap(),
        json!({})
    );
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
    let unkeyed = json!({"conversationId": id});
    refused(
        app.call("conversation/delete", unkeyed).await,
        ErrorKind::NotFound,
        "was deleted",
    );
}
