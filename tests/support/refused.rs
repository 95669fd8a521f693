//! Prompts that the model's servers refuse, all at once in one process, together with one that succeeds.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use crate::bridge_of::Bridge;
use crate::support::lab::Agent;

/// A refused prompt, the expected kind of failure, and whether a retry may succeed.
pub(crate) type Case = (&'static str, FailureKind, bool);

/// The kind of failure of a turn, and whether a retry may succeed.
pub(crate) fn failed(turn: &TurnResult) -> (FailureKind, bool) {
    assert_eq!(turn.stop_reason, StopReason::Failed, "{turn:?}");
    let failure = turn.failure.as_ref().expect("a failure");
    (failure.kind, failure.retryable)
}

/// Checks that each refusal is reported with its own kind, keeps its session open, and affects neither the
/// other turns nor the successful one.
pub(crate) fn told_each_for_itself<A: Agent, const CASES: usize>(
    bridge: &Bridge<A>,
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
