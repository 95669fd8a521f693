//! Cancelling: the daemon waits, up to a deadline, for the agent's response to the cancelled prompt, and nothing of
//! that turn reaches the next one.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::turn::StopReason;
use serde_json::json;

use crate::home::{Home, wait_for_end};
use crate::support::{Raw, words_of};

async fn cancel(raw: &mut Raw, params: serde_json::Value) -> bool {
    let answer = raw.ask("conversation/cancel", params).await;
    answer["result"]["cancelled"].as_bool().unwrap()
}

#[tokio::test]
async fn a_cancel_is_answered_when_the_turn_has_ended() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    // All calls use one connection, so answers arrive in the order in which they were sent.
    let mut raw = daemon.raw().await;
    let (request, turn) = raw.hang(id).await;
    let cancelled = raw
        .send("conversation/cancel", json!({"conversationId": id}))
        .await;
    let answer = raw.answer(cancelled).await;
    assert_eq!(answer["result"]["cancelled"], true);
    let order: Vec<String> = raw
        .passed
        .iter()
        .map(|line| match line["params"]["result"]["event"]["type"].as_str() {
            Some(kind) => kind.to_owned(),
            None => format!("answer {}", line["id"]),
        })
        .filter(|word| word != "update" && word != "updated")
        .collect();
    assert_eq!(
        order,
        [
            "stateChanged",
            "turnEnded",
            "stateChanged",
            &format!("answer {request}")
        ]
    );
    let ended = &raw.passed[raw.passed.len() - 1]["result"];
    assert_eq!(
        (&ended["turnId"], &ended["stopReason"]),
        (&json!(turn), &json!("cancelled"))
    );
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.say(id, "next").await.words, "echo: next");
}

#[tokio::test]
async fn cancelling_the_queue_ends_what_waits_and_what_runs() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (running, _) = holder.hang(id).await;
    let mut raw = daemon.raw().await;
    let mut waiting = Vec::new();
    for text in ["one", "two"] {
        let prompt = json!({"conversationId": id, "prompt": text, "onBusy": "queue"});
        waiting.push(raw.send("conversation/prompt", prompt).await);
    }
    assert!(cancel(&mut raw, json!({"conversationId": id, "queued": true})).await);
    assert_eq!(holder.answer(running).await["result"]["stopReason"], "cancelled");
    for request in waiting {
        let answer = raw.passed.iter().find(|line| line["id"] == request).unwrap();
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    }
    assert_eq!(
        app.remembered(id).await.len(),
        1,
        "only the running turn's prompt was sent"
    );
}

// Against F37.
#[tokio::test]
async fn a_cancel_of_a_named_turn_leaves_the_others_alone() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (running, turn) = holder.hang(id).await;
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": "after it", "onBusy": "queue"});
    let waiting = raw.send("conversation/prompt", prompt).await;
    assert!(cancel(&mut raw, json!({"conversationId": id, "turnId": turn})).await);
    assert_eq!(holder.answer(running).await["result"]["stopReason"], "cancelled");
    let answer = match raw.passed.pop_front() {
        Some(answer) => answer,
        None => raw.answer(waiting).await,
    };
    assert_eq!(
        (&answer["id"], &answer["result"]["stopReason"]),
        (&json!(waiting), &json!("end_turn"))
    );
    // The id now names an earlier turn; cancelling it does not affect the current one.
    assert!(!cancel(&mut raw, json!({"conversationId": id, "turnId": turn})).await);
}

