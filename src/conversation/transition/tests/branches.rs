//! Forks at the head: in place, side by side, while a turn runs, and of what was never prompted.

use bridge_protocol::conversation::{ContinueAt, ConversationState};
use bridge_protocol::link::{Fidelity, Relation, RollCause};
use serde_json::json;

use super::continuing::{self, due_at};
use super::outside::{agent_error, open_branch};
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Call, Fork};

#[test]
fn side_by_side_is_a_new_conversation_and_leaves_this_one_alone() {
    let mut world = World::live();
    let before = world.view();
    world.fork(false);
    world.expect(&[]);
    world.branched(Ok(open_branch("s2")));
    world.expect(&["announce ", "event forked s2", "answer 2 forked s2"]);
    assert_eq!(world.view(), before);
    let Ok(Answer::Forked(forked)) = &world.answers[&2] else {
        panic!("no fork")
    };
    assert_eq!(forked.conversation.head, Some("s2".into()));
    assert_ne!(forked.conversation.id, before.id);
    let parent = forked.conversation.parent.as_ref().unwrap();
    assert_eq!(
        (parent.conversation_id, parent.checkpoint_id.clone()),
        (before.id, Some("cp1".into()))
    );
    let link = forked.link.as_ref().unwrap();
    assert_eq!(
        (link.relation, link.from_upstream_id.clone()),
        (Relation::Carries, Some("s1".into()))
    );
}

/// Whether there is such a place is seen by whoever reads the transcripts.
#[test]
fn at_a_checkpoint_the_session_is_branched_that_holds_it() {
    let mut world = World::live();
    world.fork(true);
    world.branches("s2");
    world.forget_log();
    for (at, session) in [("cp.claude.s1.r1", "s1"), ("cp.claude.s2.r1", "s2")] {
        world.fork_at(false, Some(at));
        // Which session is asked for is the contract: the branch is what is made of it.
        assert_eq!(world.log(), [format!("branch {session}")]);
        world.branched(Err(agent_error()));
        world.forget_log();
    }
}

