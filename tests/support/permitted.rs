//! Runs a tool for which the agent asks permission.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::turn::{InterruptKind, StopReason};

use crate::bridge_of::{Bridge, Lab};

/// Sends a prompt that makes the agent ask whether it may create `made.txt`. Checks that the question is
/// pending, that allowing it creates the file, and that the turn then ends.
pub(crate) fn asked_and_done<L: Lab>(bridge: &Bridge<L>, id: ConversationId, prompt: &str) {
    let running = bridge.begin_prompt(id, prompt, None);
    let interrupt = bridge.question(id);
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
}
