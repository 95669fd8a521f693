//! Cancellation in each phase of a turn, and what happens to an agent that ignores it (F14, F28).

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::{Fidelity, RollCause};
use serde_json::json;

use super::outside::branch;
use super::world::World;
use crate::conversation::effect::Deadline;

#[test]
fn rule_7_what_only_a_cancelled_prompt_would_have_taken_is_let_go() {
    let anew = |world: &mut World| {
        world.prompt_with("second", OnBusy::Fail, Fidelity::None, None);
        world.cancel();
    };
    let mut world = World::hibernating();
    anew(&mut world);
    world.forget_log();
    world.starts_anew("s2");
    world.expect(&[]);
    assert_eq!(world.chain(), ["s1"]);

    let mut world = World::hibernating();
    anew(&mut world);
    world.prompt("third");
    world.forget_log();
    world.starts_anew("s2");
    world.expect(&["event state idle", "answer 4 error notResumable"]);
    assert_eq!(world.chain(), ["s1"]);

    let mut world = World::hibernating();
    anew(&mut world);
    world.copies("s2", RollCause::Forgotten);
    assert_eq!(world.chain(), ["s1", "s2"], "nothing is lost with it");
}

#[test]
fn a_prompt_that_the_agent_cancels_of_itself_before_a_word_is_no_turn_to_miss() {
    let mut world = World::first_sent();
    world.ends("cancelled");
    assert_eq!(world.view().state, ConversationState::Idle);
    let head = world.head();
    assert!(!head.written && head.turns == 0, "{head:?}");

    let mut world = World::first_sent();
    world.says_something();
    world.ends("cancelled");
    assert!(world.head().written);
}

#[test]
fn f14_the_session_is_closed_though_a_branch_is_being_made_at_the_deadline() {
    let mut world = World::running();
    world.fork(false);
    world.cancel();
    world.elapses(Deadline::Cancel);
    let at_once = world.saw("close session by force");
    if !at_once {
        world.branched(Ok(branch("s2")));
    }
    let closed = at_once || world.saw("close session by force");
    assert!(closed, "the session of a deaf agent stays open");
}

#[test]
fn the_deadline_of_a_turn_that_ended_in_time_means_nothing() {
    let mut world = World::running();
    world.elapses(Deadline::Cancel);
    world.expect(&[]);
    world.cancel();
    world.ends("cancelled");
    world.forget_log();
    world.elapses(Deadline::Cancel);
    world.expect(&[]);
}

#[test]
fn an_agent_that_answers_a_cancelled_prompt_with_the_cancelled_error_has_cancelled_it() {
    let mut world = World::running();
    world.cancel();
    world.refuses(json!({"code": -32800, "message": "Request cancelled"}));
    assert_eq!(world.log()[3], "event turnEnded t2 cancelled");
    assert_eq!(world.view().state, ConversationState::Idle);
}

#[test]
fn a_question_that_comes_after_the_cancel_is_answered_at_once() {
    let mut world = World::running();
    world.cancel();
    world.forget_log();
    world.asks("q1");
    world.expect_among("tell agent q1 cancelled");
}