/// What was cut short or asked in the turns that are left is no more; what somebody wants said at a time is said.
#[test]
fn in_place_what_belongs_to_the_turns_that_are_left_is_dropped() {
    for (at, is_left) in [(None, false), (Some("cp.claude.s1.r1"), true)] {
        let mut world = World::running();
        world.asks("q1");
        world.dies();
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

/// The file of a cut is nobody's when the branch could not be written down, and somebody's once it is.
#[test]
fn the_file_of_a_branch_that_is_not_written_goes() {
    for (in_place, is_written) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::hibernating();
        world.hold_writes = true;
        let reply = world.fork_at(in_place, Some("cp.claude.s1.r1"));
        world.branches("s2");
        world.forget_log();
        match is_written {
            true => world.write_ends(),
            false => world.write_fails(),
        }
        // What is to become of the file is the contract: the actor does nothing else with it.
        let log = world.log();
        let has = |word: &str| log.contains(&word.to_owned());
        assert_eq!((has("keep"), has("take back")), (is_written, !is_written));
        if !is_written {
            world.taken_back();
        }
        assert_eq!(world.answers[&reply].is_ok(), is_written);
    }
}

/// What was to be dropped is as it was, and nobody is told otherwise, also by the next write.
#[test]
fn a_branch_that_is_not_written_leaves_the_questions_open() {
    let mut world = World::running();
    world.asks("q1");
    world.dies();
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
fn a_branch_is_not_told_before_it_is_on_disk() {
    for in_place in [false, true] {
        let mut world = World::live();
        world.hold_writes = true;
        world.fork(in_place);
        world.branches("s2");
        world.expect(&[]);
        world.write_ends();
        let announced = if in_place { vec![] } else { vec!["announce "] };
        world.expect(&[announced, vec!["event forked s2", "answer 2 forked s2"]].concat());
    }
}

#[test]
fn in_place_the_branch_is_the_head_at_once_and_the_source_stays() {
    let mut world = World::live();
    world.fork(true);
    world.branches("s2");
    assert_eq!(world.chain(), ["s1", "s2"]);
    assert!(!world.view().live);
    assert_eq!(world.lineage_on_disk(), ["created:s1", "forked:s2"]);
    let Ok(Answer::Forked(forked)) = &world.answers[&2] else {
        panic!("no fork")
    };
    assert_eq!(forked.conversation.id, world.model.id());
    assert_eq!(forked.conversation.head, Some("s2".into()));
    world.prompt("second");
    world.expect_last("event state prompting");
    world.reopens();
    world.expect_last("send second");
}

#[test]
fn in_place_the_session_of_the_source_is_let_go_and_nobody_waits_for_it() {
    let mut world = World::live();
    world.fork(true);
    world.branches("s2");
    world.expect(&["event forked s2", "answer 2 forked s2"]);
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
fn in_place_a_branch_that_is_open_is_used() {
    let mut world = World::live();
    world.fork(true);
    world.branched(Ok(open_branch("s2")));
    world.expect(&[
        "event forked s2",
        "event resumed s2 fresh full",
        "answer 2 forked s2",
    ]);
}

#[test]
fn a_prompt_does_not_take_the_session_of_a_branch_that_is_being_written_down() {
    let mut world = World::hibernating();
    world.fork(false);
    world.hold_writes = true;
    world.branched(Ok(open_branch("s2")));
    world.prompt("second");
    world.expect(&["event state prompting"]);
    world.write_ends();
    world.expect(&["announce ", "event forked s2", "answer 2 forked s2"]);
}

#[test]
fn while_a_turn_runs_only_side_by_side_can_be_made() {
    let mut world = World::running();
    world.fork(true);
    world.expect(&["answer 3 error busy"]);
    world.fork(false);
    world.expect(&[]);
    world.branches("s2");
    world.says_something();
    world.ends("end_turn");
    world.expect_last("answer 2 turn t2 end_turn");
}

#[test]
fn one_branch_at_a_time() {
    let mut world = World::live();
    world.fork(false);
    world.fork(false);
    world.expect(&["answer 3 error busy"]);
}

#[test]
fn a_prompt_that_comes_while_a_branch_is_made_waits_for_it() {
    let mut world = World::live();
    world.fork(true);
    let prompt = world.prompt("second");
    world.branches("s2");
    world.reopens();
    world.expect_last("send second");
    world.ends("end_turn");
    let Ok(Answer::Turn(turn)) = &world.answers[&prompt] else {
        panic!("no turn")
    };
    assert_eq!(turn.upstream_id, "s2".into());
}

#[test]
fn f39_what_was_never_prompted_becomes_a_new_conversation_with_the_same_settings() {
    let mut world = World::new();
    world.set_mode("plan");
    world.resume(Fidelity::Text);
    world.opens("s1");
    world.forget_log();
    world.fork(false);
    world.expect(&["announce ", "answer 3 forked nothing"]);
    let Ok(Answer::Forked(forked)) = &world.answers[&3] else {
        panic!("no fork")
    };
    assert_eq!(forked.conversation.head, None);
    assert_eq!(forked.conversation.settings.mode.as_deref(), Some("plan"));
    assert_eq!(forked.conversation.parent.as_ref().unwrap().checkpoint_id, None);
    world.fork(true);
    world.expect(&["answer 4 error conflict"]);
}

#[test]
fn a_retelling_is_branched_from_once_it_was_prompted_since_a_branch_before_would_be_empty() {
    let mut world = World::hibernating();
    world.resume(Fidelity::Text);
    world.retells("s2", "So far:");
    world.forget_log();
    for in_place in [false, true] {
        let refused = world.fork(in_place);
        world.expect(&[&format!("answer {refused} error conflict")]);
    }
    world.prompt("second");
    world.says_something();
    world.ends("end_turn");
    world.forget_log();
    world.fork(false);
    world.expect(&[]);
}

#[test]
fn a_branch_that_was_not_made_changes_nothing() {
    let mut world = World::live();
    let before = world.view();
    world.fork(true);
    world.branched(Err(agent_error()));
    world.expect(&["answer 2 error agentError"]);
    assert_eq!(world.view(), before);
    assert!(world.view().live);
}

#[test]
fn a_branch_that_is_not_on_disk_is_not_told_and_its_session_is_let_go() {
    let mut world = World::live();
    world.fork(false);
    world.hold_writes = true;
    world.branched(Ok(open_branch("s2")));
    world.forget_log();
    world.write_fails();
    world.expect(&[]);
    world.taken_back();
    world.expect(&["answer 2 error storeFailed"]);
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
fn in_place_cwd_and_title_are_the_branchs() {
    let mut world = World::live();
    let cwd = "/home/u/other".to_owned();
    world.call(
        Call::Fork(Fork {
            at: None,
            in_place: true,
            cwd: Some(cwd.clone()),
            title: Some("Other".to_owned()),
            min_fidelity: Fidelity::Text,
        }),
        None,
    );
    world.branches("s2");
    assert_eq!(world.view().cwd, cwd);
    assert_eq!(world.view().title, "Other");
    assert_eq!(world.head().cwd, cwd);
    assert_eq!(world.links()[0].cwd, "/home/u/project");
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

#[test]
fn the_chain_keeps_sixteen_links_and_the_head_last() {
    let mut world = World::live();
    for number in 2..=20 {
        world.close();
        world.closes();
        world.prompt("next");
        world.copies(&format!("s{number}"), RollCause::Forgotten);
        world.says_something();
        world.ends("end_turn");
    }
    let chain = world.chain();
    assert_eq!((chain.len(), chain[0], chain[15]), (16, "s5", "s20"));
    assert_eq!(world.lineage_on_disk().len(), 20);
    assert_eq!(world.disk.upstream.len(), 20);
}
