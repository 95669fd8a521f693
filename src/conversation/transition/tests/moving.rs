//! Moves to another folder: when they begin, in which order, and what happens if the move cannot be recorded.

use bridge_protocol::conversation::ConversationState;

use super::continuing::{RESET, waiting};
use super::questions::orphaned;
use super::world::World;
use crate::conversation::effect::PromptArrival;

#[test]
fn what_cannot_be_written_down_goes_back() {
    let mut world = World::live();
    let (before, links) = (world.view(), world.links());
    world.move_to("/new", Some("k"));
    world.closes();
    world.hold_writes = true;
    world.moved(Ok(3));
    world.write_fails();
    assert_eq!(world.view().state, ConversationState::Moving);
    world.taken_back();
    world.expect_among("answer 2 error storeFailed");
    assert_eq!((world.view().cwd, world.links()), (before.cwd, links));
    world.release_writes();
    assert_eq!(world.view().state, ConversationState::Idle);
    // The same call is a new one.
    world.move_to("/new", Some("k"));
    world.moved(Ok(3));
    assert_eq!(world.on_disk().cwd, "/new");
    let reply = world.move_to("/new", Some("k"));
    world.expect_among(&format!("answer {reply} kept"));
}

#[test]
fn of_where_it_is_already_nothing_is_taken_back() {
    let mut world = World::live();
    let cwd = world.view().cwd.clone();
    world.hold_writes = true;
    world.move_to(&cwd, None);
    world.reset();
    world.closes();
    let reset = world.links();
    world.write_fails();
    assert_eq!(world.links(), reset);
    world.release_writes();
    assert_eq!(world.disk.record.as_ref().unwrap().chain.links(), reset);
}

#[test]
fn what_is_held_moves_and_takes_nothing_else_on_until_it_is_released() {
    let mut world = World::running();
    let reply = world.hold();
    world.expect(&[&format!("answer {reply} error busy")]);
    assert_ne!(world.view().state, ConversationState::Moving);

    let mut world = World::live();
    world.hold();
    assert_eq!(world.view().state, ConversationState::Moving);
    let calls: [fn(&mut World) -> u32; 4] = [
        |world| world.prompt("now"),
        |world| world.fork(false),
        World::reset,
        World::hold,
    ];
    for is_moved in [false, true] {
        if is_moved {
            world.move_to("/new", None);
            world.closes();
            world.moved(Ok(1));
            assert_eq!(world.view().cwd, "/new");
        }
        assert_eq!(world.view().state, ConversationState::Moving);
        assert!(!world.model.is_at_rest());
        world.forget_log();
        for call in calls {
            let reply = call(&mut world);
            world.expect(&[&format!("answer {reply} error busy")]);
        }
    }
    world.release();
    assert_eq!(world.view().state, ConversationState::Idle);
    assert!(world.model.is_at_rest());
}

/// What falls due starts nothing while it is on its way, and goes on when it is there.
#[test]
fn what_falls_due_while_it_is_held_waits_until_it_is_released() {
    let mut world = waiting();
    world.hold();
    world.passes_to(RESET);
    world.falls_due();
    assert_eq!(world.view().state, ConversationState::Moving);
    world.move_to("/new", None);
    if world.closing.is_some() {
        world.closes();
    }
    world.moved(Ok(1));
    assert_eq!(world.view().cwd, "/new");
    assert_eq!(world.view().state, ConversationState::Moving);
    assert!(world.job.is_none());
    world.release();
    world.ascertains(PromptArrival::Absent);
    assert_eq!(world.view().state, ConversationState::Prompting);
}

#[test]
fn the_question_of_a_dead_agent_is_not_answered_on_the_way() {
    let mut world = orphaned();
    world.hold();
    world.forget_log();
    let reply = world.allow("q1");
    world.expect(&[&format!("answer {reply} error busy")]);
    world.release();
    world.allow("q1");
    assert_eq!(world.view().state, ConversationState::Prompting);
}
