//! How a session was resumed.

use bridge_protocol::link::{Fidelity, Resumed, Via};

/// Asserts that a session was resumed in this way and with this fidelity, and that it lacks this many turns.
#[track_caller]
pub(crate) fn check_resumed(resumed: &Resumed, via: Via, fidelity: Fidelity, missing_turns: u64) {
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (via, fidelity, missing_turns),
        "{resumed:?}"
    );
}
