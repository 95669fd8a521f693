//! Release of the held prompts: the continuation that belongs to the first of them, and what happens to it.

use bridge_protocol::conversation::{ContinueAt, OnBusy};
use bridge_protocol::link::Fidelity;

use super::continuing::{self, due_at};
use super::line::{goes_on, held, line, on_disk, running, sent, waiting};
use super::outside::agent_error;
use super::world::World;
use crate::conversation::effect::{Deadline, PromptArrival};
use crate::conversation::error::ConversationError;

/// `third` and `fourth` are held, the session is closed, and it goes on with them: `third` waits for its session.
fn opening() -> World {
    let mut world = held();
    world.rests();
    goes_on(&mut world);
    world.forget_log();
    world
}

/// `third`, which was sent again, is answered while the question is open.
fn third_does_not_wait(world: &mut World, again: u32) {
    world.falls_due();
    world.forget_log();
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    assert_eq!(sent(world), ["third"]);
    assert!(world.answers[&again].is_ok());
    world.deny("q1");
    world.falls_due();
    assert_eq!(due_at(world), None, "third was answered after it");
}

/// The next life must not go on by itself with what somebody asked for and got.
#[test]
fn a_caller_who_joins_the_first_prompt_leaves_no_continuation_behind() {
    let mut world = opening();
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.reopens();
    assert_eq!(sent(&mut world), ["third"]);
    let on_disk = world.disk.record.as_ref().unwrap();
    assert_eq!(on_disk.continuation, None);

    // Nor where it finds no session, and it was the last.
    let mut world = held();
    world.cancel_turn("t4");
    world.rests();
    goes_on(&mut world);
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.climb_fails(agent_error());
    assert!(line(&world).is_empty());
    assert_eq!(due_at(&world), None);
}

#[test]
fn a_first_prompt_that_is_cancelled_leaves_no_continuation_behind() {
    let mut world = opening();
    world.cancel();
    assert_eq!(due_at(&world), None);
    world.reopens();
    assert_eq!(sent(&mut world), ["fourth"], "the others go on");
}

#[test]
fn a_prompt_behind_the_line_is_cancelled_without_harm_to_the_line() {
    let mut world = opening();
    world.queue("fifth");
    let fifth = line(&world).pop().unwrap();
    world.cancel_turn(&fifth);
    assert_eq!(line(&world), ["t4"]);
    world.climb_fails(ConversationError::AgentUnavailable("not now".to_owned()));
    assert!(due_at(&world).is_some(), "it is tried again");
    assert_eq!(line(&world), ["t3+", "t4+"]);
}

/// Its agent died while it was written down: that the line goes on is on disk again with its place.
#[test]
fn what_is_taken_back_is_gone_on_with_also_in_the_next_life() {
    let mut world = held();
    world.hold_writes = true;
    world.continue_at(ContinueAt::Time(world.now()), None);
    world.write_ends();
    world.falls_due();
    world.dies();
    world.release_writes();
    assert!(sent(&mut world).is_empty());
    assert_eq!(on_disk(&world), ["t3", "t4"]);
    world.is_killed();
    assert!(due_at(&world).is_some());
    world.falls_due();
    world.reopens();
    assert_eq!(sent(&mut world), ["third"]);
    assert_eq!(due_at(&world), None);
}

#[test]
fn what_is_called_off_while_it_is_taken_back_stays_called_off() {
    let mut world = held();
    world.hold_writes = true;
    world.continue_at(ContinueAt::Time(world.now()), None);
    world.write_ends();
    world.falls_due();
    world.do_not_continue();
    world.dies();
    world.release_writes();
    assert_eq!(due_at(&world), None);
}

/// Nobody waits for it, so that only the conversation can tell.
#[test]
fn why_a_later_prompt_of_the_line_did_not_go_out_is_told() {
    let mut world = held();
    goes_on(&mut world);
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["third", "fourth"]);
    world.does_not_know_the_session();
    world.climb_fails(agent_error());
    assert_eq!(line(&world), ["t4+"]);
    let view = world.view();
    let why = format!("a queued prompt could not be sent: {}", agent_error());
    assert_eq!(view.failure, Some(why));
}

/// Nothing is continued while the question is open, and a person may take days to answer it.
#[test]
fn a_prompt_that_is_sent_again_does_not_wait_for_the_answer_to_a_question() {
    let mut world = running();
    world.asks("q1");
    world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.is_ended_for_others();
    world.is_killed();
    assert!(due_at(&world).is_some() && !world.view().interrupts.is_empty());
    let again = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    third_does_not_wait(&mut world, again);
}

/// Its agent got it when the client repeated the call, so it is not the prompt that never arrived any more.
#[test]
fn a_repeated_prompt_that_is_cancelled_is_not_sent_again() {
    for is_limited in [false, true] {
        let mut world = World::live();
        world.prompt_with("second", OnBusy::Queue, Fidelity::Text, Some("k"));
        world.is_killed_when(PromptArrival::Absent);
        assert!(world.view().cut_short);
        let later = "2026-11-20T23:59:00Z";
        world.continue_at(ContinueAt::Time(later.parse().unwrap()), None);
        world.prompt_with("second", OnBusy::Queue, Fidelity::Text, Some("k"));
        world.reopens();
        world.says_something();
        world.cancel();
        match is_limited {
            true => world.refuses(continuing::limit()),
            false => world.ends("cancelled"),
        }
        assert!(!world.view().cut_short, "{is_limited}");
        assert_eq!(due_at(&world), None, "{is_limited}");
    }
}

