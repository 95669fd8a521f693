//! Counts the turns of a conversation and how many of them each step would lose. Pure.

use bridge_protocol::link::{Fidelity, Relation, Via};

use super::{Climb, Inspection, MissingContent, PREAMBLE_TURNS, Step, StepResult, TurnCounts};

impl Climb {
    /// Whether a step keeps enough for the goal.
    pub(super) fn is_acceptable(&self, step: &Step) -> bool {
        self.fidelity_of(step, &MissingContent::default()) >= self.goal.min_fidelity
    }

    /// The fidelity of a session that this step opened and that lacks `missing`.
    pub(super) fn fidelity_of(&self, step: &Step, missing: &MissingContent) -> Fidelity {
        match step {
            Step::Text => Fidelity::Text,
            Step::Fresh if self.has_history() => Fidelity::None,
            Step::Open { .. } if missing.description.is_some() => Fidelity::Partial,
            _ if self.missing_after(step, missing) == 0 => Fidelity::Full,
            _ => Fidelity::Partial,
        }
    }

    /// How many turns are missing from a session that this step opened.
    pub(super) fn missing_after(&self, step: &Step, lack: &MissingContent) -> u64 {
        let total = self.total_turns();
        match step {
            Step::Copy {
                source,
                via: Via::OlderLink,
                ..
            }
            | Step::Open {
                upstream_id: source,
                via: Via::OlderLink,
                ..
            } => {
                let position = self
                    .goal
                    .ancestors
                    .iter()
                    .position(|ancestor| ancestor.upstream_id == *source);
                let on_disk = position
                    .and_then(|index| self.last_inspection()?.ancestors.get(index)?.as_ref())
                    .map_or(0, |file| file.turns);
                let after = position
                    .and_then(|index| self.goal.ancestors.get(index))
                    .map_or(0, |s| s.turns_after);
                // Take the larger of the two counts of later turns.
                (after + self.interrupted_turns()).max(total.saturating_sub(on_disk))
            }
            Step::Text => {
                let found = self.last_inspection();
                let (readable, after) =
                    found.map_or((0, 0), |found| (found.readable_turns, found.turns_after_readable));
                let in_preamble = readable.min(PREAMBLE_TURNS);
                // Take the larger of the two counts.
                (readable - in_preamble + after).max(total.saturating_sub(in_preamble))
            }
            Step::Fresh => total,
            // A missing record costs at least a part of a turn.
            Step::Copy {
                via: Via::Rebuilt, ..
            } => {
                let kept = self.head_file().map_or(0, |file| file.repaired_turns);
                self.turns_of_head()
                    .saturating_sub(kept)
                    .max(self.turns_after_backup)
                    .max(1)
            }
            Step::Open { .. } if self.head_is_short() => {
                let missing = self
                    .head_file()
                    .map_or(0, |file| file.missing_turns(self.turns_of_head()).max(1));
                missing.max(self.turns_after_backup)
            }
            Step::Copy { .. } => {
                let on_disk = self.head_file().map_or(0, |file| file.turns);
                total.saturating_sub(on_disk).max(self.turns_after_backup)
            }
            Step::Open { .. } => lack.turns.max(self.turns_after_backup),
            Step::Inspect | Step::GiveUp => 0,
        }
    }

    /// Turns of the whole history, as far as known.
    pub(super) fn total_turns(&self) -> u64 {
        let inspection = self.last_inspection();
        let readable = inspection.map_or(0, |inspection| inspection.readable_turns);
        let of_head = self.counted_turns_of_head();
        if inspection.is_some_and(|inspection| inspection.head.is_some()) && !self.head_is_short() {
            return readable.max(of_head);
        }
        // The head's carried turns, if they could be counted, are already included.
        let carried = self.goal.head.as_ref().map_or(0, |head| head.carried_turns);
        let nearest = inspection.and_then(|inspection| inspection.ancestors.first()?.as_ref());
        let inherited = if carried > 0 {
            0
        } else {
            nearest.map_or(0, |file| file.turns)
        };
        (inherited + of_head + self.interrupted_turns()).max(readable)
    }

