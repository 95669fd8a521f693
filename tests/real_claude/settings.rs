//! Settings reach the model, and reach it again each time the session is opened.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Settings;
use bridge_protocol::event::Event;
use bridge_protocol::link::Via;
use serde_json::{Value, json};

use super::bridge::Bridge;
use crate::support::claude::Account;

const SYSTEM_PROMPT: &str = "Answer in Latin.";

/// The agent's name for a model other than its default.
const MODEL: &str = "haiku";

/// The newest request of a conversation.
fn newest(bridge: &Bridge) -> Value {
    bridge.lab.model.requests().pop().expect("a request")
}

/// Runs a turn that shows all settings of these tests: the model's request contains model and system prompt,
/// and the mode lets a file be written without a question.
fn check(bridge: &Bridge, id: ConversationId, text: &str) {
    let file = bridge.lab.project().join(format!("{text}.txt"));
    let input = json!({"file_path": file, "content": "written"});
    bridge.prompted(id, &format!("{text} [[tool Write {input}]]"));
    assert!(file.exists(), "wrong mode, the file was not written: {text}");
    let request = newest(bridge);
    let system = request["system"].to_string();
    assert_eq!(
        system.matches(SYSTEM_PROMPT).count(),
        1,
        "the system prompt must be sent once: {text}"
    );
    let model = request["model"].as_str().expect("a model");
    assert!(model.contains(MODEL), "{model}: {text}");
    let asked = bridge
        .events(id)
        .iter()
        .any(|event| matches!(event, Event::InterruptRaised { .. }));
    assert!(!asked, "wrong mode, the agent asked: {text}");
}

#[test]
#[ignore = "installs the real adapter"]
fn model_mode_and_system_prompt_hold_after_resumes_and_forks() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let settings = Settings {
        model: Some(MODEL.to_owned()),
        mode: Some("acceptEdits".to_owned()),
        system_prompt: Some(SYSTEM_PROMPT.to_owned()),
        ..Settings::default()
    };
    let id = bridge.conversation(settings);
    check(&bridge, id, "first");
    bridge.close(id);
    check(&bridge, id, "after a resume");
    assert_eq!(
        last_via(&bridge, id),
        Some(Via::Resume),
        "the session was not closed and resumed"
    );

    let branch = bridge.fork(id, false).conversation.id;
    check(&bridge, branch, "on a branch");
    bridge.close(branch);
    check(&bridge, branch, "on a branch brought back");
    bridge.fork(id, true);
    check(&bridge, id, "on a branch in place");

    let kept = bridge.get(id).settings;
    assert_eq!(kept.mode.as_deref(), Some("acceptEdits"));
    assert_eq!(kept.system_prompt.as_deref(), Some(SYSTEM_PROMPT));
    assert!(
        kept.model.as_deref().is_some_and(|model| model.contains(MODEL)),
        "{kept:?}"
    );
}

#[test]
#[ignore = "installs the real adapter"]
fn a_changed_model_holds_at_once_and_after_a_resume() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first"]);
    assert!(!newest(&bridge)["model"].to_string().contains(MODEL));
    let change = Settings {
        model: Some(MODEL.to_owned()),
        ..Settings::default()
    };
    bridge.set(id, change);
    bridge.prompted(id, "second");
    assert!(newest(&bridge)["model"].to_string().contains(MODEL));
    bridge.close(id);
    bridge.prompted(id, "third");
    assert!(newest(&bridge)["model"].to_string().contains(MODEL));
}

fn last_via(bridge: &Bridge, id: ConversationId) -> Option<Via> {
    let events = bridge.events(id);
    events.iter().rev().find_map(|event| match event {
        Event::Resumed { resumed } => Some(resumed.via),
        _ => None,
    })
}
