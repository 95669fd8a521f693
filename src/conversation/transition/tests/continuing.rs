//! Scheduled continuations: what is sent, when, and that it is sent once.

use bridge_protocol::conversation::{ConversationState, Limit};
use bridge_protocol::turn::FailureKind;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, PromptArrival};
use crate::conversation::error::ConversationError;
use crate::store::Anchor;

const HOUR_SECONDS: i64 = 3_600;

pub(super) const GO_ON: &str = "Your last turn was cut short. Continue it from where it stopped.";

/// When the limit of these tests ends: 59 minutes after the world began.
pub(super) const RESET: &str = "2026-11-20T22:59:00Z";

pub(super) fn limit() -> Value {
    json!({
        "code": -32603,
        "message": "You've hit your limit",
        "data": {"errorKind": "rate_limit"}
    })
}

pub(super) fn unreachable() -> Value {
    json!({"code": -32603, "message": "ECONNREFUSED"})
}

pub(super) fn anchor() -> Option<Anchor> {
    Some(Anchor {
        owner: None,
        record_uuid: Some("end".to_owned()),
    })
}

/// A conversation whose prompt `second` met a limit and waits for its end.
pub(super) fn waiting() -> World {
    let mut world = World::live();
    world.anchor = anchor();
    world.prompt_and_wait("second");
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_540}}
    }));
    world.refuses(limit());
    world.forget_log();
    world
}

pub(super) fn due_at(world: &World) -> Option<String> {
    let continuation = world.view().continuation;
    continuation.map(|continuation| continuation.at.to_string())
}

/// Whether a prompt goes out now, if the transcript is asked and has none.
pub(super) fn goes_out(world: &mut World) -> bool {
    if world.job.is_some() {
        world.ascertains(PromptArrival::Absent);
    }
    if world.job.is_some() {
        world.reopens();
    }
    world.saw("send ")
}

/// The reset is due, and the transcript gives this answer.
fn comes_due(world: &mut World, arrival: PromptArrival) {
    world.passes_to(RESET);
    world.falls_due();
    world.ascertains(arrival);
}

fn attempts(world: &World) -> Option<u32> {
    let continuation = world.view().continuation;
    continuation.map(|continuation| continuation.attempts)
}

#[test]
fn where_no_transcript_can_be_read_it_is_tried_once_and_told() {
    let mut world = waiting();
    comes_due(&mut world, PromptArrival::Unknown);
    world.expect_among("send second");
    world.refuses(limit());
    assert_eq!(attempts(&world), Some(1));
    world.passes_to(&due_at(&world).unwrap());
    world.falls_due();
    world.forget_log();
    world.ascertains(PromptArrival::Unknown);
    world.expect(&["event state failed"]);
    assert_eq!(due_at(&world), None);
    let failure = world.view().failure.unwrap();
    crate::words::check("a continuation that may have been sent", "failure", &failure);
}

// Against F20.
#[test]
fn a_limit_that_is_still_on_is_waited_for_longer_and_longer() {
    let mut world = waiting();
    let mut waited = Vec::new();
    while let Some(at) = due_at(&world) {
        world.passes_to(&at);
        world.falls_due();
        world.ascertains(PromptArrival::Present);
        world.refuses(limit());
        let next: Option<Timestamp> = due_at(&world).map(|at| at.parse().unwrap());
        waited.extend(next.map(|next| next.duration_since(world.now()).as_mins() + 1));
    }
    assert_eq!(waited[..5], [5, 15, 60, 60, 60]);
    assert_eq!(waited.len(), 19, "twenty in all");
    assert_eq!(world.view().state, ConversationState::Limited);
}

#[test]
fn what_passes_is_tried_again_and_what_does_not_is_left_to_a_person() {
    for (error, goes_on) in [
        (
            json!({"code": -32603, "message": "busy", "data": {"errorKind": "overloaded"}}),
            true,
        ),
        (json!({"code": -32603, "message": "ECONNREFUSED"}), true),
        (
            json!({"code": -32000, "message": "Authentication required"}),
            false,
        ),
        (
            json!({"code": -32603, "message": "prompt is too long", "data": {"errorKind": "invalid_request"}}),
            false,
        ),
    ] {
        let mut world = waiting();
        comes_due(&mut world, PromptArrival::Absent);
        world.refuses(error.clone());
        assert_eq!(due_at(&world).is_some(), goes_on, "{error}");
    }
}

