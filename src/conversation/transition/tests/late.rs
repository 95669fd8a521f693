//! Sessions that turn out to be unknown only after the prompt was told as accepted, because nobody had refused it in time.

use bridge_protocol::link::RollCause;
use bridge_protocol::turn::{FailureKind, TurnResult};

use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Deadline;

/// A conversation whose second turn, `t2`, was told as accepted, and whose agent then did not know the session.
fn refused_late() -> World {
    let mut world = World::live();
    world.prompt("second");
    world.elapses(Deadline::Accept);
    world.forget_log();
    world.does_not_know_the_session();
    world
}

#[track_caller]
fn turn(world: &World, reply: u32) -> &TurnResult {
    let Ok(Answer::Turn(turn)) = &world.answers[&reply] else {
        panic!("{:?}", world.answers[&reply]);
    };
    turn
}

#[test]
fn a_turn_that_every_session_refuses_late_ends() {
    let mut world = refused_late();
    for round in 0..10 {
        if world.job.is_none() {
            break;
        }
        world.copies(&format!("copy{round}"), RollCause::Forgotten);
        world.does_not_know_the_session();
    }
    let failure = turn(&world, 2).failure.as_ref().unwrap();
    crate::words::check("a turn that every session refuses", "failure", &failure.message);
}

#[test]
fn a_cancel_during_the_climb_ends_the_turn() {
    let mut world = refused_late();
    world.forget_log();
    let reply = world.cancel();
    world.expect(&[
        "event state cancelling",
        "event turnEnded t2 cancelled",
        "event state idle",
        "answer 2 turn t2 cancelled",
        &format!("answer {reply} cancelled true"),
    ]);
    world.copies("s2", RollCause::Forgotten);
    assert!(!world.saw("send"), "nothing is sent for a turn that is over");
}

#[test]
fn a_stop_during_the_climb_ends_the_turn() {
    let mut world = refused_late();
    world.stop();
    assert_eq!(
        turn(&world, 2).failure.as_ref().unwrap().kind,
        FailureKind::DaemonRestarted
    );
}

/// Rule 9: what the agent has shown that it took is never sent again.
#[test]
fn f18_what_was_taken_after_the_grace_is_not_sent_again() {
    let mut world = World::live();
    world.prompt("second");
    world.elapses(Deadline::Accept);
    world.says_something();
    world.does_not_know_the_session();
    assert_eq!(
        turn(&world, 2).failure.as_ref().unwrap().kind,
        FailureKind::InvalidRequest
    );
    assert_eq!(world.job, None);
}

#[test]
fn a_sign_of_work_after_the_grace_shows_that_a_transcript_is_to_be_expected() {
    let mut world = World::new();
    world.prompt("hello");
    world.opens("s1");
    world.elapses(Deadline::Accept);
    assert!(!world.head().written);
    world.says_something();
    assert!(world.head().written);
}
