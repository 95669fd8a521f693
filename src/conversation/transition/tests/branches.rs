//! Forks at the head: in place, as a new conversation, while a turn runs, and without any prompt before.

use bridge_protocol::conversation::{ContinueAt, ConversationState};
use serde_json::json;

use super::continuing::{self, due_at};
use super::questions::orphaned;
use super::world::World;

/// What was cut short or asked in the turns that are left is no more; what somebody wants said at a time is said.
#[test]
fn in_place_what_belongs_to_the_turns_that_are_left_is_dropped() {
    for (at, is_left) in [(None, false), (Some("cp.claude.s1.r1"), true)] {
        let mut world = orphaned();
        let later = "2026-11-20T23:59:00Z";
        world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("good morning"));
        world.forget_log();
        world.fork_at(true, at);
        world.branches("s2");
        let told = world.saw("event resolved q1 by fork");
        assert_eq!(told, is_left);
        assert_eq!(due_at(&world).as_deref(), Some(later));
        for view in [world.view(), world.on_disk()] {
            assert_eq!((view.cut_short, view.interrupts.is_empty()), (!is_left, is_left));
        }
    }
    // A word that the turn be gone on with is not.
    let mut world = continuing::waiting();
    world.fork_at(true, Some("cp.claude.s1.r1"));
    world.branches("s2");
    assert_eq!(due_at(&world), None);
}

/// What was to be dropped is as it was, and nobody is told otherwise, also by the next write.
#[test]
fn a_branch_that_is_not_written_leaves_the_questions_open() {
    let mut world = orphaned();
    world.hold_writes = true;
    world.fork_at(true, Some("cp.claude.s1.r1"));
    world.branches("s2");
    world.forget_log();
    world.write_fails();
    world.taken_back();
    world.release_writes();
    world.set_title("another");
    assert!(!world.saw("event resolved"));
    let kept = world.on_disk();
    assert_eq!((kept.interrupts.len(), kept.cut_short), (1, true));
    assert_eq!(kept.title, "another");
}

#[test]
fn in_place_a_question_of_the_source_is_not_the_branchs() {
    let mut world = World::live();
    world.asks("q1");
    world.fork(true);
    world.branches("s2");
    assert_eq!(world.view().interrupts, []);
    world.expect_among("tell agent q1 cancelled");
}

#[test]
fn f10_a_branch_that_is_not_on_disk_leaves_nothing_in_the_lineage_of_its_source() {
    let mut world = World::live();
    world.hold_writes = true;
    world.fork(false);
    world.branches("s2");
    world.write_fails();
    world.taken_back();
    world.set_title("A title");
    world.release_writes();
    assert_eq!(world.lineage_on_disk(), ["created:s1"]);
}

#[test]
fn in_place_a_limit_stays_behind_with_the_source() {
    let mut world = World::running();
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    world.fork(true);
    world.branches("s2");
    assert_eq!(world.view().state, ConversationState::Idle);
    assert_eq!(world.view().limit, None);
}
