//! How many turns a transcript holds, compared with those that were acknowledged.
//!
//! Owns when turns count as lost. Pure.

/// What the disk says of one transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnCounts {
    /// Turns of its live branch, up to the place where ours ends.
    pub turns: u64,
    /// The most turns that its live branch can stand for: what was sent as a prompt may stand as the agent's own
    /// command, and what a compaction has cut off may be anything.
    pub max_turns: u64,
    /// The same over all branches, for a file whose lines can all be read: the user may have gone back within the agent,
    /// and the turns from before that are still in the file. 0 if it is unknown.
    pub turns_on_all_branches: u64,
    /// Whether its last turn has no reply, or one that breaks off within a record.
    pub is_last_cut_off: bool,
    /// How many records are missing from its middle, each with some part of a turn.
    pub missing_records: u64,
    /// Turns that a copy would hold in which what stands behind such a place is joined to what stands before it; 0 where
    /// nothing is missing.
    pub repaired_turns: u64,
}

impl TurnCounts {
    /// Whether it is a history that a copy would keep.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.missing_records == 0 && self.turns > 0
    }

    /// The same for the file of a session that took over `carried` turns from another one. Turns outside its live branch
    /// may come from there, and then they do not replace any turn that was acknowledged since.
    #[must_use]
    pub fn with_carried(self, carried: u64) -> Self {
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

    /// Whether the user went back within the agent: not all acknowledged turns are on its live branch, but all are in its
    /// file. Such turns are not lost, but removed on purpose.
    #[must_use]
    pub fn has_user_gone_back(&self, acknowledged: u64) -> bool {
        self.missing_records == 0
            && self.max_turns < acknowledged
            && self.max_turns_on_all_branches() >= acknowledged
    }

    /// The most turns on all branches, if the user may have gone back among them. A user who goes back sends a prompt from there, so
    /// a live branch without turns is damage.
    fn max_turns_on_all_branches(&self) -> u64 {
        if self.turns > 0 {
            self.turns_on_all_branches
        } else {
            0
        }
    }

    /// How many of the turns that were acknowledged on it are lost, or not whole, as far as it shows. A record that is
    /// missing takes at least a part of a turn along.
    #[must_use]
    pub fn missing_turns(&self, acknowledged: u64) -> u64 {
        let at_most = self.max_turns.max(self.max_turns_on_all_branches());
        // Behind the acknowledged turns there may be one that was never finished: its agent died. What stands on other
        // branches says nothing of the last one.
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
