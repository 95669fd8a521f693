//! A climb from its goal to its end, met by what a test says.

use std::collections::HashMap;

use bridge_protocol::link::{Attempt, Fidelity, Link, LinkReason, Relation, Resumed, RollCause, Via};

use crate::chain::SessionCut;
use crate::conversation::recovery::*;

/// What a climb meets: the disk, and the steps that fail. Every other step works.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) disk: Inspection,
    pub(super) failures: HashMap<&'static str, StepFailure>,
}

/// How a climb ended.
#[derive(Debug)]
pub(super) struct Climbed {
    pub(super) steps: Vec<String>,
    pub(super) end: Result<Resumed, Vec<Attempt>>,
    pub(super) cause: RollCause,
    pub(super) kept_head: bool,
}

pub(super) fn unknown() -> StepFailure {
    StepFailure::SessionUnknown("no such session".to_owned())
}

pub(super) fn process() -> StepFailure {
    StepFailure::Process("exit status 1".to_owned())
}

pub(super) fn misplaced() -> StepFailure {
    StepFailure::Misplaced("Permission denied".to_owned())
}

pub(super) fn other() -> StepFailure {
    StepFailure::Other("something else".to_owned())
}

pub(super) fn on_disk(turns: u64) -> Option<TurnCounts> {
    Some(TurnCounts {
        repaired_turns: 0,
        turns,
        max_turns: turns,
        turns_on_all_branches: turns,
        is_last_cut_off: false,
        missing_records: 0,
    })
}

/// A file in which somebody went back behind some of its turns, of which so many are still on its live branch.
pub(super) fn gone_back(turns: u64, behind: u64) -> Option<TurnCounts> {
    let file = on_disk(turns)?;
    Some(TurnCounts {
        turns_on_all_branches: turns + behind,
        ..file
    })
}

pub(super) fn damaged(turns: u64) -> Option<TurnCounts> {
    Some(TurnCounts {
        repaired_turns: 0,
        turns,
        max_turns: turns,
        turns_on_all_branches: 0,
        is_last_cut_off: false,
        missing_records: 1,
    })
}

/// The same, of which a repaired copy would hold more.
pub(super) fn repairable(turns: u64, repaired_turns: u64) -> Option<TurnCounts> {
    let file = damaged(turns)?;
    Some(TurnCounts {
        repaired_turns,
        ..file
    })
}

pub(super) fn source(id: &str, turns_after: u64) -> Source {
    Source {
        upstream_id: id.into(),
        until: SessionCut::at(Some("cp".into())),
        turns_after,
        shared: false,
    }
}

pub(super) fn head(id: &str, turns: u64) -> Link {
    Link {
        upstream_id: id.into(),
        agent: "claude".into(),
        cwd: "/".to_owned(),
        reason: LinkReason::Created,
        relation: Relation::Fresh,
        from_upstream_id: None,
        from_checkpoint_id: None,
        turns,
        carried_turns: 0,
        written: turns > 0,
        at: jiff::Timestamp::UNIX_EPOCH,
        cause: None,
    }
}

/// A head of four turns without ancestors, at an agent that can do everything.
pub(super) fn goal() -> Goal {
    Goal {
        head: Some(head("h", 4)),
        ancestors: Vec::new(),
        min_fidelity: Fidelity::Text,
        can_resume: true,
        can_load: true,
        prefers_load: false,
        can_read_transcripts: true,
        refused: Vec::new(),
        limited: false,
        was_restored: false,
        has_interrupted_turn: false,
        resent_turns: 0,
    }
}

/// A head of four turns that follows `a`, which has six that count.
pub(super) fn goal_with_ancestor() -> Goal {
    let mut goal = goal();
    goal.head.as_mut().unwrap().relation = Relation::Follows;
    goal.ancestors = vec![source("a", 4)];
    goal
}

pub(super) fn name(step: &Step) -> String {
    let via = |via: &Via| serde_json::to_value(via).unwrap().as_str().unwrap().to_owned();
    match step {
        Step::Open {
            upstream_id,
            via: how,
            ..
        } => format!("{} {upstream_id}", via(how)),
        Step::Copy { source, via: how, .. } => format!("{} {source}", via(how)),
        Step::Inspect => "inspect".to_owned(),
        Step::Text => "text".to_owned(),
        Step::Fresh => "fresh".to_owned(),
        Step::GiveUp => "give up".to_owned(),
    }
}

/// More steps than any ladder has, although a step is taken once more when its process dies.
pub(super) fn bound(goal: &Goal) -> usize {
    2 * (goal.ancestors.len() + 10)
}

pub(super) fn climb(goal: Goal, facts: &Facts) -> Climbed {
    let most = bound(&goal);
    let mut climb = Climb::new(goal);
    let mut steps = Vec::new();
    loop {
        assert!(steps.len() <= most, "it climbs for ever: {steps:?}");
        let step = climb.next_step();
        let name = name(&step);
        steps.push(name.clone());
        match &step {
            Step::Inspect => climb.inspected(facts.disk.clone()),
            Step::GiveUp => {
                return Climbed {
                    steps,
                    end: Err(climb.attempts()),
                    cause: climb.cause(),
                    kept_head: false,
                };
            }
            _ => {
                if let Some(failure) = facts.failures.get(name.as_str()) {
                    climb.failed(step, failure.clone());
                    continue;
                }
                if climb.can_be_short(&step)
                    && facts
                        .disk
                        .head
                        .as_ref()
                        .is_some_and(|file| climb.falls_short(&step, file))
                    && !climb.accept_short(&step, facts.disk.clone())
                {
                    continue;
                }
                let id = match &step {
                    Step::Open { upstream_id, .. } => upstream_id.clone(),
                    _ => "new".into(),
                };
                return Climbed {
                    steps,
                    end: Ok(climb.resume_report(&step, id, &MissingContent::default())),
                    cause: climb.cause(),
                    kept_head: Climb::keeps_head(&step),
                };
            }
        }
    }
}

/// The next step fails.
pub(super) fn fails(climb: &mut Climb, failure: StepFailure) {
    climb.failed(climb.next_step(), failure);
}

pub(super) fn lacks(turns: u64, what: &str) -> MissingContent {
    let what = Some(what.to_owned());
    MissingContent {
        turns,
        description: what,
    }
}

pub(super) fn facts(disk: Inspection, failures: &[(&'static str, StepFailure)]) -> Facts {
    Facts {
        disk,
        failures: failures.iter().cloned().collect(),
    }
}

pub(super) fn disk(
    head: Option<TurnCounts>,
    ancestors: &[Option<TurnCounts>],
    readable_turns: u64,
) -> Inspection {
    Inspection {
        head,
        unreadable_reason: None,
        ancestors: ancestors.to_vec(),
        readable_turns,
        turns_after_readable: 0,
        is_misplaced: false,
        has_backup: None,
    }
}

/// Fails unless the climb takes these steps and comes back so: how, with which fidelity, how many turns missing.
#[track_caller]
pub(super) fn check(goal: Goal, facts: &Facts, steps: &[&str], end: Option<(Via, Fidelity, u64)>) -> Climbed {
    let climbed = climb(goal, facts);
    assert_eq!(climbed.steps, steps);
    match (&climbed.end, end) {
        (Ok(resumed), Some((via, fidelity, missing))) => {
            assert_eq!(
                (resumed.via, resumed.fidelity, resumed.missing_turns),
                (via, fidelity, missing)
            );
        }
        (Err(_), None) => {}
        (got, expected) => panic!("expected {expected:?}, got {got:?}"),
    }
    climbed
}
