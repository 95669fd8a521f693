//! How turns fail, in which state the conversation is left, and that no failure costs it its chain.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::Fidelity;
use bridge_protocol::turn::FailureKind;
use serde_json::{Value, json};

use super::outside::not_resumable;
use super::world::World;

fn signed_out() -> Value {
    json!({"code": -32000, "message": "Authentication required"})
}

/// An agent that can bring nothing back keeps its session, whatever is the matter with it.
#[test]
fn a_session_that_cannot_be_reopened_stays_in_a_retired_agent() {
    let mut world = World::running();
    if let Some(live) = &mut world.model.session {
        live.can_reopen = false;
    }
    world.refuses(signed_out());
    world.forget_log();
    world.prompt("again");
    world.expect(&["event state prompting", "send again"]);
}

/// What a person cancelled is not gone on with, whatever the agent says last.
#[test]
fn a_cancelled_turn_that_fails_is_not_cut_short() {
    for error in [signed_out(), json!({"code": -32603, "message": "ECONNREFUSED"})] {
        let mut world = World::running();
        world.cancel();
        world.refuses(error.clone());
        assert!(!world.view().cut_short, "{error}");
        // One that was cut short before it still is.
        let mut world = World::running();
        world.refuses(json!({"code": -32603, "message": "ECONNREFUSED"}));
        world.prompt("third");
        world.cancel();
        world.refuses(error.clone());
        let cut = world.model.record.cut.as_ref().unwrap();
        assert_eq!(cut.prompt.to_text(), "second", "{error}");
    }
}

#[test]
fn a_limit_is_not_lifted_by_a_failure_that_passes() {
    let mut world = World::running();
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    world.dies();
    world.prompt("third");
    world.climb_fails(not_resumable());
    assert_eq!(world.view().state, ConversationState::Failed);
    world.resume(Fidelity::Text);
    world.reopens();
    assert_eq!(world.view().state, ConversationState::Limited);
}

#[test]
fn f26_what_one_turn_went_through_does_not_classify_the_next() {
    let mut world = World::running();
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_600}}
    }));
    world.ends("end_turn");
    world.prompt("third");
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    let failure = world.turn(3).failure.as_ref().expect("a failure");
    assert_eq!(
        (failure.kind, failure.resets_at),
        (FailureKind::RateLimited, None)
    );
}

#[test]
fn f6_a_session_that_ignored_even_the_cancel_is_not_expected_to_have_a_transcript() {
    let mut world = World::first_sent();
    world.cancel();
    world.elapses(crate::conversation::effect::Deadline::Cancel);
    assert!(!world.head().written);
}

#[test]
fn f6_a_session_that_refused_its_first_prompt_after_a_cancel_was_not_written() {
    let mut world = World::first_sent();
    world.cancel();
    world.does_not_know_the_session();
    assert!(!world.head().written);
    let turn = world.turn(1);
    assert_eq!(turn.stop_reason, bridge_protocol::turn::StopReason::Cancelled);
}

#[test]
fn an_agent_that_dies_while_the_end_is_written_down_does_not_change_it() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.dies();
    world.release_writes();
    world.expect_last("answer 2 turn t2 end_turn");
    assert!(!world.view().live);
    assert_eq!(world.view().state, ConversationState::Idle);
}

#[test]
fn f6_a_session_whose_agent_died_at_the_first_prompt_is_not_expected_to_have_a_transcript() {
    let mut world = World::first_sent();
    world.dies();
    let head = world.head();
    assert!(!head.written, "nothing showed that the agent took the prompt");
}
