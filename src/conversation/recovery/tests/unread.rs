//! What the disk cannot tell: a head that cannot be read, and turns behind all that can.

use bridge_protocol::link::{Fidelity, Via};

use super::super::*;
use super::ladder::*;

/// What is on a disk that does not answer now may be there tomorrow: nothing is left for an older state.
#[test]
fn a_head_that_cannot_be_read_is_not_left() {
    let unread = Inspection {
        unreadable_reason: Some("its transcript cannot be read: Input/output error".to_owned()),
        ..disk(None, &[on_disk(6)], 6)
    };
    let climbed = check(
        goal_with_ancestor(),
        &facts(unread.clone(), &[("resume h", unknown())]),
        &["resume h", "inspect", "give up"],
        None,
    );
    let attempts = climbed.end.unwrap_err();
    assert_eq!(
        attempts[1].error.as_deref(),
        Some("its transcript cannot be read: Input/output error")
    );
    let anything = Goal {
        min_fidelity: Fidelity::None,
        ..goal_with_ancestor()
    };
    check(
        anything,
        &facts(unread.clone(), &[("resume h", unknown())]),
        &["resume h", "inspect", "olderLink a"],
        Some((Via::OlderLink, Fidelity::Partial, 4)),
    );
    // Of one that nothing was ever said in nothing is expected to be there.
    let mut never_written = goal();
    never_written.head = never_written.head.map(|head| Link {
        written: false,
        turns: 0,
        ..head
    });
    let nothing = Inspection {
        unreadable_reason: unread.unreadable_reason,
        ..Inspection::default()
    };
    check(
        never_written,
        &facts(nothing, &[("resume h", unknown())]),
        &["resume h", "inspect", "fresh"],
        Some((Via::Fresh, Fidelity::Full, 0)),
    );
}

/// The ancestor's own history may be longer than what the head was seen to take along.
#[test]
fn turns_behind_what_is_retold_are_missing_however_long_that_is() {
    let gone = Inspection {
        turns_after_readable: 4,
        ..disk(None, &[None], 19)
    };
    check(
        goal_with_ancestor(),
        &facts(gone, &[("resume h", unknown())]),
        &["resume h", "inspect", "text"],
        Some((Via::Text, Fidelity::Text, 4)),
    );
}
