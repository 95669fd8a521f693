//! Subscriptions: snapshots, resuming after a cursor, subscribers that lag, and subscriptions to all conversations.

use std::collections::HashSet;

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::{ConversationId, Cursor};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::home::{Home, kill_now};
use crate::scripted;
use crate::support::{Events, within, words_of};

fn gap(envelope: &EventEnvelope) -> Option<bool> {
    match &envelope.event {
        Event::Snapshot { gap, .. } => Some(*gap),
        _ => None,
    }
}

/// A client that subscribes during a turn gets the same content as one that was subscribed from the start.
#[tokio::test]
async fn the_snapshot_holds_the_running_turn() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["an earlier turn"]).await;
    let mut raw = daemon.raw().await;
    let text = "[[say one]][[tool Look {\"deep\":12345678901234567890.10}]][[say two]][[ask wait?]]";
    let (request, turn) = raw.run(id, text).await;
    let mut seen = Vec::new();
    loop {
        let line = match raw.passed.pop_front() {
            Some(line) => line,
            None => raw.next().await,
        };
        let event = &line["params"]["result"]["event"];
        if event["type"] == "interruptRaised" {
            break;
        }
        if event["type"] == "update" {
            seen.push(event["update"].clone());
        }
    }
    let envelope = app.events(id).await.next().await;
    let Event::Snapshot {
        conversation,
        gap,
        running,
        ..
    } = envelope.event
    else {
        panic!("{envelope:?}")
    };
    assert!(!gap);
    assert_eq!(conversation, app.get(id).await);
    assert_eq!(conversation.state, ConversationState::Awaiting);
    let running = running.unwrap();
    assert_eq!(running.turn_id.as_str(), turn);
    assert_eq!(running.prompt.to_text(), text);
    assert!(!running.truncated);
    let updates: Vec<Value> = running.updates.iter().map(|raw| raw.read().unwrap()).collect();
    assert_eq!(updates, seen);
    assert!(
        running
            .updates
            .iter()
            .any(|raw| raw.get().contains("12345678901234567890.10"))
    );
    app.ask("conversation/cancel", id).await;
    raw.answer(request).await;
    let envelope = app.events(id).await.next().await;
    assert!(
        matches!(envelope.event, Event::Snapshot { running: None, .. }),
        "{envelope:?}"
    );
}

/// A client that subscribes later gets the agent's latest session data: commands, modes, options, usage and plan.
#[tokio::test]
async fn the_snapshot_holds_what_the_agent_last_said_of_its_session() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (_daemon, app, id) = home.begun(&["open it"]).await;
    let update = json!({"conversationId": id, "settings": {"mode": "plan"}});
    app.call("conversation/update", update).await.unwrap();
    let Event::Snapshot {
        session: Some(session),
        ..
    } = app.events(id).await.next().await.event
    else {
        panic!("a session")
    };
    let read = |raw: Option<bridge_protocol::raw::RawJson>| -> Value { raw.unwrap().read().unwrap() };
    assert_eq!(read(session.commands)[0]["name"], "[[recall]]");
    let modes = read(session.modes);
    assert_eq!(modes["currentModeId"], "plan");
    assert_eq!(modes["availableModes"].as_array().unwrap().len(), 2);
    assert_eq!(read(session.config_options)[0]["currentValue"], "loop-1");
    assert!(read(session.usage)["used"].as_u64().unwrap() > 0);
    assert_eq!(session.plan, None);

    let id = app.make_of(&home.project(), "scripted").await;
    let plan = |word: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":$S,\"update\":\
             {{\"sessionUpdate\":\"plan\",\"entries\":[{{\"content\":\"{word}\"}}]}}}}}}"
        )
    };
    app.send(id, &format!("{}\n{}", plan("first"), plan("last")))
        .await;
    let Event::Snapshot {
        session: Some(session),
        ..
    } = app.events(id).await.next().await.event
    else {
        panic!("a session")
    };
    assert_eq!(
        session.plan.unwrap().get(),
        r#"{"sessionUpdate":"plan","entries":[{"content":"last"}]}"#
    );
}

/// Resuming after a cursor returns exactly the missed events, from any position in the stream.
#[tokio::test]
async fn a_cursor_brings_exactly_what_came_behind_it() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    events.next().await;
    app.send(id, "[[say a]][[tool Look {}]][[say b]]").await;
    app.send(id, "more").await;
    let mut all = events.turn().await;
    all.extend(events.turn().await);
    for start in 0..all.len() - 1 {
        let cursor = all[start].cursor.clone();
        let mut missed = app.events_of(Some(id), Some(cursor)).await;
        for expected in &all[start + 1..] {
            assert_eq!(&missed.next().await, expected, "behind {start}");
        }
    }
    // After the last cursor, only new events follow.
    let mut live = app
        .events_of(Some(id), Some(all[all.len() - 1].cursor.clone()))
        .await;
    let next = app.send(id, "and more").await;
    let turn = live.turn().await;
    assert!(turn.iter().all(|envelope| gap(envelope).is_none()));
    assert!(matches!(&turn[turn.len() - 1].event, Event::TurnEnded { turn } if turn.turn_id == next.turn_id));
}

