//! Queued prompts, and a daemon that is killed or stopped meanwhile: no prompt is lost, none is sent automatically, and
//! each reaches the agent once.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::continuing::{AT_ONCE, GO_ON, continued, go_on, prompts};
use crate::gate::Gate;
use crate::home::{Daemon, Home};
use crate::support::{App, Events, Raw, Refusal};

/// The request id of the first queued prompt.
const NAME: &str = "the first in line";

fn params(id: ConversationId, text: &str, index: usize) -> Value {
    let mut params = json!({"conversationId": id, "prompt": text, "onBusy": "queue"});
    if index == 0 {
        params["requestId"] = json!(NAME);
    }
    params
}

/// Queues these prompts behind a turn that does not end. Returns the conversation, the client, and its pending
/// requests.
async fn waits(daemon: &Daemon<'_>, texts: &[&str]) -> (ConversationId, Raw, Vec<u64>) {
    let app = daemon.app().await;
    let id = app.begun(&daemon.home.project(), &["before"]).await;
    let mut raw = daemon.raw().await;
    raw.hang(id).await;
    let mut requests = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let prompt = params(id, text, index);
        requests.push(raw.send("conversation/prompt", prompt).await);
    }
    let all = |conversation: &Conversation| conversation.queue.len() == texts.len();
    let shown = app.once(id, all).await;
    assert!(
        shown.queue.iter().all(|waiting| !waiting.held),
        "{:?}",
        shown.queue
    );
    (id, raw, requests)
}

/// Queues these prompts as `waits` does, and kills the daemon.
async fn killed(home: &Home, texts: &[&str]) -> ConversationId {
    let daemon = home.start();
    let (id, ..) = waits(&daemon, texts).await;
    daemon.kill();
    id
}

/// Returns how many prompts are held, and asserts that no others are queued.
async fn held(app: &App, id: ConversationId) -> usize {
    let conversation = app.get(id).await;
    assert!(conversation.queue.iter().all(|waiting| waiting.held));
    let is_told = conversation.state == ConversationState::Interrupted && conversation.cut_short;
    assert!(is_told || conversation.queue.is_empty(), "{conversation:?}");
    conversation.queue.len()
}

/// Continues the conversation at once, and waits for the end of this many turns. Returns the events that follow.
async fn goes_on(app: &App, id: ConversationId, turns: usize) -> Events {
    let mut events = app.events(id).await;
    go_on(app, id, json!({"at": AT_ONCE})).await;
    for _ in 0..turns {
        continued(&mut events).await;
    }
    events
}

/// The prompts that the agent has received since the turn that was killed.
async fn asked_since(app: &App, home: &Home, id: ConversationId) -> Vec<String> {
    let mut all = prompts(app, home, id).await;
    assert_eq!(all[0], "before");
    assert!(all[1].contains("[[hang]]"));
    all.split_off(2)
}

#[tokio::test]
async fn what_waits_in_line_is_held_after_a_kill_and_gone_on_with_in_its_order() {
    let home = Home::new();
    let long = format!("two, and much more: {}", "x".repeat(40_000));
    let id = killed(&home, &["one", &long, "three"]).await;
    // A second kill changes nothing.
    home.start().kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 3);
    let listed = app.call(
        "conversation/list",
        json!({"cutShort": true, "state": "interrupted"}),
    );
    let listed = listed.await.unwrap();
    assert_eq!(listed["conversations"][0]["queue"].as_array().unwrap().len(), 3);

    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    for _ in 0..4 {
        assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    }
    let asked = asked_since(&app, &home, id).await;
    assert!(asked[0].starts_with(GO_ON), "{}", asked[0]);
    assert_eq!(asked[1..], ["one".to_owned(), long, "three".to_owned()]);
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.cut_short, conversation.queue),
        (ConversationState::Idle, false, Vec::new())
    );
}

/// Apps look for `cutShort` to find conversations that need the user. A queued prompt alone does not set it.
#[tokio::test]
async fn what_waits_behind_a_turn_is_not_told_as_cut_short() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["before"]).await;
    let mut events = app.events(id).await;
    let mut raw = daemon.raw().await;
    raw.hang(id).await;
    for index in 0..4 {
        raw.send("conversation/prompt", params(id, "one", index)).await;
    }
    let all = |event: &Event| match event {
        Event::Updated { conversation } => {
            assert!(!conversation.cut_short, "{conversation:?}");
            (conversation.queue.len() == 4).then_some(())
        }
        _ => None,
    };
    events.find(all).await;
}

/// Held prompts do not delay a new prompt, and are not sent after it.
#[tokio::test]
async fn a_new_prompt_goes_out_at_once_and_what_is_held_stays() {
    let home = Home::new();
    let id = killed(&home, &["one", "two"]).await;
    let (daemon, app) = home.opened().await;
    let turn = app.send(id, "something else").await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    assert_eq!(held(&app, id).await, 2);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 2);
    assert_eq!(asked_since(&app, &home, id).await, ["something else"]);
    // No turn is interrupted any more, so the continuation begins with the first held prompt.
    goes_on(&app, id, 2).await;
    assert_eq!(
        asked_since(&app, &home, id).await,
        ["something else", "one", "two"]
    );
}

