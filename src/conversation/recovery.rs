//! The ladder: decides which way to bring a session back is tried next. Pure: the state of the disk and the answers of
//! the agent come in as facts, and steps go out as values.
//!
//! A [`Climb`] is what is asked and what was tried so far, and nothing else: the next step follows from these two. First the
//! head is opened, once more in a new process if its process was at fault. If the agent does not open it, the disk is looked
//! at, and then comes what keeps most:
//!
//! 1. the head's transcript is moved back to where the agent looks, or restored from our backup;
//! 2. the head's whole transcript is copied;
//! 3. a repaired copy, an ancestor or a text, whichever keeps more turns first;
//! 4. a fresh session, only if the caller allows fidelity `none` or there is nothing to lose: the session was never written
//!    and the agent does not know it either. The agent is asked first, since a crash can happen between the agent's write
//!    and the daemon's.

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
    tried: Vec<Tried>,
    /// How many turns are later than the backup that was restored.
    kept_lacks: u64,
}

/// A step that was taken, and what it met.
#[derive(Debug)]
struct Tried {
    step: Step,
    met: Met,
}

#[derive(Debug)]
enum Met {
    /// It failed.
    Failed(StepFailure),
    /// What the disk says.
    Inspected(Inspection),
    /// It opened the head, but the transcript holds fewer turns than were acknowledged. What the disk says of it.
    Short(Inspection),
    /// It opened a session that lacks too much. What is missing, in words.
    Damaged(String),
}

/// What is missing from an opened session, as far as its own transcript shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// The number of missing turns, as far as known.
    pub turns: u64,
    /// What is missing, in words; `None` if the transcript is complete.
    pub what: Option<String>,
}

