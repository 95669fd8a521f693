//! A prompt's way from its call to its answer; the line of waiting prompts; idempotency keys.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;
use serde_json::json;

use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Deadline;

#[test]
fn the_first_prompt_opens_a_session_and_each_step_waits_for_the_disk() {
    let mut world = World::new();
    world.hold_writes = true;
    world.prompt("hello");
    world.expect(&["event state prompting"]);
    world.opens("s1");
    world.expect(&[]);
    world.write_ends();
    world.expect(&["event resumed s1 fresh full"]);
    world.write_ends();
    world.expect(&["send hello"]);
    world.says_something();
    world.expect(&[
        "event promptAccepted t1 hello",
        "update agent_message_chunk of t1",
    ]);
    world.write_ends();
    world.ends("end_turn");
    world.expect(&[]);
    assert_eq!(world.view().state, ConversationState::Prompting);
    world.write_ends();
    world.expect(&[
        "event turnEnded t1 end_turn",
        "event state idle",
        "answer 1 turn t1 end_turn",
    ]);
    assert!(world.is_armed(Deadline::Idle));
    let head = world.head();
    assert_eq!((head.turns, head.written), (1, true));
    assert_eq!(world.disk.upstream, ["s1".into()]);
}

#[test]
fn a_prompt_that_is_answered_without_a_word_is_accepted_first() {
    let mut world = World::live();
    world.prompt("second");
    world.forget_log();
    world.ends("end_turn");
    world.expect(&[
        "event promptAccepted t2 second",
        "event turnEnded t2 end_turn",
        "event state idle",
        "answer 2 turn t2 end_turn",
    ]);
}

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
fn a_prompt_during_hibernation_waits_for_it() {
    let mut world = World::live();
    world.elapses(Deadline::Idle);
    world.prompt("second");
    world.expect(&["close session", "event state prompting"]);
    world.closes();
    world.expect(&["event closed"]);
    world.reopens();
    world.expect_last("send second");
}

#[test]
fn a_key_joins_a_prompt_that_still_waits_in_line() {
    let mut world = World::running();
    let first = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    let joined = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    assert_eq!(world.view().queue.len(), 1);
    world.ends("end_turn");
    world.ends("end_turn");
    assert_eq!(world.answers[&first], world.answers[&joined]);
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
fn a_cancelled_prompt_with_a_key_is_not_carried_out_when_it_is_repeated() {
    let mut world = World::running();
    let queued = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    let turn = format!("t{queued}");
    world.cancel_turn(&turn);
    world.ends("end_turn");
    world.forget_log();
    let again = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.expect(&[&format!("answer {again} kept")]);
}

/// Nothing says that the agent has done what it was asked.
#[test]
fn an_answer_without_a_result_is_a_failure() {
    for answer in ["null", "[]", "7"] {
        let mut world = World::running();
        let answer = bridge_protocol::raw::RawJson::from_text(answer.to_owned()).unwrap();
        world.apply(crate::conversation::effect::Input::PromptAnswered {
            answer: Ok(answer),
            in_company: false,
        });
        let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
            panic!("no turn")
        };
        assert_eq!(turn.stop_reason, bridge_protocol::turn::StopReason::Failed);
        assert!(turn.failure.is_some());
    }
}

#[test]
fn a_turn_that_the_agent_ends_as_failed_comes_with_a_failure() {
    let mut world = World::running();
    world.ends("failed");
    world.expect_last("answer 2 turn t2 failed");
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert!(turn.failure.is_some());
}
