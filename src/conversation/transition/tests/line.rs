//! The line on disk: what waits outlives the daemon, is held by the next, and goes out when somebody says so.

use bridge_protocol::conversation::{ContinueAt, ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;

use super::continuing::{anchor, due_at, limit};
use super::outside::agent_error;
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Arrival, Deadline};

/// What is shown of the line: each turn, with a `+` when it is held.
pub(super) fn line(world: &World) -> Vec<String> {
    let view = world.view();
    let shown = view.queue.iter();
    shown
        .map(|waiting| format!("{}{}", waiting.turn_id, if waiting.held { "+" } else { "" }))
        .collect()
}

/// The places in the line that are on disk.
pub(super) fn on_disk(world: &World) -> Vec<String> {
    let record = world.disk.record.as_ref().expect("nothing is on disk");
    let waiting = record.waiting.values();
    waiting.map(|waiting| waiting.turn_id.to_string()).collect()
}

/// What was sent since the log was forgotten last.
pub(super) fn sent(world: &mut World) -> Vec<String> {
    let log = world.log();
    let sent = log.iter().filter_map(|line| line.strip_prefix("send "));
    sent.map(str::to_owned).collect()
}

/// A conversation whose turn `second` runs on a transcript that can be asked.
pub(super) fn running() -> World {
    let mut world = World::live();
    world.anchor = anchor();
    world.prompt("second");
    world.says_something();
    world
}

/// A conversation with `third` and `fourth` in line behind `second`, which runs.
pub(super) fn waiting() -> World {
    let mut world = running();
    world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.queue("fourth");
    world.forget_log();
    world
}

/// The same in the next life of a daemon that was killed at rest of `second`: nothing but the line is unfinished.
pub(super) fn held() -> World {
    let mut world = waiting();
    world.is_killed();
    world.prompt("made up for it");
    world.reopens();
    world.says_something();
    world.ends("end_turn");
    world.forget_log();
    world
}

pub(super) fn goes_on(world: &mut World) {
    world.continue_at(ContinueAt::Time(world.now()), None);
    world.falls_due();
}

#[test]
fn a_place_in_the_line_is_shown_when_it_is_on_disk() {
    let mut world = World::running();
    world.hold_writes = true;
    let reply = world.queue("third");
    assert!(line(&world).is_empty());
    world.write_ends();
    assert_eq!(line(&world), ["t3"]);
    assert_eq!(on_disk(&world), ["t3"]);
    assert!(!world.answers.contains_key(&reply));
}

#[test]
fn a_place_that_could_not_be_written_is_told_and_not_taken() {
    let mut world = World::running();
    world.hold_writes = true;
    let reply = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.write_fails();
    world.expect_last(&format!("answer {reply} error storeFailed"));
    assert!(world.view().queue.is_empty());
    // If a key stayed open, the next call with it would wait for ever.
    assert!(world.model.open_requests.is_empty());
    world.elapses(Deadline::Rewrite);
    world.release_writes();
    assert!(on_disk(&world).is_empty());
    world.ends("end_turn");
    assert!(sent(&mut world).is_empty());
}

/// It began before its place was written, which then failed: its turn is written down all the same.
#[test]
fn what_began_before_its_place_was_written_goes_on() {
    let mut world = World::running();
    world.hold_writes = true;
    world.ends("end_turn");
    let reply = world.queue("third");
    world.write_ends();
    world.write_fails();
    world.release_writes();
    assert_eq!(sent(&mut world), ["third"]);
    world.ends("end_turn");
    assert!(world.answers[&reply].is_ok());
    assert!(on_disk(&world).is_empty());
}

/// At no moment is it neither in line nor a turn.
#[test]
fn a_place_is_left_with_the_turn_that_stands_for_it() {
    let mut world = waiting();
    world.hold_writes = true;
    world.ends("end_turn");
    world.write_ends();
    assert_eq!(line(&world), ["t4"], "it is the running turn now");
    assert_eq!(on_disk(&world), ["t3", "t4"]);
    world.write_ends();
    let record = world.disk.record.as_ref().unwrap();
    assert_eq!(record.turn.as_ref().unwrap().turn_id.as_str(), "t3");
    assert_eq!(on_disk(&world), ["t4"]);
}

/// Its session was not to be had: nobody has heard of it, so it is held as it was, and tried again later.
#[test]
fn what_did_not_get_to_an_agent_keeps_its_place() {
    let mut world = held();
    world.elapses(Deadline::Idle);
    world.closes();
    goes_on(&mut world);
    world.climb_fails(agent_error());
    assert_eq!(line(&world), ["t3+", "t4+"]);
    assert_eq!(on_disk(&world), ["t3", "t4"]);
    assert!(world.view().cut_short);
}

#[test]
fn in_one_life_a_failure_does_not_hold_what_somebody_waits_for() {
    let mut world = waiting();
    world.refuses(limit());
    assert_eq!(sent(&mut world), ["third"]);
}

