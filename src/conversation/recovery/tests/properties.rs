//! What holds for every climb, whatever is asked and whatever the steps meet.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use bridge_protocol::link::{Fidelity, Relation, Via};

use super::ladder::*;
use crate::chain::SessionCut;
use crate::conversation::recovery::*;

/// Every step that can fail.
const STEPS: [&str; 13] = [
    "resume h",
    "load h",
    "freshProcess h",
    "located h",
    "archive h",
    "copied h",
    "rebuilt h",
    "olderLink a",
    "olderLink b",
    "olderLink c",
    "olderLink d",
    "text",
    "fresh",
];

fn file() -> impl Strategy<Value = Option<TurnCounts>> {
    proptest::option::of(
        (
            0..30_u64,
            prop::bool::weighted(0.8),
            prop_oneof![3 => Just(0), 1 => 1..30_u64],
            0..30_u64,
        )
            .prop_map(|(turns, whole, behind, repaired)| TurnCounts {
                repaired_turns: if whole { 0 } else { repaired },
                turns,
                max_turns: turns,
                turns_on_all_branches: if whole { turns + behind } else { 0 },
                is_last_cut_off: false,
                missing_records: u64::from(!whole),
            }),
    )
}

fn failure() -> impl Strategy<Value = Option<StepFailure>> {
    prop_oneof![
        Just(None),
        Just(Some(unknown())),
        Just(Some(process())),
        Just(Some(other()))
    ]
}

prop_compose! {
    /// A goal whose numbers fit together: what came after an ancestor is at least what is on the head.
    fn any_goal()(
        has_head in prop::bool::weighted(0.9),
        turns in 0..30_u64,
        written in any::<bool>(),
        relation in prop_oneof![Just(Relation::Fresh), Just(Relation::Follows), Just(Relation::Carries)],
        older in vec((0..10_u64, any::<bool>(), prop::bool::weighted(0.2)), 0..=4),
        min_fidelity in prop_oneof![
            Just(Fidelity::None), Just(Fidelity::Text), Just(Fidelity::Partial), Just(Fidelity::Full)
        ],
        (can_resume, can_load, prefers_load, readable) in any::<(bool, bool, bool, bool)>(),
        limited in any::<bool>(),
        (interrupted, is_resent) in any::<(bool, bool)>(),
        head_refused in prop::bool::weighted(0.2),
        refused_too in proptest::option::weighted(0.3, prop_oneof![Just(Via::Located), Just(Via::Archive), Just(Via::Rebuilt)]),
    ) -> Goal {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let mut after = turns;
        let ancestors = if relation == Relation::Fresh || !has_head { Vec::new() } else {
            older.iter().zip(NAMES).map(|((turns, cut, shared), name)| {
                let until = SessionCut::at(cut.then(|| "cp".into()));
                let source = Source { until, shared: *shared, ..source(name, after) };
                after += turns;
                source
            }).collect()
        };
        let refused = if head_refused && has_head {
            let vias = [Via::Resume].into_iter().chain(refused_too);
            vias.map(|via| ("h".into(), via, "no".to_owned())).collect()
        } else {
            Vec::new()
        };
        let has_interrupted_turn = interrupted && has_head && (written || turns > 0);
        let resent_turns = u64::from(is_resent && (has_interrupted_turn || turns > 0));
        let head = has_head.then(|| Link { written: written || turns > 0, relation, ..head("h", turns) });
        Goal { head, ancestors, min_fidelity, can_resume, can_load, prefers_load, can_read_transcripts: readable, refused, limited, was_restored: false, has_interrupted_turn, resent_turns }
    }
}

prop_compose! {
    /// What the disk says. What is read and not copied tells of its turns, and of no file; what cannot be read is none.
    fn any_disk(is_readable: bool, has_head: bool, ancestors: usize)(
        head in file(),
        older in vec(file(), ancestors),
        readable_turns in 0..40_u64,
        turns_after_readable in prop_oneof![3 => Just(0), 1 => 1..9_u64],
        is_unread in prop::bool::weighted(0.15),
        is_astray in prop::bool::weighted(if is_readable { 0.1 } else { 0.5 }),
        is_kept in proptest::option::of(prop::bool::weighted(0.6)),
    ) -> Inspection {
        let found = if is_readable {
            let most = head.iter().chain(older.iter().flatten()).map(|file| file.turns).max().unwrap_or(0);
            let head = head.filter(|_| has_head && !is_unread);
            disk(head, &older, if most > 0 { most + readable_turns } else { 0 })
        } else {
            disk(None, &vec![None; older.len()], readable_turns)
        };
        let unread = (is_unread && has_head).then(|| "it cannot be read".to_owned());
        Inspection { unreadable_reason: unread, is_misplaced: is_astray && has_head, has_backup: is_kept.filter(|_| has_head), turns_after_readable, ..found }
    }
}

