//! Counts how many of the acknowledged turns the transcripts of a session and of its branch contain.

use bridge_protocol::id::CheckpointId;
use bridge_protocol::link::Fidelity;

use crate::conversation::services::chain_text;
use crate::transcript::TranscriptError;
use crate::transcript::turn_counts::TurnCounts;

/// The state of a session's transcript on disk.
#[derive(Default)]
pub(super) struct TranscriptState {
    /// The checkpoint after its last turn.
    pub(super) last_checkpoint: Option<CheckpointId>,
    /// How many complete turns it holds.
    pub(super) turns: u64,
    /// How many of the acknowledged turns it lacks.
    pub(super) missing_turns: u64,
    /// How many prompts the branch's transcript holds, if it exists already.
    pub(super) prompts: Option<u64>,
    /// Why it cannot be read, although it exists; its missing turns are then unknown.
    pub(super) read_error: Option<TranscriptError>,
}

impl TranscriptState {
    pub(super) fn from_counts(file: Result<Option<TurnCounts>, TranscriptError>, acknowledged: u64) -> Self {
        let (file, failure) = match file {
            Ok(file) => (file, None),
            Err(error) => (None, Some(error)),
        };
        if let Some(error) = &failure {
            tracing::warn!(
                error = chain_text(error),
                "a transcript exists but cannot be read"
            );
        }
        Self {
            last_checkpoint: None,
            prompts: None,
            turns: file.as_ref().map_or(0, |file| {
                file.turns.saturating_sub(u64::from(file.is_last_cut_off))
            }),
            missing_turns: file.map_or(0, |file| file.missing_turns(acknowledged)),
            read_error: failure,
        }
    }

    /// The fidelity of a branch with this transcript.
    pub(super) fn fidelity(&self) -> Fidelity {
        if self.missing_turns == 0 && self.read_error.is_none() {
            Fidelity::Full
        } else {
            Fidelity::Partial
        }
    }
}

/// How many turns a branch must contain: those acknowledged on its source. If the user went back within the agent, it is the
/// turns up to the `place` of the fork: turns removed by going back are never part of a branch, and turns after the place
/// are not acknowledged yet.
pub(super) fn expected_turns(
    source: Option<&TurnCounts>,
    place: Option<&TurnCounts>,
    acknowledged: u64,
) -> u64 {
    let (Some(source), Some(place)) = (source, place) else {
        return acknowledged;
    };
    let running = source.turns.saturating_sub(place.turns);
    let place = TurnCounts {
        turns_on_all_branches: source.turns_on_all_branches.saturating_sub(running),
        ..place.clone()
    };
    match place.has_user_gone_back(acknowledged) {
        true => place.turns,
        false => acknowledged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_owes_what_was_acknowledged_and_was_not_gone_back_behind() {
        let file = |turns, turns_anywhere| TurnCounts {
            repaired_turns: 0,
            turns,
            max_turns: turns,
            turns_on_all_branches: turns_anywhere,
            is_last_cut_off: false,
            missing_records: 0,
        };
        // The source, the place (which is read without what stands on other branches), how many were acknowledged, how many
        // the branch has to hold.
        let table = [
            (file(4, 4), file(4, 0), 4, 4),
            (file(4, 11), file(4, 0), 10, 4),
            (file(4, 9), file(4, 0), 10, 10),
            // A turn runs that nobody has acknowledged yet: it makes good for none that is lost.
            (file(5, 5), file(4, 0), 4, 4),
            (file(4, 4), file(3, 0), 4, 4),
            (file(5, 12), file(4, 0), 10, 4),
            (file(5, 10), file(4, 0), 10, 10),
            // Damage.
            (file(4, 0), file(4, 0), 10, 10),
        ];
        for (source, place, acknowledged, owed) in table {
            assert_eq!(
                expected_turns(Some(&source), Some(&place), acknowledged),
                owed,
                "{source:?}, {place:?}, {acknowledged}"
            );
        }
        assert_eq!(expected_turns(None, None, 3), 3);
    }
}
