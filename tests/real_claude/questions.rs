//! Questions of the agent, answered over the socket.

use std::fs;

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::turn::{InterruptKind, StopReason};

use crate::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::model_server::{What, model, tool_result, tool_use, user};

/// The tool call of a turn that makes a file, which the agent asks about.
const MAKES_A_FILE: &str = r#"[[tool Bash {"command":"echo made > made.txt; cat made.txt","description":"make a file"}]] [[text told]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn a_permission_is_asked_and_what_is_allowed_is_done() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    let interrupt = bridge.wait_event("a question", |event| match &event.event {
        Event::InterruptRaised { interrupt } => Some(interrupt.clone()),
        _ => None,
    });
    assert_eq!(
        (interrupt.kind, interrupt.orphaned),
        (InterruptKind::Permission, false)
    );
    let now = bridge.get(id);
    assert_eq!(now.state, ConversationState::Awaiting);
    assert_eq!(now.interrupts, std::slice::from_ref(&interrupt));
    let made = bridge.lab.project().join("made.txt");
    assert!(!made.exists());

    bridge.respond(id, &interrupt, "allow_once");
    let turn = running.wait().expect("a turn result");
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    assert_eq!(fs::read_to_string(made).expect("the file"), "made\n");
    assert_eq!(bridge.get(id).interrupts, []);
    bridge.prompted(id, "next");
    let expected = [
        user(MAKES_A_FILE),
        model("calling"),
        tool_use("Bash"),
        tool_result("made"),
        model("told"),
        user("next"),
    ];
    assert_eq!(bridge.lab.model.asked("next"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn what_is_refused_is_not_done() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    let interrupt = bridge.wait_event("a question", |event| match &event.event {
        Event::InterruptRaised { interrupt } => Some(interrupt.clone()),
        _ => None,
    });
    bridge.respond(id, &interrupt, "reject_once");
    running.wait().expect("a turn result");
    assert!(!bridge.lab.project().join("made.txt").exists());
    bridge.prompted(id, "next");
    let said = bridge.lab.model.asked("next");
    let refused = said
        .iter()
        .any(|said| matches!(&said.what, What::ToolResult(text) if text.contains("refused")));
    assert!(refused, "{said:?}");
}

#[test]
#[ignore = "installs the real adapter"]
fn a_cancelled_turn_takes_its_question_along() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    bridge.wait_event("a question", |event| {
        matches!(event.event, Event::InterruptRaised { .. }).then_some(())
    });
    assert!(bridge.cancel(id));
    assert_eq!(
        running.wait().expect("a turn result").stop_reason,
        StopReason::Cancelled
    );
    let now = bridge.get(id);
    assert_eq!((now.state, now.interrupts), (ConversationState::Idle, Vec::new()));
    assert!(!bridge.lab.project().join("made.txt").exists());
    bridge.prompted(id, "next");
}
