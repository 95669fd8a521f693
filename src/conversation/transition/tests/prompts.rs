//! A prompt from its call to its answer; the queue of prompts; idempotency keys.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;
use serde_json::json;

use super::world::World;

#[test]
fn what_says_nothing_of_the_prompt_does_not_accept_it() {
    for kind in [
        "available_commands_update",
        "usage_update",
        "config_option_update",
        "session_info_update",
    ] {
        let mut world = World::live();
        world.prompt("second");
        world.updates(&json!({"sessionUpdate": kind}));
        assert!(!world.saw("event promptAccepted"), "{kind}");
    }
}

#[test]
fn no_update_is_counted_to_a_turn_that_was_not_told_as_accepted() {
    let mut world = World::live();
    world.prompt("second");
    world.forget_log();
    world.updates(&json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}));
    world.expect(&["update usage_update of none"]);
}

#[test]
fn a_retelling_waits_for_the_prompt_that_is_sent() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.hold_writes = true;
    world.retells("s2", "So far:");
    world.write_ends();
    world.cancel();
    world.release_writes();
    world.prompt("third");
    world.expect_among("send So far:\nthird");
}

#[test]
fn a_refused_call_leaves_its_key_free() {
    let mut world = World::running();
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.ends("end_turn");
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    assert_eq!(world.view().state, ConversationState::Prompting);
}

#[test]
fn a_turn_that_the_agent_ends_as_failed_comes_with_a_failure() {
    let mut world = World::running();
    world.ends("failed");
    world.expect_last("answer 2 turn t2 failed");
    let turn = world.turn(2);
    assert!(turn.failure.is_some());
}