/// The limit that is still on may be met by the resume already.
#[test]
fn what_passes_by_itself_is_waited_for_where_a_resume_meets_it() {
    const LATER: &str = "2036-11-03T15:00:00Z";
    let limit = Limit {
        kind: FailureKind::RateLimited,
        resets_at: Some(LATER.parse().unwrap()),
    };
    for limit in [Some(limit), None] {
        let mut world = waiting();
        world.rests();
        comes_due(&mut world, PromptArrival::Absent);
        world.climb_fails(ConversationError::Transient {
            message: "not now".to_owned(),
            upstream: None,
            limit: limit.clone(),
        });
        assert_eq!(attempts(&world), Some(1));
        let due = due_at(&world).unwrap();
        assert_eq!(due == LATER, limit.is_some(), "{due}");
        assert_eq!(world.view().state, ConversationState::Limited);
    }
}

/// So it is for a prompt that a person wants to wait: nothing of it was sent, so that it goes out itself.
#[test]
fn a_prompt_whose_session_meets_the_limit_waits_too() {
    let limit = Limit {
        kind: FailureKind::RateLimited,
        resets_at: Some(RESET.parse().unwrap()),
    };
    let mut world = World::live();
    world.rests();
    let call = world.prompt_and_wait("second");
    world.climb_fails(ConversationError::Transient {
        message: "not now".to_owned(),
        upstream: None,
        limit: Some(limit),
    });
    let turn = world.turn(call);
    assert_eq!(turn.continuation.as_ref().unwrap().at, RESET.parse().unwrap());
    assert_eq!(world.view().state, ConversationState::Limited);
    comes_due(&mut world, PromptArrival::Absent);
    world.reopens();
    world.expect_among("send second");
}

#[test]
fn a_prompt_that_meets_the_limit_again_takes_nothing_from_the_one_that_waits() {
    let mut world = waiting();
    world.prompt("third");
    world.refuses(limit());
    assert_eq!(due_at(&world).as_deref(), Some(RESET));
    world.passes_to(RESET);
    world.falls_due();
    world.forget_log();
    world.ascertains(PromptArrival::Absent);
    world.expect_among("send second");

    let mut world = waiting();
    world.prompt_and_wait("third");
    world.refuses(limit());
    world.passes_to(&due_at(&world).unwrap());
    world.falls_due();
    world.forget_log();
    world.ascertains(PromptArrival::Absent);
    world.expect_among("send second\nthird");
}

#[test]
fn a_running_turn_goes_first() {
    let mut world = waiting();
    world.prompt("third");
    world.says_something();
    world.passes_to(RESET);
    world.falls_due();
    world.forget_log();
    world.refuses(unreachable());

    // One that comes while the transcript is asked, too.
    world.prompt("fourth");
    world.forget_log();
    world.ascertains(PromptArrival::Absent);
    world.expect_among("send fourth");
    world.refuses(unreachable());
    world.ascertains(PromptArrival::Absent);
    world.expect_among("send second");
}

#[test]
fn cancelled_while_the_transcript_is_asked_it_goes_nowhere() {
    let mut world = World::live();
    world.anchor = anchor();
    world.prompt("second");
    world.dies();
    let cancel = world.cancel();
    world.forget_log();
    world.ascertains(PromptArrival::Absent);
    world.expect_among("event turnEnded t2 cancelled");
    assert!(matches!(world.answers[&cancel], Ok(Answer::Cancelled(true))));
}

#[test]
fn a_continuation_that_is_cancelled_or_was_begun_is_not_sent_again() {
    for is_asked in [true, false] {
        let mut world = waiting();
        comes_due(&mut world, PromptArrival::Absent);
        if is_asked {
            world.cancel();
        } else {
            world.says_something();
        }
        world.ends("cancelled");
        assert_eq!(world.view().state, ConversationState::Idle);
        assert_eq!((due_at(&world), world.view().cut_short), (None, false));
    }
}