#[tokio::test]
async fn a_cursor_that_is_not_held_brings_a_snapshot_with_a_gap() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let first = app.events(id).await.next().await;
    assert_eq!(gap(&first), Some(false));
    for text in ["elsewhere", "", "elsewhere-1"] {
        let envelope = app
            .events_of(Some(id), Some(Cursor::new(text)))
            .await
            .next()
            .await;
        assert_eq!(gap(&envelope), Some(true), "{text}");
    }
    // The daemon's ring cannot hold all events of this turn.
    app.send(id, "[[stream 12000 0]]").await;
    let envelope = app
        .events_of(Some(id), Some(first.cursor.clone()))
        .await
        .next()
        .await;
    assert_eq!(gap(&envelope), Some(true));

    daemon.kill();
    let (daemon, app) = home.opened().await;
    let mut holder = daemon.raw().await;
    // First all conversations are idle, then one is busy.
    for is_busy in [false, true] {
        let running = match is_busy {
            true => Some(holder.hang(id).await.0),
            false => None,
        };
        for id in [None, Some(id)] {
            let first = app
                .events_of(id, Some(envelope.cursor.clone()))
                .await
                .next()
                .await;
            assert_eq!(
                gap(&first),
                Some(true),
                "a cursor of an earlier life: {id:?} {is_busy}"
            );
        }
        if let Some(running) = running {
            app.ask("conversation/cancel", id).await;
            holder.answer(running).await;
        }
    }
}

/// A subscriber that does not read gets `lagged` as its last event and can resume after it without a gap, any number of
/// times. Other clients are not affected.
#[tokio::test]
async fn a_subscriber_that_lags_is_told_and_reads_on_without_a_gap() {
    const CHUNKS: usize = 6_000;
    let home = Home::with_config("[limits]\nsubscriber_events = 1024\n");
    let (daemon, app, id) = home.begun(&[]).await;
    let mut stalled = daemon.raw().await;
    stalled.subscribe(id).await;
    let turn = app.send(id, &format!("[[stream {CHUNKS} 0]]")).await;
    // From here on, the client reads again.
    let (mut last, mut chunks, mut lags) = (Value::Null, 0, 0);
    loop {
        let line = stalled.next().await["params"]["result"].clone();
        let event = &line["event"];
        match event["type"].as_str() {
            Some("lagged") => {
                assert_eq!(event["cursor"], last, "not the cursor of the last event read");
                lags += 1;
                let again = json!({"conversationId": id, "after": last});
                stalled.ask("conversation/subscribe", again).await;
                continue;
            }
            Some("snapshot") => panic!("a gap after {chunks} chunks"),
            Some("update") if event["update"]["sessionUpdate"] == "agent_message_chunk" => chunks += 1,
            Some("turnEnded") => break,
            _ => {}
        }
        last = line["cursor"].clone();
    }
    assert_eq!(chunks, CHUNKS);
    assert!(lags > 0);

    // The connection still works.
    let after = app.send(id, "after").await;
    assert_ne!(after.turn_id, turn.turn_id);
    let status = stalled.ask("daemon/status", json!({})).await;
    assert!(status["result"].is_object(), "{status}");
}