prop_compose! {
    fn any_case()(goal in any_goal())(
        disk in any_disk(goal.can_read_transcripts, goal.head.is_some(), goal.ancestors.len()),
        failures in vec(failure(), STEPS.len()),
        is_hindered in prop::bool::weighted(0.3),
        goal in Just(goal),
    ) -> (Goal, Facts) {
        let failures = STEPS.into_iter().zip(failures).filter_map(|(step, failure)| Some((step, failure?)));
        // Only where something is to be brought back can that be hindered.
        let hindered = is_hindered.then(|| ("located h", misplaced()));
        let failures = failures.chain(hindered).collect();
        (goal, Facts { disk, failures })
    }
}

/// Whether anything says that there was a history.
fn has_history(goal: &Goal, facts: &Facts) -> bool {
    let file = facts.disk.head.as_ref().is_some_and(|file| file.turns > 0);
    // A turn whose prompt is sent again does not count.
    let interrupted = u64::from(goal.has_interrupted_turn);
    let more_turns = |head: &Link| head.turns + head.carried_turns + interrupted > goal.resent_turns;
    let is_written = |head: &Link| head.written && goal.resent_turns == 0 && !is_empty(goal, head, facts);
    let has_turns = |head: &Link| is_written(head) || more_turns(head);
    goal.head.as_ref().is_some_and(|head| has_turns(head) || file)
}

/// Whether no turn is known to have begun on the head, and nothing of it is on disk.
fn is_empty(goal: &Goal, head: &Link, facts: &Facts) -> bool {
    let is_fresh = head.relation == Relation::Fresh;
    is_fresh
        && !goal.has_interrupted_turn
        && head.turns + head.carried_turns == 0
        && facts.disk.has_backup == Some(false)
}