#[test]
fn one_that_meets_the_limit_again_waits_although_it_was_woken_twice() {
    let mut world = waiting();
    comes_due(&mut world, PromptArrival::Present);
    world.falls_due();
    world.forget_log();
    world.refuses(limit());
    assert!(!goes_out(&mut world));
    assert!(world.view().continuation.as_ref().unwrap().at > world.now());

    // A person's prompt met it meanwhile.
    let mut world = waiting();
    world.prompt_and_wait("third");
    world.says_something();
    world.passes_to(RESET);
    world.falls_due();
    world.forget_log();
    world.refuses(limit());
    assert!(!goes_out(&mut world));
}

#[test]
fn what_did_not_get_to_an_agent_was_not_sent() {
    let mut world = waiting();
    world.rests();
    comes_due(&mut world, PromptArrival::Unknown);
    world.climb_fails(ConversationError::AgentUnavailable("gone".to_owned()));
    world.passes_to(&due_at(&world).unwrap());
    world.falls_due();
    world.ascertains(PromptArrival::Unknown);
    world.forget_log();
    world.reopens();
    world.expect_among("send second");
}

#[test]
fn a_stop_on_the_second_way_to_the_agent_leaves_it_for_the_next_life() {
    let mut world = waiting();
    comes_due(&mut world, PromptArrival::Absent);
    world.elapses(Deadline::Accept);
    world.dies();
    world.ascertains(PromptArrival::Absent);
    world.stop();
    assert!(due_at(&world).is_some());
}

#[test]
fn a_limit_that_is_answered_while_the_daemon_stops_is_waited_for() {
    let mut world = World::live();
    world.anchor = anchor();
    world.prompt_and_wait("second");
    world.stop();
    world.refuses(limit());
    assert_eq!(world.view().state, ConversationState::Limited);
    assert!(due_at(&world).is_some());
}

#[test]
fn an_open_question_goes_first() {
    for is_of_that_turn in [false, true] {
        let mut world = waiting();
        if !is_of_that_turn {
            world.prompt("third");
            world.asks("q");
            world.dies();
        }
        world.passes_to(RESET);
        if is_of_that_turn {
            world.falls_due();
            world.ascertains(PromptArrival::Present);
            world.says_something();
            world.asks("q");
            world.dies();
        }
        world.passes_to(&due_at(&world).unwrap());
        world.forget_log();
        world.falls_due();
        world.expect(&[]);
        assert!(!goes_out(&mut world));
        world.deny("q");
        // What was refused is not gone on with.
        assert_eq!(goes_out(&mut world), !is_of_that_turn);
    }
}

/// It goes out now, and once.
fn goes_out_once(world: &mut World) {
    let at = world.view().continuation.as_ref().unwrap().at;
    world.passes_to(&at.to_string());
    world.falls_due();
    world.ascertains(PromptArrival::Absent);
    world.expect_among("send second");
    // The clock is corrected while it runs, and its time comes once more.
    world.clock_is_set_back(HOUR_SECONDS);
    world.falls_due();
    assert!(!world.saw("send"));
    world.says_something();
    world.ends("end_turn");
    assert_eq!(world.view().continuation, None);
    world.forget_log();
    world.falls_due();
    world.expect(&[]);
    assert!(!goes_out(world));
}

#[test]
fn a_reset_is_waited_for_by_the_clock_on_the_wall() {
    let mut world = waiting();
    let before = world.view().continuation.clone();
    world.passes_to("2026-11-20T22:58:59Z");
    world.clock_is_set_back(HOUR_SECONDS);
    world.falls_due();
    world.expect(&[]);
    assert!(!goes_out(&mut world));
    assert_eq!(world.view().continuation, before);
    goes_out_once(&mut world);
}

#[test]
fn called_off_on_its_way_it_does_not_go_out_and_afterwards_that_is_told() {
    let mut world = waiting();
    world.rests();
    comes_due(&mut world, PromptArrival::Present);
    world.do_not_continue();
    world.forget_log();
    world.reopens();
    assert!(!world.saw("send"));

    let mut world = waiting();
    comes_due(&mut world, PromptArrival::Present);
    world.forget_log();
    let call = world.do_not_continue();
    world.expect(&[&format!("answer {call} error busy")]);
}
