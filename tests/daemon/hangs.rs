//! Agents that do not respond: a cancel is answered in time, and the conversation continues without the agent. Silence
//! alone is no reason to abandon an agent, and a session that other calls wait for is kept.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;
use serde_json::json;

use crate::carrying::files_below;
use crate::gate::Gate;
use crate::home::{Daemon, wait_for_end};
use crate::support::{App, Events, Refusal, words_of};

/// A short deadline for cancels; opening a session may still take any time.
const IMPATIENT: &str = "[limits]\ncancel_grace_ms = 200\n";

/// A deadline for cancels that no test reaches.
const PATIENT: &str = "[limits]\ncancel_grace_ms = 3600000\n";

/// Sends a prompt, waits until the agent hangs in this call, and cancels the prompt. Returns the agents that ran
/// meanwhile.
async fn cancel_while_it_hangs(
    daemon: &Daemon<'_>,
    gate: &Gate,
    app: &App,
    id: ConversationId,
    method: &str,
) -> Vec<u32> {
    gate.hold(method);
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": "never sent"});
    let cancelled = raw.send("conversation/prompt", prompt).await;
    gate.wait_until_held();
    let running = gate.children(daemon.home);
    let answer = app
        .call("conversation/cancel", json!({"conversationId": id}))
        .await;
    assert_eq!(answer.unwrap(), json!({"cancelled": true}));
    assert_eq!(raw.answer(cancelled).await["result"]["stopReason"], "cancelled");
    running
}

/// F28: neither the cancelled prompt nor the next one waits for a session that does not come back. The next prompt goes
/// to another process, and the hanging one is ended.
#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_session_that_does_not_come_back() {
    for (method, loads) in [
        ("session/resume", false),
        ("session/load", true),
        ("session/set_mode", false),
    ] {
        let (home, gate) = Gate::home_with(IMPATIENT);
        if loads {
            gate.offer_no_resume();
        }
        let (daemon, app, id) = home.begun(&["first"]).await;
        let plan = json!({"conversationId": id, "settings": {"mode": "plan"}});
        app.call("conversation/update", plan).await.unwrap();
        app.close(id).await;
        let hanging = cancel_while_it_hangs(&daemon, &gate, &app, id, method).await;
        assert_eq!(app.get(id).await.state, ConversationState::Idle);
        let turn = app.send(id, "second").await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn);
        assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Full);
        assert_eq!(app.remembered(id).await, ["first", "second"]);
        assert_eq!(app.chain(id).await.len(), 1, "the session changed");
        hanging.into_iter().for_each(wait_for_end);
        assert_eq!(gate.children(&home).len(), 1, "{:?}", home.processes());
    }
}

/// The same holds if the agent hangs while opening the first session.
#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_new_session() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app, id) = home.begun(&[]).await;
    let hanging = cancel_while_it_hangs(&daemon, &gate, &app, id, "session/new").await;
    assert_eq!(app.say(id, "first").await.words, "echo: first");
    assert_eq!(app.remembered(id).await, ["first"]);
    hanging.into_iter().for_each(wait_for_end);
    assert_eq!(gate.children(&home).len(), 1, "{:?}", home.processes());
}

/// If a client disconnects or cancels its own prompt, the resume continues for other waiting clients. The agent is not
/// abandoned, however long it takes.
#[tokio::test]
async fn who_leaves_or_cancels_does_not_end_the_resume_of_others() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    gate.hold("session/resume");
    let this = json!({"conversationId": id});
    let (mut leaving, mut staying) = (daemon.raw().await, daemon.raw().await);
    leaving.send("conversation/resume", this.clone()).await;
    gate.wait_until_held();
    let resumed = staying.send("conversation/resume", this.clone()).await;
    let prompt = json!({"conversationId": id, "prompt": "never sent"});
    let cancelled = staying.send("conversation/prompt", prompt).await;
    staying.send("conversation/cancel", this).await;
    assert_eq!(
        staying.answer(cancelled).await["result"]["stopReason"],
        "cancelled"
    );
    drop(leaving);
    // Waits longer than the deadline of a cancel, by cancelling a turn of another conversation whose agent ignores the
    // cancel.
    let deaf = app.make_of(&home.project(), "loopback").await;
    let mut holder = daemon.raw().await;
    let (held, _) = holder.run(deaf, "[[deaf]][[say deaf]][[hang]]").await;
    app.ask("conversation/cancel", deaf).await;
    holder.answer(held).await;
    gate.open();
    let answer = staying.answer(resumed).await;
    assert_eq!(answer["result"]["resumed"]["fidelity"], "full", "{answer}");
    assert_eq!(app.remembered(id).await, ["first"]);
    assert_eq!(gate.starts().len(), 1, "process changed");
}

/// A turn runs even if its client disconnects while the session is being resumed.
#[tokio::test]
async fn a_turn_whose_client_leaves_while_its_session_is_brought_back_goes_on() {
    let (home, gate) = Gate::home_with(PATIENT);
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    gate.hold("session/resume");
    let mut leaving = daemon.raw().await;
    leaving
        .send(
            "conversation/prompt",
            json!({"conversationId": id, "prompt": "second"}),
        )
        .await;
    gate.wait_until_held();
    let mut events = app.events(id).await;
    drop(leaving);
    gate.open();
    events.until("turnEnded").await;
    assert_eq!(app.remembered(id).await, ["first", "second"]);
}

