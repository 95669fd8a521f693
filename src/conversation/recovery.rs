//! The ladder: plans the next step to bring a session back. Pure: the state of the disk and the answers of the agent
//! come in as facts, and steps go out as values.
//!
//! A [`Climb`] holds only the goal and the steps tried so far; the next step follows from these two. First the head is
//! resumed. If that fails, it is resumed once more in a new process, and then loaded, unless the agent does not know the id.
//! If a client waits for the agent's replay, it is loaded first, and resumed last.
//! If the agent does not open it, the disk is inspected, and the steps follow in the order of what they keep:
//!
//! 1. the head's transcript is moved back to where the agent looks, or restored from our backup;
//! 2. the head's whole transcript is copied;
//! 3. a repaired copy, an ancestor or a text, whichever keeps more turns first;
//! 4. a fresh session, only if the caller allows fidelity `none` or there is nothing to lose: the session was never written
//!    and the agent does not know it either. The agent is asked first, since a crash can happen between the agent's write
//!    and the daemon's. A session in which no turn is known to have begun and without content on disk, which a full disk
//!    can leave, is treated as one that was never written, but the roll is reported. A turn that was cut short is history
//!    too, unless the caller sends its prompt again: then it is reported as missing.

mod facts;
#[cfg(test)]
mod tests;
mod turn_loss;

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Attempt, Fidelity, Link, Resumed, RollCause, Via};

pub use facts::{Goal, Inspection, Source, Step, StepFailure};

use crate::transcript::turn_counts::TurnCounts;

/// The most turns in a text preamble; see `transcript::preamble`.
pub const PREAMBLE_TURNS: u64 = 20;

/// One climb of the ladder.
#[derive(Debug)]
pub struct Climb {
    goal: Goal,
    tried_steps: Vec<TriedStep>,
    /// How many turns are later than the backup that was restored.
    turns_after_backup: u64,
}

/// A step that was taken, and its result.
#[derive(Debug)]
struct TriedStep {
    step: Step,
    result: StepResult,
}

#[derive(Debug)]
enum StepResult {
    /// It failed.
    Failed(StepFailure),
    /// It inspected the disk.
    Inspected(Inspection),
    /// It opened the head, but the transcript on disk holds fewer turns than were acknowledged.
    Short(Inspection),
    /// It opened a session that lacks too much. Describes what is missing.
    Damaged(String),
}

/// What is missing from an opened session, as far as its own transcript shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingContent {
    /// The number of missing turns, as far as known.
    pub turns: u64,
    /// What is missing, in words; `None` if the transcript is complete.
    pub description: Option<String>,
}

