//! Counts what happened in the rounds; printed at the end.

use std::collections::BTreeMap;
use std::fmt;

use super::kinds::Fault;

/// The counts of one round or of all rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) faults: BTreeMap<Fault, usize>,
    pub(crate) rounds: usize,
    pub(crate) conversations: usize,
    pub(crate) prompts: usize,
    pub(crate) ended_well: usize,
    pub(crate) failed_turns: usize,
    pub(crate) refused: BTreeMap<i64, usize>,
    /// Turns that were cancelled because they may have waited for a lost line.
    pub(crate) given_up: usize,
    pub(crate) rolls: usize,
    pub(crate) effects: usize,
    /// Turns that had to be in a history, and were.
    pub(crate) kept: usize,
    /// Histories that reported a gap.
    pub(crate) gaps: usize,
    /// Chains of the maximum length.
    pub(crate) full_chains: usize,
    /// Usage limits that were reported.
    pub(crate) limits: usize,
    /// Scheduled continuations that were sent.
    pub(crate) fired: usize,
    /// Scheduled continuations that were cancelled before they were sent.
    pub(crate) called_off: usize,
    /// Scheduled continuations that were still pending after a restart of the daemon.
    pub(crate) carried_over: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_default() += count;
        }
        self.rounds += other.rounds;
        self.conversations += other.conversations;
        self.prompts += other.prompts;
        self.ended_well += other.ended_well;
        self.failed_turns += other.failed_turns;
        self.given_up += other.given_up;
        self.rolls += other.rolls;
        self.effects += other.effects;
        self.kept += other.kept;
        self.gaps += other.gaps;
        self.full_chains += other.full_chains;
        self.limits += other.limits;
        self.fired += other.fired;
        self.called_off += other.called_off;
        self.carried_over += other.carried_over;
    }

    pub(crate) fn all_faults(&self) -> usize {
        self.faults.values().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(fault, count)| format!("{fault:?} {count}"))
            .collect();
        write!(
            formatter,
            "{} conversations in {} rounds, {} faults ({}), {} limits met, {} continuations fired, {} called off, {} carried over a restart",
            self.conversations,
            self.rounds,
            self.all_faults(),
            faults.join(", "),
            self.limits,
            self.fired,
            self.called_off,
            self.carried_over,
        )
    }
}
