//! Sessions: opened, refused, rolled, taken over, and who waits for them.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::{Fidelity, RollCause, Via};
use bridge_protocol::turn::StopReason;
use serde_json::json;

use super::outside::{agent_error, opened};
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, Found, Input};
use crate::conversation::error::ConversationError;

#[test]
fn a_roll_is_on_disk_before_it_is_told_and_told_before_it_is_used() {
    let mut world = World::hibernating();
    world.hold_writes = true;
    world.prompt("second");
    world.copies("s2", RollCause::Forgotten);
    world.expect(&["event state prompting"]);
    assert!(!world.view().live);
    world.write_ends();
    world.expect(&[
        "event rolled s1 to s2 forgotten full",
        "event resumed s2 copied full",
    ]);
    assert_eq!(world.chain(), ["s1", "s2"]);
    world.release_writes();
    world.says_something();
    world.ends("end_turn");
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert_eq!(turn.upstream_id, "s2".into());
    assert_eq!(turn.resumed.as_ref().unwrap().via, Via::Copied);
}

/// The broken pipe is met before the death is known: the session has no trace of the prompt, and nothing is expected on disk.
#[test]
fn f6_a_prompt_that_did_not_get_out_of_the_daemon_goes_to_the_next_process() {
    let mut world = World::new();
    world.prompt("first");
    world.opens("s1");
    world.forget_log();
    world.does_not_send(true);
    world.expect(&[]);
    assert!(!world.head().written);
    world.opens("s2");
    world.says_something();
    world.ends("end_turn");
    let Ok(Answer::Turn(turn)) = &world.answers[&1] else {
        panic!("no turn")
    };
    assert_eq!(
        (&turn.stop_reason, turn.upstream_id.as_str()),
        (&StopReason::EndTurn, "s2")
    );
    assert_eq!(world.chain(), ["s2"]);
}

/// Whatever it is that ends them before they are sent the prompt, agents are not started without end. The next prompt has
/// its own tries.
#[test]
fn f31_an_agent_that_ends_whenever_its_session_is_open_is_started_so_often_and_no_more() {
    let mut world = World::hibernating();
    for _ in 0..2 {
        let call = world.prompt("second");
        for is_last in [false, false, true] {
            world.hold_writes = true;
            world.reopens();
            world.dies();
            world.release_writes();
            assert!(!world.saw("send"));
            assert_eq!(world.answers.contains_key(&call), is_last);
        }
        let Err(ConversationError::AgentUnavailable(told)) = world.answers[&call].clone() else {
            panic!("{:?}", world.answers)
        };
        crate::words::check(
            "an agent that ends whenever it is started",
            "agentUnavailable",
            &told,
        );
        assert_eq!(world.view().state, ConversationState::Failed);
        let kept = world.on_disk();
        assert_eq!(
            (kept.state, kept.failure),
            (ConversationState::Failed, Some(told))
        );
    }
    world.prompt("third");
    for _ in 0..2 {
        world.reopens();
        world.does_not_send(true);
    }
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    assert_eq!(world.view().state, ConversationState::Idle);
    assert_eq!(world.view().failure, None);
}

#[test]
fn a_prompt_that_cannot_be_sent_at_all_fails_and_leaves_no_trace() {
    let mut world = World::new();
    world.prompt("first");
    world.opens("s1");
    world.does_not_send(false);
    let Ok(Answer::Turn(turn)) = &world.answers[&1] else {
        panic!("no turn")
    };
    let failure = turn.failure.as_ref().unwrap();
    crate::words::check(
        "a prompt that cannot be sent",
        &super::words::word(&failure.kind),
        &failure.message,
    );
    assert!(!world.head().written);
}

