//! What holds for every climb, whatever is asked and whatever the steps meet.

use proptest::collection::vec;
use proptest::prelude::*;

use bridge_protocol::link::{Fidelity, Relation, Via};

use super::ladder::*;
use crate::conversation::recovery::*;

fn file() -> impl Strategy<Value = Option<OnDisk>> {
    proptest::option::of(
        (
            0..30_u64,
            prop::bool::weighted(0.8),
            prop_oneof![3 => Just(0), 1 => 1..30_u64],
            0..30_u64,
        )
            .prop_map(|(turns, whole, behind, repaired)| OnDisk {
                repaired_turns: if whole { 0 } else { repaired },
                turns,
                turns_at_most: turns,
                turns_anywhere: if whole { turns + behind } else { 0 },
                last_is_cut: false,
                breaks: u64::from(!whole),
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
        older in vec((0..10_u64, any::<bool>(), prop::bool::weighted(0.2)), 0..4),
        min_fidelity in prop_oneof![
            Just(Fidelity::None), Just(Fidelity::Text), Just(Fidelity::Partial), Just(Fidelity::Full)
        ],
        (can_resume, can_load, readable) in any::<(bool, bool, bool)>(),
        limited in any::<bool>(),
        head_refused in prop::bool::weighted(0.2),
    ) -> Goal {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let mut after = turns;
        let ancestors = if relation == Relation::Fresh || !has_head { Vec::new() } else {
            older.iter().zip(NAMES).map(|((turns, cut, shared), name)| {
                let until = cut.then(|| "cp".into());
                let source = Source { until, shared: *shared, ..source(name, after) };
                after += turns;
                source
            }).collect()
        };
        let refused = if head_refused && has_head {
            vec![("h".into(), Via::Resume, "no".to_owned())]
        } else {
            Vec::new()
        };
        let head = has_head.then(|| Head { written: written || turns > 0, relation, ..head("h", turns) });
        Goal { head, ancestors, min_fidelity, can_resume, can_load, readable, refused, limited }
    }
}

prop_compose! {
    fn any_case()(goal in any_goal())(
        head in file(),
        older in vec(file(), goal.ancestors.len()),
        readable_turns in 0..40_u64,
        failures in vec(failure(), 10),
        goal in Just(goal),
    ) -> (Goal, Facts) {
        const STEPS: [&str; 10] = [
            "resume h", "load h", "freshProcess h", "copied h", "olderLink a", "olderLink b", "olderLink c",
            "olderLink d", "text", "fresh",
        ];
        let disk = if goal.readable {
            let most = head.iter().chain(older.iter().flatten()).map(|file| file.turns).max().unwrap_or(0);
            disk(head.filter(|_| goal.head.is_some()), &older, if most > 0 { most + readable_turns } else { 0 })
        } else {
            disk(None, &vec![None; goal.ancestors.len()], 0)
        };
        let failures =
            STEPS.into_iter().zip(failures).filter_map(|(step, failure)| Some((step, failure?))).collect();
        (goal, Facts { disk, failures })
    }
}

/// Whether anything says that there was a history.
fn has_history(goal: &Goal, facts: &Facts) -> bool {
    let file = facts.disk.head.as_ref().is_some_and(|file| file.turns > 0);
    goal.head.as_ref().is_some_and(|head| head.written || file)
}

proptest! {
    // A case that fails is told by the failure itself; no file of it is left behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_climb_ends_and_tries_nothing_twice_but_a_damaged_head((goal, facts) in any_case()) {
        let climbed = climb(goal, &facts);
        let mut steps = climbed.steps.clone();
        // It was left for what would have kept more, and is taken up again when none of that worked.
        let reopened = [Via::Resume, Via::Load, Via::FreshProcess];
        let damaged = facts.disk.head.as_ref().is_some_and(|file| file.breaks > 0 || file.turns == 0);
        if let Ok(resumed) = &climbed.end && damaged && reopened.contains(&resumed.via) {
            steps.pop();
        }
        let tried = steps.len();
        steps.sort();
        steps.dedup();
        prop_assert_eq!(steps.len(), tried);
    }

    #[test]
    fn attempts_are_the_steps_in_order_and_the_one_that_worked_is_last((goal, facts) in any_case()) {
        let refused = goal.refused.len();
        let climbed = climb(goal, &facts);
        let tried = climbed.steps.iter().filter(|step| !matches!(step.as_str(), "inspect" | "give up")).count();
        let (attempts, worked) = match &climbed.end {
            Ok(resumed) => (&resumed.attempts, 1),
            Err(attempts) => (attempts, 0),
        };
        prop_assert_eq!(attempts.len(), refused + tried);
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