/// A subscription to all conversations includes those that are made later.
#[tokio::test]
async fn a_subscription_to_everything_hears_all_conversations() {
    let home = Home::new();
    let (daemon, app, idle) = home.begun(&[]).await;
    app.send(idle, "it rests now").await;
    let limited = app.make(&home.project()).await;
    app.send(limited, "[[limit 3600]]").await;
    let busy = app.make(&home.project()).await;
    let mut holder = daemon.raw().await;
    let (held, _) = holder.hang(busy).await;

    let mut everything = app.events_of(None, None).await;
    let mut snapshots = HashSet::new();
    for _ in 0..2 {
        let envelope = everything.next().await;
        let Event::Snapshot { running, .. } = &envelope.event else {
            panic!("{envelope:?}")
        };
        assert_eq!(running.is_some(), envelope.conversation_id == busy);
        snapshots.insert(envelope.conversation_id);
    }
    assert_eq!(
        snapshots,
        HashSet::from([limited, busy]),
        "only conversations that are not idle"
    );

    let later = app.make(&home.project()).await;
    // Events that follow the end of the others' turns may come first.
    let envelope = loop {
        let envelope = everything.next().await;
        if envelope.conversation_id == later {
            break envelope;
        }
    };
    assert_eq!(gap(&envelope), Some(false));
    let from = envelope.cursor.clone();
    for (id, text) in [(later, "new one"), (idle, "old one")] {
        app.send(id, text).await;
        let turn = everything.turn().await;
        // The events of this turn may be mixed with those that follow the end of another conversation's turn.
        let of_others = turn.iter().filter(|envelope| envelope.conversation_id != id);
        assert!(
            of_others
                .into_iter()
                .all(|envelope| ["stateChanged", "updated", "checkpointSaved"]
                    .contains(&envelope.event.kind()))
        );
        let words: String = turn
            .iter()
            .filter_map(|envelope| match &envelope.event {
                Event::Update { update, .. } => words_of(update),
                _ => None,
            })
            .collect();
        assert_eq!(words, format!("echo: {text}"));
    }
    // A cursor of this subscription is a position in the daemon's stream of all conversations.
    let mut again = app.events_of(None, Some(from)).await;
    let missed: HashSet<ConversationId> = {
        let mut seen = HashSet::new();
        for _ in 0..2 {
            seen.extend(again.turn().await.pop().map(|envelope| envelope.conversation_id));
        }
        seen
    };
    assert_eq!(missed, HashSet::from([later, idle]));
    app.ask("conversation/cancel", busy).await;
    holder.answer(held).await;
}

/// What waits for clients that do not read is bounded for all of them together. Each gets `lagged` as its last event.
#[tokio::test]
async fn the_memory_for_clients_that_do_not_read_is_bounded_together() {
    const CLIENTS: usize = 20;
    /// 18 MB of updates, so 360 MB for all clients.
    const UPDATES: usize = 900;
    const MOST: u64 = 200 * 1024 * 1024;
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let script = vec![scripted::chunk("$LONG"); UPDATES].join("\n");
    app.send(id, &script).await;
    let before = daemon.resident_bytes();
    let mut stalled = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = daemon.raw().await;
        client.subscribe(id).await;
        stalled.push(client);
    }
    app.send(id, &script).await;
    if let (Some(before), Some(now)) = (before, daemon.resident_bytes()) {
        assert!(now < before + MOST, "{before} bytes before, {now} now");
    }
    for mut client in stalled {
        client.event("lagged").await;
    }
}

/// A client reads its snapshots slowly. It must not miss a turn that begins meanwhile.
#[tokio::test]
async fn a_turn_that_begins_while_the_snapshots_are_sent_is_shown() {
    const LIMITED: usize = 100;
    let home = Home::with_config("[limits]\nsubscriber_events = 16\n");
    let (daemon, app, begins) = home.begun(&[]).await;
    for _ in 0..LIMITED {
        let id = app.make(&home.project()).await;
        // All snapshots together exceed the queue of a client.
        let title = json!({"conversationId": id, "title": "long ".repeat(800)});
        app.call("conversation/update", title).await.unwrap();
        app.send(id, "[[limit 3600]]").await;
    }
    let mut slow = daemon.raw().await;
    slow.ask("conversation/subscribe", json!({})).await;
    slow.event("snapshot").await;
    let mut holder = daemon.raw().await;
    let (held, turn_id) = holder.hang(begins).await;
    loop {
        let line = slow.next().await["params"]["result"].clone();
        let event = &line["event"];
        if event["turnId"] == turn_id.as_str() || event["running"]["turnId"] == turn_id.as_str() {
            break;
        }
        assert_ne!(event["type"], "lagged");
    }
    app.ask("conversation/cancel", begins).await;
    holder.answer(held).await;
}

#[tokio::test]
async fn nothing_comes_after_unsubscribing() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let subscribed = raw
        .ask("conversation/subscribe", json!({"conversationId": id}))
        .await;
    raw.event("snapshot").await;
    let answer = raw
        .ask("conversation/unsubscribe", json!([subscribed["result"]]))
        .await;
    assert_eq!(answer["result"], true, "{answer}");
    app.send(id, "unheard").await;
    let status = raw.send("daemon/status", json!({})).await;
    assert_eq!(raw.next().await["id"], status);
}

