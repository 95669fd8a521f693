//! Questions of the agent: asked, answered once, withdrawn, orphaned, and answered to the next agent.

use bridge_protocol::conversation::{ContinueAt, ConversationState};
use serde_json::{Value, json};

use super::outside::agent_error;
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Deadline;
use crate::conversation::error::ConversationError;

/// A conversation whose agent died with `q1` open.
pub(super) fn orphaned() -> World {
    let mut world = World::running();
    world.asks("q1");
    world.dies();
    world.forget_log();
    world
}

#[test]
fn two_questions_are_answered_one_by_one() {
    let mut world = World::running();
    world.asks("q1");
    world.asks("q2");
    world.allow("q2");
    assert_eq!(world.view().state, ConversationState::Awaiting);
    world.deny("q1");
    assert_eq!(world.view().state, ConversationState::Prompting);
}

#[test]
fn the_end_of_the_turn_voids_its_questions() {
    let mut world = World::running();
    world.asks("q1");
    world.forget_log();
    world.ends("end_turn");
    world.expect(&[
        "tell agent q1 cancelled",
        "event state prompting",
        "event resolved q1 by cancel",
        "event turnEnded t2 end_turn",
        "event state idle",
        "answer 2 turn t2 end_turn",
    ]);
    assert_eq!(world.view().interrupts, []);
}

#[test]
fn a_question_that_was_taken_back_is_gone_for_everyone() {
    let mut world = World::running();
    world.asks("q1");
    world.forget_log();
    world.withdraws("q1");
    world.expect(&["event state prompting", "event resolved q1 by agent"]);
    world.withdraws("q1");
    world.expect(&[]);
}

#[test]
fn d15_a_question_is_orphaned_too_when_the_agent_says_that_its_own_process_died() {
    let mut world = World::running();
    world.asks("q1");
    world.forget_log();
    world.refuses(json!({"code": -32603, "message": "gone", "data": {"errorKind": "transport_lost"}}));
    assert_eq!(world.log()[0], "tell agent q1 cancelled");
    let interrupts = &world.on_disk().interrupts;
    assert_eq!((interrupts.len(), interrupts[0].orphaned), (1, true));
}

/// Codex' adapter outlives its server, takes the question of that back, and tells the end of the turn.
#[test]
fn d15_a_question_that_went_with_what_died_is_open_again() {
    for goes_on in [false, true] {
        let mut world = World::running();
        world.asks("q1");
        world.asks("q2");
        world.withdraws("q1");
        world.withdraws("q2");
        world.updates(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "failed"}));
        if goes_on {
            // It knows why it took them back.
            world.updates(
                &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress"}),
            );
        }
        world.forget_log();
        world.refuses(json!({"code": -32603, "message": "gone", "data": {"errorKind": "transport_lost"}}));
        let log = world.log();
        let raised = log.iter().filter(|line| line.starts_with("event raised"));
        assert_eq!(raised.count(), if goes_on { 0 } else { 2 });
        let interrupts = &world.on_disk().interrupts;
        assert_eq!(interrupts.len(), if goes_on { 0 } else { 2 });
        if !goes_on {
            assert!(interrupts[0].orphaned);
            world.deny("q1");
            world.forget_log();
            world.allow("q2");
            let sent = world.log().pop().unwrap();
            assert!(sent.starts_with("send "), "{sent}");
        }
    }
}

#[test]
fn an_orphan_leaves_the_disk_in_the_same_write_that_records_its_turn() {
    let mut world = orphaned();
    world.hold_writes = true;
    world.allow("q1");
    while !world.writes.is_empty() {
        world.write_ends();
        let record = world.disk.record.as_ref().unwrap();
        let told_later = !record.interrupts.is_empty() || record.turn.is_some();
        assert!(told_later, "a crash now would lose the answer");
    }
    world.reopens();
    world.release_writes();
    let record = world.disk.record.as_ref().unwrap();
    assert!(record.interrupts.is_empty() && record.turn.is_some());
}

/// What a call with a key was answered, as far as the disk knows.
fn kept_answer(world: &World) -> Option<Value> {
    let request = world.disk.requests.get("k")?;
    Some(request.result.as_ref()?.read().unwrap())
}

