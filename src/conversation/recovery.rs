//! The ladder: decides which way to bring a session back is tried next. Pure: the state of the disk and the answers of
//! the agent come in as facts, and steps go out as values.
//!
//! Each rung is tried once, in the order of how much it loses. A [`Climb`] starts a fresh session only if the caller
//! allows fidelity `none` or there is nothing to lose: the session was never written and the agent does not know it
//! either. The agent is asked first, since a crash can happen between the agent's write and the daemon's.

mod facts;
mod reckoning;
#[cfg(test)]
mod tests;

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Attempt, Fidelity, Resumed, RollCause, Via};

pub use facts::{Goal, Head, Inspection, Source, Step, StepFailure};

use crate::transcript::on_disk::OnDisk;

/// The most turns in a text preamble; see `transcript::preamble`.
pub const PREAMBLE_TURNS: u64 = 20;

/// One climb of the ladder.
#[derive(Debug)]
pub struct Climb {
    goal: Goal,
    attempts: Vec<Attempt>,
    inspection: Option<Inspection>,
    current: Option<Step>,
    stage: Stage,
    /// What is left after the copy of the head: ancestors and text, best first.
    rest: Vec<Step>,
    cause: Option<RollCause>,
    fresh_tried: bool,
    /// A step to be taken once more: its process was at fault, and may have been ended by what others did in it.
    again: Option<Step>,
    /// Whether the current step is taken once more.
    is_again: bool,
    /// Our kept copy was put back, or could not be.
    restored_tried: bool,
    /// The agent has opened the head, but its transcript holds less than was acknowledged.
    head_is_short: bool,
    /// The session that the agent has opened lacks records; how many turns that costs is unknown.
    is_damaged: bool,
    /// How many turns the session that the agent has opened now is known to lack.
    lacking: u64,
    /// How many turns are later than the kept copy that was restored.
    kept_lacks: u64,
    /// The head was restored before this climb, and what it lacks was not reported.
    was_restored: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    Opening,
    Inspecting,
    Locating,
    Restoring,
    CopyingHead,
    Rest,
    Done,
}

