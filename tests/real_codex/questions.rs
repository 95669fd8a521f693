//! Questions of the agent, answered over the socket.
//!
//! Codex asks for permission only in certain modes, and only before commands that its model wants to run
//! outside the sandbox.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::turn::{FailureKind, StopReason};

use super::bridge::Bridge;
use super::survival::{cut_short_in, kill_server};
use super::transcripts::asked;
use crate::permitted::{asked_and_done, orphan, orphaned_by_a_kill};
use crate::support::model_server::{What, model, tool_result, tool_use, user};

/// The tool call of a turn that creates a file, for which the agent asks permission.
const MAKES_A_FILE: &str = r#"[[tool exec_command {"cmd":"echo made > made.txt; cat made.txt","sandbox_permissions":"require_escalated","justification":"make a file"}]] [[text told]]"#;

/// Settings with a mode in which commands outside the sandbox need permission.
fn asking() -> Settings {
    Settings {
        mode: Some("read-only".into()),
        ..Settings::default()
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn a_permission_is_asked_and_what_is_allowed_is_done() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.conversation(asking());
    asked_and_done(&bridge, id, MAKES_A_FILE);
    bridge.prompted(id, "next");
    let expected = [
        user(MAKES_A_FILE),
        model("calling"),
        tool_use("exec_command"),
        tool_result("made"),
        model("told"),
        user("next"),
    ];
    assert_eq!(asked(&bridge, "next"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn what_is_refused_is_not_done() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.conversation(asking());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    let interrupt = bridge.question(id);
    bridge.respond(id, &interrupt, "reject_once");
    // Codex has only one option to reject, and that ends the turn.
    let turn = running.wait().expect("a turn result");
    assert_eq!((turn.stop_reason, turn.failure), (StopReason::Cancelled, None));
    let now = bridge.get(id);
    assert_eq!((now.state, now.interrupts), (ConversationState::Idle, Vec::new()));
    assert!(!bridge.lab.project().join("made.txt").exists());
    bridge.prompted(id, "next");
    assert_eq!(
        asked(&bridge, "next"),
        [&cut_short_in(MAKES_A_FILE)[..], &[user("next")]].concat()
    );
}

mod smoke {
    use super::*;

    #[test]
    #[ignore = "installs the real adapter"]
    fn d15_a_question_outlives_the_daemon_and_its_answer_reaches_the_model_once() {
        let mut bridge = or_skip!(Bridge::start());
        let id = bridge.conversation(asking());
        let (kept, head) = orphaned_by_a_kill(&mut bridge, id, MAKES_A_FILE);
        bridge.respond(id, &kept, "allow_once");
        check_answer_told(&bridge, id, &head);
        // The mode of the conversation is kept, so the agent asks again. A new client has not received the
        // first question.
        bridge.connect();
        let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
        let interrupt = bridge.question(id);
        bridge.respond(id, &interrupt, "allow_once");
        running.wait().expect("a turn result");
        assert!(bridge.lab.project().join("made.txt").exists());
    }
}

/// When the server of the adapter dies, the adapter lives on and withdraws the question, which nobody has
/// answered.
#[test]
#[ignore = "installs the real adapter"]
fn d15_a_question_outlives_the_server_that_asked_and_its_answer_reaches_the_model_once() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.conversation(asking());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    let interrupt = bridge.question(id);
    let head = bridge.head(id);
    kill_server(&bridge);
    let turn = running.wait().expect("a turn result");
    let kind = turn.failure.as_ref().map(|failure| failure.kind);
    assert_eq!(kind, Some(FailureKind::AgentDied), "{turn:?}");
    let kept = orphan(&bridge, id);
    assert_eq!(kept.id, interrupt.id);
    bridge.respond(id, &kept, "allow_once");
    check_answer_told(&bridge, id, &head);
    assert!(!bridge.lab.project().join("made.txt").exists());
}

/// Checks that the answer was sent in a turn of the same session and is in its history once.
fn check_answer_told(bridge: &Bridge, id: ConversationId, head: &str) {
    let answer = "The answer is yes";
    let turn = bridge.wait_event("the turn with the answer", |event| match &event.event {
        Event::TurnEnded { turn } if turn.stop_reason == StopReason::EndTurn => Some(turn.clone()),
        _ => None,
    });
    assert_eq!((turn.upstream_id.as_str(), turn.failure), (head, None));
    let now = bridge.get(id);
    assert_eq!((now.state, now.interrupts), (ConversationState::Idle, Vec::new()));
    let [before @ .., told] = &asked(bridge, answer)[..] else {
        panic!("the model received nothing")
    };
    assert_eq!(before, cut_short_in(MAKES_A_FILE));
    assert!(
        matches!(&told.what, What::Text(text) if text.contains(answer)),
        "{told:?}"
    );
    bridge.prompted(id, "next");
    let said = asked(bridge, "next");
    let answers = said
        .iter()
        .filter(|said| matches!(&said.what, What::Text(text) if text.contains(answer)));
    assert_eq!(answers.count(), 1, "{said:?}");
    assert_eq!(bridge.lab.model.times_asked(answer), 1);
}