#[test]
fn the_same_call_while_another_turn_runs_waits_in_line_or_is_busy() {
    let mut world = held();
    world.prompt("fifth");
    world.forget_log();
    let busy = world.prompt_with("third", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.expect(&[&format!("answer {busy} error busy")]);
    assert_eq!(line(&world), ["t3+", "t4+"]);
    let again = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    assert_eq!(line(&world), ["t4+", "t3"]);
    world.ends("end_turn");
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["third"]);
    assert!(world.answers[&again].is_ok());
}

/// Its own caller comes back, and that of the one before it does not.
#[test]
fn the_same_call_takes_those_before_it_along() {
    for other_runs in [false, true] {
        let mut world = running();
        world.queue("third");
        world.prompt_with("fourth", OnBusy::Queue, Fidelity::Text, Some("k"));
        world.is_killed();
        world.forget_log();
        if other_runs {
            world.prompt("made up for it");
            world.reopens();
        }
        let again = world.prompt_with("fourth", OnBusy::Queue, Fidelity::Text, Some("k"));
        if !other_runs {
            world.reopens();
        }
        for _ in 0..3 {
            world.ends("end_turn");
        }
        let mut sent = sent(&mut world);
        if other_runs {
            assert_eq!(sent.remove(0), "made up for it");
        }
        assert_eq!(sent, ["third", "fourth"], "{other_runs}");
        assert!(world.answers[&again].is_ok());
        assert!(line(&world).is_empty());
    }
}

/// It was asked for first, and its turn is not begun yet.
#[test]
fn the_same_call_goes_behind_the_interrupted_turn_that_is_to_be_continued() {
    let mut world = waiting();
    world.is_killed();
    world.forget_log();
    world.continue_at(ContinueAt::Now, None);
    let again = world.prompt_with("third", OnBusy::Queue, Fidelity::Text, Some("k"));
    let once_more = world.continue_at(ContinueAt::Now, None);
    assert!(
        world.answers[&once_more].is_ok(),
        "{:?}",
        world.answers[&once_more]
    );
    world.falls_due();
    world.ascertains(Arrival::Absent);
    let while_it_runs = world.continue_at(ContinueAt::Now, None);
    assert!(world.answers[&while_it_runs].is_ok());
    world.reopens();
    for _ in 0..3 {
        world.ends("end_turn");
    }
    assert_eq!(sent(&mut world), ["second", "third", "fourth"]);
    assert!(world.answers[&again].is_ok());
    assert_eq!(due_at(&world), None);
}

#[test]
fn the_same_call_joins_its_prompt_before_that_has_begun_and_nothing_holds_it_then() {
    let mut world = running();
    world.queue("third");
    world.prompt_with("fourth", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.is_killed();
    goes_on(&mut world);
    world.ascertains(Arrival::Absent);
    world.reopens();
    world.ends("end_turn");
    let again = world.prompt_with("fourth", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.refuses(limit());
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["second", "third", "fourth"]);
    assert!(world.answers[&again].is_ok());
}

#[test]
fn a_cancelled_line_is_not_gone_on_with() {
    let mut world = held();
    world.continue_at(ContinueAt::Time(world.now()), None);
    world.cancel_all();
    assert_eq!(world.view().continuation, None);
    world.falls_due();
    assert!(sent(&mut world).is_empty());
}

/// Who heard that it is cancelled must not find it again in the next life.
#[test]
fn a_cancel_is_answered_when_it_is_on_disk() {
    for keyed in [true, false] {
        let mut world = waiting();
        world.hold_writes = true;
        let turn = if keyed { "t3" } else { "t4" };
        let cancel = world.cancel_turn(turn);
        assert!(!world.answers.contains_key(&cancel));
        world.write_ends();
        assert_eq!(world.answers[&cancel], Ok(Answer::Cancelled(true)));
        assert!(!on_disk(&world).contains(&turn.to_owned()));
    }
}

#[test]
fn a_continuation_that_is_called_off_holds_the_line() {
    let mut world = held();
    world.elapses(Deadline::Idle);
    world.closes();
    goes_on(&mut world);
    world.do_not_continue();
    assert_eq!(line(&world), ["t3+", "t4+"]);
    world.reopens();
    assert!(sent(&mut world).is_empty());
    assert_eq!(world.view().state, ConversationState::Interrupted);
}

/// What is held takes room in the line, or that would have no limit over many lives.
#[test]
fn the_line_has_an_end_over_lives_too() {
    let mut world = held();
    world.prompt("fifth");
    world.forget_log();
    let refused = world.queue("sixth");
    world.expect(&[&format!("answer {refused} error busy")]);
}

/// Who comes while the line goes on waits behind it.
#[test]
fn a_prompt_that_comes_meanwhile_waits_behind_the_line() {
    let mut world = running();
    world.queue("third");
    world.is_killed();
    goes_on(&mut world);
    world.ascertains(Arrival::Absent);
    world.reopens();
    world.queue("fifth");
    world.ends("end_turn");
    world.ends("end_turn");
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["second", "third", "fifth"]);
}
