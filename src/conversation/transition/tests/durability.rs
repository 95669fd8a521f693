//! What becomes of each step when the disk does not take it: callers are told, nothing is announced that is not on
//! disk, and what happened all the same goes out with the next write.

use bridge_protocol::conversation::{ConversationState, OnBusy};
use bridge_protocol::link::{Fidelity, RollCause};
use serde_json::json;

use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::Deadline;
use crate::conversation::error::ConversationError;

fn store_failed(world: &World, reply: u32) -> bool {
    matches!(
        world.answers.get(&reply),
        Some(Err(ConversationError::StoreFailed(_)))
    )
}

#[test]
fn a_session_that_could_not_be_written_down_is_let_go() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.hold_writes = true;
    world.copies("s2", RollCause::Forgotten);
    world.forget_log();
    world.write_fails();
    world.expect(&["event state idle", "answer 2 error storeFailed"]);
    assert!(!world.view().live);
    assert!(
        !world.model.is_at_rest(),
        "its lineage entry still has to be written"
    );
}

#[test]
fn lineage_entries_of_a_failed_write_go_out_with_the_next() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.hold_writes = true;
    world.copies("s2", RollCause::Forgotten);
    world.forget_log();
    world.write_fails();
    // The contract with the copy: its link is in the chain, so that nothing deletes it.
    assert!(world.log().contains(&"leave".to_owned()));
    world.set_title("A title");
    world.write_fails();
    world.set_title("A title");
    world.release_writes();
    assert_eq!(world.lineage_on_disk(), ["created:s1", "rolled:s2"]);
}

#[test]
fn the_ids_of_a_failed_write_go_out_with_the_next_so_that_they_resolve() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.hold_writes = true;
    world.copies("s2", RollCause::Forgotten);
    world.write_fails();
    world.set_title("A title");
    world.release_writes();
    assert_eq!(world.disk.upstream, ["s1".into(), "s2".into()]);
}

#[test]
fn an_id_that_is_not_on_disk_is_not_announced_at_the_next_resume_either() {
    let mut world = World::hibernating();
    world.prompt("second");
    world.hold_writes = true;
    world.copies("s2", RollCause::Forgotten);
    world.write_fails();
    world.resume(Fidelity::Text);
    world.forget_log();
    world.reopens();
    let resumes_the_old = world.view().head == Some("s1".into());
    let log = world.log();
    let announced = log.iter().any(|line| line.starts_with("event resumed"));
    assert!(
        resumes_the_old || !announced,
        "announced before it was written: {log:?}"
    );
}

#[test]
fn a_prompt_that_could_not_be_written_down_is_not_sent() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.forget_log();
    world.write_fails();
    world.expect(&["event state idle", "answer 2 error storeFailed"]);
    assert!(world.view().live);
    world.hold_writes = false;
    world.prompt("third");
    world.expect(&["event state prompting", "send third"]);
}

#[test]
fn a_session_whose_prompt_could_not_be_written_down_still_hibernates() {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.write_fails();
    assert!(world.is_armed(Deadline::Idle));
}

#[test]
fn a_turn_whose_end_could_not_be_written_has_ended_all_the_same() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.forget_log();
    world.write_fails();
    world.expect(&[
        "event turnEnded t2 end_turn",
        "event state idle",
        "answer 2 turn t2 end_turn",
    ]);
}

#[test]
fn what_a_failed_write_left_behind_is_written_before_the_conversation_rests() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    world.write_fails();
    world.elapses(Deadline::Idle);
    world.closes();
    world.release_writes();
    let saved = world.disk.record.as_ref() == Some(&world.model.record);
    assert!(
        saved || !world.model.is_at_rest(),
        "the disk still says that the turn runs"
    );
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
fn rule_5_a_head_is_not_shown_before_it_is_on_disk() {
    let mut world = World::new();
    world.hold_writes = true;
    world.prompt("hello");
    world.opens("s1");
    let view = world.view();
    assert_eq!((view.head, view.chain_length), (None, 0));
    world.write_ends();
    let view = world.view();
    assert_eq!((view.head, view.chain_length), (Some("s1".into()), 1));
}

#[test]
fn rule_5_a_prompt_that_is_cancelled_names_no_session_that_is_not_on_disk() {
    let named = |world: &World, reply: u32| match &world.answers[&reply] {
        Ok(Answer::Turn(turn)) => turn.upstream_id.to_string(),
        other => panic!("{other:?}"),
    };
    let mut world = World::new();
    world.hold_writes = true;
    let reply = world.prompt("hello");
    world.opens("s1");
    world.cancel();
    assert_eq!(named(&world, reply), "");
    world.release_writes();
    let mut world = World::hibernating();
    let reply = world.prompt("second");
    world.cancel();
    assert_eq!(named(&world, reply), "s1");
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
fn what_could_not_be_written_is_tried_again_by_itself_and_not_at_once() {
    let mut world = World::live();
    world.hold_writes = true;
    world.updates(&json!({"sessionUpdate": "session_info_update", "title": "Found"}));
    world.write_fails();
    world.forget_log();
    world.updates(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}));
    world.expect(&["update current_mode_update of none"]);
    world.elapses(Deadline::Rewrite);
    world.expect(&[]);
    world.write_fails();
    assert!(world.is_armed(Deadline::Rewrite));
    world.elapses(Deadline::Rewrite);
    world.release_writes();
}

#[test]
fn however_fast_the_agent_changes_its_mind_one_write_at_a_time_follows() {
    let mut world = World::live();
    world.hold_writes = true;
    for mode in ["a", "b", "c"] {
        world.updates(&json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}));
    }
    assert_eq!(world.writes.len(), 1);
    world.write_ends();
    assert_eq!(world.writes.len(), 1);
    world.release_writes();
    let settings = &world.disk.record.as_ref().unwrap().settings;
    assert_eq!(settings.mode.as_deref(), Some("c"));
}

