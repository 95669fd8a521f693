//! The kinds of faults, and which of them a line meets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// The file in the home at whose sight no more faults are done.
pub(crate) const CALM: &str = "calm";

/// What is done to a line, a pipe or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The line never arrives.
    Drop,
    /// It arrives some milliseconds later, and all behind it.
    Delay,
    /// It ends too soon.
    Truncate,
    /// It lacks its end, so that the next one is part of it.
    Join,
    /// It arrives twice.
    Duplicate,
    /// It arrives behind the next one.
    Reorder,
    /// The proxy reads nothing more from the daemon.
    CloseInput,
    /// The proxy says nothing more to the daemon.
    CloseOutput,
    /// The agent behind the proxy is killed.
    KillAgent,
    /// The proxy is killed, the agent lives on.
    KillProxy,
    /// The daemon is killed, by the round.
    KillDaemon,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Drop,
        Self::Delay,
        Self::Truncate,
        Self::Join,
        Self::Duplicate,
        Self::Reorder,
        Self::CloseInput,
        Self::CloseOutput,
        Self::KillAgent,
        Self::KillProxy,
        Self::KillDaemon,
    ];
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An update of a session.
    Update,
    /// A prompt on its way to the agent.
    Prompt,
    /// Anything else: calls and answers.
    Call,
}

impl Kind {
    /// How many of a hundred such lines meet a fault.
    fn percent(self) -> usize {
        match self {
            Self::Update => 50,
            Self::Prompt | Self::Call => 7,
        }
    }

    /// What may happen to such a line, and how often beside the others.
    fn weights(self) -> &'static [(Fault, usize)] {
        match self {
            Self::Update => &[
                (Fault::Drop, 200),
                (Fault::Delay, 300),
                (Fault::Truncate, 150),
                (Fault::Join, 50),
                (Fault::Duplicate, 250),
                (Fault::Reorder, 250),
                (Fault::CloseInput, 3),
                (Fault::CloseOutput, 3),
                (Fault::KillAgent, 5),
                (Fault::KillProxy, 5),
            ],
            // No duplicate: an agent that gets a prompt twice runs it twice, and it was not the daemon that
            // sent it twice.
            Self::Prompt => &[
                (Fault::Drop, 15),
                (Fault::Delay, 30),
                (Fault::Truncate, 10),
                (Fault::Join, 5),
                (Fault::Reorder, 20),
                (Fault::CloseInput, 5),
                (Fault::CloseOutput, 5),
                (Fault::KillAgent, 10),
                (Fault::KillProxy, 10),
            ],
            Self::Call => &[
                (Fault::Drop, 15),
                (Fault::Delay, 35),
                (Fault::Truncate, 10),
                (Fault::Join, 5),
                (Fault::Duplicate, 40),
                (Fault::Reorder, 30),
                (Fault::CloseInput, 3),
                (Fault::CloseOutput, 3),
                (Fault::KillAgent, 5),
                (Fault::KillProxy, 5),
            ],
        }
    }

    /// What happens to the next line of this kind.
    pub(crate) fn draw(self, random: &mut Random) -> Option<Fault> {
        if !random.chance(self.percent()) {
            return None;
        }
        let weights = self.weights();
        let mut left = random.below(weights.iter().map(|(_, weight)| weight).sum());
        let drawn = weights.iter().find(|(_, weight)| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        drawn.map(|(fault, _)| *fault)
    }
}

/// Where the faults that were done in a home are written down, a line each.
pub(crate) fn log_of(home: &Path) -> PathBuf {
    home.join("faults.log")
}

/// Writes down that a fault is done.
pub(crate) fn note(home: &Path, fault: Fault) {
    use std::io::Write;
    let mut log = fs::File::options()
        .create(true)
        .append(true)
        .open(log_of(home))
        .unwrap();
    log.write_all(format!("{fault:?}\n").as_bytes()).unwrap();
}

/// Where the round of a home learns that a call, an answer or a prompt was lost.
pub(crate) fn losses_of(home: &Path) -> PathBuf {
    home.join("losses")
}

/// How many faults of each kind were done in a home.
pub(crate) fn noted(home: &Path) -> BTreeMap<Fault, usize> {
    let log = fs::read_to_string(log_of(home)).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == line);
        *counts
            .entry(fault.unwrap_or_else(|| panic!("no fault: {line}")))
            .or_default() += 1;
    }
    counts
}

#[test]
fn each_kind_of_line_meets_each_of_its_faults() {
    let mut random = Random::new(1);
    for kind in [Kind::Update, Kind::Prompt, Kind::Call] {
        let mut met: Vec<Fault> = (0..100_000).filter_map(|_| kind.draw(&mut random)).collect();
        met.sort();
        met.dedup();
        let mut expected: Vec<Fault> = kind.weights().iter().map(|(fault, _)| *fault).collect();
        expected.sort();
        assert_eq!(met, expected, "{kind:?}");
    }
}
