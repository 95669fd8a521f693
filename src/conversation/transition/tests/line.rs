//! The queue on disk: queued prompts survive the daemon, are held by the next one, and are sent when a client requests it.

use bridge_protocol::conversation::{ContinueAt, ConversationState, OnBusy};
use bridge_protocol::link::Fidelity;

use super::continuing::{anchor, limit};
use super::world::World;
use crate::conversation::effect::{Deadline, PromptArrival};

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

#[test]
fn in_one_life_a_failure_does_not_hold_what_somebody_waits_for() {
    let mut world = waiting();
    world.refuses(limit());
    assert_eq!(sent(&mut world), ["third"]);
}

#[test]
fn the_same_call_joins_its_prompt_before_that_has_begun_and_nothing_holds_it_then() {
    let mut world = running();
    world.queue("third");
    world.prompt_with("fourth", OnBusy::Queue, Fidelity::Text, Some("k"));
    world.is_killed();
    goes_on(&mut world);
    world.ascertains(PromptArrival::Absent);
    world.reopens();
    world.ends("end_turn");
    let again = world.prompt_with("fourth", OnBusy::Fail, Fidelity::Text, Some("k"));
    world.refuses(limit());
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["second", "third", "fourth"]);
    assert!(world.answers[&again].is_ok());
}

#[test]
fn a_continuation_that_is_called_off_holds_the_line() {
    let mut world = held();
    world.rests();
    goes_on(&mut world);
    world.do_not_continue();
    assert_eq!(line(&world), ["t3+", "t4+"]);
    world.reopens();
    assert!(sent(&mut world).is_empty());
    assert_eq!(world.view().state, ConversationState::Interrupted);
}

/// Who comes while the line goes on waits behind it.
#[test]
fn a_prompt_that_comes_meanwhile_waits_behind_the_line() {
    let mut world = running();
    world.queue("third");
    world.is_killed();
    goes_on(&mut world);
    world.ascertains(PromptArrival::Absent);
    world.reopens();
    world.queue("fifth");
    world.ends("end_turn");
    world.ends("end_turn");
    world.ends("end_turn");
    assert_eq!(sent(&mut world), ["second", "third", "fifth"]);
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