/// What holds for every climb says nothing of a rung that none of them takes.
#[test]
fn every_rung_is_met_and_brings_something_back_or_fails() {
    let mut runner = TestRunner::deterministic();
    let (mut worked, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let (mut hindered, mut unread) = (0, 0);
    for _ in 0..4_000 {
        let (goal, facts) = any_case().new_tree(&mut runner).unwrap().current();
        let climbed = climb(goal, &facts);
        let (last, before) = climbed.steps.split_last().unwrap();
        let last = climbed.end.is_ok().then_some(last);
        worked.extend(last.cloned());
        let fails = |step: &&String| facts.failures.contains_key(step.as_str());
        failed.extend(before.iter().filter(fails).cloned());
        let located = before.iter().any(|step| step == "located h");
        hindered += u32::from(located && facts.failures.get("located h") == Some(&misplaced()));
        unread +=
            u32::from(facts.disk.unreadable_reason.is_some() && before.iter().any(|step| step == "inspect"));
    }
    let all = BTreeSet::from(STEPS.map(str::to_owned));
    assert_eq!(worked, all);
    assert_eq!(failed, all);
    assert!(
        hindered > 10 && unread > 100,
        "{hindered} hindered, {unread} unread"
    );
}

/// A step whose process dies is taken once more, so that a climb can have nearly twice as many steps as there are ways.
#[test]
fn a_climb_in_which_every_process_dies_ends() {
    let mut goal = goal_with_ancestor();
    goal.ancestors = ["a", "b", "c", "d"].map(|name| source(name, 4)).to_vec();
    let disk = Inspection {
        is_misplaced: true,
        ..disk(on_disk(4), &[1, 2, 3, 4].map(on_disk), 10)
    };
    let facts = facts(disk, &STEPS.map(|step| (step, process())));
    let steps = climb(goal, &facts).steps;
    let dies_twice = ["located h", "copied h", "olderLink a", "olderLink d", "text"];
    for name in dies_twice {
        assert_eq!(steps.iter().filter(|step| *step == name).count(), 2, "{steps:?}");
    }
}

proptest! {
    // A case that fails is told by the failure itself; no file of it is left behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_climb_ends_and_tries_nothing_twice_but_a_damaged_head((goal, facts) in any_case()) {
        let climbed = climb(goal, &facts);
        let mut steps = climbed.steps.clone();
        // What may have ended its process is seen in one of its own.
        steps.dedup_by(|again, first| {
            again == first && matches!(facts.failures.get(first.as_str()), Some(StepFailure::Process(_)))
        });
        // It was left for what would have kept more, and is taken up again when none of that worked.
        let reopened = [Via::Resume, Via::Load, Via::FreshProcess, Via::Located, Via::Archive];
        let damaged = facts.disk.head.as_ref().is_some_and(|file| file.missing_records > 0 || file.turns == 0);
        if let Ok(resumed) = &climbed.end && damaged && reopened.contains(&resumed.via) {
            steps.pop();
        }
        // What was put back and not opened may be copied now.
        if steps.iter().any(|step| step == "archive h")
            && let Some(again) = steps.iter().rposition(|step| step == "inspect")
            && steps.iter().filter(|step| *step == "inspect").count() == 2
        {
            steps.remove(again);
        }
        let tried = steps.len();
        steps.sort();
        steps.dedup();
        prop_assert_eq!(steps.len(), tried);
    }

    #[test]
    fn attempts_are_the_steps_in_order_and_the_one_that_worked_is_last((goal, facts) in any_case()) {
        let refused = goal.refused.len();
        // Why the head's transcript is of no use is told like a copy of it that failed, where anything was to be in it.
        let expected = goal.head.as_ref().is_some_and(|head| head.written && !is_empty(&goal, head, &facts));
        let climbed = climb(goal, &facts);
        let looked = climbed.steps.iter().any(|step| step == "inspect");
        let unread = usize::from(looked && expected && facts.disk.unreadable_reason.is_some());
        let tried = climbed.steps.iter().filter(|step| !matches!(step.as_str(), "inspect" | "give up")).count();
        let (attempts, worked) = match &climbed.end {
            Ok(resumed) => (&resumed.attempts, 1),
            Err(attempts) => (attempts, 0),
        };
        prop_assert_eq!(attempts.len(), refused + tried + unread);
        let without_error: Vec<usize> =
            (0..attempts.len()).filter(|index| attempts[*index].error.is_none()).collect();
        prop_assert_eq!(without_error, (attempts.len() - worked..attempts.len()).collect::<Vec<_>>());
        if let Ok(resumed) = &climbed.end {
            let last = resumed.attempts.last().unwrap();
            prop_assert_eq!((last.via, last.upstream_id.as_ref()), (resumed.via, Some(&resumed.upstream_id)));
        }
    }

    #[test]
    fn nothing_starts_fresh_silently((goal, facts) in any_case()) {
        let climbed = climb(goal.clone(), &facts);
        if let Ok(resumed) = &climbed.end && resumed.via == Via::Fresh && has_history(&goal, &facts) {
            prop_assert_eq!(goal.min_fidelity, Fidelity::None);
            prop_assert_eq!(resumed.fidelity, Fidelity::None);
        }
    }

    /// What is there, and where it is not looked for, can be put back: nothing less is taken for it.
    #[test]
    fn what_is_misplaced_is_left_for_nothing((goal, facts) in any_case()) {
        let climbed = climb(goal, &facts);
        let is_misplaced = matches!(facts.failures.get("located h"), Some(StepFailure::Misplaced(_)));
        if is_misplaced && climbed.steps.iter().any(|step| step == "located h") {
            prop_assert!(climbed.steps.ends_with(&["located h".to_owned(), "give up".to_owned()]));
            prop_assert!(climbed.end.is_err());
        }
    }

    /// A kept copy is restored only if there is no transcript with turns, once, and before anything that keeps less is tried.
    #[test]
    fn a_kept_copy_comes_before_what_keeps_less((goal, facts) in any_case()) {
        let climbed = climb(goal, &facts);
        let place = |name: &str| climbed.steps.iter().position(|step| step.starts_with(name));
        if let Some(archive) = place("archive h") {
            let holds_turns = facts.disk.head.as_ref().is_some_and(|file| file.turns > 0);
            prop_assert!(!holds_turns && facts.disk.has_backup == Some(true));
            let less = ["copied", "rebuilt", "olderLink", "text", "fresh "].map(place);
            prop_assert!(less.into_iter().flatten().all(|less| archive < less));
        }
    }

    #[test]
    fn nobody_gets_less_than_was_asked_for((goal, facts) in any_case()) {
        let climbed = climb(goal.clone(), &facts);
        if let Ok(resumed) = &climbed.end {
            prop_assert!(resumed.fidelity >= goal.min_fidelity, "{:?}", climbed);
        }
    }

    #[test]
    fn full_is_said_exactly_when_nothing_is_missing((goal, facts) in any_case()) {
        if let Ok(resumed) = climb(goal, &facts).end {
            if resumed.fidelity == Fidelity::Full {
                prop_assert_eq!(resumed.missing_turns, 0);
            }
            if resumed.fidelity == Fidelity::Partial {
                prop_assert!(resumed.missing_turns > 0);
            }
        }
    }

    #[test]
    fn only_the_head_itself_is_kept_as_the_head((goal, facts) in any_case()) {
        let climbed = climb(goal.clone(), &facts);
        if let Ok(resumed) = &climbed.end {
            let is_head = goal.head.as_ref().is_some_and(|head| head.upstream_id == resumed.upstream_id);
            prop_assert_eq!(climbed.kept_head, is_head);
        }
    }
}
