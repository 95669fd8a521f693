//! Turns that somebody went back behind within the agent, and turns that are lost.

use bridge_protocol::link::{Fidelity, Via};

use super::ladder::*;
use crate::conversation::recovery::*;

#[test]
fn what_somebody_went_back_behind_within_the_agent_is_not_lost() {
    // Ten turns were acknowledged; somebody went back to the third and went on.
    let ten = |min_fidelity| Goal {
        head: Some(head("h", 10)),
        min_fidelity,
        ..goal()
    };
    let full = |via| Some((via, Fidelity::Full, 0));
    let file = gone_back(4, 7);
    let resumed = facts(disk(file.clone(), &[], 4), &[]);
    check(ten(Fidelity::Full), &resumed, &["resume h"], full(Via::Resume));
    // The same of an exact copy, which takes along all that stands in the file.
    let refused = facts(disk(file, &[], 4), &[("resume h", unknown())]);
    check(
        ten(Fidelity::Full),
        &refused,
        &["resume h", "inspect", "copied h"],
        full(Via::Copied),
    );
    // Of ten only nine stand anywhere: one is lost, and which it was nobody knows.
    let lost = facts(disk(gone_back(4, 5), &[], 4), &[]);
    let told = Some((Via::Resume, Fidelity::Partial, 6));
    check(ten(Fidelity::Text), &lost, &["resume h"], told);
    check(ten(Fidelity::Full), &lost, &["resume h", "give up"], None);
}

#[test]
fn what_a_file_lacks_of_what_was_acknowledged() {
    let file = |turns, turns_at_most, turns_anywhere, last_is_cut, breaks| TurnCounts {
        repaired_turns: 0,
        turns,
        max_turns: turns_at_most,
        turns_on_all_branches: turns_anywhere,
        is_last_cut_off: last_is_cut,
        missing_records: breaks,
    };
    // What the file holds, how many were acknowledged, how many are missing, whether somebody went back.
    let table = [
        (file(4, 4, 4, false, 0), 4, 0, false),
        (file(3, 3, 3, false, 0), 4, 1, false),
        (file(3, 4, 4, false, 0), 4, 0, false),
        (file(4, 4, 11, false, 0), 10, 0, true),
        (file(4, 4, 10, false, 0), 10, 0, true),
        (file(4, 4, 9, false, 0), 10, 6, false),
        // Its last turn breaks off: the prompt behind those that were acknowledged, or one of them.
        (file(4, 4, 11, true, 0), 10, 1, true),
        (file(4, 4, 10, true, 0), 10, 1, true),
        // Damage is a loss, whatever else stands there.
        (file(4, 4, 0, false, 1), 10, 6, false),
        (file(4, 4, 11, false, 1), 10, 6, false),
    ];
    for (file, acknowledged, missing, back) in table {
        assert_eq!(
            (
                file.missing_turns(acknowledged),
                file.has_user_gone_back(acknowledged)
            ),
            (missing, back),
            "{file:?} of {acknowledged}"
        );
    }
}

/// Adopted with three turns and a fourth beside them, and one turn of ours that is lost: the one beside them is not it.
#[test]
fn what_lay_beside_the_branch_before_makes_up_for_nothing() {
    let file = gone_back(3, 1).unwrap();
    assert_eq!(file.clone().with_copied_turns(3).missing_turns(4), 1);
    assert_eq!(file.with_copied_turns(0).missing_turns(4), 0);
}

#[test]
fn what_is_not_whole_is_kept_as_partial_or_left_where_all_was_asked_for() {
    let lack = lacks(0, "a record is damaged");
    let opened = |min_fidelity| {
        let unreadable = Goal {
            can_read_transcripts: false,
            min_fidelity,
            ..goal_with_ancestor()
        };
        let mut climb = Climb::new(unreadable);
        let kept = climb.accept_damaged(&climb.next_step(), &lack);
        (climb, kept)
    };
    let (climb, kept) = opened(Fidelity::Partial);
    assert!(kept);
    let resumed = climb.resume_report(&climb.next_step(), "h".into(), &lack);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Partial, 0));
    let (climb, kept) = opened(Fidelity::Full);
    assert!(!kept);
    let told = climb.attempts().remove(0).error.unwrap();
    crate::words::check("a session that is not whole", "attempt", &told);
    assert_eq!(climb.next_step(), Step::GiveUp);
}