impl Climb {
    /// Starts a climb.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            tried_steps: Vec::new(),
            turns_after_backup: 0,
        }
    }

    /// The goal.
    #[must_use]
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// The next step.
    #[must_use]
    pub fn next_step(&self) -> Step {
        if let Some(step) = self.step_to_repeat() {
            return step.clone();
        }
        match &self.goal.head {
            None if self.tried_steps.is_empty() => Step::Fresh,
            None => Step::GiveUp,
            Some(head) => self
                .opening_step(head)
                .unwrap_or_else(|| self.step_after_opening(head)),
        }
    }

    /// Whether a step opens its session with `session/load`: the agent cannot resume, or a load was tried before.
    #[must_use]
    pub fn loads(&self, via: Via) -> bool {
        let is_load = |via| via == Via::Load;
        let was_tried = || self.tried_steps.iter().any(|tried| is_load(tried.step.via()));
        via != Via::Resume && (!self.goal.can_resume || is_load(via) || was_tried())
    }

    /// Whether a step needs a new process.
    #[must_use]
    pub fn needs_fresh_process(&self, step: &Step) -> bool {
        step.via() == Via::FreshProcess || self.step_to_repeat() == Some(step)
    }

    /// Records that a step failed.
    pub fn failed(&mut self, step: Step, failure: StepFailure) {
        self.record_result(step, StepResult::Failed(failure));
    }

    /// Records the result of [`Step::Inspect`].
    pub fn inspected(&mut self, inspection: Inspection) {
        self.record_result(Step::Inspect, StepResult::Inspected(inspection));
    }

    /// Records that a step opened the head, but its transcript holds too few turns. Returns whether to keep the session anyway;
    /// if not, close it and take the next step.
    ///
    /// A later step that keeps more is better only after damage. Without damage, the user may have rewound on purpose
    /// within the agent.
    pub fn accept_short(&mut self, step: &Step, inspection: Inspection) -> bool {
        self.record_result(step.clone(), StepResult::Short(inspection));
        self.next_step() == *step
    }

    /// Returns whether to keep a session although something is missing from it; if not, records that, and the caller closes the
    /// session. If it was the head, no other step follows, because it is unknown what that would keep.
    pub fn accept_damaged(&mut self, step: &Step, missing: &MissingContent) -> bool {
        let is_enough = self.fidelity_of(step, missing) >= self.goal.min_fidelity;
        if let Some(what) = missing.description.clone().filter(|_| !is_enough) {
            self.record_result(step.clone(), StepResult::Damaged(what));
            return false;
        }
        true
    }

    /// Records how many turns are later than the restored backup: every session that continues from it lacks them.
    pub fn set_turns_after_backup(&mut self, turns: u64) {
        self.turns_after_backup = turns;
    }

    /// Reports how this step, which succeeded, brought the session back.
    #[must_use]
    pub fn resume_report(&self, step: &Step, upstream_id: UpstreamId, missing: &MissingContent) -> Resumed {
        let via = self.via_of(step);
        let success = Attempt {
            upstream_id: Some(upstream_id.clone()),
            via,
            error: None,
        };
        Resumed {
            upstream_id,
            via,
            fidelity: self.fidelity_of(step, missing),
            missing_turns: self.missing_after(step, missing),
            attempts: self.attempts_before(Some(step)).chain([success]).collect(),
        }
    }

    /// The attempts so far.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        self.attempts_before(None).collect()
    }

    /// Why the conversation leaves its head, if it does.
    #[must_use]
    pub fn cause(&self) -> RollCause {
        match self.goal.limited {
            true => RollCause::Limit,
            false => self.cause_of_attempts().unwrap_or(RollCause::Other),
        }
    }

    /// Whether the agent has said that it does not have the head.
    #[must_use]
    pub fn is_head_forgotten(&self) -> bool {
        self.cause_of_attempts() == Some(RollCause::Forgotten)
    }

    /// Whether the conversation has no history, so that a new session loses nothing.
    #[must_use]
    pub fn has_nothing_to_lose(&self) -> bool {
        self.goal.head.is_none() || !self.has_history()
    }

    /// Whether the disk can show that the session opened by this step has lost turns.
    #[must_use]
    pub fn can_be_short(&self, step: &Step) -> bool {
        Self::keeps_head(step)
            && self.goal.can_read_transcripts
            && !self.head_is_short()
            && self.is_content_expected()
    }

    /// Whether the head's transcript, opened by this step, holds fewer turns than were acknowledged. An agent resumes such a
    /// session without an error: it ignores records whose parent is damaged. A backup may also lack the interrupted turn.
    #[must_use]
    pub fn falls_short(&self, step: &Step, file: &TurnCounts) -> bool {
        let of_head = self.turns_of_head();
        let is_restored = self.via_of(step) == Via::Archive;
        file.missing_turns(of_head) > 0
            || is_restored && self.goal.has_interrupted_turn && file.max_turns <= of_head
    }

    /// Whether the step opens a session whose history is that of the head.
    #[must_use]
    pub fn keeps_head(step: &Step) -> bool {
        matches!(step, Step::Open { via, .. } if *via != Via::OlderLink)
    }

    fn record_result(&mut self, step: Step, met: StepResult) {
        self.tried_steps.push(TriedStep { step, result: met });
    }

    /// The last step, if the process ended during it for the first time. Another conversation may have ended the process, so
    /// the step is repeated in a new one before a worse way is tried.
    fn step_to_repeat(&self) -> Option<&Step> {
        let Some(TriedStep {
            step,
            result: StepResult::Failed(StepFailure::Process(_)),
        }) = self.tried_steps.last()
        else {
            return None;
        };
        let is_below = match step {
            Step::Open { via, .. } => matches!(via, Via::Located | Via::Archive),
            Step::Copy { .. } | Step::Text => true,
            Step::Inspect | Step::Fresh | Step::GiveUp => false,
        };
        let times = self
            .tried_steps
            .iter()
            .filter(|tried| tried.step == *step)
            .count();
        (is_below && times == 1).then_some(step)
    }

    /// The first steps: opening the head as it is, in the process at hand, in a new one, and with the agent's other method.
    fn opening_step(&self, head: &Link) -> Option<Step> {
        if self.is_head_refused(head) || !self.can_reopen() {
            return None;
        }
        // If the id itself is refused, a new process or the other method would be refused too.
        let is_passed = |tried: &TriedStep| match &tried.result {
            StepResult::Failed(failure) => !matches!(failure, StepFailure::SessionUnknown(_)),
            _ => false,
        };
        if !self.tried_steps.iter().all(is_passed) {
            return None;
        }
        let methods = match (self.goal.can_resume, self.goal.can_load) {
            (true, true) if self.goal.prefers_load => [Some(Via::Load), Some(Via::Resume)],
            (true, can_load) => [Some(Via::Resume), can_load.then_some(Via::Load)],
            (false, _) => [Some(Via::Load), None],
        };
        let via = match self.tried_steps.len() {
            0 => methods[0]?,
            1 => Via::FreshProcess,
            2 => methods[1]?,
            _ => return None,
        };
        Some(Step::open(head, via))
    }

    /// The next step if the head could not be opened as it is, or must not be kept.
    fn step_after_opening(&self, head: &Link) -> Step {
        let decides = |tried: &TriedStep| match tried.result {
            StepResult::Inspected(_) | StepResult::Short(_) => true,
            StepResult::Damaged(_) => Self::keeps_head(&tried.step),
            StepResult::Failed(_) => false,
        };
        let Some(last) = self.tried_steps.iter().rposition(decides) else {
            return Step::Inspect;
        };
        let (before, since) = (&self.tried_steps[..last], &self.tried_steps[last + 1..]);
        let steps = match &self.tried_steps[last].result {
            // The restore may have put the transcript in place, so that it can be copied now.
            StepResult::Inspected(_) if has_restored_backup(since) => return Step::Inspect,
            // The transcript is complete but in the wrong place, and the user can remove the obstacle: accept no less.
            StepResult::Inspected(_) if since.iter().any(TriedStep::is_misplaced) => return Step::GiveUp,
            StepResult::Inspected(found) => self.steps_on_disk(head, found, !has_restored_backup(before)),
            StepResult::Short(found) => self.steps_that_keep_more(&self.tried_steps[last].step, found),
            StepResult::Damaged(_) | StepResult::Failed(_) => Vec::new(),
        };
        // A session that was never written is no loss. Otherwise, start fresh only on request.
        let fresh = Some(Step::Fresh).filter(|fresh| self.is_acceptable(fresh));
        let is_new = |step: &Step| since.iter().all(|tried| tried.step != *step);
        let mut steps = steps.into_iter().chain(fresh);
        steps.find(is_new).unwrap_or(Step::GiveUp)
    }

    /// The steps that are possible with what is on disk, best first.
    fn steps_on_disk(&self, head: &Link, inspection: &Inspection, may_restore: bool) -> Vec<Step> {
        if self.is_head_unreadable(inspection) {
            // It may be complete, and an older state would lose turns without need.
            return match self.goal.min_fidelity {
                Fidelity::None => best_first(self.copy_and_text_steps(inspection)),
                _ => Vec::new(),
            };
        }
        let holds_turns = inspection.head.as_ref().is_some_and(|file| file.turns > 0);
        let is_whole = inspection.head.as_ref().is_some_and(TurnCounts::is_usable);
        let mut steps = Vec::new();
        if inspection.is_misplaced && self.may_try(Via::Located) {
            steps.push(Step::open(head, Via::Located));
        } else if inspection.has_backup == Some(true)
            && !holds_turns
            && may_restore
            && self.may_try(Via::Archive)
        {
            steps.push(Step::open(head, Via::Archive));
        }
        let copy = Step::copy(head, Via::Copied);
        if is_whole && self.may_try(Via::Copied) && self.is_acceptable(&copy) {
            steps.push(copy);
        }
        steps.append(&mut best_first(self.copy_and_text_steps(inspection)));
        steps
    }

    /// The steps that keep more than the head opened by this step, and the step itself, best first.
    fn steps_that_keep_more(&self, step: &Step, inspection: &Inspection) -> Vec<Step> {
        let is_damaged = inspection.head.as_ref().is_some_and(|file| !file.is_usable());
        let mut steps = match is_damaged {
            true => self.copy_and_text_steps(inspection),
            false => Vec::new(),
        };
        if self.is_acceptable(step) {
            let kept = inspection.head.as_ref().map_or(0, |file| file.turns);
            steps.push((kept, 0, step.clone()));
        }
        best_first(steps)
    }

    /// The steps for the repaired copy, the ancestors and the text that keep enough for the goal. Each has the number of turns
    /// that it keeps, and its rank among steps that keep the same number.
    fn copy_and_text_steps(&self, inspection: &Inspection) -> Vec<(u64, u8, Step)> {
        let mut steps: Vec<(u64, u8, Step)> = Vec::new();
        let sources = self.goal.ancestors.iter().enumerate();
        for (index, source) in sources.filter(|_| self.may_try(Via::OlderLink)) {
            let file = inspection.ancestors.get(index).and_then(Option::as_ref);
            let kept = file.filter(|file| file.is_usable()).map_or(0, |file| file.turns);
            if kept > 0 {
                let step = Step::Copy {
                    source: source.upstream_id.clone(),
                    until: source.until.clone(),
                    via: Via::OlderLink,
                };
                steps.push((kept, 0, step));
            } else if !self.goal.can_read_transcripts && !source.shared && source.until.is_whole() {
                // Its length is unknown, but opening it is better than losing everything.
                let step = Step::Open {
                    upstream_id: source.upstream_id.clone(),
                    via: Via::OlderLink,
                };
                steps.push((0, 1, step));
            }
        }
        steps.extend(self.rebuilt_copy_step(inspection));
        if inspection.readable_turns > 0 {
            steps.push((inspection.readable_turns.min(PREAMBLE_TURNS), 2, Step::Text));
        }
        steps.retain(|(_, _, step)| self.is_acceptable(step));
        steps
    }

    /// The step for a repaired copy of the head, if the copy would hold more turns than the agent reads from the head, or the
    /// agent does not open the head.
    fn rebuilt_copy_step(&self, inspection: &Inspection) -> Option<(u64, u8, Step)> {
        let (head, file) = (self.goal.head.as_ref()?, inspection.head.as_ref()?);
        let read = if self.head_is_short() { file.turns } else { 0 };
        let is_useful = self.may_try(Via::Rebuilt) && file.repaired_turns > read;
        // The head also contains the text that it was sent about older sessions.
        let lost = self.turns_of_head().saturating_sub(file.repaired_turns);
        let kept = self.total_turns().saturating_sub(lost).max(file.repaired_turns);
        is_useful.then_some((kept, 0, Step::copy(head, Via::Rebuilt)))
    }

    /// Whether the agent can open sessions by id, and has not yet refused a session brought back this way.
    fn may_try(&self, way: Via) -> bool {
        self.can_reopen() && !self.goal.refused.iter().any(|(_, via, _)| *via == way)
    }

    fn can_reopen(&self) -> bool {
        self.goal.can_resume || self.goal.can_load
    }

    /// Whether the agent refused to open the head before this climb. A refusal on the open session does not count: a process
    /// that lost an open session may open it again, as Claude's adapter does after the session's own process ended.
    fn is_head_refused(&self, head: &Link) -> bool {
        let of_head = |(id, via, _): &(UpstreamId, Via, String)| *id == head.upstream_id && *via != Via::Live;
        self.goal.refused.iter().any(of_head)
    }

    /// Whether the head's transcript cannot be read although it should hold turns.
    fn is_head_unreadable(&self, inspection: &Inspection) -> bool {
        inspection.unreadable_reason.is_some() && self.is_content_expected()
    }

    fn cause_of_attempts(&self) -> Option<RollCause> {
        let head = self.goal.head.as_ref()?;
        let mut cause = self.is_head_refused(head).then_some(RollCause::Forgotten);
        let mut is_opening = cause.is_none();
        for tried in &self.tried_steps {
            match &tried.result {
                // This overrides the cause of earlier attempts.
                StepResult::Failed(StepFailure::SessionUnknown(_)) if is_opening => {
                    cause = Some(RollCause::Forgotten);
                }
                StepResult::Failed(StepFailure::Process(_)) if is_opening => {
                    cause.get_or_insert(RollCause::AgentDied);
                }
                StepResult::Failed(_) if is_opening => {
                    cause.get_or_insert(RollCause::Other);
                }
                StepResult::Failed(_) => {}
                StepResult::Inspected(inspection) => {
                    is_opening = false;
                    cause = self.cause_on_disk(inspection).or(cause);
                }
                StepResult::Short(_) | StepResult::Damaged(_) => {
                    is_opening = false;
                    cause = Some(RollCause::Damaged);
                }
            }
        }
        cause
    }

    fn cause_on_disk(&self, inspection: &Inspection) -> Option<RollCause> {
        match &inspection.head {
            _ if self.is_head_unreadable(inspection) || self.is_head_empty() => None,
            None => (self.goal.can_read_transcripts && self.is_head_written()).then_some(RollCause::Lost),
            Some(file) => (!file.is_usable()).then_some(RollCause::Damaged),
        }
    }

    /// The attempts before the step `now`.
    fn attempts_before<'a>(&'a self, now: Option<&'a Step>) -> impl Iterator<Item = Attempt> + 'a {
        let refused = self.goal.refused.iter().map(|(id, via, error)| Attempt {
            upstream_id: Some(id.clone()),
            via: *via,
            error: Some(error.clone()),
        });
        let next = self.tried_steps.iter().skip(1).map(|tried| Some(&tried.step));
        let tried = self.tried_steps.iter().zip(next.chain([now]));
        refused.chain(tried.filter_map(|(tried, next)| self.attempt(tried, next)))
    }

    /// Makes the report of a tried step. `next` is the step that followed it.
    fn attempt(&self, tried: &TriedStep, next: Option<&Step>) -> Option<Attempt> {
        let TriedStep { step, result: met } = tried;
        let head = || self.goal.head.as_ref().map(|head| head.upstream_id.clone());
        let (upstream_id, via, error) = match met {
            // Not `via_of`: the next step depends on how it was really tried.
            StepResult::Failed(failure) => (step.target(), step.via(), failure.text().to_owned()),
            StepResult::Inspected(found) if self.is_head_unreadable(found) => {
                (head(), Via::Copied, found.unreadable_reason.clone()?)
            }
            StepResult::Inspected(_) => return None,
            // The session was kept.
            StepResult::Short(_) if next == Some(step) => return None,
            StepResult::Short(found) => (step.target(), self.via_of(step), self.describe_loss(found)),
            StepResult::Damaged(lost) => {
                let error = format!("its transcript is not whole: {lost}");
                (step.target(), self.via_of(step), error)
            }
        };
        Some(Attempt {
            upstream_id,
            via,
            error: Some(error),
        })
    }

    /// The `via` that is reported for a step: `Archive` if a step that keeps the head opens a restored backup.
    fn via_of(&self, step: &Step) -> Via {
        match self.goal.was_restored && Self::keeps_head(step) {
            true => Via::Archive,
            false => step.via(),
        }
    }
}

impl TriedStep {
    fn is_misplaced(&self) -> bool {
        matches!(self.result, StepResult::Failed(StepFailure::Misplaced(_)))
    }
}

/// Whether one of these steps restored our backup.
fn has_restored_backup(tried: &[TriedStep]) -> bool {
    tried.iter().any(|tried| tried.step.via() == Via::Archive)
}

/// Sorts steps by the turns that they keep, most first. Stable: among equals the nearest ancestor comes first, and a resumed
/// state comes before text.
fn best_first(mut steps: Vec<(u64, u8, Step)>) -> Vec<Step> {
    steps.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
    steps.into_iter().map(|(_, _, step)| step).collect()
}