/// F14, F37: updates of an abandoned process belong to none of the session's turns. Turns of other conversations in
/// that process run to their ends.
#[tokio::test]
async fn what_a_process_says_that_was_given_up_belongs_to_no_turn() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    gate.offer_no_resume();
    let (daemon, app, id) = home.begun(&[]).await;
    let other = app.make(&home.project()).await;
    app.send(id, "first").await;
    app.close(id).await;
    let mut holder = daemon.raw().await;
    let (running, _) = holder.hang(other).await;
    cancel_while_it_hangs(&daemon, &gate, &app, id, "session/load").await;
    let mut events = app.events(id).await;
    assert_eq!(app.say(id, "second").await.words, "echo: second");
    assert_eq!(gate.starts().len(), 2, "no process of its own");
    assert_eq!(
        app.get(other).await.state,
        ConversationState::Prompting,
        "the turn must still run"
    );
    // The first process now loads the session and sends its whole history as updates.
    gate.open();
    app.ask("conversation/cancel", other).await;
    assert_eq!(holder.answer(running).await["result"]["stopReason"], "cancelled");
    assert_eq!(app.say(id, "third").await.words, "echo: third");
    assert_eq!(
        words_of_turns(&mut events, 2).await,
        ["echo: second", "echo: third"]
    );
    assert_eq!(app.remembered(other).await.len(), 1);
    assert_eq!(app.remembered(id).await, ["first", "second", "third"]);
    app.close(other).await;
    // No conversation uses the process any more.
    wait_for_end(gate.starts()[0]);
}

/// An abandoned agent may still open the copy that it was told to open. If the copy were deleted before, the agent
/// would create a new, nearly empty file in its place.
#[tokio::test]
async fn a_copy_stays_while_an_agent_that_was_given_up_may_open_it() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app) = home.opened().await;
    // This conversation's session keeps the process running.
    app.begun(&home.project(), &["other"]).await;
    let id = app.begun(&home.project(), &["first"]).await;
    let head = app.send(id, "[[say second]][[forget]]").await.upstream_id;
    let head = home.transcript(head.as_str()).unwrap();
    let transcripts = || files_below(head.parent().unwrap());
    let before = transcripts();
    gate.hold("session/resume");
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": "never sent"});
    let cancelled = raw.send("conversation/prompt", prompt).await;
    gate.wait_until_held();
    // The agent has forgotten the head, so the daemon opens a copy next.
    gate.hold("session/resume");
    gate.open();
    gate.wait_until_held();
    let mut copies = transcripts();
    copies.retain(|path| !before.contains(path));
    assert_eq!(copies.len(), 1, "{copies:?}");
    app.ask("conversation/cancel", id).await;
    assert_eq!(raw.answer(cancelled).await["result"]["stopReason"], "cancelled");
    let turn = app.send(id, "third").await;
    assert_eq!(turn.resumed.unwrap().via, Via::Copied);
    assert_eq!(gate.starts().len(), 2, "no process of its own");
    assert!(copies[0].exists(), "the first process may still open it");
}

/// Returns the agent's texts up to the end of this many turns, one per update, whether or not they belong to a turn.
async fn words_of_turns(events: &mut Events, turns: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..turns {
        let told = events.turn().await;
        words.extend(told.iter().filter_map(|envelope| match &envelope.event {
            Event::Update { update, .. } => words_of(update),
            _ => None,
        }));
    }
    words
}

/// During a move, a file may be at neither path. Calls that need it are busy and can be retried after the move.
#[tokio::test]
async fn a_backup_an_export_and_a_fork_beside_a_move_are_busy() {
    for method in ["conversation/move", "transcript/move"] {
        beside_a_move(method).await;
    }
}

async fn beside_a_move(method: &str) {
    let (home, gate) = Gate::home_with(PATIENT);
    let (daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    let at = app.checkpoints(id).await[0].id.clone();
    let new = home.folder_named("other");
    let params = match method {
        "transcript/move" => json!({"from": home.project(), "to": new}),
        _ => json!({"conversationId": id, "cwd": new}),
    };
    gate.hold("session/close");
    let mut mover = daemon.raw().await;
    let moving = mover.send(method, params).await;
    gate.wait_until_held();
    let mut raw = daemon.raw().await;
    let bundle = home.path().join("bundle.zip");
    let calls = [
        ("transcript/keep", json!({"conversationId": id})),
        ("transcript/keep", json!({"upstreamId": head})),
        (
            "conversation/export",
            json!({"conversationId": id, "format": "bundle", "path": bundle}),
        ),
        ("conversation/export", json!({"conversationId": id})),
        ("conversation/fork", json!({"conversationId": id})),
        ("conversation/fork", json!({"conversationId": id, "at": at})),
        (
            "conversation/fork",
            json!({"conversationId": id, "at": at, "inPlace": true}),
        ),
    ];
    for (method, params) in &calls {
        raw.refused(method, params.clone(), Refusal(1003, "busy", true))
            .await;
    }
    gate.open();
    let moved = mover.answer(moving).await;
    assert_eq!(moved["result"]["moved"], 1, "{moved}");
    for (method, params) in calls {
        app.call(method, params).await.unwrap();
    }
}
