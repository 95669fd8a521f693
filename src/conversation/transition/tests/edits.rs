//! Edits of earlier prompts, and their undo.

use bridge_protocol::conversation::{ContinueAt, ConversationState};
use bridge_protocol::link::{Fidelity, LineageReason};
use serde_json::json;

use super::continuing::{RESET, due_at, waiting};
use super::outside::{agent_error, branch, edited};
use super::questions::orphaned;
use super::world::World;
use crate::conversation::effect::{Deadline, PromptArrival};

const AT: &str = "cp.claude.s1.r1";

/// The first prompt is replaced, and the new one is on its way to the agent.
fn edits(world: &mut World) {
    world.edit(AT);
    world.edit_is_made(Ok(edited("s2", "s1", 1)));
}

/// A conversation with one turn, an edit of which is on its way to the agent.
fn sent() -> World {
    let mut world = World::live();
    edits(&mut world);
    world
}

#[test]
fn the_mode_that_the_agent_reports_of_the_branch_is_shown_and_kept() {
    let mut world = World::live();
    world.edit(AT);
    let mut made = edited("s2", "s1", 1);
    made.opened.session_info.modes = Some(json!({"currentModeId": "plan", "availableModes": []}).into());
    world.edit_is_made(Ok(made));
    world.says_something();
    assert_eq!(world.view().settings.mode.as_deref(), Some("plan"));
    world.ends("end_turn");
    let kept = world.disk.record.as_ref().unwrap();
    assert_eq!(
        (kept.reported.mode.as_deref(), &kept.settings.mode),
        (Some("plan"), &None)
    );
}

#[test]
fn a_prompt_that_is_not_accepted_leaves_the_head_and_an_abandoned_branch() {
    let ends: [(&str, fn(&mut World)); 4] = [
        ("agentUnavailable", World::dies),
        ("agentUnavailable", |world| world.does_not_send(false)),
        ("authRequired", |world| {
            world.refuses(json!({"code": -32000, "message": "sign in"}));
        }),
        ("shuttingDown", |world| world.stop()),
    ];
    for (error, end) in ends {
        let mut world = World::live();
        let head = world.view().head;
        world.edit(AT);
        if error == "shuttingDown" {
            end(&mut world);
            world.expect_among(&format!("answer 2 error {error}"));
            continue;
        }
        world.edit_is_made(Ok(edited("s2", "s1", 1)));
        world.forget_log();
        end(&mut world);
        world.expect_among(&format!("answer 2 error {error}"));
        assert_eq!(world.view().head, head, "{error}");
        let last = world.disk.lineage.last().unwrap();
        assert_eq!(
            (last.reason, last.upstream_id.as_str()),
            (LineageReason::Abandoned, "s2")
        );
        assert!(world.disk.upstream.contains(&"s2".into()), "its id leads here");
        // It goes on where it was.
        world.prompt("and on");
        world.reopens();
        world.expect_among("send and on");
    }
}

/// A process that ends has taken nothing; nor has one that does not know the session.
#[test]
fn a_branch_that_is_lost_before_its_prompt_is_made_again() {
    let ends: [fn(&mut World); 2] = [
        |world| world.does_not_send(true),
        World::does_not_know_the_session,
    ];
    for end in ends {
        let mut world = sent();
        world.forget_log();
        end(&mut world);
        world.edit_is_made(Ok(edited("s3", "s1", 1)));
        world.expect_among("send better");
        world.ends("end_turn");
        assert_eq!(world.view().head, Some("s3".into()));
    }
    // Though not for ever.
    let mut world = sent();
    for _ in 0..3 {
        world.does_not_send(true);
        if world.job.is_some() {
            world.edit_is_made(Ok(edited("s3", "s1", 1)));
        }
    }
    world.expect_among("answer 2 error agentUnavailable");
}

#[test]
fn what_was_cut_short_or_asked_in_the_turn_is_no_more() {
    let mut world = orphaned();
    assert_eq!(world.view().state, ConversationState::Interrupted);
    assert!(world.view().cut_short);
    edits(&mut world);
    assert!(world.view().cut_short, "the head is what it was");
    world.says_something();
    world.expect_among("event resolved q1 by edit");
    assert!(!world.view().cut_short);
    world.ends("end_turn");
    assert_eq!(world.view().state, ConversationState::Idle);
}

#[test]
fn a_resume_meanwhile_is_told_of_the_head_that_comes_of_it() {
    let mut world = sent();
    let reply = world.resume(Fidelity::Text);
    assert!(!world.answers.contains_key(&reply));
    world.says_something();
    world.expect_among(&format!("answer {reply} resumed s2 live"));

    let mut world = sent();
    let reply = world.resume(Fidelity::Text);
    world.dies();
    world.reopens();
    world.expect_among(&format!("answer {reply} resumed s1 resume"));
}

/// What was due while another session was the head is not sent late: the user continues the turn.
#[test]
fn a_continuation_whose_time_has_passed_does_not_come_back_with_its_turn() {
    for is_due in [false, true] {
        let mut world = waiting();
        edits(&mut world);
        world.says_something();
        world.ends("end_turn");
        assert_eq!((due_at(&world), world.view().limit), (None, None));
        if is_due {
            world.passes_to(RESET);
        }
        world.forget_log();
        world.undo();
        world.looks_back();
        world.expect_among("event limited");
        let shown = world.view();
        assert_eq!((shown.state, shown.cut_short), (ConversationState::Limited, true));
        assert_eq!(due_at(&world).as_deref(), (!is_due).then_some(RESET));
        // What it had left unfinished is restored once.
        assert!(world.model.record.unfinished_heads.is_empty());
    }
}

