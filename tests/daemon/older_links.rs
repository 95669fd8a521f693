//! Recovery from the sessions that a head came from, after several edits or forks: turns that were edited away do not
//! come back.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::link::{Fidelity, Resumed, Via};
use bridge_protocol::method::Edit;
use bridge_protocol::raw::PromptContent;
use serde_json::json;

use super::edits::places;
use crate::damaged::tear;

use crate::home::Home;
use crate::resumed::check_resumed;
use crate::support::App;

const PROMPTS: [&str; 5] = ["u0", "u1", "u2", "u3", "u4"];

async fn edit(app: &App, id: ConversationId, turn: usize, text: &str) {
    let at = places(app, id).await[turn][0].clone();
    app.answer(Edit {
        conversation_id: id.into(),
        at,
        prompt: PromptContent::text(text),
        ..Default::default()
    })
    .await;
}

/// Makes a branch in place that ends after a turn.
async fn fork(app: &App, id: ConversationId, turn: usize) {
    let at = places(app, id).await[turn][0].clone();
    let fork = json!({"conversationId": id, "at": at, "inPlace": true});
    app.call("conversation/fork", fork).await.unwrap();
}

/// A conversation whose fifth and then second turn were edited, with another turn after that. Only `u0`, `e1` and `w`
/// are left. Returns its id and its three sessions, oldest first.
async fn edited_twice(home: &Home, app: &App) -> (ConversationId, [String; 3]) {
    let id = app.begun(&home.project(), &PROMPTS).await;
    edit(app, id, 4, "e4").await;
    edit(app, id, 1, "e1").await;
    app.send(id, "w").await;
    app.close(id).await;
    (id, sessions(app, id).await)
}

async fn sessions(app: &App, id: ConversationId) -> [String; 3] {
    let links = app.chain(id).await;
    let ids: Vec<String> = links.iter().map(|link| link.upstream_id.to_string()).collect();
    ids.try_into().unwrap()
}

fn remove(home: &Home, sessions: &[String]) {
    for id in sessions {
        fs::remove_file(home.transcript(id).unwrap()).unwrap();
    }
}

/// Sends `x`; returns how the session came back, and what the agent remembers.
async fn send(app: &App, id: ConversationId) -> (Resumed, Vec<String>) {
    let resumed = app.send(id, "x").await.resumed.unwrap();
    (resumed, app.remembered(id).await)
}

#[tokio::test]
async fn a_damaged_head_of_two_edits_is_not_left() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, [.., head]) = edited_twice(&home, &app).await;
    tear(&home, &head, "echo: e1");
    let (resumed, remembered) = send(&app, id).await;
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
    assert_eq!(remembered, ["u0", "e1", "w", "x"]);
}

/// Whichever older session is left, only what the edits kept of it is used.
#[tokio::test]
async fn a_lost_head_of_two_edits_leads_to_what_the_edits_kept() {
    for lost in [&[2][..], &[1, 2], &[0, 2]] {
        let home = Home::keeping_nothing();
        let (_daemon, app) = home.opened().await;
        let (id, sessions) = edited_twice(&home, &app).await;
        for &session in lost {
            remove(&home, &sessions[session..=session]);
        }
        let history = app.messages(id).await;
        assert_eq!(history.len(), 2, "{history:?}");
        let (resumed, remembered) = send(&app, id).await;
        check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 2);
        assert_eq!(remembered, ["u0", "x"], "{lost:?}");
    }
}

/// The result is the same if the agent itself deleted the head's transcript.
#[tokio::test]
async fn a_head_that_the_agent_lost_leads_to_what_the_edits_kept() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let (id, _) = edited_twice(&home, &app).await;
    app.send(id, "[[say gone]][[lose]]").await;
    let (resumed, remembered) = send(&app, id).await;
    check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 3);
    assert_eq!(remembered, ["u0", "x"]);
}

/// Two forks in place have the same result as two edits. The second fork was not prompted yet.
#[tokio::test]
async fn a_lost_fork_of_a_fork_leads_to_what_the_forks_kept() {
    for lost in [&[2][..], &[1, 2], &[0, 2]] {
        let home = Home::keeping_nothing();
        let (_daemon, app, id) = home.begun(&PROMPTS).await;
        fork(&app, id, 3).await;
        app.send(id, "e4").await;
        fork(&app, id, 1).await;
        app.close(id).await;
        let sessions = sessions(&app, id).await;
        for &session in lost {
            remove(&home, &sessions[session..=session]);
        }
        let (resumed, remembered) = send(&app, id).await;
        check_resumed(&resumed, Via::OlderLink, Fidelity::Full, 0);
        assert_eq!(remembered, ["u0", "u1", "x"], "{lost:?}");
    }
}

/// A conversation that was forked off another one, never prompted, and whose source is deleted. Only a backup of it is
/// left.
async fn kept_fork(home: &Home, app: &App) -> (ConversationId, String) {
    let source = app.begun(&home.project(), &PROMPTS[..2]).await;
    let at = places(app, source).await[0][0].clone();
    let fork = app.call("conversation/fork", json!({"conversationId": source, "at": at}));
    let id = serde_json::from_value(fork.await.unwrap()["conversation"]["id"].clone()).unwrap();
    app.ask("transcript/keep", id).await;
    app.erase(source).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap().to_string();
    remove(home, std::slice::from_ref(&head));
    (id, head)
}

#[tokio::test]
async fn a_fork_that_was_never_prompted_is_restored_from_its_backup() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, head) = kept_fork(&home, &app).await;
    let resumed = app.resumed(id).await;
    check_resumed(&resumed, Via::Archive, Fidelity::Full, 0);
    assert_eq!(resumed.upstream_id.as_str(), head);
    app.send(id, "x").await;
    assert_eq!(app.remembered(id).await, ["u0", "x"]);
}

#[tokio::test]
async fn a_fork_that_was_never_prompted_is_forked_from_its_backup() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, _) = kept_fork(&home, &app).await;
    let forked = app.fork(id, false).await.unwrap();
    assert_eq!(forked.fidelity, Fidelity::Full);
    assert_eq!(app.remembered(forked.conversation.id).await, ["u0"]);
    assert_eq!(app.remembered(id).await, ["u0"]);
}

/// A branch that a resume would make again from its source can also be forked.
#[tokio::test]
async fn a_lost_fork_that_was_never_prompted_is_forked_from_its_source() {
    for in_place in [false, true] {
        let home = Home::keeping_nothing();
        let (_daemon, app, id) = home.begun(&PROMPTS).await;
        fork(&app, id, 1).await;
        app.close(id).await;
        let head = app.get(id).await.head.unwrap().to_string();
        remove(&home, &[head]);
        let forked = app.fork(id, in_place).await.unwrap();
        assert_eq!(forked.fidelity, Fidelity::Full);
        assert_eq!(app.remembered(forked.conversation.id).await, PROMPTS[..2]);
    }
}
