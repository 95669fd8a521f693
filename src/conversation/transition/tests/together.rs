//! Turns of several conversations in one process that ends.

use bridge_protocol::conversation::ContinueAt;
use bridge_protocol::link::Fidelity;

use crate::conversation::answer::Answer;
use crate::conversation::effect::{Arrival, Deadline};

use super::continuing::{GO_ON, anchor, due_at, limit};
use super::world::World;

/// Fails the test unless a session is to be opened in a process of its own. In which process it is, no client sees: what the
/// climb is asked for is the contract.
#[track_caller]
fn expect_opening_apart(world: &mut World) {
    let log = world.log();
    assert!(log.contains(&"open text by itself apart".to_owned()), "{log:#?}");
}

#[test]
fn f23_a_turn_that_was_ended_for_another_conversation_goes_on_by_itself() {
    let mut world = World::running();
    world.is_ended_for_another();
    world.expect_among("event turnEnded t2 failed agentDied");
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert!(turn.continuation.is_some(), "told");
    world.falls_due();
    world.ascertains(Arrival::Present);
    world.reopens();
    world.expect_among(&format!("send {GO_ON}"));
}

/// Any of them may have been the end of it: each goes on in a process of its own, and the one that ends that too is told
/// from the others by it.
#[test]
fn f23_a_turn_that_died_with_others_goes_on_apart_and_once() {
    let mut world = World::running();
    world.dies_with_others();
    let Ok(Answer::Turn(turn)) = &world.answers[&2] else {
        panic!("no turn")
    };
    assert!(turn.continuation.is_some(), "told");
    let failure = turn.failure.as_ref().unwrap();
    assert!(!failure.retryable, "it would run twice");
    world.falls_due();
    world.ascertains(Arrival::Present);
    expect_opening_apart(&mut world);
    world.reopens();
    world.expect_among(&format!("send {GO_ON}"));
    world.says_something();
    world.dies();
    assert_eq!(due_at(&world), None);
    assert!(world.view().cut_short, "a person can have it gone on with");
}

/// Its process is given up with the turn.
#[test]
fn what_went_on_apart_comes_back_to_the_others() {
    let mut world = World::running();
    world.dies_with_others();
    world.falls_due();
    world.ascertains(Arrival::Present);
    world.reopens();
    world.ends("end_turn");
    // No client sees when: that it is at once is the contract with the timer.
    assert!(world.log().contains(&"arm Idle 0".to_owned()));
    world.elapses(Deadline::Idle);
    world.closes();
    world.forget_log();
    world.prompt("third");
    world.expect(&["event state prompting"]);
}

/// A text that is to be said at a time of its own is not said now for another turn's sake.
#[test]
fn what_is_wanted_later_waits_for_its_time() {
    for is_limited in [false, true] {
        let mut world = World::live();
        let later = "2036-11-03T15:00:00Z";
        world.anchor = anchor();
        world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("deploy"));
        let call = world.prompt_and_wait("second");
        world.says_something();
        match is_limited {
            true => world.refuses(limit()),
            false => world.dies_with_others(),
        }
        let Ok(Answer::Turn(turn)) = &world.answers[&call] else {
            panic!("no turn")
        };
        assert!(turn.continuation.is_some());
        world.passes_to(&due_at(&world).unwrap());
        world.falls_due();
        world.ascertains(Arrival::Present);
        if !is_limited {
            world.reopens();
        }
        world.expect_among(&format!("send {GO_ON}"));
        world.ends("end_turn");
        assert_eq!(due_at(&world).as_deref(), Some(later));
        world.passes_to(later);
        world.falls_due();
        world.expect_among("send deploy");
    }
}

/// Whoever cancels what comes first does not call off what was wanted later.
#[test]
fn what_is_wanted_later_outlives_what_came_first() {
    let mut world = World::live();
    let later = "2036-11-03T15:00:00Z";
    world.anchor = anchor();
    world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("deploy"));
    world.prompt_and_wait("second");
    world.says_something();
    world.dies_with_others();
    world.falls_due();
    world.ascertains(Arrival::Present);
    world.cancel();
    assert_eq!(due_at(&world).as_deref(), Some(later));
    world.do_not_continue();
    assert_eq!(due_at(&world), None);
}

/// One that was opened again beside others leaves them first.
#[test]
fn a_session_that_was_opened_meanwhile_is_moved() {
    let mut world = World::running();
    world.dies_with_others();
    world.resume(Fidelity::Text);
    world.reopens();
    world.falls_due();
    world.forget_log();
    world.ascertains(Arrival::Present);
    world.expect(&["close session", "event state prompting"]);
    world.closes();
    expect_opening_apart(&mut world);
}

/// It died once with others, and is sent again since nothing of it was seen; what fails it afterwards is its own.
#[test]
fn what_is_sent_again_fails_for_itself() {
    let mut world = World::live();
    world.anchor = anchor();
    let call = world.prompt("second");
    world.dies_with_others();
    world.ascertains(Arrival::Absent);
    world.reopens();
    world.refuses(limit());
    let Ok(Answer::Turn(turn)) = &world.answers[&call] else {
        panic!("no turn")
    };
    assert_eq!(turn.continuation, None);
}
