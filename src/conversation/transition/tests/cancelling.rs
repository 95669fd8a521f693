//! Cancellation in each phase of a turn, and what becomes of an agent that does not heed it (F14, F28).

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::{Fidelity, RollCause};
use serde_json::json;

use super::outside::branch;
use super::world::World;
use crate::conversation::effect::Deadline;

#[test]
fn the_climb_of_a_cancelled_prompt_serves_the_next_one() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.cancel();
    world.forget_log();
    world.prompt("third");
    world.expect(&["event state prompting"]);
    world.reopens();
    world.expect_last("send third");
}

/// F28: a climb at which the agent hangs is given up for whom it was begun, not for others who wait for it.
#[test]
fn f28_a_climb_that_does_not_end_after_a_cancel_is_given_up() {
    let cancelled = || {
        let mut world = World::hibernating();
        world.prompt("second");
        world.cancel();
        world.forget_log();
        world
    };
    let mut world = cancelled();
    assert!(world.is_armed(Deadline::Climb));
    world.elapses(Deadline::Climb);
    world.expect(&[]);
    world.prompt("third");
    world.expect(&["event state prompting"]);

    // Who came after the cancel has a climb of their own.
    let mut world = cancelled();
    world.prompt("third");
    world.forget_log();
    world.elapses(Deadline::Climb);
    world.expect(&[]);
    world.reopens();
    world.expect_last("send third");

    // That deadline was for the climb that has ended.
    let mut world = cancelled();
    world.reopens();
    world.dies();
    world.prompt("third");
    world.forget_log();
    world.elapses(Deadline::Climb);
    world.expect(&[]);

    let mut world = World::hibernating();
    world.prompt("second");
    world.resume(Fidelity::Text);
    world.cancel();
    assert!(!world.is_armed(Deadline::Climb));
}

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
fn a_turn_cancelled_while_its_session_is_written_down_leaves_the_session_open() {
    let mut world = World::new();
    world.hold_writes = true;
    world.prompt("hello");
    world.opens("s1");
    world.cancel();
    world.release_writes();
    assert!(world.view().live);
    assert!(world.is_armed(Deadline::Idle));
    assert!(!world.saw("send"));
}

#[test]
fn a_turn_that_is_being_written_down_is_not_sent_any_more() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.forget_log();
    world.cancel();
    world.expect(&["event state cancelling"]);
    world.write_ends();
    // Over a kill it would be cut short, and could be gone on with.
    world.expect(&["event state idle"]);
    world.release_writes();
    world.expect(&["answer 2 turn t2 cancelled", "answer 3 cancelled true"]);
    assert_eq!(world.disk.record.as_ref().unwrap().turn, None);
    assert!(world.is_armed(Deadline::Idle));
}

#[test]
fn a_prompt_that_was_sent_and_not_accepted_is_cancelled_likewise() {
    let mut world = World::live();
    world.prompt("second");
    world.forget_log();
    world.cancel();
    world.ends("cancelled");
    world.expect(&[
        "send cancel",
        "event state cancelling",
        "event promptAccepted t2 second",
        "event turnEnded t2 cancelled",
        "event state idle",
        "answer 2 turn t2 cancelled",
        "answer 3 cancelled true",
    ]);
}

#[test]
fn a_prompt_that_the_agent_cancels_of_itself_before_a_word_is_no_turn_to_miss() {
    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.ends("cancelled");
    assert_eq!(world.view().state, ConversationState::Idle);
    let head = world.head();
    assert!(!head.written && head.turns == 0, "{head:?}");

    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.says_something();
    world.ends("cancelled");
    assert!(world.head().written);
}

#[test]
fn cancelling_twice_asks_the_agent_once_and_answers_both() {
    let mut world = World::running();
    world.cancel();
    world.cancel();
    world.expect(&["send cancel", "event state cancelling"]);
    world.ends("cancelled");
    assert_eq!(
        world.log()[3..],
        [
            "answer 2 turn t2 cancelled",
            "answer 3 cancelled true",
            "answer 4 cancelled true"
        ]
    );
}

#[test]
fn a_cancel_that_comes_too_late_hears_when_the_turn_has_ended() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.cancel();
    assert!(!world.answers.contains_key(&3));
    world.release_writes();
    let log = world.log();
    assert!(!log.contains(&"send cancel".to_owned()));
    assert_eq!(
        log[log.len() - 2..],
        ["answer 2 turn t2 end_turn", "answer 3 cancelled true"]
    );
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

#[test]
fn f14_a_deaf_agent_never_has_two_prompts_at_once() {
    let mut world = World::running();
    world.queue("third");
    world.set_mode("plan");
    world.cancel();
    world.elapses(Deadline::Cancel);
    world.forget_log();
    world.configured(Ok(()));
    let log = world.log();
    // No agent is given a second session while the first may still answer.
    let next = log.iter().position(|line| line.starts_with("open"));
    let closed = log.iter().position(|line| line.starts_with("close session"));
    assert!(next.is_none() || (closed.is_some() && closed < next), "{log:?}");
}
