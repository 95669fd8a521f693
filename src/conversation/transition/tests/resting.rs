//! Closing, hibernating, stopping.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::{Fidelity, Via};

use super::outside::opened;
use super::questions::orphaned;
use super::world::World;
use crate::conversation::effect::Deadline;

#[test]
fn what_is_not_idle_does_not_hibernate() {
    let mut running = World::running();
    let mut asked = World::live();
    asked.asks("q1");
    let mut branching = World::live();
    branching.fork(false);
    for (name, world) in [
        ("turn", &mut running),
        ("question", &mut asked),
        ("branch", &mut branching),
    ] {
        world.forget_log();
        world.elapses(Deadline::Idle);
        world.expect(&[]);
        assert!(world.is_armed(Deadline::Idle), "{name}");
    }
}

#[test]
fn a_session_that_could_not_be_brought_back_stays_open() {
    let mut world = World::new();
    world.resume(Fidelity::Text);
    let mut session = opened(
        "s1",
        Via::Fresh,
        Fidelity::Full,
        Some((bridge_protocol::link::Relation::Fresh, None)),
    );
    session.can_reopen = false;
    world.climbed(session);
    world.forget_log();
    world.elapses(Deadline::Idle);
    world.expect(&[]);
    assert!(world.view().live);
}

#[test]
fn no_answer_to_an_orphan_starts_a_turn_while_the_daemon_stops() {
    let mut world = orphaned();
    world.stop();
    world.forget_log();
    world.allow("q1");
    assert!(!world.saw("event state"));
    assert_eq!(world.view().state, ConversationState::Interrupted);
}

#[test]
fn stop_tries_once_more_what_the_disk_did_not_take() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.write_fails();
    world.hold_writes = false;
    world.stop();
    // The next start finds no turn that would have been cut short.
    world.is_killed();
    assert!(!world.view().cut_short);
}

#[test]
fn stop_lets_a_climb_go() {
    let mut world = World::hibernating();
    world.prompt("second");
    let resume = world.resume(Fidelity::Text);
    world.forget_log();
    world.stop();
    world.expect(&[
        "event state idle",
        &format!("answer {resume} error shuttingDown"),
        "answer 2 error shuttingDown",
    ]);
    assert!(world.model.is_at_rest());
}

#[test]
fn stop_lets_a_branch_and_settings_go() {
    let mut world = World::live();
    let branch = world.fork(false);
    world.stop();
    world.expect(&[&format!("answer {branch} error shuttingDown")]);
    let mut world = World::live();
    let update = world.set_mode("plan");
    world.stop();
    world.expect(&[&format!("answer {update} error shuttingDown")]);
}

#[test]
fn a_prompt_that_is_being_written_down_at_the_stop_is_not_sent() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.stop();
    world.release_writes();
    let log = world.log();
    assert!(!log.contains(&"send second".to_owned()), "{log:?}");
    assert!(world.answers.contains_key(&2));
}