impl Climb {
    /// Starts a climb.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        let attempts = goal
            .refused
            .iter()
            .map(|(id, via, error)| Attempt {
                upstream_id: Some(id.clone()),
                via: *via,
                error: Some(error.clone()),
            })
            .collect();
        Self {
            goal,
            attempts,
            inspection: None,
            current: None,
            stage: Stage::Start,
            rest: Vec::new(),
            cause: None,
            fresh_tried: false,
            again: None,
            is_again: false,
            restored_tried: false,
            head_is_short: false,
            is_damaged: false,
            lacking: 0,
            kept_lacks: 0,
            was_restored: false,
        }
    }

    /// What was asked.
    #[must_use]
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// The attempts so far.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Why the conversation leaves its head, when it does.
    #[must_use]
    pub fn cause(&self) -> RollCause {
        if self.goal.limited {
            RollCause::Limit
        } else {
            self.cause.unwrap_or(RollCause::Other)
        }
    }

    /// Whether the agent has said that it does not have the head.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.cause == Some(RollCause::Forgotten)
    }

    /// The next step.
    pub fn next_step(&mut self) -> Step {
        let again = self.again.take();
        self.is_again = again.is_some();
        let step = again.unwrap_or_else(|| self.choose());
        self.current = Some(step.clone());
        step
    }

    /// Whether a step needs a process that did nothing yet.
    #[must_use]
    pub fn needs_fresh_process(&self, step: &Step) -> bool {
        let is_asked_for = matches!(
            step,
            Step::Open {
                fresh_process: true,
                ..
            }
        );
        is_asked_for || self.is_again
    }

    /// Records that the last step failed.
    pub fn failed(&mut self, failure: &StepFailure) {
        let Some(step) = self.current.take() else { return };
        self.attempts.push(Attempt {
            upstream_id: step.target(),
            // How it was tried, also of a head that was restored before: what is tried next depends on it.
            via: step.via(),
            error: Some(failure.text().to_owned()),
        });
        match (&step, self.stage, failure) {
            // Less is not taken because a process has ended that others use too.
            (Step::Copy { .. } | Step::Text, _, StepFailure::Process(_))
            | (Step::Open { .. }, Stage::Locating | Stage::Restoring, StepFailure::Process(_))
                if !self.is_again =>
            {
                self.again = Some(step);
            }
            // The id itself is refused: a new process would refuse it too.
            // Whatever came before: that it does not have it is what decides.
            (Step::Open { .. }, Stage::Opening, StepFailure::SessionUnknown(_)) => {
                self.cause = Some(RollCause::Forgotten);
                self.stage = Stage::Inspecting;
            }
            (Step::Open { .. }, Stage::Opening, StepFailure::Process(_) | StepFailure::Other(_)) => {
                let died = matches!(failure, StepFailure::Process(_));
                self.cause.get_or_insert(if died {
                    RollCause::AgentDied
                } else {
                    RollCause::Other
                });
                if self.fresh_tried {
                    self.stage = Stage::Inspecting;
                }
            }
            // All of it is there, and not where it is looked for: what hinders that can be mended, and nothing less is taken.
            (Step::Open { .. }, Stage::Locating, StepFailure::Misplaced(_)) => {
                self.rest = vec![Step::GiveUp];
                self.stage = Stage::Rest;
            }
            (Step::Open { .. }, Stage::Locating, _) => self.stage = self.stage_below_locating(),
            // By now it may be there, for a copy of it under another id.
            (Step::Open { .. }, Stage::Restoring, _) => self.stage = Stage::Inspecting,
            (Step::Copy { via: Via::Copied, .. }, Stage::CopyingHead, _) => {
                self.stage = Stage::Rest;
            }
            // What the disk says cannot fail; a caller that says so found nothing.
            (Step::Inspect, _, _) => self.inspected(Inspection::default()),
            _ => {}
        }
    }

    /// Records what the disk says, after [`Step::Inspect`].
    pub fn inspected(&mut self, inspection: Inspection) {
        self.current = None;
        let head_file = inspection.head.clone();
        let expected = self.head_written() || self.turns_of_head() > 0;
        if let Some(why) = inspection.unread.as_ref().filter(|_| expected) {
            // Nobody knows what it holds: to leave it for an older state might be to leave all of it for nothing.
            self.attempts.push(Attempt {
                upstream_id: self.goal.head.as_ref().map(|head| head.upstream_id.clone()),
                via: Via::Copied,
                error: Some(why.clone()),
            });
            self.inspection = Some(inspection);
            if self.goal.min_fidelity == Fidelity::None {
                self.rest = self.plan_rest();
            }
            self.stage = Stage::Rest;
            return;
        }
        if head_file.is_none() && self.goal.readable && self.head_written() {
            self.cause = Some(RollCause::Lost);
        } else if head_file.as_ref().is_some_and(|file| !file.usable()) {
            self.cause = Some(RollCause::Damaged);
        }
        let holds_turns = head_file.as_ref().is_some_and(|file| file.turns > 0);
        let (is_astray, is_kept) = (inspection.is_astray, inspection.is_kept && !holds_turns);
        self.inspection = Some(inspection);
        self.rest = self.plan_rest();
        let brought_back = |(_, via, _): &(UpstreamId, Via, String)| *via == Via::Located;
        self.stage = if is_astray && self.can_reopen() && !self.goal.refused.iter().any(brought_back) {
            Stage::Locating
        } else if is_kept && self.may_restore() {
            self.restored_tried = true;
            Stage::Restoring
        } else {
            self.stage_below_locating()
        };
    }

    fn stage_below_locating(&self) -> Stage {
        let head_file = self.inspection.as_ref().and_then(|found| found.head.as_ref());
        let is_whole = head_file.is_some_and(OnDisk::usable);
        if is_whole && self.may_copy_head() {
            Stage::CopyingHead
        } else {
            Stage::Rest
        }
    }

    /// Whether our kept copy is worth a try: it was not tried yet, and the agent can open it.
    fn may_restore(&self) -> bool {
        let refused_one = self.goal.refused.iter().any(|(_, via, _)| *via == Via::Archive);
        self.can_reopen() && !refused_one && !self.restored_tried && self.head_written()
    }

    /// Whether the disk can show that a session which the agent opens has lost turns.
    #[must_use]
    pub fn can_be_short(&self, step: &Step) -> bool {
        let expected = self.head_written() || self.turns_of_head() > 0;
        Self::keeps_head(step) && self.goal.readable && !self.head_is_short && expected
    }

    /// Whether the head's transcript holds less than was acknowledged. An agent resumes such a session without a word:
    /// records whose parent is damaged are simply not there for it.
    #[must_use]
    pub fn falls_short(&self, file: &OnDisk) -> bool {
        file.missing_turns(self.turns_of_head()) > 0
    }

    /// Records that the last step opened the head, and that its transcript falls short. Tells whether to keep the
    /// session all the same; otherwise it is to be closed, and another way comes next.
    ///
    /// Only damage is a reason to leave it for a way that keeps more: fewer turns without damage may be what somebody
    /// wanted, who went back within the agent.
    pub fn opened_short(&mut self, inspection: Inspection) -> bool {
        let Some(step) = self.current.clone() else {
            return true;
        };
        let damaged = inspection.head.as_ref().is_some_and(|file| !file.usable());
        let kept = inspection.head.as_ref().map_or(0, |file| file.turns);
        self.inspection = Some(inspection);
        self.head_is_short = true;
        let mut ways = if damaged { self.ways() } else { Vec::new() };
        if self.is_enough(&step) {
            ways.push((kept, 0, step.clone()));
        }
        self.rest = in_order(ways);
        if self.rest.first() == Some(&step) {
            return true;
        }
        self.cause = Some(RollCause::Damaged);
        self.attempts.push(Attempt {
            upstream_id: step.target(),
            via: self.via_of(&step),
            error: Some(self.loss()),
        });
        self.current = None;
        self.stage = Stage::Rest;
        false
    }

    /// Records that the last step opened a session of which the transcript lacks something, without anything to compare it
    /// with. Tells whether to keep the session all the same; otherwise it is to be closed. Nothing is known then of what
    /// other ways would keep, so that for the head there is none.
    pub fn opened_damaged(&mut self, lost: &str) -> bool {
        let Some(step) = self.current.clone() else {
            return true;
        };
        self.is_damaged = true;
        if self.is_enough(&step) {
            return true;
        }
        self.is_damaged = false;
        self.lacking = 0;
        self.cause = Some(RollCause::Damaged);
        self.attempts.push(Attempt {
            upstream_id: step.target(),
            via: self.via_of(&step),
            error: Some(format!("its transcript is not whole: {lost}")),
        });
        self.current = None;
        if Self::keeps_head(&step) {
            self.rest.clear();
        }
        self.stage = Stage::Rest;
        false
    }

    /// Whether nothing was ever said, so that a new session is all that is wanted.
    #[must_use]
    pub fn has_nothing_to_lose(&self) -> bool {
        self.goal.head.is_none() || !self.has_history()
    }

    /// Notes that the head was restored before this climb, and that what it lacks was not reported: however the agent opens it, it
    /// comes from our copy.
    pub fn note_restored_before(&mut self) {
        self.was_restored = true;
    }

    /// How a step brings a session back, as it is reported.
    fn via_of(&self, step: &Step) -> Via {
        match self.was_restored && Self::keeps_head(step) {
            true => Via::Archive,
            false => step.via(),
        }
    }

    /// Records how many turns are later than the restored backup: every session that continues from it lacks them.
    pub fn note_kept_lacks(&mut self, turns: u64) {
        self.kept_lacks = turns;
    }

    /// Notes how many turns the session lacks that the last step opened, before [`Climb::opened_damaged`].
    pub fn note_lacking(&mut self, turns: u64) {
        self.lacking = turns;
    }

    /// Records that the last step worked, and returns how the session was brought back.
    #[must_use]
    pub fn succeeded(mut self, upstream_id: UpstreamId) -> Resumed {
        let step = self.current.take().unwrap_or(Step::Fresh);
        let via = self.via_of(&step);
        self.attempts.push(Attempt {
            upstream_id: Some(upstream_id.clone()),
            via,
            error: None,
        });
        let missing_turns = self.missing_after(&step);
        let fidelity = self.fidelity_of(&step);
        Resumed {
            upstream_id,
            via,
            fidelity,
            missing_turns,
            attempts: self.attempts,
        }
    }

    /// Whether the step opens a session whose history is that of the head.
    #[must_use]
    pub fn keeps_head(step: &Step) -> bool {
        matches!(step, Step::Open { via, .. } if *via != Via::OlderLink)
    }

    fn choose(&mut self) -> Step {
        if self.stage == Stage::Start {
            self.stage = Stage::Opening;
            match &self.goal.head {
                None => {
                    self.stage = Stage::Done;
                    return Step::Fresh;
                }
                // A process that forgot what it had open may well open it again: Claude's adapter does so when the
                // session's own process ended.
                Some(head)
                    if self
                        .goal
                        .refused
                        .iter()
                        .any(|(id, via, _)| *id == head.upstream_id && *via != Via::Live) =>
                {
                    self.cause = Some(RollCause::Forgotten);
                    self.stage = Stage::Inspecting;
                }
                Some(_) if !self.goal.can_resume && !self.goal.can_load => {
                    self.stage = Stage::Inspecting;
                }
                Some(_) => {}
            }
        }
        match self.stage {
            Stage::Start | Stage::Done => Step::GiveUp,
            Stage::Opening => self.opening_step(),
            Stage::Inspecting => Step::Inspect,
            Stage::Locating => self.open_head(Via::Located),
            Stage::Restoring => self.open_head(Via::Archive),
            Stage::CopyingHead => match &self.goal.head {
                Some(head) => Step::Copy {
                    source: head.upstream_id.clone(),
                    until: None,
                    via: Via::Copied,
                },
                None => Step::GiveUp,
            },
            Stage::Rest => self.rest_step(),
        }
    }

    fn open_head(&self, via: Via) -> Step {
        match &self.goal.head {
            Some(head) => Step::Open {
                upstream_id: head.upstream_id.clone(),
                via,
                fresh_process: false,
            },
            None => Step::GiveUp,
        }
    }

    fn opening_step(&mut self) -> Step {
        let Some(head) = &self.goal.head else {
            return Step::GiveUp;
        };
        let failed_before = self.attempts.iter().any(|attempt| {
            attempt.upstream_id.as_ref() == Some(&head.upstream_id)
                && matches!(attempt.via, Via::Resume | Via::Load)
        });
        let via = if failed_before {
            self.fresh_tried = true;
            Via::FreshProcess
        } else if self.goal.can_resume {
            Via::Resume
        } else {
            Via::Load
        };
        Step::Open {
            upstream_id: head.upstream_id.clone(),
            via,
            fresh_process: failed_before,
        }
    }

    fn rest_step(&mut self) -> Step {
        if self.rest.is_empty() {
            self.stage = Stage::Done;
            // Never written is not a loss; anything else starts fresh only when that was asked for.
            if self.goal.min_fidelity == Fidelity::None || !self.has_history() {
                return Step::Fresh;
            }
            return Step::GiveUp;
        }
        self.rest.remove(0)
    }

    /// Whether an exact copy of the head's transcript is worth a try: the agent can open it, it has not refused one
    /// already, and it keeps as much as was asked for.
    fn may_copy_head(&self) -> bool {
        let Some(head) = &self.goal.head else { return false };
        let refused_one = self.goal.refused.iter().any(|(_, via, _)| *via == Via::Copied);
        let copy = Step::Copy {
            source: head.upstream_id.clone(),
            until: None,
            via: Via::Copied,
        };
        self.can_reopen() && !refused_one && self.is_enough(&copy)
    }

    fn can_reopen(&self) -> bool {
        self.goal.can_resume || self.goal.can_load
    }

    /// Whether a step keeps as much as was asked for.
    fn is_enough(&self, step: &Step) -> bool {
        self.fidelity_of(step) >= self.goal.min_fidelity
    }

    fn fidelity_of(&self, step: &Step) -> Fidelity {
        match step {
            Step::Text => Fidelity::Text,
            Step::Fresh if self.has_history() => Fidelity::None,
            Step::Open { .. } if self.is_damaged => Fidelity::Partial,
            _ if self.missing_after(step) == 0 => Fidelity::Full,
            _ => Fidelity::Partial,
        }
    }

    /// The ancestors and the text, whichever keeps more first.
    fn plan_rest(&self) -> Vec<Step> {
        in_order(self.ways())
    }

    /// The ancestors and the text, as far as they keep as much as was asked for: how many turns each keeps, and its
    /// place among equals.
    fn ways(&self) -> Vec<(u64, u8, Step)> {
        let nothing = Inspection::default();
        let inspection = self.inspection.as_ref().unwrap_or(&nothing);
        let refused_one = self.goal.refused.iter().any(|(_, via, _)| *via == Via::OlderLink);
        let mut ways: Vec<(u64, u8, Step)> = Vec::new();
        let sources = self.goal.ancestors.iter().enumerate();
        for (index, source) in sources.filter(|_| self.can_reopen() && !refused_one) {
            let file = inspection.ancestors.get(index).and_then(Option::as_ref);
            let kept = file.filter(|file| file.usable()).map_or(0, |file| file.turns);
            if kept > 0 {
                let step = Step::Copy {
                    source: source.upstream_id.clone(),
                    until: source.until.clone(),
                    via: Via::OlderLink,
                };
                ways.push((kept, 0, step));
            } else if !self.goal.readable && !source.shared && source.until.is_none() {
                // Nothing is known of its length; it is the agent's own word against nothing at all.
                let step = Step::Open {
                    upstream_id: source.upstream_id.clone(),
                    via: Via::OlderLink,
                    fresh_process: false,
                };
                ways.push((0, 1, step));
            }
        }
        ways.extend(self.rebuilding(inspection));
        if inspection.readable_turns > 0 {
            ways.push((inspection.readable_turns.min(PREAMBLE_TURNS), 2, Step::Text));
        }
        ways.retain(|(_, _, step)| self.is_enough(step));
        ways
    }

    /// A repaired copy of the head, where it is damaged and the copy would hold more than the agent reads of it, or the agent
    /// does not open it.
    fn rebuilding(&self, inspection: &Inspection) -> Option<(u64, u8, Step)> {
        let (head, file) = (self.goal.head.as_ref()?, inspection.head.as_ref()?);
        let refused_one = self.goal.refused.iter().any(|(_, via, _)| *via == Via::Rebuilt);
        let read = if self.head_is_short { file.turns } else { 0 };
        let step = Step::Copy {
            source: head.upstream_id.clone(),
            until: None,
            via: Via::Rebuilt,
        };
        let is_way = self.can_reopen() && !refused_one && file.repaired_turns > read;
        // What the head was told of older sessions stands in it too.
        let lost = self.turns_of_head().saturating_sub(file.repaired_turns);
        let kept = self.total_turns().saturating_sub(lost).max(file.repaired_turns);
        is_way.then_some((kept, 0, step))
    }
}

/// What keeps most first. Stable: among equals the nearest ancestor comes first, and a resumed state before a retelling.
fn in_order(mut ways: Vec<(u64, u8, Step)>) -> Vec<Step> {
    ways.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
    ways.into_iter().map(|(_, _, step)| step).collect()
}
