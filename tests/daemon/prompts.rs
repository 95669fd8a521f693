//! Turns: the order of their events, queued prompts, turns whose client has left, and how turns end.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::turn::{FailureKind, StopReason};
use serde_json::{Value, json};

use crate::home::{Home, kill_now, wait_for_end};
use crate::scripted;
use crate::support::{Refusal, words_of};

/// Names the kind of a line on a connection.
fn word(line: &Value) -> String {
    match line["params"]["result"]["event"]["type"].as_str() {
        Some("update") => {
            let update = &line["params"]["result"]["event"]["update"];
            format!("update {}", update["sessionUpdate"].as_str().unwrap())
        }
        Some(kind) => kind.to_owned(),
        None => format!("answer {}", line["id"]),
    }
}

/// On the connection that sent the prompt, the turn's events come before its response.
#[tokio::test]
async fn a_turn_is_told_in_order_and_answered_last() {
    let home = Home::new();
    let daemon = home.start();
    let id = daemon.app().await.make(&home.project()).await;
    let mut raw = daemon.raw().await;
    // Both calls are sent at once. The subscription is admitted first, so it misses nothing.
    let subscribed = raw
        .send("conversation/subscribe", json!({"conversationId": id}))
        .await;
    let prompt = json!({"conversationId": id, "prompt": "[[say a]][[tool Look {}]][[say b]]"});
    let prompted = raw.send("conversation/prompt", prompt).await;
    let mut seen = Vec::new();
    let answer = loop {
        let line = raw.next().await;
        seen.push(word(&line));
        if line["id"] == prompted {
            break line;
        }
    };
    let of_turn: Vec<&str> = seen
        .iter()
        .map(String::as_str)
        .filter(|word| !word.ends_with("_info_update") && !word.ends_with("commands_update"))
        .filter(|word| !["update usage_update", "updated", "checkpointSaved"].contains(word))
        .collect();
    assert_eq!(
        of_turn,
        [
            &format!("answer {subscribed}")[..],
            "snapshot",
            "stateChanged",
            "resumed",
            "promptAccepted",
            "update agent_message_chunk",
            "update tool_call",
            "update tool_call_update",
            "update agent_message_chunk",
            "turnEnded",
            "stateChanged",
            &format!("answer {prompted}")[..],
        ]
    );
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(answer["result"]["resumed"]["via"], "fresh");
    assert_eq!(answer["result"]["resumed"]["fidelity"], "full");
    assert!(answer["result"]["usage"]["totalTokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn updates_carry_the_turn_that_they_belong_to() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    for text in ["one", "two"] {
        let turn = app.send(id, text).await;
        for envelope in events.turn().await {
            if let Event::Update { turn_id, update } = envelope.event
                && let Some(words) = words_of(&update)
            {
                assert_eq!(words, format!("echo: {text}"));
                assert_eq!(turn_id, Some(turn.turn_id.clone()));
            }
        }
    }
}

#[tokio::test]
async fn prompts_that_wait_run_in_the_order_in_which_they_came() {
    let home = Home::with_config("[limits]\nprompt_queue = 3\n");
    let (daemon, app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (held, _) = holder.hang(id).await;

    let mut raw = daemon.raw().await;
    let mut waiting = Vec::new();
    for text in ["one", "two", "three"] {
        let prompt = json!({"conversationId": id, "prompt": text, "onBusy": "queue"});
        waiting.push(raw.send("conversation/prompt", prompt).await);
    }
    let one_more = json!({"conversationId": id, "prompt": "four", "onBusy": "queue"});
    let full = Refusal(1003, "busy", true);
    raw.refused("conversation/prompt", one_more, full).await;
    raw.ask("conversation/cancel", json!({"conversationId": id}))
        .await;
    holder.answer(held).await;
    for request in waiting {
        let answer = match raw.passed.iter().position(|line| line["id"] == request) {
            Some(index) => raw.passed.remove(index).unwrap(),
            None => raw.answer(request).await,
        };
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    assert_eq!(
        app.remembered(id).await[1..],
        ["one", "two", "three"].map(str::to_owned)
    );
}

/// D5: a conversation runs one turn at a time. While it runs, prompts of other clients are refused.
#[tokio::test]
async fn two_clients_never_run_two_turns_of_one_conversation() {
    let home = Home::new();
    let daemon = home.start();
    let id = daemon.app().await.make(&home.project()).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(daemon.raw().await);
    }
    let mut requests = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let prompt = json!({"conversationId": id, "prompt": format!("[[say {number}]][[ask go on?]]")});
        requests.push(client.send("conversation/prompt", prompt).await);
    }
    let app = daemon.app().await;
    let asked = app
        .once(id, |conversation| !conversation.interrupts.is_empty())
        .await;
    let respond = json!({
        "conversationId": id, "interruptId": asked.interrupts[0].id,
        "outcome": {"outcome": "selected", "optionId": "allow_once"},
    });
    app.call("conversation/respond", respond).await.unwrap();
    let mut ran = 0;
    for (client, request) in clients.iter_mut().zip(requests) {
        let answer = client.answer(request).await;
        if answer["result"]["stopReason"] == "end_turn" {
            ran += 1;
        } else {
            Refusal(1003, "busy", true).check(&answer, "the others");
        }
    }
    assert_eq!(ran, 1);
    assert_eq!(app.recall(id).await.len(), 1);
}

// Against F37.
#[tokio::test]
async fn conversations_run_their_turns_beside_each_other_in_one_process() {
    let home = Home::new();
    let (daemon, app, held) = home.begun(&[]).await;
    let free = app.make(&home.project()).await;
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(held).await;
    assert_eq!(app.say(free, "hello").await.words, "echo: hello");
    assert_eq!(home.agents().len(), 1);
    app.ask("conversation/cancel", held).await;
    holder.answer(request).await;
}

/// A turn continues after the client that sent its prompt has disconnected.
#[tokio::test]
async fn a_turn_goes_on_when_its_client_leaves() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut leaving = daemon.raw().await;
    let (_, turn) = leaving
        .run(id, "[[say before]][[ask still there?]][[say after]]")
        .await;
    leaving.event("interruptRaised").await;
    drop(leaving);

    let mut events = app.events(id).await;
    let Event::Snapshot {
        conversation,
        running,
        ..
    } = events.next().await.event
    else {
        panic!("the snapshot comes first")
    };
    assert_eq!(running.unwrap().turn_id.as_str(), turn);
    let respond = json!({
        "conversationId": id, "interruptId": conversation.interrupts[0].id,
        "outcome": {"outcome": "selected", "optionId": "allow_once"},
    });
    app.call("conversation/respond", respond).await.unwrap();
    let Event::TurnEnded { turn: ended } = events.until("turnEnded").await else {
        unreachable!()
    };
    assert_eq!(ended.turn_id.as_str(), turn);
    assert_eq!(ended.stop_reason, StopReason::EndTurn);
    assert_eq!(app.recall(id).await[0].assistant, "before\n\nafter");
}

