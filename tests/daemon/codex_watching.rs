//! Events about Codex's rollouts while they grow and when they are loaded. A script stands in for Codex; the test
//! writes to the rollouts as Codex would.

use bridge_protocol::method::Checkpoints;
use std::fs;
use std::io::Write;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use serde_json::{Value, json};

use crate::codex::{ROOT, ROOT_ID, rollout, write};
use crate::home::Home;
use crate::scripted;
use crate::support::{App, refused};
use crate::watching::saved;

/// The id of the last of the six turns in the root's rollout.
const LAST_TURN: &str = "01a1fcbf-e9e8-7521-8543-749c58e4d408";

/// Returns a home with a scripted Codex and a session of five turns.
pub(crate) fn home() -> Home {
    let home = Home::new();
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{"close":{}}}"#;
    let agent = scripted::configured_kind(&home, "codex", capabilities);
    home.configure(&format!("default_agent = \"loopback\"\n{agent}"));
    write(&rollout(&home, ROOT_ID), five_turns());
    home
}

fn five_turns() -> &'static str {
    let (head, _) = ROOT.split_once(LAST_TURN).unwrap();
    &head[..=head.rfind('\n').unwrap()]
}

/// Returns the text of the sixth turn with the turn id of this number.
fn turn(number: u8) -> String {
    ROOT[five_turns().len()..].replace(LAST_TURN, &format!("01a1fcbf-e9e8-7521-8543-{number:012}"))
}

fn append(home: &Home, text: &str) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(rollout(home, ROOT_ID))
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub(crate) async fn adopt(app: &App, home: &Home) -> ConversationId {
    let params = json!({"upstreamId": ROOT_ID, "cwd": home.project()});
    app.made_by("conversation/adopt", params).await
}

#[tokio::test]
async fn each_turn_of_a_rollout_is_saved_when_its_end_is_on_disk() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let mut events = app.events(id).await;
    // The end of the sixth turn is written later, together with a whole seventh turn.
    let sixth = turn(6);
    let end = sixth.trim_end().rfind('\n').unwrap() + 1;
    append(&home, &sixth[..end]);
    append(&home, &format!("{}{}", &sixth[end..], turn(7)));
    for step in [6, 7] {
        let told = saved(&mut events).await;
        assert_eq!(
            (told.step, told.prompt.as_str()),
            (step, "sixth [[text six]]"),
            "only turns after the adoption count"
        );
        let page = app
            .answer(Checkpoints {
                conversation_id: id.into(),
                ..Default::default()
            })
            .await;
        let same = page.checkpoints.into_iter().find(|other| other.step == step);
        assert_eq!(same, Some(told));
    }
    append(&home, &turn(8));
    assert_eq!(saved(&mut events).await.step, 8, "each is reported once");
}

#[tokio::test]
async fn lists_tell_the_turns_of_a_rollout_that_was_read() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let list = json!({"agent": "codex"});
    app.ask("conversation/history", id).await;
    let page = app.call("transcript/list", list.clone()).await.unwrap();
    assert_eq!(page["transcripts"][0]["turns"], json!(5));
    let mut events = app.events(id).await;
    append(&home, &turn(6));
    let page = app.call("transcript/list", list.clone()).await.unwrap();
    let turns = &page["transcripts"][0]["turns"];
    assert!(turns.is_null() || *turns == json!(6), "{turns}");
    assert_eq!(saved(&mut events).await.step, 6);
    let page = app.call("transcript/list", list).await.unwrap();
    assert_eq!(page["transcripts"][0]["turns"], json!(6));
}

#[tokio::test]
async fn what_codex_loads_is_told_with_its_size() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let page = app
        .call(
            "conversation/history",
            json!({"conversationId": id, "limit": 200}),
        )
        .await
        .unwrap();
    assert_eq!(page["messages"].as_array().unwrap().len(), 15);
    let mut events = app.events(id).await;
    app.ask("conversation/resume", id).await;
    // The rollout ends with a compaction that kept one prompt.
    let expected = Event::CheckpointLoaded {
        upstream_id: ROOT_ID.into(),
        step: 5,
        messages: 1,
    };
    assert_eq!(events.until("checkpointLoaded").await, expected);
    // In a rollout, another program's prompts look the same as the daemon's, so no `foreignWriter` is reported.
    append(&home, &turn(6));
    let mut event = events.next().await.event;
    while !matches!(event, Event::CheckpointSaved { .. }) {
        assert_ne!(event.kind(), "foreignWriter");
        event = events.next().await.event;
    }
}

/// Codex skips an unreadable line without an error. The resume reports partial fidelity; if the call requires full
/// fidelity, the session is closed again.
#[tokio::test]
async fn a_damaged_rollout_that_codex_resumes_is_partial() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let resume = |least: &str| json!({"conversationId": id, "minFidelity": least});
    let close = json!({"conversationId": id});
    let whole = app.call("conversation/resume", resume("full")).await.unwrap();
    assert_eq!(whole["resumed"]["fidelity"], json!("full"));
    app.call("conversation/close", close.clone()).await.unwrap();
    let mut lines: Vec<&str> = five_turns().lines().collect();
    let reply = lines.iter().rposition(|line| line.contains("\"assistant\""));
    lines[reply.unwrap()] = "{\"timestamp\":";
    fs::write(rollout(&home, ROOT_ID), lines.join("\n") + "\n").unwrap();
    let error = refused(
        app.call("conversation/resume", resume("full")).await,
        ErrorKind::NotResumable,
    );
    let attempts: Vec<Value> = error.details["attempts"].read().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (&attempts[0]["via"], &attempts[0]["error"]),
        (
            &json!("load"),
            &json!("its transcript is not whole: one of its records is damaged or missing")
        )
    );
    let closed = scripted::heard(&home, "codex");
    assert_eq!(closed.last().unwrap()["method"], "session/close");
    let told = app.call("conversation/resume", resume("partial")).await.unwrap();
    let resumed = &told["resumed"];
    assert_eq!(
        (&resumed["via"], &resumed["fidelity"], &resumed["missingTurns"]),
        (&json!("load"), &json!("partial"), &json!(0))
    );
    assert_eq!(app.get(id).await.head.unwrap().as_str(), ROOT_ID);
}
