//! Turns of several conversations in one process that ends.

use bridge_protocol::conversation::ContinueAt;

use crate::conversation::effect::PromptArrival;

use super::continuing::{anchor, due_at, limit};
use super::world::World;

/// A text that is scheduled for a time is not sent earlier because another turn was interrupted: it continues that turn too.
#[test]
fn a_scheduled_text_keeps_its_time_and_continues_a_turn_that_is_interrupted_meanwhile() {
    for is_limited in [false, true] {
        let mut world = World::live();
        let later = "2036-11-03T15:00:00Z";
        world.anchor = anchor();
        world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("deploy"));
        let call = world.prompt_and_wait("second");
        world.says_something();
        match is_limited {
            true => world.refuses(limit()),
            false => world.is_ended_for_others(),
        }
        let turn = world.turn(call);
        assert!(turn.continuation.is_some());
        assert_eq!(due_at(&world).as_deref(), Some(later));
        world.passes_to(later);
        world.falls_due();
        world.ascertains(PromptArrival::Present);
        if !is_limited {
            world.reopens();
        }
        world.expect_among("send deploy");
        world.ends("end_turn");
        assert_eq!(due_at(&world), None);
    }
}

/// It died once with others, and is sent again since nothing of it was seen; what fails it afterwards is its own.
#[test]
fn what_is_sent_again_fails_for_itself() {
    let mut world = World::live();
    world.anchor = anchor();
    let call = world.prompt("second");
    world.is_ended_for_others();
    world.ascertains(PromptArrival::Absent);
    world.reopens();
    world.refuses(limit());
    let turn = world.turn(call);
    assert_eq!(turn.continuation, None);
}
