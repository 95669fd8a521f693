//! The kinds of faults, and the choice of a fault for each line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// A file in the home. Once it exists, the proxy causes no more faults.
pub(crate) const CALM: &str = "calm";

/// A fault of a line, a pipe or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The line never arrives.
    Drop,
    /// The line and all later lines arrive some milliseconds later.
    Delay,
    /// The line arrives without its end, but with a line break.
    Truncate,
    /// The line arrives without its line break, so that the next line becomes part of it.
    Join,
    /// The line arrives twice.
    Duplicate,
    /// The line arrives after the next one.
    Reorder,
    /// The proxy reads nothing more from the daemon.
    CloseInput,
    /// The proxy sends nothing more to the daemon.
    CloseOutput,
    /// The agent behind the proxy is killed.
    KillAgent,
    /// The proxy is killed while the agent lives on.
    KillProxy,
    /// The daemon is killed, by the round itself.
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

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An update of a session.
    Update,
    /// A prompt on its way to the agent.
    Prompt,
    /// Anything else: other requests, and responses.
    Call,
}

impl Kind {
    /// The percentage of lines of this kind that meet a fault.
    fn percent(self) -> usize {
        match self {
            Self::Update => 50,
            Self::Prompt | Self::Call => 7,
        }
    }

    /// The possible faults of a line of this kind, with their relative frequencies.
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
            // No duplicates: the agent would run the prompt twice although the daemon had sent it once.
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

    /// Chooses a fault, or none, for the next line of this kind.
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

/// The log of the faults in a home, one per line.
pub(crate) fn log_of(home: &Path) -> PathBuf {
    home.join("faults.log")
}

/// Appends a fault to the log.
pub(crate) fn note(home: &Path, fault: Fault) {
    use std::io::Write;
    let mut log = fs::File::options()
        .create(true)
        .append(true)
        .open(log_of(home))
        .unwrap();
    log.write_all(format!("{fault:?}\n").as_bytes()).unwrap();
}

/// The socket on which a home's round learns that a request, response or prompt was lost.
pub(crate) fn losses_of(home: &Path) -> PathBuf {
    home.join("losses")
}

/// How many faults of each kind the log of a home contains.
pub(crate) fn noted(home: &Path) -> BTreeMap<Fault, usize> {
    let log = fs::read_to_string(log_of(home)).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == line);
        *counts
            .entry(fault.unwrap_or_else(|| panic!("not the name of a fault: {line}")))
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
