//! A prompt's way from its call to its answer; the line of waiting prompts; idempotency keys.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;
use serde_json::json;

use super::outside::{agent_error, not_resumable};
use super::world::{QUEUE, World};
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
fn the_next_prompt_goes_straight_to_the_open_session() {
    let mut world = World::live();
    world.prompt("second");
    world.expect(&["event state prompting", "send second"]);
    world.says_something();
    world.ends("max_tokens");
    world.expect(&[
        "event promptAccepted t2 second",
        "update agent_message_chunk of t2",
        "event turnEnded t2 max_tokens",
        "event state idle",
        "answer 2 turn t2 max_tokens",
    ]);
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
fn a_prompt_counts_as_accepted_when_it_was_not_refused_in_time() {
    let mut world = World::live();
    world.prompt("second");
    assert!(world.is_armed(Deadline::Accept));
    world.forget_log();
    world.elapses(Deadline::Accept);
    world.expect(&["event promptAccepted t2 second"]);
    world.elapses(Deadline::Accept);
    world.says_something();
    world.expect(&["update agent_message_chunk of t2"]);
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
fn updates_before_the_prompt_is_sent_and_after_its_end_belong_to_no_turn() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.forget_log();
    world.says_something();
    world.expect(&["update agent_message_chunk of none"]);
    world.write_ends();
    world.ends("end_turn");
    world.forget_log();
    world.says_something();
    world.expect(&["update agent_message_chunk of none"]);
}

#[test]
fn a_retelling_goes_before_the_first_prompt_and_before_no_other() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.retells("s2", "So far:");
    world.expect_last("send So far:\nsecond");
    world.says_something();
    world.expect(&[
        "event promptAccepted t2 second",
        "update agent_message_chunk of t2",
    ]);
    world.ends("end_turn");
    world.prompt("third");
    world.expect_among("send third");
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
fn a_prompt_that_finds_no_session_is_an_error_and_no_turn() {
    let mut world = World::new();
    world.prompt("hello");
    world.climb_fails(agent_error());
    world.expect(&[
        "event state prompting",
        "event state idle",
        "answer 1 error agentError",
    ]);
    assert!(world.model.is_at_rest());
}

#[test]
fn a_conversation_that_cannot_be_resumed_is_failed_until_it_is_open_again() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.climb_fails(not_resumable());
    world.expect(&[
        "event state prompting",
        "event state failed",
        "answer 2 error notResumable",
    ]);
    assert_eq!(world.chain(), ["s1"]);
    world.prompt("third");
    world.expect(&["event state prompting"]);
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    assert_eq!(world.view().state, ConversationState::Idle);
    assert_eq!(world.view().failure, None);
}

#[test]
fn a_second_prompt_is_busy_or_waits_and_the_line_has_an_end() {
    let mut world = World::running();
    let refused = world.prompt("third");
    world.expect(&[&format!("answer {refused} error busy")]);
    for text in ["a", "b"] {
        world.queue(text);
    }
    assert_eq!(world.view().queue.len(), QUEUE);
    world.forget_log();
    let refused = world.queue("c");
    world.expect(&[&format!("answer {refused} error busy")]);
}

#[test]
fn waiting_prompts_go_out_one_by_one_in_their_order() {
    let mut world = World::running();
    world.queue("third");
    world.queue("fourth");
    world.expect(&[]);
    world.ends("end_turn");
    world.expect(&[
        "event turnEnded t2 end_turn",
        "answer 2 turn t2 end_turn",
        "send third",
    ]);
    world.ends("end_turn");
    let log = world.log();
    assert_eq!(log.last().unwrap(), "send fourth");
    assert!(
        !log.iter().any(|line| line.starts_with("event state")),
        "it went on prompting: {log:?}"
    );
    world.ends("end_turn");
    world.expect_last("answer 4 turn t4 end_turn");
}

#[test]
fn a_queued_prompt_starts_at_once_when_nothing_runs() {
    let mut world = World::live();
    world.queue("second");
    world.expect(&["event state prompting", "send second"]);
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
fn the_same_key_joins_the_running_call_and_is_answered_with_it() {
    let mut world = World::live();
    let first = world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    let joined = world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    let other = world.prompt_with("something else", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.expect(&[
        "event state prompting",
        "send second",
        &format!("answer {other} error conflict"),
    ]);
    world.ends("end_turn");
    assert_eq!(world.answers[&first], world.answers[&joined]);
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
fn the_same_key_later_gets_the_kept_result_and_another_content_a_conflict() {
    let mut world = World::live();
    let first = world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.ends("end_turn");
    world.forget_log();
    let again = world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    let other = world.prompt_with("something else", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.expect(&[
        &format!("answer {again} kept"),
        &format!("answer {other} error conflict"),
    ]);
    let told = |reply| {
        world.answers[&reply]
            .as_ref()
            .map(|answer| answer.to_json().unwrap())
    };
    assert_eq!(told(first), told(again));
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

#[test]
fn the_usage_of_the_answer_is_passed_on_unread() {
    let mut world = World::running();
    let usage = r#"{"inputTokens":1,"cost":0.10000000000000000001,"new":[ ]}"#;
    let text = format!(r#"{{"stopReason":"end_turn","usage":{usage}}}"#);
    let raw = bridge_protocol::raw::RawJson::from_text(text).unwrap();
    world.apply(crate::conversation::effect::Input::PromptAnswered {
        answer: Ok(raw),
        in_company: false,
    });
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert_eq!(turn.usage.as_ref().unwrap().get(), usage);
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
fn a_stop_reason_that_nobody_knows_is_told_in_the_agents_word_and_the_turn_counts() {
    let mut world = World::running();
    world.ends("something_new");
    world.expect_last("answer 2 turn t2 something_new");
    assert_eq!(world.head().turns, 2);
    assert_eq!(world.view().state, ConversationState::Idle);
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
