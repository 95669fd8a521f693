//! Recovery of a conversation whose task fails: only what is on disk counts, and the turn ends.

use bridge_protocol::conversation::ConversationState;

use super::world::World;
use crate::conversation::effect::Deadline;

#[test]
fn what_was_on_its_way_to_the_disk_counts_if_it_arrived() {
    for is_written in [true, false] {
        let mut world = World::running();
        world.hold_writes = true;
        let reply = world.set_title("A title");
        world.task_fails(is_written);
        assert_eq!(world.answers.contains_key(&reply), is_written);
        world.release_writes();
        let seen = world.log();
        for line in [
            "event turnEnded t2 failed unknown",
            "event state failed",
            "answer 2 turn t2 failed",
        ] {
            assert!(seen.iter().any(|seen| seen.starts_with(line)), "{line}: {seen:?}");
        }
        let record = world.disk.record.as_ref().unwrap();
        assert_eq!(record.title, if is_written { "A title" } else { "first" });
        assert_eq!((&record.turn, record.cut.is_some()), (&None, true));
        assert_eq!(Some(&world.model.record), world.disk.record.as_ref());
    }
}

#[test]
fn a_turn_whose_end_was_on_its_way_to_the_disk_ends_in_that_way_if_it_arrived() {
    for (is_written, end) in [(true, "end_turn"), (false, "failed unknown")] {
        let mut world = World::running();
        world.hold_writes = true;
        world.ends("end_turn");
        world.task_fails(is_written);
        world.release_writes();
        let line = format!("event turnEnded t2 {end}");
        assert!(world.log().contains(&line), "{line}");
    }
}

#[test]
fn a_failure_that_cannot_be_written_is_reported_and_written_later() {
    let mut world = World::running();
    world.hold_writes = true;
    world.task_fails(false);
    world.write_fails();
    assert!(world.answers.contains_key(&2));
    assert_eq!(world.model.state(), ConversationState::Failed);
    world.elapses(Deadline::Rewrite);
    world.release_writes();
    assert_eq!(Some(&world.model.record), world.disk.record.as_ref());
}
