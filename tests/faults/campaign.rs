//! The rounds: several at a time, each with a seed of its own.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::time::Instant;

use crate::random::Random;
use crate::round::{Figures, Round};

/// How many rounds run at a time.
const LANES: usize = 8;

/// Rounds unless `FAULT_ROUNDS` says otherwise: about a minute on two cores.
const ROUNDS: usize = 140;

/// So many faults are to be done in them at least.
const FAULTS: usize = 10_000;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

/// Tells how a round that fails can be played again, and lets no other begin.
struct Alarm<'a> {
    seed: u64,
    left: &'a Mutex<Vec<u64>>,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a round failed; play it again with FAULT_SEED={}", self.seed);
            self.left.lock().unwrap().clear();
        }
    }
}

/// The seeds of the rounds.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number_from("FAULT_SEED") {
        return vec![seed];
    }
    let rounds = number_from("FAULT_ROUNDS").map_or(ROUNDS, |rounds| usize::try_from(rounds).unwrap());
    // The one thing in the standard library that is different each time.
    let mut random = Random::new(RandomState::new().build_hasher().finish());
    (0..rounds).map(|_| random.next()).collect()
}

#[test]
fn nothing_acknowledged_is_lost_whatever_happens_between_daemon_and_agent() {
    let begun = Instant::now();
    let seeds = seeds();
    let rounds = seeds.len();
    let left = Mutex::new(seeds);
    let all = Mutex::new(Figures::default());
    let lane = || {
        loop {
            let Some(seed) = left.lock().unwrap().pop() else {
                return;
            };
            let alarm = Alarm { seed, left: &left };
            let figures = Round::new(seed).play();
            drop(alarm);
            all.lock().unwrap().add(&figures);
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES.min(rounds)).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            if let Err(failure) = lane.join() {
                std::panic::resume_unwind(failure);
            }
        }
    });
    let all = all.into_inner().unwrap();
    let faults: usize = all.faults.values().sum();
    assert!(
        rounds < ROUNDS || faults >= FAULTS,
        "only {faults} faults: {all:#?}"
    );
    assert!(rounds < ROUNDS || all.kept > 0, "nothing was tried: {all:#?}");
    eprintln!(
        "{faults} faults in {rounds} rounds, {:?}: {all:#?}",
        begun.elapsed()
    );
}
