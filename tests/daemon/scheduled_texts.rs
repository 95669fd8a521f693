//! Texts that a user schedules for a time: each is sent exactly once, even if the daemon or the agent ends meanwhile.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use rustix::process::Signal;
use serde_json::json;

use crate::continuing::{AT_ONCE, GO_ON, go_on, prompts};
use crate::gate::Gate;
use crate::home::Home;
use crate::support::App;

/// The scheduled text.
const TEXT: &str = "[[say on it]][[hang]] run the long tests";

/// Schedules the text for now, and waits for this event.
async fn says(app: &App, id: ConversationId, until: &str) {
    let mut events = app.events(id).await;
    go_on(app, id, json!({"at": AT_ONCE, "text": TEXT})).await;
    events.until(until).await;
}

/// Starts another daemon, which continues automatically. Waits until the agent has `count` prompts, and returns them.
async fn prompts_later(home: &Home, id: ConversationId, count: usize) -> Vec<String> {
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    loop {
        let prompts = prompts(&app, home, id).await;
        if prompts.len() >= count {
            return prompts;
        }
        events.find(|_| Some(())).await;
    }
}

/// The daemon and the agent are killed before the agent has read the text.
#[tokio::test]
async fn f18_a_text_that_no_agent_has_read_is_said_once_by_the_next_life() {
    let (home, gate) = Gate::home();
    let (daemon, app, id) = home.begun(&["before"]).await;
    gate.hold("session/prompt");
    says(&app, id, "continued").await;
    gate.wait_until_held();
    daemon.kill();
    gate.kill_last();
    assert_eq!(prompts_later(&home, id, 2).await, ["before", TEXT]);
}

/// The agent has read the text when the daemon is stopped: the next daemon continues the turn, and does not send the
/// text again.
#[tokio::test]
async fn d3_a_text_that_a_stop_cut_short_is_gone_on_with() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["before"]).await;
    says(&app, id, "update").await;
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().await.success());
    let prompts = prompts_later(&home, id, 3).await;
    assert_eq!(prompts[..2], ["before", TEXT]);
    assert!(prompts[2].starts_with(GO_ON), "{prompts:?}");
}

/// Scheduling the same time again keeps the text.
#[tokio::test]
async fn the_same_time_again_keeps_the_text() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["[[limit 1]]"]).await;
    let mut events = app.events(id).await;
    let promised = go_on(&app, id, json!({"at": "reset", "text": "now, please"})).await;
    let again = go_on(&app, id, json!({"at": "reset"})).await;
    assert_eq!(promised, again);
    let idle = |event: &Event| match event {
        Event::StateChanged { state } => (*state == ConversationState::Idle).then_some(()),
        _ => None,
    };
    events.find(idle).await;
    assert_eq!(prompts(&app, &home, id).await, ["[[limit 1]]", "now, please"]);
}

/// The store knows the text but lost the record that it was sent, so the user has to decide.
#[tokio::test]
async fn a_text_is_not_said_again_after_the_store_lost_changes() {
    let home = Home::with_config("[limits]\ncontinuations = 1\n");
    let (daemon, app, id) = home.begun(&["before"]).await;
    // This turn takes the only continuation slot, so the other text has to wait.
    let first = app.make(&home.project()).await;
    says(&app, first, "update").await;
    go_on(&app, id, json!({"at": AT_ONCE, "text": "once"})).await;
    daemon.kill();
    let journal = home.data().join("journal.jsonl");
    let older = fs::read(&journal).unwrap();

    assert_eq!(prompts_later(&home, id, 2).await, ["before", "once"]);
    fs::write(&journal, older).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    // The second start finds no loss of its own.
    for _ in 0..2 {
        let (_daemon, app) = home.opened().await;
        let conversation = app.get(id).await;
        assert_eq!(conversation.state, ConversationState::Failed);
        assert_eq!(conversation.continuation, None);
        assert_eq!(prompts(&app, &home, id).await, ["before", "once"]);
    }
    let daemon = home.start();
    go_on(&daemon.app().await, id, json!({"at": AT_ONCE, "text": "again"})).await;
    drop(daemon);
    assert_eq!(prompts_later(&home, id, 3).await, ["before", "once", "again"]);
}
