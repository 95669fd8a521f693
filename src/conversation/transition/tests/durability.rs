//! What happens to each step if its write fails: callers get the error, nothing is announced that is not on disk, and
//! what happened nevertheless is recorded with the next write.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;

use super::world::World;
use crate::conversation::error::ConversationError;

fn store_failed(world: &World, reply: u32) -> bool {
    matches!(
        world.answers.get(&reply),
        Some(Err(ConversationError::StoreFailed(_)))
    )
}

#[test]
fn a_question_that_could_not_be_written_is_asked_all_the_same() {
    let mut world = World::running();
    world.hold_writes = true;
    world.asks("q1");
    world.forget_log();
    world.write_fails();
    world.expect(&["event raised q1"]);
}

#[test]
fn rule_5_a_roll_that_could_not_be_written_happened_all_the_same_and_is_told_with_the_next_write() {
    let mut world = World::live();
    world.hold_writes = true;
    world.rolls_silently("s2");
    world.write_fails();
    world.expect(&[]);
    assert_eq!(world.view().head, Some("s1".into()));
    world.hold_writes = false;
    world.prompt("second");
    world.expect(&[
        "event state prompting",
        "event rolled s1 to s2 cleared none",
        "send second",
    ]);
    assert_eq!(world.view().head, Some("s2".into()));
    assert_eq!(world.lineage_on_disk(), ["created:s1", "rolled:s2"]);
}

#[test]
fn rule_5_a_prompt_that_is_cancelled_names_no_session_that_is_not_on_disk() {
    let mut world = World::new();
    world.hold_writes = true;
    let reply = world.prompt("hello");
    world.opens("s1");
    world.cancel();
    assert_eq!(world.turn(reply).upstream_id.as_str(), "");
    world.release_writes();
    let mut world = World::hibernating();
    let reply = world.prompt("second");
    world.cancel();
    assert_eq!(world.turn(reply).upstream_id.as_str(), "s1");
}

#[test]
fn rule_5_a_session_is_not_announced_while_its_id_is_on_its_way_to_the_disk() {
    let mut world = World::live();
    world.hold_writes = true;
    world.rolls_silently("s2");
    world.dies();
    world.resume(Fidelity::Text);
    world.forget_log();
    world.reopens();
    world.expect(&[]);
    world.write_ends();
    world.expect(&["event rolled s1 to s2 cleared none"]);
    world.write_ends();
    world.expect(&["event resumed s2 resume full", "answer 2 resumed s2 resume"]);
}

#[test]
fn the_end_of_a_prompt_that_was_never_sent_is_on_disk_before_its_key_is_answered() {
    let again = |world: &mut World| world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    let mut world = World::hibernating();
    let first = again(&mut world);
    world.hold_writes = true;
    world.cancel();
    let second = again(&mut world);
    assert!(!world.answers.contains_key(&first) && !world.answers.contains_key(&second));
    world.release_writes();
    assert!(world.disk.requests["k"].result.is_some());
    assert!(world.answers.contains_key(&first) && world.answers.contains_key(&second));

    // One that waits in line as well; and it has ended all the same when that cannot be written.
    let mut world = World::running();
    let first = world.prompt_with("second", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.hold_writes = true;
    world.cancel_turn("t3");
    assert!(!world.answers.contains_key(&first));
    world.write_fails();
    assert!(world.answers[&first].is_ok());
    world.forget_log();
    again(&mut world);
    world.expect(&["answer 5 kept"]);
}

#[test]
fn the_time_of_the_last_change_does_not_go_back_with_a_change_that_is_taken_back() {
    let mut world = World::live();
    world.hold_writes = true;
    world.set_title("A title");
    let changed = world.view().updated_at;
    world.clock_is_set_back(43_200);
    world.write_fails();
    assert_eq!(world.view().title, "first");
    assert_eq!(world.view().updated_at, changed);
}

#[test]
fn rule_4_a_reset_that_could_not_be_written_leaves_the_chain() {
    let mut world = World::hibernating();
    world.hold_writes = true;
    let reply = world.reset();
    world.write_fails();
    assert!(store_failed(&world, reply));
    assert_eq!(world.chain(), ["s1"]);
}

#[test]
fn rule_4_a_deletion_that_could_not_be_written_leaves_the_chain() {
    let mut world = World::hibernating();
    world.hold_writes = true;
    let reply = world.delete();
    world.closes();
    world.write_fails();
    assert!(store_failed(&world, reply));
    assert!(!world.ended);
    assert_eq!(world.model.record.deleted_at, None);
    assert_eq!(world.chain(), ["s1"]);
}

#[test]
fn a_conversation_that_is_open_again_is_not_failed_on_disk_either() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Text);
    world.climb_fails(super::outside::not_resumable());
    world.resume(Fidelity::Text);
    world.reopens();
    assert_eq!(world.view().state, ConversationState::Idle);
    assert_eq!(
        world.disk.record.as_ref().unwrap().resting,
        crate::store::RestingState::Idle
    );
}
