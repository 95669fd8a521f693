//! Questions of the agent, answered over the socket.

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::turn::StopReason;

use super::bridge::Bridge;
use crate::permitted::{asked_and_done, orphaned_by_a_kill};
use crate::support::claude::Account;
use crate::support::model_server::{What, model, tool_result, tool_use, user};

/// The tool call of a turn that creates a file, for which the agent asks permission.
const MAKES_A_FILE: &str = r#"[[tool Bash {"command":"echo made > made.txt; cat made.txt","description":"make a file"}]] [[text told]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn a_permission_is_asked_and_what_is_allowed_is_done() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    asked_and_done(&bridge, id, MAKES_A_FILE);
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
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    let interrupt = bridge.question(id);
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

mod smoke {
    use super::*;

    /// The daemon is killed while a question is open. The next daemon shows it. The answer reaches the model
    /// as text, because the agent's own request died with it.
    #[test]
    #[ignore = "installs the real adapter"]
    fn d15_a_question_outlives_the_daemon_and_its_answer_reaches_the_model_once() {
        let mut bridge = or_skip!(Bridge::start(Account::Key));
        let id = bridge.conversation(Settings::default());
        let (kept, head) = orphaned_by_a_kill(&mut bridge, id, MAKES_A_FILE);
        bridge.respond(id, &kept, "allow_once");
        let turn = bridge.wait_event("the turn that tells the answer", |event| match &event.event {
            Event::TurnEnded { turn } => Some(turn.clone()),
            _ => None,
        });
        assert_eq!(
            (turn.stop_reason, turn.upstream_id.as_str()),
            (StopReason::EndTurn, head.as_str())
        );
        assert_eq!(bridge.get(id).interrupts, []);
        let said = bridge.lab.model.asked("The answer is yes");
        assert_eq!(said[0], user(MAKES_A_FILE));
        bridge.prompted(id, "next");
        let said = bridge.lab.model.asked("next");
        let answers = said
            .iter()
            .filter(|said| matches!(&said.what, What::Text(text) if text.contains("The answer is yes")));
        assert_eq!(answers.count(), 1, "{said:?}");
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn a_cancelled_turn_takes_its_question_along() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let running = bridge.begin_prompt(id, MAKES_A_FILE, None);
    bridge.question(id);
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