    /// The turn on the head that was cut short, which is not among the acknowledged ones.
    fn interrupted_turns(&self) -> u64 {
        u64::from(self.goal.has_interrupted_turn)
    }

    /// Turns that the head's own transcript should hold.
    pub(super) fn turns_of_head(&self) -> u64 {
        let head = self.goal.head.as_ref();
        head.map_or(0, |head| head.carried_turns + head.turns)
    }

    /// The same without the turns that the user removed by going back within the agent: they are no longer in the history.
    pub(super) fn counted_turns_of_head(&self) -> u64 {
        let of_head = self.turns_of_head();
        let file = self.head_file();
        file.filter(|file| file.has_user_gone_back(of_head))
            .map_or(of_head, |file| file.turns)
    }

    /// Describes the damage of the head's transcript.
    pub(super) fn describe_loss(&self, inspection: &Inspection) -> String {
        let (turns, breaks) = inspection
            .head
            .as_ref()
            .map_or((0, 0), |file| (file.turns, file.missing_records));
        let damage = match breaks {
            0 => String::new(),
            1 => "is damaged (a record is missing from its middle) and ".to_owned(),
            _ => format!("is damaged ({breaks} records are missing from its middle) and "),
        };
        format!(
            "its transcript {damage}holds {turns} of {} turns",
            self.turns_of_head()
        )
    }

    /// Whether the head's transcript should contain turns.
    pub(super) fn is_content_expected(&self) -> bool {
        self.is_head_written() || self.turns_of_head() > 0
    }

    /// Whether the agent has opened the head, but its transcript holds less than was acknowledged.
    pub(super) fn head_is_short(&self) -> bool {
        self.tried_steps
            .iter()
            .any(|tried| matches!(tried.result, StepResult::Short(_)))
    }

    /// The last inspection of the disk.
    fn last_inspection(&self) -> Option<&Inspection> {
        self.tried_steps
            .iter()
            .rev()
            .find_map(|tried| match &tried.result {
                StepResult::Inspected(inspection) | StepResult::Short(inspection) => Some(inspection),
                StepResult::Failed(_) | StepResult::Damaged(_) => None,
            })
    }

    /// The counts of the head's transcript in the last inspection.
    fn head_file(&self) -> Option<&TurnCounts> {
        self.last_inspection()?.head.as_ref()
    }

    /// Whether the agent accepted a prompt on the head, unless the head [is empty](Self::is_head_empty).
    pub(super) fn is_head_written(&self) -> bool {
        self.goal.head.as_ref().is_some_and(|head| head.written) && !self.is_head_empty()
    }

    /// Whether no turn is known to have begun on the head, and neither its transcript nor a backup of it has any content.
    pub(super) fn is_head_empty(&self) -> bool {
        let head = self.goal.head.as_ref();
        // A head with an origin may have carried turns that could not be counted.
        let is_fresh = head.is_some_and(|head| head.relation == Relation::Fresh);
        let has_backup = self
            .last_inspection()
            .and_then(|inspection| inspection.has_backup);
        let turns = self.turns_of_head() + self.interrupted_turns();
        is_fresh && turns == 0 && has_backup == Some(false)
    }

    pub(super) fn has_history(&self) -> bool {
        let Some(head) = &self.goal.head else { return false };
        let on_disk = self.last_inspection().is_some_and(|inspection| {
            let of_head = inspection.head.as_ref();
            inspection.readable_turns > 0 || of_head.is_some_and(|file| file.turns > 0)
        });
        let continues = head.relation != Relation::Fresh && !self.goal.ancestors.is_empty();
        // A turn whose prompt is sent again need not be brought back, but is reported as missing.
        let is_expected = match self.goal.resent_turns {
            0 => self.is_content_expected(),
            resent => self.turns_of_head() + self.interrupted_turns() > resent,
        };
        on_disk || continues || is_expected
    }
}
