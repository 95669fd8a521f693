//! Heads of which the agent has no transcript any more, and we have a copy.

use super::*;

fn gone() -> Inspection {
    Inspection {
        has_backup: Some(true),
        ..disk(None, &[on_disk(6)], 6)
    }
}

#[test]
fn what_cannot_be_put_back_is_tried_once_and_the_rest_follows() {
    for (failure, tried) in [
        (other(), &["archive h"][..]),
        (unknown(), &["archive h"]),
        // Its process may have been ended by what others did in it.
        (process(), &["archive h", "archive h"]),
    ] {
        let lost = facts(gone(), &[("resume h", unknown()), ("archive h", failure)]);
        check(
            goal_with_ancestor(),
            &lost,
            &[&["resume h", "inspect"], tried, &["inspect", "olderLink a"]].concat(),
            Some((Via::OlderLink, Fidelity::Partial, 4)),
        );
    }
}

/// A full disk leaves a head without any content. It is left for a new session only if it is certain that nothing is lost.
#[test]
fn a_head_without_any_content_is_replaced_if_no_turn_was_acknowledged() {
    let written = Link {
        written: true,
        ..head("h", 0)
    };
    let carrying = Link {
        carried_turns: 1,
        ..written.clone()
    };
    let of_unknown_length = Link {
        relation: Relation::Carries,
        ..written.clone()
    };
    let (fresh, given_up) = (
        &["resume h", "inspect", "fresh"][..],
        &["resume h", "inspect", "give up"][..],
    );
    for (head, has_backup, steps) in [
        (&written, Some(false), fresh),
        (&written, None, given_up),
        (&carrying, Some(false), given_up),
        (&of_unknown_length, Some(false), given_up),
    ] {
        for file in [None, on_disk(0)] {
            let found = Inspection {
                has_backup,
                ..disk(file, &[], 0)
            };
            let goal = Goal {
                head: Some(head.clone()),
                ..goal()
            };
            let is_replaced = steps == fresh;
            let end = is_replaced.then_some((Via::Fresh, Fidelity::Full, 0));
            let climbed = check(goal, &facts(found, &[("resume h", unknown())]), steps, end);
            assert!(
                !is_replaced || climbed.cause == RollCause::Forgotten,
                "{climbed:?}"
            );
        }
    }
}

/// The same where the disk is not compared with what was acknowledged: the count comes from what was loaded.
#[test]
fn what_a_restored_rollout_lacks_is_told() {
    for (min_fidelity, is_taken) in [(Fidelity::Partial, true), (Fidelity::Full, false)] {
        let mut climb = Climb::new(Goal {
            min_fidelity,
            can_read_transcripts: false,
            ..goal()
        });
        fails(&mut climb, unknown());
        climb.inspected(gone());
        let step = climb.next_step();
        assert!(!climb.can_be_short(&step));
        let lack = lacks(2, "the last turns are missing from the backup (2)");
        assert_eq!(climb.accept_damaged(&step, &lack), is_taken);
        if is_taken {
            let resumed = climb.resume_report(&step, "h".into(), &lack);
            assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Partial, 2));
        }
    }
}

#[test]
fn nothing_is_put_back_where_a_transcript_is_or_never_was() {
    let there = Inspection {
        has_backup: Some(true),
        ..disk(on_disk(4), &[], 4)
    };
    let refused = facts(there, &[("resume h", unknown())]);
    check(
        goal(),
        &refused,
        &["resume h", "inspect", "copied h"],
        Some((Via::Copied, Fidelity::Full, 0)),
    );
    let once = Goal {
        refused: vec![("h".into(), Via::Archive, "no".to_owned())],
        ..goal_with_ancestor()
    };
    let lost = facts(gone(), &[]);
    check(
        once,
        &lost,
        &["inspect", "olderLink a"],
        Some((Via::OlderLink, Fidelity::Partial, 4)),
    );
    let new = Goal {
        head: Some(head("h", 0)),
        ..goal()
    };
    let never = Inspection {
        has_backup: Some(true),
        ..Inspection::default()
    };
    let lost = facts(never.clone(), &[("resume h", unknown())]);
    // What was copied of a branch or of an unacknowledged turn, too.
    check(
        new.clone(),
        &lost,
        &["resume h", "inspect", "archive h"],
        Some((Via::Archive, Fidelity::Full, 0)),
    );
    let nothing = Inspection {
        has_backup: Some(false),
        ..never
    };
    check(
        new,
        &facts(nothing, &[("resume h", unknown())]),
        &["resume h", "inspect", "fresh"],
        Some((Via::Fresh, Fidelity::Full, 0)),
    );
}