#[test]
fn d4_a_copy_that_is_forgotten_after_it_served_may_be_copied_again_and_one_that_never_did_not() {
    let mut world = World::live();
    world.prompt("second");
    world.does_not_know_the_session();
    world.copies("s2", RollCause::Forgotten);
    world.forget_log();
    world.does_not_know_the_session();
    // The sessions that the climb leaves out are the contract, because it tries all others.
    assert!(
        world
            .log()
            .contains(&"open text below s1 (live),s2 (copied)".to_owned())
    );
    world.copies("s3", RollCause::Forgotten);
    world.ends("end_turn");
    world.prompt("third");
    world.forget_log();
    world.does_not_know_the_session();
    assert!(world.log().contains(&"open text below s3 (live)".to_owned()));
}

#[test]
fn a_prompt_that_every_session_refuses_is_not_resumable_in_the_end() {
    let mut world = World::live();
    let reply = world.prompt("second");
    for round in 0..10 {
        world.does_not_know_the_session();
        if world.answers.contains_key(&reply) {
            break;
        }
        world.copies(&format!("copy{round}"), RollCause::Forgotten);
    }
    let Err(ConversationError::NotResumable { attempts, .. }) = &world.answers[&reply] else {
        panic!("{:?}", world.answers[&reply]);
    };
    assert_eq!(attempts.len(), 5);
    assert_eq!(attempts[0].upstream_id, Some("s1".into()));
    assert_ne!(world.view().state, ConversationState::Prompting);
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
fn the_result_of_an_abandoned_climb_changes_nothing() {
    let mut world = World::hibernating();
    world.prompt("second");
    let abandoned = world.job.unwrap();
    world.stop();
    world.forget_log();
    let late = opened("s9", Via::Copied, Fidelity::Full, None);
    world.apply(Input::Worked {
        job: abandoned,
        found: Ok(Found::Opened(Box::new(late))),
    });
    world.expect(&[]);
    world.apply(Input::Worked {
        job: abandoned,
        found: Err(agent_error()),
    });
    world.expect(&[]);
    assert_eq!(world.chain(), ["s1"]);
}

#[test]
fn nobody_gets_less_than_was_asked_for() {
    let mut world = World::live();
    world.elapses(Deadline::Idle);
    world.resume(Fidelity::None);
    world.prompt_with("second", OnBusy::Fail, Fidelity::Partial, None);
    world.closes();
    // What the climb is asked for is the contract: less than that it does not bring.
    assert_eq!(world.log().last().unwrap(), "open none");
    world.retells("s2", "So far:");
    world.expect(&[
        "event rolled s1 to s2 lost text",
        "event resumed s2 text text",
        "event state idle",
        "answer 3 error notResumable",
        "answer 2 resumed s2 text",
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
fn a_prompt_that_joins_a_climb_late_is_not_sent_to_less_than_was_asked_for() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Text);
    world.prompt_with("second", OnBusy::Fail, Fidelity::Full, None);
    world.retells("s2", "So far:");
    assert!(!world.saw("send"));
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
fn what_is_no_matter_of_fidelity_fails_all_who_wait() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Full);
    world.prompt("second");
    world.forget_log();
    world.climb_fails(agent_error());
    world.expect(&[
        "event state idle",
        "answer 2 error agentError",
        "answer 3 error agentError",
    ]);
}

#[test]
fn d4_a_silent_roll_is_a_fresh_link_that_is_told_when_it_is_on_disk() {
    let mut world = World::running();
    world.hold_writes = true;
    world.rolls_silently("s2");
    world.expect(&[]);
    world.write_ends();
    world.expect(&["event rolled s1 to s2 cleared none"]);
    assert_eq!(world.chain(), ["s1", "s2"]);
    world.rolls_silently("s2");
    world.rolls_silently("");
    world.expect(&[]);
    world.release_writes();
    world.ends("end_turn");
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert_eq!(turn.upstream_id, "s2".into());
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
fn a_silent_roll_without_a_session_is_nothing() {
    let mut world = World::hibernating();
    world.rolls_silently("s2");
    world.expect(&[]);
    assert_eq!(world.chain(), ["s1"]);
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