/// F14, F28, F30: an agent that ignores the cancel loses its session at the deadline; the next prompt gets its own
/// response. The turn of the closed session may still be running. If it wrote to the transcript after the next prompt, it
/// would hide that prompt.
#[tokio::test]
async fn an_agent_that_ignores_the_cancel_is_not_waited_for() {
    for deaf in [
        "[[say deaf now]][[deaf]][[hang]]",
        "[[say deaf now]][[deaf]][[linger]][[hang]]",
    ] {
        let home = Home::with_config("[limits]\ncancel_grace_ms = 200\n");
        let (daemon, app, id) = home.begun(&["first"]).await;
        let mut raw = daemon.raw().await;
        let (request, _) = raw.run(id, deaf).await;
        let mut other = daemon.raw().await;
        assert!(cancel(&mut other, json!({"conversationId": id})).await);
        assert_eq!(raw.answer(request).await["result"]["stopReason"], "cancelled");

        let said = app.say(id, "second question").await;
        assert_eq!(said.words, "echo: second question");
        assert_eq!(said.turn.stop_reason, StopReason::EndTurn);
        let remembered = app.remembered(id).await;
        assert_eq!(remembered[0], "first");
        assert_eq!(remembered.last().unwrap(), "second question");
    }
}

/// F22: an agent that ignores a cancel is stopped soon. Until then, other conversations get a new process.
#[tokio::test]
async fn an_agent_that_ignores_the_cancel_gets_no_other_turns() {
    let home = Home::with_config("[limits]\ncancel_grace_ms = 1000\n");
    let (daemon, app) = home.opened().await;
    let (id, other) = (app.make(&home.project()).await, app.make(&home.project()).await);
    let mut raw = daemon.raw().await;
    let (request, _) = raw.run(id, "[[say deaf now]][[deaf]][[linger]][[hang]]").await;
    let deaf = home.agents()[0];
    assert!(cancel(&mut daemon.raw().await, json!({"conversationId": id})).await);
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "cancelled");

    let mut holder = daemon.raw().await;
    let (running, _) = holder.hang(other).await;
    assert_ne!(home.agents(), [deaf]);
    wait_for_end(deaf);
    assert!(cancel(&mut raw, json!({"conversationId": other})).await);
    let ended = holder.answer(running).await;
    assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
}

/// F14: late updates of a cancelled turn belong to no turn, and in particular not to the next one.
#[tokio::test]
async fn what_comes_late_belongs_to_no_turn() {
    let home = Home::with_config("[limits]\ncancel_grace_ms = 200\n");
    let (daemon, app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let (request, cancelled) = raw.run(id, "[[deaf]][[stream 4000 1]]").await;
    let mut other = daemon.raw().await;
    assert!(cancel(&mut other, json!({"conversationId": id})).await);
    raw.answer(request).await;
    let mut events = app.events(id).await;
    let turn = app.send(id, "second question").await;
    for envelope in events.turn().await {
        if let Event::Update {
            turn_id: Some(told),
            update,
        } = envelope.event
        {
            assert_ne!(told.as_str(), cancelled);
            assert_eq!(told, turn.turn_id);
            if let Some(words) = words_of(&update) {
                assert_eq!(words, "echo: second question");
            }
        }
    }
}

/// F28: a flood of updates does not delay a cancel, even if a subscriber does not read.
#[tokio::test]
async fn a_flood_never_starves_a_cancel() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut stalled = daemon.raw().await;
    // This client reads until the prompt is accepted, and then stops reading.
    stalled.run(id, "[[stream 2000000 0]]").await;
    let mut other = daemon.raw().await;
    assert!(cancel(&mut other, json!({"conversationId": id})).await);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.say(id, "and now?").await.words, "echo: and now?");
}

#[tokio::test]
async fn a_cancel_while_a_question_is_open_answers_the_question_and_ends_the_turn() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let (request, _) = raw.run(id, "[[ask may I?]][[write made.txt x]]").await;
    raw.event("interruptRaised").await;
    let mut other = daemon.raw().await;
    assert!(cancel(&mut other, json!({"conversationId": id})).await);
    let resolved = raw.event("interruptResolved").await;
    assert_eq!(
        (&resolved["by"], &resolved["outcome"]),
        (&json!("cancel"), &json!({"outcome": "cancelled"}))
    );
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "cancelled");
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.interrupts),
        (ConversationState::Idle, vec![])
    );
    assert!(!home.path().join("project/made.txt").exists());
}
