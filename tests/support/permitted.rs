//! Runs a tool for which the agent asks permission.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::turn::{Interrupt, InterruptKind, StopReason};

use crate::bridge_of::Bridge;
use crate::support::lab::Agent;

/// Kills the daemon while a question of this prompt is open, and starts the next one. Checks that it shows the question,
/// which is then without the agent that asked, and that nothing was done. Returns the question and the session's id.
pub(crate) fn orphaned_by_a_kill<A: Agent>(
    bridge: &mut Bridge<A>,
    id: ConversationId,
    prompt: &str,
) -> (Interrupt, String) {
    let running = bridge.begin_prompt(id, prompt, None);
    let interrupt = bridge.question(id);
    let head = bridge.head(id);
    bridge.kill_daemon();
    running.wait().expect_err("the connection was cut");
    bridge.start_daemon();
    let kept = orphan(bridge, id);
    assert_eq!(kept.id, interrupt.id);
    assert!(!bridge.lab.project().join("made.txt").exists());
    (kept, head)
}

/// The only question of a conversation, which is without the agent that asked.
pub(crate) fn orphan<A: Agent>(bridge: &Bridge<A>, id: ConversationId) -> Interrupt {
    let now = bridge.get(id);
    assert_eq!(now.state, ConversationState::Interrupted);
    let [kept] = &now.interrupts[..] else {
        panic!("{:?}", now.interrupts)
    };
    assert!(kept.orphaned);
    kept.clone()
}

/// Sends a prompt that makes the agent ask whether it may create `made.txt`. Checks that the question is
/// pending, that allowing it creates the file, and that the turn then ends.
pub(crate) fn asked_and_done<A: Agent>(bridge: &Bridge<A>, id: ConversationId, prompt: &str) {
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