/// A subscription to all conversations reports each way in which a conversation is made, changed or deleted.
#[tokio::test]
async fn whoever_listens_to_everything_hears_what_comes_changes_and_goes() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut everything = app.events_of(None, None).await;
    let id = app.make(&home.project()).await;
    assert_eq!(gap(&everything.next().await), Some(false));

    // Forks a conversation without prompts, and then one with a prompt.
    for prompted in [false, true] {
        if prompted {
            app.send(id, "first").await;
        }
        let branch = app.fork(id, false).await.unwrap().conversation;
        let made = everything
            .find(|event| match event {
                Event::Snapshot { conversation, .. } => Some(conversation.clone()),
                _ => None,
            })
            .await;
        assert_eq!(
            (made.id, made.parent, made.head),
            (branch.id, branch.parent, branch.head)
        );
    }
    let mut own = app.events(id).await;
    own.next().await;
    for change in [json!({"title": "named"}), json!({"settings": {"mode": "plan"}})] {
        let mut params = change;
        params["conversationId"] = json!(id);
        let answer = app.call("conversation/update", params).await.unwrap();
        let wanted: Conversation = serde_json::from_value(answer["conversation"].clone()).unwrap();
        for events in [&mut everything, &mut own] {
            // Other updates may come first: an agent may report its mode unasked.
            updated(events, |told| {
                (&told.title, &told.settings) == (&wanted.title, &wanted.settings)
            })
            .await;
        }
    }
    // A fork in place can change the folder and the title.
    let elsewhere = home.folder_named("elsewhere");
    let fork = json!({"conversationId": id, "inPlace": true, "cwd": elsewhere, "title": "elsewhere"});
    app.call("conversation/fork", fork).await.unwrap();
    updated(&mut own, |told| {
        (&told.cwd, told.title.as_str()) == (&elsewhere, "elsewhere")
    })
    .await;
    // The agent dies while no turn runs.
    app.send(id, "open it").await;
    own.until("turnEnded").await;
    home.agents().into_iter().for_each(kill_now);
    own.until("closed").await;
    assert!(!app.get(id).await.live);
    app.ask("conversation/delete", id).await;
    everything.until("deleted").await;
}

/// Waits for an `updated` event that meets the condition, and returns its conversation. Other changes may come first.
async fn updated(events: &mut Events, is_it: impl Fn(&Conversation) -> bool) -> Conversation {
    events
        .find(|event| match event {
            Event::Updated { conversation } if is_it(conversation) => Some(conversation.clone()),
            _ => None,
        })
        .await
}

/// All clients see the queued prompts.
#[tokio::test]
async fn what_waits_in_line_is_shown() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (held, running) = holder.hang(id).await;
    let mut events = app.events(id).await;
    events.next().await;
    let waiting = json!({"conversationId": id, "prompt": "later", "onBusy": "queue"});
    let queued = holder.send("conversation/prompt", waiting).await;
    let queue = updated(&mut events, |told| told.queue.len() == 1).await.queue;
    assert_ne!(queue[0].turn_id.as_str(), running);
    let Event::Snapshot { conversation, .. } = app.events(id).await.next().await.event else {
        panic!("a snapshot");
    };
    assert_eq!(conversation.queue, queue);
    assert_eq!(app.get(id).await.queue, queue);
    let cancel = json!({"conversationId": id, "turnId": queue[0].turn_id});
    app.call("conversation/cancel", cancel).await.unwrap();
    updated(&mut events, |told| told.queue.is_empty()).await;
    let turn = holder.answer(queued).await["result"]["turnId"].clone();
    assert_eq!(turn, queue[0].turn_id.as_str());
    app.ask("conversation/cancel", id).await;
    holder.answer(held).await;
}

/// The agent has not answered a setting, so the prompt waits.
#[tokio::test]
async fn the_snapshot_names_the_turn_whose_prompt_is_not_accepted_yet() {
    let (home, gate) = Gate::home();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
    let mut raw = daemon.raw().await;
    gate.hold("session/set_mode");
    let setting = json!({"conversationId": id, "settings": {"mode": "plan"}});
    let setting = raw.send("conversation/update", setting).await;
    gate.wait_until_held();
    let prompt = json!({"conversationId": id, "prompt": "two"});
    let prompt = raw.send("conversation/prompt", prompt).await;
    let unaccepted = within(async {
        loop {
            let envelope = app.events(id).await.next().await;
            let Event::Snapshot {
                running, unaccepted, ..
            } = envelope.event
            else {
                panic!("{envelope:?}")
            };
            assert_eq!(running, None);
            if let Some(unaccepted) = unaccepted {
                break unaccepted;
            }
        }
    })
    .await;
    assert_eq!(unaccepted.prompt.to_text(), "two");
    gate.open();
    raw.answer(setting).await;
    let turn = raw.answer(prompt).await;
    assert_eq!(turn["result"]["turnId"], json!(unaccepted.turn_id));
    let envelope = app.events(id).await.next().await;
    assert!(
        matches!(envelope.event, Event::Snapshot { unaccepted: None, .. }),
        "{envelope:?}"
    );
}