#[tokio::test]
async fn the_same_call_takes_its_prompt_out_of_the_line() {
    let home = Home::new();
    let id = killed(&home, &["one", "two"]).await;
    let (daemon, app) = home.opened().await;
    let mut results: Vec<TurnResult> = Vec::new();
    for _ in 0..2 {
        let answer = app.call("conversation/prompt", params(id, "one", 0)).await;
        results.push(serde_json::from_value(answer.unwrap()).unwrap());
        assert_eq!(held(&app, id).await, 1);
    }
    assert_eq!(results[0], results[1]);
    let mut other = daemon.raw().await;
    let conflict = Refusal(1012, "conflict", false);
    other
        .refused("conversation/prompt", params(id, "another", 0), conflict)
        .await;
    goes_on(&app, id, 1).await;
    assert_eq!(asked_since(&app, &home, id).await, ["one", "two"]);
}

/// Makes a conversation in which `one`, `two` and `three` are held, each with its text as its request id.
async fn killed_with_names(home: &Home) -> ConversationId {
    let (daemon, app, id) = home.begun(&["before"]).await;
    let mut raw = daemon.raw().await;
    raw.hang(id).await;
    for text in ["one", "two", "three"] {
        raw.send("conversation/prompt", named(id, text)).await;
    }
    app.once(id, |conversation| conversation.queue.len() == 3).await;
    daemon.kill();
    id
}

/// Returns the response to a request. It may have arrived before the response to an earlier one.
pub(super) async fn answer_to(raw: &mut Raw, request: u64) -> Value {
    match raw.passed.iter().position(|line| line["id"] == request) {
        Some(index) => raw.passed.remove(index).unwrap(),
        None => raw.answer(request).await,
    }
}

fn named(id: ConversationId, text: &str) -> Value {
    json!({"conversationId": id, "prompt": text, "onBusy": "queue", "requestId": text})
}

/// A repeated call also sends earlier queued prompts, whose clients may return later or never.
#[tokio::test]
async fn a_repeated_call_sends_those_queued_before_it_first() {
    let home = Home::new();
    let id = killed_with_names(&home).await;
    let (_daemon, app) = home.opened().await;
    let answer = app.call("conversation/prompt", named(id, "two")).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(asked_since(&app, &home, id).await, ["one", "two"]);
    assert_eq!(held(&app, id).await, 1);
    for text in ["one", "three"] {
        let answer = app.call("conversation/prompt", named(id, text)).await.unwrap();
        assert_eq!(answer["stopReason"], "end_turn", "{text}");
    }
    assert_eq!(asked_since(&app, &home, id).await, ["one", "two", "three"]);
}

/// The order holds however the repeated calls arrive after the call that continues the interrupted turn.
#[tokio::test]
async fn the_interrupted_turn_is_continued_before_the_repeated_calls() {
    let home = Home::new();
    let id = killed_with_names(&home).await;
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let now = json!({"conversationId": id, "at": "now"});
    let mut requests = vec![raw.send("conversation/continue", now.clone()).await];
    for text in ["three", "one", "two"] {
        requests.push(raw.send("conversation/prompt", named(id, text)).await);
        requests.push(raw.send("conversation/continue", now.clone()).await);
    }
    for request in requests {
        let answer = answer_to(&mut raw, request).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    let asked = asked_since(&app, &home, id).await;
    assert!(asked[0].starts_with(GO_ON), "{asked:?}");
    assert_eq!(asked[1..], ["one", "two", "three"]);
}

/// The interrupted turn continues only after its question is answered, which may take days. A repeated call does not
/// wait for that.
#[tokio::test]
async fn a_repeated_call_does_not_wait_for_the_answer_to_a_question() {
    const ASKS: &str = "[[ask may I?]]";
    let (home, gate) = Gate::home_with("[limits]\ncancel_grace_ms = 200\n");
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let deaf = app.make(&home.project()).await;
    raw.run(deaf, "[[say one]][[hang]]").await;
    let id = app.begun(&home.project(), &["before"]).await;
    let (turn, _) = raw.run(id, ASKS).await;
    app.once(id, |conversation| !conversation.interrupts.is_empty())
        .await;
    raw.send("conversation/prompt", named(id, "one")).await;
    app.once(id, |conversation| conversation.queue.len() == 1).await;
    // The agent ignores the cancel of another conversation's turn, so the daemon ends it, and continues this turn.
    gate.hold_then("session/cancel", "initialize");
    app.ask("conversation/cancel", deaf).await;
    gate.wait_until_held();
    assert!(answer_to(&mut raw, turn).await["result"]["continuation"].is_object());
    gate.wait_until_held();
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 1);
    let shown = app.get(id).await;
    assert!(shown.continuation.is_some() && shown.interrupts.len() == 1);

    let answer = app.call("conversation/prompt", named(id, "one")).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let asked = prompts(&app, &home, id).await;
    assert_eq!(asked, ["before", ASKS, "one"]);
    let shown = app.get(id).await;
    assert_eq!((shown.continuation, shown.interrupts.len()), (None, 1));
}

