//! Isolation: of conversations that share a process or a folder, and of a reply from an earlier one that was cut short.

use std::fs;
use std::os::unix::fs::symlink;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Via};
use serde_json::json;

use crate::damaged::tear;
use crate::home::Home;
use crate::support::words_of;

/// F4, F8: a history that is retold as text is that of its own conversation, from the first prompt on, and contains
/// nothing of another one.
#[tokio::test]
async fn a_retelling_is_of_its_own_conversation_from_its_first_prompt_on() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut conversations = Vec::new();
    for fruit in ["apples", "pears"] {
        let id = app.make(&home.project()).await;
        app.send(id, &format!("first {fruit}")).await;
        let turn = app
            .send(id, &format!("[[say more {fruit}]][[forget copies]]"))
            .await;
        conversations.push((id, fruit, turn.upstream_id));
    }
    for (_, fruit, upstream_id) in &conversations {
        tear(&home, upstream_id.as_str(), &format!("more {fruit}"));
    }
    for (id, fruit, _) in &conversations {
        let turn = app.send(*id, "go on").await;
        assert_eq!(turn.resumed.unwrap().fidelity, Fidelity::Text);
        let told = app.remembered(*id).await.remove(0);
        assert!(told.contains(&format!("first {fruit}")), "{told}");
        let other = if *fruit == "apples" { "pears" } else { "apples" };
        assert!(!told.contains(other), "{told}");
    }
}

/// F9, F10: queued prompts run in the folder and the history of their own conversation, although all conversations
/// share one agent process.
#[tokio::test]
async fn prompts_that_waited_run_in_their_own_folder_and_history() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut conversations = Vec::new();
    for name in ["left", "right"] {
        let id = app.make(&home.folder_named(name)).await;
        let mut raw = daemon.raw().await;
        let (hanging, _) = raw.hang(id).await;
        let mut waiting = Vec::new();
        for text in [format!("[[write made.txt {name}]]"), format!("behind {name}")] {
            let params = json!({"conversationId": id, "prompt": text, "onBusy": "queue"});
            waiting.push(raw.send("conversation/prompt", params).await);
        }
        conversations.push((id, name, raw, hanging, waiting));
    }
    assert_eq!(home.agents().len(), 1);
    for (id, ..) in &conversations {
        app.ask("conversation/cancel", id).await;
    }
    for (id, name, raw, hanging, waiting) in &mut conversations {
        assert_eq!(raw.answer(*hanging).await["result"]["stopReason"], "cancelled");
        for request in waiting {
            assert_eq!(raw.answer(*request).await["result"]["stopReason"], "end_turn");
        }
        let made = fs::read_to_string(home.path().join(*name).join("made.txt")).unwrap();
        assert_eq!(made, *name);
        let remembered = app.remembered(*id).await;
        assert_eq!(remembered.last().unwrap(), &format!("behind {name}"));
        assert_eq!(remembered.len(), 3, "{remembered:?}");
    }
}

/// F13: for a folder that is a symbolic link, the agent stores transcripts under the real path. A copy is placed there
/// too.
#[tokio::test]
async fn a_session_in_a_linked_folder_is_copied_to_where_the_agent_looks() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    home.folder_named("real");
    let link = home.path().join("link");
    symlink(home.path().join("real"), &link).unwrap();
    let id = app.make(link.to_str().unwrap()).await;
    app.send(id, "first").await;
    app.send(id, "[[say second]][[forget]]").await;
    let turn = app.send(id, "third").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Copied, Fidelity::Full));
    let copy = home.transcript(turn.upstream_id.as_str()).unwrap();
    let folder = copy.parent().unwrap().to_str().unwrap();
    assert!(folder.ends_with("-real"), "{folder}");
    let remembered = app.remembered(id).await;
    assert_eq!(remembered, ["first", "[[say second]][[forget]]", "third"]);
    assert_eq!(app.get(id).await.cwd, link.to_str().unwrap());
}

/// F19: text that was streamed before the agent died is not part of the reply to the next prompt.
#[tokio::test]
async fn a_reply_that_was_cut_short_is_not_joined_to_the_next() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let cut = app.send(id, "[[say half an answer]][[crash]]").await;
    assert!(cut.failure.is_some(), "{cut:?}");
    events.turn().await;
    let again = app.send(id, "[[say half an answer and the rest]]").await;
    let mut words = String::new();
    for envelope in events.turn().await {
        let Event::Update { turn_id, update } = envelope.event else {
            continue;
        };
        if let Some(said) = words_of(&update) {
            assert_eq!(turn_id.as_ref(), Some(&again.turn_id));
            words += &said;
        }
    }
    assert_eq!(words, "half an answer and the rest");
}

/// F27: a turn that sends no updates runs for as long as it takes, while idle sessions of other conversations are
/// closed.
#[tokio::test]
async fn a_silent_turn_is_not_ended_by_any_limit_on_idleness() {
    let home = Home::with_config("[limits]\nidle_minutes = 0.002\nagent_idle_minutes = 0\n");
    let (daemon, app, silent) = home.begun(&[]).await;
    let other = app.make(&home.project()).await;
    let mut raw = daemon.raw().await;
    // After this turn the conversation's idle time runs, until its next prompt.
    app.send(silent, "first").await;
    let (request, _) = raw.hang(silent).await;
    let mut events = app.events(other).await;
    for text in ["one", "two", "three"] {
        app.send(other, text).await;
        events.until("closed").await;
    }
    let conversation = app.get(silent).await;
    assert_eq!(
        (conversation.state, conversation.live),
        (ConversationState::Prompting, true)
    );
    app.ask("conversation/cancel", silent).await;
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "cancelled");
}