#[test]
fn what_an_answer_did_and_what_its_caller_is_told_reach_the_disk_together() {
    let yes = json!({"outcome": "selected", "optionId": "yes"});
    let no = json!({"outcome": "selected", "optionId": "no"});
    let mut asked = World::running();
    asked.asks("q1");
    for (mut world, outcome, told) in [
        (asked, &yes, json!({})),
        (orphaned(), &no, json!({})),
        (orphaned(), &yes, json!({"turnId": "t3"})),
    ] {
        world.hold_writes = true;
        let first = world.respond_with("q1", outcome.clone(), Some("k"));
        // Meanwhile a repetition waits with the first.
        world.respond_with("q1", outcome.clone(), Some("k"));
        if world.job.is_some() {
            world.reopens();
        }
        while !world.writes.is_empty() {
            world.write_ends();
            let is_open = !world.on_disk().interrupts.is_empty();
            assert_eq!(is_open, kept_answer(&world).is_none(), "a crash now: {told}");
        }
        assert_eq!(kept_answer(&world), Some(told));
        world.release_writes();
        if world.model.turn.is_some() {
            world.says_something();
        }
        assert!(world.answers[&first].is_ok());
        assert_eq!(world.answers[&first], world.answers[&(first + 1)]);
        let again = world.respond_with("q1", outcome.clone(), Some("k"));
        assert!(matches!(world.answers[&again], Ok(Answer::Json(_))));
    }
}

#[test]
fn an_answer_that_reached_nobody_is_not_kept_as_given() {
    let yes = json!({"outcome": "selected", "optionId": "yes"});
    let mut world = orphaned();
    world.respond_with("q1", yes.clone(), Some("k"));
    world.reopens();
    world.hold_writes = true;
    world.does_not_know_the_session();
    world.climb_fails(agent_error());
    // The disk still says otherwise, and does not take what is so.
    assert!(kept_answer(&world).is_some());
    while !world.writes.is_empty() {
        world.write_fails();
    }
    let again = world.respond_with("q1", yes.clone(), Some("k"));
    world.climb_fails(agent_error());
    assert!(matches!(
        world.answers[&again],
        Err(ConversationError::AgentError { .. })
    ));
    world.elapses(Deadline::Rewrite);
    world.release_writes();
    assert_eq!(kept_answer(&world), None);
    let last = world.respond_with("q1", yes, Some("k"));
    world.reopens();
    world.says_something();
    assert!(matches!(world.answers[&last], Ok(Answer::Responded(Some(_)))));
}

#[test]
fn an_orphan_whose_turn_found_no_session_can_be_answered_again() {
    let mut world = orphaned();
    world.allow("q1");
    world.climb_fails(agent_error());
    world.expect_last("answer 3 error agentError");
    world.allow("q1");
    world.reopens();
    world.says_something();
    assert_eq!(world.answers[&4], Ok(Answer::Responded(Some("t4".into()))));
}

#[test]
fn an_orphan_whose_prompt_every_session_refused_can_be_answered_again() {
    let mut world = orphaned();
    world.allow("q1");
    world.reopens();
    world.does_not_know_the_session();
    world.climb_fails(agent_error());
    world.expect_last("answer 3 error agentError");
    let record = world.disk.record.as_ref().unwrap();
    assert_eq!((record.interrupts.len(), &record.turn), (1, &None));
    assert!(record.answered.is_empty());
}

#[test]
fn an_orphan_whose_prompt_is_cancelled_before_it_is_sent_can_be_answered_again() {
    let mut world = orphaned();
    world.allow("q1");
    world.hold_writes = true;
    world.reopens();
    world.cancel();
    world.release_writes();
    world.expect_among("answer 4 cancelled true");
    assert!(matches!(world.answers[&3], Err(ConversationError::Busy(_))));
    assert_eq!(world.on_disk().interrupts.len(), 1);
}

/// A later turn that was cut short is none of a question's business, and nothing goes on while that is open.
#[test]
fn an_orphan_that_is_denied_leaves_what_was_cut_short_later() {
    let mut world = orphaned();
    let at = ContinueAt::Time(world.now());
    let call = world.continue_at(at, None);
    let refusal = world.answers[&call].as_ref().unwrap_err();
    let kind = super::words::error_name(refusal);
    crate::words::check(
        "a continuation while a question is open",
        kind,
        &refusal.to_string(),
    );
    world.prompt("third");
    world.reopens();
    world.says_something();
    world.dies();
    world.deny("q1");
    assert!(world.view().cut_short);
    assert_eq!(world.view().state, ConversationState::Interrupted);
}

#[test]
fn f27_a_question_waits_as_long_as_it_takes() {
    let mut world = World::running();
    world.asks("q1");
    for deadline in [Deadline::Accept, Deadline::Cancel, Deadline::Idle] {
        world.apply(|model| model.elapsed(deadline));
    }
    assert_eq!(world.view().state, ConversationState::Awaiting);
}

/// A client whose snapshot has the question learns of its end, and no client learns only of that.
#[test]
fn a_question_that_was_resolved_before_it_was_on_disk_is_raised_first() {
    let mut world = World::running();
    world.hold_writes = true;
    world.asks("q1");
    world.withdraws("q1");
    world.release_writes();
    let mut seen = world.seen().into_iter();
    assert!(seen.any(|line| line == "event raised q1"));
    assert!(seen.any(|line| line.starts_with("event resolved q1")));
}
