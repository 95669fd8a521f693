//! The rounds: several at a time, each with a seed of its own.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::time::Instant;

use super::figures::Figures;
use super::kinds::Fault;
use super::round::Round;
use crate::crash::random::Random;

/// How many rounds run at a time.
const LANES: usize = 8;

/// Rounds go on until so many conversations were in them, unless `FAULT_ROUNDS` says otherwise: about a minute on two cores.
const CONVERSATIONS: usize = 2_000;

/// And until so many faults were done.
const FAULTS: usize = 10_000;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

/// The rounds that are still to be played.
enum Left {
    These(Vec<u64>),
    /// As many as it takes.
    Enough,
    /// One has failed.
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

    /// The seed of the next round, after what was done so far.
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
    // The one thing in the standard library that is.
    Random::new(RandomState::new().build_hasher().finish()).next()
}

fn is_enough(done: &Figures) -> bool {
    done.conversations >= CONVERSATIONS && done.all_faults() >= FAULTS
}

/// Tells how a round that fails can be played again, and lets no other begin.
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
    let begun = Instant::now();
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
    eprintln!("{:?}: {all}", begun.elapsed());
    if !is_whole {
        return;
    }
    for fault in Fault::ALL {
        assert!(all.faults.contains_key(&fault), "nobody met {fault:?}");
    }
    for (what, count) in [
        ("was kept", all.kept),
        ("met a limit", all.limits),
        ("went on by itself", all.fired),
        ("was called off", all.called_off),
        ("was carried over a restart", all.carried_over),
    ] {
        assert!(count > 0, "nothing {what}");
    }
}