/// F26, F22: a failure is reported with its kind and affects only its own conversation. The next prompt works.
#[tokio::test]
async fn a_failure_is_told_by_its_kind_and_does_not_last() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let table = [
        ("[[fail overloaded]]", FailureKind::Overloaded),
        ("[[fail network]]", FailureKind::Network),
        ("[[fail context]]", FailureKind::ContextOverflow),
        ("[[fail auth]]", FailureKind::AuthRequired),
    ];
    let sibling = app.make(&home.project()).await;
    for (text, kind) in table {
        let id = app.make(&home.project()).await;
        let turn = app.send(id, text).await;
        assert_eq!(turn.stop_reason, StopReason::Failed, "{text}");
        let failure = turn.failure.unwrap();
        assert_eq!(failure.kind, kind, "{text}: {failure:?}");
        assert!(!failure.message.is_empty());
        assert_eq!(app.get(id).await.state, ConversationState::Idle, "{text}");
        assert_eq!(app.say(id, "again").await.words, "echo: again", "{text}");
        assert_eq!(app.say(sibling, "me too").await.words, "echo: me too", "{text}");
    }
}

/// F31: the death of the agent ends the turn and answers its client at once, and the next prompt starts the agent
/// again. An idle conversation of the same process is not affected.
#[tokio::test]
async fn the_death_of_the_agent_ends_its_turn_and_the_next_prompt_goes_on() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let ids = [app.make(&home.project()).await, app.make(&home.project()).await];
    for id in ids {
        app.send(id, "first").await;
    }
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(ids[0]).await;
    let agent = home.only_agent();
    kill_now(agent);
    let answer = holder.answer(request).await;
    let failure = &answer["result"]["failure"];
    assert_eq!(answer["result"]["stopReason"], "failed");
    assert_eq!(failure["kind"], "agentDied", "{answer}");
    assert_eq!(failure["retryable"], true);
    // No continuation is scheduled: the prompt may have caused the death, so the user has to decide.
    assert!(answer["result"]["continuation"].is_null(), "{answer}");
    wait_for_end(agent);
    let states = [ConversationState::Interrupted, ConversationState::Idle];
    for (id, state) in ids.into_iter().zip(states) {
        assert_eq!(app.get(id).await.state, state);
        let turn = app.send(id, "go on").await;
        let resumed = turn.resumed.unwrap();
        assert_eq!(
            (resumed.missing_turns, resumed.upstream_id),
            (0, turn.upstream_id)
        );
        assert_eq!(app.get(id).await.state, ConversationState::Idle);
        let remembered = app.remembered(id).await;
        assert_eq!(
            (remembered[0].as_str(), remembered.last().unwrap().as_str()),
            ("first", "go on")
        );
    }
}

