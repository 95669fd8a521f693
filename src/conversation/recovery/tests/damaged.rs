//! Heads whose transcripts are damaged: kept, left for what keeps more, or repaired in a copy.

use bridge_protocol::link::{Fidelity, RollCause, Via};

use super::ladder::*;

#[test]
fn a_damaged_head_is_left_for_what_keeps_more() {
    let torn = facts(disk(damaged(1), &[on_disk(6)], 7), &[]);
    let climbed = check(
        goal_with_ancestor(),
        &torn,
        &["resume h", "text"],
        Some((Via::Text, Fidelity::Text, 3)),
    );
    assert_eq!(climbed.cause, RollCause::Damaged);
    let attempts = climbed.end.unwrap().attempts;
    crate::words::check(
        "a head that lacks turns",
        "attempt",
        attempts[0].error.as_deref().unwrap(),
    );
    // When that does not work either, the damaged one is better than nothing.
    let failing = facts(
        disk(damaged(1), &[on_disk(6)], 7),
        &[("text", other()), ("olderLink a", other())],
    );
    check(
        goal_with_ancestor(),
        &failing,
        &["resume h", "text", "olderLink a", "resume h"],
        Some((Via::Resume, Fidelity::Partial, 3)),
    );
}

#[test]
fn a_damaged_head_is_repaired_in_a_copy_where_that_holds_more() {
    // The agent reads one turn of it; behind the damage stand two more.
    let torn = facts(disk(repairable(1, 3), &[], 1), &[]);
    let climbed = check(
        goal(),
        &torn,
        &["resume h", "rebuilt h"],
        Some((Via::Rebuilt, Fidelity::Partial, 1)),
    );
    assert_eq!(climbed.cause, RollCause::Damaged);
    assert!(!climbed.kept_head);
    // All turns are there, and yet a part of one is not.
    let torn = facts(disk(repairable(1, 4), &[], 1), &[]);
    check(
        goal(),
        &torn,
        &["resume h", "rebuilt h"],
        Some((Via::Rebuilt, Fidelity::Partial, 1)),
    );
    // The agent joins what can be joined by itself.
    let joined = facts(disk(repairable(3, 3), &[], 3), &[]);
    check(
        goal(),
        &joined,
        &["resume h"],
        Some((Via::Resume, Fidelity::Partial, 1)),
    );
    // One that the agent does not open is repaired in any case, and told in words where that fails.
    let refused = facts(disk(repairable(3, 3), &[], 3), &[("resume h", unknown())]);
    check(
        goal(),
        &refused,
        &["resume h", "inspect", "rebuilt h"],
        Some((Via::Rebuilt, Fidelity::Partial, 1)),
    );
    let failing = [("resume h", unknown()), ("rebuilt h", other())];
    let failing = facts(disk(repairable(3, 3), &[], 3), &failing);
    check(
        goal(),
        &failing,
        &["resume h", "inspect", "rebuilt h", "text"],
        Some((Via::Text, Fidelity::Text, 1)),
    );
}

/// What the head was told of its ancestors is in its own transcript.
#[test]
fn a_repaired_copy_and_the_text_are_measured_alike() {
    let torn = facts(disk(repairable(1, 3), &[on_disk(6)], 7), &[]);
    check(
        goal_with_ancestor(),
        &torn,
        &["resume h", "rebuilt h"],
        Some((Via::Rebuilt, Fidelity::Partial, 1)),
    );
}
