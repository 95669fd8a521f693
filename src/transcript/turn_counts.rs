//! The number of turns in a transcript, compared with the number of acknowledged turns.
//!
//! This module decides when turns count as lost. Pure.

/// The turn counts of one transcript on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnCounts {
    /// Turns on its live branch, up to the position where our conversation ends.
    pub turns: u64,
    /// The largest number of turns that its live branch may represent: a prompt may be recorded as the agent's
    /// own command, and the part before a compaction may contain any number.
    pub max_turns: u64,
    /// The same over all branches, if all lines of the file can be read: the user may have gone back within the agent,
    /// and the earlier turns are still in the file. 0 if unknown.
    pub turns_on_all_branches: u64,
    /// Whether its last turn has no reply, or a reply that ends within a record.
    pub is_last_cut_off: bool,
    /// How many records are missing from its middle. Each contained some part of a turn.
    pub missing_records: u64,
    /// Turns that a repaired copy would contain, in which the parts before and after each gap are joined. 0 if nothing
    /// is missing.
    pub repaired_turns: u64,
}

impl TurnCounts {
    /// Whether the history has turns and can be copied without a repair.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.missing_records == 0 && self.turns > 0
    }

    /// The counts for the file of a session that copied `carried` turns from another one. Turns outside its live branch
    /// may be copies, and copies do not replace turns that were acknowledged since.
    #[must_use]
    pub fn with_copied_turns(self, carried: u64) -> Self {
        let turns_anywhere = if carried == 0 {
            self.turns_on_all_branches
        } else {
            0
        };
        Self {
            turns_on_all_branches: turns_anywhere,
            ..self
        }
    }

    /// Whether the user went back within the agent: not all acknowledged turns are on the live branch, but all are in the
    /// file. Such turns are not lost, but removed on purpose.
    #[must_use]
    pub fn has_user_gone_back(&self, acknowledged: u64) -> bool {
        self.missing_records == 0
            && self.max_turns < acknowledged
            && self.max_turns_on_all_branches() >= acknowledged
    }

    /// The largest number of turns on all branches, or 0 if the user cannot have gone back. A user who goes back sends a prompt
    /// from there, so a live branch without turns is damage.
    fn max_turns_on_all_branches(&self) -> u64 {
        if self.turns > 0 {
            self.turns_on_all_branches
        } else {
            0
        }
    }

    /// How many turns of the transcript are lost or incomplete, at least. Missing acknowledged turns are counted exactly. Turns of
    /// other programs are not acknowledged, so each of their missing records counts as one turn.
    #[must_use]
    pub fn missing_turns(&self, acknowledged: u64) -> u64 {
        let at_most = self.max_turns.max(self.max_turns_on_all_branches());
        // After the acknowledged turns there may be one that was never finished because its agent died. Other branches
        // say nothing about the last turn.
        let last_is_lost = self.is_last_cut_off && self.max_turns <= acknowledged;
        if self.missing_records == 0 && at_most >= acknowledged {
            return u64::from(last_is_lost);
        }
        let whole = self.turns - u64::from(last_is_lost && self.turns > 0);
        acknowledged
            .saturating_sub(whole)
            .max(self.missing_records)
            .max(1)
    }
}