#[tokio::test]
async fn what_is_held_can_be_cancelled_for_good() {
    let home = Home::new();
    let id = killed(&home, &["one", "two", "three"]).await;
    let (daemon, app) = home.opened().await;
    let cancel = async |more: Value| {
        let mut params = json!({"conversationId": id});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        app.call("conversation/cancel", params).await.unwrap()["cancelled"] == true
    };
    let second = app.get(id).await.queue[1].turn_id.clone();
    assert!(cancel(json!({"turnId": second})).await);
    assert!(!cancel(json!({})).await, "no turn runs");
    assert_eq!(held(&app, id).await, 2);
    assert!(cancel(json!({"queued": true})).await);
    assert_eq!(held(&app, id).await, 0);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 0);
    // A repeated call gets `cancelled`.
    let answer = app.call("conversation/prompt", params(id, "one", 0)).await;
    assert_eq!(answer.unwrap()["stopReason"], "cancelled");
    assert!(asked_since(&app, &home, id).await.is_empty());
}

#[tokio::test]
async fn a_failure_holds_the_rest() {
    let home = Home::new();
    let id = killed(&home, &["[[limit 3600]]", "two"]).await;
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    assert_eq!(continued(&mut events).await.failure, None);
    let failure = continued(&mut events).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::RateLimited);
    let conversation = app.get(id).await;
    assert_eq!(
        (
            conversation.state,
            conversation.cut_short,
            conversation.continuation
        ),
        (ConversationState::Limited, true, None)
    );
    assert_eq!(conversation.queue.len(), 1);
    assert!(conversation.queue[0].held);
    assert!(!asked_since(&app, &home, id).await.contains(&"two".to_owned()));
}

/// If the daemon is killed again while it sends the held prompts, those that were sent are not sent again, and the
/// others are held.
#[tokio::test]
async fn a_kill_while_the_line_goes_on_sends_nothing_twice() {
    let home = Home::new();
    let id = killed(&home, &["one", "[[say at it]][[hang]] two", "three"]).await;
    let (daemon, app) = home.opened().await;
    let mut events = goes_on(&app, id, 2).await;
    events.until("update").await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 1);
    goes_on(&app, id, 2).await;
    let asked = asked_since(&app, &home, id).await;
    assert!(
        asked[0].starts_with(GO_ON) && asked[3].starts_with(GO_ON),
        "{asked:?}"
    );
    assert_eq!(asked[1..3], ["one", "[[say at it]][[hang]] two"]);
    assert_eq!(asked[4..], ["three"]);
}

/// The waiting clients got an error, and can repeat their calls. So the queue is not kept.
#[tokio::test]
async fn a_clean_stop_answers_who_waits_and_keeps_nothing() {
    let home = Home::new();
    let daemon = home.start();
    let (id, mut raw, requests) = waits(&daemon, &["one", "two"]).await;
    daemon.signal(Signal::TERM);
    for request in requests {
        let answer = answer_to(&mut raw, request).await;
        assert_eq!(answer["error"]["data"]["kind"], "shuttingDown", "{answer}");
    }
    assert!(daemon.ended().await.success());
    let (_daemon, app) = home.opened().await;
    let conversation = app.get(id).await;
    assert!(conversation.queue.is_empty() && conversation.cut_short);
}

/// Clients that disconnected cannot get an error, so their prompts are held.
#[tokio::test]
async fn a_clean_stop_holds_the_prompts_of_those_who_hung_up() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut other = daemon.raw().await;
    let (id, raw, _) = waits(&daemon, &["one"]).await;
    other.send("conversation/prompt", params(id, "two", 1)).await;
    app.once(id, |conversation| conversation.queue.len() == 2).await;
    raw.hang_up().await;
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().await.success());
    let (_daemon, app) = home.opened().await;
    assert_eq!(held(&app, id).await, 1);
    goes_on(&app, id, 2).await;
    let asked = asked_since(&app, &home, id).await;
    assert_eq!(asked[1..], ["one"], "{asked:?}");
}

#[tokio::test]
async fn neither_an_export_nor_a_fork_nor_a_reset_has_the_line() {
    let home = Home::new();
    let id = killed(&home, &["one", "two"]).await;
    let (daemon, app) = home.opened().await;
    let exported = app.call(
        "conversation/export",
        json!({"conversationId": id, "format": "json"}),
    );
    let exported = exported.await.unwrap();
    assert!(exported["conversation"]["id"].is_string(), "{exported}");
    assert_eq!(exported["conversation"]["queue"], Value::Null);
    let fork = app.fork(id, false).await.unwrap();
    assert!(fork.conversation.queue.is_empty() && !fork.conversation.cut_short);
    assert_eq!(held(&app, id).await, 2);
    app.ask("conversation/reset", id).await;
    assert_eq!(held(&app, id).await, 0);
    daemon.kill();
    let daemon = home.start();
    assert_eq!(held(&daemon.app().await, id).await, 0);
}
