//! Turns of several conversations in one process that ends.

use bridge_protocol::conversation::ContinueAt;
use bridge_protocol::link::Fidelity;

use crate::conversation::answer::Answer;
use crate::conversation::effect::PromptArrival;

use super::continuing::{GO_ON, anchor, due_at, limit};
use super::world::World;

/// Fails the test unless a session is to be opened in a process of its own. In which process it is, no client sees: what the
/// climb is asked for is the contract.
#[track_caller]
fn expect_opening_apart(world: &mut World) {
    let log = world.log();
    assert!(log.contains(&"open text by itself apart".to_owned()), "{log:#?}");
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
        world.ascertains(PromptArrival::Present);
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
    world.ascertains(PromptArrival::Present);
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
    world.ascertains(PromptArrival::Present);
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
    world.ascertains(PromptArrival::Absent);
    world.reopens();
    world.refuses(limit());
    let Ok(Answer::Turn(turn)) = &world.answers[&call] else {
        panic!("no turn")
    };
    assert_eq!(turn.continuation, None);
}
