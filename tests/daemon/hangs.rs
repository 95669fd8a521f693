//! Agents that do not answer: whoever cancels is answered in time, and the conversation goes on without them.
//! Nobody is given up for being silent alone, and nothing that others wait for is.

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

/// A cancel that is not heeded is soon past its deadline; opening a session may take as long as ever.
const IMPATIENT: &str = "[limits]\ncancel_grace_ms = 200\n";

/// No cancel passes its deadline in the time of a test.
const PATIENT: &str = "[limits]\ncancel_grace_ms = 3600000\n";

/// Sends a prompt at whose session the agent hangs in this call, and cancels it, which is answered. Gives the
/// agents that ran while one hung.
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

/// F28: a session that is not brought back is not waited for by who has cancelled, nor by the next prompt,
/// which goes to another process. The hanging one is gone.
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
        let (daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), &["first"]).await;
        let plan = json!({"conversationId": id, "settings": {"mode": "plan"}});
        app.call("conversation/update", plan).await.unwrap();
        app.close(id).await;
        let hanging = cancel_while_it_hangs(&daemon, &gate, &app, id, method).await;
        assert_eq!(app.get(id).await.state, ConversationState::Idle);
        let turn = app.send(id, "second").await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn);
        assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Full);
        assert_eq!(app.remembered(id).await, ["first", "second"]);
        assert_eq!(app.chain(id).await.len(), 1, "it is the same session");
        hanging.into_iter().for_each(wait_for_end);
        assert_eq!(gate.children(&home).len(), 1, "{:?}", home.processes());
    }
}

/// The same over the first session.
#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_new_session() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    let hanging = cancel_while_it_hangs(&daemon, &gate, &app, id, "session/new").await;
    assert_eq!(app.say(id, "first").await.words, "echo: first");
    assert_eq!(app.remembered(id).await, ["first"]);
    hanging.into_iter().for_each(wait_for_end);
    assert_eq!(gate.children(&home).len(), 1, "{:?}", home.processes());
}

/// Who leaves, or cancels a prompt of their own, does not take the session away from others who wait for it.
/// However long it takes, the agent is not given up.
#[tokio::test]
async fn who_leaves_or_cancels_does_not_end_the_resume_of_others() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
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
    // Longer than a cancel is waited for: the end of another conversation's turn that does not heed one.
    let deaf = app.make_of(&home.project(), "loopback").await;
    let mut holder = daemon.raw().await;
    let (held, _) = holder.run(deaf, "[[deaf]][[say deaf]][[hang]]").await;
    app.ask("conversation/cancel", deaf).await;
    holder.answer(held).await;
    gate.open();
    let answer = staying.answer(resumed).await;
    assert_eq!(answer["result"]["resumed"]["fidelity"], "full", "{answer}");
    assert_eq!(app.remembered(id).await, ["first"]);
    assert_eq!(gate.starts().len(), 1, "the process is the same");
}

/// A turn whose client leaves while its session is brought back runs all the same.
#[tokio::test]
async fn a_turn_whose_client_leaves_while_its_session_is_brought_back_goes_on() {
    let (home, gate) = Gate::home_with(PATIENT);
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
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

/// F14, F37: what a process that was given up still says of a session belongs to no turn of it, while the
/// turns of others in that process go on to their ends.
#[tokio::test]
async fn what_a_process_says_that_was_given_up_belongs_to_no_turn() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    gate.offer_no_resume();
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    let other = app.make(&home.project()).await;
    app.send(id, "first").await;
    app.close(id).await;
    let mut holder = daemon.raw().await;
    let (running, _) = holder.hang(other).await;
    cancel_while_it_hangs(&daemon, &gate, &app, id, "session/load").await;
    let mut events = app.events(id).await;
    assert_eq!(app.say(id, "second").await.words, "echo: second");
    assert_eq!(gate.starts().len(), 2, "it has its own process");
    assert_eq!(
        app.get(other).await.state,
        ConversationState::Prompting,
        "nobody has ended this"
    );
    // The first process loads the session now and tells all that was said in it.
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
    // Nobody uses it any more.
    wait_for_end(gate.starts()[0]);
}

/// An agent that was given up may still open the copy that it was sent to. A copy that was deleted earlier would come back as a
/// stub.
#[tokio::test]
async fn a_copy_stays_while_an_agent_that_was_given_up_may_open_it() {
    let (home, gate) = Gate::home_with(IMPATIENT);
    let (daemon, app) = home.opened().await;
    // Its session keeps the process.
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
    // The agent has forgotten the head: a copy is opened next.
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
    assert_eq!(gate.starts().len(), 2, "it has its own process");
    assert!(copies[0].exists(), "the first process may still open it");
}

/// What was said up to the end of so many turns, a text for each piece, whomever it belongs to.
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

/// Beside a move, files may be in neither place. What needs them can be tried again when the move is done.
#[tokio::test]
async fn a_backup_an_export_and_a_fork_beside_a_move_are_busy() {
    for method in ["conversation/move", "transcript/move"] {
        beside_a_move(method).await;
    }
}

async fn beside_a_move(method: &str) {
    let (home, gate) = Gate::home_with(PATIENT);
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
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