impl Climb {
    /// Starts a climb.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            tried: Vec::new(),
            kept_lacks: 0,
        }
    }

    /// What was asked.
    #[must_use]
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// The next step.
    #[must_use]
    pub fn next_step(&self) -> Step {
        if let Some(step) = self.to_repeat() {
            return step.clone();
        }
        match &self.goal.head {
            None if self.tried.is_empty() => Step::Fresh,
            None => Step::GiveUp,
            Some(head) => self.opening(head).unwrap_or_else(|| self.below(head)),
        }
    }

    /// Whether a step needs a process that did nothing yet.
    #[must_use]
    pub fn needs_fresh_process(&self, step: &Step) -> bool {
        step.via() == Via::FreshProcess || self.to_repeat() == Some(step)
    }

    /// Records that a step failed.
    pub fn failed(&mut self, step: Step, failure: StepFailure) {
        self.meets(step, Met::Failed(failure));
    }

    /// Records what the disk says, after [`Step::Inspect`].
    pub fn inspected(&mut self, inspection: Inspection) {
        self.meets(Step::Inspect, Met::Inspected(inspection));
    }

    /// Records that a step opened the head, but its transcript holds too few turns. Returns whether to keep the session anyway;
    /// if not, close it and take the next step.
    ///
    /// Only damage is a reason to prefer a way that keeps more: without damage, the user may have gone back on purpose within
    /// the agent.
    pub fn opened_short(&mut self, step: &Step, inspection: Inspection) -> bool {
        self.meets(step.clone(), Met::Short(inspection));
        self.next_step() == *step
    }

    /// Returns whether to keep a session although something is missing from it; if not, records that, and the caller closes the
    /// session. If it was the head, no other way follows: nothing is known of what it would keep.
    pub fn opened_damaged(&mut self, step: &Step, lack: &Lack) -> bool {
        let is_enough = self.fidelity_of(step, lack) >= self.goal.min_fidelity;
        if let Some(what) = lack.what.clone().filter(|_| !is_enough) {
            self.meets(step.clone(), Met::Damaged(what));
            return false;
        }
        true
    }

    /// Records how many turns are later than the restored backup: every session that continues from it lacks them.
    pub fn note_kept_lacks(&mut self, turns: u64) {
        self.kept_lacks = turns;
    }

    /// How the session was brought back by this step, which worked.
    #[must_use]
    pub fn succeeded(&self, step: &Step, upstream_id: UpstreamId, lack: &Lack) -> Resumed {
        let via = self.via_of(step);
        let worked = Attempt {
            upstream_id: Some(upstream_id.clone()),
            via,
            error: None,
        };
        Resumed {
            upstream_id,
            via,
            fidelity: self.fidelity_of(step, lack),
            missing_turns: self.missing_after(step, lack),
            attempts: self.attempts_before(Some(step)).chain([worked]).collect(),
        }
    }

    /// The attempts so far.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        self.attempts_before(None).collect()
    }

    /// Why the conversation leaves its head, when it does.
    #[must_use]
    pub fn cause(&self) -> RollCause {
        match self.goal.limited {
            true => RollCause::Limit,
            false => self.cause_so_far().unwrap_or(RollCause::Other),
        }
    }

    /// Whether the agent has said that it does not have the head.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.cause_so_far() == Some(RollCause::Forgotten)
    }

    /// Whether nothing was ever said, so that a new session is all that is wanted.
    #[must_use]
    pub fn has_nothing_to_lose(&self) -> bool {
        self.goal.head.is_none() || !self.has_history()
    }

    /// Whether the disk can show that a session which the agent opens has lost turns.
    #[must_use]
    pub fn can_be_short(&self, step: &Step) -> bool {
        Self::keeps_head(step) && self.goal.readable && !self.head_is_short() && self.is_expected()
    }

    /// Whether the head's transcript holds less than was acknowledged. An agent resumes such a session without a word:
    /// records whose parent is damaged are simply not there for it.
    #[must_use]
    pub fn falls_short(&self, file: &OnDisk) -> bool {
        file.missing_turns(self.turns_of_head()) > 0
    }

    /// Whether the step opens a session whose history is that of the head.
    #[must_use]
    pub fn keeps_head(step: &Step) -> bool {
        matches!(step, Step::Open { via, .. } if *via != Via::OlderLink)
    }

    fn meets(&mut self, step: Step, met: Met) {
        self.tried.push(Tried { step, met });
    }

    /// The last step, if the process ended during it for the first time. Another conversation may have ended the process, so
    /// the step is repeated in a new one before a worse way is tried.
    fn to_repeat(&self) -> Option<&Step> {
        let Some(Tried {
            step,
            met: Met::Failed(StepFailure::Process(_)),
        }) = self.tried.last()
        else {
            return None;
        };
        let is_below = match step {
            Step::Open { via, .. } => matches!(via, Via::Located | Via::Archive),
            Step::Copy { .. } | Step::Text => true,
            Step::Inspect | Step::Fresh | Step::GiveUp => false,
        };
        let times = self.tried.iter().filter(|tried| tried.step == *step).count();
        (is_below && times == 1).then_some(step)
    }

    /// The first two steps: opening the head as it is, in the process at hand and in a new one.
    fn opening(&self, head: &Head) -> Option<Step> {
        if self.is_refused(head) || !self.can_reopen() {
            return None;
        }
        let via = match self.tried.as_slice() {
            [] if self.goal.can_resume => Via::Resume,
            [] => Via::Load,
            // The id itself is refused: a new process would refuse it too.
            [
                Tried {
                    met: Met::Failed(StepFailure::SessionUnknown(_)),
                    ..
                },
            ] => return None,
            [
                Tried {
                    met: Met::Failed(_), ..
                },
            ] => Via::FreshProcess,
            _ => return None,
        };
        Some(head.open(via))
    }

    /// What comes when the head could not be opened as it is, or is not to be kept.
    fn below(&self, head: &Head) -> Step {
        let decides = |tried: &Tried| match tried.met {
            Met::Inspected(_) | Met::Short(_) => true,
            Met::Damaged(_) => Self::keeps_head(&tried.step),
            Met::Failed(_) => false,
        };
        let Some(last) = self.tried.iter().rposition(decides) else {
            return Step::Inspect;
        };
        let (before, since) = (&self.tried[..last], &self.tried[last + 1..]);
        let ways = match &self.tried[last].met {
            // The restore may have put the transcript in place, so that it can be copied now.
            Met::Inspected(_) if took_archive(since) => return Step::Inspect,
            // The transcript is complete but in the wrong place, and the user can remove the obstacle: accept no less.
            Met::Inspected(_) if since.iter().any(Tried::is_misplaced) => return Step::GiveUp,
            Met::Inspected(found) => self.ways_found(head, found, !took_archive(before)),
            Met::Short(found) => self.ways_beside(&self.tried[last].step, found),
            Met::Damaged(_) | Met::Failed(_) => Vec::new(),
        };
        // A session that was never written is no loss. Otherwise, start fresh only on request.
        let may_lose_all = self.goal.min_fidelity == Fidelity::None || !self.has_history();
        let fresh = may_lose_all.then_some(Step::Fresh);
        let is_new = |step: &Step| since.iter().all(|tried| tried.step != *step);
        let mut ways = ways.into_iter().chain(fresh);
        ways.find(is_new).unwrap_or(Step::GiveUp)
    }

    /// The ways that are possible with what is on disk, best first.
    fn ways_found(&self, head: &Head, found: &Inspection, may_restore: bool) -> Vec<Step> {
        if self.is_unread(found) {
            // It may be complete, and an older state would lose turns without need.
            return match self.goal.min_fidelity {
                Fidelity::None => in_order(self.ways(found)),
                _ => Vec::new(),
            };
        }
        let holds_turns = found.head.as_ref().is_some_and(|file| file.turns > 0);
        let is_whole = found.head.as_ref().is_some_and(OnDisk::usable);
        let mut ways = Vec::new();
        if found.is_astray && self.may_take(Via::Located) {
            ways.push(head.open(Via::Located));
        } else if found.is_kept && !holds_turns && head.written && may_restore && self.may_take(Via::Archive)
        {
            ways.push(head.open(Via::Archive));
        }
        let copy = head.copy(Via::Copied);
        if is_whole && self.may_take(Via::Copied) && self.is_enough(&copy) {
            ways.push(copy);
        }
        ways.append(&mut in_order(self.ways(found)));
        ways
    }

    /// The ways that keep more than the head that this step opened, and the step itself.
    fn ways_beside(&self, step: &Step, found: &Inspection) -> Vec<Step> {
        let is_damaged = found.head.as_ref().is_some_and(|file| !file.usable());
        let mut ways = match is_damaged {
            true => self.ways(found),
            false => Vec::new(),
        };
        if self.is_enough(step) {
            let kept = found.head.as_ref().map_or(0, |file| file.turns);
            ways.push((kept, 0, step.clone()));
        }
        in_order(ways)
    }

    /// The repaired copy, the ancestors and the text, if they keep as much as was asked for. Each with the turns that it keeps,
    /// and its rank among those that keep as many.
    fn ways(&self, found: &Inspection) -> Vec<(u64, u8, Step)> {
        let mut ways: Vec<(u64, u8, Step)> = Vec::new();
        let sources = self.goal.ancestors.iter().enumerate();
        for (index, source) in sources.filter(|_| self.may_take(Via::OlderLink)) {
            let file = found.ancestors.get(index).and_then(Option::as_ref);
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
                };
                ways.push((0, 1, step));
            }
        }
        ways.extend(self.rebuilding(found));
        if found.readable_turns > 0 {
            ways.push((found.readable_turns.min(PREAMBLE_TURNS), 2, Step::Text));
        }
        ways.retain(|(_, _, step)| self.is_enough(step));
        ways
    }

    /// A repaired copy of the head, where it is damaged and the copy would hold more than the agent reads of it, or the agent
    /// does not open it.
    fn rebuilding(&self, found: &Inspection) -> Option<(u64, u8, Step)> {
        let (head, file) = (self.goal.head.as_ref()?, found.head.as_ref()?);
        let read = if self.head_is_short() { file.turns } else { 0 };
        let is_way = self.may_take(Via::Rebuilt) && file.repaired_turns > read;
        // What the head was told of older sessions stands in it too.
        let lost = self.turns_of_head().saturating_sub(file.repaired_turns);
        let kept = self.total_turns().saturating_sub(lost).max(file.repaired_turns);
        is_way.then_some((kept, 0, head.copy(Via::Rebuilt)))
    }

    /// Whether the agent can open what this way makes, and has not refused one already.
    fn may_take(&self, way: Via) -> bool {
        self.can_reopen() && !self.goal.refused.iter().any(|(_, via, _)| *via == way)
    }

    fn can_reopen(&self) -> bool {
        self.goal.can_resume || self.goal.can_load
    }

    /// Whether the agent has refused the head before this climb. A process that forgot what it had open may well open it
    /// again: Claude's adapter does so when the session's own process ended.
    fn is_refused(&self, head: &Head) -> bool {
        let of_head = |(id, via, _): &(UpstreamId, Via, String)| *id == head.upstream_id && *via != Via::Live;
        self.goal.refused.iter().any(of_head)
    }

    /// Whether the head's transcript cannot be read although it should hold turns.
    fn is_unread(&self, found: &Inspection) -> bool {
        found.unread.is_some() && self.is_expected()
    }

    fn cause_so_far(&self) -> Option<RollCause> {
        let head = self.goal.head.as_ref()?;
        let mut cause = self.is_refused(head).then_some(RollCause::Forgotten);
        let mut is_opening = cause.is_none();
        for tried in &self.tried {
            match &tried.met {
                // This decides, whatever came before.
                Met::Failed(StepFailure::SessionUnknown(_)) if is_opening => {
                    cause = Some(RollCause::Forgotten);
                }
                Met::Failed(StepFailure::Process(_)) if is_opening => {
                    cause.get_or_insert(RollCause::AgentDied);
                }
                Met::Failed(_) if is_opening => {
                    cause.get_or_insert(RollCause::Other);
                }
                Met::Failed(_) => {}
                Met::Inspected(found) => {
                    is_opening = false;
                    cause = self.cause_on_disk(found).or(cause);
                }
                Met::Short(_) | Met::Damaged(_) => {
                    is_opening = false;
                    cause = Some(RollCause::Damaged);
                }
            }
        }
        cause
    }

    fn cause_on_disk(&self, found: &Inspection) -> Option<RollCause> {
        match &found.head {
            _ if self.is_unread(found) => None,
            None => (self.goal.readable && self.head_written()).then_some(RollCause::Lost),
            Some(file) => (!file.usable()).then_some(RollCause::Damaged),
        }
    }

    /// The attempts before a step that is taken now.
    fn attempts_before<'a>(&'a self, now: Option<&'a Step>) -> impl Iterator<Item = Attempt> + 'a {
        let refused = self.goal.refused.iter().map(|(id, via, error)| Attempt {
            upstream_id: Some(id.clone()),
            via: *via,
            error: Some(error.clone()),
        });
        let next = self.tried.iter().skip(1).map(|tried| Some(&tried.step));
        let tried = self.tried.iter().zip(next.chain([now]));
        refused.chain(tried.filter_map(|(tried, next)| self.attempt(tried, next)))
    }

    /// How a step that was tried is reported. `next` is the step that followed it.
    fn attempt(&self, tried: &Tried, next: Option<&Step>) -> Option<Attempt> {
        let Tried { step, met } = tried;
        let head = || self.goal.head.as_ref().map(|head| head.upstream_id.clone());
        let (upstream_id, via, error) = match met {
            // Not `via_of`: the next step depends on how it was really tried.
            Met::Failed(failure) => (step.target(), step.via(), failure.text().to_owned()),
            Met::Inspected(found) if self.is_unread(found) => (head(), Via::Copied, found.unread.clone()?),
            Met::Inspected(_) => return None,
            // The session was kept.
            Met::Short(_) if next == Some(step) => return None,
            Met::Short(found) => (step.target(), self.via_of(step), self.loss(found)),
            Met::Damaged(lost) => {
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

    /// How a step brings a session back, as it is reported.
    fn via_of(&self, step: &Step) -> Via {
        match self.goal.was_restored && Self::keeps_head(step) {
            true => Via::Archive,
            false => step.via(),
        }
    }
}

impl Tried {
    fn is_misplaced(&self) -> bool {
        matches!(self.met, Met::Failed(StepFailure::Misplaced(_)))
    }
}

/// Whether our backup was restored among these.
fn took_archive(tried: &[Tried]) -> bool {
    tried.iter().any(|tried| tried.step.via() == Via::Archive)
}

/// What keeps most first. Stable: among equals the nearest ancestor comes first, and a resumed state before a retelling.
fn in_order(mut ways: Vec<(u64, u8, Step)>) -> Vec<Step> {
    ways.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
    ways.into_iter().map(|(_, _, step)| step).collect()
}
