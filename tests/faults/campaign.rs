//! The campaign: several rounds at a time, each with its own seed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;

use super::figures::Figures;
use super::kinds::Fault;
use super::round::Round;
use crate::random::Random;

/// How many rounds run at a time.
const LANES: usize = 8;

/// How many conversations the rounds must have had before the campaign ends, unless `FAULT_ROUNDS` sets a
/// number of rounds.
const CONVERSATIONS: usize = 300;

/// How many faults must have happened before the campaign ends.
const FAULTS: usize = 1_500;

/// After this many conversations the campaign ends in any case. If an expected fault or event has never
/// happened by then, the test fails.
const MOST_CONVERSATIONS: usize = 4_000;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

/// The rounds that are still to run.
enum Left {
    These(Vec<u64>),
    /// As many rounds as are needed.
    Enough,
    /// No more rounds, because one has failed.
    None,
}

impl Left {
    fn as_asked_for() -> Self {
        if let Some(seed) = number_from("FAULT_SEED") {
            return Self::These(vec![seed]);
        }
        match number_from("FAULT_ROUNDS") {
            Some(rounds) => Self::These((0..rounds).map(|_| fresh_seed()).collect()),
            None => Self::Enough,
        }
    }

    /// The seed of the next round; `done` contains what earlier rounds have done.
    fn next(&mut self, done: &Figures) -> Option<u64> {
        match self {
            Self::These(seeds) => seeds.pop(),
            Self::Enough => (!is_enough(done)).then(fresh_seed),
            Self::None => None,
        }
    }
}

/// A seed that is different each time.
fn fresh_seed() -> u64 {
    // The hasher of the standard library is its only source of randomness.
    Random::new(RandomState::new().build_hasher().finish()).next()
}

fn is_enough(done: &Figures) -> bool {
    let is_short_of_nothing =
        done.conversations >= CONVERSATIONS && done.all_faults() >= FAULTS && missing(done).is_empty();
    is_short_of_nothing || done.conversations >= MOST_CONVERSATIONS
}

/// The expected faults and events that have not happened in any round.
fn missing(done: &Figures) -> Vec<String> {
    let faults = Fault::ALL
        .into_iter()
        .filter(|fault| !done.faults.contains_key(fault));
    let events = [
        ("a conversation was kept", done.kept),
        ("a turn was cancelled after a loss", done.given_up),
        ("a conversation met a limit", done.limits),
        ("a scheduled continuation was sent", done.fired),
        ("a scheduled continuation was cancelled", done.called_off),
        ("a scheduled continuation survived a restart", done.carried_over),
    ];
    let events = events.into_iter().filter(|(_, count)| *count == 0);
    faults
        .map(|fault| format!("{fault:?}"))
        .chain(events.map(|(event, _)| event.to_owned()))
        .collect()
}

/// Prints how to replay a round that fails, and prevents further rounds.
struct Alarm<'a> {
    seed: u64,
    left: &'a Mutex<Left>,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a round failed; play it again with FAULT_SEED={}", self.seed);
            *self.left.lock().unwrap() = Left::None;
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_happens_between_daemon_and_agent() {
    let left = Mutex::new(Left::as_asked_for());
    let is_whole = matches!(*left.lock().unwrap(), Left::Enough);
    let all = Mutex::new(Figures::default());
    let lane = || {
        loop {
            let done = all.lock().unwrap().clone();
            let Some(seed) = left.lock().unwrap().next(&done) else {
                return;
            };
            let alarm = Alarm { seed, left: &left };
            let figures = Round::new(seed).play();
            drop(alarm);
            all.lock().unwrap().add(&figures);
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            if let Err(failure) = lane.join() {
                std::panic::resume_unwind(failure);
            }
        }
    });
    let all = all.into_inner().unwrap();
    eprintln!("{all:#?}");
    eprintln!("{all}");
    if is_whole {
        assert_eq!(
            missing(&all),
            [""; 0],
            "expected faults and events that never happened"
        );
    }
}