/// If the agent crashes during its own work, the failure's message contains its last words.
#[tokio::test]
async fn an_agent_that_crashes_is_told_with_its_last_words() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let said = app.say(id, "[[say before]][[crash]]").await;
    let failure = said.turn.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::AgentDied);
    assert!(
        failure.message.contains("crashing, as the prompt asked"),
        "{failure:?}"
    );
    assert!(said.words.starts_with("before"), "{}", said.words);
    // F18: a prompt that had begun is not sent again automatically.
    let remembered = app.remembered(id).await;
    assert_eq!(remembered, ["[[say before]][[crash]]"]);
}

/// Events are sent in the order of their times. The acceptance of a prompt comes before the updates that showed it.
#[tokio::test]
async fn no_event_of_a_turn_is_later_than_the_next() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    for _ in 0..10 {
        let mut events = app.events(id).await;
        app.send(id, "[[say one]][[say two]][[stream 20 0]]").await;
        let told = events.turn().await;
        for pair in told.windows(2) {
            assert!(
                pair[0].at <= pair[1].at,
                "{} at {} is followed by {} at {}",
                pair[0].event.kind(),
                pair[0].at,
                pair[1].event.kind(),
                pair[1].at
            );
        }
    }
}

/// A stop reason of a later protocol is passed on unchanged.
#[tokio::test]
async fn a_stop_reason_that_is_not_known_is_told_as_the_agent_said_it() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let ended = r#"{"jsonrpc":"2.0","id":$P,"result":{"stopReason":"out_of_budget"}}"#;
    let mut events = app.events(id).await;
    let turn = app.send(id, ended).await;
    let reason = StopReason::Other("out_of_budget".to_owned());
    assert_eq!((&turn.stop_reason, &turn.failure), (&reason, &None));
    let told = events.turn().await.pop().unwrap();
    let told = serde_json::to_value(told.event).unwrap();
    assert_eq!(told["turn"]["stopReason"], "out_of_budget");
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.chain(id).await[0].turns, 1, "the turn counts");
}
