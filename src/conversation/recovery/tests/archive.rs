//! Heads of which the agent has no transcript any more, and we have a copy.

use super::*;

fn gone() -> Inspection {
    Inspection {
        has_backup: true,
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
        has_backup: true,
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
        has_backup: true,
        ..Inspection::default()
    };
    let unknown = facts(never, &[("resume h", unknown())]);
    check(
        new,
        &unknown,
        &["resume h", "inspect", "fresh"],
        Some((Via::Fresh, Fidelity::Full, 0)),
    );
}