/// The interrupted turn was about to be continued first, and then asked.
#[test]
fn a_prompt_that_waits_for_the_interrupted_turn_does_not_wait_for_the_question_of_that() {
    let mut world = running();
    world.is_killed();
    goes_on(&mut world);
    world.ascertains(PromptArrival::Present);
    world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.is_killed();
    world.falls_due();
    world.ascertains(PromptArrival::Present);
    world.reopens();
    let again = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.asks("q1");
    world.is_ended_for_others();
    third_does_not_wait(&mut world, again);
}

/// Its transcript is read while the daemon is told to stop: nothing goes out any more, and it stays to be gone on with.
#[test]
fn nothing_goes_out_at_a_stop_that_comes_before_what_the_transcript_says() {
    let mut world = waiting();
    world.is_killed();
    goes_on(&mut world);
    world.stop();
    world.ascertains(PromptArrival::Present);
    assert!(world.model.turn.is_none() && sent(&mut world).is_empty());
    world.is_killed();
    assert!(due_at(&world).is_some());
}

/// The climb of what was called off is given up when it does not end.
#[test]
fn what_is_called_off_does_not_climb_for_ever() {
    let mut world = continuing::waiting();
    world.rests();
    world.passes_to(continuing::RESET);
    world.falls_due();
    world.ascertains(PromptArrival::Present);
    assert!(world.job.is_some());
    world.do_not_continue();
    assert!(world.is_armed(Deadline::Climb));
}

/// What a text was put off behind is made up for by a prompt of somebody's: what is held goes out at its time all the same.
#[test]
fn what_is_held_goes_out_at_its_time_behind_what_came_up_before() {
    let mut world = held();
    let later = "2026-11-20T23:59:00Z";
    world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("good morning"));
    world.prompt("fifth");
    world.says_something();
    world.is_ended_for_others();
    assert_eq!(due_at(&world).as_deref(), Some(later));
    world.prompt("made up for it");
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    assert_eq!(due_at(&world).as_deref(), Some(later));
    world.passes_to(later);
    world.forget_log();
    world.falls_due();
    assert_eq!(sent(&mut world), ["third"]);
}

/// Its time has passed while the daemon did not run, or while others had the places: `restart_from_disk` must not drop what is due.
#[test]
fn what_is_due_keeps_its_text_when_it_is_asked_for_at_once() {
    let mut world = continuing::waiting();
    world.continue_at(ContinueAt::Reset, Some("run the long tests"));
    world.passes_to("2026-11-20T23:30:00Z");
    world.continue_at(ContinueAt::Time(world.now()), None);
    world.falls_due();
    world.forget_log();
    world.ascertains(PromptArrival::Present);
    assert_eq!(sent(&mut world), ["run the long tests"]);
}

/// What was due was waited with for a question, and is no more when that is answered: what comes up next has its own time.
#[test]
fn what_has_its_own_time_does_not_go_out_in_the_place_of_what_was_due() {
    let mut world = World::live();
    let later = "2026-11-20T23:59:00Z";
    world.continue_at(ContinueAt::Time(later.parse().unwrap()), Some("good morning"));
    world.prompt("second");
    world.asks("q1");
    world.is_ended_for_others();
    world.falls_due();
    world.forget_log();
    world.deny("q1");
    world.falls_due();
    assert!(sent(&mut world).is_empty() && world.job.is_none());
    assert_eq!(due_at(&world).as_deref(), Some(later));
}

/// It has just left the line, and waits for its session.
#[test]
fn a_stop_holds_also_the_next_of_the_line_that_nobody_waits_for() {
    for is_being_written in [false, true] {
        let mut world = running();
        world.queue("third");
        if is_being_written {
            world.hold_writes = true;
            world.ends("end_turn");
            world.write_ends();
        } else {
            world.says_something();
            world.dies();
            assert!(world.job.is_some(), "it waits for its session");
        }
        world.model.hold_for_disconnected(|_| true);
        world.stop();
        world.release_writes();
        world.is_killed();
        assert_eq!(line(&world), ["t3+"], "{is_being_written}");
    }
}

#[test]
fn who_leads_the_line_is_not_tried_for_ever() {
    let mut world = opening();
    world.climb_fails(ConversationError::AgentUnavailable("not now".to_owned()));
    let attempts = |world: &World| world.view().continuation.as_ref().unwrap().attempts;
    assert_eq!(attempts(&world), 1);
    world.passes_to(&due_at(&world).unwrap());
    world.falls_due();
    world.hold_writes = true;
    world.reopens();
    world.dies();
    world.release_writes();
    assert_eq!(attempts(&world), 1, "it is taken back");
    world.climb_fails(ConversationError::AgentUnavailable("not now".to_owned()));
    assert_eq!(attempts(&world), 2);
    assert_eq!(line(&world), ["t3+", "t4+"]);
}

/// The write fails: what was to be dropped is held as before, and nobody is told otherwise.
#[test]
fn a_reset_that_is_not_written_cancels_nothing() {
    let mut world = held();
    world.rests();
    world.hold_writes = true;
    world.reset();
    world.write_fails();
    assert_eq!(line(&world), ["t3+", "t4+"]);
    world.release_writes();
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.reopens();
    assert_eq!(sent(&mut world), ["third"]);
}

/// What was to go on was asked for by itself, and cancelled: no word goes out that it be gone on with.
#[test]
fn what_was_cancelled_in_another_way_leaves_no_continuation_behind() {
    let mut world = held();
    world.cancel_turn("t4");
    let later = "2026-11-20T23:59:00Z";
    world.continue_at(ContinueAt::Time(later.parse().unwrap()), None);
    world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.says_something();
    world.cancel();
    world.ends("cancelled");
    assert_eq!(due_at(&world), None);
    let again = world.continue_at(ContinueAt::Time(later.parse().unwrap()), None);
    assert!(world.answers[&again].is_err());
}