/// The newer decision of the user takes precedence.
#[test]
fn a_text_that_was_scheduled_since_is_sent_after_an_undo() {
    const LATER: &str = "2026-11-21T22:00:00Z";
    let mut world = waiting();
    edits(&mut world);
    world.says_something();
    world.ends("end_turn");
    world.continue_at(ContinueAt::Time(LATER.parse().unwrap()), Some("later"));
    world.undo();
    world.looks_back();
    assert_eq!(due_at(&world).as_deref(), Some(LATER));
    assert!(world.view().cut_short);
}

/// It would take back the same change, and both would be answered.
#[test]
fn a_second_undo_is_refused_until_the_first_is_on_disk() {
    let mut world = World::live();
    world.fork(true);
    world.branched(Ok(branch("s2")));
    world.hold_writes = true;
    let first = world.undo();
    world.looks_back();
    let second = world.undo();
    world.expect_last(&format!("answer {second} error busy"));
    world.release_writes();
    world.expect_among(&format!("answer {first} undone s1 0"));
}

#[test]
fn an_undo_that_cannot_be_written_changes_nothing() {
    let mut world = sent();
    world.ends("end_turn");
    let before = world.links();
    world.hold_writes = true;
    let reply = world.undo();
    world.looks_back();
    world.write_fails();
    world.expect_among(&format!("answer {reply} error storeFailed"));
    assert_eq!(world.links(), before);
    assert!(world.is_armed(Deadline::Rewrite));
}

/// An id that no chain takes is refused before anything has changed.
#[test]
fn an_undo_to_a_session_without_an_id_changes_nothing() {
    let mut world = sent();
    world.ends("end_turn");
    for head in ["", " "] {
        let before = world.view();
        world.forget_log();
        let reply = world.undo();
        world.looks_back_to(head);
        world.expect(&[&format!("answer {reply} error conflict")]);
        assert_eq!(world.view(), before, "{head:?}");
        assert_eq!(world.view().head, Some("s2".into()));
    }
    world.prompt("and on");
    world.expect_among("send and on");
}

/// What was to follow the edit is not said on the history that the edit would have left.
#[test]
fn a_prompt_that_waits_behind_an_edit_goes_with_it() {
    let mut world = World::live();
    let edit = world.edit(AT);
    let behind = world.queue("and then");
    world.edit_is_made(Err(agent_error()));
    let log = world.log();
    assert!(
        log.contains(&format!("answer {edit} error agentError")),
        "{log:#?}"
    );
    assert!(
        log.contains(&format!("answer {behind} error conflict")),
        "{log:#?}"
    );
    assert!(world.view().queue.is_empty());

    let mut world = sent();
    world.queue("and then");
    world.ends("end_turn");
    world.expect_among("send and then");
    assert_eq!(world.view().head, Some("s2".into()));
}

#[test]
fn over_a_kill_what_belongs_to_the_replaced_turn_is_left_too() {
    let mut world = orphaned();
    edits(&mut world);
    world.is_killed_when(PromptArrival::Present);
    assert_eq!(world.view().head, Some("s2".into()));
    assert!(world.view().interrupts.is_empty());
    assert!(world.view().cut_short, "the new one was cut short");
}

#[test]
fn over_a_kill_an_edit_keeps_the_text_that_somebody_wants_said_later() {
    let mut world = World::running();
    world.says_something();
    let later = "2026-11-20T23:59:00Z";
    world.ends("end_turn");
    world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("good morning"));
    world.prompt("second");
    world.says_something();
    world.is_ended_for_others();
    assert_eq!(due_at(&world).as_deref(), Some(later));
    edits(&mut world);
    world.is_killed_when(PromptArrival::Present);
    assert_eq!(world.view().head, Some("s2".into()));
    world.passes_to(later);
    world.falls_due();
    world.ascertains(PromptArrival::Present);
    world.reopens();
    assert!(
        world
            .log()
            .iter()
            .any(|line| line.starts_with("send ") && line.ends_with("good morning"))
    );
}

#[test]
fn a_cancelled_edit_leaves_the_head_unless_the_prompt_was_out() {
    let mut world = World::live();
    let head = world.view().head;
    let reply = world.edit(AT);
    world.cancel();
    world.expect_among(&format!("answer {reply} edited nothing t2 cancelled"));
    // What is made then is of no use.
    world.forget_log();
    world.edit_is_made(Ok(edited("s2", "s1", 1)));
    world.expect(&[]);
    assert_eq!(world.view().head, head);

    let mut world = sent();
    world.cancel();
    world.ends("cancelled");
    world.expect_among("answer 2 edited s2 t2 cancelled");
    assert_eq!(world.view().head, Some("s2".into()));
}

#[test]
fn an_edit_that_was_cancelled_and_hangs_is_given_up() {
    let mut world = World::live();
    world.edit(AT);
    world.cancel();
    world.prompt("and on");
    assert!(world.is_armed(Deadline::Climb));
    world.forget_log();
    world.elapses(Deadline::Climb);
    world.expect_among("send and on");
    world.ends("end_turn");
}
