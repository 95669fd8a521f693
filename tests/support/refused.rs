//! Prompts that the model's servers refuse, all at once in one process, beside one that they do not.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use crate::bridge_of::{Bridge, Lab};

/// A refusal, what it must be taken for, and whether the same prompt may succeed later.
pub(crate) type Case = (&'static str, FailureKind, bool);

/// What a turn failed of, and whether it may succeed later.
pub(crate) fn failed(turn: &TurnResult) -> (FailureKind, bool) {
    assert_eq!(turn.stop_reason, StopReason::Failed, "{turn:?}");
    let failure = turn.failure.as_ref().expect("a failure");
    (failure.kind, failure.retryable)
}

/// Each is told for what it is, leaves its session open, and concerns neither the others nor the healthy
/// turn.
pub(crate) fn told_each_for_itself<L: Lab, const CASES: usize>(
    bridge: &Bridge<L>,
    cases: [(ConversationId, Case); CASES],
    (healthy, prompt): (ConversationId, &str),
) {
    let beside = bridge.begin_prompt(healthy, prompt, None);
    let running = cases.map(|(id, case)| (id, case, bridge.begin_prompt(id, case.0, None)));
    for (id, (refused, kind, retryable), turn) in running {
        let turn = turn.wait().expect("a turn result");
        assert_eq!(failed(&turn), (kind, retryable), "{refused}: {turn:?}");
        let expected = match kind {
            FailureKind::RateLimited => ConversationState::Limited,
            _ => ConversationState::Idle,
        };
        let now = bridge.get(id);
        assert_eq!((now.state, now.live), (expected, true), "{refused}");
    }
    let turn = beside.wait().expect("a turn result");
    assert_eq!((turn.stop_reason, turn.failure), (StopReason::EndTurn, None));
    let now = bridge.get(healthy);
    assert_eq!((now.state, now.limit), (ConversationState::Idle, None));
}