#[test]
fn rule_9_a_prompt_whose_end_could_not_be_written_is_not_sent_again_with_its_key() {
    let again = |world: &mut World| world.prompt_with("second", OnBusy::Fail, Fidelity::Text, Some("k"));
    let mut world = World::live();
    world.hold_writes = true;
    again(&mut world);
    world.write_ends();
    world.ends("end_turn");
    world.write_fails();
    world.forget_log();
    again(&mut world);
    world.expect(&["answer 3 kept"]);
    // The next write is under way with it: still nothing but memory knows.
    world.set_title("A title");
    world.forget_log();
    again(&mut world);
    world.expect(&["answer 5 kept"]);
    world.release_writes();
    assert!(world.disk.requests["k"].result.is_some());
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
fn what_is_taken_back_takes_nothing_along_that_an_earlier_write_left_behind() {
    let mut world = World::hibernating();
    world.hold_writes = true;
    world.resume(Fidelity::Text);
    world.copies("s2", RollCause::Forgotten);
    world.write_fails();
    world.reset();
    world.write_fails();
    assert_eq!(world.chain(), ["s1", "s2"]);
    world.elapses(Deadline::Rewrite);
    world.release_writes();
    assert_eq!(world.lineage_on_disk(), ["created:s1", "rolled:s2"]);
    assert_eq!(world.disk.upstream, ["s1".into(), "s2".into()]);
}

#[test]
fn an_update_that_could_not_be_written_is_not_there() {
    let mut world = World::live();
    world.hold_writes = true;
    let reply = world.set_title("A title");
    world.write_fails();
    assert!(store_failed(&world, reply));
    assert_eq!(world.view().title, "");
}

#[test]
fn the_time_of_the_last_change_does_not_go_back_with_a_change_that_is_taken_back() {
    let mut world = World::live();
    world.hold_writes = true;
    world.set_title("A title");
    let changed = world.view().updated_at;
    world.clock_is_set_back(43_200);
    world.write_fails();
    assert_eq!(world.view().title, "");
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
    world.write_fails();
    assert!(store_failed(&world, reply));
    assert!(!world.ended);
    assert_eq!(world.model.record.deleted_at, None);
    assert_eq!(world.chain(), ["s1"]);
}

#[test]
fn a_branch_in_place_that_could_not_be_written_is_not_the_head() {
    let mut world = World::hibernating();
    world.hold_writes = true;
    let reply = world.fork(true);
    world.branches("s2");
    world.write_fails();
    world.taken_back();
    assert!(store_failed(&world, reply));
    assert_eq!(world.chain(), ["s1"]);
}

#[test]
fn an_answer_to_a_question_is_on_disk_before_it_is_acknowledged() {
    let mut world = World::running();
    world.asks("q1");
    world.hold_writes = true;
    let reply = world.allow("q1");
    assert!(!world.answers.contains_key(&reply));
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
        crate::store::Resting::Idle
    );
}

#[test]
fn a_prompt_that_was_refused_by_the_session_and_then_found_none_is_not_pending_on_disk() {
    let mut world = World::live();
    let reply = world.prompt("second");
    world.does_not_know_the_session();
    world.climb_fails(super::outside::agent_error());
    assert!(world.answers[&reply].is_err());
    assert_eq!(
        world.disk.record.as_ref().unwrap().turn,
        None,
        "the next start would call it cut short"
    );
}

#[test]
fn a_prompt_whose_agent_died_before_it_was_sent_and_that_found_no_session_is_not_pending_on_disk() {
    let mut world = World::live();
    world.hold_writes = true;
    let reply = world.prompt("second");
    world.dies();
    world.release_writes();
    world.climb_fails(super::outside::agent_error());
    assert!(world.answers[&reply].is_err());
    assert_eq!(
        world.disk.record.as_ref().unwrap().turn,
        None,
        "the next start would call it cut short"
    );
}

/// A prompt, `t2`, whose record is on its way to the disk when its agent dies and a climb for somebody else fails.
fn climb_fails_while_a_prompt_is_written_down() -> World {
    let mut world = World::live();
    world.hold_writes = true;
    world.prompt("second");
    world.dies();
    world.resume(Fidelity::Text);
    world.climb_fails(super::outside::agent_error());
    world
}

#[test]
fn a_failed_climb_leaves_no_turn_pending_that_nobody_runs() {
    let mut world = climb_fails_while_a_prompt_is_written_down();
    world.release_writes();
    while world.job.is_some() {
        world.climb_fails(super::outside::agent_error());
    }
    assert!(world.answers.contains_key(&2));
    assert_eq!(
        world.disk.record.as_ref().unwrap().turn,
        None,
        "the next start would call it cut short"
    );
}

#[test]
fn the_record_of_one_prompt_does_not_send_another() {
    let mut world = climb_fails_while_a_prompt_is_written_down();
    world.queue("third");
    if world.job.is_some() {
        world.reopens();
    }
    world.forget_log();
    world.write_ends();
    let on_disk = world
        .disk
        .record
        .as_ref()
        .unwrap()
        .turn
        .as_ref()
        .map(|turn| turn.prompt.to_text());
    let log = world.log();
    let sent = log.iter().find_map(|line| line.strip_prefix("send "));
    assert!(
        sent.is_none() || sent.map(str::to_owned) == on_disk,
        "{sent:?} was sent, {on_disk:?} is on disk"
    );
}
