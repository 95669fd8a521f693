//! Sessions: opened, refused, rolled, handed over, and the callers that wait for them.

use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;
use serde_json::json;

use super::outside::opened;
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Deadline;
use crate::conversation::error::ConversationError;

/// The broken pipe is met before the death is known: the session has no trace of the prompt, and nothing is expected on disk.
#[test]
fn f6_a_prompt_that_did_not_get_out_of_the_daemon_goes_to_the_next_process() {
    let mut world = World::first_sent();
    world.forget_log();
    world.does_not_send(true);
    world.expect(&[]);
    assert!(!world.head().written);
    world.opens("s2");
    world.says_something();
    world.ends("end_turn");
    let turn = world.turn(1);
    assert_eq!(
        (&turn.stop_reason, turn.upstream_id.as_str()),
        (&StopReason::EndTurn, "s2")
    );
    assert_eq!(world.chain(), ["s2"]);
}

#[test]
fn a_prompt_that_cannot_be_sent_at_all_fails_and_leaves_no_trace() {
    let mut world = World::first_sent();
    world.does_not_send(false);
    let turn = world.turn(1);
    let failure = turn.failure.as_ref().unwrap();
    crate::words::check(
        "a prompt that cannot be sent",
        &super::words::word(&failure.kind),
        &failure.message,
    );
    assert!(!world.head().written);
}

#[test]
fn f18_a_session_that_is_forgotten_after_the_prompt_was_accepted_is_a_failed_turn_and_not_a_second_send() {
    let mut world = World::running();
    world.does_not_know_the_session();
    world.expect(&[
        "event turnEnded t2 failed invalidRequest",
        "event state idle",
        "answer 2 turn t2 failed",
    ]);
}

#[test]
fn who_joins_a_climb_late_gets_no_less_than_was_asked_for_either() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Text);
    let strict = world.resume(Fidelity::Full);
    world.retells("s2", "So far:");
    if let Some(Ok(Answer::Resumed(_, resumed))) = world.answers.get(&strict) {
        assert!(
            resumed.fidelity >= Fidelity::Full,
            "asked for full, got {:?}",
            resumed.fidelity
        );
    }
}

#[test]
fn who_asked_for_less_is_not_failed_by_one_who_asked_for_more() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Full);
    world.prompt("second");
    world.forget_log();
    world.climb_fails(ConversationError::NotResumable {
        wanted: Fidelity::Full,
        attempts: Vec::new(),
    });
    world.expect(&["answer 2 error notResumable"]);
    world.retells("s2", "So far:");
    world.expect_last("send So far:\nsecond");
}

#[test]
fn after_a_silent_roll_the_pending_turn_names_the_transcript_that_it_runs_on() {
    let mut world = World::running();
    world.rolls_silently("s2");
    let pending = world.disk.record.as_ref().unwrap().turn.as_ref().unwrap();
    assert_eq!(pending.upstream_id, Some("s2".into()));
}

/// F6: what the new session holds of the agent's own command nobody knows, and then the turn is not to be missed there.
#[test]
fn a_turn_is_acknowledged_behind_a_silent_roll_when_the_agent_speaks_there() {
    for speaks in [false, true] {
        let mut world = World::running();
        world.says_something();
        world.rolls_silently("s2");
        if speaks {
            world.says_something();
        }
        world.ends("end_turn");
        let head = world.head();
        assert_eq!((head.turns, head.written), (u64::from(speaks), speaks));
    }
}

#[test]
fn a_turn_that_fails_after_a_silent_roll_leaves_a_head_that_was_written() {
    let mut world = World::running();
    world.rolls_silently("s2");
    world.says_something();
    world.refuses(json!({"code": -32603, "message": "overloaded", "data": {"errorKind": "overloaded"}}));
    assert!(world.head().written, "the agent was seen to work in it");
}

#[test]
fn a_session_that_is_handed_over_too_late_is_let_go() {
    let mut world = World::live();
    world.takes_over(opened("s9", Via::Fresh, Fidelity::Full, None));
    world.expect(&[]);
    assert_eq!(world.view().head, Some("s1".into()));
}

#[test]
fn a_session_that_is_handed_over_during_a_climb_does_not_end_the_climb() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.forget_log();
    world.takes_over(opened("s1", Via::Fresh, Fidelity::Full, None));
    if world.job.is_some() {
        world.reopens();
    }
    world.expect_among("send second");
}

#[test]
fn a_sign_of_work_after_the_grace_shows_that_a_transcript_is_to_be_expected() {
    let mut world = World::first_sent();
    world.elapses(Deadline::Accept);
    assert!(!world.head().written);
    world.says_something();
    assert!(world.head().written);
}
